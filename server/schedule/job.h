/* job.h: one queued request, from its parsed body to its reply.
 *
 * A job is an attention over given rows, computed as a whole; or a set of items, each a step over
 * one session that may be computed in a round of its own; or something that is done to a session
 * between its steps, in pieces where it takes long.  It lives in its request's arena. */
#ifndef SRV_JOB_H
#define SRV_JOB_H

#include "schedule/fair_queue.h"
#include "session/models.h"
#include "session/session.h"
#include "wire/call.h"
#include "wire/route.h"
#include "wire/shapes.h"

struct srv_item {
    struct srv_queue_node waiting; /* the first step of its session in line, and none behind it */
    struct srv_item *behind;       /* the session's next step */
    bool first;                    /* there was no step of the session before it */
    struct srv_job *job;
    const struct srv_rows *rows;
    const struct srv_model *model; /* the body's, or the session's where it names none */
    struct srv_sizes sizes;        /* keys and columns are known once the session is */
    struct srv_session *session;
    size_t work;   /* multiply-adds, about, as it came in line */
    bool created;  /* by this item: it goes again if the item fails */
    bool replayed; /* the rows were there already */
    uint64_t digest[2];
    struct attn_step step;
    struct srv_error error;
};

struct srv_job {
    struct srv_queue_node waiting; /* in line, where it has no items */
    struct srv_request *request;
    struct srv_call call;
    const struct srv_model *model; /* of a job without items; NULL: weightless */
    struct srv_item *items;        /* [num_items]; none: an attention over given rows */
    size_t num_items, pending;     /* items not yet ended */
    bool ended;                    /* all of them are, and the reply is on its way */
    struct srv_error error;        /* of the whole request */
    /* A job without items has one or two of these, called on the scheduler's thread; errors go to
     * job->error, and replies other than `encode`'s to the request.  `begin` when the job is taken,
     * for what takes no time; `compute` an attention, as a whole; `advance` a piece of what takes
     * long, true while there is more. */
    void (*begin)(struct srv_job *job);
    void (*compute)(struct srv_job *job);
    bool (*advance)(struct srv_job *job);
    /* On the scheduler's thread too, when the job ends with an error: undoes what others wait for,
     * since its reply may have to wait.  May be NULL. */
    void (*abandon)(struct srv_job *job);
    void (*end)(struct srv_job *job); /* lets go of what the job holds; may be NULL */
    const struct attn_yield *yield;   /* what `compute` gives way to */
    struct srv_sizes sizes;           /* of a job without items, as are these: */
    struct attn_modifiers modifiers;
    struct attn_outputs outputs;
    /* Writes the reply's JSON, on a compute thread. */
    void (*encode)(const struct srv_job *job, struct srv_buffer *out);
};

/* Whether somebody still waits for the request's reply, and the daemon still gives one.  Errors:
 * client_gone, deadline_exceeded, draining. */
enum srv_error_code srv_request_check_cancelled(const struct srv_request *request, uint64_t now_ns,
                                                struct srv_error *error);

/* Makes request->job's struct in the arena, reads the body into it and settles the reply's form. */
enum srv_error_code srv_job_read(struct srv_job **out, struct srv_request *request,
                                 enum srv_call_kind kind, struct srv_error *error);

/* The model that the body names, or else the only one there is.  Errors: model_not_found,
 * missing_field. */
enum srv_error_code srv_job_find_model(const struct srv_model **out, const struct srv_job *job,
                                       struct srv_error *error);

/* The specification of the body's layer in a model.  Error: layer_not_found. */
enum srv_error_code srv_job_find_layer(const struct attn_layer_spec **out,
                                       const struct srv_job *job, const struct srv_model *model,
                                       struct srv_error *error);

/* Gives the job `count` empty items. */
enum srv_error_code srv_job_alloc_items(struct srv_job *job, size_t count, struct srv_error *error);

/* X-Session-Id, where it was sent, has to name the session of the body. */
enum srv_error_code srv_job_check_session_header(const struct srv_job *job, const char *session_id,
                                                 struct srv_error *error);

/* Takes the memory of the reply, before steps are computed: one that is kept is also answered.
 * Errors: out_of_memory. */
enum srv_error_code srv_job_reserve_reply(struct srv_job *job, struct srv_error *error);

/* Writes the reply's body, on a compute thread: its JSON and, in binary form, the bytes behind
 * it. */
void srv_job_write_reply(const struct srv_job *job);

/* Lets go of the sessions of all items, and of what the job itself holds. */
void srv_job_release(struct srv_job *job);

#endif
