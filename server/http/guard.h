/* guard.h: what a request's head must look like before anything else in it is believed: its form,
 * the name that it uses, the page and the API key that it comes with.
 *
 * A head is the request line and header fields, given as pointers into the bytes as they arrived
 * (libmicrohttpd parses in place) and passed the scan (scan.h).  The guard sees no socket, so
 * unit tests can try every rule. */
#ifndef SRV_HTTP_GUARD_H
#define SRV_HTTP_GUARD_H

#include "http/http.h"

struct srv_buffer;

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

/* Reads X-Deadline-Ms, one decimal number from 1 to SRV_MAX_DEADLINE_MS; *ms is 0 without the
 * field.  Error: invalid_value. */
enum srv_error_code srv_guard_deadline(uint64_t *ms, const struct srv_head *head,
                                       struct srv_error *error);

/* The first field of that name, without regard to case; NULL where there is none. */
const struct srv_header_field *srv_head_find(const struct srv_head *head, const char *name);

/* The same for a field that may stand once: *repeated says whether there are more. */
const struct srv_header_field *srv_head_single(bool *repeated, const struct srv_head *head,
                                               const char *name);

/* The same, where no more than one may decide how the head is read.  Error: bad_request. */
enum srv_error_code srv_guard_once(const struct srv_header_field **out, const struct srv_head *head,
                                   const char *name, struct srv_error *error);

/* A value, for %.*s of a message. */
#define SRV_FIELD_TEXT(field) (int)(field)->value_length, (field)->value

/* Copies the field's value where it is an id: 1 to SRV_ID_MAX of [A-Za-z0-9_.-].  False, with `out`
 * empty, where the field is NULL or holds anything else. */
bool srv_header_field_id(char out[SRV_ID_MAX + 1], const struct srv_header_field *field);

/* Reads a field that must hold one id; `out` is empty without the field.  Error: invalid_value. */
enum srv_error_code srv_guard_id(char out[SRV_ID_MAX + 1], const struct srv_head *head,
                                 const char *name, struct srv_error *error);

/* ---- negotiation.c: media types and codings of bodies and of replies ---- */

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

/* ---- origin.c: which names of the daemon a request may use, and which web pages may send it ----
 *
 * A browser sends requests for every page that it shows, to any address that its machine reaches.
 * Two header fields that pages cannot forge say for which: Host has the name by which the page
 * found the daemon, which for a page of somebody else's is not one of ours even where that name
 * resolves to our address (DNS rebinding); Origin has the page's own. */

/* Whether Host (`length` bytes, with or without a port) is an address, localhost, a name under it,
 * or one of `names`: a list separated by commas, or NULL for an empty one. */
bool srv_host_is_allowed(const char *host, size_t length, const char *names);

/* Whether Origin is `scheme://` and the same authority as Host; with `tls` only as https. */
bool srv_origin_is_own(const struct srv_header_field *origin, const struct srv_header_field *host,
                       bool tls);

/* Checks Host and Origin before anything else that the head says is used, and sets
 * request->origin.  Without API keys Host must be allowed, and Origin, where given, must be listed
 * in allow_origins or the daemon's own.  With keys Host must be allowed where allowed_hosts is set;
 * a page without a key learns nothing.  `tls`: the connection's.  Errors: host_not_allowed,
 * origin_not_allowed. */
enum srv_error_code srv_origin_check(struct srv_request *request,
                                     const struct srv_http_context *context,
                                     const struct srv_head *head, bool tls,
                                     struct srv_error *error);

/* Replies 204 to a preflight: OPTIONS without a body, from a listed origin, with
 * Access-Control-Request-Method.  False for any other request.  No path is looked at: which ones
 * exist is not said to callers without a key. */
bool srv_origin_answer_preflight(struct srv_request *request, const struct srv_head *head,
                                 const struct srv_framing *framing);

/* Appends the lines of Vary and Access-Control-* that the reply needs.  `pages`: allow_origins is
 * set. */
void srv_origin_write_fields(struct srv_buffer *out, const struct srv_request *request, bool pages);

/* ---- auth.c: whether a request comes with an API key, and one that suffices for its route ---- */

/* Checks that the request has a key with a scope that request->route accepts, or any key where no
 * route matched, and sets request->caller and key.  The request counts towards the key's
 * requests_per_s.  keys NULL: none are configured, and every request passes.
 * Errors: unauthorized, forbidden, quota_exceeded. */
enum srv_error_code srv_auth_check(struct srv_request *request, struct srv_keyring *keys,
                                   const struct srv_head *head, struct srv_error *error);

/* Separates callers that send the same Idempotency-Key: the request's becomes a digest, in 64
 * characters that an id may have, of the name of its API key ("" without) and of what was sent.
 * The name is digested since a key's place in the file, and the key itself, may change while its
 * sessions live. */
void srv_auth_scope_idempotency_key(struct srv_request *request);

#endif
