/* oracle.h: attention as the textbook writes it, in double, one score at a time.
 *
 * The oracle is slow, obvious and compiled without permission to reorder; tests compare the library
 * with it.  The oracle takes the argument structs of attn.h but shares no code with the library.
 * This part begins at queries, keys and values; oracle_layer.h computes those from hidden
 * states. */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include "attn.h"

/* Results in double; NULL = not wanted.  Shapes as in struct attn_outputs with nothing selected. */
struct oracle_outputs {
    double *output, *weights, *average, *lse;
    double *scores[3];                  /* by enum attn_stage */
    struct attn_head_stats *head_stats; /* without patterns */
    size_t local_radius;
    double *key, *value, *query, *head_output, *concat; /* of a layer */
};

/* A call, from queries, keys and values on, with the settings of its layer. */
struct oracle_problem {
    size_t batch, queries, keys;
    size_t num_heads, num_kv_heads, head_dim, value_head_dim;
    const double *query, *key, *value;     /* [B][H][T][D], [B][G][S][D], [B][G][S][Dv] */
    const double *extra_key, *extra_value; /* [extra][G][D], [extra][G][Dv]: seen by every row */
    size_t extra;
    struct attn_modifiers modifiers; /* defaults resolved, but for query_offset */
    size_t chunk;                    /* queries see keys of their own chunk of so many; 0: all */
    const float *sinks;              /* [H] or NULL */
    struct attn_position_bias_spec position_bias;
    const float *bias_table;              /* [buckets][H] of a T5 position bias */
    const struct attn_relative *relative; /* the tables of a disentangled one, else NULL */
};

/* out->output is [B][H][T][Dv]. */
void oracle_solve(struct oracle_outputs *out, const struct oracle_problem *problem);

/* The same numbers as doubles. */
void oracle_widen(double *out, const float *in, size_t count);

/* Weightless attention.  args->outputs is ignored. */
void oracle_core(struct oracle_outputs *out, const struct attn_core_args *args);

/* The largest error of `got` against `want`, relative to the largest finite |want| of each row of
 * `width` values or to 0.1, whichever is more: a sum that cancels has no relative accuracy.
 * Infinite for a NaN, and where only one of the two is an infinity. */
double oracle_error(const float *got, const double *want, size_t rows, size_t width);

/* The same; *at becomes the index of that element, 0 if there is no error. */
double oracle_worst(size_t *at, const float *got, const double *want, size_t rows, size_t width);

#endif
