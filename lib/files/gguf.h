/* gguf.h: a strict reader of GGUF files, in which llama.cpp keeps models.
 *
 * A file is "GGUF", a version, the numbers of tensors and of keys, the keys with their values, the
 * tensors' names, sizes, number formats and places, and the data from the next multiple of
 * general.alignment on.  All is little-endian.  No count is believed before that many bytes were
 * read: memory grows with what the file holds, up to a limit, and a header has one too.  Of a value
 * that is an array only a short one of numbers is kept, and nothing of a vocabulary (tokenizer.*).
 *
 * Source: the format's description in ggml's docs/gguf.md. */
#ifndef ATTN_LIB_FILES_GGUF_H
#define ATTN_LIB_FILES_GGUF_H

#include <limits.h>

#include "files/safetensors.h"

/* ---- ggml.c: the number formats of ggml, in which GGUF files hold tensors.
 *
 * Rows are stored as blocks of 1, 32 or 256 numbers with scales of their own.  A block is decoded
 * to the very float32 numbers that ggml's own code gives: every product and sum is rounded once, in
 * the same order.
 *
 * Source: ggml's ggml-common.h (layout) and ggml-quants.c (dequantize_row_*). ---- */

#define ATTN_GGML_MAX_BLOCK 256 /* numbers */

struct attn_ggml_type {
    struct attn_safetensors_dtype dtype; /* name, and bits of a number on average, rounded up */
    unsigned numbers, bytes;             /* of a block */
    void (*decode)(float *out, const uint8_t *blocks, size_t count); /* NULL: not read */
};

/* The format of that number in a file; NULL where ggml has none of it.  One without a name in its
 * dtype is a number that ggml no longer gives out. */
const struct attn_ggml_type *attn_ggml_type(uint32_t number);

/* ---- gguf.c: the reader ---- */

#define ATTN_GGUF_MAX_KEYS 100000
#define ATTN_GGUF_MAX_NUMBERS 4096 /* of an array that is kept: one for each layer, or frequency */

/* A key and its value. */
struct attn_gguf_value {
    const char *key;
    enum attn_gguf_kind {
        ATTN_GGUF_NUMBER, /* of any width, an integer or not, or a boolean */
        ATTN_GGUF_TEXT,
        ATTN_GGUF_OTHER, /* an array that is not kept */
    } kind;
    bool is_array;
    size_t count;          /* numbers; bytes of the text */
    const double *numbers; /* [count]; an integer beyond 2^53 is rounded */
    const char *text;      /* ends in a NUL, and has none before */
};

/* A tensor.  The shape of its entry has the fastest dimension last, as safetensors have, and begin
 * and end are bytes of the file. */
struct attn_gguf_tensor {
    struct attn_tensor_entry entry; /* first: tensors are searched by name */
    const struct attn_ggml_type *type;
    const struct attn_gguf *file;
};

/* An open file and its header. */
struct attn_gguf {
    char name[NAME_MAX + 1];
    int file;
    size_t size;
    struct attn_gguf_value *values; /* [num_values], by key */
    size_t num_values, values_room;
    struct attn_gguf_tensor *tensors; /* [num_tensors], by name */
    size_t num_tensors, tensors_room;
    size_t texts, num_texts; /* bytes of names, texts and numbers; their allocations */
};

/* Opens file `name` of a directory descriptor and reads its header; closed with the reader.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED, ATTN_UNSUPPORTED (a format of numbers that ggml
 * no longer reads), ATTN_NO_MEMORY. */
enum attn_status attn_gguf_open(struct attn_gguf **out, int directory, const char *name,
                                struct attn_error *error);
void attn_gguf_close(struct attn_gguf *file); /* takes NULL */

/* Memory that the reader takes; 0 for NULL. */
size_t attn_gguf_memory(const struct attn_gguf *file);

/* The value of that key, NULL where the file has none.  Borrowed. */
const struct attn_gguf_value *attn_gguf_find_value(const struct attn_gguf *file, const char *key);

/* The tensor of that name in the first of some files that has it; NULL: none has. */
const struct attn_tensor_entry *attn_gguf_find_in(struct attn_gguf *const *files, size_t count,
                                                  const char *name);

/* As attn_safetensors_read_f32, on any thread: elements decoded as ggml decodes them.
 * Errors: ATTN_NON_FINITE (with tensor and index), ATTN_UNSUPPORTED (its format), ATTN_IO. */
enum attn_status attn_gguf_read_f32(float *out, const struct attn_tensor_entry *entry, size_t first,
                                    size_t count, struct attn_error *error);

#endif
