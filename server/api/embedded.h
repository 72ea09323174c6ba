/* embedded.h: replies that are files of the binary: those of the page, and /openapi.json. */
#ifndef SRV_EMBEDDED_H
#define SRV_EMBEDDED_H

#include "wire/request.h"

#define SRV_EMBEDDED_MAX_BYTES (1 << 20) /* of a file, expanded */

struct srv_embedded {
    const char *bytes; /* [length], constant: the file as a member of gzip */
    size_t length;
    const char *type;   /* media type, as Content-Type has it; NULL: application/json */
    const char *fields; /* further header fields, as struct srv_reply has them; or NULL */
};

/* Replies with the file, or with 304 where the client has kept it. */
void srv_reply_embedded(struct srv_request *request, const struct srv_embedded *file);

#endif
