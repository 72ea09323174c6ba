/* mla.c: latent attention's maps, packed by heads, and products with them on all threads. */
#include "layers/mla.h"

#include <string.h>

#include "basics/mem.h"

/* ---- Packing ---- */

size_t attn_mla_weight_bytes(const struct attn_layer_spec *spec)
{
    const size_t rank = spec->mla.kv_lora_rank, nope = attn_mla_nope(spec);
    if (rank == 0)
        return 0;
    return spec->num_heads *
           (sizeof(struct attn_mla_head) + attn_linear_bytes(rank, nope, spec->dtype) +
            attn_linear_bytes(nope, rank, spec->dtype) +
            attn_linear_bytes(rank, spec->value_head_dim, spec->dtype));
}

size_t attn_mla_head_rows(const struct attn_layer *layer, const struct attn_linear *linear)
{
    return linear == &layer->v ? layer->spec.value_head_dim : attn_mla_nope(&layer->spec);
}

/* The transposed weights of a head, and integers of attn_linear_pack_rows. */
size_t attn_mla_pack_scratch(const struct attn_layer_spec *spec)
{
    const size_t rank = spec->mla.kv_lora_rank, nope = attn_mla_nope(spec);
    return attn_add(attn_mul(attn_mul(rank, nope), sizeof(float)),
                    attn_mul(ATTN_PANEL, attn_max(rank, nope)));
}

static bool pack_part(struct attn_linear *part, const float *rows, enum attn_dtype dtype,
                      int8_t *integers)
{
    if (!attn_linear_pack_begin(part, dtype))
        return false;
    attn_linear_pack_rows(part, rows, 0, part->out, integers);
    return true;
}

bool attn_mla_pack_head(struct attn_layer *layer, const struct attn_linear *linear, size_t h,
                        const float *rows, void *scratch)
{
    const enum attn_dtype dtype = layer->spec.dtype;
    const size_t nope = attn_mla_nope(&layer->spec), rank = linear->in;
    struct attn_mla_head *head = &layer->mla_heads[h];
    float *transposed = scratch; /* [rank][nope] */
    int8_t *integers = (int8_t *)(transposed + rank * nope);
    if (linear == &layer->v)
        return pack_part(&head->v_up, rows, dtype, integers);
    for (size_t o = 0; o < rank; o++)
        for (size_t i = 0; i < nope; i++)
            transposed[o * nope + i] = rows[i * rank + o];
    return pack_part(&head->k_up, rows, dtype, integers) &&
           pack_part(&head->k_down, transposed, dtype, integers);
}

bool attn_mla_shape_heads(struct attn_layer *layer)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t rank = spec->mla.kv_lora_rank, nope = attn_mla_nope(spec);
    if (!attn_layer_is_latent(layer))
        return true;
    layer->mla_heads = attn_calloc(spec->num_heads, sizeof *layer->mla_heads);
    for (size_t h = 0; layer->mla_heads != NULL && h < spec->num_heads; h++) {
        attn_linear_shape(&layer->mla_heads[h].k_up, rank, nope, spec->dtype);
        attn_linear_shape(&layer->mla_heads[h].k_down, nope, rank, spec->dtype);
        attn_linear_shape(&layer->mla_heads[h].v_up, rank, spec->value_head_dim, spec->dtype);
    }
    return layer->mla_heads != NULL;
}

void attn_mla_fini(struct attn_layer *layer)
{
    for (size_t h = 0; layer->mla_heads != NULL && h < layer->spec.num_heads; h++) {
        attn_linear_fini(&layer->mla_heads[h].k_up);
        attn_linear_fini(&layer->mla_heads[h].k_down);
        attn_linear_fini(&layer->mla_heads[h].v_up);
    }
    attn_free(layer->mla_heads);
}

/* ---- Latents ---- */

#define NORM_ROWS 8 /* of one task */

struct latents {
    const struct attn_layer *layer;
    float *q_a, *latent; /* [rows][q_lora_rank], [rows][R] */
    size_t rows;
};

static void normalize_task(void *argument, size_t i, unsigned thread)
{
    const struct latents *all = argument;
    const struct attn_layer *layer = all->layer;
    const struct attn_mla_spec *mla = &layer->spec.mla;
    const struct attn_norm_spec norm = {.type = ATTN_NORM_RMS, .eps = mla->norm_eps};
    const size_t end = attn_min((i + 1) * NORM_ROWS, all->rows);
    (void)thread;
    for (size_t r = i * NORM_ROWS; r < end; r++) {
        attn_norm_vector(all->latent + r * mla->kv_lora_rank, &norm, layer->kv_a_norm, NULL,
                         mla->kv_lora_rank);
        if (mla->q_lora_rank > 0)
            attn_norm_vector(all->q_a + r * mla->q_lora_rank, &norm, layer->q_a_norm, NULL,
                             mla->q_lora_rank);
    }
}

enum attn_status attn_mla_project(struct attn_engine *engine, const struct attn_layer *layer,
                                  float *q, float *q_a, float *index_q, float *latent, size_t rows)
{
    struct latents all = {layer, q_a, latent, rows};
    attn_pool_run(engine->pool, normalize_task, &all, attn_ceil_div(rows, NORM_ROWS));
    if (layer->q_a.out == 0)
        return ATTN_OK;
    const struct attn_projection products[] = {
        attn_projection_of(&layer->q, q_a, q, rows),
        attn_projection_of(&layer->index_q, q_a, index_q, rows),
    };
    return attn_project(engine, products, layer->index_q.out > 0 ? 2 : 1, true);
}

/* ---- Heads ---- */

/* One product of each head: x [rows][H][x_width] and y [rows][H][y_width], of which the heads' maps
 * read and write the first numbers; x_width 0: all heads read the same x. */
struct head_products {
    const float *x;
    float *y;
    size_t x_stride, x_width, y_width, rows;
};

static void set_product(struct attn_projection *out, const struct attn_layer *layer,
                        const struct attn_linear *linear, const struct head_products *p, size_t h)
{
    *out = (struct attn_projection){.linear = linear,
                                    .x = p->x + h * p->x_width,
                                    .ldx = p->x_stride,
                                    .y = p->y + h * p->y_width,
                                    .ldy = layer->spec.num_heads * p->y_width,
                                    .rows = p->rows};
}

/* The product of each head with its map at `offset` in struct attn_mla_head. */
static enum attn_status project_heads(struct attn_engine *engine, const struct attn_layer *layer,
                                      size_t offset, const struct head_products *all)
{
    const size_t heads = layer->spec.num_heads;
    struct attn_projection *products =
        attn_workspace_alloc(&engine->workspace, heads, sizeof *products);
    if (products == NULL)
        return ATTN_NO_MEMORY;
    for (size_t h = 0; h < heads; h++) {
        const char *maps = (const char *)&layer->mla_heads[h];
        set_product(&products[h], layer, (const void *)(maps + offset), all, h);
    }
    return attn_project(engine, products, heads, true);
}

enum attn_status attn_mla_expand(struct attn_engine *engine, const struct attn_layer *layer,
                                 float *k, float *v, const float *latent, size_t rows)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t heads = spec->num_heads, rank = spec->mla.kv_lora_rank;
    const struct head_products keys = {latent, k, rank, 0, spec->head_dim, rows};
    const struct head_products values = {latent, v, rank, 0, spec->value_head_dim, rows};
    struct attn_projection *products =
        attn_workspace_alloc(&engine->workspace, 2 * heads, sizeof *products);
    if (products == NULL)
        return ATTN_NO_MEMORY;
    for (size_t h = 0; h < heads; h++) {
        set_product(&products[h], layer, &layer->mla_heads[h].k_up, &keys, h);
        set_product(&products[heads + h], layer, &layer->mla_heads[h].v_up, &values, h);
    }
    return attn_project(engine, products, 2 * heads, true);
}

enum attn_status attn_mla_absorb(struct attn_engine *engine, const struct attn_layer *layer,
                                 float *out, const float *q, size_t rows)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t heads = spec->num_heads, d = spec->head_dim, nope = attn_mla_nope(spec);
    const size_t rank = spec->mla.kv_lora_rank, rope = spec->mla.rope_head_dim;
    const struct head_products all = {q, out, heads * d, d, rank + rope, rows};
    for (size_t i = 0; i < rows * heads; i++)
        memcpy(out + i * (rank + rope) + rank, q + i * d + nope, rope * sizeof *out);
    return project_heads(engine, layer, offsetof(struct attn_mla_head, k_down), &all);
}

enum attn_status attn_mla_v_up_project(struct attn_engine *engine, const struct attn_layer *layer,
                                       float *o, const float *sums, size_t rows)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t heads = spec->num_heads, rank = spec->mla.kv_lora_rank;
    const struct head_products all = {sums, o, heads * rank, rank, spec->value_head_dim, rows};
    return project_heads(engine, layer, offsetof(struct attn_mla_head, v_up), &all);
}

size_t attn_mla_step_work(const struct attn_layer_spec *spec, size_t rows, size_t keys)
{
    const struct attn_mla_spec *mla = &spec->mla;
    const size_t heads = spec->num_heads, rank = mla->kv_lora_rank, e = spec->hidden_size;
    const size_t queries = heads * spec->head_dim;
    const size_t inputs = e * (rank + mla->rope_head_dim) +
                          (mla->q_lora_rank > 0 ? mla->q_lora_rank * (e + queries) : e * queries);
    const size_t inner = heads * rank * (attn_mla_nope(spec) + spec->value_head_dim);
    const size_t index = mla->index.num_heads * mla->index.head_dim;
    const size_t indexer =
        mla->q_lora_rank * index + keys * index + e * (mla->index.num_heads + mla->index.head_dim);
    return rows * (inputs + inner + e * heads * spec->value_head_dim + indexer +
                   keys * heads * (2 * rank + mla->rope_head_dim));
}

/* ---- Memory ---- */

/* Bytes of a row of n numbers as integers of at most 16 bits, with its scale. */
static size_t quantized_bytes(size_t n)
{
    return 2 * attn_ceil_div(n, ATTN_ALIGN) * ATTN_ALIGN + sizeof(float);
}

size_t attn_mla_integer_bytes(const struct attn_layer_spec *spec)
{
    const size_t rank = spec->mla.kv_lora_rank;
    if (rank == 0 || (spec->dtype != ATTN_INT8 && spec->dtype != ATTN_W8A16))
        return 0;
    return quantized_bytes(spec->mla.q_lora_rank) + quantized_bytes(rank) +
           spec->num_heads * (quantized_bytes(attn_mla_nope(spec)) + quantized_bytes(rank));
}

/* Three sets of products, at most two for each head, and keys and values of a tile that a step
 * wants as outputs. */
size_t attn_mla_call_bytes(const struct attn_layer_spec *spec)
{
    const struct attn_mla_spec *mla = &spec->mla;
    const size_t heads = spec->num_heads;
    const size_t product = sizeof(struct attn_projection) + ATTN_QUANTIZED_ROWS_DESCRIPTOR_BYTES;
    if (mla->kv_lora_rank == 0)
        return 0;
    const size_t tile = heads * (spec->head_dim + spec->value_head_dim) + mla->kv_lora_rank +
                        mla->rope_head_dim + mla->index.head_dim +
                        quantized_bytes(mla->kv_lora_rank);
    return 6 * heads * (product + 2 * ATTN_ALIGN) + ATTN_TILE * tile * sizeof(float);
}
