/* test_golden.c: every vector of tests/golden and tests/reference through the library: outputs,
 * weights, caches, and runs step by step. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "golden.h"
#include "machine/cpu.h"
#include "models/model.h"
#include "oracle_layer.h"
#include "suites.h"

#define LEAST_CASES 560 /* of tests/golden and tests/reference together */
#define POOL_BYTES ((size_t)64 << 20)

static struct golden_set set;
static struct attn_engine *engine;
static struct attn_error error;

/* Each test runs for every CPU level with packed products, and for the highest with OpenBLAS' too
 * (the loop index: 2 x level, + 1 with OpenBLAS'); or for GOLDEN_RUN alone. */
#define FIRST_RUN (2 * ATTN_CPU_PORTABLE)
#define RUNS (2 * ATTN_NUM_CPU_LEVELS)

static bool is_taken(int run)
{
    const char *only = getenv("GOLDEN_RUN");
    if (only != NULL)
        return strtol(only, NULL, 10) == run;
    return run % 2 == 0 ||
           run / 2 == (int)attn_cpu_level_of(attn_cpu_features(ATTN_NUM_CPU_LEVELS - 1));
}

/* False where this run is not taken, or this CPU does not have its level. */
static bool open_engine(int run)
{
    const enum attn_cpu_level level = (enum attn_cpu_level)(run / 2);
    if (!is_taken(run))
        return false;
    const struct attn_engine_options options = {
        .level = level, .gemm = run % 2 == 0 ? ATTN_GEMM_PACKED : ATTN_GEMM_OPENBLAS};
    enum attn_status status = attn_engine_open(&engine, &options, &error);
    ck_assert(status == ATTN_OK || (status == ATTN_UNSUPPORTED && level > ATTN_CPU_PORTABLE));
    return status == ATTN_OK;
}

/* Once, before the tests' processes part. */
static void load_set(void) { golden_load(&set); }

static void free_set(void) { golden_free(&set); }

static const char *engine_name(void)
{
    static char name[32];
    struct attn_engine_info info;
    attn_engine_describe(&info, engine);
    snprintf(name, sizeof name, "%s, %s", info.level_name, info.gemm_name);
    return name;
}

static struct attn_model *open_model(const struct golden_case *c)
{
    struct attn_model *model = NULL;
    const struct attn_model_options options = {.stack = c->stack[0] ? c->stack : NULL};
    ck_assert_msg(attn_model_open(&model, c->path, &options, &error) == ATTN_OK, "%s: %s", c->name,
                  error.message);
    ck_assert_msg(attn_model_load(model, &error) == ATTN_OK, "%s: %s", c->name, error.message);
    return model;
}

static float *take(size_t count)
{
    float *memory = malloc((count ? count : 1) * sizeof *memory);
    ck_assert_ptr_nonnull(memory);
    for (size_t i = 0; i < count; i++)
        memory[i] = NAN;
    return memory;
}

static void expect(const struct golden_case *c, const char *what, const float *got,
                   const float *want, size_t rows, size_t width, const uint8_t *wanted)
{
    size_t worst;
    if (want == NULL)
        return;
    double largest = golden_error(&worst, got, want, rows, width, wanted);
    ck_assert_msg(largest <= c->tolerance, "%s: %s[%zu] is %.9g, expected %.9g, error %.3g > %g",
                  c->name, what, worst, (double)got[worst], (double)want[worst], largest,
                  c->tolerance);
}

static struct attn_modifiers modifiers_of(const struct golden_case *c)
{
    size_t plane = c->queries * c->keys;
    return (struct attn_modifiers){
        .is_causal = c->causal < 0    ? ATTN_CAUSAL_DEFAULT
                     : c->causal == 0 ? ATTN_CAUSAL_NO
                                      : ATTN_CAUSAL_YES,
        .query_offset = c->offsets,
        .padding_mask = c->padding,
        .attention_mask = c->mask,
        .attention_mask_batch_stride = c->heads * plane,
        .attention_mask_head_stride = plane,
        .attention_bias = c->bias,
        .attention_bias_batch_stride = c->heads * plane,
        .attention_bias_head_stride = plane,
        .position_ids = c->positions,
        .grid = {c->grid[0], c->grid[1]},
        .scale = c->scale,
        .has_softcap = c->softcap != 0,
        .softcap = c->softcap,
        .has_window = c->windowed,
        .window_left = c->left,
        .window_right = c->right,
    };
}

static struct attn_outputs take_outputs(const struct golden_case *c)
{
    size_t wide = c->model[0] ? c->hidden : c->heads * c->value_dim;
    return (struct attn_outputs){
        .output = take(c->batch * c->queries * wide),
        .attention_weights = take(c->batch * c->heads * c->queries * (c->keys + 2)),
        .average_weights = take(c->batch * c->queries * (c->keys + 2)),
        .attention_scores = take(c->batch * c->heads * c->queries * c->keys),
        .stage = (enum attn_stage)c->stage,
        .lse = take(c->batch * c->heads * c->queries),
        .key = c->model[0] ? take(c->batch * c->kv_heads * c->keys * c->head_dim) : NULL,
        .value = c->model[0] ? take(c->batch * c->kv_heads * c->keys * c->value_dim) : NULL,
        .query = c->model[0] ? take(c->batch * c->heads * c->queries * c->head_dim) : NULL,
        .head_output = c->model[0] ? take(c->batch * c->heads * c->queries * c->value_dim) : NULL,
        .concat = c->model[0] ? take(c->batch * c->queries * c->heads * c->value_dim) : NULL,
    };
}

static void free_outputs(struct attn_outputs *outputs)
{
    free(outputs->output);
    free(outputs->attention_weights);
    free(outputs->attention_scores);
    free(outputs->average_weights);
    free(outputs->lse);
    free(outputs->key);
    free(outputs->value);
    free(outputs->query);
    free(outputs->head_output);
    free(outputs->concat);
}

static void expect_outputs(const struct golden_case *c, const struct attn_outputs *outputs)
{
    size_t wide = c->model[0] ? c->hidden : c->value_dim;
    size_t rows = c->batch * c->queries * (c->model[0] ? 1 : c->heads);
    uint8_t *heads = golden_rows_per_head(c);
    expect(c, "output", outputs->output, c->output, rows, wide, c->compare_rows);
    expect(c, "attention_weights", outputs->attention_weights, c->weights,
           c->batch * c->heads * c->queries, c->columns, heads);
    expect(c, "attention_scores", outputs->attention_scores, c->scores,
           c->batch * c->heads * c->queries, c->keys, heads);
    expect(c, "average_weights", outputs->average_weights, c->average, c->batch * c->queries,
           c->columns, c->compare_rows);
    expect(c, "key", outputs->key, c->key_cache, c->batch * c->kv_heads * c->keys, c->head_dim,
           NULL);
    expect(c, "value", outputs->value, c->value_cache, c->batch * c->kv_heads * c->keys,
           c->value_dim, NULL);
    free(heads);
}

/* Vectors by which concat, head_output and query were compared. */
static size_t products, sums, softmaxes;

/* concat Wo^T + bo is the vector's output. */
static void expect_projected(const struct golden_case *c, const struct attn_layer *layer,
                             const float *concat)
{
    const struct attn_linear *o = &layer->o;
    float *output = take(c->batch * c->queries * o->out);
    for (size_t i = 0; i < c->batch * c->queries * o->out; i++) {
        double sum = o->bias != NULL ? (double)o->bias[i % o->out] : 0;
        for (size_t j = 0; j < o->in; j++)
            sum += (double)oracle_weight(o, i % o->out, j) * (double)concat[i / o->out * o->in + j];
        output[i] = (float)sum;
    }
    expect(c, "concat Wo + bo", output, c->output, c->batch * c->queries, o->out, c->compare_rows);
    products += c->output != NULL;
    free(output);
}

/* The key/value head of row (b, h, t). */
static size_t kv_head_of(const struct golden_case *c, size_t row)
{
    return row / c->queries % c->heads / (c->heads / c->kv_heads);
}

/* Writes weights value of row (b, h, t) to out [Dv], with the values of a key/value head. */
static void sum_values(float *out, const struct golden_case *c, const float *value, size_t row,
                       size_t kv_head)
{
    const size_t g = row / c->queries / c->heads * c->kv_heads + kv_head;
    for (size_t i = 0; i < c->value_dim; i++) {
        double sum = 0;
        for (size_t s = 0; s < c->keys; s++)
            sum += (double)c->weights[row * c->keys + s] *
                   (double)value[(g * c->keys + s) * c->value_dim + i];
        out[i] = (float)sum;
    }
}

/* Writes the softmax of scale <query, key> over the keys that row (b, h, t) of the vector sees to
 * out [S]. */
static void softmax_keys(float *out, const struct golden_case *c, const float *query,
                         const float *key, size_t row, double scale)
{
    const size_t h = row / c->queries % c->heads, b = row / c->queries / c->heads;
    const size_t g = b * c->kv_heads + h / (c->heads / c->kv_heads);
    double sum = 0, *scores = calloc(c->keys, sizeof *scores);
    for (size_t s = 0; s < c->keys; s++) {
        for (size_t i = 0; i < c->head_dim; i++)
            scores[s] += scale * (double)query[row * c->head_dim + i] *
                         (double)key[(g * c->keys + s) * c->head_dim + i];
        sum += c->weights[row * c->keys + s] > 0 ? exp(scores[s]) : 0;
    }
    for (size_t s = 0; s < c->keys; s++)
        out[s] = c->weights[row * c->keys + s] > 0 ? (float)(exp(scores[s]) / sum) : 0;
    free(scores);
}

/* Whether the weights follow from queries, keys and masks alone. */
static bool is_plain(const struct golden_case *c, const struct attn_layer_spec *spec)
{
    return c->bias == NULL && c->softcap == 0 && spec->softcap == 0 && !spec->sinks &&
           spec->position_bias.type == ATTN_BIAS_NONE && spec->keep_window_size == 0;
}

/* Multiplies [B][H][T][Dv] by the sigmoid or softplus of the output gate of the vector's rows. */
static void gate(float *summed, const struct golden_case *c, const struct attn_layer *layer)
{
    const struct attn_linear *map = &layer->gate;
    const size_t width = map->out / c->heads; /* gates of a head */
    for (size_t row = 0; row < c->batch * c->heads * c->queries; row++) {
        const size_t t = row % c->queries, h = row / c->queries % c->heads;
        const float *x =
            c->hidden_states + (row / c->queries / c->heads * c->queries + t) * c->hidden;
        for (size_t i = 0; i < c->value_dim; i++) {
            const size_t at = h * width + i % width;
            double sum = map->bias != NULL ? (double)map->bias[at] : 0;
            for (size_t j = 0; j < c->hidden; j++)
                sum += (double)oracle_weight(map, at, j) * (double)x[j];
            summed[row * c->value_dim + i] *=
                (float)(layer->spec.gate_softplus ? log(1 + exp(sum)) : 1 / (1 + exp(-sum)));
        }
    }
}

/* Writes what heads put out in differential attention, [B][H][T][Dv]. */
static void sum_differences(float *out, const struct golden_case *c, const struct attn_layer *layer,
                            const float *value)
{
    const size_t d = c->head_dim, dv = c->value_dim, half = c->heads / 2, n = c->queries;
    double dot[2] = {0, 0}, init = 0.8 - 0.6 * exp(-0.3 * (double)c->layer);
    for (size_t i = 0; i < d; i++) {
        dot[0] += (double)layer->lambda_q1[i] * (double)layer->lambda_k1[i];
        dot[1] += (double)layer->lambda_q2[i] * (double)layer->lambda_k2[i];
    }
    const double lambda = exp(dot[0]) - exp(dot[1]) + init;
    float *first = take(dv), *second = take(dv), *pair = take(2 * dv);
    for (size_t i = 0; i < c->batch * half * n; i++) {
        const size_t b = i / n / half, h = i / n % half, t = i % n;
        const size_t one = (b * c->heads + h) * n + t, other = one + half * n;
        double squares = 0;
        for (size_t part = 0; part < 2; part++) {
            const size_t groups = c->kv_heads / 2, from = part * groups;
            sum_values(first, c, value, one, from + kv_head_of(c, one) % groups);
            sum_values(second, c, value, other, from + kv_head_of(c, other) % groups);
            for (size_t j = 0; j < dv; j++) {
                pair[part * dv + j] = (float)((double)first[j] - lambda * (double)second[j]);
                squares += pow((double)pair[part * dv + j], 2);
            }
        }
        const double scale =
            (1 - init) / sqrt(squares / (double)(2 * dv) + layer->spec.differential.norm_eps);
        for (size_t j = 0; j < 2 * dv; j++)
            out[((b * c->heads + 2 * h + j / dv) * n + t) * dv + j % dv] =
                (float)(scale * (double)pair[j]);
    }
    free(first);
    free(second);
    free(pair);
}

/* RMSNorm of all heads of a row of [B][H][T][Dv], times weight [H*Dv]. */
static void normalize(float *summed, const struct golden_case *c, const float *weight, double eps)
{
    const size_t dv = c->value_dim, width = c->heads * dv, step = c->queries * dv;
    for (size_t row = 0; row < c->batch * c->queries; row++) {
        float *first = summed + (row / c->queries * c->heads * c->queries + row % c->queries) * dv;
        double squares = 0;
        for (size_t i = 0; i < width; i++)
            squares += pow((double)first[i / dv * step + i % dv], 2);
        for (size_t i = 0; i < width; i++)
            first[i / dv * step + i % dv] *= weight[i] / (float)sqrt(squares / (double)width + eps);
    }
}

static void expect_inner(const struct golden_case *c, const struct attn_model *model,
                         const struct attn_outputs *outputs)
{
    const struct attn_layer *layer = attn_model_loaded_layer(model, c->layer);
    const double scale = c->scale != 0 ? c->scale : layer->spec.scale;
    const size_t rows = c->batch * c->heads * c->queries;
    expect_projected(c, layer, outputs->concat);
    if (c->weights == NULL || c->columns != c->keys)
        return;
    uint8_t *heads = golden_rows_per_head(c);
    float *summed = take(rows * c->value_dim), *weights = take(rows * c->keys);
    for (size_t row = 0; row < rows; row++) {
        sum_values(summed + row * c->value_dim, c, outputs->value, row, kv_head_of(c, row));
        softmax_keys(weights + row * c->keys, c, outputs->query, outputs->key, row, scale);
    }
    if (layer->spec.differential.lambda_init != 0)
        sum_differences(summed, c, layer, outputs->value);
    if (layer->spec.output_gate)
        gate(summed, c, layer);
    if (layer->spec.output_norm.type != ATTN_NORM_NONE)
        normalize(summed, c, layer->o_norm, layer->spec.output_norm.eps);
    expect(c, "head_output", outputs->head_output, summed, rows, c->value_dim, heads);
    if (is_plain(c, &layer->spec))
        expect(c, "softmax of query and key", weights, c->weights, rows, c->keys, heads);
    softmaxes += is_plain(c, &layer->spec);
    sums++;
    free(summed);
    free(weights);
    free(heads);
}

static void attend(const struct golden_case *c, const struct attn_model *model,
                   const struct attn_outputs *outputs)
{
    struct attn_attend_args args = {
        .batch = c->batch,
        .queries = c->queries,
        .keys = c->keys,
        .hidden_states = c->hidden_states,
        .key_hidden_states = c->key_states,
        .value_hidden_states = c->value_states,
        .modifiers = modifiers_of(c),
        .outputs = *outputs,
    };
    ck_assert_msg(attn_attend(engine, model, c->layer, &args, &error) == ATTN_OK, "%s: %s", c->name,
                  error.message);
}

static void core(const struct golden_case *c, const struct attn_outputs *outputs)
{
    struct attn_core_args args = {
        .batch = c->batch,
        .queries = c->queries,
        .keys = c->keys,
        .num_heads = c->heads,
        .num_kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .value_head_dim = c->value_dim,
        .query = c->query,
        .key = c->key,
        .value = c->value,
        .modifiers = modifiers_of(c),
        .outputs = *outputs,
    };
    ck_assert_msg(attn_core(engine, &args, &error) == ATTN_OK, "%s: %s", c->name, error.message);
}

START_TEST(test_golden_outputs_weights_and_keys_hold)
{
    size_t compared = 0;
    if (!open_engine(_i))
        return;
    for (size_t i = 0; i < set.count; i++) {
        const struct golden_case *c = &set.cases[i];
        struct attn_outputs outputs = take_outputs(c);
        struct attn_model *model = c->model[0] ? open_model(c) : NULL;
        if (model != NULL)
            attend(c, model, &outputs);
        else
            core(c, &outputs);
        expect_outputs(c, &outputs);
        if (model != NULL)
            expect_inner(c, model, &outputs);
        free_outputs(&outputs);
        attn_model_close(model);
        compared++;
    }
    printf("golden: %zu cases hold through the library, %s\n", compared, engine_name());
    ck_assert_uint_eq(compared, set.count);
    ck_assert_uint_ge(compared, LEAST_CASES);
    ck_assert_uint_ge(products, 170);
    ck_assert_uint_ge(sums, 160);
    ck_assert_uint_ge(softmaxes, 130);
    attn_engine_close(engine);
}
END_TEST

/* ---- Step by step ---- */

struct run {
    const struct golden_case *c;
    const struct attn_model *model;
    struct attn_cache *cache;
    size_t b;           /* sequence of the batch */
    float *key, *value; /* [G][S][D], [G][S][Dv]: outputs of the last step */
};

/* A step of rows [from, from + n) of the case's sequence, of hidden states x [B][T][E]. */
static struct attn_step step_of(const struct run *run, const float *x, size_t from, size_t n)
{
    const struct golden_case *c = run->c;
    const size_t row = run->b * c->queries + from;
    return (struct attn_step){
        .cache = run->cache,
        .position = from,
        .rows = n,
        .hidden_states = x + row * c->hidden,
        .modifiers = {.is_causal = c->prefix && from == 0 ? ATTN_CAUSAL_NO : ATTN_CAUSAL_DEFAULT,
                      .padding_mask = c->padding ? c->padding + run->b * c->queries : NULL,
                      .position_ids = c->positions ? c->positions + row : NULL},
        .commit = true,
    };
}

static void decode(const struct run *run, size_t layer, struct attn_step *step)
{
    ck_assert_msg(attn_decode(engine, run->model, layer, &step, 1) == ATTN_OK &&
                      step->error.status == ATTN_OK,
                  "%s: %s", run->c->name, step->error.message);
}

/* Appends rows [from, from + n) of the case's sequence and writes their outputs into `output`
 * [T][E].  Where the layer reads another one's keys, that one's step comes first.  The last step
 * writes all keys and values too. */
static void step(struct run *run, float *output, size_t from, size_t n)
{
    const struct golden_case *c = run->c;
    float *lse = take(c->heads * n);
    struct attn_step s = step_of(run, c->hidden_states, from, n), *steps[] = {&s};
    s.outputs.output = output + from * c->hidden;
    s.outputs.lse = lse;
    if (from + n == c->queries) {
        s.outputs.key = run->key;
        s.outputs.value = run->value;
    }
    const size_t source = attn_model_layer(run->model, c->layer)->shares_layer;
    if (source != SIZE_MAX) {
        ck_assert_int_eq(attn_decode(engine, run->model, c->layer, steps, 1), ATTN_OK);
        ck_assert_int_eq(s.error.status, ATTN_INVALID);
        struct attn_step before = step_of(run, c->key_states, from, n);
        decode(run, source, &before);
    }
    decode(run, c->layer, &s);
    ck_assert_uint_eq(attn_cache_length(run->cache, c->layer), from + n);
    free(lse);
}

static void run_begin(struct run *run, const struct golden_case *c, const struct attn_model *model,
                      struct attn_cache_pool *pool, size_t b)
{
    *run = (struct run){.c = c, .model = model, .b = b};
    run->key = take(c->kv_heads * c->queries * c->head_dim);
    run->value = take(c->kv_heads * c->queries * c->value_dim);
    ck_assert_int_eq(attn_cache_new(&run->cache, pool, model, 256, &error), ATTN_OK);
}

/* Compares the keys and values that the last step wrote, and those of the cache where it has them
 * and not latents. */
static void expect_cache(const struct run *run)
{
    const struct golden_case *c = run->c;
    size_t k_size = c->kv_heads * c->queries * c->head_dim;
    size_t v_size = c->kv_heads * c->queries * c->value_dim;
    const float *key = c->key_cache + run->b * k_size, *value = c->value_cache + run->b * v_size;
    expect(c, "key", run->key, key, 1, k_size, NULL);
    expect(c, "value", run->value, value, 1, v_size, NULL);
    if (attn_model_layer(run->model, c->layer)->mla.kv_lora_rank > 0)
        return;
    attn_cache_read(run->key, run->value, run->cache, c->layer, c->queries);
    expect(c, "cached key", run->key, key, 1, k_size, NULL);
    expect(c, "cached value", run->value, value, 1, v_size, NULL);
}

START_TEST(test_golden_prefill_and_single_steps_hold)
{
    struct attn_cache_pool *pool;
    size_t runs = 0, steps = 0;
    if (!open_engine(_i))
        return;
    ck_assert_int_eq(attn_cache_pool_new(&pool, POOL_BYTES), ATTN_OK);
    for (size_t i = 0; i < set.count; i++) {
        const struct golden_case *c = &set.cases[i];
        if (!c->decodes)
            continue;
        struct attn_model *model = open_model(c);
        size_t sequence = c->queries * c->hidden;
        float *output = take(c->batch * sequence);
        for (size_t b = 0; b < c->batch; b++, runs++) {
            struct run run;
            run_begin(&run, c, model, pool, b);
            step(&run, output + b * sequence, 0, c->prefill);
            for (size_t t = c->prefill; t < c->queries; t++, steps++)
                step(&run, output + b * sequence, t, 1);
            if (!c->grows)
                expect_cache(&run);
            attn_cache_free(run.cache);
            free(run.key);
            free(run.value);
        }
        expect(c, "decode output", output, c->decode_output, c->batch * c->queries, c->hidden,
               c->compare_rows);
        free(output);
        attn_model_close(model);
    }
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    printf("golden: %zu sequences hold step by step, %s, %zu single steps\n", runs, engine_name(),
           steps);
    ck_assert_uint_ge(runs, 120);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}
END_TEST

Suite *suite_golden(void)
{
    Suite *suite = suite_create("golden");
    TCase *vectors = suite_cases(suite, "vectors", NULL, NULL, 120);
    tcase_add_unchecked_fixture(vectors, load_set, free_set);
    tcase_add_loop_test(vectors, test_golden_outputs_weights_and_keys_hold, FIRST_RUN, RUNS);
    tcase_add_loop_test(vectors, test_golden_prefill_and_single_steps_hold, FIRST_RUN, RUNS);
    return suite;
}
