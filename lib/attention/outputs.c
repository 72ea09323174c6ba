/* outputs.c: what the outputs of a call are beside maps: the output, checked; its ablation; and
 * copies of rows [T][H][width], as projections and attention have them, to [H'][T'][width]. */
#include <float.h>
#include <string.h>

#include "attention/forward.h"
#include "basics/status.h"
#include "layers/ablation.h"

#define TASK_ROWS 64 /* that a task copies, of one sequence */

bool attn_outputs_need_heads(const struct attn_outputs *outputs)
{
    return outputs->output != NULL || outputs->head_output != NULL || outputs->concat != NULL ||
           outputs->ablation != NULL;
}

/* ---- Copies of rows ---- */

/* One output: what it is copied from, and where to. */
struct copy {
    float *to;         /* [B][H'][T'][width]; NULL: not asked for */
    const float *from; /* [C][T][H][width] */
    size_t tokens, heads, width;
    struct attn_selection selected; /* H' heads and T' tokens */
};

#define COPIES 5

static void list_copies(struct copy out[COPIES], const struct attn_pass *pass,
                        const struct attn_call *c)
{
    const struct attn_layer_spec *spec = &pass->layer->spec;
    const struct attn_outputs *to = c->outputs;
    const size_t t = c->queries, s = c->new_keys, h = spec->num_heads, g = spec->num_kv_heads;
    const size_t d = spec->head_dim, dv = spec->value_head_dim;
    const bool given = c->cache == NULL; /* else keys and values come from the cache */
    const float *q = pass->q + c->row * h * d, *o = pass->o + c->row * h * dv;
    const struct copy list[COPIES] = {
        {to->query, q, t, h, d, to->selection},
        {to->head_output, o, t, h, dv, to->selection},
        {to->concat, o, t, 1, h * dv, {0}},
        {given ? to->key : NULL, pass->head_k, s, g, d, {0}},
        {given ? to->value : NULL, pass->head_v, s, g, dv, {0}},
    };
    memcpy(out, list, sizeof list);
    if (spec->is_weightless) /* whose output is what heads put out */
        out[1] = (struct copy){to->output, o, t, h, dv, {0}};
}

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

/* Task i of all tasks of all calls, one copy after the other. */
static void copy_task(void *argument, size_t i, unsigned thread)
{
    const struct attn_pass *pass = argument;
    const struct attn_call *c = pass->calls;
    struct copy copies[COPIES], *copy = copies;
    (void)thread;
    while (i >= c->copies_end)
        c++;
    i -= c > pass->calls ? c[-1].copies_end : 0;
    list_copies(copies, pass, c);
    for (size_t tasks; i >= (tasks = count_tasks(copy, c->count)); copy++)
        i -= tasks;
    const size_t blocks = attn_ceil_div(shown_tokens(copy), TASK_ROWS);
    const size_t sequence = i / blocks, begin = i % blocks * TASK_ROWS, width = copy->width;
    const size_t end = attn_min(begin + TASK_ROWS, shown_tokens(copy));
    const float *from = copy->from + sequence * copy->tokens * copy->heads * width;
    float *to = copy->to + (c->first + sequence) * shown_heads(copy) * shown_tokens(copy) * width;
    for (size_t h = 0; h < shown_heads(copy); h++) {
        const size_t head = copy->selected.heads != NULL ? copy->selected.heads[h] : h;
        for (size_t t = begin; t < end; t++) {
            const size_t token = copy->selected.rows != NULL ? copy->selected.rows[t] : t;
            memcpy(to + (h * shown_tokens(copy) + t) * width,
                   from + (token * copy->heads + head) * width, width * sizeof(float));
        }
    }
}

/* Copies query, head_output, concat, key and value of the calls that ask for them. */
static void copy_rows(struct attn_pass *pass)
{
    size_t tasks = 0;
    for (size_t i = 0; i < pass->count; i++) {
        struct attn_call *c = &pass->calls[i];
        struct copy copies[COPIES];
        list_copies(copies, pass, c);
        for (size_t n = 0; n < COPIES && c->error->status == ATTN_OK; n++)
            tasks += count_tasks(&copies[n], c->count);
        c->copies_end = tasks;
    }
    attn_pool_run(pass->engine->pool, copy_task, pass, tasks);
}

/* ---- Copies from a cache ----
 *
 * The tokens may be put but not yet visible. */

struct cached {
    const struct attn_pass *pass;
    const struct attn_call *call;
};

/* Task i copies a block. */
static void copy_block_task(void *argument, size_t i, unsigned thread)
{
    const struct cached *from = argument;
    const struct attn_call *c = from->call;
    const struct attn_layer_spec *spec = &from->pass->layer->spec;
    float *key = c->outputs->key, *value = c->outputs->value;
    const size_t first = i * ATTN_TILE;
    (void)thread;
    attn_cache_read_strided(key != NULL ? key + first * spec->head_dim : NULL,
                            value != NULL ? value + first * spec->value_head_dim : NULL, c->cache,
                            from->pass->layer_index, first, attn_min(c->keys - first, ATTN_TILE),
                            c->keys);
}

/* A tile of latents, expanded. */
struct expanded {
    const struct attn_outputs *outputs;
    const struct attn_layer_spec *spec;
    size_t value_width;                   /* of `k_rope` */
    float *latent, *k_rope, *key, *value; /* [64][R], [64][value_width], [64][H*D], [64][H*Dv] */
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
            memcpy(key + d - rope, tile->k_rope + t * tile->value_width, rope * sizeof *key);
        }
        if (tile->outputs->value != NULL)
            memcpy(tile->outputs->value + row * dv, tile->value + from * dv, dv * sizeof *key);
    }
}

static enum attn_status copy_expanded(const struct attn_pass *pass, const struct attn_call *c)
{
    struct attn_engine *engine = pass->engine;
    struct attn_workspace *workspace = &engine->workspace;
    const struct attn_layer_spec *spec = &pass->layer->spec;
    const struct attn_workspace_mark before = attn_workspace_get_mark(workspace);
    const size_t widths[] = {spec->mla.kv_lora_rank, pass->value_width,
                             spec->num_heads * spec->head_dim,
                             spec->num_heads * spec->value_head_dim};
    struct expanded tile = {
        .outputs = c->outputs, .spec = spec, .keys = c->keys, .value_width = pass->value_width};
    float **rows[] = {&tile.latent, &tile.k_rope, &tile.key, &tile.value};
    enum attn_status status = ATTN_OK;
    for (; tile.first < c->keys && status == ATTN_OK; tile.first += ATTN_TILE) {
        tile.count = attn_min(c->keys - tile.first, ATTN_TILE);
        for (size_t i = 0; i < ATTN_COUNT(rows); i++) {
            *rows[i] = attn_workspace_alloc(workspace, ATTN_TILE * widths[i], sizeof(float));
            status = *rows[i] != NULL ? status : ATTN_NO_MEMORY;
        }
        if (status == ATTN_OK) {
            attn_cache_read_strided(tile.latent, tile.k_rope, c->cache, pass->layer_index,
                                    tile.first, tile.count, tile.count);
            status =
                attn_mla_expand(engine, pass->layer, tile.key, tile.value, tile.latent, tile.count);
        }
        if (status == ATTN_OK)
            attn_pool_run(engine->pool, copy_expanded_task, &tile, spec->num_heads);
        attn_workspace_rewind(workspace, before);
    }
    return status;
}

/* Copies key and value of a call over a cache where they are asked for.  A latent layer makes them
 * of the cached latents. */
static enum attn_status copy_cached(const struct attn_pass *pass, const struct attn_call *c)
{
    struct cached from = {pass, c};
    if (c->cache == NULL || (c->outputs->key == NULL && c->outputs->value == NULL))
        return ATTN_OK;
    if (attn_layer_is_latent(pass->layer))
        return copy_expanded(pass, c);
    attn_pool_run(pass->engine->pool, copy_block_task, &from, attn_ceil_div(c->keys, ATTN_TILE));
    return ATTN_OK;
}

/* ---- All of them ---- */

/* Checks a call's numbers and output, copies the output to the caller where calls shared its
 * product, and computes the ablation. */
static enum attn_status finish(const struct attn_pass *pass, const struct attn_call *c)
{
    const struct attn_layer *layer = pass->layer;
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t before = c->first * c->queries, rows = c->count * c->queries;
    const bool asked = c->outputs->output != NULL, batched = asked && c->batched;
    if (atomic_load(&c->unfit))
        return attn_fail(c->error, ATTN_OVERFLOW, spec->is_weightless ? "key" : "hidden_states",
                         "a key or value does not fit the cache's %s",
                         attn_dtype_name(spec->kv_dtype));
    if (atomic_load(&c->beyond))
        return attn_fail(c->error, ATTN_OVERFLOW, spec->is_weightless ? "query" : "hidden_states",
                         "a query, key, value or gate passes the magnitude %g",
                         (double)ATTN_MAX_MAGNITUDE);
    if (spec->is_weightless) /* the output is a copy of what heads put out */
        return ATTN_OK;
    float *output = asked ? c->outputs->output + before * layer->o.out : NULL;
    const float *made = batched ? pass->y + c->row * layer->o.out : output;
    if (atomic_load(&c->output_over) ||
        (batched && !attn_engine_all_within(pass->engine, made, rows * layer->o.out, FLT_MAX)))
        return attn_fail(c->error, ATTN_OVERFLOW, "hidden_states",
                         "the output does not fit float32");
    if (batched)
        memcpy(output, made, rows * layer->o.out * sizeof *output);
    const struct attn_ablated ablated = {layer, pass->o + c->row * layer->o.in, made, c->count,
                                         c->queries};
    return c->outputs->ablation == NULL
               ? ATTN_OK
               : attn_ablate(c->outputs->ablation + c->first * spec->num_heads, pass->engine,
                             &ablated, c->error);
}

void attn_pass_fill_outputs(struct attn_pass *pass)
{
    for (size_t i = 0; i < pass->count; i++)
        if (pass->calls[i].error->status == ATTN_OK)
            (void)finish(pass, &pass->calls[i]);
    copy_rows(pass);
    for (size_t i = 0; i < pass->count; i++)
        if (pass->calls[i].error->status == ATTN_OK &&
            copy_cached(pass, &pass->calls[i]) != ATTN_OK)
            attn_fail_memory(pass->calls[i].error, 0);
}
