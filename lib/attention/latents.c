/* latents.c: memory, projections and problems of rows of a latent layer. */
#include "attention/latents.h"

#include <string.h>

#include "basics/mem.h"

/* Heads of a part, at least, where there are threads for more parts: a tile is transposed for each
 * part, which costs as much as the products of a few rows. */
#define PART_HEADS 16

/* The parts that the heads are divided into, for so many threads. */
static size_t groups_for(const struct attn_layer_spec *spec, size_t threads)
{
    const size_t heads = spec->num_heads, wanted = attn_min(threads, heads / PART_HEADS);
    size_t groups = attn_max(attn_ceil_div(heads, ATTN_TILE), wanted);
    while (heads % groups != 0)
        groups++;
    return groups;
}

bool attn_latent_rows_take(struct attn_latent_rows *out, struct attn_engine *engine,
                           const struct attn_layer *layer, float *q, size_t rows, bool absorbed)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t rank = spec->mla.kv_lora_rank, rope = spec->mla.rope_head_dim;
    const size_t heads = spec->num_heads;
    const struct {
        float **buffer;
        size_t width;
    } buffers[] = {
        {&out->q_a, layer->q_a.out},
        {&out->latent, absorbed ? 0 : rank},
        {&out->shared, absorbed ? 0 : rope},
        {&out->absorbed, absorbed ? heads * (rank + rope) : 0},
        {&out->sums, absorbed ? heads * rank : 0},
    };
    bool taken = true;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        *buffers[i].buffer = attn_workspace_take(&engine->workspace,
                                                 attn_mul(rows, buffers[i].width), sizeof(float));
        taken = taken && *buffers[i].buffer != NULL;
    }
    if (layer->q_a.out == 0)
        out->q_a = q;
    out->groups = absorbed ? groups_for(spec, attn_pool_threads(engine->pool)) : 0;
    return taken;
}

enum attn_status attn_latent_rows_expand(const struct attn_latent_rows *rows,
                                         struct attn_engine *engine, const struct attn_layer *layer,
                                         const float *x, size_t count, struct attn_qkv to)
{
    const struct attn_layer_inputs in = attn_layer_inputs(layer);
    const struct attn_projection products[] = {
        attn_projection_of(in.q, x, rows->q_a, count),
        attn_projection_of(in.k, x, rows->latent, count),
        attn_projection_of(in.v, x, rows->shared, count),
    };
    enum attn_status status = attn_project(engine, products, 3, false);
    if (status == ATTN_OK)
        status = attn_mla_project(engine, layer, to.q, rows->q_a, rows->latent, count);
    return status == ATTN_OK ? attn_mla_expand(engine, layer, to.k, to.v, rows->latent, count)
                             : status;
}

bool attn_latent_share_key(float *k, const float *v, const struct attn_layer *layer,
                           const struct attn_kernels *kernels, const float *shared)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t rope = spec->mla.rope_head_dim, d = spec->head_dim, heads = spec->num_heads;
    for (size_t h = 0; h < heads; h++)
        memcpy(k + (h + 1) * d - rope, shared, rope * sizeof *k);
    return kernels->all_within(k, heads * d, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(v, heads * spec->value_head_dim, ATTN_MAX_MAGNITUDE);
}

void attn_latent_rows_set(struct attn_problem *p, const struct attn_latent_rows *rows,
                          const struct attn_layer_spec *spec, size_t row, bool grouped)
{
    const size_t rank = spec->mla.kv_lora_rank, d = rank + spec->mla.rope_head_dim;
    const size_t heads = spec->num_heads;
    p->num_kv_heads = grouped ? rows->groups : heads;
    p->head_dim = d;
    p->value_head_dim = rank;
    p->q = (struct attn_rows){rows->absorbed + row * heads * d, heads * d, d};
    if (p->out.data != NULL)
        p->out = (struct attn_rows){rows->sums + row * heads * rank, heads * rank, rank};
}

bool attn_latent_rows_within(const struct attn_latent_rows *rows, struct attn_engine *engine,
                             const struct attn_layer_spec *spec, size_t first, size_t count)
{
    const size_t width = spec->num_heads * (spec->mla.kv_lora_rank + spec->mla.rope_head_dim);
    return attn_engine_all_within(engine, rows->absorbed + first * width, count * width,
                                  ATTN_MAX_MAGNITUDE);
}
