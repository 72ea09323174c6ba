/* qkv.c: rotating and checking projected rows, and checking inputs. */
#include "qkv.h"

#include <float.h>
#include <math.h>

#include "attention.h"
#include "rope.h"
#include "status.h"

static void rotate(struct attn_qkv row, const struct attn_layer *layer, int64_t position)
{
    const struct attn_layer_spec *spec = &layer->spec;
    float turn[ATTN_MAX_HEAD_DIM];
    attn_rope_turn(turn, layer->inv_freq, spec->rope.dim, position);
    for (size_t h = 0; h < spec->num_heads; h++)
        attn_rope_rotate(row.q + h * spec->head_dim, turn, spec->rope.dim);
    for (size_t g = 0; g < spec->num_kv_heads; g++)
        attn_rope_rotate(row.k + g * spec->head_dim, turn, spec->rope.dim);
}

bool attn_qkv_settle(struct attn_qkv row, const struct attn_layer *layer,
                     const struct attn_kernels *kernels, int64_t position)
{
    if (layer->inv_freq != NULL)
        rotate(row, layer, position);
    return kernels->all_within(row.q, layer->q.out, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(row.k, layer->k.out, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(row.v, layer->v.out, ATTN_MAX_MAGNITUDE);
}

enum attn_status attn_qkv_fail(struct attn_error *error)
{
    return attn_fail(error, ATTN_OVERFLOW, "hidden_states",
                     "a query, key or value passes the magnitude %g", (double)ATTN_MAX_MAGNITUDE);
}

enum attn_status attn_input_check(const struct attn_kernels *kernels, const float *x, size_t n,
                                  const char *param, struct attn_error *error)
{
    if (kernels->all_within(x, n, FLT_MAX))
        return ATTN_OK;
    size_t i = 0;
    while (i + 1 < n && isfinite(x[i]))
        i++;
    return attn_fail(error, ATTN_NON_FINITE, param, "%s is not finite at element %zu", param, i);
}

struct attn_problem attn_layer_problem(const struct attn_layer *layer,
                                       const struct attn_modifiers *modifiers)
{
    const struct attn_layer_spec *spec = &layer->spec;
    return (struct attn_problem){
        .num_heads = spec->num_heads,
        .num_kv_heads = spec->num_kv_heads,
        .head_dim = spec->head_dim,
        .value_head_dim = spec->value_head_dim,
        .extra_k = layer->extra_k,
        .extra_v = layer->extra_v,
        .extra = layer->extra,
        .scale = (float)(modifiers->scale != 0 ? modifiers->scale : spec->scale),
        .softcap = (float)modifiers->softcap,
        .head_mask = modifiers->head_mask,
    };
}
