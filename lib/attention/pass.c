/* pass.c: the memory of a forward pass: rows of all calls side by side, and what each call needs
 * beside them. */
#include <string.h>

#include "attention/forward.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "engine/rope.h"

/* Heads of a part of the absorbed form, at least, where there are threads for more parts: a tile is
 * transposed for each part, which costs as much as the products of a few rows. */
#define PART_HEADS 16

/* ---- Rows ---- */

enum rows { QUERY_ROWS, KEY_ROWS, EXPANDED_ROWS, ABSORBED_ROWS, BATCHED_ROWS, OUTPUT_ROWS, ROWS };

/* A buffer of rows: its pointer in struct attn_pass, its floats for each row, and how many rows. */
struct buffer {
    size_t offset, width;
    enum rows rows;
};

#define BUFFERS 16

static void list_buffers(struct buffer out[BUFFERS], const struct attn_layer_spec *s)
{
    const struct attn_mla_spec *m = &s->mla;
    const bool latent = m->kv_lora_rank > 0;
    const size_t q = s->num_heads * s->head_dim, o = s->num_heads * s->value_head_dim;
    const struct attn_cached_sizes own = attn_cached_sizes(s); /* what projections make */
    const struct buffer list[BUFFERS] = {
        {offsetof(struct attn_pass, x), s->hidden_size, BATCHED_ROWS},
        {offsetof(struct attn_pass, q), q, QUERY_ROWS},
        {offsetof(struct attn_pass, q_a), m->q_lora_rank, QUERY_ROWS},
        {offsetof(struct attn_pass, position_gates), s->position_bias.gated ? s->num_heads : 0,
         QUERY_ROWS},
        {offsetof(struct attn_pass, k), own.heads * own.key, KEY_ROWS},
        {offsetof(struct attn_pass, v), own.heads * own.value, KEY_ROWS},
        {offsetof(struct attn_pass, head_k), latent ? q : 0, EXPANDED_ROWS},
        {offsetof(struct attn_pass, head_v), latent ? o : 0, EXPANDED_ROWS},
        {offsetof(struct attn_pass, absorbed),
         latent ? s->num_heads * (m->kv_lora_rank + m->rope_head_dim) : 0, ABSORBED_ROWS},
        {offsetof(struct attn_pass, sums), s->num_heads * m->kv_lora_rank, ABSORBED_ROWS},
        {offsetof(struct attn_pass, index_q), m->index.num_heads * m->index.head_dim, QUERY_ROWS},
        {offsetof(struct attn_pass, index_w), m->index.num_heads, QUERY_ROWS},
        {offsetof(struct attn_pass, gate), attn_gate_width(s), QUERY_ROWS},
        {offsetof(struct attn_pass, o), o, QUERY_ROWS},
        {offsetof(struct attn_pass, second), s->differential.lambda_init != 0 ? o : 0, QUERY_ROWS},
        {offsetof(struct attn_pass, y), s->hidden_size, OUTPUT_ROWS},
    };
    memcpy(out, list, sizeof list);
}

size_t attn_pass_row_floats(size_t *batched, const struct attn_layer_spec *spec)
{
    struct buffer buffers[BUFFERS];
    size_t floats = *batched = 0;
    list_buffers(buffers, spec);
    for (size_t i = 0; i < BUFFERS; i++)
        *(buffers[i].rows >= BATCHED_ROWS ? batched : &floats) += buffers[i].width;
    return floats;
}

/* Takes the buffers of rows; false where memory is short. */
static bool alloc_rows(struct attn_pass *pass)
{
    const size_t rows[ROWS] = {[QUERY_ROWS] = pass->query_rows,
                               [KEY_ROWS] = pass->key_rows,
                               [EXPANDED_ROWS] = attn_pass_expands(pass) ? pass->key_rows : 0,
                               [ABSORBED_ROWS] = attn_pass_absorbs(pass) ? pass->query_rows : 0,
                               [BATCHED_ROWS] = pass->batched_rows,
                               [OUTPUT_ROWS] = pass->output_rows};
    struct buffer buffers[BUFFERS];
    bool allocated = true;
    list_buffers(buffers, &pass->layer->spec);
    for (size_t i = 0; i < BUFFERS; i++) {
        float **buffer = (float **)(void *)((char *)pass + buffers[i].offset);
        *buffer =
            attn_workspace_alloc(&pass->engine->workspace,
                                 attn_mul(rows[buffers[i].rows], buffers[i].width), sizeof(float));
        allocated = allocated && *buffer != NULL;
    }
    if (pass->layer->q_a.out == 0)
        pass->q_a = pass->q;
    if (!attn_pass_expands(pass)) {
        pass->head_k = pass->k;
        pass->head_v = pass->v;
    }
    return allocated;
}

/* The order of calls in the buffers: those that share both products, those that share the first,
 * and those that share none. */
enum order { BATCHED_WITH_OUTPUT, BATCHED, ALONE, ORDERS };

void attn_pass_assign_rows(struct attn_pass *pass)
{
    size_t end[ORDERS];
    pass->query_rows = pass->key_rows = 0;
    for (enum order order = 0; order < ORDERS; order++) {
        for (size_t i = 0; i < pass->count; i++) {
            struct attn_call *c = &pass->calls[i];
            const bool output = c->outputs->output != NULL;
            if ((!c->batched ? ALONE : output ? BATCHED_WITH_OUTPUT : BATCHED) != order)
                continue;
            c->row = pass->query_rows;
            c->key_row = pass->key_rows;
            pass->query_rows += c->count * c->queries;
            pass->key_rows += c->count * c->new_keys;
        }
        end[order] = pass->query_rows;
    }
    pass->output_rows = end[BATCHED_WITH_OUTPUT];
    pass->batched_rows = end[BATCHED];
}

/* ---- Beginning ---- */

enum attn_status attn_call_prepare(struct attn_call *call, struct attn_workspace *workspace,
                                   size_t num_heads, size_t num_kv_heads, size_t extra)
{
    const struct attn_map_sizes sizes = {.batch = call->batch,
                                         .num_heads = num_heads,
                                         .num_kv_heads = num_kv_heads,
                                         .queries = call->queries,
                                         .keys = call->keys,
                                         .columns = call->keys + extra};
    const size_t positions = attn_mul(call->batch, attn_add(call->keys, call->queries));
    if (attn_mask_needs_positions(call->modifiers, call->mask->position_bias) &&
        (call->positions = attn_workspace_alloc(workspace, positions, sizeof *call->positions)) ==
            NULL)
        return attn_fail_memory(call->error, attn_mul(positions, sizeof *call->positions));
    return attn_maps_init(&call->maps, workspace, call->outputs, &sizes, call->error);
}

/* RoPE's frequencies of a call: the layer's own, or where its length changes them, others. */
static enum attn_status set_frequencies(struct attn_call *c, const struct attn_pass *pass)
{
    const struct attn_rope_spec *rope = &pass->layer->spec.rope;
    const int64_t *ids = c->modifiers->position_ids;
    const size_t rows = ids != NULL ? c->batch * c->queries : c->queries;
    const int64_t length = attn_qkv_length(ids, rows, (int64_t)c->slot);
    c->inv_freq = pass->layer->inv_freq;
    if (c->inv_freq == NULL || !attn_rope_is_rescaled(rope, length))
        return ATTN_OK;
    float *rescaled =
        attn_workspace_alloc(&pass->engine->workspace, rope->dim / 2, sizeof *rescaled);
    if (rescaled == NULL)
        return attn_fail_memory(c->error, rope->dim / 2 * sizeof *rescaled);
    attn_rope_frequencies(rescaled, rope, length);
    c->inv_freq = rescaled;
    return ATTN_OK;
}

/* The parts that the heads are divided into in the absorbed form: units of work that read the same
 * tiles.  No bit of a result depends on their number. */
static size_t groups_for(const struct attn_layer_spec *spec, size_t threads)
{
    const size_t heads = spec->num_heads, wanted = attn_min(threads, heads / PART_HEADS);
    size_t groups = attn_max(attn_ceil_div(heads, ATTN_TILE), wanted);
    while (heads % groups != 0)
        groups++;
    return groups;
}

enum attn_status attn_pass_begin(struct attn_pass *pass)
{
    struct attn_workspace *workspace = &pass->engine->workspace;
    size_t sequences = 0;
    pass->in = attn_layer_inputs(pass->layer);
    pass->value_width = pass->in.v->out + pass->layer->index_k.out;
    attn_pass_assign_rows(pass);
    if (attn_pass_absorbs(pass))
        pass->groups = groups_for(&pass->layer->spec, attn_pool_threads(pass->engine->pool));
    for (size_t i = 0; i < pass->count; i++)
        sequences += pass->calls[i].count;
    if (pass->layer->spec.differential.lambda_init != 0)
        sequences *= 2;
    const bool allocated = alloc_rows(pass);
    pass->products =
        attn_workspace_alloc(workspace, attn_call_products(&pass->layer->spec) * (pass->count + 1),
                             sizeof *pass->products);
    pass->problems = attn_workspace_alloc(workspace, sequences, sizeof *pass->problems);
    if (!allocated || pass->products == NULL || pass->problems == NULL)
        return ATTN_NO_MEMORY;
    for (size_t i = 0; i < pass->count; i++) {
        struct attn_call *c = &pass->calls[i];
        if (c->queries > 0 && set_frequencies(c, pass) == ATTN_OK) /* an error is the call's */
            (void)attn_call_prepare(c, workspace, pass->layer->spec.num_heads,
                                    attn_pass_kv_heads(pass, c), pass->layer->extra);
    }
    return ATTN_OK;
}
