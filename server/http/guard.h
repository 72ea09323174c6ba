/* guard.h: what a request's head must look like before anything else in it is believed.
 *
 * A head is the request line and header fields, given as pointers into the bytes as they arrived
 * (libmicrohttpd parses in place) and passed the scan (scan.h).  The guard sees no socket, so
 * unit tests can try every rule. */
#ifndef SRV_HTTP_GUARD_H
#define SRV_HTTP_GUARD_H

#include <stdint.h>

#include "base/errors.h"
#include "config/bounds.h"
#include "wire/coding.h"

struct srv_header_field {
    const char *name, *value;
    size_t name_length, value_length;
};

struct srv_head {
    const char *method, *path, *version; /* NUL-terminated, where they arrived */
    const char *target;                  /* a copy of the target, with its query */
    size_t count;                        /* of fields */
    struct srv_header_field fields[SRV_MAX_HEADERS];
};

/* How the body is framed. */
struct srv_framing {
    bool has_length, chunked; /* at most one of them; neither: no body */
    bool expects_continue;    /* the client waits for 100 Continue before it sends the body */
    uint16_t origin_length;   /* of scheme and authority before an absolute target's path, or 0 */
    uint64_t length;
};

/* Checks the target and how the body is framed.  After an error the connection must be closed,
 * since the end of the body is not known.  Errors: bad_request, not_implemented. */
enum srv_error_code srv_guard_head(struct srv_framing *out, const struct srv_head *head,
                                   struct srv_error *error);

/* Checks Content-Type of a request that has a body: application/json, and where tensors may follow
 * the JSON (`framed`) application/octet-stream too.  Error: unsupported_media_type. */
enum srv_error_code srv_guard_content_type(const struct srv_head *head, bool framed,
                                           struct srv_error *error);

/* The same for a route whose body is bytes and nothing else: application/octet-stream, or no
 * Content-Type. */
enum srv_error_code srv_guard_content_type_bytes(const struct srv_head *head,
                                                 struct srv_error *error);

/* Reads Content-Encoding, which may stand once: gzip, x-gzip, deflate or identity.  Error:
 * unsupported_media_type. */
enum srv_error_code srv_guard_content_encoding(enum srv_coding *out, const struct srv_head *head,
                                               struct srv_error *error);

/* The coding that Accept-Encoding prefers for a reply; SRV_IDENTITY where it names none that attnd
 * has. */
enum srv_coding srv_guard_accept_encoding(const struct srv_head *head);

#define SRV_JSON_LENGTH "Inference-Header-Content-Length"

/* Reads Inference-Header-Content-Length; *framed says whether it is there.  Without it a body of
 * application/octet-stream cannot be read.  Error: bad_request. */
enum srv_error_code srv_guard_json_length(bool *framed, uint64_t *length,
                                          const struct srv_head *head, struct srv_error *error);

/* Checks that Accept, where given, allows a reply of media type `type`.  Error: not_acceptable. */
enum srv_error_code srv_guard_accept(const struct srv_head *head, const char *type,
                                     struct srv_error *error);

/* The same for routes whose replies are JSON or binary: *binary is true where Accept names
 * application/octet-stream and prefers nothing to it. */
enum srv_error_code srv_guard_accept_binary(bool *binary, const struct srv_head *head,
                                            struct srv_error *error);

/* Reads X-Deadline-Ms, one decimal number from 1 to SRV_MAX_DEADLINE_MS; *ms is 0 without the
 * field.  Error: invalid_value. */
enum srv_error_code srv_guard_deadline(uint64_t *ms, const struct srv_head *head,
                                       struct srv_error *error);

/* The first field of that name, without regard to case; NULL where there is none. */
const struct srv_header_field *srv_head_find(const struct srv_head *head, const char *name);

/* The same for a field that may stand once: *repeated says whether there are more. */
const struct srv_header_field *srv_head_single(bool *repeated, const struct srv_head *head,
                                               const char *name);

/* Copies the field's value where it is an id: 1 to SRV_ID_MAX of [A-Za-z0-9_.-].  False, with `out`
 * empty, where the field is NULL or holds anything else. */
bool srv_header_field_id(char out[SRV_ID_MAX + 1], const struct srv_header_field *field);

/* Reads a field that must hold one id; `out` is empty without the field.  Error: invalid_value. */
enum srv_error_code srv_guard_id(char out[SRV_ID_MAX + 1], const struct srv_head *head,
                                 const char *name, struct srv_error *error);

#endif
