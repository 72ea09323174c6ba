/* sessions.h: the parts that endpoints of sessions share. */
#ifndef SRV_API_SESSIONS_H
#define SRV_API_SESSIONS_H

#include "schedule/job.h"
#include "wire/document.h"

/* ---- session_reply.c: replying with a session, checking headers ---- */

/* Appends the session as GET shows it to the caller of the request; with "replayed" where the
 * request repeats an earlier one. */
void srv_session_print(struct srv_buffer *out, const struct srv_session *session,
                       const struct srv_request *request, bool replayed);

/* The most bytes of a session of this model as srv_session_print writes it.  Reserved before a
 * session is changed (srv_job_reserve_reply), so that srv_session_reply cannot fail afterwards. */
size_t srv_session_text_bytes(const struct srv_model *model);

/* Appends the session as lists show it: with the length of its longest layer, and without those of
 * all layers and the shape unless `details` are wanted. */
void srv_session_print_listed(struct srv_buffer *out, const struct srv_session *session,
                              const struct srv_request *request, bool details);

/* Makes the reply the session, and drops the caller's reference. */
void srv_session_reply(struct srv_request *request, unsigned status, struct srv_session *session,
                       bool replayed);

/* Replies with the session that the job has made, and counts it as created. */
extern const struct srv_job_stage srv_reply_made_stage;

/* Ends a session: records that, takes the session out of the table and counts it; by the engine
 * thread.  Errors: insufficient_storage, session_not_found (it has ended meanwhile). */
enum srv_error_code srv_session_end(struct srv_session *session, const struct srv_request *request,
                                    struct srv_error *error);

/* Checks that X-Session-Id, where it was sent, names the request's session: load balancers route by
 * that header.  Error: invalid_value. */
enum srv_error_code srv_session_check_header(const struct srv_request *request, const char *id,
                                             struct srv_error *error);

/* Makes the request's API key the owner of the session that is created. */
void srv_session_set_owner(struct srv_session_options *out, const struct srv_request *request);

/* Moves an id, NULL or a text of the body's tree, to the request's arena: the tree is freed when
 * the body has been read.  Error: out_of_memory. */
enum srv_error_code srv_session_keep_id(const char **id, struct srv_request *request,
                                        struct srv_error *error);

/* Sets the request's Idempotency-Key, and a digest of all that must be equal in a repeated request:
 * route, session and body. */
void srv_session_set_idempotency_key(struct srv_session_options *out,
                                     const struct srv_request *request);

/* ---- session_query.c ---- */

struct srv_session_query {
    char after[SRV_ID_MAX + 1]; /* "": not given */
    char owner[SRV_ID_MAX + 1]; /* of the session, where `owned`, or of the one in `after` */
    bool owned, details;
    uint64_t limit, epoch, revision; /* 0: not given */
};

/* Reads the query, of which the route names the parameters.  Errors: unknown_field,
 * duplicate_field, invalid_value, forbidden (?owner without the scope). */
enum srv_error_code srv_session_read_query(struct srv_session_query *out,
                                           const struct srv_request *request,
                                           struct srv_error *error);

/* Whether the session has the epoch and the revision that a request names; 0: it names none.
 * Errors: epoch_mismatch, revision_mismatch. */
enum srv_error_code srv_session_check_named(const struct srv_session *session, uint64_t epoch,
                                            uint64_t revision, struct srv_error *error);

/* The session that the path names, with a reference for the caller: of those that the request's API
 * key may use or, on routes for admins too, the one of ?owner=NAME; on routes with such parameters
 * it has the epoch and revision of the query.  The look-up does not count as use: the session's
 * time to live goes on.
 * Errors: invalid_value, unknown_field, duplicate_field, forbidden (?owner without the scope),
 * wrong_instance, session_not_found, epoch_mismatch, revision_mismatch. */
enum srv_error_code srv_session_of_path(struct srv_session **out, const struct srv_request *request,
                                        struct srv_error *error);

/* ---- session_change.c: what the bodies of forks, truncations and batches ask for ---- */

#define SRV_NOT_GIVEN SIZE_MAX

/* A fork, a truncation or, in a batch, a deletion.  Texts are in the request's arena. */
struct srv_change_call {
    const char *from;       /* the session that is forked or cut */
    const char *session_id; /* of the fork, NULL: one is made up; or the session to delete */
    size_t length;          /* or SRV_NOT_GIVEN */
    size_t epoch, revision; /* 0: not given */
    bool shared;            /* of the fork */
};

/* The fields of an item of a batch: those of a fork, and `from`; those of a deletion. */
extern const struct srv_document_table srv_fork_entry_fields, srv_delete_entry_fields;

/* Makes a fork, records it and counts it; by the engine thread.  *out is the caller's to put.  Of
 * *options the idempotency key and its digest are read.  *replayed: an earlier request of that key
 * has made the session.  Room for its text is reserved in the request's reply.  Errors: those of
 * the route. */
enum srv_error_code srv_fork_make(struct srv_session **out, bool *replayed,
                                  struct srv_request *request, const struct srv_change_call *call,
                                  struct srv_session_options *options, struct srv_error *error);

#endif
