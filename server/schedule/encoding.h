/* encoding.h: the session of cross-attention that a request makes out of an encoder's rows: a
 * start, which is a job with an item, or POST /sessions, a job without.
 *
 * A job that has an encoding goes through it before its items are bound (dispatch.c): the session
 * is made and charged for; the rows are projected into its cache as one long computation; where a
 * journal is kept, its tokens are recorded in pieces, as those of an import; then the session
 * enters the table.  Nothing of it shows before, nor after an error. */
#ifndef SRV_ENCODING_H
#define SRV_ENCODING_H

#include "schedule/job.h"
#include "store/store.h"

struct srv_encoding {
    const struct srv_scheduler_context *context;
    const struct srv_model *model;
    struct srv_session_options options;
    struct attn_encode_args args;
    uint64_t digest[2]; /* of the rows and their mask, which the session's last steps have too */
    struct srv_session *session; /* with a reference; not in the table until `made` */
    struct srv_store_import recorded;
    bool made;
    bool replayed; /* a session that this request has made before was found */
};

/* Gives the job an encoding into a session of that model and these options; srv_encoding_begin
 * fills in the owner.  Checks the rows against model and limits.  On a compute thread.
 * Errors: unsupported, shape_mismatch, too_many_tokens, out_of_memory. */
enum srv_error_code srv_encoding_prepare(struct srv_job *job,
                                         const struct srv_scheduler_context *context,
                                         const struct srv_model *model,
                                         const struct srv_session_options *options,
                                         struct srv_error *error);

/* Whether the job's encoding is still to be done. */
bool srv_encoding_is_due(const struct srv_job *job);

/* Each of the engine owner, with errors in job->error.  `begin` makes the session, or finds the one
 * that the same request has made before: by its key, or, of a start, by its id with the same rows.
 * `compute` projects the rows, giving way through job->yield.  `advance` records a piece; true
 * while there is more, and after the last one the session is in the table. */
void srv_encoding_begin(struct srv_job *job);
void srv_encoding_compute(struct srv_job *job);
bool srv_encoding_advance(struct srv_job *job);

/* Undoes an encoding that has not come to its end, when the job ends; takes a job without one. */
void srv_encoding_abandon(struct srv_job *job);

/* The estimated multiply-adds of an encoding, and the most bytes of working memory. */
size_t srv_encoding_work(const struct srv_encoding *encoding);
size_t srv_encoding_bytes(const struct srv_encoding *encoding, unsigned threads);

#endif
