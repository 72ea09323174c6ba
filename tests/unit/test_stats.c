/* test_stats.c: statistics of rows computed by hand, and heads constructed to have a known
 * pattern. */
#include "kernels/stats.h"

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "rng.h"
#include "suites.h"

#define MOST 512
#define RADIUS 4

/* ---- Rows ---- */

/* Query 2 of keys 0 to 4, of which keys 0 (padding) and 1 are not reachable. */
TEST(stats_row_measures_what_was_worked_out_by_hand)
{
    static const float weights[] = {0, 0, 0.5f, 0.25f, 0.25f};
    static const uint8_t reachable[] = {0, 0, 1, 1, 1};
    struct attn_row_stats row;
    attn_stats_row(&row, weights, reachable, 5, 2, 2, 1);
    ck_assert_uint_eq(row.reachable, 3);
    ck_assert_uint_eq(row.strongest, 2);
    ck_assert_float_eq_tol(row.entropy, 1.5f * logf(2), 1e-6f);
    ck_assert_float_eq_tol(row.distance, 0.75f, 1e-6f);
    ck_assert_float_eq(row.self, 0.5f);
    ck_assert_float_eq(row.previous, 0);
    ck_assert_float_eq(row.first, 0.5f);
    ck_assert_float_eq(row.local, 0.75f);
    ck_assert_float_eq(row.largest, 0.5f);
    ck_assert_float_eq_tol(row.chance_self, 1.0f / 3, 1e-7f);
    ck_assert_float_eq(row.chance_previous, 0);
    ck_assert_float_eq_tol(row.chance_first, 1.0f / 3, 1e-7f);
    ck_assert_float_eq_tol(row.chance_local, 2.0f / 3, 1e-7f);
}

TEST(stats_row_that_sees_nothing_is_zero)
{
    static const float weights[3];
    static const uint8_t reachable[3];
    struct attn_row_stats row, zero;
    memset(&zero, 0, sizeof zero);
    memset(&row, 0xff, sizeof row);
    attn_stats_row(&row, weights, reachable, 3, 1, 0, SIZE_MAX);
    ck_assert_mem_eq(&row, &zero, sizeof row);
}

/* A query may be before all keys, or after them, and there may be no first key. */
TEST(stats_row_of_a_query_outside_of_the_keys_has_no_self)
{
    static const float weights[] = {0.25f, 0.75f};
    static const uint8_t reachable[] = {1, 1};
    struct attn_row_stats row;
    attn_stats_row(&row, weights, reachable, 2, -3, 2, 3);
    ck_assert_float_eq(row.self + row.previous + row.first, 0);
    ck_assert_float_eq(row.local, 0.25f);
    ck_assert_float_eq(row.distance, 3.75f);
    attn_stats_row(&row, weights, reachable, 2, 2, 0, SIZE_MAX);
    ck_assert_float_eq(row.self, 0);
    ck_assert_float_eq(row.previous, 0.75f);
    ck_assert_float_eq(row.local, 1);
}

TEST(stats_row_of_equal_weights_has_the_first_as_strongest)
{
    static const float zeroes[4];
    static const uint8_t reachable[] = {0, 1, 1, 1};
    struct attn_row_stats row;
    attn_stats_row(&row, zeroes, reachable, 4, 3, 1, 1);
    ck_assert_uint_eq(row.strongest, 1);
    ck_assert_float_eq(row.entropy, 0);
}

/* ---- Heads ---- */

/* A head: fills the weights of keys [0, end), which query t may see. */
typedef void head_fn(float *weights, size_t t, size_t end);

static struct attn_row_stats rows[MOST];

static struct attn_head_stats reduce(head_fn *head, size_t tokens, bool causal)
{
    static float weights[MOST];
    uint8_t reachable[MOST];
    struct attn_head_stats stats;
    for (size_t t = 0; t < tokens; t++) {
        size_t end = causal ? t + 1 : tokens;
        memset(weights, 0, sizeof weights);
        for (size_t j = 0; j < tokens; j++)
            reachable[j] = j < end;
        head(weights, t, end);
        attn_stats_row(&rows[t], weights, reachable, tokens, (int64_t)t, 0, RADIUS);
    }
    attn_stats_reduce(&stats, rows, tokens, 0);
    return stats;
}

static void require_pattern(head_fn *head, size_t tokens, bool causal, enum attn_pattern expected)
{
    struct attn_head_stats stats = reduce(head, tokens, causal);
    ck_assert_msg(stats.pattern == expected, "%zu tokens%s: %s, expected %s", tokens,
                  causal ? ", causal" : "", attn_pattern_name(stats.pattern),
                  attn_pattern_name(expected));
}

static void spread(float *weights, size_t first, size_t end)
{
    for (size_t j = first; j < end; j++)
        weights[j] = 1.0f / (float)(end - first);
}

static void uniform(float *weights, size_t t, size_t end)
{
    (void)t;
    spread(weights, 0, end);
}

static void previous(float *weights, size_t t, size_t end)
{
    (void)end;
    weights[t > 0 ? t - 1 : 0] = 1;
}

/* Three quarters of the weight on the first key, the rest spread evenly. */
static void sink(float *weights, size_t t, size_t end)
{
    (void)t;
    spread(weights, 0, end);
    for (size_t j = 0; j < end; j++)
        weights[j] *= 0.25f;
    weights[0] += 0.75f;
}

static void near_by(float *weights, size_t t, size_t end)
{
    spread(weights, t > RADIUS ? t - RADIUS : 0, t + RADIUS + 1 < end ? t + RADIUS + 1 : end);
}

static void self(float *weights, size_t t, size_t end)
{
    (void)end;
    weights[t] = 1;
}

/* All weight on the key three tokens back; where there is none, spread evenly. */
static void three_back(float *weights, size_t t, size_t end)
{
    if (t >= 3)
        weights[t - 3] = 1;
    else
        spread(weights, 0, end);
}

static void next(float *weights, size_t t, size_t end) { weights[t + 1 < end ? t + 1 : t] = 1; }

/* All weight on a random key. */
static void anywhere(float *weights, size_t t, size_t end)
{
    struct rng rng = rng_seeded(1000 + t);
    weights[rng_below(&rng, (unsigned)end)] = 1;
}

/* The first half of the tokens on the key 32 after, each other one at a distance of its own. */
static void half_at_one_distance(float *weights, size_t t, size_t end)
{
    weights[t < end / 2 ? t + end / 2 : end - 1 - t] = 1;
}

TEST(stats_uniform_head_is_global_however_short_the_text)
{
    static const size_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 64, 512};
    for (size_t i = 0; i < COUNT(tokens); i++) {
        require_pattern(uniform, tokens[i], true, ATTN_PATTERN_GLOBAL);
        require_pattern(uniform, tokens[i], false, ATTN_PATTERN_GLOBAL);
    }
}

TEST(stats_previous_token_head_is_previous)
{
    require_pattern(previous, 2, true, ATTN_PATTERN_PREVIOUS);
    require_pattern(previous, 8, true, ATTN_PATTERN_PREVIOUS);
    require_pattern(previous, 64, true, ATTN_PATTERN_PREVIOUS);
    require_pattern(previous, 64, false, ATTN_PATTERN_PREVIOUS);
}

TEST(stats_head_on_the_first_token_is_sink)
{
    require_pattern(sink, 8, true, ATTN_PATTERN_SINK);
    require_pattern(sink, 64, true, ATTN_PATTERN_SINK);
    require_pattern(sink, 64, false, ATTN_PATTERN_SINK);
}

TEST(stats_head_at_one_distance_is_positional)
{
    require_pattern(self, 8, true, ATTN_PATTERN_POSITIONAL);
    require_pattern(self, 64, false, ATTN_PATTERN_POSITIONAL);
    require_pattern(three_back, 8, true, ATTN_PATTERN_POSITIONAL);
    require_pattern(three_back, 64, true, ATTN_PATTERN_POSITIONAL);
    require_pattern(next, 64, false, ATTN_PATTERN_POSITIONAL);
}

TEST(stats_head_of_half_its_rows_at_one_distance_is_not_positional)
{
    require_pattern(half_at_one_distance, 64, false, ATTN_PATTERN_FOCUSED);
}

TEST(stats_head_that_spreads_near_by_is_local)
{
    require_pattern(near_by, 64, false, ATTN_PATTERN_LOCAL);
    require_pattern(near_by, 64, true, ATTN_PATTERN_LOCAL);
}

/* Where a row can see near keys only, its weight on near keys says nothing. */
TEST(stats_head_that_sees_near_keys_only_is_not_local)
{
    require_pattern(uniform, RADIUS + 1, true, ATTN_PATTERN_GLOBAL);
    require_pattern(uniform, RADIUS + 1, false, ATTN_PATTERN_GLOBAL);
    const struct attn_row_stats row = {
        .reachable = 200, .local = 1, .chance_local = 0.995f, .largest = 0.01f};
    struct attn_head_stats stats;
    attn_stats_reduce(&stats, &row, 1, 0);
    ck_assert_int_eq(stats.pattern, ATTN_PATTERN_GLOBAL);
}

TEST(stats_head_on_one_key_anywhere_is_focused)
{
    require_pattern(anywhere, 64, false, ATTN_PATTERN_FOCUSED);
    require_pattern(anywhere, 512, true, ATTN_PATTERN_FOCUSED);
}

/* One row cannot show a constant distance. */
TEST(stats_one_row_on_a_far_key_is_focused_not_positional)
{
    static const float weights[32] = {[11] = 1};
    uint8_t reachable[32];
    struct attn_row_stats row;
    struct attn_head_stats stats;
    memset(reachable, 1, sizeof reachable);
    attn_stats_row(&row, weights, reachable, 32, 31, 0, RADIUS);
    attn_stats_reduce(&stats, &row, 1, 31);
    ck_assert_int_eq(stats.pattern, ATTN_PATTERN_FOCUSED);
    ck_assert_double_eq_tol(stats.mean_distance, 20, 1e-6);
}

/* Rows of a step over a cache have positions after the cached ones. */
TEST(stats_rows_behind_a_cache_count_distances_from_their_own_position)
{
    uint8_t reachable[32];
    struct attn_row_stats four[4];
    struct attn_head_stats stats;
    memset(reachable, 1, sizeof reachable);
    for (size_t t = 0; t < 4; t++) {
        float weights[32] = {0};
        weights[8 + t] = 1;
        attn_stats_row(&four[t], weights, reachable, 32, (int64_t)(28 + t), 0, RADIUS);
    }
    attn_stats_reduce(&stats, four, 4, 28);
    ck_assert_int_eq(stats.pattern, ATTN_PATTERN_POSITIONAL);
}

/* Over T = 4 causal tokens a uniform row t has 1/(t+1) everywhere. */
TEST(stats_means_of_a_uniform_causal_head_are_those_worked_out_by_hand)
{
    struct attn_head_stats stats = reduce(uniform, 4, true);
    const double harmonic = (1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4) / 4;
    ck_assert_uint_eq(stats.rows, 4);
    ck_assert_double_eq_tol(stats.entropy, log(24) / 4, 1e-6);
    ck_assert_double_eq_tol(stats.mean_distance, (0 + 0.5 + 1 + 1.5) / 4, 1e-6);
    ck_assert_double_eq_tol(stats.self, harmonic, 1e-6);
    ck_assert_double_eq_tol(stats.previous, harmonic - 0.25, 1e-6);
    ck_assert_double_eq_tol(stats.first, harmonic, 1e-6);
    ck_assert_double_eq_tol(stats.local, 1, 1e-6);
    ck_assert_double_eq_tol(stats.largest, harmonic, 1e-6);
}

TEST(stats_rows_that_see_nothing_do_not_count)
{
    struct attn_head_stats alone = reduce(previous, 8, true), with;
    memset(&rows[8], 0, 3 * sizeof rows[8]);
    attn_stats_reduce(&with, rows, 11, 0);
    ck_assert_uint_eq(with.rows, 8);
    ck_assert_double_eq(with.previous, alone.previous);
    ck_assert_double_eq(with.previous, 0.875);
    ck_assert_int_eq(with.pattern, ATTN_PATTERN_PREVIOUS);
    attn_stats_reduce(&with, rows + 8, 3, 8);
    ck_assert_uint_eq(with.rows, 0);
    ck_assert_double_eq(with.entropy + with.mean_distance + with.self + with.largest, 0);
    ck_assert_int_eq(with.pattern, ATTN_PATTERN_GLOBAL);
}

TEST(stats_rows_that_see_nothing_have_no_target_and_no_group)
{
    static const struct attn_row_stats two[2] = {{.reachable = 2, .strongest = 1, .target = 0.5f}};
    static const int64_t targets[] = {1, 0};
    static const uint16_t groups[] = {1, 0}; /* of keys: the first is in group 0 */
    static const float shares[] = {0.25f, 0};
    struct attn_head_stats head = {0};
    struct attn_group_stats group = {0};
    attn_stats_reduce_targets(&head, two, 2, targets);
    ck_assert_uint_eq(head.target_rows, 1);
    ck_assert_double_eq(head.target, 0.5);
    ck_assert_double_eq(head.target_hits, 1);
    attn_stats_add_rows(&group, two, shares, 2, groups, 1);
    ck_assert_double_eq(group.share, 0.25);
    ck_assert_double_eq(group.hits, 0);
}

TEST(stats_of_a_single_token_are_its_own_and_tell_no_pattern)
{
    struct attn_head_stats stats = reduce(self, 1, true);
    ck_assert_uint_eq(stats.rows, 1);
    ck_assert_double_eq(stats.self, 1);
    ck_assert_double_eq(stats.first, 1);
    ck_assert_double_eq(stats.entropy, 0);
    ck_assert_int_eq(stats.pattern, ATTN_PATTERN_GLOBAL);
}

TEST(stats_patterns_have_names)
{
    ck_assert_str_eq(attn_pattern_name(ATTN_PATTERN_GLOBAL), "global");
    ck_assert_str_eq(attn_pattern_name(ATTN_PATTERN_FOCUSED), "focused");
    ck_assert_str_eq(attn_pattern_name((enum attn_pattern)6), "unknown");
}

SUITE(stats)
