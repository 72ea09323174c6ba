/* route.h: what a route is.  The table of all is in api/routes.c and handed down at start. */
#ifndef SRV_ROUTE_H
#define SRV_ROUTE_H

#include "wire/request.h"

/* A handler of the event thread: fills request->reply and returns.  It must not block. */
typedef void srv_handler(struct srv_request *request);

/* Reads a suspended request's body into request->job, on a compute thread; on failure it fills the
 * reply with the error. */
typedef enum srv_error_code srv_job_parser(struct srv_request *request, struct srv_error *error);

/* From SRV_BODY_TENSORS on there must be one. */
enum srv_body_rule {
    SRV_BODY_NONE,
    SRV_BODY_OPTIONAL, /* JSON */
    SRV_BODY_TENSORS,  /* JSON, behind which tensors may follow; replies likewise */
    SRV_BODY_BYTES,    /* a state */
};

/* Who may ask, where keys are configured: a key of the scope `infer` unless a route says else. */
enum srv_access {
    SRV_FOR_INFER,
    SRV_FOR_ADMIN,
    SRV_FOR_ANY_KEY,
    SRV_FOR_ALL, /* no key is needed */
};

struct srv_route {
    enum srv_method method;
    const char *path; /* "/sessions/{id}": whole segments, at most one {..} */
    enum srv_body_rule body;
    srv_handler *handle;   /* exactly one of these two is set */
    srv_job_parser *parse; /* a job: queued for the scheduler */
    enum srv_access access;
    bool while_draining; /* served while models load and after SIGTERM too */
    const char *type;    /* media type of replies, for Accept; NULL: application/json */
};

/* All routes; constant while the daemon runs. */
struct srv_routes {
    const struct srv_route *items; /* [count] */
    size_t count;
};

#endif
