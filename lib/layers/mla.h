/* mla.h: the maps of multi-head latent attention (struct attn_mla_spec) between latents and heads.
 *
 * The weights of keys and values, R -> H*nope and R -> H*Dv, are divided by heads: the expanded
 * form multiplies latents by those of all heads, the absorbed form each head's queries and sums by
 * its own.  For queries the weights of keys are packed a second time, transposed.  With int8
 * weights the two copies are rounded apart.
 *
 * Functions that take an engine run on all of its threads; the caller holds its lock.  A row's bits
 * depend on the row, the weights and the level alone. */
#ifndef ATTN_LIB_LAYERS_MLA_H
#define ATTN_LIB_LAYERS_MLA_H

#include "layers/layer.h"

/* The maps of one head. */
struct attn_mla_head {
    struct attn_linear k_up;   /* R -> nope: a latent to the head's key */
    struct attn_linear k_down; /* nope -> R: the head's query to one that multiplies latents */
    struct attn_linear v_up;   /* R -> Dv: a latent, or a sum of latents, to the head's value */
};

static inline bool attn_layer_is_latent(const struct attn_layer *layer)
{
    return layer->spec.mla.kv_lora_rank > 0;
}

/* The maps that read hidden states: to queries, keys and values, or in a latent layer to the latent
 * of queries (queries where there is none), the latent, and the shared part that rotates. */
struct attn_layer_inputs {
    const struct attn_linear *q, *k, *v;
};

static inline struct attn_layer_inputs attn_layer_inputs(const struct attn_layer *layer)
{
    if (!attn_layer_is_latent(layer))
        return (struct attn_layer_inputs){&layer->q, &layer->k, &layer->v};
    return (struct attn_layer_inputs){layer->q_a.out > 0 ? &layer->q_a : &layer->q, &layer->kv_a,
                                      &layer->k_rope};
}

/* Components of a head before those that rotate. */
static inline size_t attn_mla_nope(const struct attn_layer_spec *spec)
{
    return spec->head_dim - spec->mla.rope_head_dim;
}

/* Whether a matrix of such a layer is packed by heads; bytes of what is. */
static inline bool attn_mla_divides(const struct attn_layer_spec *spec, enum attn_matrix matrix)
{
    return spec->mla.kv_lora_rank > 0 && (matrix == ATTN_MATRIX_K || matrix == ATTN_MATRIX_V);
}

size_t attn_mla_weight_bytes(const struct attn_layer_spec *spec);

/* Makes the maps of heads without their arrays; does nothing in other layers.  False where memory
 * is short.  attn_mla_fini frees them. */
bool attn_mla_shape_heads(struct attn_layer *layer);

/* Rows of a head in `linear`, the weights of keys or of values; and packs them, rows [that many]
 * [R], into the maps of head h.  `scratch` has attn_mla_pack_scratch bytes.  Heads may be packed on
 * any threads.  False where memory is short. */
size_t attn_mla_head_rows(const struct attn_layer *layer, const struct attn_linear *linear);
bool attn_mla_pack_head(struct attn_layer *layer, const struct attn_linear *linear, size_t h,
                        const float *rows, void *scratch);
size_t attn_mla_pack_scratch(const struct attn_layer_spec *spec);
void attn_mla_fini(struct attn_layer *layer);

/* The second half of projecting `rows` rows: normalises the latents of queries q_a [rows]
 * [q_lora_rank] and the latents [rows][R] in place, and makes the queries q [rows][H][D] of q_a
 * where the layer has these, and of an indexer index_q [rows][I][head_dim].
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_mla_project(struct attn_engine *engine,
                                                  const struct attn_layer *layer, float *q,
                                                  float *q_a, float *index_q, float *latent,
                                                  size_t rows);

/* The expanded form: keys k [rows][H][D], without the part that rotates, and values v [rows][H][Dv]
 * of latents [rows][R].
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_mla_expand(struct attn_engine *engine,
                                                 const struct attn_layer *layer, float *k, float *v,
                                                 const float *latent, size_t rows);

/* The absorbed form: queries out [rows][H][R + rope_head_dim] for latents and shared parts, of
 * rotated queries q [rows][H][D].
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_mla_absorb(struct attn_engine *engine,
                                                 const struct attn_layer *layer, float *out,
                                                 const float *q, size_t rows);

/* The outputs of heads o [rows][H][Dv] of their weighted sums of latents [rows][H][R].
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_mla_v_up_project(struct attn_engine *engine,
                                                       const struct attn_layer *layer, float *o,
                                                       const float *sums, size_t rows);

/* Multiply-adds of a step of the absorbed form: attn_step_work. */
size_t attn_mla_step_work(const struct attn_layer_spec *spec, size_t rows, size_t keys);

/* Bytes of one row of a call as integers, at most, in the products of latents; and bytes of a call
 * beside its rows. */
size_t attn_mla_integer_bytes(const struct attn_layer_spec *spec);
size_t attn_mla_call_bytes(const struct attn_layer_spec *spec);

#endif
