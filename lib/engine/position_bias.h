/* position_bias.h: the number that a layer adds to a score for the distance of query and key.
 *
 * ALiBi (Press et al. 2021) adds slope_h * (key - query).  For 2^n heads the slopes are
 * 2^(-8i/2^n), i = 1 to 2^n; for another number of heads they are those of the next lower power of
 * two, followed by every other slope of the next higher power.  T5 (Raffel et al. 2020) adds a
 * learned number for each head and bucket of key - query.  Half of the buckets hold single
 * distances, the others logarithmic ranges up to max_distance. */
#ifndef ATTN_LIB_ENGINE_POSITION_BIAS_H
#define ATTN_LIB_ENGINE_POSITION_BIAS_H

#include "attn.h"

struct attn_position_bias {
    enum attn_position_bias_type type;
    bool bfloat16; /* alibi: as the specification says */
    bool by_slot;  /* alibi: as the specification says */
    float scale;   /* alibi: factor of slope * position where bfloat16, else part of the slopes */
    float *slopes; /* alibi: [H] */
    float *table;  /* t5: [H][2*reach + 1] by key - query + reach, clamped to [0, 2*reach] */
    size_t reach;
};

/* Checks a specification against its bounds.  Errors: ATTN_OUT_OF_RANGE. */
enum attn_status attn_position_bias_check(const struct attn_position_bias_spec *spec,
                                          struct attn_error *error);

/* Builds the bias of spec->num_heads heads from a checked specification.  `weights` is the layer's
 * table [buckets][H] for t5, else NULL.  *out is valid for fini also after an error.  Errors:
 * ATTN_OUT_OF_RANGE (a weight beyond ATTN_MAX_MAGNITUDE), ATTN_NO_MEMORY. */
enum attn_status attn_position_bias_init(struct attn_position_bias *out,
                                         const struct attn_layer_spec *spec, const float *weights,
                                         struct attn_error *error);
void attn_position_bias_fini(struct attn_position_bias *bias);

/* The T5 bucket of a distance key - query. */
size_t attn_t5_bucket(const struct attn_position_bias_spec *spec, int64_t distance);

/* scores[j] += the bias of head h for a query at position `query` and the key at position keys[j],
 * or first + j where keys is NULL; j < n.  A score of -inf stays; a finite one stays finite, at
 * least -FLT_MAX. */
void attn_position_bias_add(float *scores, const struct attn_position_bias *bias, size_t h,
                            int64_t query, const int64_t *keys, int64_t first, size_t n);

#endif
