/* layer.c: memory of a layer's weights, what is derived from them, and products with them. */
#include "layer.h"

#include <math.h>
#include <string.h>

#include "gemm.h"
#include "mem.h"
#include "rope.h"
#include "status.h"

/* ---- Specification ---- */

static enum attn_status check_rope(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_rope_spec *rope = &spec->rope;
    if (rope->type == ATTN_ROPE_NONE)
        return ATTN_OK;
    if (rope->dim < 2 || rope->dim % 2 != 0 || rope->dim > spec->head_dim)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "head_dim",
                         "rotary width is %zu, needs to be even and at most head_dim %zu",
                         rope->dim, spec->head_dim);
    if (!(rope->theta > 0))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "rope_theta",
                         "rope_theta is %g, needs to be above 0", rope->theta);
    if (rope->type == ATTN_ROPE_LLAMA3 && !(rope->factor > 0 && rope->original_max_position > 0 &&
                                            rope->high_freq_factor > rope->low_freq_factor))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "rope_scaling",
                         "llama3 scaling needs factor and original_max_position_embeddings above "
                         "0 and high_freq_factor above low_freq_factor");
    return ATTN_OK;
}

enum attn_status attn_layer_check(const struct attn_layer_spec *spec, struct attn_error *error)
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
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum attn_status status =
            attn_check_count(sizes[i].value, sizes[i].limit, sizes[i].name, error);
        if (status != ATTN_OK)
            return status;
    }
    if (spec->num_heads % spec->num_kv_heads != 0)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "num_key_value_heads",
                         "num_key_value_heads is %zu, needs to divide num_attention_heads %zu",
                         spec->num_kv_heads, spec->num_heads);
    if (!(fabs(spec->scale) <= ATTN_MAX_SCALE))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "scale", "scale is %g, at most %g is allowed",
                         spec->scale, ATTN_MAX_SCALE);
    return check_rope(spec, error);
}

size_t attn_weight_columns(const struct attn_layer_spec *spec, size_t keys)
{
    return keys + spec->bias_kv + spec->add_zero_attn;
}

size_t attn_layer_token_bytes(const struct attn_layer_spec *spec)
{
    return spec->num_kv_heads * (spec->head_dim + spec->value_head_dim) * sizeof(float);
}

/* ---- Memory ---- */

/* The four products of a layer, by where they stand in it and in its specification. */
struct linear_shape {
    struct attn_linear *linear;
    size_t in, out;
    bool bias;
};

static void linear_shapes(struct linear_shape shapes[4], struct attn_layer *layer,
                          const struct attn_layer_spec *s)
{
    size_t q_out = s->num_heads * s->head_dim, o_in = s->num_heads * s->value_head_dim;
    size_t k_out = s->num_kv_heads * s->head_dim, v_out = s->num_kv_heads * s->value_head_dim;
    shapes[0] = (struct linear_shape){&layer->q, s->hidden_size, q_out, s->q_bias};
    shapes[1] = (struct linear_shape){&layer->k, s->key_size, k_out, s->k_bias};
    shapes[2] = (struct linear_shape){&layer->v, s->value_size, v_out, s->v_bias};
    shapes[3] = (struct linear_shape){&layer->o, o_in, s->hidden_size, s->o_bias};
}

size_t attn_layer_weight_bytes(const struct attn_layer_spec *spec)
{
    struct attn_layer layer;
    struct linear_shape shapes[4];
    linear_shapes(shapes, &layer, spec);
    size_t floats = 0;
    for (int i = 0; i < 4; i++)
        floats += shapes[i].in * shapes[i].out + (shapes[i].bias ? shapes[i].out : 0);
    if (spec->bias_kv)
        floats += shapes[1].out + shapes[2].out;
    return floats * sizeof(float);
}

static bool make_linear(const struct linear_shape *shape)
{
    struct attn_linear *linear = shape->linear;
    linear->in = shape->in;
    linear->out = shape->out;
    linear->weight = attn_calloc(attn_mul(shape->in, shape->out), sizeof(float));
    if (shape->bias)
        linear->bias = attn_calloc(shape->out, sizeof(float));
    return linear->weight != NULL && (linear->bias != NULL || !shape->bias);
}

enum attn_status attn_layer_init(struct attn_layer *layer, const struct attn_layer_spec *spec,
                                 struct attn_error *error)
{
    *layer = (struct attn_layer){.spec = *spec};
    enum attn_status status = attn_layer_check(spec, error);
    if (status != ATTN_OK)
        return status;
    struct linear_shape shapes[4];
    linear_shapes(shapes, layer, spec);
    bool made = true;
    for (int i = 0; i < 4; i++)
        made = make_linear(&shapes[i]) && made;
    if (spec->bias_kv) {
        layer->bias_k = attn_calloc(layer->k.out, sizeof(float));
        layer->bias_v = attn_calloc(layer->v.out, sizeof(float));
        made = made && layer->bias_k != NULL && layer->bias_v != NULL;
    }
    if (made)
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

void attn_layer_fini(struct attn_layer *layer)
{
    struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v, &layer->o};
    for (int i = 0; i < 4; i++) {
        attn_free(linears[i]->weight);
        attn_free(linears[i]->bias);
    }
    attn_free(layer->bias_k);
    attn_free(layer->bias_v);
    attn_free(layer->inv_freq);
    attn_free(layer->extra_k);
    attn_free(layer->extra_v);
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
    for (size_t g = 0; g < groups; g++)
        attn_tile_put(layer->extra_k + g * d * ATTN_TILE, layer->extra_v + g * dv * ATTN_TILE, 0,
                      layer->bias_k + g * d, layer->bias_v + g * dv, d, dv);
    return true;
}

static enum attn_status check_bias_kv(const float *bias, size_t n, const char *name,
                                      struct attn_error *error)
{
    for (size_t i = 0; bias != NULL && i < n; i++)
        if (!(fabsf(bias[i]) <= ATTN_MAX_MAGNITUDE))
            return attn_fail(error, ATTN_OUT_OF_RANGE, name,
                             "%s holds %g at element %zu, at most %g is allowed", name,
                             (double)bias[i], i, (double)ATTN_MAX_MAGNITUDE);
    return ATTN_OK;
}

enum attn_status attn_layer_finish(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_rope_spec *rope = &layer->spec.rope;
    if (rope->type != ATTN_ROPE_NONE) {
        layer->inv_freq = attn_alloc(rope->dim / 2, sizeof(float));
        if (layer->inv_freq == NULL)
            return attn_fail_memory(error, rope->dim / 2 * sizeof(float));
        attn_rope_frequencies(layer->inv_freq, rope);
    }
    enum attn_status status = check_bias_kv(layer->bias_k, layer->k.out, "bias_k", error);
    if (status == ATTN_OK)
        status = check_bias_kv(layer->bias_v, layer->v.out, "bias_v", error);
    if (status != ATTN_OK)
        return status;
    if (!make_extra(layer))
        return attn_fail_memory(error, attn_layer_token_bytes(&layer->spec) * ATTN_TILE);
    return ATTN_OK;
}

/* ---- Products ---- */

/* A product is cut into pieces whose bounds are constants, so that bits do not depend on threads:
 * few rows into slices of columns that stream about 256 KiB of weights, many rows into blocks for
 * OpenBLAS. */
#define FEW_PIECE_FLOATS 65536
#define BLAS_PIECE_ROWS 512
#define BLAS_COLUMN_CUTS 4

struct pieces {
    bool blas;
    size_t rows, columns; /* of one piece */
    size_t count;         /* pieces of the product */
    size_t across;        /* pieces side by side */
};

static struct pieces cut(const struct attn_projection *product, bool invariant)
{
    const struct attn_linear *linear = product->linear;
    struct pieces cut = {.blas = product->rows > ATTN_FEW_ROWS && !invariant};
    size_t columns =
        cut.blas ? attn_ceil_div(linear->out, BLAS_COLUMN_CUTS) : FEW_PIECE_FLOATS / linear->in;
    cut.columns = attn_min(attn_max(attn_ceil_div(columns, 16) * 16, 16), linear->out);
    cut.rows = cut.blas ? attn_min(product->rows, BLAS_PIECE_ROWS) : product->rows;
    cut.across = attn_ceil_div(linear->out, cut.columns);
    cut.count = cut.across * attn_ceil_div(product->rows, cut.rows);
    return cut;
}

static void add_bias(float *y, size_t ldy, const float *bias, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            y[r * ldy + j] += bias[j];
}

/* The piece at row `row` and column `first`. */
static void project_piece(const struct attn_kernels *kernels, const struct attn_projection *p,
                          const struct pieces *cut, size_t row, size_t first)
{
    const struct attn_linear *linear = p->linear;
    const float *weight = linear->weight + first * linear->in; /* [n][in] */
    const float *bias = linear->bias ? linear->bias + first : NULL;
    const float *x = p->x + row * p->ldx;
    float *y = p->y + row * p->ldy + first;
    size_t rows = attn_min(cut->rows, p->rows - row);
    size_t n = attn_min(cut->columns, linear->out - first);
    if (cut->blas) {
        attn_gemm(y, p->ldy, x, p->ldx, weight, linear->in, rows, linear->in, n);
        if (bias != NULL)
            add_bias(y, p->ldy, bias, rows, n);
        return;
    }
    for (size_t r = 0; r < rows; r += ATTN_FEW_ROWS)
        kernels->project(y + r * p->ldy, p->ldy, x + r * p->ldx, p->ldx, weight, linear->in, bias,
                         attn_min(rows - r, ATTN_FEW_ROWS), linear->in, n);
}

struct project_context {
    struct attn_engine *engine;
    const struct attn_projection *products;
    size_t count;
    bool invariant;
};

/* Task i is the i-th piece, counted through all products. */
static void project_task(void *argument, size_t i, unsigned thread)
{
    const struct project_context *context = argument;
    (void)thread;
    for (size_t p = 0; p < context->count; p++) {
        const struct attn_projection *product = &context->products[p];
        struct pieces pieces = cut(product, context->invariant);
        if (i < pieces.count) {
            project_piece(&context->engine->kernels, product, &pieces,
                          i / pieces.across * pieces.rows, i % pieces.across * pieces.columns);
            return;
        }
        i -= pieces.count;
    }
}

void attn_project(struct attn_engine *engine, const struct attn_projection *products, size_t count,
                  bool invariant)
{
    struct project_context context = {engine, products, count, invariant};
    size_t pieces = 0;
    for (size_t p = 0; p < count; p++)
        pieces += cut(&products[p], invariant).count;
    attn_pool_run(engine->pool, project_task, &context, pieces);
}
