/* job.h: one queued request, from its parsed body to its reply.
 *
 * A job is one of three:
 *   - a set of items, whose steps may be computed in different batches;
 *   - an attention over given rows, computed by its type's `compute` as a whole;
 *   - an action on a session between two steps: its type's `begin`, and `advance` piece by piece
 *     where the action takes long.
 *
 * Jobs and items live in the arena of their request.  A body is parsed into a job on a compute
 * thread or by an I/O worker; from then until its reply is due the engine owner alone touches the
 * job.  Replies are written on a compute thread or by an I/O worker. */
#ifndef SRV_JOB_H
#define SRV_JOB_H

#include "schedule/fair_queue.h"
#include "schedule/scheduler_context.h"
#include "session/models.h"
#include "session/session.h"
#include "wire/call.h"
#include "wire/request.h"
#include "wire/shapes.h"

struct srv_encoding; /* encoding.h */

/* A step over one session with its request. */
struct srv_item {
    struct srv_queue_node node;       /* queued while the item is the first of its session */
    struct srv_item *next_of_session; /* the next item of the same session, bound later */
    bool is_first;                    /* when bound, its session had no other item */
    struct srv_job *job;
    const struct srv_rows *rows;
    const struct srv_model *model; /* that the body names, else the session's */
    struct srv_sizes sizes;        /* keys and columns are set when the step is made */
    struct srv_session *session;
    size_t work;          /* estimated multiply-adds (batch.h), set when the item is queued */
    size_t charged;       /* bytes of blocks that the session's owner was charged for the step */
    size_t held;          /* bytes of the layer's blocks, with those */
    uint64_t revision;    /* the session's when the step was made */
    bool creates_session; /* the session is removed again if the item fails */
    bool is_replay;       /* the rows are cached already: computed again, not appended */
    uint64_t digest[2];   /* of the rows and their position_ids */
    struct attn_step step;
    struct srv_error error;
};

/* The functions of one kind of job; each may be NULL.  All but `encode` run on the engine owner's
 * thread; errors go to job->error.  A job without items has `begin`, `compute` or both `begin` and
 * `advance`. */
struct srv_job_type {
    /* Called once, when the job is taken from the inbox, for what takes no time.  Fills the
     * request's reply unless `advance` does. */
    void (*begin)(struct srv_job *job);

    /* `begin` may be called while a long step runs, also of the session that it changes. */
    bool begins_any_time;

    /* The session, beside those of items, whose tokens the job needs, with a reference; NULL where
     * there is none.  The job waits until the session is in memory. */
    struct srv_session *(*needs)(const struct srv_job *job);

    /* Computes a whole attention, giving way to decodes through job->yield. */
    void (*compute)(struct srv_job *job);

    /* Does one piece of about a millisecond; true while there is more.  The last piece fills the
     * request's reply. */
    bool (*advance)(struct srv_job *job);

    /* Called once, after the last item of a job with one item, where that has not failed, for what
     * follows the step: in the fair order of changes where a journal is kept, since it may wait for
     * the disk, and whether or not the request is cancelled by then.  An error is the item's. */
    void (*finish)(struct srv_job *job);

    /* Called when the job ends with an error, before its reply is written: undoes what other
     * requests wait for. */
    void (*abandon)(struct srv_job *job);

    /* Frees what the job itself holds outside the arena, once the reply is written. */
    void (*release)(struct srv_job *job);

    /* Appends the reply's JSON, on a compute thread or an I/O worker. */
    void (*encode)(const struct srv_job *job, struct srv_buffer *out);
};

struct srv_job {
    const struct srv_job_type *type;
    const struct srv_scheduler_context *context; /* NULL in jobs without a call */
    struct srv_queue_node node;                  /* queued where the job has no items */
    struct srv_request *request;
    struct srv_call call;
    struct srv_encoding *encoding; /* that comes before all else (encoding.h); NULL: none */
    struct srv_item *items;        /* [num_items] */
    size_t num_items;
    size_t pending;         /* items that have not ended */
    size_t changes;         /* that `begin` makes, each at the cost of one; 0: one */
    bool ended;             /* the last item has ended, and the reply is due */
    struct srv_error error; /* of the whole request */
    struct srv_session
        *awaited; /* whose tokens are still on the disk (unread.c), with a reference */

    /* A session that its step creates has this Idempotency-Key: where such a session is live, the
     * step is a retry and goes to that.  NULL: none. */
    const char *start_key;

    /* Of an attention over given rows: */
    const struct srv_model *model;  /* NULL: weightless */
    size_t work;                    /* estimated multiply-adds, set when the job is queued */
    const struct attn_yield *yield; /* set before `compute` is called, or NULL */
    struct srv_sizes sizes;
    struct attn_modifiers modifiers;
    struct attn_outputs outputs;
};

/* The item or job that a node is a member of, as the node's `kind` says. */
struct srv_item *srv_item_of(struct srv_queue_node *node);
struct srv_job *srv_job_of(struct srv_queue_node *node);

/* Whether the request is cancelled: its client has left, its deadline has passed, or the daemon
 * stops.  Any thread.  Errors: client_gone, deadline_exceeded, draining. */
enum srv_error_code srv_request_check_cancelled(const struct srv_request *request, uint64_t now_ns,
                                                struct srv_error *error);

/* Allocates a job in the request's arena, reads the body into job->call and settles the form of the
 * reply.  The caller sets the type.  Errors: those of srv_call_read, bad_request,
 * out_of_memory. */
enum srv_error_code srv_job_read(struct srv_job **out, struct srv_request *request,
                                 enum srv_call_kind kind,
                                 const struct srv_scheduler_context *context,
                                 struct srv_error *error);

/* Splits the request's body where its JSON ends and the bytes of tensors begin.  Error:
 * bad_request. */
enum srv_error_code srv_job_split_body(struct srv_body *out, struct srv_request *request,
                                       struct srv_error *error);

/* Whether the reply is to have the coding that the client accepts: the body says so, or else the
 * option. */
bool srv_job_is_compressed(const struct srv_call *call, enum srv_reply_compression option);

/* The model that the body names, or else the only one there is.  Errors: model_not_found,
 * missing_field. */
enum srv_error_code srv_job_find_model(const struct srv_model **out, const struct srv_job *job,
                                       struct srv_error *error);

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

/* Reserves the memory of the reply before steps are computed, so that a step that is appended is
 * also answered.  Error: out_of_memory. */
enum srv_error_code srv_job_reserve_reply(struct srv_job *job, struct srv_error *error);

/* Writes the reply's body: its JSON and, in binary form, the bytes of tensors after the JSON.  On a
 * compute thread or an I/O worker. */
void srv_job_write_reply(const struct srv_job *job);

/* Calls the type's `finish`, where it has one and the job's item has not failed. */
void srv_job_finish(struct srv_job *job);

/* Counts what the job has computed in the statistics of its models, drops the references to the
 * items' sessions and calls the type's `release`.  The reply has been written. */
void srv_job_release(struct srv_job *job);

#endif
