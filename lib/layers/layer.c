/* layer.c: the memory of a layer's weights, and packing them.  Matrices and small arrays stand in
 * one table each, by which they are made, counted, packed, visited and freed. */
#include "layers/layer.h"

#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "layers/mla.h"

/* ---- Sizes ---- */

size_t attn_weight_columns(const struct attn_layer_spec *spec, size_t keys)
{
    return keys + spec->bias_kv + spec->add_zero_attn;
}

struct attn_cached_sizes attn_cached_sizes(const struct attn_layer_spec *spec)
{
    const struct attn_cached_sizes own = {spec->num_kv_heads, spec->head_dim, spec->value_head_dim};
    const struct attn_cached_sizes latent = {1, spec->mla.kv_lora_rank, spec->mla.rope_head_dim};
    return spec->mla.kv_lora_rank > 0 ? latent : own;
}

size_t attn_layer_token_bytes(const struct attn_layer_spec *spec)
{
    const struct attn_cached_sizes cached = attn_cached_sizes(spec);
    size_t value = spec->mla.kv_lora_rank > 0 ? attn_tile_key_bytes(spec->kv_dtype, cached.value)
                                              : attn_tile_value_bytes(spec->kv_dtype, cached.value);
    size_t bytes = attn_tile_key_bytes(spec->kv_dtype, cached.key) + value;
    return cached.heads * (bytes + attn_tile_scale_bytes(spec->kv_dtype));
}

size_t attn_norm_floats(const struct attn_norm_spec *norm, size_t heads, size_t width)
{
    if (norm->type == ATTN_NORM_NONE || norm->weightless)
        return 0;
    return norm->extent == ATTN_NORM_HEAD ? width : heads * width;
}

/* ---- Memory ---- */

/* The matrices of a layer: where each stands, and its shape by the specification; out 0 where the
 * layer has no such matrix. */
enum {
    LINEAR_Q,
    LINEAR_K,
    LINEAR_V,
    LINEAR_O,
    LINEAR_GATE,
    LINEAR_KV_A,
    LINEAR_K_ROPE,
    LINEAR_Q_A,
    NUM_LINEARS
};
struct linear_shape {
    struct attn_linear *linear;
    size_t in, out;
    bool bias;
};

static void linear_shapes(struct linear_shape out[NUM_LINEARS], struct attn_layer *layer,
                          const struct attn_layer_spec *s)
{
    const struct attn_mla_spec *m = &s->mla;
    const size_t q_out = s->num_heads * s->head_dim, o_in = s->num_heads * s->value_head_dim;
    const size_t k_out = s->num_kv_heads * s->head_dim;
    const size_t v_out = s->num_kv_heads * s->value_head_dim;
    const struct linear_shape shapes[NUM_LINEARS] = {
        [LINEAR_Q] = {&layer->q, s->hidden_size, q_out, s->q_bias},
        [LINEAR_K] = {&layer->k, s->key_size, k_out, s->k_bias},
        [LINEAR_V] = {&layer->v, s->value_size, v_out, s->v_bias},
        [LINEAR_O] = {&layer->o, o_in, s->hidden_size, s->o_bias},
        [LINEAR_GATE] = {&layer->gate, s->hidden_size, s->output_gate ? o_in : 0,
                         s->output_gate && s->q_bias},
        [LINEAR_KV_A] = {.linear = &layer->kv_a},
        [LINEAR_K_ROPE] = {.linear = &layer->k_rope},
        [LINEAR_Q_A] = {.linear = &layer->q_a},
    };
    memcpy(out, shapes, sizeof shapes);
    if (m->kv_lora_rank == 0)
        return;
    out[LINEAR_Q].in = m->q_lora_rank > 0 ? m->q_lora_rank : s->hidden_size;
    out[LINEAR_K].in = out[LINEAR_V].in = m->kv_lora_rank;
    out[LINEAR_K].out -= s->num_heads * m->rope_head_dim;
    out[LINEAR_KV_A].in = out[LINEAR_K_ROPE].in = out[LINEAR_Q_A].in = s->hidden_size;
    out[LINEAR_KV_A].out = m->kv_lora_rank;
    out[LINEAR_K_ROPE].out = m->rope_head_dim;
    out[LINEAR_Q_A].out = m->q_lora_rank;
}

size_t attn_layer_table_floats(const struct attn_layer_spec *spec)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    if (bias->type == ATTN_BIAS_T5)
        return bias->buckets * spec->num_heads;
    return attn_relative_rows(spec) * spec->hidden_size;
}

static size_t table_norm_floats(const struct attn_layer_spec *spec)
{
    return spec->position_bias.table_norm ? 2 * spec->hidden_size : 0;
}

size_t attn_layer_table_parameters(const struct attn_layer_spec *spec)
{
    return attn_layer_table_floats(spec) + table_norm_floats(spec);
}

size_t attn_layer_loading_bytes(const struct attn_layer_spec *spec)
{
    return attn_relative_rows(spec) == 0 ? 0 : attn_layer_table_parameters(spec) * sizeof(float);
}

/* The small arrays of a layer: where each pointer stands, and how many floats it needs; 0 where the
 * layer has no such array. */
enum {
    SIDE_BIAS_K,
    SIDE_BIAS_V,
    SIDE_Q_NORM,
    SIDE_K_NORM,
    SIDE_SINKS,
    SIDE_BIAS_TABLE,
    SIDE_Q_NORM_BIAS,
    SIDE_K_NORM_BIAS,
    SIDE_TABLE_NORM,
    SIDE_Q_A_NORM,
    SIDE_KV_A_NORM,
    NUM_SIDES
};
struct side_array {
    float **array;
    size_t floats;
};

static void side_arrays(struct side_array out[NUM_SIDES], struct attn_layer *layer,
                        const struct attn_layer_spec *s)
{
    const size_t groups = s->bias_kv ? s->num_kv_heads : 0;
    const size_t q_norm = attn_norm_floats(&s->qk_norm, s->num_heads, s->head_dim);
    const size_t k_norm = attn_norm_floats(&s->qk_norm, s->num_kv_heads, s->head_dim);
    const struct side_array sides[NUM_SIDES] = {
        [SIDE_BIAS_K] = {&layer->bias_k, groups * s->head_dim},
        [SIDE_BIAS_V] = {&layer->bias_v, groups * s->value_head_dim},
        [SIDE_Q_NORM] = {&layer->q_norm, q_norm},
        [SIDE_K_NORM] = {&layer->k_norm, k_norm},
        [SIDE_SINKS] = {&layer->sinks, s->sinks ? s->num_heads : 0},
        [SIDE_BIAS_TABLE] = {&layer->bias_table, attn_layer_table_floats(s)},
        [SIDE_Q_NORM_BIAS] = {&layer->q_norm_bias, s->qk_norm.bias ? q_norm : 0},
        [SIDE_K_NORM_BIAS] = {&layer->k_norm_bias, s->qk_norm.bias ? k_norm : 0},
        [SIDE_TABLE_NORM] = {&layer->table_norm, table_norm_floats(s)},
        [SIDE_Q_A_NORM] = {&layer->q_a_norm, s->mla.q_lora_rank},
        [SIDE_KV_A_NORM] = {&layer->kv_a_norm, s->mla.kv_lora_rank},
    };
    memcpy(out, sides, sizeof sides);
}

size_t attn_layer_parameters(const struct attn_layer_spec *spec)
{
    struct attn_layer layer;
    struct linear_shape shapes[NUM_LINEARS];
    struct side_array sides[NUM_SIDES];
    size_t parameters = 0;
    linear_shapes(shapes, &layer, spec);
    side_arrays(sides, &layer, spec);
    for (size_t i = 0; i < NUM_LINEARS; i++)
        parameters += (shapes[i].in + shapes[i].bias) * shapes[i].out;
    for (size_t i = 0; i < NUM_SIDES; i++)
        parameters += sides[i].floats;
    return parameters;
}

size_t attn_layer_weight_bytes(const struct attn_layer_spec *spec)
{
    struct attn_layer layer;
    struct linear_shape shapes[NUM_LINEARS];
    struct side_array sides[NUM_SIDES];
    linear_shapes(shapes, &layer, spec);
    side_arrays(sides, &layer, spec);
    size_t bytes = 0;
    for (size_t i = 0; i < NUM_LINEARS; i++)
        if (shapes[i].out != 0 && !spec->is_weightless &&
            !attn_mla_divides(spec, shapes[i].linear, &layer))
            bytes += attn_linear_bytes(shapes[i].in, shapes[i].out, spec->dtype) +
                     (shapes[i].bias ? shapes[i].out : 0) * sizeof(float);
    bytes += attn_mla_weight_bytes(spec);
    for (size_t i = 0; i < NUM_SIDES; i++)
        bytes += sides[i].floats * sizeof(float);
    return bytes - attn_layer_loading_bytes(spec);
}

static bool make_linear(const struct linear_shape *shape)
{
    struct attn_linear *linear = shape->linear;
    linear->in = shape->in;
    linear->out = shape->out;
    if (shape->in == 0 || shape->out == 0) /* the layer is weightless, or has no such matrix */
        return true;
    if (shape->bias)
        linear->bias = attn_calloc(shape->out, sizeof(float));
    return linear->bias != NULL || !shape->bias;
}

/* As make_linear has it once it is packed, without its arrays. */
static void shape_linear(const struct linear_shape *shape, const struct attn_layer *layer)
{
    const bool packed =
        shape->in != 0 && shape->out != 0 && !attn_mla_divides(&layer->spec, shape->linear, layer);
    if (packed)
        attn_linear_shape(shape->linear, shape->in, shape->out, layer->spec.dtype);
    else
        *shape->linear = (struct attn_linear){.in = shape->in, .out = shape->out};
}

static bool make_side(const struct side_array *side)
{
    if (side->floats != 0)
        *side->array = attn_calloc(side->floats, sizeof(float));
    return side->floats == 0 || *side->array != NULL;
}

enum attn_status attn_layer_init(struct attn_layer *layer, const struct attn_layer_spec *spec,
                                 struct attn_error *error)
{
    *layer = (struct attn_layer){.spec = *spec};
    enum attn_status status = attn_layer_check(spec, error);
    if (status != ATTN_OK)
        return status;
    struct linear_shape shapes[NUM_LINEARS];
    struct side_array sides[NUM_SIDES];
    linear_shapes(shapes, layer, spec);
    side_arrays(sides, layer, spec);
    bool made = true;
    for (size_t i = 0; i < NUM_LINEARS; i++)
        made = make_linear(&shapes[i]) && made;
    for (size_t i = 0; i < NUM_SIDES; i++)
        made = make_side(&sides[i]) && made;
    if (made)
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

enum attn_status attn_layer_make_weights(struct attn_layer *layer, struct attn_error *error)
{
    struct linear_shape shapes[NUM_LINEARS];
    bool made = true;
    linear_shapes(shapes, layer, &layer->spec);
    for (size_t i = 0; i < NUM_LINEARS; i++) {
        const size_t count = attn_mul(shapes[i].in, shapes[i].out);
        struct attn_linear *linear = shapes[i].linear;
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
    enum attn_status status = attn_layer_check(spec, error);
    if (status != ATTN_OK)
        return status;
    struct linear_shape shapes[NUM_LINEARS];
    linear_shapes(shapes, layer, spec);
    for (size_t i = 0; i < NUM_LINEARS; i++)
        shape_linear(&shapes[i], layer);
    if (attn_mla_shape_heads(layer) && attn_relative_shape(&layer->relative, spec))
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

void attn_layer_fini(struct attn_layer *layer)
{
    struct linear_shape shapes[NUM_LINEARS];
    struct side_array sides[NUM_SIDES];
    linear_shapes(shapes, layer, &layer->spec);
    side_arrays(sides, layer, &layer->spec);
    attn_mla_fini(layer);
    for (size_t i = 0; i < NUM_LINEARS; i++)
        attn_linear_fini(shapes[i].linear);
    for (size_t i = 0; i < NUM_SIDES; i++)
        attn_free(*sides[i].array);
    attn_free(layer->inv_freq);
    attn_free(layer->extra_k);
    attn_free(layer->extra_v);
    attn_position_bias_fini(&layer->position_bias);
    attn_relative_fini(&layer->relative);
    *layer = (struct attn_layer){0};
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

static void visit_heads(struct attn_layer *layer, attn_visit *visit, void *context)
{
    for (size_t h = 0; layer->mla_heads != NULL && h < layer->spec.num_heads; h++) {
        visit_linear(&layer->mla_heads[h].k_up, false, visit, context);
        visit_linear(&layer->mla_heads[h].k_down, false, visit, context);
        visit_linear(&layer->mla_heads[h].v_up, false, visit, context);
    }
}

void attn_layer_visit(struct attn_layer *layer, attn_visit *visit, void *context)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t width = spec->num_heads * spec->head_dim;
    struct linear_shape shapes[NUM_LINEARS];
    struct side_array sides[NUM_SIDES];
    struct attn_relative *relative = &layer->relative;
    linear_shapes(shapes, layer, spec);
    side_arrays(sides, layer, spec);
    for (size_t i = 0; i < NUM_LINEARS; i++)
        if (shapes[i].in != 0 && shapes[i].out != 0 &&
            !attn_mla_divides(spec, shapes[i].linear, layer))
            visit_linear(shapes[i].linear, shapes[i].bias, visit, context);
    visit_heads(layer, visit, context);
    for (size_t i = 0; i < NUM_SIDES; i++) {
        const bool loading = sides[i].array == &layer->bias_table ||
                             sides[i].array == &layer->table_norm; /* of `relative` */
        if (!loading || relative->rows == 0)
            *sides[i].array = visit_floats(visit, context, *sides[i].array, sides[i].floats);
    }
    relative->keys =
        visit_floats(visit, context, relative->keys,
                     bias->content_to_position ? relative->tiles * ATTN_TILE * width : 0);
    relative->queries = visit_floats(visit, context, relative->queries,
                                     bias->position_to_content ? relative->rows * width : 0);
}
