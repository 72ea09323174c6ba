/* test_head_stats.c: what head_stats say about targets and groups of keys, over random layers and
 * calls of every kind (property_draw.h), compared with the attention weights of the same call.
 *
 * The reference is plain: means and counts in double over the rows of the whole map, which a second
 * call without head_mask gives, since statistics are taken before head_mask. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "basics/mem.h"
#include "opened.h"
#include "property_draw.h"
#include "schedule/steps.h"
#include "suites.h"
#include "wire/outputs.h"

#define CASES 1000
#define CLOSE 1e-6

/* Engines of every level that this CPU has, with one thread and with two. */
static struct attn_engine *engines[2 * ATTN_NUM_CPU_LEVELS];
static size_t num_engines;

static void setup(void)
{
    struct attn_error error;
    num_engines = 0;
    for (unsigned i = 0; i < 2 * (ATTN_NUM_CPU_LEVELS - 1); i++) {
        const struct attn_engine_options options = {.threads = 1 + i % 2, .level = 1 + i / 2};
        enum attn_status status = attn_engine_open(&engines[num_engines], &options, &error);
        num_engines += status == ATTN_OK;
        ck_assert(status == ATTN_OK || status == ATTN_UNSUPPORTED);
    }
}

static void teardown(void)
{
    for (size_t i = 0; i < num_engines; i++)
        attn_engine_close(engines[i]);
}

/* ---- A case ---------------------------------------------------------------------------------- */

/* A random layer, a call or a step of it, and the sizes of that. */
struct subject {
    struct draw draw;
    struct attn_engine *engine;
    struct attn_model *model;
    const struct attn_layer_spec *spec;
    size_t batch, queries, keys, columns;
    struct attn_outputs outputs;
};

static void expect(const struct subject *s, bool holds, const char *what)
{
    ck_assert_msg(holds, "seed %u, layer %zu of %s: %s", s->draw.seed, s->draw.layer, s->draw.json,
                  what);
}

static void open_case(struct subject *s, unsigned seed)
{
    struct attn_error error = {0};
    *s = (struct subject){.engine = engines[seed % num_engines]};
    draw_layer(&s->draw, seed);
    expect(s,
           attn_model_open_random(&s->model, s->draw.json, strlen(s->draw.json), NULL, &error) ==
                   ATTN_OK &&
               attn_model_load(s->model, &error) == ATTN_OK,
           error.message);
    s->spec = attn_model_layer(s->model, s->draw.layer);
    draw_call(&s->draw, s->spec);
}

static void close_case(struct subject *s)
{
    attn_model_close(s->model);
    draw_free(&s->draw);
}

static void attend(struct subject *s, const struct attn_attend_args *args)
{
    struct attn_error error = {0};
    expect(s, attn_attend(s->engine, s->model, s->draw.layer, args, &error) == ATTN_OK,
           error.message);
}

/* Draws targets and groups, of which the last has every key. */
static void ask(struct subject *s)
{
    struct draw *d = &s->draw;
    const size_t rows = s->batch * s->queries, heads = s->batch * s->spec->num_heads;
    int64_t *targets = draw_keep(d, rows, sizeof *targets);
    uint16_t *groups = draw_keep(d, s->keys, sizeof *groups);
    size_t n = 1 + rng_below(&d->rng, ATTN_MAX_TARGET_GROUPS);
    for (size_t i = 0; i < rows; i++)
        targets[i] = (int64_t)rng_below(&d->rng, (unsigned)s->keys + 1) - 1;
    for (size_t j = 0; j < s->keys; j++)
        groups[j] =
            (uint16_t)((rng_below(&d->rng, 1u << n) & rng_below(&d->rng, 1u << n)) | 1u << (n - 1));
    s->outputs.targets = targets;
    s->outputs.target_groups = groups;
    s->outputs.num_target_groups = n;
    s->outputs.head_stats = draw_keep(d, heads, sizeof *s->outputs.head_stats);
    s->outputs.group_stats = draw_keep(d, heads * n, sizeof *s->outputs.group_stats);
}

/* ---- The reference --------------------------------------------------------------------------- */

/* Sums over the rows of one head. */
struct sums {
    size_t rows, target_rows;
    double target, target_hits;
    struct attn_group_stats groups[ATTN_MAX_TARGET_GROUPS];
    size_t unsure; /* rows whose keys all have weight 0 */
};

static void add_row(struct sums *sums, const struct subject *s, const float *weights,
                    int64_t target)
{
    const uint16_t *groups = s->outputs.target_groups;
    size_t largest = 0;
    for (size_t j = 1; j < s->keys; j++)
        largest = weights[j] > weights[largest] ? j : largest;
    sums->rows++;
    sums->unsure += !(weights[largest] > 0);
    if (target >= 0) {
        sums->target_rows++;
        sums->target += (double)weights[target];
        sums->target_hits += largest == (size_t)target;
    }
    for (size_t g = 0; g < s->outputs.num_target_groups; g++) {
        for (size_t j = 0; j < s->keys; j++)
            sums->groups[g].share += groups[j] >> g & 1 ? (double)weights[j] : 0;
        sums->groups[g].hits += groups[largest] >> g & 1;
    }
}

static bool sees(const float *scores, size_t keys)
{
    for (size_t j = 0; j < keys; j++)
        if (scores[j] > -INFINITY)
            return true;
    return false;
}

static double mean(double sum, size_t count) { return count > 0 ? sum / (double)count : 0; }

static void expect_head(const struct subject *s, size_t head, const struct sums *want)
{
    const struct attn_head_stats *got = &s->outputs.head_stats[head];
    const size_t n = s->outputs.num_target_groups;
    const struct attn_group_stats *groups = s->outputs.group_stats + head * n;
    expect(s, got->rows == want->rows && got->target_rows == want->target_rows,
           "another number of rows");
    expect(s, fabs(got->target - mean(want->target, want->target_rows)) <= CLOSE,
           "another weight on targets");
    for (size_t g = 0; g < n; g++)
        expect(s, fabs(groups[g].share - mean(want->groups[g].share, want->rows)) <= CLOSE,
               "another weight on a group");
    if (want->unsure > 0)
        return;
    expect(s, fabs(got->target_hits - mean(want->target_hits, want->target_rows)) <= CLOSE,
           "another share of hits of targets");
    for (size_t g = 0; g < n; g++)
        expect(s, fabs(groups[g].hits - mean(want->groups[g].hits, want->rows)) <= CLOSE,
               "another share of hits of a group");
    expect(s, groups[n - 1].hits == (want->rows > 0), "a hit beyond all keys");
}

/* Compares the statistics with maps [B][H][T][W] and masked scores [B][H][T][S]. */
static void compare(const struct subject *s, const float *weights, const float *scores)
{
    for (size_t head = 0; head < s->batch * s->spec->num_heads; head++) {
        struct sums sums = {0};
        for (size_t t = 0; t < s->queries; t++) {
            const size_t row = head * s->queries + t;
            if (sees(scores + row * s->keys, s->keys))
                add_row(&sums, s, weights + row * s->columns,
                        s->outputs.targets[head / s->spec->num_heads * s->queries + t]);
        }
        expect_head(s, head, &sums);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

CASE(calls, setup, teardown, 600)

TEST(head_stats_of_targets_and_groups_are_those_of_the_weights_of_the_call)
{
    for (unsigned seed = 1; seed <= CASES; seed++) {
        struct subject s;
        open_case(&s, seed);
        struct attn_attend_args args = s.draw.call;
        s.batch = args.batch;
        s.queries = args.queries;
        s.keys = args.keys;
        s.columns = attn_weight_columns(s.spec, s.keys);
        const size_t rows = s.batch * s.spec->num_heads * s.queries;
        ask(&s);
        args.outputs = s.outputs;
        attend(&s, &args);
        args.modifiers.head_mask = NULL;
        args.outputs = (struct attn_outputs){
            .attention_weights = draw_keep(&s.draw, rows * s.columns, sizeof(float)),
            .attention_scores = draw_keep(&s.draw, rows * s.keys, sizeof(float)),
            .stage = ATTN_STAGE_MASKED,
        };
        attend(&s, &args);
        compare(&s, args.outputs.attention_weights, args.outputs.attention_scores);
        close_case(&s);
    }
}

/* Engines stand in pairs of one level, with one thread and with two. */
TEST(head_stats_of_targets_and_groups_have_the_same_bits_on_one_thread_and_on_two)
{
    for (unsigned seed = 1; seed <= CASES / 5; seed++) {
        struct subject s;
        open_case(&s, seed);
        struct attn_attend_args args = s.draw.call;
        s.batch = args.batch;
        s.queries = args.queries;
        s.keys = args.keys;
        ask(&s);
        const size_t heads = s.batch * s.spec->num_heads, n = heads * s.outputs.num_target_groups;
        struct attn_group_stats *other = draw_keep(&s.draw, n, sizeof *other);
        struct attn_head_stats *others = draw_keep(&s.draw, heads, sizeof *others);
        args.outputs = s.outputs;
        attend(&s, &args);
        s.engine = engines[(seed % num_engines) ^ 1];
        args.outputs.group_stats = other;
        args.outputs.head_stats = others;
        attend(&s, &args);
        expect(&s, memcmp(s.outputs.group_stats, other, n * sizeof *other) == 0,
               "other bits of groups");
        for (size_t i = 0; i < heads; i++)
            expect(&s,
                   memcmp(&s.outputs.head_stats[i].target, &others[i].target, sizeof(double)) == 0,
                   "other bits of targets");
        close_case(&s);
    }
}

/* Whether the layer may have a cache. */
static bool is_cached(const struct attn_layer_spec *spec)
{
    return !spec->is_cross && spec->key_size == spec->hidden_size &&
           spec->value_size == spec->hidden_size;
}

static void run_step(const struct subject *s, struct attn_step *step)
{
    struct attn_step *steps[] = {step};
    enum attn_status status = attn_decode(s->engine, s->model, s->draw.layer, steps, 1);
    expect(s, status == ATTN_OK && step->error.status == ATTN_OK, step->error.message);
}

/* A prefill, and a step after it that asks. */
static void check_step(struct subject *s, struct attn_cache *cache)
{
    const size_t total = s->draw.call.queries, heads = s->spec->num_heads;
    s->queries = total > 70 ? total / 2 : attn_min(total, 3); /* more rows than share products */
    s->batch = 1;
    s->keys = total;
    s->columns = attn_weight_columns(s->spec, total);
    struct attn_step step = {.cache = cache,
                             .rows = total - s->queries,
                             .hidden_states = s->draw.call.hidden_states,
                             .commit = true};
    if (step.rows > 0)
        run_step(s, &step);
    step.hidden_states += step.rows * s->spec->hidden_size;
    step.position = step.rows;
    step.rows = s->queries;
    ask(s);
    step.outputs = s->outputs;
    step.outputs.stage = ATTN_STAGE_MASKED;
    step.outputs.attention_weights =
        draw_keep(&s->draw, heads * s->queries * s->columns, sizeof(float));
    step.outputs.attention_scores =
        draw_keep(&s->draw, heads * s->queries * s->keys, sizeof(float));
    run_step(s, &step);
    compare(s, step.outputs.attention_weights, step.outputs.attention_scores);
}

TEST(head_stats_of_a_step_ask_about_cached_keys_too)
{
    struct attn_cache_pool *pool;
    unsigned checked = 0;
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    for (unsigned seed = 1; seed <= CASES / 2; seed++) {
        struct subject s;
        struct attn_cache *cache;
        open_case(&s, seed);
        if (is_cached(s.spec)) {
            ck_assert_int_eq(attn_cache_new(&cache, pool, s.model, 200, NULL), ATTN_OK);
            check_step(&s, cache);
            attn_cache_free(cache);
            checked++;
        }
        close_case(&s);
    }
    attn_cache_pool_free(pool);
    ck_assert_uint_gt(checked, CASES / 8);
}

TEST(head_stats_refuse_targets_without_a_key_and_too_many_groups)
{
    static const char config[] = "{\"hidden_size\":8,\"num_attention_heads\":2}";
    const float x[3 * 8] = {1};
    const uint16_t groups[3] = {1, 1, 1};
    int64_t targets[] = {0, -1, 2};
    struct attn_head_stats stats[2];
    struct attn_group_stats shares[2 * 17];
    struct attn_model *model;
    struct attn_error error;
    model = opened_random(config, NULL);
    struct attn_attend_args args = {
        .hidden_states = x,
        .batch = 1,
        .queries = 3,
        .outputs = {.head_stats = stats, .targets = targets, .target_groups = groups}};
    ck_assert_int_eq(attn_attend(engines[0], model, 0, &args, &error), ATTN_OK);
    targets[1] = 3;
    ck_assert_int_eq(attn_attend(engines[0], model, 0, &args, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, "targets");
    targets[1] = -2;
    ck_assert_int_eq(attn_attend(engines[0], model, 0, &args, &error), ATTN_OUT_OF_RANGE);
    targets[1] = 1;
    args.outputs.group_stats = shares;
    args.outputs.num_target_groups = 17;
    ck_assert_int_eq(attn_attend(engines[0], model, 0, &args, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, "target_groups");
    attn_model_close(model);
}

/* What is computed beside the attention counts in its work, by which callers take turns. */
TEST(head_stats_that_cost_more_are_counted_as_more_work)
{
    struct srv_job job = {.sizes = {.batch = 2,
                                    .queries = 100,
                                    .keys = 300,
                                    .num_heads = 4,
                                    .num_kv_heads = 2,
                                    .head_dim = 8,
                                    .value_head_dim = 16,
                                    .hidden_size = 32}};
    job.call.rows.outputs = SRV_OUT_STATS;
    const size_t weights = 2 * 4 * 100 * 300, projection = 2 * 100 * 32 * 4 * 16;
    const size_t plain = srv_attend_work(&job);
    job.call.rows.target_groups.count = 16;
    ck_assert_uint_ge(srv_attend_work(&job), plain + 16 * weights);
    job.call.rows.target_groups.count = 0;
    job.call.rows.ablate = true;
    ck_assert_uint_ge(srv_attend_work(&job), plain + 2 * projection);
    job.sizes.batch = job.sizes.queries = 1;
    job.call.rows.ablate = false;
    const size_t one = srv_attend_work(&job);
    job.call.rows.ablate = true;
    ck_assert_uint_ge(srv_attend_work(&job), one + 4 * 2 * 32 * 4 * 16);
}

static bool count_ask(void *context)
{
    ++*(size_t *)context;
    return false;
}

/* How often a call of one head asks whether to give way, with or without 16 groups of all keys. */
static size_t count_asks(size_t queries, size_t keys, bool groups)
{
    const size_t most = queries > keys ? queries : keys;
    size_t asks = 0;
    float *zeros = attn_calloc(most, sizeof *zeros);
    uint16_t *all = attn_calloc(keys, sizeof *all);
    struct attn_head_stats stats;
    struct attn_group_stats shares[ATTN_MAX_TARGET_GROUPS];
    struct attn_error error;
    const struct attn_yield yield = {.wanted = count_ask, .run = count_ask, .context = &asks};
    memset(all, 0xff, keys * sizeof *all);
    const struct attn_core_args args = {
        .batch = 1,
        .queries = queries,
        .keys = keys,
        .num_heads = 1,
        .num_kv_heads = 1,
        .head_dim = 1,
        .value_head_dim = 1,
        .query = zeros,
        .key = zeros,
        .value = zeros,
        .outputs = {.head_stats = &stats,
                    .target_groups = groups ? all : NULL,
                    .num_target_groups = groups ? ATTN_MAX_TARGET_GROUPS : 0,
                    .group_stats = groups ? shares : NULL},
        .yield = &yield};
    ck_assert_int_eq(attn_core(engines[0], &args, &error), ATTN_OK);
    for (size_t g = 0; groups && g < ATTN_MAX_TARGET_GROUPS; g++) {
        ck_assert_double_eq_tol(shares[g].share, 1, 1e-3);
        ck_assert_double_eq(shares[g].hits, 1);
    }
    free(zeros);
    free(all);
    return asks;
}

/* A tile of keys is a pause anyway, in which 64 numbers are added to 16 groups; 64 Ki take 1 ms. */
TEST(head_stats_of_groups_give_way_within_a_row_and_within_a_head)
{
    const size_t many = (size_t)1 << 16, pieces = 4;
    ck_assert_uint_ge(count_asks(1, many, true), count_asks(1, many, false) + pieces);
    ck_assert_uint_ge(count_asks(many, 1, true), count_asks(many, 1, false) + many + pieces);
}

/* The most text that a head's object can take is charged for, and not much more than that. */
TEST(head_stats_have_no_more_text_than_is_charged)
{
    const double longest = -1.17549435e-38;
    const int64_t targets[] = {-1};
    const size_t count = SIZE_MAX;
    struct attn_group_stats groups[ATTN_MAX_TARGET_GROUPS];
    const struct srv_sizes sizes = {.batch = 1, .num_heads = 1};
    struct attn_head_stats stats = {count,   longest, longest,
                                    longest, longest, longest,
                                    longest, longest, ATTN_PATTERN_POSITIONAL,
                                    count,   longest, longest};
    double ablation = longest;
    struct attn_outputs outputs = {
        .head_stats = &stats, .group_stats = groups, .ablation = &ablation};
    for (size_t g = 0; g < ATTN_MAX_TARGET_GROUPS; g++)
        groups[g] = (struct attn_group_stats){longest, longest};
    for (size_t n = 0; n <= ATTN_MAX_TARGET_GROUPS; n++) {
        struct srv_buffer text;
        srv_buffer_init(&text, 1 << 20);
        outputs.num_target_groups = n;
        outputs.targets = n % 2 == 0 ? targets : NULL;
        srv_head_stats_write(&text, &outputs, &sizes);
        ck_assert_uint_le(text.length, srv_head_stats_text(&outputs));
        ck_assert_uint_ge(2 * text.length, srv_head_stats_text(&outputs));
        srv_buffer_fini(&text);
    }
}

SUITE(head_stats)
