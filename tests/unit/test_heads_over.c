/* test_heads_over.c: what heads put out, and the gates of a position bias, are numbers, or the call
 * is refused. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "basics/random.h"
#include "models/model.h"
#include "suites.h"

enum { WIDTH = 64, HEADS = 4, ROWS = 20, BATCH = 2, NUMBERS = BATCH * ROWS * WIDTH };

#define LAYER "\"hidden_size\":64,\"num_attention_heads\":4,"

static struct attn_engine *engine;
static struct attn_model *model;
static struct attn_error error;
static float x[NUMBERS], heads[NUMBERS];

static void set_up(void)
{
    const struct attn_engine_options options = {.threads = 2};
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    attn_random_uniform(x, NUMBERS, attn_random_stream(5, 1, 1), 1);
}

static void tear_down(void)
{
    attn_model_close(model);
    attn_engine_close(engine);
}

static enum attn_status open_random(const char *config)
{
    const enum attn_status status =
        attn_model_open_random(&model, config, strlen(config), NULL, &error);
    return status == ATTN_OK ? attn_model_load(model, &error) : status;
}

static enum attn_status attend(size_t batch, const struct attn_modifiers *modifiers)
{
    const struct attn_attend_args args = {.batch = batch,
                                          .queries = ROWS,
                                          .hidden_states = x,
                                          .modifiers = *modifiers,
                                          .outputs.head_output = heads};
    return attn_attend(engine, model, 0, &args, &error);
}

static const char *const normalized[] = {"\"output_norm\":true", "\"differential\":true"};

CASE(heads_over, set_up, tear_down, 0)

/* A row that sees no key is all zeros, which an eps of 0 would divide by 0. */
TEST_EACH(heads_over_norms_need_an_eps, 2)
{
    static const uint8_t nothing[ROWS * ROWS];
    char config[160];
    snprintf(config, sizeof config, "{" LAYER "%s,\"rms_norm_eps\":%s}", normalized[_i], "0");
    ck_assert_int_eq(open_random(config), ATTN_OUT_OF_RANGE);
    ck_assert_msg(strstr(error.message, "norm_eps") != NULL, "%s", error.message);
    attn_model_close(model);
    snprintf(config, sizeof config, "{" LAYER "%s,\"rms_norm_eps\":%s}", normalized[_i], "1e-30");
    ck_assert_msg(open_random(config) == ATTN_OK, "%s", error.message);
    ck_assert_int_eq(attend(1, &(struct attn_modifiers){.attention_mask = nothing}), ATTN_OK);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        ck_assert_float_eq(heads[i], 0);
}

/* The second sequence of two puts out more than float32 holds. */
static void expect_over(const char *config, float lambda)
{
    static const float mask[HEADS] = {1e15f, 1e15f, 1e15f, 1e15f};
    ck_assert_msg(open_random(config) == ATTN_OK, "%s", error.message);
    if (lambda != 0) /* no checkpoint of this size makes one as large */
        *(float *)(uintptr_t)&attn_model_loaded_layer(model, 0)->lambda = lambda;
    const struct attn_modifiers large = {.head_mask = mask};
    ck_assert_msg(attend(BATCH, &large) == ATTN_OK, "%s", error.message);
    for (size_t i = NUMBERS / BATCH; i < NUMBERS; i++)
        x[i] *= 3e13f;
    ck_assert_int_eq(attend(BATCH, &large), ATTN_OVERFLOW);
    ck_assert_msg(strstr(error.message, "float32") != NULL, "%s", error.message);
}

TEST(heads_over_gates_of_each_sequence_are_checked)
{
    expect_over("{" LAYER "\"attn_output_gate\":true,\"gate_softplus\":true}", 0);
}

TEST(heads_over_differences_are_checked) { expect_over("{" LAYER "\"differential\":true}", 1e15f); }

/* Queries, keys and values are zeros; two sums of a gate are infinities of both signs. */
TEST(heads_over_gates_of_a_position_bias_are_checked)
{
    enum { SMALL = 32, D = SMALL / HEADS };
    ck_assert_int_eq(attn_model_open(&model, "tests/golden/wavlm/model", NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    const struct attn_linear *const projections[] = {&layer->q, &layer->k, &layer->v};
    for (size_t i = 0; i < 3; i++)
        memset(projections[i]->panels, 0, attn_linear_panel_bytes(projections[i]));
    for (size_t i = 0; i < D; i++) {
        layer->gate_weight[i] = 1;
        layer->gate_weight[D + i] = -1;
    }
    ck_assert_msg(attend(1, &(struct attn_modifiers){.scale = 1}) == ATTN_OK, "%s", error.message);
    for (size_t i = 0; i < ROWS * SMALL; i++)
        x[i] = 3e38f;
    ck_assert_int_eq(attend(1, &(struct attn_modifiers){.scale = 1}), ATTN_OVERFLOW);
}

SUITE(heads_over)
