/* test_largest.c: attn_largest against picking the largest one after another. */
#include "kernels/stats.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "rng.h"
#include "suites.h"

#define MOST 200

/* The index of the largest value not yet taken; of equal values the first. */
static uint32_t pick(const float *values, const bool *taken, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || values[i] > values[best]))
            best = i;
    return (uint32_t)best;
}

static void require_largest(const float *values, size_t n, size_t k)
{
    uint32_t index[MOST];
    float value[MOST];
    bool taken[MOST] = {false};
    attn_largest(index, value, k, values, n, NULL, 0);
    for (size_t i = 0; i < k; i++) {
        uint32_t expected = pick(values, taken, n);
        taken[expected] = true;
        ck_assert_uint_eq(index[i], expected);
        ck_assert_float_eq(value[i], values[expected]);
    }
}

TEST(largest_agrees_with_picking_one_after_another)
{
    struct rng rng = rng_seeded(11);
    float values[MOST];
    for (size_t round = 0; round < 300; round++) {
        size_t n = 1 + rng_below(&rng, MOST);
        for (size_t i = 0; i < n; i++)
            values[i] = rng_float(&rng, 1);
        require_largest(values, n, 1 + rng_below(&rng, (unsigned)n));
        require_largest(values, n, n);
    }
}

TEST(largest_of_equal_values_is_the_lower_index)
{
    struct rng rng = rng_seeded(12);
    float values[MOST];
    for (size_t round = 0; round < 300; round++) {
        size_t n = 1 + rng_below(&rng, MOST);
        for (size_t i = 0; i < n; i++)
            values[i] = (float)rng_below(&rng, 4);
        require_largest(values, n, 1 + rng_below(&rng, (unsigned)n));
    }
}

TEST(largest_of_all_zeroes_are_the_first)
{
    static const float zeroes[9];
    uint32_t index[4];
    float value[4];
    attn_largest(index, value, 4, zeroes, 9, NULL, 0);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(index[i], i);
        ck_assert_float_eq(value[i], 0);
    }
}

TEST(largest_takes_infinities_and_one_value)
{
    static const float values[] = {-INFINITY, 1, INFINITY, -1};
    require_largest(values, 4, 4);
    require_largest(values, 1, 1);
}

static bool look(void *context)
{
    ++*(size_t *)context;
    return false;
}

/* Each value displaces the root, and at last the heap is taken apart.  All loops must pause. */
TEST(largest_of_a_long_row_pauses)
{
    enum { N = 1 << 16, K = 1 << 15, STEPS = 1 << 12 };
    static float values[N], value[K];
    static uint32_t index[K];
    struct attn_pool *pool;
    size_t looks = 0;
    const struct attn_yield yield = {.wanted = look, .context = &looks};
    for (size_t i = 0; i < N; i++)
        values[i] = (float)i;
    ck_assert_int_eq(attn_pool_open(&pool, 1), ATTN_OK);
    attn_pool_set_yield(pool, &yield);
    attn_largest(index, value, K, values, N, pool, 0);
    ck_assert_uint_ge(looks, (N - K + K / 2 + K) / STEPS - 2);
    ck_assert_uint_eq(index[0], N - 1);
    attn_pool_close(pool);
}

/* Ascending values are the worst order: each replaces the root and moves down. */
TEST(largest_sorts_a_million)
{
    const size_t n = 1 << 20;
    float *values = malloc(n * sizeof *values), *value = malloc(n * sizeof *value);
    uint32_t *index = malloc(n * sizeof *index);
    ck_assert(values != NULL && value != NULL && index != NULL);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)i;
    for (size_t k = n >> 10; k <= n; k <<= 10) {
        size_t wrong = 0;
        attn_largest(index, value, k, values, n, NULL, 0);
        for (size_t i = 0; i < k; i++)
            wrong += index[i] != n - 1 - i || value[i] != (float)(n - 1 - i);
        ck_assert_uint_eq(wrong, 0);
    }
    free(values);
    free(value);
    free(index);
}

SUITE(largest)
