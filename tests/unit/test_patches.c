/* test_patches.c: layers whose tokens are the patches of an image, and layers that attend to a
 * number of tokens at most: what a call must say, and what is refused. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "rng.h"
#include "suites.h"

#define DINOV3 "tests/golden/dinov3_vit/model" /* 5 tokens, then patches */
#define BEIT "tests/golden/beit/model"         /* 1 token, then 4 by 4 patches */
#define BIG_BIRD "tests/golden/big_bird/model/model.safetensors"
#define WIDTH 32
#define MOST 40

static struct attn_engine *engine;
static struct attn_model *model;
static struct attn_error error;
static float x[MOST * WIDTH], y[MOST * WIDTH], z[MOST * WIDTH];

static void open_model(const char *path, const char *config)
{
    struct rng r = rng_seeded(3);
    const struct attn_engine_options options = {.threads = 1};
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    ck_assert_msg(attn_model_open(&model, path, &(struct attn_model_options){.config = config},
                                  &error) == ATTN_OK,
                  "%s", error.message);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    float *random = rng_floats(&r, MOST * WIDTH, 1);
    for (size_t i = 0; i < MOST * WIDTH; i++)
        x[i] = random[i];
    free(random);
}

static void close_model(void)
{
    attn_model_close(model);
    attn_engine_close(engine);
}

/* Attends over the first `tokens` rows, of a grid of so many rows and columns. */
static enum attn_status attend(float *out, size_t tokens, size_t rows, size_t columns)
{
    const struct attn_attend_args args = {.batch = 1,
                                          .queries = tokens,
                                          .hidden_states = x,
                                          .modifiers.grid = {rows, columns},
                                          .outputs.output = out};
    return attn_attend(engine, model, 0, &args, &error);
}

static enum attn_status step(size_t rows)
{
    struct attn_cache_pool *pool;
    struct attn_step one = {.rows = rows, .hidden_states = x, .outputs.output = y, .commit = true};
    struct attn_step *steps[] = {&one};
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)1 << 20), ATTN_OK);
    ck_assert_int_eq(attn_cache_new(&one.cache, pool, model, MOST, &error), ATTN_OK);
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    attn_cache_free(one.cache);
    attn_cache_pool_free(pool);
    error = one.error;
    return one.error.status;
}

static double difference(void)
{
    double most = 0;
    for (size_t i = 0; i < 15 * WIDTH; i++)
        if (fabsf(y[i] - z[i]) > (float)most) /* fmax: an internal error of gcc 12 for arm64 */
            most = (double)fabsf(y[i] - z[i]);
    return most;
}

TEST(patches_rotate_by_the_grid_that_the_call_gives)
{
    open_model(DINOV3, NULL);
    ck_assert_int_eq(attend(y, 15, 2, 5), ATTN_OK);
    ck_assert_int_eq(attend(z, 15, 2, 5), ATTN_OK);
    ck_assert_double_eq(difference(), 0);
    ck_assert_int_eq(attend(z, 15, 5, 2), ATTN_OK);
    ck_assert_double_gt(difference(), 1e-3);
    close_model();
}

TEST(patches_without_their_grid_or_of_another_number_are_refused)
{
    open_model(DINOV3, NULL);
    ck_assert_int_eq(attend(y, 15, 0, 0), ATTN_INVALID);
    ck_assert_str_eq(error.param, "grid");
    ck_assert_int_eq(attend(y, 15, 3, 4), ATTN_SHAPE_MISMATCH);
    ck_assert_str_eq(error.param, "grid");
    ck_assert_int_eq(attend(y, 15, SIZE_MAX, SIZE_MAX), ATTN_SHAPE_MISMATCH);
    ck_assert_int_eq(step(15), ATTN_UNSUPPORTED);
    close_model();
}

TEST(patches_with_a_bias_have_one_resolution_and_no_steps)
{
    open_model(BEIT, NULL);
    ck_assert_int_eq(attend(y, 17, 0, 0), ATTN_OK);
    ck_assert_int_eq(attend(y, 16, 0, 0), ATTN_SHAPE_MISMATCH);
    ck_assert_int_eq(attend(y, 26, 0, 0), ATTN_SHAPE_MISMATCH);
    ck_assert_int_eq(step(17), ATTN_UNSUPPORTED);
    close_model();
}

TEST(sequences_beyond_full_attention_are_refused)
{
    open_model(BIG_BIRD, "{\"model_type\":\"big_bird\",\"hidden_size\":32,"
                         "\"num_attention_heads\":4,\"num_hidden_layers\":2,"
                         "\"block_size\":2,\"num_random_blocks\":1}");
    ck_assert_int_eq(attend(y, 14, 0, 0), ATTN_OK);
    ck_assert_int_eq(attend(y, 15, 0, 0), ATTN_UNSUPPORTED);
    ck_assert_str_eq(error.param, "hidden_states");
    ck_assert_int_eq(step(14), ATTN_OK);
    ck_assert_int_eq(step(15), ATTN_UNSUPPORTED);
    close_model();
}

SUITE(patches)
