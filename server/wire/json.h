/* json.h: a strict pull reader for request bodies.
 *
 * The reader goes over the bytes once and builds no tree: callers ask for the value they expect.
 * The syntax is RFC 8259's and nothing more (no comments, no trailing commas, no leading zeros, no
 * bare NaN).  Text must be UTF-8, and nesting is bounded by SRV_JSON_MAX_DEPTH.  After an error
 * every call fails with that error, so a caller may check once. */
#ifndef SRV_JSON_H
#define SRV_JSON_H

#include "base/arena.h"
#include "base/cancel.h"
#include "config/bounds.h"

struct srv_json {
    const char *start, *at, *end; /* at: after the last bracket entered or value read */
    unsigned depth;
    struct srv_error *error;  /* code SRV_OK until something is wrong */
    struct srv_cancel cancel; /* asked between members and elements; may be set after `init` */
    const char *cancel_at;    /* where in the text `cancel` is asked next */
};

enum srv_json_type {
    SRV_JSON_BAD, /* no value begins here; the reader has failed */
    SRV_JSON_OBJECT,
    SRV_JSON_ARRAY,
    SRV_JSON_STRING,
    SRV_JSON_NUMBER,
    SRV_JSON_TRUE,
    SRV_JSON_FALSE,
    SRV_JSON_NULL,
};

void srv_json_init(struct srv_json *json, const char *text, size_t length, struct srv_error *error);

/* The type of the next value, which is not consumed. */
enum srv_json_type srv_json_peek(struct srv_json *json);

/* Objects: after `enter`, `next` is called for each member, and returns false at the closing brace
 * or on an error.  `key`, of `size` bytes, receives the member's name with escapes resolved.  A
 * longer name is shortened to size - 1 bytes: with a `size` above those of all names that the
 * caller knows, it matches none of them. */
bool srv_json_enter_object(struct srv_json *json);
bool srv_json_next_member(struct srv_json *json, char *key, size_t size);

/* Arrays, likewise: `next` leaves the reader in front of an element. */
bool srv_json_enter_array(struct srv_json *json);
bool srv_json_next_element(struct srv_json *json);

/* Enter the value of a member, which must be an object; an array, which messages call `wanted`.
 * Otherwise invalid_type, and `next` returns false. */
void srv_json_begin_object(struct srv_json *json, const char *param);
void srv_json_begin_array(struct srv_json *json, const char *wanted, const char *param);

static inline bool srv_json_sound(const struct srv_json *json)
{
    return json->error->code == SRV_OK;
}

/* Fails with "<param> ...", unless something else is wrong already.  Always false. */
bool srv_json_fail(struct srv_json *json, enum srv_error_code code, const char *param,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Scalars.  False, with the error set, where the value is not such.  Errors, for `param`:
 * invalid_type (for integers also a fraction or an exponent), number_out_of_range (beyond int64, or
 * beyond a double), invalid_value (a string of more than max_length bytes), out_of_memory. */
bool srv_json_string(char **out, struct srv_json *json, struct srv_arena *arena, size_t max_length,
                     const char *param);

/* The index of `name`, a string that has been read, in `names` [count]; `count`, with the error
 * set, where it is none of them (invalid_value, with the list). */
size_t srv_json_choice(struct srv_json *json, const char *const *names, size_t count,
                       const char *name, const char *param);

bool srv_json_bool(bool *out, struct srv_json *json, const char *param);
bool srv_json_integer(int64_t *out, struct srv_json *json, const char *param);

/* An integer from `least` to `most`; another one is invalid_value. */
bool srv_json_integer_within(int64_t *out, struct srv_json *json, int64_t least, int64_t most,
                             const char *param);
bool srv_json_double(double *out, struct srv_json *json, const char *param);

/* Consumes `word` (null, true or false), which must be the next value. */
bool srv_json_literal(struct srv_json *json, const char *word);

/* Whether the next value is null, which is then consumed. */
bool srv_json_null(struct srv_json *json);

/* For readers of values that have a form of their own (tensor_json.c).  Both functions set the
 * error and return false: malformed_json at json->at; invalid_type for the next value. */
bool srv_json_expected(struct srv_json *json, const char *what);
bool srv_json_wrong_type(struct srv_json *json, const char *wanted, const char *param);

static inline void srv_json_skip_space(struct srv_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
}

/* Consumes white space and then `byte`; false where another byte stands there. */
static inline bool srv_json_accept(struct srv_json *json, char byte)
{
    srv_json_skip_space(json);
    if (json->at == json->end || *json->at != byte)
        return false;
    json->at++;
    return true;
}

/* Consumes the next value, of any type, and checks its syntax. */
bool srv_json_skip(struct srv_json *json);

/* Whether nothing but white space follows. */
bool srv_json_at_end(struct srv_json *json);

#endif
