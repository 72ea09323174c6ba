/* test_bench.c: when the times of a benchmark are steady (tests/bench/samples.c). */
#include <check.h>

#include "../bench/samples.h"
#include "suites.h"

#define SPREAD(...) \
    bench_spread((double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double))

START_TEST(test_times_around_one_median_have_a_small_spread)
{
    ck_assert_double_eq_tol(SPREAD(10, 10.2, 9.9, 10.1, 10, 10, 9.8, 30), 0.02, 0.011);
    ck_assert_double_eq(SPREAD(10), 0);
}
END_TEST

START_TEST(test_times_that_fall_from_call_to_call_are_not_steady_though_quartiles_are_close)
{
    /* The quartiles of these four are 16.6 and 16.9. */
    ck_assert_double_gt(SPREAD(22.8, 16.9, 16.6, 9.6), 0.1);
}
END_TEST

START_TEST(test_times_of_two_kinds_in_turn_are_not_steady)
{
    ck_assert_double_gt(SPREAD(10, 14, 10, 14, 10, 14, 10, 14), 0.1);
}
END_TEST

Suite *suite_bench(void)
{
    Suite *suite = suite_create("bench");
    TCase *tcase = suite_cases(suite, "samples", NULL, NULL, 0);
    tcase_add_test(tcase, test_times_around_one_median_have_a_small_spread);
    tcase_add_test(
        tcase, test_times_that_fall_from_call_to_call_are_not_steady_though_quartiles_are_close);
    tcase_add_test(tcase, test_times_of_two_kinds_in_turn_are_not_steady);
    return suite;
}
