/* test_position_bias.c: ALiBi's slopes, T5's buckets, and adding both to a row of scores.
 *
 * Expected buckets and slopes were computed by PyTorch with the formulas of Hugging Face. */
#include "engine/mask.h"
#include "layers/layer.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suites.h"

static struct attn_layer_spec alibi_of(size_t heads, double scale, bool bfloat16)
{
    return (struct attn_layer_spec){
        .num_heads = heads,
        .position_bias = {.type = ATTN_BIAS_ALIBI, .scale = scale, .bfloat16 = bfloat16}};
}

static struct attn_layer_spec t5_of(size_t heads, size_t buckets, size_t max_distance,
                                    bool bidirectional)
{
    return (struct attn_layer_spec){.num_heads = heads,
                                    .position_bias = {.type = ATTN_BIAS_T5,
                                                      .buckets = buckets,
                                                      .max_distance = max_distance,
                                                      .bidirectional = bidirectional}};
}

static struct attn_position_bias make(const struct attn_layer_spec *spec, const float *weights)
{
    struct attn_position_bias bias;
    struct attn_error error = {0};
    ck_assert_msg(attn_position_bias_init(&bias, spec, weights, &error) == ATTN_OK, "%s",
                  error.message);
    return bias;
}

/* The bias of head h for one query and one key. */
static float bias_at(const struct attn_position_bias *bias, size_t h, int64_t query, int64_t key)
{
    float score = 0;
    attn_position_bias_add(&score, bias, h, query, NULL, key, 1);
    return score;
}

/* ---- ALiBi ---- */

TEST(position_bias_alibi_slopes_of_a_power_of_two_are_its_roots)
{
    struct attn_layer_spec spec = alibi_of(8, 1, false);
    struct attn_position_bias bias = make(&spec, NULL);
    for (int h = 0; h < 8; h++)
        ck_assert_float_eq(bias_at(&bias, (size_t)h, 5, 2), -3 * ldexpf(1, -(h + 1)));
    attn_position_bias_fini(&bias);
}

TEST(position_bias_alibi_slopes_beyond_a_power_of_two_come_from_the_next)
{
    static const float expected[] = {
        0x1p-1f, 0x1p-2f, 0x1p-3f,        0x1p-4f,        0x1p-5f,        0x1p-6f,
        0x1p-7f, 0x1p-8f, 0x1.6a09e6p-1f, 0x1.6a09e6p-2f, 0x1.6a09e4p-3f, 0x1.6a09e4p-4f};
    static const float three[] = {0x1p-4f, 0x1p-8f, 0x1p-2f};
    struct attn_layer_spec spec = alibi_of(12, 1, false);
    struct attn_position_bias bias = make(&spec, NULL);
    for (size_t h = 0; h < 12; h++)
        ck_assert_float_eq_tol(bias_at(&bias, h, 0, 1), expected[h], 1e-7f * expected[h]);
    attn_position_bias_fini(&bias);
    spec = alibi_of(3, 1, false);
    bias = make(&spec, NULL);
    for (size_t h = 0; h < 3; h++)
        ck_assert_float_eq(bias_at(&bias, h, 0, 1), three[h]);
    attn_position_bias_fini(&bias);
}

TEST(position_bias_alibi_scale_multiplies_the_slopes)
{
    struct attn_layer_spec spec = alibi_of(4, 0.125, false);
    struct attn_position_bias bias = make(&spec, NULL);
    ck_assert_float_eq(bias_at(&bias, 0, 100, 0), -100 * 0.25f * 0.125f);
    attn_position_bias_fini(&bias);
}

/* Head 8 of 12 has slope 0.70703125 in bfloat16; PyTorch gave the products with key positions. */
TEST(position_bias_alibi_in_bfloat16_rounds_slope_position_and_product)
{
    static const int64_t keys[] = {0, 1, 3, 7, 100, 255, 256, 257, 258, 259, 300, 777, 4097};
    static const float expected[] = {0,   0.70703125f, 2.125f, 4.9375f, 70.5f, 180, 181,
                                     181, 182,         184,    212,     548,   2896};
    struct attn_layer_spec spec = alibi_of(12, 0.5, true);
    struct attn_position_bias bias = make(&spec, NULL);
    float scores[13] = {0};
    attn_position_bias_add(scores, &bias, 8, 0, keys, 0, 13);
    for (size_t j = 0; j < 13; j++)
        ck_assert_float_eq(scores[j], 0.5f * expected[j]);
    ck_assert_float_eq(bias_at(&bias, 8, 7, 3), 0.5f * (2.125f - 4.9375f));
    attn_position_bias_fini(&bias);
}

/* ---- T5 ---- */

TEST(position_bias_buckets_are_those_of_hugging_face)
{
    static const int64_t distances[] = {-300, -129, -127, -100, -60, -33, -20, -16, -13, -12,
                                        -9,   -8,   -7,   -5,   -4,  -3,  -2,  -1,  0,   1,
                                        2,    3,    4,    7,    8,   9,   16,  40,  100, 300};
    static const struct {
        size_t buckets, max_distance;
        bool bidirectional;
        uint8_t expected[30];
    } cases[] = {
        {8, 20, false, {7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 5, 5, 4, 4,
                        3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {8, 20, true, {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2,
                       2, 2, 1, 0, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7}},
        {32, 128, false, {31, 31, 31, 30, 26, 21, 17, 16, 13, 12, 9, 8, 7, 5, 4,
                          3,  2,  1,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 0}},
        {32, 128, true, {15, 15, 15, 15, 13, 12, 10, 10, 9,  9,  8,  8,  7,  5,  4,
                         3,  2,  1,  0,  17, 18, 19, 20, 23, 24, 24, 26, 28, 31, 31}},
        {16, 64, false, {15, 15, 15, 15, 15, 13, 11, 10, 9, 9, 8, 8, 7, 5, 4,
                         3,  2,  1,  0,  0,  0,  0,  0,  0, 0, 0, 0, 0, 0, 0}},
        {16, 64, true, {7, 7, 7, 7, 7, 7,  6,  6,  5,  5,  5,  5,  4,  4,  4,
                        3, 2, 1, 0, 9, 10, 11, 12, 12, 13, 13, 14, 15, 15, 15}},
        {32, 256, false, {31, 28, 27, 26, 23, 20, 17, 16, 13, 12, 9, 8, 7, 5, 4,
                          3,  2,  1,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 0}},
        {32, 256, true, {15, 14, 14, 13, 12, 11, 10, 9,  9,  8,  8,  8,  7,  5,  4,
                         3,  2,  1,  0,  17, 18, 19, 20, 23, 24, 24, 25, 27, 29, 31}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct attn_position_bias_spec spec = {.buckets = cases[c].buckets,
                                               .max_distance = cases[c].max_distance,
                                               .bidirectional = cases[c].bidirectional};
        for (size_t i = 0; i < 30; i++)
            ck_assert_uint_eq(attn_t5_bucket(&spec, distances[i]), cases[c].expected[i]);
    }
}

/* Fills the table so that each number tells its head and bucket. */
static void fill(float *weights, size_t buckets, size_t heads)
{
    for (size_t b = 0; b < buckets; b++)
        for (size_t h = 0; h < heads; h++)
            weights[b * heads + h] = (float)(1000 * h + b);
}

TEST(position_bias_t5_adds_the_number_of_head_and_bucket_at_any_distance)
{
    for (int bidirectional = 0; bidirectional < 2; bidirectional++) {
        struct attn_layer_spec spec = t5_of(3, 16, 64, bidirectional);
        float weights[16 * 3];
        fill(weights, 16, 3);
        struct attn_position_bias bias = make(&spec, weights);
        for (int64_t key = 0; key <= 600; key += 3) {
            size_t bucket = attn_t5_bucket(&spec.position_bias, key - 300);
            ck_assert_float_eq(bias_at(&bias, 2, 300, key), (float)(2000 + bucket));
        }
        ck_assert_float_eq(bias_at(&bias, 1, INT32_MAX, 0),
                           (float)(1000 + attn_t5_bucket(&spec.position_bias, -INT32_MAX)));
        attn_position_bias_fini(&bias);
    }
}

/* ---- Both ---- */

/* 150 keys are more than one run of the implementation. */
TEST(position_bias_of_counted_keys_is_that_of_the_same_keys_listed)
{
    float weights[8 * 2];
    fill(weights, 8, 2);
    struct attn_layer_spec specs[] = {alibi_of(2, 0.3, false), alibi_of(2, 0.3, true),
                                      t5_of(2, 8, 20, true)};
    for (size_t i = 0; i < 3; i++) {
        struct attn_position_bias bias = make(&specs[i], weights);
        float counted[150], listed[150];
        int64_t keys[150];
        for (size_t j = 0; j < 150; j++) {
            keys[j] = (int64_t)(7 + j);
            counted[j] = listed[j] = sinf((float)j);
        }
        attn_position_bias_add(counted, &bias, 1, 90, NULL, 7, 150);
        attn_position_bias_add(listed, &bias, 1, 90, keys, 0, 150);
        ck_assert_mem_eq(counted, listed, sizeof counted);
        for (size_t j = 0; j < 150; j++)
            ck_assert_float_eq(counted[j], sinf((float)j) + bias_at(&bias, 1, 90, keys[j]));
        attn_position_bias_fini(&bias);
    }
}

TEST(position_bias_leaves_infinity_and_keeps_finite_sums_finite)
{
    float weights[8];
    for (size_t i = 0; i < 8; i++)
        weights[i] = -ATTN_MAX_MAGNITUDE;
    struct attn_layer_spec specs[] = {alibi_of(1, ATTN_MAX_SCALE, false),
                                      alibi_of(1, ATTN_MAX_SCALE, true), t5_of(1, 8, 20, false)};
    for (size_t i = 0; i < 3; i++) {
        struct attn_position_bias bias = make(&specs[i], weights);
        float scores[] = {-INFINITY, -FLT_MAX, 0};
        attn_position_bias_add(scores, &bias, 0, INT32_MAX, NULL, 0, 3);
        ck_assert(isinf(scores[0]) && scores[0] < 0);
        ck_assert_float_eq(scores[1], -FLT_MAX);
        ck_assert_float_lt(scores[2], 0);
        attn_position_bias_fini(&bias);
    }
}

TEST(position_bias_of_none_adds_nothing)
{
    struct attn_layer_spec spec = {.num_heads = 2};
    struct attn_position_bias bias = make(&spec, NULL);
    ck_assert_float_eq(bias_at(&bias, 1, 9, 3), 0);
    attn_position_bias_fini(&bias);
}

static void require_refused(struct attn_layer_spec spec, const float *weights, const char *param,
                            const char *message)
{
    struct attn_position_bias bias = {0};
    struct attn_error error = {0};
    enum attn_status status = attn_position_bias_check(&spec.position_bias, &error);
    if (status == ATTN_OK)
        status = attn_position_bias_init(&bias, &spec, weights, &error);
    ck_assert_int_eq(status, ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, param);
    ck_assert_msg(strstr(error.message, message) != NULL, "\"%s\" does not say \"%s\"",
                  error.message, message);
    attn_position_bias_fini(&bias);
}

TEST(position_bias_refuses_specifications_out_of_bounds)
{
    static const char buckets[] = "relative_attention_num_buckets";
    static const char distance[] = "relative_attention_max_distance";
    float weights[8] = {0, 0, 0, 2e15f};
    struct attn_layer_spec unknown = {.num_heads = 1, .position_bias.type = 99};
    require_refused(alibi_of(4, 2e5, false), NULL, "alibi", "is 200000, at most");
    require_refused(alibi_of(4, (double)NAN, false), NULL, "alibi", "nan");
    require_refused(t5_of(1, 1, 20, false), weights, buckets, "is 1, allowed are 2 to 4096");
    require_refused(t5_of(1, 2, 20, true), weights, buckets, "is 2, allowed are even numbers");
    require_refused(t5_of(1, 7, 20, true), weights, buckets, "is 7, allowed are even numbers");
    require_refused(t5_of(1, 4097, 4096, false), weights, buckets, "is 4097");
    require_refused(t5_of(1, 8, 4, false), weights, distance, "is 4, allowed are 5 to 4096");
    require_refused(t5_of(1, 8, 4097, false), weights, distance, "is 4097");
    require_refused(t5_of(1, 8, 20, false), weights, "relative_attention_bias",
                    "holds 2e+15 at element 3");
    require_refused(unknown, NULL, "position_bias", "no position bias 99");
}

/* ---- Disentangled --------------------------------------------------------------------------- */

#define DISENTANGLED(rows, most)                                                           \
    {                                                                                      \
        .hidden_size = 8, .key_size = 8, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4, \
        .position_bias = {.type = ATTN_BIAS_DISENTANGLED,                                  \
                          .buckets = rows,                                                 \
                          .max_distance = most,                                            \
                          .content_to_position = true},                                    \
    }

TEST(disentangled_distances_share_rows_beyond_half_of_the_buckets)
{
    /* Of DeBERTa v3: 256 buckets, distances up to 512; rows from the published definition. */
    static const struct {
        int64_t distance;
        size_t row;
    } rows[] = {{0, 256},    {1, 257},   {-1, 255},  {128, 384}, {-128, 128},
                {129, 385},  {130, 386}, {256, 448}, {511, 511}, {512, 511},
                {9999, 511}, {-511, 1},  {-512, 0},  {-9999, 0}};
    float *table = calloc(512 * 8, sizeof *table), weight[64] = {0};
    const struct attn_linear linear = {.in = 8, .out = 8, .weight = weight};
    struct attn_layer layer = {
        .spec = DISENTANGLED(256, 512), .q = linear, .k = linear, .bias_table = table};
    struct attn_error error;
    ck_assert_ptr_nonnull(table);
    ck_assert_int_eq(attn_relative_init(&layer, &error), ATTN_OK);
    for (size_t i = 0; i < COUNT(rows); i++)
        ck_assert_uint_eq(attn_relative_row(&layer.relative, rows[i].distance), rows[i].row);
    attn_relative_fini(&layer.relative);
    layer.spec = (struct attn_layer_spec)DISENTANGLED(0, 5);
    ck_assert_int_eq(attn_relative_init(&layer, &error), ATTN_OK);
    for (int64_t d = -20; d <= 20; d++)
        ck_assert_uint_eq(attn_relative_row(&layer.relative, d), d < -5  ? 0
                                                                 : d > 4 ? 9
                                                                         : (size_t)(d + 5));
    attn_relative_fini(&layer.relative);
    free(table);
}

TEST(disentangled_refuses_specifications_without_a_meaning)
{
    struct attn_error error;
    struct attn_layer_spec grouped = DISENTANGLED(8, 32), cross = DISENTANGLED(8, 32);
    const struct attn_layer_spec refused[] = {
        DISENTANGLED(8, 5),    DISENTANGLED(7, 32), DISENTANGLED(2, 32),
        DISENTANGLED(8, 4097), DISENTANGLED(0, 0),
    };
    ck_assert_int_eq(attn_relative_check(&grouped, &error), ATTN_OK);
    grouped.num_kv_heads = 1;
    ck_assert_int_eq(attn_relative_check(&grouped, &error), ATTN_UNSUPPORTED);
    cross.is_cross = true;
    ck_assert_int_eq(attn_relative_check(&cross, &error), ATTN_UNSUPPORTED);
    for (size_t i = 0; i < COUNT(refused); i++)
        ck_assert_int_eq(attn_relative_check(&refused[i], &error), ATTN_OUT_OF_RANGE);
}

TEST(relative_keys_of_far_distances_are_those_of_the_ends)
{
    float table[6 * 4];
    struct attn_layer layer = {.spec = DISENTANGLED(0, 0), .bias_table = table};
    struct attn_error error;
    struct attn_position_bias_spec *bias = &layer.spec.position_bias;
    *bias = (struct attn_position_bias_spec){.type = ATTN_BIAS_RELATIVE_KEY,
                                             .content_to_position = true,
                                             .max_distance = 2,
                                             .max_after = 3};
    for (size_t i = 0; i < 6 * 4; i++)
        table[i] = (float)i;
    ck_assert_int_eq(attn_relative_check(&layer.spec, &error), ATTN_OK);
    ck_assert_int_eq(attn_relative_init(&layer, &error), ATTN_OK);
    ck_assert_ptr_null(layer.relative.queries);
    for (int64_t d = -9; d <= 9; d++) {
        const size_t row = d < -3 ? 0 : d > 2 ? 5 : (size_t)(d + 3);
        ck_assert_uint_eq(attn_relative_row(&layer.relative, d), row);
        for (size_t i = 0; i < 2 * 4; i++) /* of both heads */
            ck_assert_float_eq(layer.relative.keys[i * 64 + row], table[(5 - row) * 4 + i % 4]);
    }
    attn_relative_fini(&layer.relative);
    bias->backward = true;
    ck_assert_int_eq(attn_relative_init(&layer, &error), ATTN_OK);
    for (size_t i = 0; i < 6; i++)
        ck_assert_float_eq(layer.relative.keys[i], table[i * 4]);
    attn_relative_fini(&layer.relative);
    table[7] = NAN;
    ck_assert_int_eq(attn_relative_init(&layer, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, "distance_embedding");
    attn_relative_fini(&layer.relative);
    bias->max_after = ATTN_MAX_BUCKETS + 1;
    ck_assert_int_eq(attn_relative_check(&layer.spec, &error), ATTN_OUT_OF_RANGE);
    bias->max_after = 3;
    layer.spec.is_cross = true;
    ck_assert_int_eq(attn_relative_check(&layer.spec, &error), ATTN_UNSUPPORTED);
    ck_assert_str_eq(error.param, "position_embeddings_type");
}

SUITE(position_bias)
