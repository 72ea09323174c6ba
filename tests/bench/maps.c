/* maps.c: what maps cost: one call of 12 heads of 64 over 4,096 tokens, causal, with one kind of
 * output at a time.  Kinds take turns, so that a change of the machine's speed affects all. */
#include "maps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basics/mem.h"
#include "machine.h"
#include "runs.h"
#include "samples.h"

#define HEADS ((size_t)12)
#define TOKENS ((size_t)4096)
#define WIDTH ((size_t)64)
#define POOL ((size_t)96)
#define ROUNDS 7

#define MAP (HEADS * TOKENS * TOKENS)

/* Memory that all kinds share. */
struct buffers {
    float *inputs;  /* [3][HEADS][TOKENS][WIDTH] */
    float *weights; /* [MAP] */
    double *sums;
    uint32_t *index;
    float *top, *lse;
    struct attn_head_stats stats[HEADS];
};

enum kind { NO_MAP, STATS, TOP, POOL_MAX, POOL_MEAN, WHOLE, KINDS };

static const struct {
    const char *name;
    size_t bytes; /* of the reply's numbers, in binary form */
} kinds[KINDS] = {
    [NO_MAP] = {"no map (lse)", HEADS *TOKENS * sizeof(float)},
    [STATS] = {"head_stats", 0},
    [TOP] = {"top_k 1", HEADS *TOKENS * 2 * sizeof(float)},
    [POOL_MAX] = {"pool [96,96] max", HEADS *POOL *POOL * sizeof(float)},
    [POOL_MEAN] = {"pool [96,96] mean", HEADS *POOL *POOL * sizeof(float)},
    [WHOLE] = {"whole map", MAP * sizeof(float)},
};

static const struct attn_map_sizes sizes = {1, HEADS, HEADS, TOKENS, TOKENS, TOKENS};

static struct attn_outputs outputs_of(enum kind kind, const struct buffers *b)
{
    struct attn_outputs out = {.local_radius = 4};
    out.lse = kind == NO_MAP ? b->lse : NULL;
    out.head_stats = kind == STATS ? (struct attn_head_stats *)b->stats : NULL;
    if (kind == TOP) {
        out.top_k = 1;
        out.top_index = b->index;
        out.top_weight = b->top;
    }
    if (kind >= POOL_MAX)
        out.attention_weights = b->weights;
    if (kind == POOL_MAX || kind == POOL_MEAN)
        out.pool = (struct attn_map_pooling){
            POOL, POOL, kind == POOL_MAX ? ATTN_POOL_MAX : ATTN_POOL_MEAN, b->sums};
    return out;
}

static void alloc_buffers(struct buffers *b)
{
    const size_t rows = 3 * HEADS * TOKENS * WIDTH;
    struct attn_outputs pooled = outputs_of(POOL_MAX, b);
    b->inputs = bench_need(attn_calloc(rows, sizeof *b->inputs));
    b->weights = bench_need(attn_calloc(MAP, sizeof *b->weights));
    pooled.attention_weights = b->weights;
    b->sums = bench_need(attn_calloc(attn_pool_sums(&pooled, &sizes), sizeof *b->sums));
    b->index = bench_need(attn_calloc(HEADS * TOKENS, sizeof *b->index));
    b->top = bench_need(attn_calloc(HEADS * TOKENS, sizeof *b->top));
    b->lse = bench_need(attn_calloc(HEADS * TOKENS, sizeof *b->lse));
    for (size_t i = 0; i < rows; i++)
        b->inputs[i] = (float)((i * 2654435761u >> 7) % 2001) / 1000 - 1;
    memset(b->weights, 1, MAP * sizeof *b->weights); /* the pages are there before time is taken */
}

static void free_buffers(struct buffers *b)
{
    void *all[] = {b->inputs, b->weights, b->sums, b->index, b->top, b->lse};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        attn_free(all[i]);
}

/* Seconds of one call. */
static double run(struct attn_engine *engine, const struct buffers *b, enum kind kind)
{
    const size_t rows = HEADS * TOKENS * WIDTH;
    struct attn_error error = {0};
    const struct attn_core_args args = {.batch = 1,
                                        .queries = TOKENS,
                                        .keys = TOKENS,
                                        .num_heads = HEADS,
                                        .num_kv_heads = HEADS,
                                        .head_dim = WIDTH,
                                        .value_head_dim = WIDTH,
                                        .query = b->inputs,
                                        .key = b->inputs + rows,
                                        .value = b->inputs + 2 * rows,
                                        .modifiers = {.is_causal = ATTN_CAUSAL_YES},
                                        .outputs = outputs_of(kind, b)};
    double start = bench_now();
    if (attn_core(engine, &args, &error) != ATTN_OK)
        bench_die("%s", error.message);
    return bench_now() - start;
}

/* The largest cells of the last head's pooled map are those of the whole one: a head's last rows
 * and columns are one block of each. */
static bool is_right(struct attn_engine *engine, const struct buffers *b)
{
    const size_t first = (POOL - 1) * TOKENS / POOL;
    float largest = 0;
    run(engine, b, POOL_MAX);
    float pooled = b->weights[HEADS * POOL * POOL - 1];
    run(engine, b, WHOLE);
    for (size_t t = first; t < TOKENS; t++)
        for (size_t s = first; s < TOKENS; s++)
            largest = fmaxf(largest, b->weights[((HEADS - 1) * TOKENS + t) * TOKENS + s]);
    return pooled == largest;
}

bool bench_maps(struct attn_engine *engine)
{
    static double samples[KINDS][ROUNDS];
    struct buffers b = {0};
    double ms[KINDS];
    alloc_buffers(&b);
    bool right = is_right(engine, &b);
    for (size_t round = 0; right && round < ROUNDS; round++)
        for (size_t kind = 0; kind < KINDS; kind++)
            samples[kind][round] = run(engine, &b, kind) * 1e3;
    for (size_t kind = 0; right && kind < KINDS; kind++)
        ms[kind] = bench_median(samples[kind], ROUNDS);
    if (right)
        printf("%-18s %10s %12s %12s %12s\n", "output", "ms", "/ stats", "bytes", "as UINT8");
    for (size_t kind = 0; right && kind < KINDS; kind++)
        printf("%-18s %10.1f %12.2f %12zu %12zu\n", kinds[kind].name, ms[kind],
               ms[kind] / ms[STATS], kinds[kind].bytes,
               kind >= POOL_MAX ? kinds[kind].bytes / sizeof(float) : kinds[kind].bytes);
    free_buffers(&b);
    return right;
}
