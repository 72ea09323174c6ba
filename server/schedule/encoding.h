/* encoding.h: the session of cross-attention that a job makes out of an encoder's rows, and the
 * stage in which a session that was made outside the table is recorded.
 *
 * The stages of an encoding come before all else: the session is made and charged for; the rows are
 * projected into its cache as one long computation; where a journal is kept, its tokens are
 * recorded in pieces, as those of an import; then the session enters the table.  Nothing of it
 * shows before, nor after an error. */
#ifndef SRV_ENCODING_H
#define SRV_ENCODING_H

#include "schedule/job.h"

/* Has the job begin with an encoding of its call's rows into a session of that model and these
 * options, and go on with its items, or where it has none with job->finish.  Checks the rows
 * against model and limits.  On a compute thread.  Errors: unsupported, shape_mismatch,
 * too_many_tokens, out_of_memory. */
enum srv_error_code srv_encoding_prepare(struct srv_job *job, const struct srv_model *model,
                                         const struct srv_session_options *options,
                                         struct srv_error *error);

/* Records job->session in pieces and puts it into the table; its items or job->finish follow. */
extern const struct srv_job_stage srv_record_stage;

#endif
