/* copies.c: copying rows [T][H][width], as projections and attention have them, to outputs
 * [H'][T'][width], in tasks of some rows of one sequence. */
#include "attention/copies.h"

#include <string.h>

#include "basics/mem.h"

#define TASK_ROWS 64

/* One output: what it is copied from, and where to. */
struct copy {
    float *to;         /* [C][H'][T'][width]; NULL: not asked for */
    const float *from; /* [C][T][H][width] */
    size_t tokens, heads, width;
    struct attn_selection selected; /* H' heads and T' tokens */
};

#define COPIES 5

struct copying {
    struct copy copies[COPIES];
    size_t first, count; /* sequences */
};

static size_t shown_heads(const struct copy *copy)
{
    return copy->selected.heads != NULL ? copy->selected.num_heads : copy->heads;
}

static size_t shown_tokens(const struct copy *copy)
{
    return copy->selected.rows != NULL ? copy->selected.num_rows : copy->tokens;
}

static size_t count_tasks(const struct copy *copy, size_t sequences)
{
    return copy->to != NULL ? sequences * attn_ceil_div(shown_tokens(copy), TASK_ROWS) : 0;
}

/* Copies tokens [begin, end) of those shown, of all heads shown, of one sequence. */
static void copy_tokens(float *to, const float *from, const struct copy *copy, size_t begin,
                        size_t end)
{
    const struct attn_selection *selected = &copy->selected;
    const size_t width = copy->width;
    for (size_t h = 0; h < shown_heads(copy); h++) {
        const size_t head = selected->heads != NULL ? selected->heads[h] : h;
        for (size_t t = begin; t < end; t++) {
            const size_t token = selected->rows != NULL ? selected->rows[t] : t;
            memcpy(to + (h * shown_tokens(copy) + t) * width,
                   from + (token * copy->heads + head) * width, width * sizeof(float));
        }
    }
}

/* Task i of all tasks of all copies, one copy after the other. */
static void copy_task(void *argument, size_t i, unsigned thread)
{
    const struct copying *all = argument;
    const struct copy *copy = all->copies;
    (void)thread;
    for (size_t tasks; i >= (tasks = count_tasks(copy, all->count)); copy++)
        i -= tasks;
    const size_t blocks = attn_ceil_div(shown_tokens(copy), TASK_ROWS);
    const size_t sequence = i / blocks, begin = i % blocks * TASK_ROWS;
    const size_t from = sequence * copy->tokens * copy->heads * copy->width;
    const size_t to =
        (all->first + sequence) * shown_heads(copy) * shown_tokens(copy) * copy->width;
    copy_tokens(copy->to + to, copy->from + from, copy, begin,
                attn_min(begin + TASK_ROWS, shown_tokens(copy)));
}

void attn_copy_rows(struct attn_pool *pool, const struct attn_copies *c)
{
    const struct attn_outputs *to = c->outputs;
    const size_t t = c->queries, s = c->keys, h = c->spec->num_heads, g = c->spec->num_kv_heads;
    const size_t d = c->spec->head_dim, dv = c->spec->value_head_dim;
    struct copying all = {
        .copies = {{to->query, c->q, t, h, d, to->selection},
                   {to->head_output, c->o, t, h, dv, to->selection},
                   {to->concat, c->o, t, 1, h * dv, {0}},
                   {c->k != NULL ? to->key : NULL, c->k, s, g, d, {0}},
                   {c->v != NULL ? to->value : NULL, c->v, s, g, dv, {0}}},
        .first = c->first,
        .count = c->count,
    };
    size_t tasks = 0;
    for (size_t i = 0; i < COPIES; i++)
        tasks += count_tasks(&all.copies[i], c->count);
    if (tasks > 0)
        attn_pool_run(pool, copy_task, &all, tasks);
}

bool attn_outputs_need_heads(const struct attn_outputs *outputs)
{
    return outputs->output != NULL || outputs->head_output != NULL || outputs->concat != NULL ||
           outputs->ablation != NULL;
}

/* ---- From a cache ---- */

struct cached {
    const struct attn_outputs *outputs;
    const struct attn_cache *cache;
    size_t layer, keys;
};

/* Task i copies a block. */
static void copy_block_task(void *argument, size_t i, unsigned thread)
{
    const struct cached *from = argument;
    const struct attn_outputs *to = from->outputs;
    const struct attn_layer_spec *spec =
        attn_model_layer(attn_cache_model(from->cache), from->layer);
    const size_t first = i * ATTN_TILE;
    (void)thread;
    attn_cache_read_strided(to->key != NULL ? to->key + first * spec->head_dim : NULL,
                            to->value != NULL ? to->value + first * spec->value_head_dim : NULL,
                            from->cache, from->layer, first,
                            attn_min(from->keys - first, ATTN_TILE), from->keys);
}

/* A tile of latents, expanded. */
struct expanded {
    const struct attn_outputs *outputs;
    const struct attn_layer_spec *spec;
    float *latent, *shared, *key, *value; /* [64][R], [64][rope_head_dim], [64][H*D], [64][H*Dv] */
    size_t first, count, keys;
};

/* Task h copies a head. */
static void copy_expanded_task(void *argument, size_t h, unsigned thread)
{
    const struct expanded *tile = argument;
    const size_t heads = tile->spec->num_heads, d = tile->spec->head_dim;
    const size_t dv = tile->spec->value_head_dim, rope = tile->spec->mla.rope_head_dim;
    (void)thread;
    for (size_t t = 0; t < tile->count; t++) {
        const size_t row = h * tile->keys + tile->first + t, from = t * heads + h;
        float *key = tile->outputs->key != NULL ? tile->outputs->key + row * d : NULL;
        if (key != NULL) {
            memcpy(key, tile->key + from * d, (d - rope) * sizeof *key);
            memcpy(key + d - rope, tile->shared + t * rope, rope * sizeof *key);
        }
        if (tile->outputs->value != NULL)
            memcpy(tile->outputs->value + row * dv, tile->value + from * dv, dv * sizeof *key);
    }
}

static bool take_expanded(struct expanded *out, struct attn_workspace *workspace)
{
    const struct attn_layer_spec *s = out->spec;
    const size_t float_size = sizeof(float), rows = ATTN_TILE;
    out->latent = attn_workspace_take(workspace, rows * s->mla.kv_lora_rank, float_size);
    out->shared = attn_workspace_take(workspace, rows * s->mla.rope_head_dim, float_size);
    out->key = attn_workspace_take(workspace, rows * s->num_heads * s->head_dim, float_size);
    out->value =
        attn_workspace_take(workspace, rows * s->num_heads * s->value_head_dim, float_size);
    return out->latent != NULL && out->shared != NULL && out->key != NULL && out->value != NULL;
}

static enum attn_status copy_expanded(struct attn_engine *engine, const struct attn_layer *layer,
                                      const struct cached *from)
{
    struct attn_workspace *workspace = &engine->workspace;
    const struct attn_workspace_mark before = attn_workspace_get_mark(workspace);
    struct expanded tile = {.outputs = from->outputs, .spec = &layer->spec, .keys = from->keys};
    enum attn_status status = ATTN_OK;
    for (; tile.first < from->keys && status == ATTN_OK; tile.first += ATTN_TILE) {
        tile.count = attn_min(from->keys - tile.first, ATTN_TILE);
        status = take_expanded(&tile, workspace) ? ATTN_OK : ATTN_NO_MEMORY;
        if (status == ATTN_OK) {
            attn_cache_read_strided(tile.latent, tile.shared, from->cache, from->layer, tile.first,
                                    tile.count, tile.count);
            status = attn_mla_expand(engine, layer, tile.key, tile.value, tile.latent, tile.count);
        }
        if (status == ATTN_OK)
            attn_pool_run(engine->pool, copy_expanded_task, &tile, layer->spec.num_heads);
        attn_workspace_rewind(workspace, before);
    }
    return status;
}

enum attn_status attn_copy_cached(struct attn_engine *engine, const struct attn_layer *layer,
                                  const struct attn_outputs *outputs,
                                  const struct attn_cache *cache, size_t index, size_t keys)
{
    struct cached from = {outputs, cache, index, keys};
    if (outputs->key == NULL && outputs->value == NULL)
        return ATTN_OK;
    if (attn_layer_is_latent(layer))
        return copy_expanded(engine, layer, &from);
    attn_pool_run(engine->pool, copy_block_task, &from, attn_ceil_div(keys, ATTN_TILE));
    return ATTN_OK;
}
