/* layer.c: the memory of a layer's weights: made, counted, visited and freed by the table of
 * members.h; and what follows from them: their bounds, and the tables that attention reads beside
 * them. */
#include "layers/layer.h"

#include <math.h>

#include "basics/status.h"
#include "engine/rope.h"
#include "layers/mla.h"

/* ---- Sizes ---- */

size_t attn_weight_columns(const struct attn_layer_spec *spec, size_t keys)
{
    return keys + spec->bias_kv + spec->add_zero_attn;
}

struct attn_cached_sizes attn_cached_sizes(const struct attn_layer_spec *spec)
{
    const struct attn_cached_sizes own = {spec->num_kv_heads, spec->head_dim, spec->value_head_dim};
    const struct attn_cached_sizes latent = {1, spec->mla.kv_lora_rank,
                                             spec->mla.rope_head_dim + spec->mla.index.head_dim};
    return spec->mla.kv_lora_rank > 0 ? latent : own;
}

size_t attn_layer_token_bytes(const struct attn_layer_spec *spec)
{
    const struct attn_cached_sizes cached = attn_cached_sizes(spec);
    const size_t third = spec->mla.index.head_dim, second = cached.value - third;
    size_t value = spec->mla.kv_lora_rank > 0 ? attn_tile_key_bytes(spec->kv_dtype, second)
                                              : attn_tile_value_bytes(spec->kv_dtype, second);
    size_t bytes = attn_tile_key_bytes(spec->kv_dtype, cached.key) + value;
    if (third > 0)
        bytes +=
            attn_tile_key_bytes(spec->kv_dtype, third) + attn_tile_scale_bytes(spec->kv_dtype) / 2;
    return cached.heads * (bytes + attn_tile_scale_bytes(spec->kv_dtype));
}

/* ---- Memory ---- */

size_t attn_layer_table_parameters(const struct attn_layer_spec *spec)
{
    const struct attn_members all = attn_layer_members(spec);
    return spec->position_bias.own_table ? 0
                                         : all.arrays[ATTN_ARRAY_BIAS_TABLE].floats +
                                               all.arrays[ATTN_ARRAY_TABLE_NORM].floats +
                                               all.arrays[ATTN_ARRAY_TABLE_NORM_BIAS].floats;
}

/* Whether an array of that role ends where `relative` has been made of it. */
static bool is_of_relative(const struct attn_layer_spec *spec, enum attn_tensor_role role)
{
    return attn_relative_rows(spec) > 0 && role >= ATTN_ROLE_POSITION_BIAS &&
           role <= ATTN_ROLE_POSITION_PROJECTION_BIAS;
}

size_t attn_layer_loading_bytes(const struct attn_layer_spec *spec)
{
    const struct attn_members all = attn_layer_members(spec);
    size_t floats = 0;
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++)
        floats += is_of_relative(spec, all.arrays[i].role) ? all.arrays[i].floats : 0;
    return floats * sizeof(float);
}

/* Floats of all arrays. */
static size_t array_floats(const struct attn_layer_spec *spec)
{
    const struct attn_members all = attn_layer_members(spec);
    size_t floats = 0;
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++)
        floats += all.arrays[i].floats;
    return floats;
}

size_t attn_layer_parameters(const struct attn_layer_spec *spec)
{
    const struct attn_members all = attn_layer_members(spec);
    size_t parameters = array_floats(spec);
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        parameters += (all.matrices[i].in + all.matrices[i].bias) * all.matrices[i].out;
    return parameters;
}

size_t attn_layer_weight_bytes(const struct attn_layer_spec *spec)
{
    const struct attn_members all = attn_layer_members(spec);
    size_t bytes = array_floats(spec) * sizeof(float) + attn_mla_weight_bytes(spec);
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        if (all.matrices[i].packed)
            bytes += attn_linear_bytes(all.matrices[i].in, all.matrices[i].out, spec->dtype) +
                     all.matrices[i].bias * all.matrices[i].out * sizeof(float);
    return bytes - attn_layer_loading_bytes(spec);
}

enum attn_status attn_layer_init(struct attn_layer *layer, const struct attn_layer_spec *spec,
                                 struct attn_error *error)
{
    *layer = (struct attn_layer){.spec = *spec};
    const struct attn_members all = attn_layer_members(spec);
    bool made = true;
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++) {
        struct attn_linear *linear = &layer->matrices[i];
        *linear = (struct attn_linear){.in = all.matrices[i].in, .out = all.matrices[i].out};
        if (all.matrices[i].bias)
            linear->bias = attn_calloc(linear->out, sizeof(float));
        made = made && (linear->bias != NULL || !all.matrices[i].bias);
    }
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++) {
        if (all.arrays[i].floats > 0)
            layer->arrays[i] = attn_calloc(all.arrays[i].floats, sizeof(float));
        made = made && (layer->arrays[i] != NULL || all.arrays[i].floats == 0);
    }
    if (made)
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

enum attn_status attn_layer_make_weights(struct attn_layer *layer, struct attn_error *error)
{
    bool made = true;
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++) {
        struct attn_linear *linear = &layer->matrices[i];
        const size_t count = attn_mul(linear->in, linear->out);
        if (linear->weight == NULL && count > 0)
            linear->weight = attn_alloc_huge(count, sizeof(float));
        made = made && (linear->weight != NULL || count == 0);
    }
    return made ? ATTN_OK : attn_fail_memory(error, attn_layer_weight_bytes(&layer->spec));
}

enum attn_status attn_layer_init_packed(struct attn_layer *layer,
                                        const struct attn_layer_spec *spec,
                                        struct attn_error *error)
{
    *layer = (struct attn_layer){.spec = *spec};
    const struct attn_members all = attn_layer_members(spec);
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++) {
        const size_t in = all.matrices[i].in, out = all.matrices[i].out;
        layer->matrices[i] = (struct attn_linear){.in = in, .out = out};
        if (all.matrices[i].packed)
            attn_linear_shape(&layer->matrices[i], in, out, spec->dtype);
    }
    if (attn_mla_shape_heads(layer) && attn_relative_shape(&layer->relative, spec))
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

void attn_layer_fini(struct attn_layer *layer)
{
    attn_mla_fini(layer);
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        attn_linear_fini(&layer->matrices[i]);
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++)
        attn_free(layer->arrays[i]);
    attn_free(layer->inv_freq);
    attn_free(layer->extra_k);
    attn_free(layer->extra_v);
    attn_position_bias_fini(&layer->position_bias);
    attn_relative_fini(&layer->relative);
    *layer = (struct attn_layer){0};
}

/* ---- What follows from the weights ---- */

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

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Error: ATTN_OUT_OF_RANGE. */
static enum attn_status derive_lambda(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_layer_spec *s = &layer->spec;
    if (s->differential.lambda_init == 0)
        return ATTN_OK;
    const double lambda = exp(dot(layer->lambda_q1, layer->lambda_k1, s->head_dim)) -
                          exp(dot(layer->lambda_q2, layer->lambda_k2, s->head_dim)) +
                          s->differential.lambda_init;
    layer->lambda = (float)lambda;
    return fabs(lambda) <= (double)ATTN_MAX_MAGNITUDE
               ? ATTN_OK
               : attn_fail(error, ATTN_OUT_OF_RANGE, "lambda_q1",
                           "lambda_q1, lambda_k1, lambda_q2 and lambda_k2 make %g, at most %g is "
                           "allowed",
                           lambda, (double)ATTN_MAX_MAGNITUDE);
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
    if (status == ATTN_OK)
        status = derive_lambda(layer, error);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++)
        if (is_of_relative(&layer->spec, all.arrays[i].role)) {
            attn_free(layer->arrays[i]);
            layer->arrays[i] = NULL;
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

/* ---- What a packed layer keeps ---- */

static float *visit_floats(attn_visit *visit, void *context, float *array, size_t floats)
{
    return floats > 0 ? visit(context, array, floats * sizeof(float)) : array;
}

static void visit_linear(struct attn_linear *linear, bool bias, attn_visit *visit, void *context)
{
    const bool scaled = linear->dtype == ATTN_INT8;
    linear->panels = visit(context, linear->panels, attn_linear_panel_bytes(linear));
    linear->scale = visit_floats(visit, context, linear->scale, scaled ? linear->out : 0);
    linear->bias = visit_floats(visit, context, linear->bias, bias ? linear->out : 0);
}

void attn_layer_visit(struct attn_layer *layer, attn_visit *visit, void *context)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t width = spec->num_heads * spec->head_dim;
    const struct attn_members all = attn_layer_members(spec);
    struct attn_relative *relative = &layer->relative;
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        if (all.matrices[i].packed)
            visit_linear(&layer->matrices[i], all.matrices[i].bias, visit, context);
    for (size_t h = 0; layer->mla_heads != NULL && h < spec->num_heads; h++) {
        visit_linear(&layer->mla_heads[h].k_up, false, visit, context);
        visit_linear(&layer->mla_heads[h].k_down, false, visit, context);
        visit_linear(&layer->mla_heads[h].v_up, false, visit, context);
    }
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++)
        if (!is_of_relative(spec, all.arrays[i].role))
            layer->arrays[i] = visit_floats(visit, context, layer->arrays[i], all.arrays[i].floats);
    relative->keys =
        visit_floats(visit, context, relative->keys,
                     bias->content_to_position ? relative->tiles * ATTN_TILE * width : 0);
    relative->queries = visit_floats(visit, context, relative->queries,
                                     bias->position_to_content ? relative->rows * width : 0);
}
