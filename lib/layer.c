/* layer.c: a layer's specification, the memory of its weights, and packing them.  The arrays that a
 * packed layer keeps stand in one list, attn_layer_visit. */
#include "layer.h"

#include <string.h>

#include "mem.h"
#include "mla.h"
#include "rope.h"
#include "status.h"

/* ---- Specification ---- */

#define FIRST_SIZE_OF_HEADS 3 /* in check_sizes, after the widths of rows */

static enum attn_status check_sizes(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct {
        size_t value, limit;
        const char *name;
    } sizes[] = {
        {spec->hidden_size, ATTN_MAX_HIDDEN_SIZE, "hidden_size"},
        {spec->key_size, ATTN_MAX_HIDDEN_SIZE, "key_size"},
        {spec->value_size, ATTN_MAX_HIDDEN_SIZE, "value_size"},
        {spec->num_heads, ATTN_MAX_HEADS, "num_attention_heads"},
        {spec->num_kv_heads, ATTN_MAX_HEADS, "num_key_value_heads"},
        {spec->head_dim, ATTN_MAX_HEAD_DIM, "head_dim"},
        {spec->value_head_dim, ATTN_MAX_HEAD_DIM, "value_head_dim"},
    };
    const size_t first = spec->is_weightless ? FIRST_SIZE_OF_HEADS : 0;
    for (size_t i = first; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum attn_status status =
            attn_check_count(sizes[i].value, sizes[i].limit, sizes[i].name, error);
        if (status != ATTN_OK)
            return status;
    }
    if (spec->num_heads % spec->num_kv_heads != 0)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "num_key_value_heads",
                         "num_key_value_heads is %zu, needs to divide num_attention_heads %zu",
                         spec->num_kv_heads, spec->num_heads);
    if (spec->sliding_window > INT32_MAX)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "sliding_window",
                         "sliding_window is %zu, at most %d is allowed", spec->sliding_window,
                         INT32_MAX);
    if (spec->attention_chunk_size > INT32_MAX)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "attention_chunk_size",
                         "attention_chunk_size is %zu, at most %d is allowed",
                         spec->attention_chunk_size, INT32_MAX);
    return ATTN_OK;
}

static enum attn_status check_numbers(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_query_scaling *scaling = &spec->query_scaling;
    const struct {
        double value, least, most;
        const char *name;
    } numbers[] = {
        {spec->scale, -ATTN_MAX_SCALE, ATTN_MAX_SCALE, "scale"},
        {spec->softcap, 0, ATTN_MAX_SOFTCAP, "softcap"},
        {spec->qk_norm.eps, 0, 1, "norm_eps"},
        {spec->v_norm.eps, 0, 1, "norm_eps"},
        {scaling->beta, -1e6, 1e6, "attn_scale"},
        {scaling->period, scaling->period != 0 ? 1e-3 : 0, INT32_MAX, "floor_scale"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return attn_fail(error, ATTN_OUT_OF_RANGE, numbers[i].name,
                             "%s is %g, must be %g to %g", numbers[i].name, numbers[i].value,
                             numbers[i].least, numbers[i].most);
    return ATTN_OK;
}

/* Norms, gate, chunks and the scaling of queries. */
static enum attn_status check_variants(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_norm_spec *qk = &spec->qk_norm, *v = &spec->v_norm;
    if ((unsigned)qk->type > ATTN_NORM_LAYER || (unsigned)qk->extent > ATTN_NORM_ALL_HEADS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "qk_norm", "qk_norm: type %d of extent %d",
                         (int)qk->type, (int)qk->extent);
    if (qk->bias && (qk->type == ATTN_NORM_NONE || qk->weightless))
        return attn_fail(error, ATTN_UNSUPPORTED, "qk_norm", "qk_norm: biases need weights");
    if ((unsigned)v->type > ATTN_NORM_LAYER ||
        (v->type != ATTN_NORM_NONE && (!v->weightless || v->extent != ATTN_NORM_HEAD)))
        return attn_fail(error, ATTN_UNSUPPORTED, "v_norm",
                         "v_norm: heads of values are normalised one by one and without weights");
    return ATTN_OK;
}

static enum attn_status check_rope(const struct attn_layer_spec *spec, struct attn_error *error)
{
    if (spec->rope.type == ATTN_ROPE_NONE)
        return ATTN_OK;
    if (spec->is_cross)
        return attn_fail(error, ATTN_UNSUPPORTED, "is_cross",
                         "is_cross: rotary embedding needs queries and keys that are the same "
                         "tokens");
    return attn_rope_check(&spec->rope, spec->head_dim, error);
}

static enum attn_status check_latent(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_mla_spec *mla = &spec->mla;
    if (mla->kv_lora_rank == 0)
        return ATTN_OK;
    const struct {
        size_t value, limit;
        const char *name;
    } sizes[] = {
        {mla->rope_head_dim, spec->head_dim - 1, "qk_rope_head_dim"},
        {mla->kv_lora_rank + mla->rope_head_dim, ATTN_MAX_HEAD_DIM, "kv_lora_rank"},
        {mla->q_lora_rank + 1, ATTN_MAX_HIDDEN_SIZE, "q_lora_rank"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum attn_status status =
            attn_check_count(sizes[i].value, sizes[i].limit, sizes[i].name, error);
        if (status != ATTN_OK)
            return status;
    }
    if (!(mla->norm_eps >= 0 && mla->norm_eps <= 1))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "norm_eps", "norm_eps is %g, must be 0 to 1",
                         mla->norm_eps);
    if (spec->num_kv_heads != spec->num_heads)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "num_key_value_heads",
                         "num_key_value_heads is %zu, latent attention has as many as %zu heads",
                         spec->num_kv_heads, spec->num_heads);
    if (spec->is_cross || spec->key_size != spec->hidden_size ||
        spec->value_size != spec->hidden_size || spec->q_bias || spec->k_bias || spec->v_bias ||
        spec->bias_kv || spec->add_zero_attn || spec->qk_norm.type != ATTN_NORM_NONE ||
        spec->position_bias.type == ATTN_BIAS_DISENTANGLED || spec->v_norm.type != ATTN_NORM_NONE ||
        spec->output_gate || spec->query_scaling.period != 0 || spec->shares_layer != SIZE_MAX)
        return attn_fail(error, ATTN_UNSUPPORTED, "kv_lora_rank",
                         "kv_lora_rank: latent attention has no other rows, biases, added keys, "
                         "norms of heads, gates or scaled queries");
    if (spec->rope.type != ATTN_ROPE_NONE && spec->rope.dim != mla->rope_head_dim)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "qk_rope_head_dim",
                         "qk_rope_head_dim is %zu, of which %zu rotate", mla->rope_head_dim,
                         spec->rope.dim);
    return ATTN_OK;
}

static enum attn_status check_dtype(const struct attn_layer_spec *spec, struct attn_error *error)
{
    if (spec->dtype == ATTN_F16)
        return attn_fail(error, ATTN_UNSUPPORTED, "dtype",
                         "dtype is %s, weights are kept as f32, bf16, int8 or w8a16",
                         attn_dtype_name(spec->dtype));
    if (spec->kv_dtype == ATTN_W8A16)
        return attn_fail(error, ATTN_UNSUPPORTED, "kv_dtype",
                         "kv_dtype is %s, caches are kept as f32, bf16, f16 or int8",
                         attn_dtype_name(spec->kv_dtype));
    return ATTN_OK;
}

enum attn_status attn_layer_check(const struct attn_layer_spec *spec, struct attn_error *error)
{
    enum attn_status status = check_sizes(spec, error);
    if (status == ATTN_OK)
        status = check_numbers(spec, error);
    if (status == ATTN_OK)
        status = check_dtype(spec, error);
    if (status == ATTN_OK)
        status = check_variants(spec, error);
    if (status == ATTN_OK)
        status = attn_position_bias_check(&spec->position_bias, error);
    if (status == ATTN_OK)
        status = attn_relative_check(spec, error);
    if (status == ATTN_OK)
        status = check_rope(spec, error);
    return status == ATTN_OK ? check_latent(spec, error) : status;
}

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
#define NUM_LINEARS 8
struct linear_shape {
    struct attn_linear *linear;
    size_t in, out;
    bool bias;
};

static void list_linears(struct attn_linear *out[NUM_LINEARS], struct attn_layer *layer)
{
    struct attn_linear *all[NUM_LINEARS] = {&layer->q,      &layer->k,    &layer->v,
                                            &layer->o,      &layer->gate, &layer->kv_a,
                                            &layer->k_rope, &layer->q_a};
    memcpy(out, all, sizeof all);
}

static void linear_shapes(struct linear_shape shapes[NUM_LINEARS], struct attn_layer *layer,
                          const struct attn_layer_spec *s)
{
    size_t q_out = s->num_heads * s->head_dim, o_in = s->num_heads * s->value_head_dim;
    size_t k_out = s->num_kv_heads * s->head_dim, v_out = s->num_kv_heads * s->value_head_dim;
    const struct attn_mla_spec *m = &s->mla;
    memset(shapes, 0, NUM_LINEARS * sizeof *shapes);
    shapes[0] = (struct linear_shape){&layer->q, s->hidden_size, q_out, s->q_bias};
    shapes[1] = (struct linear_shape){&layer->k, s->key_size, k_out, s->k_bias};
    shapes[2] = (struct linear_shape){&layer->v, s->value_size, v_out, s->v_bias};
    shapes[3] = (struct linear_shape){&layer->o, o_in, s->hidden_size, s->o_bias};
    shapes[4] = (struct linear_shape){&layer->gate, s->hidden_size, s->output_gate ? o_in : 0,
                                      s->output_gate && s->q_bias};
    if (m->kv_lora_rank == 0)
        return;
    shapes[0].in = m->q_lora_rank > 0 ? m->q_lora_rank : s->hidden_size;
    shapes[1].in = shapes[2].in = m->kv_lora_rank;
    shapes[1].out -= s->num_heads * m->rope_head_dim;
    shapes[5] = (struct linear_shape){&layer->kv_a, s->hidden_size, m->kv_lora_rank, false};
    shapes[6] = (struct linear_shape){&layer->k_rope, s->hidden_size, m->rope_head_dim, false};
    shapes[7] = (struct linear_shape){&layer->q_a, s->hidden_size, m->q_lora_rank, false};
}

/* The small arrays of a layer: where each pointer stands, and how many floats it needs; 0 where the
 * layer has no such array. */
struct side_array {
    float **array;
    size_t floats;
};
#define NUM_SIDES 11

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

static void side_arrays(struct side_array sides[NUM_SIDES], struct attn_layer *layer,
                        const struct attn_layer_spec *s)
{
    size_t groups = s->bias_kv ? s->num_kv_heads : 0;
    size_t q_norm = attn_norm_floats(&s->qk_norm, s->num_heads, s->head_dim);
    size_t k_norm = attn_norm_floats(&s->qk_norm, s->num_kv_heads, s->head_dim);
    sides[0] = (struct side_array){&layer->bias_k, groups * s->head_dim};
    sides[1] = (struct side_array){&layer->bias_v, groups * s->value_head_dim};
    sides[2] = (struct side_array){&layer->q_norm, q_norm};
    sides[3] = (struct side_array){&layer->k_norm, k_norm};
    sides[4] = (struct side_array){&layer->sinks, s->sinks ? s->num_heads : 0};
    sides[5] = (struct side_array){&layer->bias_table, attn_layer_table_floats(s)};
    sides[6] = (struct side_array){&layer->q_norm_bias, s->qk_norm.bias ? q_norm : 0};
    sides[7] = (struct side_array){&layer->k_norm_bias, s->qk_norm.bias ? k_norm : 0};
    sides[8] = (struct side_array){&layer->table_norm, table_norm_floats(s)};
    sides[9] = (struct side_array){&layer->q_a_norm, s->mla.q_lora_rank};
    sides[10] = (struct side_array){&layer->kv_a_norm, s->mla.kv_lora_rank};
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
    for (int i = 0; i < NUM_LINEARS; i++)
        if (shapes[i].out != 0 && !spec->is_weightless &&
            !attn_mla_divides(spec, shapes[i].linear, &layer))
            bytes += attn_linear_bytes(shapes[i].in, shapes[i].out, spec->dtype) +
                     (shapes[i].bias ? shapes[i].out : 0) * sizeof(float);
    bytes += attn_mla_weight_bytes(spec);
    for (int i = 0; i < NUM_SIDES; i++)
        bytes += sides[i].floats * sizeof(float);
    return bytes - attn_layer_loading_bytes(spec);
}

static bool make_linear(const struct linear_shape *shape)
{
    struct attn_linear *linear = shape->linear;
    if (linear == NULL) /* of latent attention */
        return true;
    linear->in = shape->in;
    linear->out = shape->out;
    if (shape->in == 0 || shape->out == 0) /* of a weightless layer, or a gate that is not there */
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
    if (shape->linear == NULL)
        return;
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
    for (int i = 0; i < NUM_LINEARS; i++)
        made = make_linear(&shapes[i]) && made;
    for (int i = 0; i < NUM_SIDES; i++)
        made = make_side(&sides[i]) && made;
    if (made)
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

enum attn_status attn_layer_make_weights(struct attn_layer *layer, struct attn_error *error)
{
    struct attn_linear *linears[NUM_LINEARS];
    bool made = true;
    list_linears(linears, layer);
    for (size_t i = 0; i < NUM_LINEARS; i++) {
        const size_t count = attn_mul(linears[i]->in, linears[i]->out);
        linears[i]->weight = count > 0 ? attn_alloc_huge(count, sizeof(float)) : NULL;
        made = made && (linears[i]->weight != NULL || count == 0);
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
    for (int i = 0; i < NUM_LINEARS; i++)
        shape_linear(&shapes[i], layer);
    if (attn_mla_shape_heads(layer) && attn_relative_shape(&layer->relative, spec))
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

void attn_layer_fini(struct attn_layer *layer)
{
    struct attn_linear *linears[NUM_LINEARS];
    float *arrays[] = {layer->bias_k,     layer->bias_v,      layer->q_norm,      layer->k_norm,
                       layer->sinks,      layer->q_norm_bias, layer->k_norm_bias, layer->inv_freq,
                       layer->bias_table, layer->extra_k,     layer->extra_v,     layer->q_a_norm,
                       layer->kv_a_norm,  layer->table_norm};
    list_linears(linears, layer);
    attn_mla_fini(layer);
    for (size_t i = 0; i < NUM_LINEARS; i++)
        attn_linear_fini(linears[i]);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        attn_free(arrays[i]);
    attn_position_bias_fini(&layer->position_bias);
    attn_relative_fini(&layer->relative);
    *layer = (struct attn_layer){0};
}

/* ---- Packing ---- */

enum attn_status attn_layer_pack(struct attn_layer *layer, struct attn_error *error)
{
    const enum attn_dtype dtype = layer->spec.dtype;
    struct attn_linear *linears[NUM_LINEARS];
    list_linears(linears, layer);
    if (!attn_mla_pack(layer))
        return attn_fail_memory(error, attn_mla_weight_bytes(&layer->spec));
    for (size_t i = 0; i < NUM_LINEARS; i++)
        if (linears[i]->weight != NULL && !attn_linear_pack(linears[i], dtype))
            return attn_fail_memory(error,
                                    attn_linear_bytes(linears[i]->in, linears[i]->out, dtype));
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
