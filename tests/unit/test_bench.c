/* test_bench.c: when the times of a benchmark are steady (tests/bench/samples.c). */
#include <check.h>

#include "../bench/samples.h"
#include "suites.h"

#define SPREAD(...) \
    bench_spread((double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double))

TEST(times_around_one_median_have_a_small_spread)
{
    ck_assert_double_eq_tol(SPREAD(10, 10.2, 9.9, 10.1, 10, 10, 9.8, 30), 0.02, 0.011);
    ck_assert_double_eq(SPREAD(10), 0);
}

TEST(times_that_fall_from_call_to_call_are_not_steady_though_quartiles_are_close)
{
    /* The quartiles of these four are 16.6 and 16.9. */
    ck_assert_double_gt(SPREAD(22.8, 16.9, 16.6, 9.6), 0.1);
}

TEST(times_of_two_kinds_in_turn_are_not_steady)
{
    ck_assert_double_gt(SPREAD(10, 14, 10, 14, 10, 14, 10, 14), 0.1);
}

SUITE(bench)
