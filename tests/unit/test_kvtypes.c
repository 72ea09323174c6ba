/* test_kvtypes.c: caches of every dtype: how a tile rounds numbers, and attention over the rounded
 * numbers.
 *
 * The oracle attends over the rounded keys and values that attn_cache_read returns, so its
 * difference from the library is the error of computing alone.  The error of rounding has a bound
 * of its own. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "caches/kvcache.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "property_draw.h"
#include "suites.h"

#define NUM_DTYPES 4
#define CASES 120
#define TOLERANCE 1e-5

/* The largest rounding error of a key or value, relative to its largest component
 * (docs/NUMERICS.md). */
static const double rounding[NUM_DTYPES] = {
    [ATTN_F32] = 0, [ATTN_BF16] = 1.0 / 256, [ATTN_F16] = 1.0 / 2048, [ATTN_INT8] = 1.0 / 254};

static struct attn_engine *engines[6]; /* every level that the CPU has, with 1 and 2 threads */
static size_t num_engines;
static struct attn_cache_pool *pool;
static struct attn_error error;

static void setup(void)
{
    for (unsigned i = 0; i < 6; i++) {
        const struct attn_engine_options options = {.threads = 1 + i / 3,
                                                    .level = ATTN_CPU_PORTABLE + i % 3};
        enum attn_status status = attn_engine_open(&engines[num_engines], &options, &error);
        num_engines += status == ATTN_OK;
    }
    ck_assert_uint_ge(num_engines, 2);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
}

static void teardown(void)
{
    free_unused_pool(pool);
    while (num_engines > 0)
        attn_engine_close(engines[--num_engines]);
}

static struct attn_model *open_model(const char *config, enum attn_dtype kv_dtype)
{
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    return opened_random(config, &options);
}

/* ---- Numbers ---- */

/* x rounded to a float of `bits` significant bits whose smallest normal number is 2^least; ties to
 * even. */
static double nearest(double x, int bits, int least)
{
    int exponent;
    if (x == 0)
        return x;
    frexp(x, &exponent);
    int last = (exponent - 1 > least ? exponent - 1 : least) - bits + 1;
    return ldexp(nearbyint(ldexp(x, -last)), last);
}

static double expected(enum attn_dtype dtype, float x, float largest)
{
    switch (dtype) {
    case ATTN_BF16:
        return nearest((double)x, 8, -126);
    case ATTN_F16:
        return nearest((double)x, 11, -14);
    case ATTN_INT8: {
        int exponent; /* the scale is rounded up to 17 bits */
        double bits = ceil(ldexp(frexp((double)(largest / 127), &exponent), 17));
        float scale = (float)ldexp(bits, exponent - 17);
        return (double)((float)nearbyint((double)(x * (1 / scale))) * scale);
    }
    default:
        return (double)x;
    }
}

static void expect_rounded(enum attn_dtype dtype, const float *got, const float *x, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    for (size_t i = 0; i < n; i++) {
        double want = expected(dtype, x[i], largest);
        ck_assert_msg((double)got[i] == want, "%s of %.9g is %.9g, expected %.9g",
                      attn_dtype_name(dtype), (double)x[i], (double)got[i], want);
        ck_assert(fabs((double)got[i] - (double)x[i]) <=
                  rounding[dtype] * (double)largest * (1 + 0x1p-16) + 0x1p-25);
    }
}

/* A random number of any magnitude that fits f16, or one halfway between two of bf16 or of f16. */
static float awkward(struct rng *r)
{
    float x = ldexpf(rng_float(r, 1), (int)rng_below(r, 42) - 26);
    unsigned kind = rng_below(r, 4);
    if (kind > 1)
        return x;
    int exponent;
    float fraction = ldexpf(frexpf(x, &exponent), kind == 0 ? 9 : 12); /* one bit too many */
    return ldexpf(nearbyintf(fraction), exponent - (kind == 0 ? 9 : 12));
}

CASE(types, setup, teardown, 600)

TEST_EACH(kvtypes_a_tile_gives_back_the_nearest_of_its_dtype_from_every_slot, NUM_DTYPES)
{
    const size_t widths[][2] = {{1, 1}, {19, 70}, {64, 64}, {80, 129}, {512, 512}};
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(21);
    for (size_t w = 0; w < COUNT(widths); w++) {
        size_t d = widths[w][0], dv = widths[w][1];
        float *x = malloc(ATTN_TILE * (d + dv) * sizeof *x), scales[2 * ATTN_TILE];
        float *got = malloc((d + dv) * sizeof *got), *again = malloc((d + dv) * sizeof *again);
        struct attn_tile tile = {.k = malloc(ATTN_TILE * attn_tile_key_bytes(dtype, d)),
                                 .v = malloc(ATTN_TILE * attn_tile_value_bytes(dtype, dv)),
                                 .k_scale = dtype == ATTN_INT8 ? scales : NULL,
                                 .v_scale = dtype == ATTN_INT8 ? scales + ATTN_TILE : NULL,
                                 .dtype = dtype};
        for (size_t i = 0; i < ATTN_TILE * (d + dv); i++)
            x[i] = awkward(&r);
        for (size_t s = 0; s < ATTN_TILE; s++) {
            const float *row = x + s * (d + dv);
            ck_assert(attn_tile_put(&tile, s, row, row + d, d, dv));
        }
        for (size_t s = 0; s < ATTN_TILE; s++) {
            const float *row = x + s * (d + dv);
            attn_tile_get(got, got + d, &tile, s, d, dv);
            expect_rounded(dtype, got, row, d);
            expect_rounded(dtype, got + d, row + d, dv);
            /* numbers that were read are stored again as the same numbers */
            ck_assert(attn_tile_put(&tile, s, got, got + d, d, dv));
            attn_tile_get(again, again + d, &tile, s, d, dv);
            ck_assert_mem_eq(again, got, (d + dv) * sizeof *got);
        }
        free(again);
        free(tile.k);
        free(tile.v);
        free(got);
        free(x);
    }
}

TEST_EACH(kvtypes_tiles_hold_the_extremes_and_only_f16_refuses, NUM_DTYPES)
{
    const struct {
        float x;
        bool fits_f16;
    } cases[] = {{0, true},         {-0.0f, true},     {1e-40f, true},  {65504, true},
                 {-65519.0f, true}, {65520.0f, false}, {-1e15f, false}, {1e15f, false},
                 {0x1p-24f, true},  {1.5e-36f, true},  {0x1p-25f, true}};
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    for (size_t i = 0; i < COUNT(cases); i++) {
        float k[ATTN_TILE * 20], v[ATTN_TILE * 20], scales[2 * ATTN_TILE], got[40], row[20] = {0};
        const struct attn_tile tile = {
            .k = k, .v = v, .k_scale = scales, .v_scale = scales + ATTN_TILE, .dtype = dtype};
        for (size_t at = 0; at < 20; at += 19) { /* in a block of 16 numbers, and after it */
            memset(row, 0, sizeof row);
            row[at] = cases[i].x;
            bool fits = attn_tile_put(&tile, 5, row, row, 20, 20);
            ck_assert_int_eq(fits, dtype != ATTN_F16 || cases[i].fits_f16);
            attn_tile_get(got, got + 20, &tile, 5, 20, 20);
            for (size_t j = 0; j < 40 && fits; j++) {
                double want = j % 20 == at ? (double)cases[i].x : 0;
                ck_assert(fabs((double)got[j] - want) <=
                          rounding[dtype] * fabs(want) + (dtype == ATTN_F16 ? 0x1p-25 : 1.5e-36));
            }
        }
    }
}

/* ---- Attention ---- */

/* A sequence of random tokens and the layer that caches them. */
struct sequence {
    struct draw draw;
    struct attn_engine *engine;
    struct attn_model *model;
    const struct attn_layer *layer;
    struct attn_modifiers modifiers;
    struct attn_cache *cache;
    size_t tokens;
};

static double worst[NUM_DTYPES];

static void expect_within(const struct sequence *s, const char *what, const float *got,
                          const double *want, size_t rows, size_t width, double limit)
{
    struct attn_engine_info info;
    attn_engine_describe(&info, s->engine);
    double found = oracle_error(got, want, rows, width);
    ck_assert_msg(found <= limit, "case %u, %s, %s at %s: error %.3g, %.3g is allowed\n  %s",
                  s->draw.seed, attn_dtype_name(s->layer->spec.kv_dtype), what, info.level_name,
                  found, limit, s->draw.json);
}

static void *buffer(struct sequence *s, size_t count, size_t size)
{
    return draw_keep(&s->draw, count, size);
}

/* Checks the k largest weights of each row against the map. */
static void expect_top(const struct attn_outputs *got, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows * got->top_k; i++) {
        const float *row = got->attention_weights + i / got->top_k * columns;
        ck_assert_uint_lt(got->top_index[i], columns);
        ck_assert(got->top_weight[i] == row[got->top_index[i]]);
        ck_assert(i % got->top_k == 0 || got->top_weight[i] <= got->top_weight[i - 1]);
    }
}

/* Tokens that the cache has forgotten read as zeros. */
static void forget(double *rows, size_t heads, size_t tokens, size_t width, size_t first)
{
    for (size_t i = 0; i < heads * tokens * width; i++)
        rows[i] = i / width % tokens < first ? 0 : rows[i];
}

/* Appends rows [at, at + n) and compares all results of the step. */
static void check_step(struct sequence *s, size_t at, size_t n)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    const size_t keys = at + n, columns = attn_weight_columns(spec, keys);
    const size_t rows = spec->num_heads * n, tokens = spec->num_kv_heads * keys;
    const float *x = s->draw.call.hidden_states;
    struct oracle_outputs want = {.output = buffer(s, n * spec->hidden_size, sizeof(double)),
                                  .weights = buffer(s, rows * columns, sizeof(double)),
                                  .lse = buffer(s, rows, sizeof(double)),
                                  .key = buffer(s, tokens * spec->head_dim, sizeof(double)),
                                  .value =
                                      buffer(s, tokens * spec->value_head_dim, sizeof(double))};
    struct attn_step step = {
        .cache = s->cache,
        .position = at,
        .rows = n,
        .hidden_states = x + at * spec->hidden_size,
        .modifiers = s->modifiers,
        .outputs = {.output = buffer(s, n * spec->hidden_size, sizeof(float)),
                    .attention_weights = buffer(s, rows * columns, sizeof(float)),
                    .top_k = columns < 3 ? columns : 3,
                    .top_index = buffer(s, rows * 3, sizeof(uint32_t)),
                    .top_weight = buffer(s, rows * 3, sizeof(float)),
                    .lse = buffer(s, rows, sizeof(float)),
                    .key = buffer(s, tokens * spec->head_dim, sizeof(float)),
                    .value = buffer(s, tokens * spec->value_head_dim, sizeof(float))},
        .commit = true};
    struct attn_step *steps[] = {&step};
    const struct attn_outputs *got = &step.outputs;
    const size_t first = attn_cache_first(s->cache, s->draw.layer);
    ck_assert_int_eq(attn_decode(s->engine, s->model, s->draw.layer, steps, 1), ATTN_OK);
    ck_assert_msg(step.error.status == ATTN_OK, "%s", step.error.message);
    oracle_rounded_step(&want, s->layer, x, &step, got->key, got->value);
    forget(want.key, spec->num_kv_heads, keys, spec->head_dim, first);
    forget(want.value, spec->num_kv_heads, keys, spec->value_head_dim, first);
    /* Keys and values of latents are sums of rounded numbers. */
    const double sums = spec->mla.kv_lora_rank > 0 ? 16 + (double)spec->mla.kv_lora_rank : 1;
    double rounded = sums * rounding[spec->kv_dtype] * (1 + 1e-5) + TOLERANCE;
    expect_within(s, "key", got->key, want.key, tokens, spec->head_dim, rounded);
    expect_within(s, "value", got->value, want.value, tokens, spec->value_head_dim, rounded);
    expect_within(s, "weights", got->attention_weights, want.weights, rows, columns, TOLERANCE);
    expect_within(s, "lse", got->lse, want.lse, spec->num_heads, n, TOLERANCE);
    expect_within(s, "output", got->output, want.output, n, spec->hidden_size, TOLERANCE);
    expect_top(got, rows, columns);
    worst[spec->kv_dtype] =
        fmax(worst[spec->kv_dtype], oracle_error(got->output, want.output, n, spec->hidden_size));
}

/* Checks one sequence in steps of random sizes. */
static void check_sequence(unsigned seed, enum attn_dtype kv_dtype)
{
    struct sequence s = {.engine = engines[seed % num_engines]};
    draw_layer(&s.draw, seed);
    bool cached = !s.draw.spec.is_cross && s.draw.spec.key_size == s.draw.spec.hidden_size &&
                  s.draw.spec.value_size == s.draw.spec.hidden_size;
    bool rescaled =
        s.draw.spec.rope.type == ATTN_ROPE_DYNAMIC ||
        s.draw.spec.rope.type == ATTN_ROPE_LONGROPE; /* rotation depends on the call's length */
    if (cached && !rescaled) {
        s.model = open_model(s.draw.json, kv_dtype);
        s.layer = attn_model_loaded_layer(s.model, s.draw.layer);
        draw_call(&s.draw, &s.layer->spec);
        const struct attn_modifiers *m = &s.draw.call.modifiers;
        s.modifiers = (struct attn_modifiers){.head_mask = m->head_mask,
                                              .scale = m->scale,
                                              .has_softcap = m->has_softcap,
                                              .softcap = m->softcap,
                                              .has_window = m->has_window,
                                              .window_left = m->window_left,
                                              .window_right = m->window_right};
        s.tokens = s.draw.call.queries;
        s.cache = opened_cache(pool, s.model, s.tokens);
        for (size_t at = 0, n; at < s.tokens; at += n) {
            n = 1 + rng_below(&s.draw.rng, (unsigned)(s.tokens - at));
            check_step(&s, at, n);
        }
        attn_cache_free(s.cache);
        attn_model_close(s.model);
    }
    draw_free(&s.draw);
}

TEST_EACH(kvtypes_random_layers_attend_over_what_the_cache_holds, NUM_DTYPES)
{
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    for (unsigned seed = 1; seed <= CASES; seed++)
        check_sequence(seed, dtype);
    printf("kvtypes: %s caches equal the oracle within %.2g of %g allowed\n",
           attn_dtype_name(dtype), worst[dtype], TOLERANCE);
    ck_assert(worst[dtype] > 0);
}

/* ---- Against caches of float32 ---- */

#define TOKENS 160
#define PREFILL 128
#define WIDTH 256
static const char latent_config[] =
    "{\"hidden_size\":256,\"num_attention_heads\":8,\"q_lora_rank\":96,\"kv_lora_rank\":128,"
    "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"value_head_dim\":32,\"rope_theta\":10000,"
    "\"is_causal\":true,\"seed\":3}";
static const char layer_config[] =
    "{\"hidden_size\":256,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":40,"
    "\"value_head_dim\":72,\"rope_theta\":10000,\"attention_bias\":true,\"seed\":3}";

static enum attn_status append(struct attn_cache *cache, const struct attn_model *model,
                               struct attn_engine *engine, const float *x, float *out, size_t rows)
{
    struct attn_step step = {.cache = cache,
                             .position = attn_cache_length(cache, 0),
                             .rows = rows,
                             .hidden_states = x,
                             .outputs = {.output = out},
                             .commit = true};
    struct attn_step *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    error = step.error;
    return step.error.status;
}

/* The outputs [TOKENS][WIDTH] of a prefill and then single steps. */
static float *run_tokens(const char *config, enum attn_dtype dtype, struct attn_engine *engine,
                         const float *x)
{
    struct attn_model *model = open_model(config, dtype);
    struct attn_cache *cache = opened_cache(pool, model, TOKENS);
    float *out = malloc(TOKENS * WIDTH * sizeof *out);
    ck_assert_int_eq(append(cache, model, engine, x, out, PREFILL), ATTN_OK);
    for (size_t t = PREFILL; t < TOKENS; t++)
        ck_assert_int_eq(append(cache, model, engine, x + t * WIDTH, out + t * WIDTH, 1), ATTN_OK);
    attn_cache_free(cache);
    attn_model_close(model);
    return out;
}

/* Compares outputs with those over caches of float32; at most `allowed` of the largest apart. */
static void expect_near(const char *what, const char *config, enum attn_dtype dtype, double allowed)
{
    struct rng r = rng_seeded(5);
    float *x = rng_floats(&r, TOKENS * WIDTH, 1.7f);
    for (size_t e = 0; e < num_engines; e++) {
        float *want = run_tokens(config, ATTN_F32, engines[e], x);
        float *got = run_tokens(config, dtype, engines[e], x);
        double most = 0, largest = 0;
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            const double size = fabs((double)want[i]),
                         difference = fabs((double)(got[i] - want[i]));
            largest =
                size > largest ? size : largest; /* gcc 12 for arm64 does not compile fmax here */
            most = difference > most ? difference : most;
        }
        if (e == 0)
            printf("kvtypes: %s %s move outputs by %.2g of the largest, %g is allowed\n",
                   attn_dtype_name(dtype), what, most / largest, allowed);
        ck_assert(most <= allowed * largest);
        ck_assert(dtype == ATTN_F32 || most > 0);
        free(want);
        free(got);
    }
    free(x);
}

TEST_EACH(kvtypes_outputs_stay_near_those_of_a_float32_cache, NUM_DTYPES)
{
    static const double allowed[NUM_DTYPES] = {0, 8e-3, 1e-3, 1.2e-2}; /* of the largest output */
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    expect_near("caches", layer_config, dtype, allowed[dtype]);
    expect_near("latents", latent_config, dtype, allowed[dtype]);
}

/* ---- Caches ---- */

static void expect_same(const struct attn_cache *a, const struct attn_cache *b, size_t count)
{
    size_t n = 2 * count * (40 + 72);
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    attn_cache_read(x, x + 2 * count * 40, a, 0, count);
    attn_cache_read(y, y + 2 * count * 40, b, 0, count);
    ck_assert_mem_eq(x, y, n * sizeof *x);
    free(x);
    free(y);
}

TEST_EACH(kvtypes_forks_and_truncation_keep_tokens_to_the_bit, NUM_DTYPES)
{
    static const size_t token_bytes[NUM_DTYPES] = {896, 448, 448, 240}; /* 2 heads of 40 + 72 */
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(7);
    float *x = rng_floats(&r, TOKENS * WIDTH, 1.7f), *out = malloc(TOKENS * WIDTH * sizeof *out);
    struct attn_model *model = open_model(layer_config, dtype);
    struct attn_cache *cache = opened_cache(pool, model, 2 * TOKENS), *fork;
    struct attn_cache *other = opened_cache(pool, model, 2 * TOKENS);
    struct attn_model_info info;
    attn_model_describe(&info, model);
    ck_assert_uint_eq(info.cache_bytes_per_token, token_bytes[dtype]);
    ck_assert_int_eq(append(cache, model, engines[0], x, out, 130), ATTN_OK);
    ck_assert_uint_eq(attn_cache_bytes(cache), 3 * 64 * token_bytes[dtype]);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * 64 * token_bytes[dtype]);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 100, &error), ATTN_OK);
    expect_same(fork, cache, 100);
    ck_assert_int_eq(append(fork, model, engines[0], x, out, 20), ATTN_OK); /* copies a block */
    ck_assert_uint_eq(attn_cache_pool_used(pool), /* and the two holders of the shared block */
                      4 * 64 * token_bytes[dtype] + 2 * sizeof(void *));
    expect_same(fork, cache, 100);
    attn_cache_truncate(cache, 100);
    ck_assert_int_eq(append(cache, model, engines[0], x, out, 20), ATTN_OK);
    expect_same(fork, cache, 120); /* the same tokens in the same slots, appended differently */
    ck_assert_int_eq(append(other, model, engines[0], x, out, 130), ATTN_OK);
    expect_same(other, cache, 100);
    attn_cache_free(cache);
    expect_same(fork, other, 100);
    attn_cache_free(fork);
    attn_cache_free(other);
    attn_model_close(model);
    free(x);
    free(out);
}

TEST_EACH(kvtypes_a_key_beyond_f16_fails_its_step_alone_and_keeps_the_cache, NUM_DTYPES)
{
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(9);
    float *x = rng_floats(&r, 3 * WIDTH, 1), out[3 * WIDTH], large[WIDTH];
    struct attn_model *model = open_model(layer_config, dtype);
    struct attn_cache *cache = opened_cache(pool, model, 10),
                      *other = opened_cache(pool, model, 10);
    for (size_t i = 0; i < WIDTH; i++)
        large[i] = x[i] * 1e6f;
    ck_assert_int_eq(append(cache, model, engines[0], x, out, 2), ATTN_OK);
    struct attn_step step[2] = {
        {.cache = cache, .position = 2, .rows = 1, .hidden_states = large, .commit = true},
        {.cache = other, .position = 0, .rows = 1, .hidden_states = x, .commit = true}};
    struct attn_step *steps[] = {&step[0], &step[1]};
    ck_assert_int_eq(attn_decode(engines[0], model, 0, steps, 2), ATTN_OK);
    ck_assert_int_eq(step[0].error.status, dtype == ATTN_F16 ? ATTN_OVERFLOW : ATTN_OK);
    ck_assert_int_eq(step[1].error.status, ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(cache, 0), dtype == ATTN_F16 ? 2 : 3);
    if (dtype == ATTN_F16) {
        ck_assert_str_eq(step[0].error.message, "a key or value does not fit the cache's f16");
        ck_assert_int_eq(append(cache, model, engines[0], x + 2 * WIDTH, out, 1), ATTN_OK);
    }
    attn_cache_free(cache);
    attn_cache_free(other);
    attn_model_close(model);
    free(x);
}

/* ---- Ends of ranges ---- */

#define END_TOKENS 192 /* rows of one head: key [NARROW] and value [NARROW] each */
#define NARROW 20

/* A number at an end of some range, or a little inside of it; or one of any magnitude. */
static float at_an_end(struct rng *r, enum attn_dtype dtype)
{
    static const float ends[] = {0,       1e15f,     0x1p-149f, 0x1p-126f, 127 * 0x1p-126f,
                                 0x1p-24, 0x1p-14f,  65504,     65519,     1e15f / 127,
                                 1,       0x1p49f,   3e-39f,    1e-30f,    9.98e14f,
                                 255,     0x1.fep+5, 1e14f};
    float x = ends[rng_below(r, COUNT(ends))];
    for (unsigned steps = rng_below(r, 4); steps > 0; steps--)
        x = nextafterf(x, 0);
    if (rng_below(r, 3) == 0)
        x = fminf(ldexpf(rng_float(r, 1), (int)rng_below(r, 199) - 149), 1e15f);
    if (rng_below(r, 4) == 0) /* scales of int8 are rounded up most where they have bits to lose */
        x = 1e15f * (1 - rng_float(r, 0x1p-12f) * rng_float(r, 1));
    x = fmaxf(-1e15f, fminf(x, 1e15f));
    if (dtype == ATTN_F16 && fabsf(x) >= 65520)
        x = 65519.996f;
    return rng_below(r, 2) ? x : -x;
}

static char *export_of(size_t *size, const struct attn_cache *cache)
{
    struct attn_export *state;
    ck_assert_int_eq(attn_export_open(&state, cache, NULL, 0, &error), ATTN_OK);
    *size = attn_export_bytes(state);
    char *file = malloc(*size);
    while (attn_export_run(state, file, 1 << 20))
        continue;
    attn_export_close(state);
    return file;
}

/* Reads the file into the cache, which is empty. */
static void import_into(struct attn_cache *cache, const char *file, size_t size)
{
    struct attn_import *state;
    bool more = true;
    ck_assert_int_eq(attn_import_open(&state, file, size, &error), ATTN_OK);
    ck_assert_int_eq(attn_import_begin(state, cache, &error), ATTN_OK);
    while (more)
        ck_assert_msg(attn_import_run(&more, state, 4096, &error) == ATTN_OK, "%s", error.message);
    attn_import_close(state);
}

TEST_EACH(kvtypes_what_a_cache_accepts_is_exported_and_read_back_bit_for_bit, NUM_DTYPES)
{
    enum { COUNT = END_TOKENS * NARROW };
    static const char config[] = "{\"hidden_size\":20,\"num_attention_heads\":1,\"seed\":3}";
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(20);
    static float rows[2 * COUNT], stored[2 * COUNT], again[2 * COUNT];
    struct attn_model *model = open_model(config, dtype);
    for (unsigned round = 0; round < 40; round++) {
        struct attn_cache *caches[3];
        size_t size;
        for (size_t i = 0; i < 3; i++)
            caches[i] = opened_cache(pool, model, END_TOKENS);
        for (size_t i = 0; i < 2 * COUNT; i++)
            rows[i] = at_an_end(&r, dtype);
        ck_assert_int_eq(attn_cache_write(caches[0], 0, END_TOKENS, rows, rows + COUNT, &error),
                         ATTN_OK);
        attn_cache_read(stored, stored + COUNT, caches[0], 0, END_TOKENS);
        char *file = export_of(&size, caches[0]);
        import_into(caches[1], file, size);
        free(file);
        ck_assert_msg(attn_cache_write(caches[2], 0, END_TOKENS, stored, stored + COUNT, &error) ==
                          ATTN_OK,
                      "%s", error.message);
        for (size_t i = 1; i < 3; i++) {
            attn_cache_read(again, again + COUNT, caches[i], 0, END_TOKENS);
            ck_assert_mem_eq(again, stored, sizeof stored);
        }
        for (size_t i = 0; i < 3; i++)
            attn_cache_free(caches[i]);
    }
    attn_model_close(model);
}

TEST_EACH(kvtypes_a_number_beyond_what_a_tile_gives_back_is_refused, NUM_DTYPES)
{
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    static const char config[] = "{\"hidden_size\":20,\"num_attention_heads\":1,\"seed\":3}";
    struct attn_model *model = open_model(config, dtype);
    struct attn_cache *cache = opened_cache(pool, model, 4);
    float row[NARROW] = {0}, got[NARROW];
    const float largest = attn_tile_largest(dtype);
    ck_assert(largest >= ATTN_MAX_MAGNITUDE && largest <= ATTN_MAX_MAGNITUDE * (1 + 0x1p-15f));
    row[3] = dtype == ATTN_F16 ? -65504 : -largest;
    ck_assert_int_eq(attn_cache_write(cache, 0, 1, row, row, &error), ATTN_OK);
    attn_cache_read(got, NULL, cache, 0, 1);
    ck_assert(got[3] <= 0 && got[3] >= row[3]);
    row[3] = nextafterf(-largest, -INFINITY);
    ck_assert_int_eq(attn_cache_write(cache, 0, 1, row, row, &error), ATTN_OUT_OF_RANGE);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 1);
    attn_cache_free(cache);
    attn_model_close(model);
}

SUITE(kvtypes)
