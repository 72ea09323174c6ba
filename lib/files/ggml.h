/* ggml.h: the number formats of ggml, in which GGUF files hold tensors.
 *
 * Rows are stored as blocks of 1, 32 or 256 numbers with scales of their own.  A block is decoded
 * to the very float32 numbers that ggml's own code gives: every product and sum is rounded once, in
 * the same order.
 *
 * Source: ggml's ggml-common.h (layout) and ggml-quants.c (dequantize_row_*). */
#ifndef ATTN_LIB_FILES_GGML_H
#define ATTN_LIB_FILES_GGML_H

#include "files/safetensors.h"

#define ATTN_GGML_MAX_BLOCK 256 /* numbers */

struct attn_ggml_type {
    struct attn_safetensors_dtype dtype; /* name, and bits of a number on average, rounded up */
    unsigned numbers, bytes;             /* of a block */
    void (*decode)(float *out, const uint8_t *blocks, size_t count); /* NULL: not read */
};

/* The format of that number in a file; NULL where ggml has none of it.  One without a name in its
 * dtype is a number that ggml no longer gives out. */
const struct attn_ggml_type *attn_ggml_type(uint32_t number);

#endif
