/* main.c: decodes alone and in batches, compared bit by bit: build/invariance [--quick].
 *
 * In each round a random layer of some dtype and kv_dtype gets 2 to 64 sessions of different
 * lengths.  The layer is a drawn one (property_draw.h: heads, groups, widths, RoPE, biases,
 * windows, sinks), one without weights of such a shape, or a wide one, whose work is divided among
 * threads.  Every session's next step is
 * computed alone on one thread; then alone on two; then with random neighbours, on one thread and
 * on two.  Rounds take turns at the CPU levels, with packed products and with those of OpenBLAS.
 * Outputs, log-sum-exps, queries, what heads put out, ablations, the pooled maps of some and, after
 * the last time, the caches must have no other bit.  The last line has the figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_state.h"
#include "property_draw.h"
#include "verdict.h"

#define DECODES 10000
#define DECODES_QUICK 2500
#define MORE 10           /* times as many, at most, until there was every kind */
#define MOST 64           /* steps of a batch */
#define LENGTHS 200       /* tokens of most sessions, at most */
#define SPLIT_TOKENS 4096 /* a longer session has several splits of keys, which threads share */
#define PREFILL 70        /* rows of a long step: more than share products */
#define SPARE (2 * PREFILL)

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};
static const char *const wide[] = {
    "{\"hidden_size\":512,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rope_theta\":10000,"
    "\"seed\":1}",
    "{\"hidden_size\":776,\"num_attention_heads\":12,\"head_dim\":64,\"attention_bias\":true,"
    "\"seed\":2}",
    "{\"hidden_size\":640,\"num_attention_heads\":10,\"num_key_value_heads\":1,\"head_dim\":80,"
    "\"alibi\":true,\"seed\":3}",
    "{\"hidden_size\":512,\"num_attention_heads\":80,\"kv_lora_rank\":96,\"q_lora_rank\":160,"
    "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"value_head_dim\":24,\"rope_theta\":10000,"
    "\"seed\":4}",
};
#define NUM_WIDE (sizeof wide / sizeof wide[0])

/* A session, its next step, and the results of that step computed alone. */
struct subject {
    struct attn_cache *cache;
    size_t length, rows;
    float *x;                 /* [rows][E]; without weights [H][rows][D], then: */
    float *key, *value;       /* [G][rows][D], [G][rows][Dv], in x; NULL with weights */
    struct attn_outputs want; /* computed alone on one thread */
    size_t pool[2];           /* of its map of weights; 0: no map */
    struct attn_cache *after; /* a fork with the step committed */
};

static struct {
    size_t decodes, compared, maps, batches, largest, differing, levels, kinds[3];
    size_t weightless, crosses; /* rounds */
} result;

struct round {
    struct rng rng;
    struct draw draw;
    struct attn_engine *engines[2]; /* one thread, two */
    struct attn_model *model;
    const struct attn_layer_spec *spec;
    struct attn_cache_pool *pool;
    struct subject subjects[MOST];
    size_t count;
};

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "check-invariance: %s\n", what);
    exit(EXIT_FAILURE);
}

static float *some_floats(size_t count)
{
    float *data = calloc(count > 0 ? count : 1, sizeof *data);
    need(data != NULL, "out of memory");
    return data;
}

static double *some_doubles(size_t count)
{
    double *data = calloc(count, sizeof *data);
    need(data != NULL, "out of memory");
    return data;
}

/* ---- A round's sessions ---------------------------------------------------------------------- */

/* Opens a model without weights, of the shape of the drawn layer. */
static bool open_weightless(struct round *round, enum attn_dtype kv_dtype)
{
    struct attn_error error = {0};
    const struct attn_layer_spec *drawn = &round->draw.spec;
    const struct attn_weightless_options shape = {.num_heads = drawn->num_heads,
                                                  .num_kv_heads = drawn->num_kv_heads,
                                                  .head_dim = drawn->head_dim,
                                                  .value_head_dim = drawn->value_head_dim,
                                                  .sliding_window = drawn->sliding_window,
                                                  .kv_dtype = kv_dtype};
    round->draw.layer = 0;
    need(attn_model_open_weightless(&round->model, &shape, &error) == ATTN_OK, error.message);
    round->spec = attn_model_layer(round->model, 0);
    result.weightless++;
    return true;
}

/* Opens a layer; false where a drawn one cannot have a cache. */
static bool open_layer(struct round *round, unsigned seed)
{
    struct attn_error error = {0};
    const struct attn_model_options options = {.dtype = dtypes[rng_below(&round->rng, 4)],
                                               .kv_dtype =
                                                   (enum attn_dtype)rng_below(&round->rng, 4)};
    draw_layer(&round->draw, seed);
    bool large = rng_below(&round->rng, 4) == 0;
    if (rng_below(&round->rng, 8) == 0)
        return open_weightless(round, options.kv_dtype);
    const char *config = large ? wide[rng_below(&round->rng, NUM_WIDE)] : round->draw.json;
    size_t layer = round->draw.layer = large ? 0 : round->draw.layer;
    need(attn_model_open_random(&round->model, config, strlen(config), &options, &error) == ATTN_OK,
         error.message);
    round->spec = attn_model_layer(round->model, layer);
    if (!round->spec->is_cross && (round->spec->key_size != round->spec->hidden_size ||
                                   round->spec->value_size != round->spec->hidden_size))
        return false;
    need(attn_model_load(round->model, &error) == ATTN_OK, error.message);
    return true;
}

/* Floats of a row of each output of a step. */
struct widths {
    size_t output, lse, query, concat;
};

static struct widths widths_of(const struct attn_layer_spec *spec)
{
    if (spec->is_weightless)
        return (struct widths){.output = spec->num_heads * spec->value_head_dim,
                               .lse = spec->num_heads};
    return (struct widths){spec->hidden_size, spec->num_heads, spec->num_heads * spec->head_dim,
                           spec->num_heads * spec->value_head_dim};
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The keys that the subject's step attends over. */
static size_t keys_of(const struct round *round, const struct subject *subject)
{
    return subject->length + (round->spec->is_cross ? 0 : subject->rows);
}

/* Numbers of the subject's pooled map; 0: it has none. */
static size_t map_size(const struct round *round, const struct subject *subject)
{
    const size_t columns = attn_weight_columns(round->spec, keys_of(round, subject));
    return round->spec->num_heads * smaller(subject->pool[0], subject->rows) *
           smaller(subject->pool[1], columns);
}

/* Asks for the subject's pooled map. */
static void ask_for_map(struct attn_outputs *out, const struct round *round,
                        const struct subject *subject)
{
    const size_t keys = keys_of(round, subject);
    const struct attn_map_sizes sizes = {.batch = 1,
                                         .num_heads = round->spec->num_heads,
                                         .num_kv_heads = round->spec->num_kv_heads,
                                         .queries = subject->rows,
                                         .keys = keys,
                                         .columns = attn_weight_columns(round->spec, keys)};
    out->pool = (struct attn_map_pooling){
        .rows = subject->pool[0], .columns = subject->pool[1], .type = ATTN_POOL_MEAN};
    out->attention_weights = some_floats(map_size(round, subject));
    out->pool.sums = calloc(attn_pool_sums(out, &sizes), sizeof *out->pool.sums);
    need(out->pool.sums != NULL, "out of memory");
}

static struct attn_outputs take_outputs(const struct round *round, const struct subject *subject)
{
    const struct widths of = widths_of(round->spec);
    const size_t rows = subject->rows;
    struct attn_outputs outputs = {.output = some_floats(rows * of.output),
                                   .lse = some_floats(rows * of.lse)};
    if (!round->spec->is_weightless) {
        outputs.query = some_floats(rows * of.query);
        outputs.concat = some_floats(rows * of.concat);
        if (round->spec->output_norm.type == ATTN_NORM_NONE &&
            round->spec->differential.lambda_init == 0)
            outputs.ablation = some_doubles(of.lse);
    }
    if (subject->pool[0] > 0)
        ask_for_map(&outputs, round, subject);
    return outputs;
}

static void free_outputs(const struct attn_outputs *outputs)
{
    free(outputs->output);
    free(outputs->lse);
    free(outputs->query);
    free(outputs->concat);
    free(outputs->ablation);
    free(outputs->attention_weights);
    free(outputs->pool.sums);
}

static struct attn_step step_of(const struct subject *subject, struct attn_cache *cache,
                                const struct attn_outputs *outputs)
{
    return (struct attn_step){.cache = cache,
                              .position = subject->length,
                              .rows = subject->rows,
                              .hidden_states = subject->x,
                              .query = subject->x,
                              .key = subject->key,
                              .value = subject->value,
                              .outputs = *outputs};
}

static void decode(struct round *round, struct attn_engine *engine, struct attn_step *const steps[],
                   size_t count)
{
    need(attn_decode(engine, round->model, round->draw.layer, steps, count) == ATTN_OK,
         "a batch failed");
    for (size_t i = 0; i < count; i++)
        need(steps[i]->error.status == ATTN_OK, steps[i]->error.message);
}

static void fill(struct round *round, struct subject *subject)
{
    const struct attn_layer_spec *spec = round->spec;
    struct attn_error error = {0};
    size_t n = subject->length;
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    float *key = rng_floats(&round->rng, n * sizes.heads * sizes.key, 1);
    float *value = rng_floats(&round->rng, n * sizes.heads * sizes.value, 1);
    need(attn_cache_new(&subject->cache, round->pool, round->model, n + SPARE, &error) == ATTN_OK,
         error.message);
    need(n == 0 ||
             attn_cache_write(subject->cache, round->draw.layer, n, key, value, &error) == ATTN_OK,
         error.message);
    free(key);
    free(value);
}

/* Computes the step alone, on one thread, committed to a fork of its cache. */
static void compute_alone(struct round *round, struct subject *subject)
{
    struct attn_error error = {0};
    subject->want = take_outputs(round, subject);
    need(attn_cache_fork(&subject->after, subject->cache, subject->length, &error) == ATTN_OK,
         error.message);
    struct attn_step step = step_of(subject, subject->after, &subject->want);
    step.commit = true;
    decode(round, round->engines[0], (struct attn_step *[]){&step}, 1);
}

static void make_rows(struct round *round, struct subject *subject)
{
    const struct attn_layer_spec *spec = round->spec;
    size_t queries = subject->rows * spec->num_heads, keys = subject->rows * spec->num_kv_heads;
    size_t given = queries * spec->head_dim + keys * (spec->head_dim + spec->value_head_dim);
    bool weightless = spec->is_weightless;
    size_t count = weightless ? given : subject->rows * spec->hidden_size;
    subject->x = rng_floats(&round->rng, count, 1);
    subject->key = weightless ? subject->x + queries * spec->head_dim : NULL;
    subject->value = weightless ? subject->key + keys * spec->head_dim : NULL;
}

/* A step does not take a session of longrope across the trained length: the session is beyond. */
static size_t length_before(const struct attn_rope_spec *rope, size_t length, size_t rows)
{
    const size_t trained = (size_t)rope->original_max_position;
    const bool crosses = rope->type == ATTN_ROPE_LONGROPE && length > 0 && length <= trained &&
                         length + rows > trained;
    return crosses ? trained + 1 : length;
}

static void make_subjects(struct round *round)
{
    struct rng *rng = &round->rng;
    round->count = 2 + rng_below(rng, MOST - 1);
    size_t far = rng_below(rng, 3) == 0 ? rng_below(rng, (unsigned)round->count) : MOST;
    for (size_t i = 0; i < round->count; i++) {
        struct subject *subject = &round->subjects[i];
        unsigned kind = rng_below(rng, 20);
        subject->length = i == far ? SPLIT_TOKENS + rng_below(rng, 200) : rng_below(rng, LENGTHS);
        subject->length += round->spec->is_cross && subject->length == 0; /* encoder rows */
        subject->rows = kind == 0 ? PREFILL : kind < 4 ? 2 + rng_below(rng, 5) : 1;
        subject->length = length_before(&round->spec->rope, subject->length, subject->rows);
        make_rows(round, subject);
        subject->pool[0] = subject->pool[1] = 0;
        if (rng_below(rng, 4) == 0) {
            subject->pool[0] = 1 + rng_below(rng, 9);
            subject->pool[1] = 1 + rng_below(rng, 40);
        }
        fill(round, subject);
        compute_alone(round, subject); /* over all tokens; half of the others forget first */
        if (i % 2 == 0)
            attn_cache_forget(subject->cache, round->draw.layer, subject->length);
    }
}

static void free_subjects(struct round *round)
{
    for (size_t i = 0; i < round->count; i++) {
        struct subject *subject = &round->subjects[i];
        attn_cache_free(subject->cache);
        attn_cache_free(subject->after);
        free(subject->x);
        free_outputs(&subject->want);
    }
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool same_floats(const float *a, const float *b, size_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

/* Whether both caches hold the same tokens. */
static bool same_caches(const struct round *round, const struct subject *subject)
{
    const struct attn_layer_spec *spec = round->spec;
    size_t layer = round->draw.layer, n = attn_cache_length(subject->after, layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    size_t keys = n * sizes.heads * sizes.key, values = n * sizes.heads * sizes.value;
    float *a = some_floats(keys + values), *b = some_floats(keys + values);
    bool same = attn_cache_length(subject->cache, layer) == n;
    if (same) {
        attn_cache_read(a, a + keys, subject->cache, layer, n);
        attn_cache_read(b, b + keys, subject->after, layer, n);
        same = same_floats(a, b, keys + values);
    }
    free(a);
    free(b);
    return same;
}

/* Whether both outputs of a step have the same bits. */
static bool same_outputs(const struct round *round, const struct attn_outputs *got,
                         const struct subject *subject)
{
    const struct widths of = widths_of(round->spec);
    const struct attn_outputs *want = &subject->want;
    const size_t rows = subject->rows;
    return same_floats(got->output, want->output, rows * of.output) &&
           same_floats(got->lse, want->lse, rows * of.lse) &&
           same_floats(got->query, want->query, rows * of.query) &&
           same_floats(got->concat, want->concat, rows * of.concat) &&
           (got->ablation == NULL ||
            memcmp(got->ablation, want->ablation, of.lse * sizeof *got->ablation) == 0) &&
           (subject->pool[0] == 0 ||
            same_floats(got->attention_weights, want->attention_weights, map_size(round, subject)));
}

/* Computes steps order[0, count) as one batch and compares each with its result alone. */
static void compare_batch(struct round *round, struct attn_engine *engine, const size_t *order,
                          size_t count, bool commit)
{
    struct attn_step steps[MOST], *list[MOST] = {NULL};
    for (size_t i = 0; i < count; i++) {
        const struct subject *subject = &round->subjects[order[i]];
        const struct attn_outputs outputs = take_outputs(round, subject);
        steps[i] = step_of(subject, subject->cache, &outputs);
        steps[i].commit = commit;
        list[i] = &steps[i];
    }
    decode(round, engine, list, count);
    for (size_t i = 0; i < count; i++) {
        const struct subject *subject = &round->subjects[order[i]];
        bool same = same_outputs(round, &steps[i].outputs, subject) &&
                    (!commit || same_caches(round, subject));
        result.differing += !same;
        result.compared++;
        result.maps += subject->pool[0] > 0;
        free_outputs(&steps[i].outputs);
    }
}

/* Computes and compares all of the round's steps: in batches of random size and order, or each
 * alone. */
static void compare_all(struct round *round, struct attn_engine *engine, bool together, bool commit)
{
    size_t order[MOST];
    for (size_t i = 0; i < round->count; i++) {
        size_t other = rng_below(&round->rng, (unsigned)i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (size_t i = 0, count; i < round->count; i += count) {
        count = round->count - i;
        if (!together)
            count = 1;
        else if (count > 3 && rng_below(&round->rng, 2) == 0)
            count = 2 + rng_below(&round->rng, (unsigned)count - 3); /* leaves 2 or more */
        compare_batch(round, engine, order + i, count, commit);
        result.batches += together;
        result.largest = together && count > result.largest ? count : result.largest;
    }
}

static void count_kind(const struct attn_layer_spec *spec)
{
    bool shared = spec->num_kv_heads < spec->num_heads;
    result.crosses += spec->is_cross;
    result.kinds[!shared ? 0 : spec->num_kv_heads > 1 ? 1 : 2]++;
}

static void run_round(struct attn_engine *engines[2], unsigned seed)
{
    struct round round = {.rng = rng_seeded(seed), .engines = {engines[0], engines[1]}};
    if (open_layer(&round, seed)) {
        need(attn_cache_pool_new(&round.pool, (size_t)1 << 30) == ATTN_OK, "out of memory");
        make_subjects(&round);
        compare_all(&round, engines[1], false, false);
        compare_all(&round, engines[0], true, false);
        compare_all(&round, engines[1], true, true);
        free_subjects(&round);
        attn_cache_pool_free(round.pool);
        count_kind(round.spec);
        result.decodes += round.count;
    }
    attn_model_close(round.model);
    draw_free(&round.draw);
}

/* ---- Main ------------------------------------------------------------------------------------ */

/* Two engines of such options, with one thread and with two; false where this CPU lacks the
 * level. */
static bool open_pair(struct attn_engine *pair[2], struct attn_engine_options options)
{
    struct attn_error error = {0};
    enum attn_status status = ATTN_OK;
    for (unsigned i = 0; i < 2 && status == ATTN_OK; i++) {
        options.threads = 1 + i;
        status = attn_engine_open(&pair[i], &options, &error);
    }
    need(status == ATTN_OK || strcmp(error.param, "cpu_level") == 0, error.message);
    return status == ATTN_OK;
}

/* Pairs of every level of this CPU in both modes; how many pairs. */
static size_t open_engines(struct attn_engine *engines[][2])
{
    static const enum attn_gemm_mode modes[] = {ATTN_GEMM_PACKED, ATTN_GEMM_OPENBLAS};
    size_t pairs = 0;
    for (unsigned i = 2 * ATTN_CPU_PORTABLE; i < 2 * ATTN_NUM_CPU_LEVELS; i++)
        pairs += open_pair(engines[pairs],
                           (struct attn_engine_options){.level = i / 2, .gemm = modes[i % 2]});
    return pairs;
}

/* Whether there were layers of every kind, pooled maps and large batches. */
static bool has_seen_all(void)
{
    return result.kinds[0] > 0 && result.kinds[1] > 0 && result.kinds[2] > 0 &&
           result.weightless > 0 && result.crosses > 0 && result.maps > 0 &&
           result.largest > MOST / 2;
}

int main(int argc, char *argv[])
{
    struct attn_engine *engines[2 * ATTN_NUM_CPU_LEVELS][2];
    size_t wanted = argc > 1 && strcmp(argv[1], "--quick") == 0 ? DECODES_QUICK : DECODES;
    const size_t pairs = open_engines(engines);
    result.levels = pairs / 2;
    for (unsigned seed = 0;
         result.decodes < wanted || (!has_seen_all() && result.decodes < MORE * wanted); seed++)
        run_round(engines[seed % pairs], seed);
    for (size_t i = 0; i < 2 * pairs; i++)
        attn_engine_close(engines[i / 2][i % 2]);
    const struct verdict_condition conditions[] = {
        VERDICT(result.differing == 0), VERDICT(result.kinds[0] > 0),
        VERDICT(result.kinds[1] > 0),   VERDICT(result.kinds[2] > 0),
        VERDICT(result.weightless > 0), VERDICT(result.crosses > 0),
        VERDICT(result.maps > 0),       VERDICT(result.largest > MOST / 2),
    };
    const bool right = VERDICTS("check-invariance", conditions);
    printf(
        "check-invariance: %zu decodes of %zu MHA, %zu GQA and %zu MQA layers (%zu without "
        "weights, %zu of cross-attention) at %zu CPU levels, "
        "with packed products and with OpenBLAS', each alone and in batches of up to %zu (%zu of "
        "them), on 1 and 2 threads: %zu "
        "comparisons, %zu with a pooled map, %zu differ%s\n",
        result.decodes, result.kinds[0], result.kinds[1], result.kinds[2], result.weightless,
        result.crosses, result.levels, result.largest, result.batches, result.compared, result.maps,
        result.differing, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
