/* shapes.h: the shapes and dtypes that are measured.
 *
 * A shape is a layer (or weightless attention) with a batch and a number of tokens; a dtype is that
 * of weights and caches.  Both are rows of tables.  From a shape and a dtype follow the least
 * number of operations and of bytes read or written, of which the floor is made. */
#ifndef TESTS_BENCH_SHAPES_H
#define TESTS_BENCH_SHAPES_H

#include <stdbool.h>
#include <stddef.h>

#include "attn.h"
#include "peaks.h"

enum bench_kind {
    BENCH_ATTEND, /* attn_attend over all tokens */
    BENCH_DECODE, /* attn_decode, one row for each of `batch` caches that hold `tokens` */
    BENCH_CORE,   /* attn_core, no projections */
};

struct bench_layer {
    const char *name;
    size_t hidden, heads, kv_heads, head_dim; /* hidden 0: a weightless model */
    double rope_theta;                        /* 0: none */
    bool bias, causal;
    /* Latent attention; kv_rank 0: none.  head_dim is the width of a value, and nope + rope that of
     * a query. */
    size_t q_rank, kv_rank, nope, rope;
};

struct bench_shape {
    const char *name;
    enum bench_kind kind;
    const struct bench_layer *layer;
    size_t batch, tokens;
    double growth_mib; /* memory a call may take beyond inputs and output; 0: unchecked */
    bool on_request;   /* measured only when asked for by name: it takes long */
};

struct bench_dtype {
    const char *name;
    enum attn_dtype dtype, kv_dtype; /* of weights, of caches */
    double weight_bytes, kv_bytes;   /* of one number */
    enum bench_peak peak;            /* of the instruction made for it */
    double tolerance;                /* of max_error */
};

extern const struct bench_shape bench_shapes[];
extern const size_t bench_num_shapes;
extern const struct bench_dtype bench_dtypes[];
extern const size_t bench_num_dtypes;

/* The shape of --slope: the llama layer, one session.  The tokens are the longest context. */
extern const struct bench_shape bench_slope_shape;

const struct bench_dtype *bench_dtype_find(const char *name); /* NULL: no such name */

/* Whether `name` selects the shape: by its whole name or, where no shape has that name, by its
 * first letters. */
bool bench_shape_matches(const struct bench_shape *shape, const char *name);

/* Floats of one row of inputs, and of outputs: hidden, or those of a query. */
size_t bench_row_width(const struct bench_layer *layer);

size_t bench_cached_width(const struct bench_layer *layer); /* numbers of a cached token */
double bench_weights(const struct bench_layer *layer); /* numbers in the matrices of a decode */
double bench_flops(const struct bench_shape *shape);
double bench_bytes(const struct bench_shape *shape, const struct bench_dtype *dtype);

#endif
