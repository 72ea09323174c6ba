/* job.h: one queued request, from its parsed body to its reply.
 *
 * A job goes through stages, one after another.  A stage is
 *   - a set of items, whose steps may be computed in different batches,
 *   - one long computation, which gives way to batches,
 *   - pieces of about a millisecond, as of an export,
 *   - or a change to a session, between two batches.
 *
 * Jobs and items live in the arena of their request.  A body is parsed into a job on a compute
 * thread or by an I/O worker; from then until its reply is due the engine thread alone touches the
 * job.  Replies are written on a compute thread or by an I/O worker. */
#ifndef SRV_JOB_H
#define SRV_JOB_H

#include "attn_limits.h"
#include "schedule/fair_queue.h"
#include "schedule/scheduler.h"
#include "session/models.h"
#include "store/store.h"
#include "wire/shapes.h"

struct srv_encoding; /* of encoding.c */
struct srv_job_stage;

/* A step over one session with its request. */
struct srv_item {
    struct srv_queue_node node;       /* queued while the item is the first of its session */
    struct srv_item *next_of_session; /* the next item of the same session, bound later */
    bool is_first;                    /* when bound, its session had no other item */
    struct srv_job *job;
    const struct srv_rows *rows;
    const struct srv_model *model; /* that the body names, else the session's */
    size_t layer;                  /* the call's */
    struct srv_sizes sizes;        /* keys and columns are set when the step is made */
    struct srv_session *session;
    size_t work;          /* estimated multiply-adds (batch.c), set when the item is queued */
    size_t charged;       /* bytes of blocks that the session's owner was charged for the step */
    size_t block_bytes;   /* of the layer, with those */
    uint64_t revision;    /* the session's when the step was made */
    bool creates_session; /* the session is removed again if the item fails */
    unsigned retries;     /* runs that found no room in the pool */
    bool copies;          /* the step copies a block that is shared */
    bool is_replay;       /* the rows are cached already: computed again, not appended */
    uint64_t digest[2];   /* of the rows and their position_ids */
    struct attn_step step;
    struct srv_error error;
};

/* One stage of jobs.  Stages are constants; which one follows is what `run` returns. */
struct srv_job_stage {
    /* The queue in which the job waits: SRV_QUEUE_ATTENDS for a long computation, SRV_QUEUE_PIECES
     * for each piece, SRV_QUEUE_CHANGES for a change.  SRV_QUEUE_STEPS: the job's items wait, each
     * in that queue or in SRV_QUEUE_LONG_STEPS. */
    enum srv_queue_kind queue;

    /* A change waits for the end of a long step that runs, which may be of the same session; and
     * where a journal is kept for its turn, since the change may wait for the disk. */
    bool at_once;   /* this change waits for neither */
    bool any_time;  /* this change does not wait for the end of a long step */
    bool completes; /* the stages before are on record: done also where the request is cancelled */

    /* Runs the stage, or a piece of it, on the engine thread; errors go to job->error.
     * Returns the stage that follows, the same one while there are more pieces, NULL where the
     * reply is due.  NULL in stages of items. */
    const struct srv_job_stage *(*run)(struct srv_job *job);
};

/* The steps of the job's items; where none has failed, job->finish follows. */
extern const struct srv_job_stage srv_steps_stage;

/* The functions of jobs of one kind, beside those of their stages; any may be NULL. */
struct srv_job_type {
    /* The session, beside those of items, whose tokens the job needs, with a reference; NULL where
     * there is none.  The job waits until the session is in memory. */
    struct srv_session *(*needs)(const struct srv_job *job);

    /* Frees what the job itself holds outside the arena, once the reply is written. */
    void (*release)(struct srv_job *job);

    /* Appends the reply's JSON, on a compute thread or an I/O worker.  NULL: a stage replies. */
    void (*encode)(const struct srv_job *job, struct srv_buffer *out);
};

struct srv_job {
    const struct srv_job_type *type;
    const struct srv_scheduler_context *context;
    const struct srv_job_stage *stage;  /* that it waits for, at first its first one */
    const struct srv_job_stage *finish; /* that follows its items, or its session; NULL: none */
    struct srv_queue_node node;         /* queued but while its items are */
    struct srv_request *request;
    struct srv_call call;
    struct srv_item *items; /* [num_items] */
    size_t num_items;
    size_t pending;                 /* items that have not ended */
    size_t changes;                 /* that the stage makes, each at the cost of one; 0: one */
    struct srv_error error;         /* of the whole request */
    struct srv_session *parked_for; /* its tokens are still on the disk (unread.c); a reference */
    size_t parks;                   /* times that it was parked */
    size_t room;                    /* bytes of the pool that the next stage takes, about */

    /* A session that its step creates has this Idempotency-Key: where such a session is live, the
     * step is a retry and goes to that.  NULL: none. */
    const char *start_key;

    /* A session that the job makes before its items are bound (encoding.c), or instead of items,
     * and which srv_record_stage puts into the table. */
    struct srv_session *session; /* with a reference */
    struct srv_store_import recorded;
    bool replayed; /* an earlier request of its key, or the same one, has made the session */
    struct srv_encoding *encoding; /* that fills it; NULL: none */

    /* Of a long computation: */
    const struct srv_model *model;  /* NULL: weightless */
    size_t work;                    /* estimated multiply-adds */
    size_t rows;                    /* that metrics count */
    struct attn_call_size size;     /* by which its memory is estimated */
    const struct attn_yield *yield; /* set before the stage runs, or NULL */

    /* Of an attention over given rows: */
    struct srv_sizes sizes;
    struct attn_modifiers modifiers;
    struct attn_outputs outputs;
};

/* Allocates `size` zeroed bytes in the request's arena, which begin with a job of that type; NULL,
 * with out_of_memory, where there is no room.  The parser sets request->job once all is read. */
void *srv_job_new(size_t size, const struct srv_job_type *type, struct srv_request *request,
                  const struct srv_scheduler_context *context, struct srv_error *error);

/* Reads the body into the call of a new job and settles the form of the reply.  Errors: those of
 * srv_call_read, bad_request. */
enum srv_error_code srv_job_read(struct srv_job *job, enum srv_call_kind kind,
                                 struct srv_error *error);

/* Splits the request's body where its JSON ends and the bytes of tensors begin.  Error:
 * bad_request. */
enum srv_error_code srv_job_split_body(struct srv_body *out, struct srv_request *request,
                                       struct srv_error *error);

/* Whether the reply is to have the coding that the client accepts: the body says so, or else the
 * option. */
bool srv_job_is_compressed(const struct srv_call *call, enum srv_reply_compression option);

/* The specification of the body's layer in a model.  Error: layer_not_found. */
enum srv_error_code srv_job_find_layer(const struct attn_layer_spec **out,
                                       const struct srv_job *job, const struct srv_model *model,
                                       struct srv_error *error);

/* Gives the job `count` empty items.  Errors: reply_too_large, out_of_memory. */
enum srv_error_code srv_job_alloc_items(struct srv_job *job, size_t count, struct srv_error *error);

/* Checks that X-Session-Id, where it was sent, names the session of the body.  Error:
 * invalid_value. */
enum srv_error_code srv_job_check_session_header(const struct srv_job *job, const char *session_id,
                                                 struct srv_error *error);

/* Reserves memory of the reply before something is changed, so that what is done is also answered.
 * Error: out_of_memory. */
enum srv_error_code srv_job_reserve_reply(struct srv_request *request, size_t bytes,
                                          struct srv_error *error);

/* Counts what the job has computed in the statistics of its models, drops its references to
 * sessions and calls the type's `release`.  The reply has been written. */
void srv_job_release(struct srv_job *job);

/* ---- encoding.c: the session of cross-attention that a job makes out of an encoder's rows ------
 *
 * The stages of an encoding come before all else: the session is made and charged for; the rows are
 * projected into its cache as one long computation; where a journal is kept, its tokens are
 * recorded in pieces, as those of an import; then the session enters the table.  Nothing of it
 * shows before, nor after an error.
 *
 * Has the job begin with an encoding of its call's rows into a session of that model and these
 * options, and go on with its items, or where it has none with job->finish.  Checks the rows
 * against model and limits.  On a compute thread.  Errors: unsupported, shape_mismatch,
 * too_many_tokens, out_of_memory. */
enum srv_error_code srv_encoding_prepare(struct srv_job *job, const struct srv_model *model,
                                         const struct srv_session_options *options,
                                         struct srv_error *error);

/* Records job->session, which is in no table yet, in pieces and puts it into the table; its items
 * or job->finish follow. */
extern const struct srv_job_stage srv_record_stage;

#endif
