/* test_dtype.c: resident weights as float32, bf16 and int8, at every level this CPU has.
 *
 * The expected product is computed here in double, from the weights as they are kept and the rows
 * as they are rounded.  A whole layer is compared with the oracle over rows rounded so, and with
 * the float32 model of the same seed. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/half_float.h"
#include "machine/cpu.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "rng.h"
#include "suites.h"

#define MAX_ROWS 300
#define NUM_DTYPES 4

static const enum attn_dtype dtypes[NUM_DTYPES] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};
static struct attn_error error;

/* Opens an engine; false where this CPU does not have the level. */
static bool open_engine(struct attn_engine **out, unsigned level, unsigned threads)
{
    const struct attn_engine_options options = {.threads = threads, .level = level};
    return attn_engine_open(out, &options, &error) == ATTN_OK;
}

static struct attn_model *open_model(const char *config, enum attn_dtype dtype)
{
    const struct attn_model_options options = {.dtype = dtype};
    return opened_random(config, &options);
}

/* ---- Rows as a level takes them -------------------------------------------------------------- */

static bool rounds_rows(unsigned level)
{
    struct attn_kernels kernels;
    attn_kernels_get(&kernels, attn_cpu_features(level));
    return kernels.bf16_rounds_rows;
}

/* The row that products of that dtype and level multiply. */
static void round_row(float *out, const float *x, size_t n, enum attn_dtype dtype, unsigned level)
{
    const bool rounded = dtype == ATTN_BF16 && rounds_rows(level);
    float max = 0;
    for (size_t i = 0; i < n; i++)
        max = fmaxf(max, fabsf(x[i]));
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i];
        if (dtype == ATTN_INT8)
            out[i] = max == 0 ? 0 : rintf(x[i] * (127 / max)) * (max / 127);
        if (dtype == ATTN_W8A16)
            out[i] = max == 0 ? 0 : rintf(x[i] * (256 / (max / 127))) * (max / 127 / 256);
        if (rounded)
            out[i] = attn_bf16_to_float(attn_float_to_bf16(x[i]));
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

/* Three and a half blocks of bf16, two of int8; no width is a multiple of anything. */
#define WIDE \
    "{\"hidden_size\":2501,\"num_attention_heads\":3,\"head_dim\":27,\"attention_bias\":true}"

static void project(float *y, struct attn_engine *engine, const struct attn_linear *linear,
                    const float *x, size_t rows)
{
    const struct attn_projection product = attn_projection_of(linear, x, y, rows);
    attn_engine_lock(engine, NULL);
    ck_assert_int_eq(attn_project(engine, &product, 1, true), ATTN_OK);
    attn_engine_unlock(engine);
}

CASE(dtype, NULL, NULL, 240)

TEST_EACH(dtype_rows_have_the_same_bits_however_many_there_are, NUM_DTYPES *ATTN_NUM_CPU_LEVELS)
{
    enum attn_dtype dtype = dtypes[_i / ATTN_NUM_CPU_LEVELS];
    struct attn_model *model = open_model(WIDE, dtype);
    const struct attn_linear *linear = &attn_model_loaded_layer(model, 0)->q;
    size_t in = linear->in, out = linear->out;
    struct rng r = rng_seeded(5);
    struct attn_engine *engine;
    float *x = rng_floats(&r, MAX_ROWS * in, 2);
    float *all = rng_floats(&r, MAX_ROWS * out, 1), *some = rng_floats(&r, MAX_ROWS * out, 1);
    bool opened = open_engine(&engine, (unsigned)_i % ATTN_NUM_CPU_LEVELS, 2);
    if (opened)
        project(all, engine, linear, x, MAX_ROWS);
    for (size_t rows = 1; opened && rows <= 100; rows += rows == 64 ? 36 : 1) {
        size_t first = rng_below(&r, (unsigned)(MAX_ROWS - rows));
        project(some, engine, linear, x + first * in, rows);
        ck_assert_msg(memcmp(some, all + first * out, rows * out * sizeof(float)) == 0,
                      "%s: %zu rows have other bits than %d", attn_dtype_name(dtype), rows,
                      MAX_ROWS);
    }
    if (opened)
        attn_engine_close(engine);
    free(x);
    free(all);
    free(some);
    attn_model_close(model);
}

/* The largest error of a product over rows, relative to the largest result. */
static double product_error(const float *y, const struct attn_linear *linear, const float *x,
                            size_t rows)
{
    const size_t in = linear->in;
    double worst = 0, largest = 0, *weights = malloc(in * sizeof *weights);
    for (size_t o = 0; o < linear->out; o++) {
        for (size_t i = 0; i < in; i++)
            weights[i] = (double)oracle_weight(linear, o, i);
        for (size_t r = 0; r < rows; r++) {
            double sum = (double)linear->bias[o];
            for (size_t i = 0; i < in; i++)
                sum += weights[i] * (double)x[r * in + i];
            double difference = fabs(sum - (double)y[r * linear->out + o]);
            worst = isnan(difference) ? INFINITY : fmax(worst, difference);
            largest = fmax(largest, fabs(sum));
        }
    }
    free(weights);
    return worst / largest;
}

/* Queries, keys and values of 21 and 7 panels: pieces for threads end within them. */
#define GROUPED \
    "{\"hidden_size\":501,\"num_attention_heads\":18,\"num_key_value_heads\":6,\"head_dim\":37}"

TEST_EACH(dtype_products_of_the_same_rows_have_the_bits_of_each_alone,
          NUM_DTYPES *ATTN_NUM_CPU_LEVELS)
{
    enum { ROWS = 190, WIDEST = 18 * 37 };
    enum attn_dtype dtype = dtypes[_i / ATTN_NUM_CPU_LEVELS];
    struct attn_model *model = open_model(GROUPED, dtype);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    const struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v};
    struct rng r = rng_seeded(8);
    float *x = rng_floats(&r, ROWS * layer->q.in, 2), *alone = malloc(ROWS * WIDEST * sizeof *x);
    float *together[] = {malloc(ROWS * WIDEST * sizeof *x), malloc(ROWS * WIDEST * sizeof *x),
                         malloc(ROWS * WIDEST * sizeof *x)};
    for (unsigned threads = 1; threads <= 3; threads++)
        for (size_t rows = 5; rows <= ROWS; rows += 185) {
            struct attn_engine *engine;
            struct attn_projection products[3];
            if (!open_engine(&engine, (unsigned)_i % ATTN_NUM_CPU_LEVELS, threads))
                continue;
            for (size_t i = 0; i < 3; i++)
                products[i] = attn_projection_of(linears[i], x, together[i], rows);
            attn_engine_lock(engine, NULL);
            ck_assert_int_eq(attn_project(engine, products, 3, true), ATTN_OK);
            attn_engine_unlock(engine);
            for (size_t i = 0; i < 3; i++) {
                project(alone, engine, linears[i], x, rows);
                ck_assert_mem_eq(together[i], alone, rows * linears[i]->out * sizeof *x);
            }
            attn_engine_close(engine);
        }
    for (size_t i = 0; i < 3; i++)
        free(together[i]);
    free(alone);
    free(x);
    attn_model_close(model);
}

/* Of two equal products in one call, only the one whose limit is below its largest element reports
 * it. */
TEST_EACH(dtype_a_product_tells_an_element_beyond_its_limit, ATTN_NUM_CPU_LEVELS)
{
    enum { ROWS = 190 };
    struct attn_model *model = open_model(GROUPED, ATTN_F32);
    const struct attn_linear *k = &attn_model_loaded_layer(model, 0)->k;
    struct rng r = rng_seeded(9);
    float *x = rng_floats(&r, ROWS * k->in, 2), *y = malloc(2 * ROWS * k->out * sizeof *y),
          most = 0;
    struct attn_engine *engine;
    if (open_engine(&engine, (unsigned)_i, 2)) {
        project(y, engine, k, x, ROWS);
        for (size_t i = 0; i < ROWS * k->out; i++)
            most = fmaxf(most, fabsf(y[i]));
        atomic_bool beyond[2] = {false, false};
        struct attn_projection products[2];
        for (size_t i = 0; i < 2; i++) {
            products[i] = attn_projection_of(k, x, y + i * ROWS * k->out, ROWS);
            products[i].limit = i == 0 ? most : nextafterf(most, 0);
            products[i].beyond = &beyond[i];
        }
        attn_engine_lock(engine, NULL);
        ck_assert_int_eq(attn_project(engine, products, 2, true), ATTN_OK);
        attn_engine_unlock(engine);
        ck_assert(!beyond[0] && beyond[1]);
        attn_engine_close(engine);
    }
    free(x);
    free(y);
    attn_model_close(model);
}

TEST_EACH(dtype_products_are_those_of_the_weights_and_rows_as_kept, NUM_DTYPES)
{
    enum { ROWS = 70 };
    enum attn_dtype dtype = dtypes[_i];
    struct attn_model *model = open_model(WIDE, dtype);
    const struct attn_linear *linear = &attn_model_loaded_layer(model, 0)->q;
    struct rng r = rng_seeded(6);
    float *x = rng_floats(&r, ROWS * linear->in, 2), *kept = rng_floats(&r, ROWS * linear->in, 1);
    float *y = rng_floats(&r, ROWS * linear->out, 1);
    float *first = rng_floats(&r, ROWS * linear->out, 1);
    for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
        struct attn_engine *engine;
        if (!open_engine(&engine, level, 2))
            continue;
        for (size_t i = 0; i < ROWS; i++)
            round_row(kept + i * linear->in, x + i * linear->in, linear->in, dtype, level);
        project(y, engine, linear, x, ROWS);
        double worst = product_error(y, linear, kept, ROWS);
        ck_assert_msg(worst < 2e-6, "%s, level %u: error %.3g", attn_dtype_name(dtype), level,
                      worst);
        const struct attn_projection product = attn_projection_of(linear, x, y, ROWS);
        attn_engine_lock(engine, NULL); /* through OpenBLAS, where the level has nothing better */
        ck_assert_int_eq(attn_project(engine, &product, 1, false), ATTN_OK);
        attn_engine_unlock(engine);
        worst = product_error(y, linear, kept, ROWS);
        ck_assert_msg(worst < 2e-6, "%s, level %u, many rows: error %.3g", attn_dtype_name(dtype),
                      level, worst);
        if (level == ATTN_CPU_PORTABLE)
            memcpy(first, y, ROWS * linear->out * sizeof(float));
        else if (dtype == ATTN_INT8 || dtype == ATTN_W8A16) /* sums of integers are exact */
            ck_assert_mem_eq(y, first, ROWS * linear->out * sizeof(float));
        attn_engine_close(engine);
    }
    free(x);
    free(kept);
    free(y);
    free(first);
    attn_model_close(model);
}

TEST(dtype_rows_of_zeros_give_the_bias)
{
    for (size_t d = 0; d < NUM_DTYPES; d++)
        for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
            struct attn_engine *engine;
            if (!open_engine(&engine, level, 1))
                continue;
            struct attn_model *model = open_model(WIDE, dtypes[d]);
            const struct attn_linear *linear = &attn_model_loaded_layer(model, 0)->q;
            float *x = calloc(linear->in, sizeof *x), *y = malloc(linear->out * sizeof *y);
            project(y, engine, linear, x, 1);
            ck_assert_mem_eq(y, linear->bias, linear->out * sizeof *y);
            free(x);
            free(y);
            attn_model_close(model);
            attn_engine_close(engine);
        }
}

TEST(dtype_weights_are_the_nearest_that_the_dtype_has)
{
    struct attn_model *models[NUM_DTYPES];
    const struct attn_linear *linears[NUM_DTYPES];
    for (size_t d = 0; d < NUM_DTYPES; d++) {
        models[d] = open_model(WIDE, dtypes[d]);
        linears[d] = &attn_model_loaded_layer(models[d], 0)->q;
    }
    for (size_t o = 0; o < linears[0]->out; o++) {
        float max = 0;
        for (size_t i = 0; i < linears[0]->in; i++)
            max = fmaxf(max, fabsf(oracle_weight(linears[0], o, i)));
        for (size_t i = 0; i < linears[0]->in; i++) {
            float w = oracle_weight(linears[0], o, i);
            ck_assert(oracle_weight(linears[1], o, i) == attn_bf16_to_float(attn_float_to_bf16(w)));
            ck_assert(fabsf(oracle_weight(linears[2], o, i) - w) <= max / 127 * 0.50001f);
        }
    }
    for (size_t d = 0; d < NUM_DTYPES; d++)
        attn_model_close(models[d]);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

#define TOKENS 40
#define LAYER                                                                                   \
    "{\"hidden_size\":192,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":32," \
    "\"attention_bias\":true,\"rope_theta\":10000,\"seed\":3}"
#define WIDTH 192
#define KEYS 64 /* G * D */

struct results {
    float *output, *key, *value, *lse, *query, *concat;
};

static void attend(struct results *out, struct attn_engine *engine, const struct attn_model *model,
                   const float *x)
{
    struct rng r = rng_seeded(1);
    *out = (struct results){rng_floats(&r, TOKENS * WIDTH, 1), rng_floats(&r, TOKENS * KEYS, 1),
                            rng_floats(&r, TOKENS * KEYS, 1),  rng_floats(&r, TOKENS * 6, 1),
                            rng_floats(&r, TOKENS * WIDTH, 1), rng_floats(&r, TOKENS * WIDTH, 1)};
    const struct attn_attend_args args = {
        .batch = 1,
        .queries = TOKENS,
        .hidden_states = x,
        .outputs = {.output = out->output,
                    .key = out->key,
                    .value = out->value,
                    .lse = out->lse,
                    .query = out->query,
                    .concat = out->concat},
    };
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
}

static void free_results(struct results *results)
{
    free(results->output);
    free(results->key);
    free(results->value);
    free(results->lse);
    free(results->query);
    free(results->concat);
}

/* As oracle_error, for floats. */
static double difference(const float *got, const float *want, size_t rows, size_t width)
{
    double *wide = malloc(rows * width * sizeof *wide);
    for (size_t i = 0; i < rows * width; i++)
        wide[i] = (double)want[i];
    double worst = oracle_error(got, wide, rows, width);
    free(wide);
    return worst;
}

/* The output projection rounds rows that differ from the oracle's in the last bit, and an integer
 * that is rounded the other way is a whole step: its output has a bound of its own. */
TEST_EACH(dtype_a_layer_is_that_of_the_weights_and_rows_as_kept, NUM_DTYPES)
{
    enum attn_dtype dtype = dtypes[_i];
    struct attn_model *model = open_model(LAYER, dtype);
    struct rng r = rng_seeded(8);
    float *x = rng_floats(&r, TOKENS * WIDTH, 1.7f), *kept = rng_floats(&r, TOKENS * WIDTH, 1);
    double *want = calloc(TOKENS * (3 * WIDTH + 2 * KEYS + 6), sizeof *want);
    struct oracle_outputs oracle = {.output = want,
                                    .key = want + TOKENS * WIDTH,
                                    .value = want + TOKENS * (WIDTH + KEYS),
                                    .lse = want + TOKENS * (WIDTH + 2 * KEYS),
                                    .query = want + TOKENS * (WIDTH + 2 * KEYS + 6),
                                    .concat = want + TOKENS * (2 * WIDTH + 2 * KEYS + 6)};
    for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
        struct attn_engine *engine;
        struct results got;
        if (!open_engine(&engine, level, 2))
            continue;
        for (size_t t = 0; t < TOKENS; t++)
            round_row(kept + t * WIDTH, x + t * WIDTH, WIDTH, dtype, level);
        const struct attn_attend_args args = {.batch = 1, .queries = TOKENS, .hidden_states = kept};
        oracle_layer(&oracle, attn_model_loaded_layer(model, 0), &args);
        attend(&got, engine, model, x);
        bool rounds =
            dtype == ATTN_INT8 || dtype == ATTN_W8A16 || (dtype == ATTN_BF16 && rounds_rows(level));
        ck_assert_double_lt(oracle_error(got.key, oracle.key, TOKENS * 2, 32), 1e-5);
        ck_assert_double_lt(oracle_error(got.value, oracle.value, TOKENS * 2, 32), 1e-5);
        ck_assert_double_lt(oracle_error(got.lse, oracle.lse, 1, TOKENS * 6), 1e-5);
        ck_assert_double_lt(oracle_error(got.query, oracle.query, TOKENS * 6, 32), 1e-5);
        ck_assert_double_lt(oracle_error(got.concat, oracle.concat, TOKENS, WIDTH), 1e-5);
        ck_assert_double_lt(oracle_error(got.output, oracle.output, TOKENS, WIDTH),
                            rounds ? 2e-2 : 1e-5);
        free_results(&got);
        attn_engine_close(engine);
    }
    free(x);
    free(kept);
    free(want);
    attn_model_close(model);
}

/* The bounds that docs/NUMERICS.md states. */
TEST_EACH(dtype_a_layer_is_near_the_one_of_float32, NUM_DTYPES)
{
    static const double bounds[NUM_DTYPES] = {1e-5, 1e-2, 3e-2, 2e-2};
    struct rng r = rng_seeded(9);
    float *x = rng_floats(&r, TOKENS * WIDTH, 1.7f);
    struct attn_model *exact = open_model(LAYER, ATTN_F32);
    struct attn_model *model = open_model(LAYER, dtypes[_i]);
    for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
        struct attn_engine *engine;
        struct results got, want;
        if (!open_engine(&engine, level, 2))
            continue;
        attend(&want, engine, exact, x);
        attend(&got, engine, model, x);
        double worst = difference(got.output, want.output, TOKENS, WIDTH);
        ck_assert_msg(worst < bounds[_i] && (worst > 1e-4 || _i == 0), "level %u: %.3g", level,
                      worst);
        free_results(&got);
        free_results(&want);
        attn_engine_close(engine);
    }
    free(x);
    attn_model_close(exact);
    attn_model_close(model);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

#define SESSIONS 20

/* Appends one row to each of `count` empty sessions, from session `first` on, in one batch. */
static void decode(float *out, struct attn_engine *engine, const struct attn_model *model,
                   const float *x, size_t first, size_t count)
{
    struct attn_cache_pool *pool;
    struct attn_step steps[SESSIONS], *list[SESSIONS];
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    for (size_t i = 0; i < count; i++) {
        steps[i] = (struct attn_step){.rows = 1,
                                      .hidden_states = x + (first + i) * WIDTH,
                                      .outputs = {.output = out + (first + i) * WIDTH}};
        list[i] = &steps[i];
        ck_assert_int_eq(attn_cache_new(&steps[i].cache, pool, model, 8, &error), ATTN_OK);
    }
    ck_assert_int_eq(attn_decode(engine, model, 0, list, count), ATTN_OK);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(steps[i].error.status, ATTN_OK);
        attn_cache_free(steps[i].cache);
    }
    attn_cache_pool_free(pool);
}

TEST_EACH(dtype_bits_of_a_decode_do_not_depend_on_its_batch, NUM_DTYPES *ATTN_NUM_CPU_LEVELS)
{
    enum attn_dtype dtype = dtypes[_i / ATTN_NUM_CPU_LEVELS];
    struct rng r = rng_seeded(10);
    float *x = rng_floats(&r, SESSIONS * WIDTH, 1.7f);
    float *together = rng_floats(&r, SESSIONS * WIDTH, 1);
    float *apart = rng_floats(&r, SESSIONS * WIDTH, 1);
    struct attn_model *model = open_model(LAYER, dtype);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct attn_engine *engine;
        if (!open_engine(&engine, (unsigned)_i % ATTN_NUM_CPU_LEVELS, threads))
            continue;
        decode(together, engine, model, x, 0, SESSIONS);
        for (size_t at = 0, count; at < SESSIONS; at += count) {
            count = at < 3 ? 1 : SESSIONS - at < 7 ? SESSIONS - at : 7;
            decode(apart, engine, model, x, at, count);
        }
        ck_assert_mem_eq(apart, together, SESSIONS * WIDTH * sizeof(float));
        attn_engine_close(engine);
    }
    free(x);
    free(together);
    free(apart);
    attn_model_close(model);
}

/* ---- The description of a model -------------------------------------------------------------- */

TEST(dtype_is_told_by_bytes_and_fingerprint)
{
    char seen[NUM_DTYPES][17];
    size_t weights = 2 * WIDTH * (6 + 2) * 32, outputs = (6 + 2 * 2) * 32 + WIDTH;
    const size_t bytes[NUM_DTYPES] = {4 * weights, 2 * weights, weights + 4 * outputs,
                                      weights + 4 * outputs};
    for (size_t d = 0; d < NUM_DTYPES; d++) {
        struct attn_model *model = open_model(LAYER, dtypes[d]);
        struct attn_model_info info;
        attn_model_describe(&info, model);
        ck_assert_int_eq(info.dtype, dtypes[d]);
        ck_assert_uint_eq(info.weight_bytes, bytes[d] + 4 * outputs); /* and biases */
        memcpy(seen[d], info.fingerprint, sizeof seen[d]);
        attn_model_close(model);
    }
    ck_assert_str_ne(seen[0], seen[1]);
    ck_assert_str_ne(seen[0], seen[2]);
    ck_assert_str_ne(seen[1], seen[2]);
}

TEST(dtype_f16_is_no_dtype_of_weights)
{
    const struct attn_model_options options = {.dtype = ATTN_F16};
    struct attn_model *model;
    ck_assert_int_eq(attn_model_open_random(&model, LAYER, strlen(LAYER), &options, &error),
                     ATTN_UNSUPPORTED);
    ck_assert_str_eq(error.param, "dtype");
}

SUITE(dtype)
