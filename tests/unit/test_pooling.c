/* test_pooling.c: pooled maps against the plain definition over the whole maps of the same call,
 * for random layers and calls, whole and over caches; the same bits on any number of threads.
 *
 * Whole maps have tests of their own (test_property.c).  The largest of a block must be exactly one
 * of its cells; a mean is compared with a sum in double. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "engine/rope.h"
#include "opened.h"
#include "property_draw.h"
#include "suites.h"

#define CASES 400
#define ENGINES 3 /* of 1, 2 and 3 threads */

static struct attn_engine *engines[ENGINES];
static struct attn_cache_pool *pool;
static struct attn_error error;

static void setup(void)
{
    for (unsigned i = 0; i < ENGINES; i++) {
        const struct attn_engine_options options = {.threads = i + 1, .gemm = ATTN_GEMM_PACKED};
        ck_assert_int_eq(attn_engine_open(&engines[i], &options, &error), ATTN_OK);
    }
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
}

static void teardown(void)
{
    for (unsigned i = 0; i < ENGINES; i++)
        attn_engine_close(engines[i]);
    free_unused_pool(pool);
}

/* ---- Maps ---- */

enum { WEIGHTS, AVERAGE, SCORES, KINDS };
static const char *const names[KINDS] = {"weights", "average", "scores"};

/* A call's maps: counts of whole ones, and the buffers of a call. */
struct maps {
    size_t count[KINDS], rows, columns[KINDS]; /* B H' or B; T'; W or S */
    float *of[KINDS];
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static struct maps maps_of(const struct attn_outputs *asked, const struct attn_map_sizes *n)
{
    const struct attn_selection *selected = &asked->selection;
    const size_t heads = selected->heads ? selected->num_heads : n->num_heads;
    return (struct maps){.count = {n->batch * heads, n->batch, n->batch * heads},
                         .rows = selected->rows ? selected->num_rows : n->queries,
                         .columns = {n->columns, n->columns, n->keys}};
}

#define CANARY 1234.5
#define SPARE 4 /* doubles after the sums that must stay as they are */

/* Gives a call buffers for all maps, filled with NaN, and memory for pooling. */
static void alloc_buffers(struct maps *maps, struct attn_outputs *out, struct draw *d,
                          const struct attn_map_sizes *n)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t size =
            maps->count[i] * (out->pool.rows ? smaller(out->pool.rows, maps->rows) : maps->rows);
        size *= out->pool.rows ? smaller(out->pool.columns, maps->columns[i]) : maps->columns[i];
        maps->of[i] = draw_keep(d, size, sizeof(float));
        for (size_t j = 0; j < size; j++)
            maps->of[i][j] = NAN;
    }
    out->attention_weights = maps->of[WEIGHTS];
    out->average_weights = maps->of[AVERAGE];
    out->attention_scores = maps->of[SCORES];
    size_t sums = attn_pool_sums(out, n);
    ck_assert(out->pool.rows > 0 ? sums > 0 : sums == 0);
    if (sums == 0)
        return;
    out->pool.sums = draw_keep(d, sums + SPARE, sizeof *out->pool.sums);
    for (size_t j = 0; j < sums + SPARE; j++)
        out->pool.sums[j] = j < sums ? NAN : CANARY;
}

static void expect_canaries(const struct attn_outputs *out, const struct attn_map_sizes *n)
{
    size_t sums = attn_pool_sums(out, n);
    for (size_t j = sums; j < sums + SPARE; j++)
        ck_assert_msg(out->pool.sums[j] == CANARY, "the sums are longer than attn_pool_sums says");
}

/* ---- The definition ---- */

/* Compares a cell with the block [r0, r1) x [c0, c1) of a map whose rows have `width` cells. */
static void expect_cell(float got, const float *map, size_t width, const size_t block[4],
                        enum attn_pool_type type, const char *what)
{
    double sum = 0, absolute = 0;
    float largest = -INFINITY;
    size_t finite = 0;
    for (size_t r = block[0]; r < block[1]; r++)
        for (size_t c = block[2]; c < block[3]; c++) {
            float x = map[r * width + c];
            largest = x > largest ? x : largest;
            if (x == -INFINITY)
                continue;
            finite++;
            sum += (double)x;
            absolute += fabs((double)x);
        }
    if (type == ATTN_POOL_MAX || finite == 0) {
        ck_assert_msg(got == largest, "%s is %.9g, expected %.9g", what, (double)got,
                      (double)largest);
        return;
    }
    double mean = sum / (double)finite, allowed = 1e-7 * fabs(mean) + 1e-12 * absolute;
    ck_assert_msg(fabs((double)got - mean) <= allowed + 1e-45, "%s is %.9g, expected %.9g", what,
                  (double)got, mean);
}

/* Compares a pooled map [R'][C'] with the whole one [rows][columns]. */
static void expect_pooled(const float *got, const float *map, size_t rows, size_t columns,
                          const struct attn_map_pooling *p, const char *name)
{
    size_t high = smaller(p->rows, rows), wide = smaller(p->columns, columns);
    for (size_t r = 0; r < high; r++)
        for (size_t c = 0; c < wide; c++) {
            const size_t block[] = {r * rows / high, ((r + 1) * rows + high - 1) / high,
                                    c * columns / wide, ((c + 1) * columns + wide - 1) / wide};
            char what[160];
            snprintf(what, sizeof what, "%s, cell (%zu, %zu) of %zu x %zu from %zu x %zu", name, r,
                     c, high, wide, rows, columns);
            expect_cell(got[r * wide + c], map, columns, block, p->type, what);
        }
}

static void expect_all_pooled(const struct maps *pooled, const struct maps *whole,
                              const struct attn_map_pooling *p)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t size = smaller(p->rows, whole->rows) * smaller(p->columns, whole->columns[i]);
        for (size_t m = 0; m < whole->count[i]; m++)
            expect_pooled(pooled->of[i] + m * size,
                          whole->of[i] + m * whole->rows * whole->columns[i], whole->rows,
                          whole->columns[i], p, names[i]);
    }
}

static void expect_same(const struct maps *a, const struct maps *b, size_t rows, size_t columns)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t size = smaller(rows, a->rows) * smaller(columns, a->columns[i]) * a->count[i];
        ck_assert_msg(memcmp(a->of[i], b->of[i], size * sizeof(float)) == 0,
                      "%s: other bits on other threads", names[i]);
    }
}

/* ---- Random calls ---- */

static int by_size(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Draws what a call asks for: a selection, in the half of the cases ascending, and a pool, which
 * may be larger than the map. */
static void draw_outputs(struct attn_outputs *out, struct draw *d)
{
    struct attn_selection *selected = &d->selection;
    if (selected->rows != NULL && rng_below(&d->rng, 2) == 0)
        qsort((void *)selected->rows, selected->num_rows, sizeof *selected->rows, by_size);
    *out = (struct attn_outputs){
        .selection = *selected,
        .stage = (enum attn_stage)rng_below(&d->rng, 3),
        .pool = {.rows = 1 + rng_below(&d->rng, rng_below(&d->rng, 2) ? 8 : 160),
                 .columns = 1 + rng_below(&d->rng, rng_below(&d->rng, 2) ? 8 : 160),
                 .type = (enum attn_pool_type)rng_below(&d->rng, 2)},
    };
}

/* What computes a call: attn_attend or a step. */
struct call {
    const struct attn_model *model;
    size_t layer;
    struct attn_attend_args args;
    struct attn_step *step; /* NULL: attn_attend */
};

static void run(struct call *call, struct attn_engine *engine, const struct attn_outputs *out)
{
    if (call->step == NULL) {
        call->args.outputs = *out;
        ck_assert_msg(attn_attend(engine, call->model, call->layer, &call->args, &error) == ATTN_OK,
                      "%s", error.message);
        return;
    }
    call->step->outputs = *out;
    ck_assert_msg(attn_decode(engine, call->model, call->layer, &call->step, 1) == ATTN_OK &&
                      call->step->error.status == ATTN_OK,
                  "%s", call->step->error.message);
}

/* Computes a call whole, and pooled on each engine, and compares. */
static void check_call(struct call *call, struct draw *d, const struct attn_map_sizes *n)
{
    struct attn_outputs pooled, whole;
    draw_outputs(&pooled, d);
    whole = pooled;
    whole.pool = (struct attn_map_pooling){0};
    struct maps full = maps_of(&whole, n), first = full, other = full;
    alloc_buffers(&full, &whole, d, n);
    run(call, engines[0], &whole);
    for (size_t i = 0; i < ENGINES; i++) {
        struct maps *got = i == 0 ? &first : &other;
        alloc_buffers(got, &pooled, d, n);
        run(call, engines[i], &pooled);
        expect_canaries(&pooled, n);
        if (i == 0)
            expect_all_pooled(&first, &full, &pooled.pool);
        else
            expect_same(&other, &first, pooled.pool.rows, pooled.pool.columns);
    }
}

static struct attn_map_sizes sizes_of(const struct attn_layer_spec *spec, size_t batch,
                                      size_t queries, size_t keys)
{
    return (struct attn_map_sizes){.batch = batch,
                                   .num_heads = spec->num_heads,
                                   .num_kv_heads = spec->num_kv_heads,
                                   .queries = queries,
                                   .keys = keys,
                                   .columns = attn_weight_columns(spec, keys)};
}

/* A step of some rows over a cache that holds the others. */
static void check_step(struct call *call, struct draw *d, const struct attn_layer_spec *spec)
{
    const size_t total = d->call.queries, rows = 1 + rng_below(&d->rng, (unsigned)total);
    const size_t trained = attn_rope_short_length(&spec->rope);
    struct attn_cache *cache = NULL;
    if (trained > 0 && total - rows > 0 && total - rows <= trained && total > trained)
        return; /* refused (test_rope.c) */
    struct attn_step step = {.rows = total - rows, .commit = true};
    const struct attn_map_sizes n = sizes_of(spec, 1, rows, total);
    ck_assert_int_eq(attn_cache_new(&cache, pool, call->model, total, &error), ATTN_OK);
    step.cache = cache;
    step.hidden_states = d->call.hidden_states;
    call->step = &step;
    if (step.rows > 0)
        run(call, engines[0], &(struct attn_outputs){0});
    step.position = step.rows;
    step.rows = rows;
    step.hidden_states += step.position * spec->hidden_size;
    step.commit = false;
    d->selection.rows = NULL;
    check_call(call, d, &n);
    attn_cache_free(cache);
}

static void check_case(unsigned seed)
{
    struct draw d = {.seed = 0};
    struct attn_model *model;
    draw_layer(&d, seed);
    model = opened_random(d.json, NULL);
    const struct attn_layer_spec *spec = attn_model_layer(model, d.layer);
    draw_call(&d, spec);
    const size_t keys = d.call.key_hidden_states ? d.call.keys : d.call.queries;
    const struct attn_map_sizes n = sizes_of(spec, d.call.batch, d.call.queries, keys);
    struct call call = {.model = model, .layer = d.layer, .args = d.call};
    check_call(&call, &d, &n);
    if (!spec->is_cross && spec->key_size == spec->hidden_size &&
        spec->value_size == spec->hidden_size)
        check_step(&call, &d, spec);
    attn_model_close(model);
    draw_free(&d);
}

CASE(pooling, setup, teardown, 600)

TEST(pooling_random_calls_and_steps_equal_the_definition_on_any_number_of_threads)
{
    for (unsigned seed = 1; seed <= CASES; seed++)
        check_case(seed);
}

/* ---- Long maps ---- */

/* One call without weights of many units: 4 heads share a key head, so a unit has 16 tokens. */
struct long_call {
    struct attn_core_args args;
    struct attn_map_sizes sizes;
};

static struct long_call long_call(struct draw *d)
{
    const size_t heads = 4, queries = 700, keys = 333, width = 8;
    float *rows = draw_keep(d, (heads * queries + 2 * keys) * width, sizeof *rows);
    for (size_t i = 0; i < (heads * queries + 2 * keys) * width; i++)
        rows[i] = rng_float(&d->rng, 2);
    return (struct long_call){
        .args = {.batch = 1,
                 .queries = queries,
                 .keys = keys,
                 .num_heads = heads,
                 .num_kv_heads = 1,
                 .head_dim = width,
                 .value_head_dim = width,
                 .query = rows,
                 .key = rows + heads * queries * width,
                 .value = rows + (heads * queries + keys) * width,
                 .modifiers = {.is_causal = ATTN_CAUSAL_YES}},
        .sizes = {.batch = 1,
                  .num_heads = heads,
                  .num_kv_heads = 1,
                  .queries = queries,
                  .keys = keys,
                  .columns = keys},
    };
}

TEST_EACH(pooling_of_many_units_equals_the_definition_on_any_number_of_threads, 12)
{
    static const struct attn_map_pooling pools[] = {
        {.rows = 1, .columns = 1},    {.rows = 1, .columns = 4096}, {.rows = 96, .columns = 96},
        {.rows = 4096, .columns = 1}, {.rows = 699, .columns = 5},  {.rows = 45, .columns = 333},
    };
    struct draw d = {.rng = rng_seeded((unsigned)_i + 1)};
    struct long_call call = long_call(&d);
    struct attn_outputs *out = &call.args.outputs;
    out->stage = ATTN_STAGE_MASKED;
    struct maps full = maps_of(out, &call.sizes), first = full, other = full;
    alloc_buffers(&full, out, &d, &call.sizes);
    ck_assert_int_eq(attn_core(engines[0], &call.args, &error), ATTN_OK);
    out->pool = pools[_i / 2];
    out->pool.type = _i % 2 ? ATTN_POOL_MEAN : ATTN_POOL_MAX;
    for (size_t i = 0; i < 2 * ENGINES; i++) {
        alloc_buffers(i == 0 ? &first : &other, out, &d, &call.sizes);
        ck_assert_int_eq(attn_core(engines[i % ENGINES], &call.args, &error), ATTN_OK);
        expect_canaries(out, &call.sizes);
        if (i == 0)
            expect_all_pooled(&first, &full, &out->pool);
        else
            expect_same(&other, &first, out->pool.rows, out->pool.columns);
    }
    draw_free(&d);
}

/* A call that gives way at every pause, until it is stopped. */
struct visits {
    size_t count, stop_at;
};

static bool wanted(void *context)
{
    (void)context;
    return true;
}

static bool visit(void *context)
{
    struct visits *visits = context;
    return ++visits->count != visits->stop_at;
}

TEST(pooling_gives_way_with_the_same_bits_and_can_be_stopped)
{
    struct draw d = {.rng = rng_seeded(9)};
    struct long_call call = long_call(&d);
    struct attn_outputs *out = &call.args.outputs;
    out->pool = (struct attn_map_pooling){.rows = 96, .columns = 50, .type = ATTN_POOL_MEAN};
    struct maps alone = maps_of(out, &call.sizes), other = alone;
    struct visits visits = {0};
    const struct attn_yield yield = {.wanted = wanted, .run = visit, .context = &visits};
    alloc_buffers(&alone, out, &d, &call.sizes);
    ck_assert_int_eq(attn_core(engines[1], &call.args, &error), ATTN_OK);
    call.args.yield = &yield;
    alloc_buffers(&other, out, &d, &call.sizes);
    ck_assert_int_eq(attn_core(engines[1], &call.args, &error), ATTN_OK);
    expect_same(&other, &alone, 96, 50);
    for (visits.stop_at = 1; visits.stop_at < 1000; visits.stop_at *= 4) {
        visits.count = 0;
        ck_assert_int_eq(attn_core(engines[1], &call.args, &error), ATTN_CANCELLED);
    }
    draw_free(&d);
}

/* Sums that are being cleared, from the first to the last: of 7 before the call. */
struct clearing {
    const double *sums;
    size_t count, cleared, most; /* most: cleared between two pauses */
};

static bool look(void *context)
{
    struct clearing *c = context;
    const size_t before = c->cleared;
    while (c->cleared < c->count && c->sums[c->cleared] != 7)
        c->cleared++;
    c->most = c->cleared - before > c->most ? c->cleared - before : c->most;
    return false;
}

/* The memory may be new, and then takes 0.5 ns a byte to touch: 2^16 doubles are 0.25 ms. */
TEST(pooling_gives_way_while_it_clears_its_sums)
{
    const struct attn_engine_options options = {.threads = 1};
    struct attn_engine *engine;
    struct draw d = {.rng = rng_seeded(10)};
    struct long_call call = long_call(&d);
    struct attn_outputs *out = &call.args.outputs;
    out->pool = (struct attn_map_pooling){.rows = 4096, .columns = 4096};
    struct maps maps = maps_of(out, &call.sizes);
    alloc_buffers(&maps, out, &d, &call.sizes);
    struct clearing clearing = {out->pool.sums, attn_pool_sums(out, &call.sizes), 0, 0};
    const struct attn_yield yield = {.wanted = look, .run = look, .context = &clearing};
    for (size_t i = 0; i < clearing.count; i++)
        out->pool.sums[i] = 7;
    ck_assert_uint_ge(clearing.count, 1 << 17);
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    call.args.yield = &yield;
    ck_assert_int_eq(attn_core(engine, &call.args, &error), ATTN_OK);
    ck_assert_uint_eq(clearing.cleared, clearing.count);
    ck_assert_uint_gt(clearing.most, 0);
    ck_assert_uint_le(clearing.most, 1 << 16);
    attn_engine_close(engine);
    draw_free(&d);
}

static bool count_ask(void *context)
{
    ++*(size_t *)context;
    return false;
}

/* The means of a unit, 2^20 cells of them, wait for the last head. */
TEST(pooling_gives_way_at_every_row_of_a_mean)
{
    struct draw d = {.rng = rng_seeded(11)};
    struct long_call call = long_call(&d);
    size_t asks[2] = {0};
    for (int mean = 0; mean < 2; mean++) {
        struct attn_outputs *out = &call.args.outputs;
        const struct attn_yield yield = {.wanted = count_ask, .context = &asks[mean]};
        struct maps maps = maps_of(out, &call.sizes);
        out->pool = (struct attn_map_pooling){.rows = 2, .columns = 2};
        alloc_buffers(&maps, out, &d, &call.sizes);
        out->attention_scores = NULL;
        out->average_weights = mean ? out->average_weights : NULL;
        call.args.yield = &yield;
        const struct attn_engine_options options = {.threads = 1};
        struct attn_engine *engine;
        ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
        ck_assert_int_eq(attn_core(engine, &call.args, &error), ATTN_OK);
        attn_engine_close(engine);
    }
    ck_assert_uint_ge(asks[1], asks[0] + call.sizes.queries);
    draw_free(&d);
}

TEST(pooling_takes_memory_of_the_pooled_map_and_its_units)
{
    struct attn_outputs out = {.attention_weights = &(float){0}, .pool = {96, 96, 0, NULL}};
    const struct attn_map_sizes n = {1, 12, 12, 4096, 4096, 4096};
    ck_assert_uint_eq(attn_pool_sums(&out, &n), 12 * (64 + 96 - 1) * 96);
    out.pool.type = ATTN_POOL_MEAN;
    out.attention_scores = out.attention_weights; /* a mean of scores counts the finite ones */
    ck_assert_uint_eq(attn_pool_sums(&out, &n), 3 * 12 * (64 + 96 - 1) * 96);
    out.attention_scores = NULL;
    out.selection = (struct attn_selection){.rows = (size_t[]){4, 2, 9}, .num_rows = 3};
    ck_assert_uint_eq(attn_pool_sums(&out, &n), 12 * 3 * 96);
}

TEST(pooling_refuses_what_has_no_meaning)
{
    static const struct {
        size_t rows, columns;
        enum attn_pool_type type;
        bool sums, top;
        enum attn_status status;
        const char *param;
    } cases[] = {
        {0, 5, ATTN_POOL_MAX, true, false, ATTN_OUT_OF_RANGE, "pool"},
        {5, 0, ATTN_POOL_MAX, true, false, ATTN_OUT_OF_RANGE, "pool"},
        {4097, 5, ATTN_POOL_MAX, true, false, ATTN_OUT_OF_RANGE, "pool"},
        {5, 4097, ATTN_POOL_MAX, true, false, ATTN_OUT_OF_RANGE, "pool"},
        {5, 5, (enum attn_pool_type)2, true, false, ATTN_OUT_OF_RANGE, "pool_type"},
        {5, 5, ATTN_POOL_MAX, false, false, ATTN_INVALID, "pool"},
        {5, 5, ATTN_POOL_MAX, true, true, ATTN_INVALID, "pool"},
        {5, 5, ATTN_POOL_MEAN, true, false, ATTN_OK, NULL},
    };
    static double sums[4096];
    static float map[4096], weight[4096];
    static uint32_t index[4096];
    struct draw d = {.rng = rng_seeded(1)};
    struct attn_core_args args = long_call(&d).args;
    args.queries = args.keys = 2;
    for (size_t i = 0; i < COUNT(cases); i++) {
        args.outputs = (struct attn_outputs){
            .attention_weights = map,
            .pool = {cases[i].rows, cases[i].columns, cases[i].type, cases[i].sums ? sums : NULL},
            .top_k = 1,
            .top_index = cases[i].top ? index : NULL,
            .top_weight = cases[i].top ? weight : NULL,
        };
        ck_assert_int_eq(attn_core(engines[0], &args, &error), cases[i].status);
        ck_assert(cases[i].param == NULL || strcmp(error.param, cases[i].param) == 0);
    }
    draw_free(&d);
}

SUITE(pooling)
