/* latents.h: rows of a latent layer (struct attn_mla_spec) on their way through a call: in
 * attn_attend the expanded form, in a batch of steps the absorbed one. */
#ifndef ATTN_LIB_ATTENTION_LATENTS_H
#define ATTN_LIB_ATTENTION_LATENTS_H

#include "attention/attention.h"
#include "attention/qkv.h"
#include "layers/mla.h"

/* The rows of a call, beside q, k, v and o of the expanded form. */
struct attn_latent_rows {
    float *q_a;      /* [rows][q_lora_rank]; q where the layer has no latents of queries */
    float *latent;   /* [rows][R] */
    float *shared;   /* [rows][rope_head_dim] */
    float *absorbed; /* [rows][H][R + rope_head_dim]: queries that multiply cached tokens */
    float *sums;     /* [rows][H][R]: weighted sums of cached latents */
    size_t groups;   /* of the absorbed form: see attn_latent_rows_set */
};

/* Takes memory for one of the two forms from the engine's workspace; false where that is short. */
bool attn_latent_rows_take(struct attn_latent_rows *out, struct attn_engine *engine,
                           const struct attn_layer *layer, float *q, size_t rows, bool absorbed);

/* ---- The expanded form ---- */

/* Projects hidden states x [rows][E] to latents, and these to q [rows][H][D], k likewise, still
 * without the part that rotates, and v [rows][H][Dv].
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_latent_rows_expand(const struct attn_latent_rows *rows,
                                                         struct attn_engine *engine,
                                                         const struct attn_layer *layer,
                                                         const float *x, size_t count,
                                                         struct attn_qkv to);

/* Copies a row's rotated part, which all heads share, into the keys of its heads k [H][D]; false
 * where a number of these or of v [H][Dv] is beyond ATTN_MAX_MAGNITUDE. */
bool attn_latent_share_key(float *k, const float *v, const struct attn_layer *layer,
                           const struct attn_kernels *kernels, const float *shared);

/* ---- The absorbed form ---- */

/* Makes a step's problem one over cached latents; its rows begin with row `row`.  Where `grouped`
 * its key/value heads are `groups` parts of the heads, units of work that read the same tiles: no
 * bit of a result depends on their number.  Otherwise each head is a part. */
void attn_latent_rows_set(struct attn_problem *p, const struct attn_latent_rows *rows,
                          const struct attn_layer_spec *spec, size_t row, bool grouped);

/* Whether queries [first, first + count) for cached tokens are within ATTN_MAX_MAGNITUDE. */
bool attn_latent_rows_within(const struct attn_latent_rows *rows, struct attn_engine *engine,
                             const struct attn_layer_spec *spec, size_t first, size_t count);

#endif
