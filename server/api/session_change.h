/* session_change.h: what the bodies of forks, truncations and batches ask for, and a fork made of
 * it. */
#ifndef SRV_SESSION_CHANGE_H
#define SRV_SESSION_CHANGE_H

#include "session/session.h"
#include "wire/document.h"
#include "wire/request.h"

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
extern const struct srv_document_table srv_fork_item_fields, srv_delete_item_fields;

/* Makes a fork, records it and counts it; by the engine owner.  *out is the caller's to put.  Of
 * *options the idempotency key and its digest are read.  *replayed: an earlier request of that key
 * has made the session.  Room for its text is reserved in the request's reply.  Errors: those of
 * the route. */
enum srv_error_code srv_fork_make(struct srv_session **out, bool *replayed,
                                  struct srv_request *request, const struct srv_change_call *call,
                                  struct srv_session_options *options, struct srv_error *error);

#endif
