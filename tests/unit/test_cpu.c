/* test_cpu.c: the level that `auto` is on CPUs of several kinds. */
#include <check.h>
#include <signal.h>

#include "attn.h"
#include "machine/cpu.h"
#include "suites.h"

#if defined __x86_64__

static const struct {
    enum attn_cpu_level best;
    const char *vendor;
    bool vbmi;
    enum attn_cpu_level fastest;
} kinds[] = {
    {ATTN_CPU_AVX512BF16, "GenuineIntel", true, ATTN_CPU_AVX512VNNI},  /* AMX masked, refused */
    {ATTN_CPU_AVX512BF16, "GenuineIntel", false, ATTN_CPU_AVX512BF16}, /* Cooper Lake */
    {ATTN_CPU_AVX512BF16, "AuthenticAMD", true, ATTN_CPU_AVX512BF16},  /* Zen 4 and 5 */
    {ATTN_CPU_AVX512AMX, "GenuineIntel", true, ATTN_CPU_AVX512AMX},
    {ATTN_CPU_AVX512VNNI, "GenuineIntel", true, ATTN_CPU_AVX512VNNI},
    {ATTN_CPU_AVX512, "GenuineIntel", false, ATTN_CPU_AVX512},
    {ATTN_CPU_AVX2, "AuthenticAMD", false, ATTN_CPU_AVX2},
    {ATTN_CPU_PORTABLE, "", false, ATTN_CPU_PORTABLE},
};

START_TEST(test_cpu_auto_is_vnni_where_intel_has_bf16_without_tiles)
{
    ck_assert_int_eq(attn_cpu_fastest(kinds[_i].best, kinds[_i].vendor, kinds[_i].vbmi),
                     kinds[_i].fastest);
}
END_TEST

/* An alternate signal stack without room for tiles has Linux refuse them to the process. */
START_TEST(test_cpu_auto_of_an_engine_goes_by_what_the_kernel_refuses)
{
    static char stack[2048];
    const stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    struct attn_engine *engine;
    struct attn_engine_info info;
    struct attn_error error;
    if (sigaltstack(&small, NULL) != 0)
        return; /* a kernel that refuses small stacks */
    const enum attn_cpu_level best = attn_cpu_best(ATTN_CPU_AUTO);
    const bool slow = best == ATTN_CPU_AVX512BF16 && __builtin_cpu_is("intel") &&
                      __builtin_cpu_supports("avx512vbmi");
    ck_assert_int_lt(best, ATTN_CPU_AVX512AMX);
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    attn_engine_describe(&info, engine);
    ck_assert_int_eq(info.level, slow ? ATTN_CPU_AVX512VNNI : best);
    attn_engine_close(engine);
}
END_TEST

#endif

START_TEST(test_cpu_auto_is_a_level_of_this_cpu)
{
    ck_assert_int_gt(attn_cpu_auto(), ATTN_CPU_AUTO);
    ck_assert_int_le(attn_cpu_auto(), attn_cpu_best(ATTN_CPU_AUTO));
}
END_TEST

Suite *suite_cpu(void)
{
    Suite *suite = suite_create("cpu");
    TCase *tcase = tcase_create("level");
#if defined __x86_64__
    tcase_add_loop_test(tcase, test_cpu_auto_is_vnni_where_intel_has_bf16_without_tiles, 0,
                        sizeof kinds / sizeof kinds[0]);
    tcase_add_test(tcase, test_cpu_auto_of_an_engine_goes_by_what_the_kernel_refuses);
#endif
    tcase_add_test(tcase, test_cpu_auto_is_a_level_of_this_cpu);
    suite_add_tcase(suite, tcase);
    return suite;
}
