/* gguf_keys.h: a configuration that is being written from the keys of a GGUF file.  After a fault
 * its status stays, and what is written counts no longer. */
#ifndef ATTN_LIB_FILES_GGUF_KEYS_H
#define ATTN_LIB_FILES_GGUF_KEYS_H

#include "basics/status.h"
#include "files/gguf_config.h"

struct attn_gguf_text {
    const struct attn_gguf *file;   /* the first part, which has the keys */
    struct attn_gguf *const *parts; /* [num_parts] */
    size_t num_parts;
    const struct attn_gguf_architecture *architecture;
    bool *read; /* [attn_gguf_num_values] keys that were looked up */
    char *text; /* [ATTN_GGUF_MAX_CONFIG] */
    size_t length;
    struct attn_error *error;
    enum attn_status status;
};

/* Notes a fault at `param`. */
#define ATTN_GGUF_FAIL(w, code, param, ...) \
    ((w)->status =                          \
         (w)->status != ATTN_OK ? (w)->status : attn_fail((w)->error, code, param, __VA_ARGS__))

/* Whether the configuration of the architecture has the member. */
bool attn_gguf_has_member(const struct attn_gguf_text *w, const char *member);

void attn_gguf_put(struct attn_gguf_text *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes a member, the number with the fewest digits that round to the float32 of the file. */
void attn_gguf_put_number(struct attn_gguf_text *w, const char *member, double number);

/* Of keys the architecture's name before them is left out.  The value, NULL where the file has
 * none. */
const struct attn_gguf_value *attn_gguf_find_key(struct attn_gguf_text *w, const char *key);

/* Refuses a file without that key. */
void attn_gguf_need_key(struct attn_gguf_text *w, const char *key);

/* The number of that key, `absent` where the file has none.  Of an array, which has a number for
 * each layer, all must be the same. */
double attn_gguf_read_number(struct attn_gguf_text *w, const char *key, double absent);

/* The same of an integer, which must be at least 1. */
size_t attn_gguf_read_size(struct attn_gguf_text *w, const char *key, size_t absent);

/* Refuses a file that has another integer there. */
void attn_gguf_want_size(struct attn_gguf_text *w, const char *key, size_t wanted, const char *why);

/* Writes the members of RoPE. */
void attn_gguf_put_rope(struct attn_gguf_text *w);

#endif
