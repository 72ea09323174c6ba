/* errors.h: every error a caller can get: its code word, its HTTP status, whether a retry may help.
 *
 * One table (SRV_ERRORS) makes the enum, the words and the statuses; `make docs` prints it into
 * docs/API.md.  Messages name the field, the value and the limit; never a path, a pointer, a
 * key or another caller's id. */
#ifndef SRV_ERRORS_H
#define SRV_ERRORS_H

#include "attn.h"
#include "base/id.h"

/*      enum                      code word                status retryable meaning */
#define SRV_ERRORS(X)                                                                              \
    X(SRV_E_BAD_REQUEST, "bad_request", 400, false, "request line, headers or framing are wrong")  \
    X(SRV_E_MALFORMED_JSON, "malformed_json", 400, false, "the body is not one JSON object")       \
    X(SRV_E_UNKNOWN_FIELD, "unknown_field", 400, false, "a field this route does not have")        \
    X(SRV_E_MISSING_FIELD, "missing_field", 400, false, "a field this route needs is not there")   \
    X(SRV_E_DUPLICATE_FIELD, "duplicate_field", 400, false, "a field is given twice")              \
    X(SRV_E_INVALID_TYPE, "invalid_type", 400, false, "a field has the wrong JSON type")           \
    X(SRV_E_INVALID_VALUE, "invalid_value", 400, false, "a field has a value it cannot have")      \
    X(SRV_E_MALFORMED_ENCODING, "malformed_encoding", 400, false, "gzip or deflate is damaged")    \
    X(SRV_E_MALFORMED_STATE, "malformed_state", 400, false, "the body is no sound state")          \
    X(SRV_E_UNAUTHORIZED, "unauthorized", 401, false, "no API key, or one that is not known")      \
    X(SRV_E_FORBIDDEN, "forbidden", 403, false, "the API key lacks the scope of this path")        \
    X(SRV_E_ORIGIN, "origin_not_allowed", 403, false, "a web page that allow_origins lacks")       \
    X(SRV_E_ROUTE_NOT_FOUND, "route_not_found", 404, false, "no such path")                        \
    X(SRV_E_MODEL_NOT_FOUND, "model_not_found", 404, false, "no model of that name")               \
    X(SRV_E_LAYER_NOT_FOUND, "layer_not_found", 404, false, "the model has no such layer")         \
    X(SRV_E_SESSION_NOT_FOUND, "session_not_found", 404, false, "unknown, deleted or expired")     \
    X(SRV_E_INPUT_NOT_FOUND, "input_not_found", 404, false, "no input of that digest is kept")     \
    X(SRV_E_METHOD_NOT_ALLOWED, "method_not_allowed", 405, false, "see the Allow header")          \
    X(SRV_E_NOT_ACCEPTABLE, "not_acceptable", 406, false, "Accept excludes every form we have")    \
    X(SRV_E_TIMEOUT, "request_timeout", 408, true, "the request arrived too slowly")               \
    X(SRV_E_SESSION_EXISTS, "session_exists", 409, false, "start or create of a live session")     \
    X(SRV_E_POSITION_CONFLICT, "position_conflict", 409, false, "position is before the length")   \
    X(SRV_E_POSITION_GAP, "position_gap", 409, false, "position is after the length")              \
    X(SRV_E_FORGOTTEN, "position_forgotten", 409, false, "it needs tokens that windows gave up")   \
    X(SRV_E_ROPE_CHANGES, "rope_changes", 409, false, "longrope's cached keys turn otherwise")     \
    X(SRV_E_EPOCH_MISMATCH, "epoch_mismatch", 409, false, "the session was deleted and remade")    \
    X(SRV_E_REVISION_MISMATCH, "revision_mismatch", 409, false, "the session was truncated since") \
    X(SRV_E_SESSION_FULL, "session_full", 409, false, "max_length would be passed")                \
    X(SRV_E_MODEL_MISMATCH, "model_mismatch", 409, false, "the session belongs to another model")  \
    X(SRV_E_FINGERPRINT, "fingerprint_mismatch", 409, false, "the state is of other weights")      \
    X(SRV_E_IDEMPOTENCY, "idempotency_conflict", 409, false, "the key was used for another call")  \
    X(SRV_E_SESSION_LOST, "session_lost", 410, false, "its files are not here, or damaged")        \
    X(SRV_E_LENGTH_REQUIRED, "length_required", 411, false, "a body without a length")             \
    X(SRV_E_BODY_TOO_LARGE, "body_too_large", 413, false, "the body passes its bound")             \
    X(SRV_E_TOO_COMPLEX, "too_complex", 413, false, "nesting or lists pass their bounds")          \
    X(SRV_E_UNSUPPORTED_MEDIA, "unsupported_media_type", 415, false, "Content-Type or -Encoding")  \
    X(SRV_E_WRONG_INSTANCE, "wrong_instance", 421, true, "the session is another instance's")      \
    X(SRV_E_HOST, "host_not_allowed", 421, false, "Host is no name of this daemon's")              \
    X(SRV_E_SHAPE_MISMATCH, "shape_mismatch", 422, false, "shapes do not agree")                   \
    X(SRV_E_NON_FINITE_INPUT, "non_finite_input", 422, false, "a number is NaN or infinite")       \
    X(SRV_E_NUMBER_OUT_OF_RANGE, "number_out_of_range", 422, false, "a number does not fit")       \
    X(SRV_E_TOO_MANY_TOKENS, "too_many_tokens", 422, false, "more tokens than max_tokens")         \
    X(SRV_E_REPLY_TOO_LARGE, "reply_too_large", 422, false, "the reply would pass its bound")      \
    X(SRV_E_UNSUPPORTED, "unsupported", 422, false, "has no meaning for this layer or call")       \
    X(SRV_E_NUMERIC_OVERFLOW, "numeric_overflow", 422, false, "a number does not fit its dtype")   \
    X(SRV_E_QUEUE_FULL, "queue_full", 429, true, "too many requests are waiting")                  \
    X(SRV_E_SESSION_BUSY, "session_busy", 429, true, "too many requests wait for this session")    \
    X(SRV_E_QUOTA, "quota_exceeded", 429, true, "a limit of the API key; param names it")          \
    X(SRV_E_HEADERS_TOO_LARGE, "headers_too_large", 431, false, "header fields pass their bounds") \
    X(SRV_E_CLIENT_GONE, "client_gone", 499, false, "never sent: the client has left")             \
    X(SRV_E_INTERNAL, "internal", 500, false, "a defect of attnd; see its log")                    \
    X(SRV_E_NOT_IMPLEMENTED, "not_implemented", 501, false, "a method or coding attnd lacks")      \
    X(SRV_E_LOADING, "loading", 503, true, "models, or a session's tokens, are being read")        \
    X(SRV_E_LAME_DUCK, "lame_duck", 503, true, "of /readyz alone: attnd serves, and stops soon")   \
    X(SRV_E_DRAINING, "draining", 503, true, "attnd is stopping")                                  \
    X(SRV_E_POOL_FULL, "pool_full", 503, true, "the cache pool's budget is used up")               \
    X(SRV_E_SESSION_LIMIT, "session_limit", 503, true, "max_sessions are live")                    \
    X(SRV_E_CONNECTION_LIMIT, "connection_limit", 503, true, "max_connections are open")           \
    X(SRV_E_STALLED, "storage_stalled", 503, true, "of /readyz alone: the journal waits for disk") \
    X(SRV_E_OUT_OF_MEMORY, "out_of_memory", 503, true, "memory for this request is not there")     \
    X(SRV_E_DEADLINE, "deadline_exceeded", 504, true, "the deadline passed before computing")      \
    X(SRV_E_STORAGE, "insufficient_storage", 507, true, "the journal could not be written")

enum srv_error_code {
    SRV_OK = 0,
#define SRV_ERROR_ENUM(name, word, status, retryable, meaning) name,
    SRV_ERRORS(SRV_ERROR_ENUM)
#undef SRV_ERROR_ENUM
        SRV_ERROR_COUNT
};

struct srv_error {
    enum srv_error_code code;
    char param[64];           /* the field at fault, "" where there is none */
    char message[256];        /* one line */
    uint32_t length;          /* of the session, where has_length */
    uint32_t lowest;          /* the least length, beside 0, to which it can be truncated; 0: any */
    bool has_length;          /* of position_conflict, position_gap and revision_mismatch */
    uint64_t epoch, revision; /* of the session, with revision_mismatch; 0: not given */
    char instance[SRV_INSTANCE_MAX + 1]; /* that the id names, with wrong_instance; else "" */
};

/* Fills *error and returns code, so that a check reads `return srv_fail(error, ...)`. */
enum srv_error_code srv_fail(struct srv_error *error, enum srv_error_code code, const char *param,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes one line for standard error or the log: why attnd does not start, or what it could not
 * read.  Always false, so that a check reads `return srv_refuse(message, ...)`; the message before
 * may be among the values. */
#define SRV_MESSAGE_MAX 1024
bool srv_refuse(char message[SRV_MESSAGE_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes "outer.name", truncated to `size` bytes with its NUL: a field as errors name it. */
void srv_field_path(char *out, size_t size, const char *outer, const char *name);

/* Fills *error from an error of the library, with the same field and message; returns its code. */
enum srv_error_code srv_fail_attn(struct srv_error *error, const struct attn_error *cause);

const char *srv_error_word(enum srv_error_code code);    /* "session_full" */
unsigned srv_error_status(enum srv_error_code code);     /* 409 */
bool srv_error_retryable(enum srv_error_code code);      /* whether the same request may succeed */
const char *srv_error_meaning(enum srv_error_code code); /* for the table in docs/API.md */

#endif
