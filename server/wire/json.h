/* json.h: a strict pull reader for request bodies.
 *
 * One pass over the bytes, no tree: callers ask for what they expect.  Syntax is RFC 8259's and
 * nothing more (no comments, no trailing commas, no leading zeros, no bare NaN), text must be
 * UTF-8, nesting is bounded by SRV_JSON_MAX_DEPTH.  After an error every call fails the same way,
 * so a caller may check once. */
#ifndef SRV_JSON_H
#define SRV_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/cancel.h"
#include "base/errors.h"
#include "config/bounds.h"

struct srv_json {
    const char *start, *at, *end; /* at: behind the last bracket entered or value read */
    unsigned depth;
    struct srv_error *error; /* code SRV_OK until something is wrong */
    struct srv_cancel pause; /* asked between members and elements; set it after `init` */
    const char *cancel_at;   /* from where on it is asked again */
};

enum srv_json_type {
    SRV_JSON_BAD, /* not the start of any value; the reader has failed */
    SRV_JSON_OBJECT,
    SRV_JSON_ARRAY,
    SRV_JSON_STRING,
    SRV_JSON_NUMBER,
    SRV_JSON_TRUE,
    SRV_JSON_FALSE,
    SRV_JSON_NULL,
};

void srv_json_init(struct srv_json *json, const char *text, size_t length, struct srv_error *error);

/* The type of the value that comes next, which is not consumed. */
enum srv_json_type srv_json_peek(struct srv_json *json);

/* Objects: after `enter`, call `next` for each member; it returns false at the closing brace or on
 * an error.  *key is a copy without escapes in `out` (of `size` bytes; a longer key is cut, which
 * no field name matches). */
bool srv_json_enter_object(struct srv_json *json);
bool srv_json_next_member(struct srv_json *json, char *key, size_t size);

/* Arrays, likewise: `next` leaves the reader before an element. */
bool srv_json_enter_array(struct srv_json *json);
bool srv_json_next_element(struct srv_json *json);

/* Scalars.  False, with the error set to invalid_type for `param`, where the value is of another
 * type; integers are exact and refuse fractions and exponents (number_out_of_range beyond int64).
 */
bool srv_json_string(char **out, struct srv_json *json, struct srv_arena *arena, size_t max_length,
                     const char *param);
bool srv_json_bool(bool *out, struct srv_json *json, const char *param);
bool srv_json_integer(int64_t *out, struct srv_json *json, const char *param);
bool srv_json_double(double *out, struct srv_json *json, const char *param);

/* Consumes `word` (null, true, false), which must come next. */
bool srv_json_literal(struct srv_json *json, const char *word);

/* For readers of values that have a form of their own (tensor_json.c).  Both set the error and
 * return false: malformed_json at json->at; invalid_type for the value that comes next. */
bool srv_json_expected(struct srv_json *json, const char *what);
bool srv_json_wrong_type(struct srv_json *json, const char *wanted, const char *param);

/* Passes over the next value, checking its syntax. */
bool srv_json_skip(struct srv_json *json);

/* True where nothing but white space follows. */
bool srv_json_at_end(struct srv_json *json);

#endif
