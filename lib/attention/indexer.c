/* indexer.c: the keys that queries of sparse latent attention take part with (struct
 * attn_indexer_spec): the scores of all visible keys, and the best of them.
 *
 * Scores are kept as integers in the order of the floats, for some queries at a time.  A task
 * scores some tiles of keys for one query; another one finds the least chosen score of a query by
 * its bytes, from the highest to the lowest (a radix selection), and marks the keys.  Of equal
 * scores the earlier key counts more; a score that is no number comes last.  A row's choice depends
 * on the row, its keys and the level alone. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/forward.h"
#include "basics/half_float.h"
#include "basics/mem.h"
#include "engine/rope.h"

#define SCORES ((size_t)1 << 20) /* of the queries scored at a time, if more than one */
#define TASK_TILES 16            /* of keys */
#define WORD_KEYS 64             /* of a word of chosen keys: those of a tile */
#define NORM_EPS 1e-6

_Static_assert(WORD_KEYS == ATTN_TILE, "a tile has a word");
_Static_assert(2 * ATTN_TILE * ATTN_MAX_HEAD_DIM + ATTN_TILE <= ATTN_UNITS_SCRATCH &&
                   ATTN_MAX_HEADS <= ATTN_MAX_HEAD_DIM,
               "scratch has room for a tile of keys and for its products with all heads");

/* ---- Rows ---- */

static void rotate(float *x, size_t heads, const struct attn_layer_spec *spec, const float *cos_sin)
{
    struct attn_rope_spec rope = spec->rope;
    rope.interleaved = spec->mla.index.interleaved;
    for (size_t h = 0; h < heads; h++)
        attn_rope_rotate(x + h * spec->mla.index.head_dim, &rope, cos_sin);
}

bool attn_index_norm_rope(float *q, const float *w, float *k, const struct attn_layer *layer,
                          const struct attn_kernels *kernels, const float *inv_freq,
                          int64_t position)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_indexer_spec *index = &spec->mla.index;
    const struct attn_norm_spec norm = {.type = ATTN_NORM_LAYER, .eps = NORM_EPS};
    const size_t q_heads = q != NULL ? index->num_heads : 0, k_heads = k != NULL ? 1 : 0;
    float cos_sin[ATTN_MAX_HEAD_DIM];
    if (k != NULL)
        attn_norm_vector(k, &norm, layer->index_norm, layer->index_norm_bias, index->head_dim);
    if (inv_freq != NULL) {
        attn_rope_cos_sin(cos_sin, &spec->rope, inv_freq, position, inv_freq != layer->inv_freq);
        rotate(q, q_heads, spec, cos_sin);
        rotate(k, k_heads, spec, cos_sin);
    }
    return kernels->all_within(q, q_heads * index->head_dim, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(w, q_heads, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(k, k_heads * index->head_dim, ATTN_MAX_MAGNITUDE);
}

/* ---- Scores ---- */

/* Some queries of a problem, whose keys are being chosen. */
struct choice {
    const struct attn_pass *pass;
    const struct attn_problem *problem;
    size_t first, count;  /* queries */
    size_t words, ranges; /* of a query: words of chosen keys, tasks that score */
    uint32_t *scores;     /* [count][words * WORD_KEYS] */
    uint64_t *chosen;     /* [T][words] */
};

#define UNSEEN 0u /* in place of the score of a key that the query does not see */
#define NO_NUMBER 1u

/* Integers in the order of floats, above the two. */
static uint32_t order_of(float score)
{
    const uint32_t bits = attn_float_to_bits(score);
    if (isnan(score))
        return NO_NUMBER;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/* The indexer's keys of tile j, [head_dim][ATTN_TILE], in `floats` or in the cache. */
static const float *tile_keys(const struct choice *c, size_t j, size_t count, float *floats)
{
    const struct attn_problem *p = c->problem;
    const struct attn_kernels *kernels = &c->pass->engine->kernels;
    const size_t d = c->pass->layer->spec.mla.index.head_dim;
    const float *rows[ATTN_TILE];
    struct attn_tile tile;
    if (p->cache.blocks != NULL) {
        attn_block_tile(&tile, p->cache.blocks[j - p->cache.first], p->cache.spec, 0);
        if (tile.dtype == ATTN_F32)
            return tile.t;
        kernels->widen_keys(floats, tile.t, tile.t_scale, tile.dtype, d);
        return floats;
    }
    for (size_t s = 0; s < count; s++)
        rows[s] = p->index_k + (j * ATTN_TILE + s) * c->pass->value_width;
    memset(floats, 0, d * ATTN_TILE * sizeof *floats);
    kernels->transpose(floats, ATTN_TILE, rows, count, d, 1);
    return floats;
}

/* Scores tile j for query t.  What a window has forgotten, no query sees. */
static void score_tile(const struct choice *c, size_t t, size_t j, uint32_t *scores, float *scratch)
{
    const struct attn_problem *p = c->problem;
    const struct attn_indexer_spec *index = &c->pass->layer->spec.mla.index;
    const size_t count = attn_min(p->keys - j * ATTN_TILE, ATTN_TILE), heads = index->num_heads;
    float *products = scratch + ATTN_MAX_HEAD_DIM * ATTN_TILE, seen[ATTN_TILE] = {0};
    const float *w = p->index_w + t * heads;
    if (j < p->cache.first) {
        memset(scores, 0, ATTN_TILE * sizeof *scores); /* UNSEEN */
        return;
    }
    attn_mask_apply(seen, &p->mask, 0, t, j * ATTN_TILE, count);
    c->pass->engine->kernels.matmul[ATTN_F32](
        &(struct attn_matmul){.c = products,
                              .ldc = ATTN_TILE,
                              .a = p->index_q + t * heads * index->head_dim,
                              .lda = index->head_dim,
                              .b = tile_keys(c, j, count, scratch),
                              .ldb = ATTN_TILE,
                              .rows = heads,
                              .k = index->head_dim,
                              .n = count});
    float sums[ATTN_TILE] = {0};
    for (size_t h = 0; h < heads; h++)
        for (size_t s = 0; s < count; s++)
            sums[s] += w[h] * fmaxf(products[h * ATTN_TILE + s], 0);
    for (size_t s = 0; s < ATTN_TILE; s++)
        scores[s] = s < count && seen[s] > -FLT_MAX ? order_of(sums[s]) : UNSEEN;
}

static void score_task(void *argument, size_t i, unsigned thread)
{
    const struct choice *c = argument;
    const size_t row = i / c->ranges, first = i % c->ranges * TASK_TILES;
    const size_t end = attn_min(first + TASK_TILES, c->words);
    float *scratch = c->pass->engine->scratch + thread * ATTN_SCRATCH_FLOATS;
    for (size_t j = first; j < end; j++) {
        attn_pool_pause(c->pass->engine->pool, thread);
        score_tile(c, c->first + row, j, c->scores + (row * c->words + j) * WORD_KEYS, scratch);
    }
}

/* ---- The best ---- */

/* The least score [n] that is among the k best; *equal becomes how many of those that have it are.
 * At least k are seen. */
static uint32_t least_of_best(size_t *equal, const uint32_t *scores, size_t n, size_t k)
{
    uint32_t prefix = 0, known = 0; /* the bytes found, and where they are */
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t having[256] = {0}, byte = 255;
        for (size_t s = 0; s < n; s++)
            if ((scores[s] & known) == prefix)
                having[scores[s] >> shift & 255]++;
        while (having[byte] < k)
            k -= having[byte--];
        prefix |= (uint32_t)byte << shift;
        known |= (uint32_t)255 << shift;
    }
    *equal = k;
    return prefix;
}

static void choose_task(void *argument, size_t i, unsigned thread)
{
    const struct choice *c = argument;
    const size_t topk = c->pass->layer->spec.mla.index.topk, n = c->words * WORD_KEYS;
    const uint32_t *scores = c->scores + i * n;
    uint64_t *chosen = c->chosen + (c->first + i) * c->words;
    size_t seen = 0, equal = 0;
    uint32_t least = UNSEEN;
    (void)thread;
    for (size_t s = 0; s < n; s++)
        seen += scores[s] != UNSEEN;
    if (seen > topk)
        least = least_of_best(&equal, scores, n, topk);
    memset(chosen, 0, c->words * sizeof *chosen);
    for (size_t s = 0; s < n; s++) {
        const bool takes = scores[s] > least || (scores[s] == least && equal > 0);
        equal -= takes && scores[s] == least;
        chosen[s / WORD_KEYS] |= (uint64_t)takes << s % WORD_KEYS;
    }
}

/* ---- Problems ---- */

static size_t queries_at_a_time(size_t keys, size_t queries)
{
    return attn_min(attn_max(SCORES / attn_max(keys, 1), 1), queries);
}

/* Chooses the keys of a problem of which a query may see more than topk. */
static enum attn_status choose_keys(const struct attn_pass *pass, struct attn_problem *p)
{
    struct attn_engine *engine = pass->engine;
    const size_t words = attn_ceil_div(p->keys, WORD_KEYS), keys = words * WORD_KEYS;
    const size_t step = queries_at_a_time(keys, p->queries);
    struct choice c = {
        .pass = pass, .problem = p, .words = words, .ranges = attn_ceil_div(words, TASK_TILES)};
    c.chosen =
        attn_workspace_alloc(&engine->workspace, attn_mul(p->queries, words), sizeof *c.chosen);
    const struct attn_workspace_mark before = attn_workspace_get_mark(&engine->workspace);
    c.scores = attn_workspace_alloc(&engine->workspace, attn_mul(step, keys), sizeof *c.scores);
    if (c.chosen == NULL || c.scores == NULL)
        return ATTN_NO_MEMORY;
    for (; c.first < p->queries; c.first += c.count) {
        c.count = attn_min(step, p->queries - c.first);
        attn_pool_run(engine->pool, score_task, &c, c.count * c.ranges);
        attn_pool_run(engine->pool, choose_task, &c, c.count);
    }
    attn_workspace_rewind(&engine->workspace, before);
    p->mask.chosen = c.chosen;
    return ATTN_OK;
}

enum attn_status attn_index_choose(const struct attn_pass *pass, size_t count)
{
    for (struct attn_problem *p = pass->problems; p < pass->problems + count; p++)
        if (p->keys > pass->layer->spec.mla.index.topk && choose_keys(pass, p) != ATTN_OK)
            return ATTN_NO_MEMORY;
    return ATTN_OK;
}

size_t attn_index_bytes(const struct attn_layer_spec *spec, size_t rows, size_t keys)
{
    const size_t words = attn_ceil_div(keys, WORD_KEYS) + 1;
    /* Of fewer keys more queries are scored at a time: no fewer scores than any of them has. */
    const size_t most = attn_max(SCORES, words * WORD_KEYS);
    const size_t scores = attn_min(attn_mul(rows, words * WORD_KEYS), most);
    if (spec->mla.index.num_heads == 0)
        return 0;
    return attn_add(attn_mul(rows, words * sizeof(uint64_t) + ATTN_ALIGN),
                    attn_mul(scores, sizeof(uint32_t)));
}
