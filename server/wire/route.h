/* route.h: the type of a route.  The table of all routes is in api/routes.c; main hands it to the
 * rooms below at start. */
#ifndef SRV_ROUTE_H
#define SRV_ROUTE_H

#include "wire/request.h"

/* A handler fills request->reply and returns.  Handlers run on the event thread, of requests
 * without a body, and wait for nothing.  Where the route says that this reply is long, an I/O
 * worker runs its handler: an event thread writes no reply of more than SRV_SHORT_BYTES. */
typedef void srv_handler(struct srv_request *request);
typedef bool srv_is_long(const struct srv_request *request);

/* A parser reads the request's body into a job and sets request->job.  Parsers run on threads of
 * the engine or I/O workers, while the connection waits (http/job.c).  Where a parser fails,
 * its caller makes the error the reply. */
typedef enum srv_error_code srv_job_parser(struct srv_request *request, struct srv_error *error);

/* The body that a route takes.  From SRV_BODY_TENSORS on a body is required. */
enum srv_body_rule {
    SRV_BODY_NONE,
    SRV_BODY_IGNORED,          /* of any type, at most SRV_MAX_DOCUMENT_BYTES; it means nothing */
    SRV_BODY_OPTIONAL,         /* JSON */
    SRV_BODY_OPTIONAL_TENSORS, /* JSON, and after it the bytes of tensors, if any */
    SRV_BODY_TENSORS, /* JSON, and after it the bytes of tensors, if any; replies likewise */
    SRV_BODY_BYTES,   /* a session's state */
};

/* The API key that a route requires, where keys are configured. */
enum srv_access {
    SRV_FOR_INFER,   /* one of the scope `infer`; the default of a route */
    SRV_FOR_ADMIN,   /* one of the scope `admin` */
    SRV_FOR_OWNER,   /* one of `infer`, or of `admin`, which may name another key's session */
    SRV_FOR_METRICS, /* one of `metrics` or `admin` */
    SRV_FOR_ANY_KEY, /* one of any scope */
    SRV_FOR_ALL,     /* none */
};

struct srv_document_table; /* wire/document.h */

/* A route as /openapi.json describes it, beside what its other columns tell (openapi/main.c).  The
 * unit suite openapi names a route that lacks a part.  A schema is one of the tables there. */
struct srv_route_doc {
    const char *id;         /* its operationId, "getSession" */
    const char *summary;    /* one line without its full stop */
    unsigned status;        /* of a success; 0: 200 */
    const char *request;    /* schema of the JSON body; NULL: none, or bytes */
    const char *reply;      /* schema of a success; NULL: no body, or no JSON */
    const char *errors;     /* error codes beyond those of all routes of its kind, or NULL */
    const char *parameters; /* names of parameters, likewise */
};

#define SRV_SHORT_BYTES ((size_t)64 << 10)

/* A route has either a handler, which replies at once, or a parser, whose job is queued for the
 * scheduler. */
struct srv_route {
    enum srv_method method;
    const char *path; /* "/sessions/{id}": whole segments, at most one {..} */
    enum srv_body_rule body;
    srv_handler *handle;   /* or NULL */
    srv_is_long *is_long;  /* the handler's reply; NULL: never */
    srv_job_parser *parse; /* or NULL */
    enum srv_access access;
    bool while_draining; /* served also while models load and after SIGTERM */
    bool slash;          /* one slash may follow the path, which has no {..} */
    const char *type;    /* media type of replies, for Accept; NULL: application/json; several
                          * words: the path chooses, and Accept is not looked at */
    const struct srv_document_table *fields; /* of a body that is a document; NULL: none */
    struct srv_route_doc doc;
};

/* All routes; constant while the daemon runs. */
struct srv_routes {
    const struct srv_route *items; /* [count] */
    size_t count;
};

/* Whether a path, which a query may follow, is /v2 or below: the Open Inference Protocol. */
static inline bool srv_v2_is_path(const char *path)
{
    return strncmp(path, "/v2", 3) == 0 && strchr("/?", path[3]) != NULL; /* or its NUL */
}

#endif
