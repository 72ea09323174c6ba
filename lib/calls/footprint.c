/* footprint.c: the memory that models, caches, engines and calls take, added up from their parts.
 *
 * Every figure is an upper bound, counted place by place from the code that takes the memory.  A
 * wrong figure cannot break the bound of an engine: calls are held to call_bytes as they
 * allocate. */
#include <stdint.h>
#include <unistd.h>

#include "attention/forward.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "basics/tile.h"
#include "caches/kvcache.h"
#include "engine/engine.h"
#include "kernels/stats.h"
#include "layers/ablation.h"
#include "layers/mla.h"
#include "machine/cgroup.h"
#include "models/model.h"

_Static_assert(ATTN_BLOCK_TOKENS == ATTN_TILE, "a block of a cache has a tile of each head");

/* ---- The machine ---- */

size_t attn_memory_limit(const char **source)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t machine = pages > 0 && page > 0 ? attn_mul((size_t)pages, (size_t)page) : SIZE_MAX;
    size_t group = attn_cgroup_memory("");
    *source = group < machine ? "the control group" : "the machine";
    return attn_min(group, machine);
}

/* ---- Models ---- */

/* Tables derived from a layer's weights: frequencies, position bias, tiles of extra keys. */
static size_t layer_side_bytes(const struct attn_layer_spec *s)
{
    size_t floats = s->rope.type != ATTN_ROPE_NONE ? s->rope.dim / 2 : 0;
    if (s->position_bias.type == ATTN_BIAS_T5)
        floats += s->num_heads * (2 * s->position_bias.max_distance + 1);
    else if (s->position_bias.type == ATTN_BIAS_GRID)
        floats += s->num_heads * attn_grid_rows(s->position_bias.grid);
    else if (s->position_bias.type == ATTN_BIAS_ALIBI)
        floats += s->num_heads;
    floats += attn_relative_floats(s);
    if (s->bias_kv || s->add_zero_attn)
        floats += s->num_kv_heads * (s->head_dim + s->value_head_dim) * ATTN_TILE;
    return floats * sizeof(float);
}

void attn_model_memory(struct attn_model_memory *out, const struct attn_model *model)
{
    *out = (struct attn_model_memory){.block_bytes = SIZE_MAX,
                                      .cache_bytes = attn_cache_memory(model)};
    for (size_t i = 0; i < attn_model_num_resident(model); i++) {
        struct attn_layer_spec spec = *attn_model_resident_spec(model, i);
        out->side_bytes += sizeof(struct attn_layer) + layer_side_bytes(&spec);
        out->block_bytes = attn_min(out->block_bytes, attn_block_bytes(&spec));
        spec.dtype = ATTN_F32;
        out->loading_bytes = attn_max(out->loading_bytes, attn_layer_weight_bytes(&spec) +
                                                              attn_layer_loading_bytes(&spec));
    }
    out->loading_bytes += attn_model_headers_memory(model);
}

size_t attn_model_cache_bytes(const struct attn_model *model, size_t tokens)
{
    size_t bytes = 0, resident = attn_model_num_resident(model);
    bool read = false;
    for (size_t i = 0; i < resident; i++)
        read = read || attn_model_resident_spec(model, i)->shares_layer != SIZE_MAX;
    for (size_t i = 0; i < resident; i++) {
        const struct attn_layer_spec *spec = attn_model_resident_spec(model, i);
        const size_t blocks = attn_window_blocks(spec, tokens, read);
        if (!spec->is_cross && spec->shares_layer == SIZE_MAX)
            bytes = attn_add(bytes, attn_mul(blocks, attn_block_bytes(spec)));
    }
    return bytes;
}

/* ---- Calls ---- */

size_t attn_step_work(const struct attn_layer_spec *spec, size_t rows, size_t keys)
{
    size_t heads = spec->num_heads * (spec->head_dim + spec->value_head_dim);
    size_t kv_heads = spec->num_kv_heads * (spec->head_dim + spec->value_head_dim);
    if (spec->mla.kv_lora_rank > 0)
        return attn_mla_step_work(spec, rows, keys);
    const size_t softmaxes = spec->differential.lambda_init != 0 ? 2 : 1;
    return rows * (spec->hidden_size * (heads + kv_heads + attn_gate_width(spec)) +
                   softmaxes * keys * heads);
}

#define SLACK ((size_t)4 << 20) /* small allocations, and ends of chunks */

/* Bytes of one row of queries and one of keys in a call to a layer: the buffers of a pass, rows
 * as integers with their scales, positions, statistics, selected heads and rows, frequencies; and
 * in *batched the floats besides of a row of a step that shares products. */
static size_t row_bytes(size_t *batched, const struct attn_layer_spec *s)
{
    size_t heads = s->num_heads * s->value_head_dim;
    size_t planes = s->dtype == ATTN_INT8 ? 1 : s->dtype == ATTN_W8A16 ? 2 : 0; /* bytes of one */
    size_t integers = s->hidden_size + s->key_size + s->value_size + heads + 4 * ATTN_ALIGN;
    return (attn_pass_row_floats(batched, s) + s->rope.dim / 2 + 4) * sizeof(float) +
           planes * integers + 3 * sizeof(int64_t) + attn_mla_integer_bytes(s) +
           s->num_heads * (sizeof(struct attn_row_stats) + sizeof(uint32_t) +
                           ATTN_MAX_TARGET_GROUPS * sizeof(float)) +
           sizeof(uint32_t);
}

/* Bytes of the tiles of one head's keys and values, of the rows of weights that threads keep, and
 * of the sums of splits. */
static size_t solve_bytes(size_t tile_floats, size_t threads)
{
    size_t pack = attn_max(attn_mul(tile_floats, sizeof(float)), ATTN_TILES_BYTES);
    size_t kept = ATTN_WEIGHT_ROWS_FLOATS + ATTN_WEIGHT_ROWS_FLOATS / sizeof(float) + ATTN_ALIGN;
    size_t floats = attn_add(attn_mul(threads, kept), ATTN_SPLITS_FLOATS);
    return attn_add(pack, attn_mul(floats, sizeof(float)));
}

/* Rows of a sequence or step on which the bytes of its bookkeeping are spread, one head each.  A
 * batch of shorter sequences has more of them, at the cost of rows. */
#define ROWS_OF_SEQUENCE 8

static size_t list_bytes(size_t rows, size_t heads, size_t products)
{
    size_t sequences = attn_min(rows / ROWS_OF_SEQUENCE + 1, ATTN_MAX_BATCH);
    return attn_mul(sequences, ATTN_SEQUENCE_BYTES + products * ATTN_PRODUCT_BYTES +
                                   heads * ATTN_HEAD_RANGE_BYTES);
}

static size_t layer_bytes(const struct attn_layer_spec *s, const struct attn_call_size *size,
                          size_t threads)
{
    size_t batched, tokens = attn_add(attn_min(size->rows, size->tokens), ATTN_TILE);
    size_t tiles = attn_mul(tokens, s->head_dim + s->value_head_dim);
    size_t bytes =
        attn_add(attn_mul(size->rows, row_bytes(&batched, s)), solve_bytes(tiles, threads));
    bytes = attn_add(bytes, list_bytes(size->rows, s->num_kv_heads, attn_call_products(s)));
    if (s->differential.lambda_init != 0) /* two problems each */
        bytes = attn_add(bytes, list_bytes(size->rows, s->num_kv_heads, attn_call_products(s)));
    bytes = attn_add(bytes, attn_mul(size->batched_rows, batched * sizeof(float)));
    /* layers/ablation.c: rows of one head, as integers too, and what they add to the output, which
     * is projected once more where it is not there. */
    const size_t ablated = s->hidden_size + s->value_head_dim + 2 * ATTN_ALIGN;
    const size_t integers = 2 * (s->num_heads * s->value_head_dim + 2 * ATTN_ALIGN);
    bytes = attn_add(bytes, ATTN_ABLATED_ROWS * (ablated * sizeof(float) + integers));
    bytes = attn_add(bytes, attn_mla_call_bytes(s));
    bytes = attn_add(bytes, attn_index_bytes(s, size->rows, size->tokens));
    return attn_add(bytes, attn_mul(size->cached, sizeof(int64_t)));
}

size_t attn_call_bytes(const struct attn_model *model, const struct attn_call_size *size,
                       unsigned threads)
{
    size_t most = 0;
    if (model == NULL)
        most =
            attn_add(solve_bytes(attn_mul(2, size->rows), threads), list_bytes(size->rows, 1, 3));
    for (size_t i = 0; model != NULL && i < attn_model_num_resident(model); i++)
        most = attn_max(most, layer_bytes(attn_model_resident_spec(model, i), size, threads));
    most = attn_add(most, SLACK);
    /* A workspace may keep this share of its memory in chunks that this call cannot use. */
    return attn_add(most, most / (ATTN_WORKSPACE_SHARE - 1));
}

size_t attn_engine_bytes(const struct attn_engine_options *options)
{
    const size_t scratch = ATTN_YIELD_LEVELS * ATTN_SCRATCH_FLOATS * sizeof(float);
    if (!attn_engine_uses_openblas(options))
        return attn_mul(options->threads, scratch);
    return ATTN_GEMM_BYTES + attn_mul(options->threads, scratch + ATTN_GEMM_THREAD_BYTES);
}

size_t attn_engine_reserved(const struct attn_engine_options *options)
{
    if (!attn_engine_uses_openblas(options))
        return 0;
    return ATTN_GEMM_RESERVED + attn_mul(options->threads, ATTN_GEMM_THREAD_RESERVED);
}

size_t attn_cache_layer_bytes(const struct attn_cache *cache, size_t layer, size_t tokens)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    const size_t first = attn_cache_first(cache, layer) / ATTN_TILE;
    const size_t blocks = attn_ceil_div(tokens, ATTN_TILE);
    const bool holds = spec != NULL && spec->shares_layer == SIZE_MAX;
    return holds && blocks > first ? (blocks - first) * attn_block_bytes(spec) : 0;
}
