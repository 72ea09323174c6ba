/* layer.c: memory of a layer's weights, what is derived from them, and products with them. */
#include "layer.h"

#include <math.h>
#include <string.h>

#include "gemm.h"
#include "mem.h"
#include "rope.h"
#include "status.h"

/* ---- Specification ---- */

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
    if (spec->sliding_window > INT32_MAX)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "sliding_window",
                         "sliding_window is %zu, at most %d is allowed", spec->sliding_window,
                         INT32_MAX);
    return ATTN_OK;
}

static enum attn_status check_numbers(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct {
        double value, least, most;
        const char *name;
    } numbers[] = {
        {spec->scale, -ATTN_MAX_SCALE, ATTN_MAX_SCALE, "scale"},
        {spec->softcap, 0, ATTN_MAX_SOFTCAP, "softcap"},
        {spec->norm_eps, 0, 1, "norm_eps"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return attn_fail(error, ATTN_OUT_OF_RANGE, numbers[i].name,
                             "%s is %g, must be %g to %g", numbers[i].name, numbers[i].value,
                             numbers[i].least, numbers[i].most);
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

enum attn_status attn_layer_check(const struct attn_layer_spec *spec, struct attn_error *error)
{
    enum attn_status status = check_sizes(spec, error);
    if (status == ATTN_OK)
        status = check_numbers(spec, error);
    if (status == ATTN_OK)
        status = attn_position_bias_check(&spec->position_bias, error);
    return status == ATTN_OK ? check_rope(spec, error) : status;
}

size_t attn_weight_columns(const struct attn_layer_spec *spec, size_t keys)
{
    return keys + spec->bias_kv + spec->add_zero_attn;
}

size_t attn_layer_token_bytes(const struct attn_layer_spec *spec)
{
    size_t numbers =
        (spec->head_dim + spec->value_head_dim) * attn_tile_number_bytes(spec->kv_dtype);
    return spec->num_kv_heads * (numbers + attn_tile_scale_bytes(spec->kv_dtype));
}

/* ---- Memory ---- */

static size_t panels_of(size_t out) { return attn_ceil_div(out, ATTN_PANEL); }

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

/* The small arrays beside them: *array has that many floats; 0 and NULL where there is none. */
struct side_array {
    float **array;
    size_t floats;
};
#define NUM_SIDES 6

static void side_arrays(struct side_array sides[NUM_SIDES], struct attn_layer *layer,
                        const struct attn_layer_spec *s)
{
    size_t groups = s->bias_kv ? s->num_kv_heads : 0, width = s->qk_norm ? s->head_dim : 0;
    size_t buckets = s->position_bias.type == ATTN_BIAS_T5 ? s->position_bias.buckets : 0;
    sides[0] = (struct side_array){&layer->bias_k, groups * s->head_dim};
    sides[1] = (struct side_array){&layer->bias_v, groups * s->value_head_dim};
    sides[2] = (struct side_array){&layer->q_norm, width};
    sides[3] = (struct side_array){&layer->k_norm, width};
    sides[4] = (struct side_array){&layer->sinks, s->sinks ? s->num_heads : 0};
    sides[5] = (struct side_array){&layer->bias_table, buckets * s->num_heads};
}

size_t attn_layer_weight_bytes(const struct attn_layer_spec *spec)
{
    struct attn_layer layer;
    struct linear_shape shapes[4];
    struct side_array sides[NUM_SIDES];
    linear_shapes(shapes, &layer, spec);
    side_arrays(sides, &layer, spec);
    size_t floats = 0;
    for (int i = 0; i < 4; i++)
        floats += panels_of(shapes[i].out) * ATTN_PANEL * shapes[i].in +
                  (shapes[i].bias ? shapes[i].out : 0);
    for (int i = 0; i < NUM_SIDES; i++)
        floats += sides[i].floats;
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
    struct linear_shape shapes[4];
    struct side_array sides[NUM_SIDES];
    linear_shapes(shapes, layer, spec);
    side_arrays(sides, layer, spec);
    bool made = true;
    for (int i = 0; i < 4; i++)
        made = make_linear(&shapes[i]) && made;
    for (int i = 0; i < NUM_SIDES; i++)
        made = make_side(&sides[i]) && made;
    if (made)
        return ATTN_OK;
    attn_layer_fini(layer);
    return attn_fail_memory(error, attn_layer_weight_bytes(spec));
}

void attn_layer_fini(struct attn_layer *layer)
{
    struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v, &layer->o};
    float *arrays[] = {layer->bias_k,   layer->bias_v,  layer->q_norm,
                       layer->k_norm,   layer->sinks,   layer->bias_table,
                       layer->inv_freq, layer->extra_k, layer->extra_v};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        attn_free(linears[i]->weight);
        attn_free(linears[i]->panels);
        attn_free(linears[i]->bias);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        attn_free(arrays[i]);
    attn_position_bias_fini(&layer->position_bias);
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

/* Of what no projection passes on; position biases are checked where they are built. */
static enum attn_status check_weights(const struct attn_layer *layer, struct attn_error *error)
{
    const struct {
        const float *x;
        size_t n;
        const char *name;
    } arrays[] = {
        {layer->bias_k, layer->k.out, "bias_k"},
        {layer->bias_v, layer->v.out, "bias_v"},
        {layer->q_norm, layer->spec.head_dim, "q_norm"},
        {layer->k_norm, layer->spec.head_dim, "k_norm"},
        {layer->sinks, layer->spec.num_heads, "sinks"},
    };
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && status == ATTN_OK; i++)
        status = attn_check_magnitudes(arrays[i].x, arrays[i].n, arrays[i].name, error);
    return status;
}

enum attn_status attn_layer_finish(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_rope_spec *rope = &layer->spec.rope;
    enum attn_status status = check_weights(layer, error);
    if (status == ATTN_OK)
        status =
            attn_position_bias_init(&layer->position_bias, &layer->spec, layer->bias_table, error);
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

/* ---- Packing ---- */

/* A panel from its columns [count][in], zero beyond them. */
static void pack_panel(float *panel, const float *columns, size_t count, size_t in)
{
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < ATTN_PANEL; j++)
            panel[i * ATTN_PANEL + j] = j < count ? columns[j * in + i] : 0;
}

static bool pack_linear(struct attn_linear *linear)
{
    size_t in = linear->in, panel = in * ATTN_PANEL;
    linear->panels = attn_alloc_huge(attn_mul(panels_of(linear->out), panel), sizeof(float));
    if (linear->panels == NULL)
        return false;
    for (size_t j = 0; j < linear->out; j += ATTN_PANEL)
        pack_panel(linear->panels + j / ATTN_PANEL * panel, linear->weight + j * in,
                   attn_min(linear->out - j, ATTN_PANEL), in);
    attn_free(linear->weight);
    linear->weight = NULL;
    return true;
}

enum attn_status attn_layer_pack(struct attn_layer *layer, struct attn_error *error)
{
    struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v, &layer->o};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        if (!pack_linear(linears[i]))
            return attn_fail_memory(error, linears[i]->in * linears[i]->out * sizeof(float));
    return ATTN_OK;
}

/* ---- Products ---- */

/* A product is cut into pieces for threads to take: blocks of rows by ranges of columns.  An
 * element is summed in the same order wherever it falls, so where the cuts lie is a matter of speed
 * alone.  Each piece prepares its rows for itself, which must pay; few are read where they are. */
#define PIECES_PER_THREAD 4 /* of a product, where they are large enough */
#define MOST_COLUMNS 1024   /* of a piece, about */
#define LEAST_COLUMNS 256   /* and where rows are few, of which pieces are smaller: */
#define FEW_PER_THREAD 16
#define FEW_COLUMNS 64
#define FEW 6
#define BLAS_ROWS 512 /* of a piece for OpenBLAS, which cuts into blocks itself */

struct pieces {
    bool blas;
    size_t rows, columns; /* of one piece */
    size_t count;         /* pieces of the product */
    size_t across;        /* pieces side by side */
};

static struct pieces cut(const struct attn_engine *engine, const struct attn_projection *product,
                         bool invariant)
{
    const size_t rows = product->rows, out = product->linear->out;
    const size_t threads = attn_pool_threads(engine->pool);
    const bool few = rows <= FEW;
    struct pieces cut = {.blas = engine->level == ATTN_CPU_PORTABLE && !invariant &&
                                 rows > ATTN_FEW_ROWS};
    size_t down = attn_ceil_div(rows, cut.blas ? BLAS_ROWS : ATTN_PRODUCT_ROWS);
    size_t wanted = attn_ceil_div((few ? FEW_PER_THREAD : PIECES_PER_THREAD) * threads, down);
    size_t most = attn_max(out / (few ? FEW_COLUMNS : LEAST_COLUMNS), 1);
    size_t across = attn_min(attn_max(wanted, out / MOST_COLUMNS), most);
    /* A multiple of threads, so that none waits for another's last piece. */
    across = across < threads ? attn_min(threads, most) : across - across % threads;
    cut.rows = attn_ceil_div(rows, down);
    cut.columns = panels_of(attn_ceil_div(out, across)) * ATTN_PANEL;
    cut.across = attn_ceil_div(out, cut.columns);
    cut.count = cut.across * attn_ceil_div(rows, cut.rows);
    return cut;
}

/* The whole depth of a piece through OpenBLAS. */
static void run_blas(const struct attn_product *p)
{
    for (size_t j = 0; j < p->n; j += ATTN_PANEL)
        attn_gemm(p->y + j, p->ldy, p->x, p->ldx, p->w + j / ATTN_PANEL * p->ldpanel, ATTN_PANEL,
                  p->rows, p->k, attn_min(p->n - j, ATTN_PANEL));
    for (size_t r = 0; p->start != NULL && r < p->rows; r++)
        for (size_t j = 0; j < p->n; j++)
            p->y[r * p->ldy + j] += p->start[j];
}

/* The same through the kernel, block by block. */
static void run_blocks(const struct attn_kernels *kernels, const struct attn_product *piece)
{
    struct attn_product block = *piece;
    for (size_t i = 0; i < piece->k; i += ATTN_K_BLOCK) {
        block.k = attn_min(piece->k - i, ATTN_K_BLOCK);
        kernels->project(&block);
        block.x += block.k;
        block.w += block.k * ATTN_PANEL;
        block.start = block.y;
        block.ldstart = block.ldy;
    }
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
    const struct attn_engine *engine = context->engine;
    const struct attn_projection *p = context->products;
    struct pieces pieces = cut(engine, p, context->invariant);
    while (i >= pieces.count) {
        i -= pieces.count;
        pieces = cut(engine, ++p, context->invariant);
    }
    const struct attn_linear *linear = p->linear;
    size_t row = i / pieces.across * pieces.rows, first = i % pieces.across * pieces.columns;
    const struct attn_product piece = {
        .y = p->y + row * p->ldy + first,
        .start = linear->bias != NULL ? linear->bias + first : NULL,
        .x = p->x + row * p->ldx,
        .w = linear->panels + first * linear->in,
        .scratch = engine->scratch + thread * ATTN_SCRATCH_FLOATS,
        .ldy = p->ldy,
        .ldx = p->ldx,
        .ldpanel = linear->in * ATTN_PANEL,
        .rows = attn_min(pieces.rows, p->rows - row),
        .k = linear->in,
        .n = attn_min(pieces.columns, linear->out - first),
    };
    if (pieces.blas)
        run_blas(&piece);
    else
        run_blocks(&engine->kernels, &piece);
}

void attn_project(struct attn_engine *engine, const struct attn_projection *products, size_t count,
                  bool invariant)
{
    struct project_context context = {engine, products, count, invariant};
    size_t pieces = 0;
    for (size_t p = 0; p < count; p++)
        pieces += cut(engine, &products[p], invariant).count;
    attn_pool_run(engine->pool, project_task, &context, pieces);
}
