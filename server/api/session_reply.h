/* session_reply.h: what the endpoints of sessions have in common. */
#ifndef SRV_SESSION_REPLY_H
#define SRV_SESSION_REPLY_H

#include "session/session.h"
#include "wire/document.h"
#include "wire/request.h"

/* Appends the session as GET shows it.  `replayed`: the request had been here before. */
void srv_session_print(struct srv_buffer *out, const struct srv_session *session, bool replayed);

/* Takes room for the reply of a session of the model.  Whoever changes something calls it first:
 * then srv_session_reply does not fail, and no request is refused that was carried out.  Errors:
 * out_of_memory. */
enum srv_error_code srv_session_reserve_reply(struct srv_request *request,
                                              const struct srv_model *model,
                                              struct srv_error *error);

/* Replies with the session and drops the caller's reference. */
void srv_session_reply(struct srv_request *request, unsigned status, struct srv_session *session,
                       bool replayed);

/* Takes a session that could not be recorded out of the table again and drops the caller's
 * reference; returns the error. */
enum srv_error_code srv_session_undo_create(struct srv_session *session,
                                            const struct srv_request *request,
                                            const struct srv_error *error);

/* X-Session-Id is for load balancers, which route by it: it must name the request's session. */
enum srv_error_code srv_session_check_header(const struct srv_request *request, const char *id,
                                             struct srv_error *error);

/* The session of the path, with a reference; looking does not keep it alive.  Errors:
 * invalid_value, session_not_found. */
enum srv_error_code srv_session_of_path(struct srv_session **out, const struct srv_request *request,
                                        struct srv_error *error);
enum srv_error_code srv_session_fail_not_found(struct srv_error *error);

/* The caller's Idempotency-Key, with a digest of all that has to be the same when it comes again:
 * route, session and body. */
void srv_session_set_idempotency_key(struct srv_session_options *out,
                                     const struct srv_request *request);

#endif
