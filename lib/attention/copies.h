/* copies.h: outputs that are copies of what a call computes anyway: queries, keys, values, and what
 * heads put out. */
#ifndef ATTN_LIB_ATTENTION_COPIES_H
#define ATTN_LIB_ATTENTION_COPIES_H

#include "caches/kvcache.h"
#include "engine/engine.h"
#include "layers/mla.h"

/* Some sequences of a call, and their rows as the computation holds them. */
struct attn_copies {
    const struct attn_layer_spec *spec;
    const struct attn_outputs *outputs; /* of the whole call, checked by attn_maps_init */
    size_t first, count;                /* C = count sequences from `first` on */
    size_t queries, keys;               /* T, S */
    const float *q, *o;                 /* [C][T][H*D], [C][T][H*Dv] */
    const float *k, *v;                 /* [C][S][G*D], [C][S][G*Dv]; NULL: they are cached */
};

/* Copies query, head_output, concat, key and value where they are asked for, on all threads. */
void attn_copy_rows(struct attn_pool *pool, const struct attn_copies *copies);

/* Copies the key and value of the first `keys` tokens of a layer, whose number is `index`, from a
 * cache, where they are asked for; the tokens may be put but not yet visible.  A latent layer makes
 * keys and values of the cached latents.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_copy_cached(struct attn_engine *engine, const struct attn_layer *layer,
                                  const struct attn_outputs *outputs,
                                  const struct attn_cache *cache, size_t index, size_t keys);

/* Whether the outputs need what heads put out. */
bool attn_outputs_need_heads(const struct attn_outputs *outputs);

#endif
