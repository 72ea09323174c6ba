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

/* Bounds of the arrays that no projection passes on; position biases are checked where they are
 * built. */
static enum attn_status check_weights(const struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_layer_spec *s = &layer->spec;
    size_t q_norm = attn_norm_floats(&s->qk_norm, s->num_heads, s->head_dim);
    size_t k_norm = attn_norm_floats(&s->qk_norm, s->num_kv_heads, s->head_dim);
    const struct {
        const float *x;
        size_t n;
        const char *name;
    } arrays[] = {
        {layer->bias_k, layer->k.out, "bias_k"},
        {layer->bias_v, layer->v.out, "bias_v"},
        {layer->q_norm, q_norm, "q_norm"},
        {layer->k_norm, k_norm, "k_norm"},
        {layer->q_norm_bias, q_norm, "q_norm"},
        {layer->k_norm_bias, k_norm, "k_norm"},
        {layer->sinks, layer->spec.num_heads, "sinks"},
        {layer->q_a_norm, layer->q_a.out, "q_a_layernorm"},
        {layer->kv_a_norm, layer->kv_a.out, "kv_a_layernorm"},
    };
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && status == ATTN_OK; i++)
        status = attn_check_magnitudes(arrays[i].x, arrays[i].n, ATTN_MAX_MAGNITUDE, arrays[i].name,
                                       error);
    return status;
}

/* Derives the disentangled position bias, unless it is there, and frees what it is made of. */
static enum attn_status derive_relative(struct attn_layer *layer, struct attn_error *error)
{
    if (layer->relative.rows > 0)
        return ATTN_OK;
    const enum attn_status status =
        attn_relative_init(&layer->relative, &layer->spec, layer->bias_table, layer->table_norm,
                           &layer->q, &layer->k, error);
    if (status != ATTN_OK || layer->relative.rows == 0)
        return status;
    attn_free(layer->bias_table);
    attn_free(layer->table_norm);
    layer->bias_table = layer->table_norm = NULL;
    return ATTN_OK;
}

enum attn_status attn_layer_derive(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_rope_spec *rope = &layer->spec.rope;
    enum attn_status status = check_weights(layer, error);
    if (status == ATTN_OK)
        status =
            attn_position_bias_init(&layer->position_bias, &layer->spec, layer->bias_table, error);
    if (status == ATTN_OK)
        status = derive_relative(layer, error);
    if (status != ATTN_OK)
        return status;
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
