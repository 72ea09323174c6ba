/* derive.c: what follows from a layer's weights: their bounds, and the tables that attention
 * reads beside them. */

#include "basics/mem.h"
#include "basics/status.h"
#include "engine/rope.h"
#include "layers/layer.h"

static bool make_extra(struct attn_layer *layer)
{
    const struct attn_layer_spec *s = &layer->spec;
    size_t groups = s->num_kv_heads, d = s->head_dim, dv = s->value_head_dim;
    layer->extra = (size_t)s->bias_kv + s->add_zero_attn;
    if (layer->extra == 0)
        return true;
    layer->extra_k = attn_calloc(groups * d * ATTN_TILE, sizeof(float));
    layer->extra_v = attn_calloc(groups * dv * ATTN_TILE, sizeof(float));
    if (layer->extra_k == NULL || layer->extra_v == NULL)
        return false;
    if (!s->bias_kv)
        return true;
    for (size_t g = 0; g < groups; g++) {
        const struct attn_tile tile = {.k = layer->extra_k + g * d * ATTN_TILE,
                                       .v = layer->extra_v + g * dv * ATTN_TILE};
        attn_tile_put(&tile, 0, layer->bias_k + g * d, layer->bias_v + g * dv, d, dv);
    }
    return true;
}

enum attn_status attn_layer_derive(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_rope_spec *rope = &layer->spec.rope;
    const struct attn_members all = attn_layer_members(&layer->spec);
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < ATTN_NUM_ARRAYS && status == ATTN_OK; i++)
        if (all.arrays[i].name != NULL)
            status = attn_check_magnitudes(layer->arrays[i], all.arrays[i].floats,
                                           ATTN_MAX_MAGNITUDE, all.arrays[i].name, error);
    if (status == ATTN_OK)
        status =
            attn_position_bias_init(&layer->position_bias, &layer->spec, layer->bias_table, error);
    if (status == ATTN_OK && layer->relative.rows == 0)
        status = attn_relative_init(layer, error);
    if (status != ATTN_OK)
        return status;
    if (layer->relative.rows > 0) {
        attn_free(layer->bias_table);
        attn_free(layer->table_norm);
        attn_free(layer->table_norm_bias);
        layer->bias_table = layer->table_norm = layer->table_norm_bias = NULL;
    }
    if (rope->type != ATTN_ROPE_NONE) {
        layer->inv_freq = attn_alloc(rope->dim / 2, sizeof(float));
        if (layer->inv_freq == NULL)
            return attn_fail_memory(error, rope->dim / 2 * sizeof(float));
        attn_rope_frequencies(layer->inv_freq, rope, 0);
    }
    if (!make_extra(layer))
        return attn_fail_memory(error, ATTN_TILE * (layer->k.out + layer->v.out) * sizeof(float));
    return ATTN_OK;
}
