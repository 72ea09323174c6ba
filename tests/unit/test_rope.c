/* test_rope.c: the frequencies of every type of RoPE, rotation, and checks of specifications.
 *
 * Expected frequencies were computed in PyTorch's float32 arithmetic, some by hand.  1.5e-7 of a
 * value is about its last bit. */
#include "engine/rope.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "opened.h"
#include "suites.h"

#define MAX_DIM 64

/* A valid specification of any type; each test changes the fields that it is about. */
static struct attn_rope_spec spec_of(enum attn_rope_type type, size_t dim)
{
    static const double ones[MAX_DIM / 2] = {1, 1, 1, 1, 1, 1, 1, 1};
    return (struct attn_rope_spec){.type = type,
                                   .dim = dim,
                                   .theta = 10000,
                                   .factor = 4,
                                   .attention_factor = 1,
                                   .original_max_position = 4096,
                                   .low_freq_factor = 1,
                                   .high_freq_factor = 4,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .truncate = true,
                                   .short_factor = ones,
                                   .long_factor = ones};
}

static void require_frequencies(const struct attn_rope_spec *spec, int64_t length,
                                const float *expected)
{
    float got[MAX_DIM / 2];
    attn_rope_frequencies(got, spec, length);
    for (size_t i = 0; i < spec->dim / 2; i++)
        ck_assert_msg(fabsf(got[i] - expected[i]) <= 1.5e-7f * expected[i],
                      "frequency %zu is %.9g, expected %.9g", i, (double)got[i],
                      (double)expected[i]);
}

/* ---- Frequencies ---- */

TEST(rope_default_frequencies_are_powers_of_theta)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_DEFAULT, 8);
    require_frequencies(&spec, 1, (const float[]){1, 0.1f, 0.01f, 0.001f});
    require_frequencies(&spec, 1 << 20, (const float[]){1, 0.1f, 0.01f, 0.001f});
}

TEST(rope_linear_divides_all_frequencies_by_the_factor)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_LINEAR, 8);
    require_frequencies(&spec, 1, (const float[]){0.25f, 0.025f, 0.0025f, 0.00025f});
}

TEST(rope_dynamic_is_plain_up_to_the_trained_length)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_DYNAMIC, 8);
    ck_assert(!attn_rope_is_rescaled(&spec, 4096));
    require_frequencies(&spec, 4096, (const float[]){1, 0.1f, 0.01f, 0.001f});
}

/* theta' = 100 * (2 * 20 / 10 - 1)^(4 / 2) = 900. */
TEST(rope_dynamic_grows_theta_with_the_length)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_DYNAMIC, 4);
    spec.theta = 100;
    spec.factor = 2;
    spec.original_max_position = 10;
    ck_assert(attn_rope_is_rescaled(&spec, 20));
    require_frequencies(&spec, 20, (const float[]){1, 1.0f / 30});
    spec = spec_of(ATTN_ROPE_DYNAMIC, 16);
    spec.factor = 2;
    spec.original_max_position = 16;
    require_frequencies(&spec, 17,
                        (const float[]){1, 0.310951412f, 0.0966907665f, 0.030066127f,
                                        0.00934910402f, 0.0029071169f, 0.000903972075f,
                                        0.000281091343f});
    require_frequencies(&spec, 40,
                        (const float[]){1, 0.259412825f, 0.0672950074f, 0.017457189f,
                                        0.00452861842f, 0.00117478159f, 0.000304753397f,
                                        7.90569466e-05f});
}

TEST(rope_yarn_keeps_fast_pairs_divides_slow_ones_and_blends_between)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_YARN, 16);
    require_frequencies(&spec, 1,
                        (const float[]){1, 0.316227764f, 0.100000001f, 0.025693506f, 0.00624999963f,
                                        0.00138349656f, 0.000250000012f, 7.90569466e-05f});
}

TEST(rope_yarn_without_truncation_has_fractional_ends)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_YARN, 16);
    spec.truncate = false;
    require_frequencies(&spec, 1,
                        (const float[]){1, 0.316227764f, 0.100000001f, 0.0286136102f, 0.006556971f,
                                        0.00128563191f, 0.000250000012f, 7.90569466e-05f});
    spec.theta = 150000;
    spec.factor = 32;
    require_frequencies(&spec, 1,
                        (const float[]){1, 0.225418001f, 0.0508132726f, 0.00679495931f,
                                        0.000456483918f, 1.8188337e-05f, 4.09997847e-06f,
                                        9.24208962e-07f});
}

/* With theta 10,000 and 8 components a pair of index 1.5 would make 20.6 turns in 4,096 tokens. */
TEST(rope_yarn_whose_ends_meet_has_a_step)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_YARN, 8);
    spec.beta_fast = spec.beta_slow = 20.6;
    spec.truncate = false;
    require_frequencies(&spec, 1, (const float[]){1, 0.1f, 0.0025f, 0.00025f});
}

TEST(rope_llama3_divides_long_wavelengths_and_blends_medium_ones)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_LLAMA3, 16);
    spec.theta = 500000;
    spec.factor = 8;
    spec.original_max_position = 8192;
    require_frequencies(&spec, 1,
                        (const float[]){1, 0.193922758f, 0.0376060307f, 0.00729266508f,
                                        0.000524846022f, 3.42810235e-05f, 6.64786967e-06f,
                                        1.28917316e-06f});
}

TEST(rope_longrope_takes_short_factors_up_to_the_trained_length_then_long_ones)
{
    static const double near[] = {1, 1, 2, 4}, far[] = {2, 5, 10, 50};
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_LONGROPE, 8);
    spec.short_factor = near;
    spec.long_factor = far;
    ck_assert(!attn_rope_is_rescaled(&spec, 4096));
    require_frequencies(&spec, 4096, (const float[]){1, 0.1f, 0.005f, 0.00025f});
    ck_assert(attn_rope_is_rescaled(&spec, 4097));
    require_frequencies(&spec, 4097, (const float[]){0.5f, 0.02f, 0.001f, 0.00002f});
}

TEST(rope_is_rescaled_only_where_the_type_depends_on_the_length)
{
    for (int type = 0; type < ATTN_NUM_ROPE_TYPES; type++) {
        struct attn_rope_spec spec = spec_of((enum attn_rope_type)type, 8);
        bool depends = type == ATTN_ROPE_DYNAMIC || type == ATTN_ROPE_LONGROPE;
        ck_assert_int_eq(attn_rope_is_rescaled(&spec, 4097), depends);
        ck_assert(!attn_rope_is_rescaled(&spec, 4096));
    }
}

/* ---- Rotation ---- */

/* Expected are PyTorch's cosines and sines at position 4,000 for theta 10,000 and 16 components. */
TEST(rope_cos_sin_takes_the_float32_angle)
{
    static const float expected[] = {-0.729946971f, -0.407730937f, -0.52529633f,  0.676787972f,
                                     -0.666938066f, 0.996578872f,  -0.653643608f, 0.301137358f,
                                     -0.683503807f, 0.91310215f,   -0.850919366f, 0.736177981f,
                                     0.745113134f,  0.0826467574f, -0.756802499f, 0.953580797f};
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_DEFAULT, 16);
    float frequencies[8], cos_sin[16];
    attn_rope_frequencies(frequencies, &spec, 4001);
    attn_rope_cos_sin(cos_sin, &spec, frequencies, 4000, false);
    for (size_t i = 0; i < 16; i++)
        ck_assert_float_eq_tol(cos_sin[i], expected[i], 2e-7f);
}

TEST(rope_attention_factor_multiplies_cosine_and_sine)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_YARN, 4);
    float frequencies[] = {1, 0.5f}, plain[4], cos_sin[4];
    attn_rope_cos_sin(plain, &spec, frequencies, 3, false);
    spec.attention_factor = 1.25;
    spec.long_attention_factor = 2.5;
    attn_rope_cos_sin(cos_sin, &spec, frequencies, 3, false);
    for (size_t i = 0; i < 4; i++)
        ck_assert_float_eq(cos_sin[i], plain[i] * 1.25f);
    attn_rope_cos_sin(cos_sin, &spec, frequencies, 3, true); /* beyond the trained length */
    for (size_t i = 0; i < 4; i++)
        ck_assert_float_eq(cos_sin[i], plain[i] * 2.5f);
    attn_rope_cos_sin(cos_sin, &spec, frequencies, 0, false);
    ck_assert_float_eq(cos_sin[0], 1.25f);
    ck_assert_float_eq(cos_sin[3], 0);
}

/* Cosines and sines: a quarter turn of pair 0, which makes (a, b) (-b, a), and none of pair 1. */
static const float quarter[] = {0, 1, 1, 0};

TEST(rope_rotates_halves_and_leaves_what_is_beyond_dim)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_DEFAULT, 4);
    float x[] = {1, 2, 3, 4, 5, 6};
    attn_rope_rotate(x, &spec, quarter);
    ck_assert_mem_eq(x, ((const float[]){-3, 2, 1, 4, 5, 6}), sizeof x);
}

TEST(rope_rotates_neighbours_where_interleaved)
{
    struct attn_rope_spec spec = spec_of(ATTN_ROPE_DEFAULT, 4);
    spec.interleaved = true;
    float x[] = {1, 2, 3, 4, 5, 6};
    attn_rope_rotate(x, &spec, quarter);
    ck_assert_mem_eq(x, ((const float[]){-2, 1, 3, 4, 5, 6}), sizeof x);
}

/* ---- Checking ---- */

TEST(rope_check_takes_every_type)
{
    for (int type = 1; type < ATTN_NUM_ROPE_TYPES; type++) {
        struct attn_rope_spec spec = spec_of((enum attn_rope_type)type, 8);
        struct attn_error error = {0};
        ck_assert_msg(attn_rope_check(&spec, 8, &error) == ATTN_OK, "%s", error.message);
    }
}

static void require_refused(struct attn_rope_spec spec, const char *param, const char *message)
{
    struct attn_error error = {0};
    ck_assert_int_eq(attn_rope_check(&spec, 8, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, param);
    ck_assert_msg(strstr(error.message, message) != NULL, "\"%s\" does not say \"%s\"",
                  error.message, message);
}

#define REFUSED(type, field, value, param, message)    \
    do {                                               \
        struct attn_rope_spec spec = spec_of(type, 8); \
        spec.field = value;                            \
        require_refused(spec, param, message);         \
    } while (0)

TEST(rope_check_refuses_widths_that_cannot_be_paired)
{
    REFUSED(ATTN_ROPE_DEFAULT, dim, 0, "head_dim", "width is 0");
    REFUSED(ATTN_ROPE_DEFAULT, dim, 7, "head_dim", "width is 7");
    REFUSED(ATTN_ROPE_DEFAULT, dim, 10, "head_dim", "at most head_dim 8");
    REFUSED(ATTN_ROPE_DYNAMIC, dim, 2, "head_dim", "above 2 for dynamic");
}

TEST(rope_check_refuses_types_that_are_none)
{
    REFUSED(ATTN_ROPE_DEFAULT, type, ATTN_ROPE_NONE, "rope_type", "number 0");
    REFUSED(ATTN_ROPE_DEFAULT, type, (enum attn_rope_type)ATTN_NUM_ROPE_TYPES, "rope_type",
            "allowed are 1 to 7");
}

TEST(rope_check_refuses_numbers_out_of_bounds)
{
    REFUSED(ATTN_ROPE_DEFAULT, theta, 0, "rope_theta", "rope_theta is 0");
    REFUSED(ATTN_ROPE_DEFAULT, theta, (double)NAN, "rope_theta", "nan");
    REFUSED(ATTN_ROPE_DEFAULT, theta, (double)INFINITY, "rope_theta", "allowed are 1e-06 to 1e+18");
    REFUSED(ATTN_ROPE_DEFAULT, attention_factor, 0, "attention_factor", "attention_factor is 0");
    REFUSED(ATTN_ROPE_LINEAR, factor, 0, "factor", "factor is 0");
    REFUSED(ATTN_ROPE_YARN, factor, -2, "factor", "factor is -2");
    REFUSED(ATTN_ROPE_DYNAMIC, original_max_position, 0, "original_max_position_embeddings",
            "is 0, allowed are 1 to");
    REFUSED(ATTN_ROPE_YARN, theta, 1, "rope_theta", "above 1 for yarn");
    REFUSED(ATTN_ROPE_YARN, beta_slow, 0, "beta_slow", "beta_slow is 0");
    REFUSED(ATTN_ROPE_YARN, beta_slow, 33, "beta_fast", "at least beta_slow, 33");
    REFUSED(ATTN_ROPE_LLAMA3, low_freq_factor, 5, "low_freq_factor", "above high_freq_factor, 4");
    REFUSED(ATTN_ROPE_LLAMA3, high_freq_factor, 1e9, "high_freq_factor", "1e+09");
}

TEST(rope_check_refuses_longrope_factors_that_are_missing_or_out_of_bounds)
{
    static const double wrong[] = {1, 2, 0, 4};
    REFUSED(ATTN_ROPE_LONGROPE, short_factor, NULL, "short_factor", "missing, needs 4 numbers");
    REFUSED(ATTN_ROPE_LONGROPE, long_factor, NULL, "long_factor", "missing, needs 4 numbers");
    REFUSED(ATTN_ROPE_LONGROPE, long_factor, wrong, "long_factor", "holds 0 at element 2");
}

TEST(rope_check_looks_at_nothing_that_the_type_does_not_read)
{
    struct attn_rope_spec spec = {
        .type = ATTN_ROPE_DEFAULT, .dim = 8, .theta = 10000, .attention_factor = 1};
    ck_assert_int_eq(attn_rope_check(&spec, 8, NULL), ATTN_OK);
}

/* At the extremes of all bounds no cosine or sine is NaN or infinite. */
TEST(rope_at_its_bounds_stays_finite)
{
    static const double least[] = {1e-6, 1e-6, 1e-6, 1e-6};
    float frequencies[4], cos_sin[8];
    for (int type = 1; type < ATTN_NUM_ROPE_TYPES; type++)
        for (int i = 0; i < 8; i++) {
            struct attn_rope_spec spec = spec_of((enum attn_rope_type)type, 8);
            spec.theta = i & 1 ? 1e18 : type == ATTN_ROPE_YARN ? 1.0000001 : 1e-6;
            spec.factor = i & 2 ? 1e6 : 1e-6;
            spec.original_max_position = i & 4 ? 2147483647 : 1;
            spec.short_factor = spec.long_factor = least;
            ck_assert_int_eq(attn_rope_check(&spec, 8, NULL), ATTN_OK);
            attn_rope_frequencies(frequencies, &spec, INT32_MAX);
            attn_rope_cos_sin(cos_sin, &spec, frequencies, INT32_MAX, false);
            for (size_t j = 0; j < 8; j++)
                ck_assert_float_finite(cos_sin[j]);
        }
}

/* ---- Sessions of longrope -------------------------------------------------------------------- */

#define TRAINED 8
#define LONGER 14
#define WIDTH 8

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_model *model;
static struct attn_error error;
static float x[LONGER * WIDTH], whole[LONGER * WIDTH];

/* A model that is trained for 8 tokens, and the outputs of a prefill of 14. */
static void open_long_model(void)
{
    static const char config[] =
        "{\"hidden_size\":8,\"num_attention_heads\":2,\"seed\":3,\"max_position_embeddings\":64,"
        "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1.1],"
        "\"long_factor\":[2,30],\"original_max_position_embeddings\":8}}";
    struct attn_attend_args args = {
        .batch = 1, .queries = LONGER, .hidden_states = x, .outputs = {.output = whole}};
    for (size_t i = 0; i < LONGER * WIDTH; i++)
        x[i] = (float)((i * 37) % 19) / 9 - 1;
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)1 << 20), ATTN_OK);
    model = opened_random(config, NULL);
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OK);
}

static void close_long_model(void)
{
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_model_close(model);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}

static enum attn_status step(float *out, struct attn_cache *cache, size_t rows)
{
    const size_t at = attn_cache_length(cache, 0);
    struct attn_step one = {.cache = cache,
                            .position = at,
                            .rows = rows,
                            .hidden_states = x + at * WIDTH,
                            .outputs = {.output = out},
                            .commit = true};
    struct attn_step *steps[] = {&one};
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    error = one.error;
    return one.error.status;
}

CASE(sessions, open_long_model, close_long_model, 0)

TEST(rope_a_session_does_not_cross_the_trained_length)
{
    struct attn_cache *cache;
    float out[LONGER * WIDTH];
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 64, &error), ATTN_OK);
    ck_assert_int_eq(step(out, cache, TRAINED - 2), ATTN_OK);
    ck_assert_int_eq(step(out, cache, 3), ATTN_ROPE_CHANGES);
    ck_assert_ptr_nonnull(strstr(error.message, "prefill a new session with all tokens"));
    ck_assert_int_eq(step(out, cache, 2), ATTN_OK);
    ck_assert_int_eq(step(out, cache, 1), ATTN_ROPE_CHANGES);
    ck_assert_uint_eq(attn_cache_length(cache, 0), TRAINED);
    ck_assert_uint_eq(attn_cache_lowest_length(cache), 0);
    attn_cache_free(cache);
}

TEST(rope_a_session_beyond_the_trained_length_is_its_prefill_and_stays_there)
{
    struct attn_cache *cache, *fork;
    float out[LONGER * WIDTH];
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 64, &error), ATTN_OK);
    ck_assert_int_eq(step(out, cache, LONGER - 2), ATTN_OK);
    for (size_t at = LONGER - 2; at < LONGER; at++) {
        ck_assert_int_eq(step(out, cache, 1), ATTN_OK);
        for (size_t i = 0; i < WIDTH; i++)
            ck_assert_float_eq_tol(out[i], whole[at * WIDTH + i], 1e-5F);
    }
    ck_assert_uint_eq(attn_cache_lowest_length(cache), TRAINED + 1);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, TRAINED, &error), ATTN_FORGOTTEN);
    ck_assert(!attn_cache_truncate(cache, TRAINED));
    ck_assert(attn_cache_truncate(cache, TRAINED + 1));
    ck_assert_int_eq(step(out, cache, 1), ATTN_OK);
    ck_assert(attn_cache_truncate(cache, 0));
    ck_assert_int_eq(step(out, cache, 1), ATTN_OK);
    attn_cache_free(cache);
}

SUITE(rope)
