/* test_yield.c: long calls that give way.  Calls that run during a pause, and the long call itself,
 * get the bits that they get alone; a call that is cancelled leaves nothing changed. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "machine/pool.h"
#include "opened.h"
#include "rng.h"
#include "suites.h"

#define WIDTH 64
#define TOKENS 400
#define CACHED 100

static const char config[] = "{\"hidden_size\":64,\"num_attention_heads\":8,"
                             "\"num_key_value_heads\":2,\"rope_theta\":10000,\"is_causal\":true}";

/* No workers, one worker, more workers than this machine may have CPUs. */
static const unsigned thread_counts[] = {1, 2, 5};
static const enum attn_cpu_level levels[] = {ATTN_CPU_PORTABLE, ATTN_CPU_AUTO};
#define NUM_CASES ((int)COUNT(thread_counts) * 2)

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_model *model;
static struct attn_error error;
static float rows[TOKENS * WIDTH], cached[CACHED * WIDTH], step_row[WIDTH];

static void fill(float *out, size_t n, struct rng *r)
{
    for (size_t i = 0; i < n; i++)
        out[i] = rng_float(r, 1);
}

static void open_case(int i)
{
    struct rng r = rng_seeded(11);
    const struct attn_engine_options options = {.threads = thread_counts[i / 2],
                                                .level = levels[i % 2]};
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    model = opened_random(config, NULL);
    fill(rows, TOKENS * WIDTH, &r);
    fill(cached, CACHED * WIDTH, &r);
    fill(step_row, WIDTH, &r);
}

static void close_case(void)
{
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_model_close(model);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}

/* ---- Calls ---- */

static enum attn_status try_step(struct attn_cache *cache, float *out, const float *x, size_t n,
                                 bool commit, const struct attn_yield *yield)
{
    struct attn_step step = {
        .cache = cache,
        .position = attn_cache_length(cache, 0),
        .rows = n,
        .hidden_states = x,
        .outputs = {.output = out},
        .commit = commit,
        .yield = yield,
    };
    struct attn_step *steps[] = {&step};
    enum attn_status status = attn_decode(engine, model, 0, steps, 1);
    ck_assert_int_eq(step.error.status, status);
    return status;
}

static struct attn_cache *new_cache(void)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, TOKENS + CACHED, &error), ATTN_OK);
    return cache;
}

static struct attn_cache *filled_cache(void)
{
    static float out[CACHED * WIDTH];
    struct attn_cache *cache = new_cache();
    ck_assert_int_eq(try_step(cache, out, cached, CACHED, true, NULL), ATTN_OK);
    return cache;
}

/* One attend over all rows with everything that is taken from its weights. */
struct whole {
    float output[TOKENS * WIDTH], average[TOKENS * TOKENS], top[8 * TOKENS * 3];
    uint32_t index[8 * TOKENS * 3];
    struct attn_head_stats stats[8];
    double ablation[8];
};

static enum attn_status try_attend(struct whole *out, const struct attn_yield *yield)
{
    const struct attn_attend_args args = {
        .batch = 1,
        .queries = TOKENS,
        .hidden_states = rows,
        .outputs = {.output = out->output,
                    .average_weights = out->average,
                    .top_k = 3,
                    .top_index = out->index,
                    .top_weight = out->top,
                    .head_stats = out->stats,
                    .ablation = out->ablation},
        .yield = yield,
    };
    return attn_attend(engine, model, 0, &args, &error);
}

/* ---- Calls during pauses ---- */

struct visitor {
    struct attn_yield yield;
    struct attn_cache *cache;
    const float *want; /* [WIDTH] output of the step, alone */
    size_t runs;
    size_t stop_at; /* the run that cancels the call; 0: none */
    size_t wrong;   /* steps with other bits */
    size_t nested;  /* calls of the yield during a run, whose step has none */
    bool running;
};

static bool wanted(void *context)
{
    struct visitor *visitor = context;
    visitor->nested += visitor->running;
    return true;
}

static bool visit(void *context)
{
    struct visitor *visitor = context;
    float out[WIDTH];
    visitor->running = true;
    enum attn_status status = try_step(visitor->cache, out, step_row, 1, false, NULL);
    visitor->running = false;
    visitor->wrong += status != ATTN_OK || memcmp(out, visitor->want, sizeof out) != 0;
    return ++visitor->runs != visitor->stop_at;
}

static struct visitor new_visitor(float want[WIDTH], struct attn_cache *cache)
{
    ck_assert_int_eq(try_step(cache, want, step_row, 1, false, NULL), ATTN_OK);
    return (struct visitor){
        .yield = {.wanted = wanted, .run = visit}, .cache = cache, .want = want};
}

static void expect_visits(const struct visitor *visitor)
{
    ck_assert_uint_gt(visitor->runs, 3);
    ck_assert_uint_eq(visitor->wrong, 0);
    ck_assert_uint_eq(visitor->nested, 0);
}

/* ---- Tests ---- */

CASE(yield, NULL, NULL, 120)

TEST_EACH(yield_attend_and_the_decodes_inside_it_get_the_bits_they_get_alone, NUM_CASES)
{
    static struct whole alone, beside;
    float want[WIDTH];
    open_case(_i);
    struct attn_cache *cache = filled_cache();
    struct visitor visitor = new_visitor(want, cache);
    visitor.yield.context = &visitor;
    memset(&alone, 0, sizeof alone);
    memset(&beside, 0, sizeof beside);
    ck_assert_int_eq(try_attend(&alone, NULL), ATTN_OK);
    ck_assert_int_eq(try_attend(&beside, &visitor.yield), ATTN_OK);
    expect_visits(&visitor);
    ck_assert_int_eq(memcmp(&alone, &beside, sizeof alone), 0);
    attn_cache_free(cache);
    close_case();
}

TEST_EACH(yield_prefill_and_the_decodes_inside_it_get_the_bits_they_get_alone, NUM_CASES)
{
    static float alone[TOKENS * WIDTH], beside[TOKENS * WIDTH];
    float want[WIDTH];
    open_case(_i);
    struct attn_cache *cache = filled_cache(), *first = new_cache(), *second = new_cache();
    struct visitor visitor = new_visitor(want, cache);
    visitor.yield.context = &visitor;
    ck_assert_int_eq(try_step(first, alone, rows, TOKENS, true, NULL), ATTN_OK);
    ck_assert_int_eq(try_step(second, beside, rows, TOKENS, true, &visitor.yield), ATTN_OK);
    expect_visits(&visitor);
    ck_assert_int_eq(memcmp(alone, beside, sizeof alone), 0);
    ck_assert_uint_eq(attn_cache_length(second, 0), TOKENS);
    attn_cache_free(cache);
    attn_cache_free(first);
    attn_cache_free(second);
    close_case();
}

TEST_EACH(yield_core_gives_way_and_keeps_its_bits, NUM_CASES)
{
    static float alone[TOKENS * WIDTH], beside[TOKENS * WIDTH];
    float want[WIDTH];
    open_case(_i);
    struct attn_cache *cache = filled_cache();
    struct visitor visitor = new_visitor(want, cache);
    visitor.yield.context = &visitor;
    struct attn_core_args args = {.batch = 1,
                                  .queries = TOKENS,
                                  .keys = TOKENS,
                                  .num_heads = 4,
                                  .num_kv_heads = 4,
                                  .head_dim = 16,
                                  .value_head_dim = 16,
                                  .query = rows,
                                  .key = rows,
                                  .value = rows,
                                  .outputs = {.output = alone}};
    ck_assert_int_eq(attn_core(engine, &args, &error), ATTN_OK);
    args.outputs.output = beside;
    args.yield = &visitor.yield;
    ck_assert_int_eq(attn_core(engine, &args, &error), ATTN_OK);
    expect_visits(&visitor);
    ck_assert_int_eq(memcmp(alone, beside, sizeof alone), 0);
    attn_cache_free(cache);
    close_case();
}

/* Cancelled at the first pause, the second, the fourth and so on, as long as there are so many. */
TEST_EACH(yield_attend_that_is_stopped_returns_cancelled_and_the_engine_goes_on, NUM_CASES)
{
    static struct whole alone, after;
    float want[WIDTH];
    open_case(_i);
    struct attn_cache *cache = filled_cache();
    size_t stopped = 0;
    memset(&alone, 0, sizeof alone);
    ck_assert_int_eq(try_attend(&alone, NULL), ATTN_OK);
    enum attn_status status = ATTN_CANCELLED;
    for (size_t stop_at = 1; status == ATTN_CANCELLED; stop_at *= 2) {
        struct visitor visitor = new_visitor(want, cache);
        visitor.yield.context = &visitor;
        visitor.stop_at = stop_at;
        status = try_attend(&after, &visitor.yield);
        ck_assert_int_eq(status, visitor.runs == stop_at ? ATTN_CANCELLED : ATTN_OK);
        ck_assert_uint_eq(visitor.wrong, 0);
        stopped += status == ATTN_CANCELLED;
    }
    ck_assert_uint_ge(stopped, 3);
    memset(&after, 0, sizeof after);
    ck_assert_int_eq(try_attend(&after, NULL), ATTN_OK);
    ck_assert_int_eq(memcmp(&alone, &after, sizeof alone), 0);
    attn_cache_free(cache);
    close_case();
}

TEST_EACH(yield_prefill_that_is_stopped_leaves_its_cache_as_it_was, NUM_CASES)
{
    static float alone[TOKENS * WIDTH], after[TOKENS * WIDTH];
    float want[WIDTH];
    open_case(_i);
    struct attn_cache *cache = filled_cache(), *other = filled_cache(), *stopped = filled_cache();
    struct visitor visitor = new_visitor(want, cache);
    size_t used = attn_cache_pool_used(pool);
    visitor.yield.context = &visitor;
    visitor.stop_at = 4;
    ck_assert_int_eq(try_step(stopped, after, rows, TOKENS, true, &visitor.yield), ATTN_CANCELLED);
    ck_assert_uint_eq(visitor.runs, 4);
    ck_assert_uint_eq(attn_cache_length(stopped, 0), CACHED);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    ck_assert_int_eq(try_step(other, alone, rows, TOKENS, true, NULL), ATTN_OK);
    ck_assert_int_eq(try_step(stopped, after, rows, TOKENS, true, NULL), ATTN_OK);
    ck_assert_int_eq(memcmp(alone, after, sizeof alone), 0);
    attn_cache_free(cache);
    attn_cache_free(other);
    attn_cache_free(stopped);
    close_case();
}

/* Counts how often `wanted` is called, and cancels the call at stop_at. */
struct asked {
    struct attn_yield yield;
    size_t times, stop_at; /* 0: never */
};

static bool ask(void *context)
{
    struct asked *asked = context;
    return ++asked->times == asked->stop_at;
}

static bool stop(void *context)
{
    (void)context;
    return false;
}

/* A step of the last row, after all other tokens; key and value may be NULL. */
static enum attn_status try_last(struct asked *asked, struct attn_cache *cache, float *key,
                                 float *value)
{
    float out[WIDTH];
    asked->yield = (struct attn_yield){ask, stop, asked};
    struct attn_step step = {
        .cache = cache,
        .position = TOKENS + CACHED - 1,
        .rows = 1,
        .hidden_states = step_row,
        .outputs = {.output = out, .key = key, .value = value},
        .commit = asked->stop_at > 0,
        .yield = &asked->yield,
    };
    struct attn_step *steps[] = {&step};
    return attn_decode(engine, model, 0, steps, 1);
}

#define BLOCKS ((TOKENS + CACHED) / 64)
#define COPIED ((TOKENS + CACHED) * 2 * 8) /* floats of keys, and of values each */

TEST_EACH(yield_is_asked_while_keys_and_values_are_copied_out, 2)
{
    static float out[TOKENS * WIDTH], key[COPIED], value[COPIED], kept[2][COPIED];
    struct asked without = {0}, with = {0}, stopped = {0}, again = {.stop_at = SIZE_MAX};
    open_case(_i);
    struct attn_cache *cache = filled_cache();
    ck_assert_int_eq(try_step(cache, out, rows, TOKENS - 1, true, NULL), ATTN_OK);
    ck_assert_int_eq(try_last(&without, cache, NULL, NULL), ATTN_OK);
    ck_assert_int_eq(try_last(&with, cache, key, value), ATTN_OK);
    ck_assert_uint_ge(with.times, without.times + BLOCKS);
    stopped.stop_at = with.times;
    ck_assert_int_eq(try_last(&stopped, cache, key, value), ATTN_CANCELLED);
    ck_assert_uint_eq(attn_cache_length(cache, 0), TOKENS + CACHED - 1);
    ck_assert_int_eq(try_last(&again, cache, key, value), ATTN_OK);
    attn_cache_read(kept[0], kept[1], cache, 0, TOKENS + CACHED);
    ck_assert_int_eq(memcmp(key, kept[0], sizeof key), 0);
    ck_assert_int_eq(memcmp(value, kept[1], sizeof value), 0);
    attn_cache_free(cache);
    close_case();
}

/* ---- Calls inside calls ---- */

#define VISITS 3

/* A yield whose runs make a whole attend, which gives way to the decodes of a visitor. */
struct nester {
    struct attn_yield yield;
    struct visitor inner;
    const struct whole *want; /* alone */
    size_t runs, wrong;
    bool stops; /* the inner attend, at its second pause */
};

static bool few_wanted(void *context)
{
    const struct nester *nester = context;
    return nester->runs < VISITS;
}

static bool nest(void *context)
{
    static struct whole out;
    struct nester *nester = context;
    memset(&out, 0, sizeof out);
    nester->inner.runs = 0;
    nester->inner.stop_at = nester->stops ? 2 : 0;
    enum attn_status status = try_attend(&out, &nester->inner.yield);
    if (nester->stops)
        nester->wrong += status != ATTN_CANCELLED || nester->inner.runs != 2;
    else
        nester->wrong += status != ATTN_OK || nester->inner.runs < 2 ||
                         memcmp(&out, nester->want, sizeof out) != 0;
    nester->runs++;
    return true;
}

/* Odd cases stop the attends inside, and only those. */
TEST_EACH(yield_attends_inside_an_attend_give_way_in_turn_and_all_keep_their_bits, 2 * NUM_CASES)
{
    static struct whole alone, beside;
    float want[WIDTH];
    open_case(_i / 2);
    struct attn_cache *cache = filled_cache();
    memset(&alone, 0, sizeof alone);
    memset(&beside, 0, sizeof beside);
    ck_assert_int_eq(try_attend(&alone, NULL), ATTN_OK);
    struct nester nester = {
        .inner = new_visitor(want, cache), .want = &alone, .stops = _i % 2 == 1};
    nester.inner.yield.context = &nester.inner;
    nester.yield = (struct attn_yield){few_wanted, nest, &nester};
    ck_assert_int_eq(try_attend(&beside, &nester.yield), ATTN_OK);
    ck_assert_uint_eq(nester.runs, VISITS);
    ck_assert_uint_eq(nester.wrong + nester.inner.wrong + nester.inner.nested, 0);
    ck_assert_int_eq(memcmp(&alone, &beside, sizeof alone), 0);
    attn_cache_free(cache);
    close_case();
}

/* A yield that makes attends inside attends for as long as it is asked. */
struct digger {
    struct attn_yield yield;
    unsigned depth, deepest;
    bool dug;
};

static bool never_dug(void *context) { return !((struct digger *)context)->dug; }

static bool dig(void *context)
{
    static struct whole out[ATTN_YIELD_LEVELS];
    struct digger *digger = context;
    digger->depth++;
    ck_assert_uint_lt(digger->depth, ATTN_YIELD_LEVELS);
    digger->deepest = digger->depth > digger->deepest ? digger->depth : digger->deepest;
    ck_assert_int_eq(try_attend(&out[digger->depth], &digger->yield), ATTN_OK);
    digger->dug = true;
    digger->depth--;
    return true;
}

TEST_EACH(yield_the_innermost_call_asks_nobody, NUM_CASES)
{
    static struct whole out;
    struct digger digger = {.yield = {.wanted = never_dug, .run = dig}};
    digger.yield.context = &digger;
    open_case(_i);
    ck_assert_int_eq(try_attend(&out, &digger.yield), ATTN_OK);
    ck_assert_uint_eq(digger.deepest, ATTN_YIELD_LEVELS - 1);
    close_case();
}

/* ---- The pool alone ---- */

#define OUTER_TASKS 200
#define INNER_TASKS 50

struct counts {
    struct attn_pool *pool;
    struct attn_yield yield;
    atomic_uint outer[OUTER_TASKS], inner[INNER_TASKS];
    size_t runs;
};

static void inner_task(void *context, size_t i, unsigned thread)
{
    struct counts *counts = context;
    attn_pool_pause(counts->pool, thread); /* has no effect during a pause */
    atomic_fetch_add(&counts->inner[i], 1);
}

static void outer_task(void *context, size_t i, unsigned thread)
{
    struct counts *counts = context;
    attn_pool_pause(counts->pool, thread);
    atomic_fetch_add(&counts->outer[i], 1);
    attn_pool_pause(counts->pool, thread);
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static bool run_inner(void *context)
{
    struct counts *counts = context;
    ck_assert_uint_eq(attn_pool_level(counts->pool), 1);
    attn_pool_run(counts->pool, inner_task, counts, INNER_TASKS);
    counts->runs++;
    return true;
}

TEST_EACH(pool_runs_every_task_once_inside_and_outside, NUM_CASES / 2)
{
    static struct counts counts;
    counts = (struct counts){.yield = {always, run_inner, &counts}};
    ck_assert_int_eq(attn_pool_open(&counts.pool, thread_counts[_i]), ATTN_OK);
    attn_pool_set_yield(counts.pool, &counts.yield);
    attn_pool_run(counts.pool, outer_task, &counts, OUTER_TASKS);
    attn_pool_set_yield(counts.pool, NULL);
    ck_assert_uint_gt(counts.runs, 0);
    for (size_t i = 0; i < OUTER_TASKS; i++)
        ck_assert_uint_eq(atomic_load(&counts.outer[i]), 1);
    for (size_t i = 0; i < INNER_TASKS; i++)
        ck_assert_uint_eq(atomic_load(&counts.inner[i]), counts.runs);
    attn_pool_close(counts.pool);
}

SUITE(yield)
