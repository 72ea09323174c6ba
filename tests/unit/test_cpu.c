/* test_cpu.c: levels and kernels of sets of features, and the level that `auto` is. */
#include <check.h>
#include <signal.h>
#include <string.h>

#include "attn.h"
#include "kernels/kernels.h"
#include "machine/cpu.h"
#include "suites.h"

typedef void fill_slots(struct attn_kernels *table);

/* Features that no CPU here has together, the level of them all, and what fills these slots. */
struct kernels_of {
    unsigned features;
    enum attn_cpu_level level;
    fill_slots *project_bf16, *project_int8, *matmul_int8, *matmul_pairs;
};

#if defined __x86_64__

#define BASE (ATTN_HAS_AVX2 | ATTN_HAS_AVX512)

static const struct {
    unsigned features;
    const char *vendor;
    bool vbmi;
    enum attn_cpu_level fastest;
} kinds[] = {
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_BF16, "GenuineIntel", true,
     ATTN_CPU_AVX512VNNI}, /* AMX masked, refused */
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_BF16, "GenuineIntel", false,
     ATTN_CPU_AVX512BF16}, /* Cooper Lake */
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_BF16, "AuthenticAMD", true,
     ATTN_CPU_AVX512BF16}, /* Zen 4 and 5 */
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_BF16 | ATTN_HAS_AMX, "GenuineIntel", true, ATTN_CPU_AVX512AMX},
    {BASE | ATTN_HAS_VNNI, "GenuineIntel", true, ATTN_CPU_AVX512VNNI},
    {BASE | ATTN_HAS_BF16, "GenuineIntel", true, ATTN_CPU_AVX512},
    {BASE, "GenuineIntel", false, ATTN_CPU_AVX512},
    {ATTN_HAS_AVX2, "AuthenticAMD", false, ATTN_CPU_AVX2},
    {0, "", false, ATTN_CPU_PORTABLE},
};

static const struct kernels_of planted[] = {
    {BASE | ATTN_HAS_BF16, ATTN_CPU_AVX512BF16, attn_kernels_avx512_bf16,
     attn_kernels_avx512_project, attn_kernels_avx512, NULL},
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_AMX, ATTN_CPU_AVX512VNNI, attn_kernels_avx512_project,
     attn_kernels_avx512_vnni, attn_kernels_avx512_vnni, NULL},
    {BASE | ATTN_HAS_BF16 | ATTN_HAS_AMX, ATTN_CPU_AVX512BF16, attn_kernels_avx512_bf16,
     attn_kernels_avx512_project, attn_kernels_avx512, NULL},
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_BF16, ATTN_CPU_AVX512BF16, attn_kernels_avx512_bf16,
     attn_kernels_avx512_vnni, attn_kernels_avx512_vnni, NULL},
    {BASE | ATTN_HAS_VNNI | ATTN_HAS_BF16 | ATTN_HAS_AMX, ATTN_CPU_AVX512AMX,
     attn_kernels_avx512_amx, attn_kernels_avx512_amx, attn_kernels_avx512_vnni,
     attn_kernels_avx512_amx_pairs},
    {ATTN_HAS_AVX2 | ATTN_HAS_VNNI | ATTN_HAS_BF16, ATTN_CPU_AVX2, attn_kernels_avx2_project,
     attn_kernels_avx2_project, attn_kernels_avx2, NULL},
    {ATTN_HAS_BF16, ATTN_CPU_PORTABLE, attn_kernels_portable_project, attn_kernels_portable_project,
     attn_kernels_portable, NULL},
};

TEST_EACH(cpu_auto_is_vnni_where_intel_has_bf16_without_tiles, COUNT(kinds))
{
    const unsigned features =
        attn_cpu_fastest(kinds[_i].features, kinds[_i].vendor, kinds[_i].vbmi);
    ck_assert_int_eq(attn_cpu_level_of(features), kinds[_i].fastest);
}

/* An alternate signal stack without room for tiles has Linux refuse them to the process. */
TEST(cpu_auto_of_an_engine_goes_by_what_the_kernel_refuses)
{
    static char stack[2048];
    const stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    struct attn_engine *engine;
    struct attn_engine_info info;
    struct attn_error error;
    if (sigaltstack(&small, NULL) != 0)
        return; /* a kernel that refuses small stacks */
    const enum attn_cpu_level best = attn_cpu_level_of(attn_cpu_features(ATTN_NUM_CPU_LEVELS - 1));
    const bool slow = best == ATTN_CPU_AVX512BF16 && __builtin_cpu_is("intel") &&
                      __builtin_cpu_supports("avx512vbmi");
    ck_assert_int_lt(best, ATTN_CPU_AVX512AMX);
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    attn_engine_describe(&info, engine);
    ck_assert_int_eq(info.level, slow ? ATTN_CPU_AVX512VNNI : best);
    attn_engine_close(engine);
}

#elif defined __aarch64__

static const struct kernels_of planted[] = {
    {ATTN_HAS_NEON | ATTN_HAS_BF16, ATTN_CPU_BF16, attn_kernels_neon_bf16,
     attn_kernels_portable_project, attn_kernels_neon, NULL},
    {ATTN_HAS_NEON | ATTN_HAS_DOTPROD, ATTN_CPU_DOTPROD, attn_kernels_neon_project,
     attn_kernels_neon_dotprod, attn_kernels_neon_dotprod, NULL},
    {ATTN_HAS_DOTPROD | ATTN_HAS_BF16, ATTN_CPU_PORTABLE, attn_kernels_portable_project,
     attn_kernels_portable_project, attn_kernels_portable, NULL},
};

#endif

static struct attn_kernels filled(fill_slots *fill)
{
    struct attn_kernels table = {0};
    if (fill != NULL)
        fill(&table);
    return table;
}

TEST_EACH(cpu_features_each_bring_their_kernels, COUNT(planted))
{
    const struct kernels_of *want = &planted[_i];
    struct attn_kernels got;
    attn_kernels_get(&got, want->features);
    ck_assert_int_eq(attn_cpu_level_of(want->features), want->level);
    ck_assert_str_eq(got.name, attn_cpu_level_name(want->level));
    ck_assert_uint_eq(got.features, want->features);
    ck_assert(got.project[ATTN_BF16] == filled(want->project_bf16).project[ATTN_BF16]);
    ck_assert(got.bf16_rounds_rows ==
              (strstr(got.name, "bf16") != NULL || want->matmul_pairs != NULL));
    ck_assert(got.project[ATTN_INT8] == filled(want->project_int8).project[ATTN_INT8]);
    ck_assert(got.matmul[ATTN_INT8] == filled(want->matmul_int8).matmul[ATTN_INT8]);
    ck_assert(got.matmul_pairs == filled(want->matmul_pairs).matmul_pairs);
    ck_assert((got.matmul_many == NULL) == (want->matmul_pairs == NULL));
}

/* A level of which the CPU has all features is that level, and no feature of a later one is used.
 * Any other is refused by the name of the last that it has. */
TEST_RANGE(cpu_level_is_what_it_needs_or_refused, ATTN_CPU_PORTABLE, ATTN_NUM_CPU_LEVELS + 1)
{
    const enum attn_cpu_level level = (enum attn_cpu_level)_i;
    const enum attn_cpu_level found = attn_cpu_level_of(attn_cpu_features(level));
    const struct attn_engine_options options = {.threads = 1, .level = level};
    struct attn_engine *engine;
    struct attn_engine_info info;
    struct attn_error error;
    ck_assert_int_ge(found, ATTN_CPU_PORTABLE);
    ck_assert_int_le(found, level);
    if (attn_engine_open(&engine, &options, &error) == ATTN_OK) {
        attn_engine_describe(&info, engine);
        ck_assert_int_eq(info.level, level);
        ck_assert_int_eq(found, level);
        attn_engine_close(engine);
        return;
    }
    ck_assert_int_eq(error.status, ATTN_UNSUPPORTED);
    ck_assert_int_lt(found, level);
    ck_assert(strstr(error.message, attn_cpu_level_name(found)) != NULL);
}

TEST(cpu_auto_is_a_level_of_this_cpu)
{
    const enum attn_cpu_level level = attn_cpu_level_of(attn_cpu_features(ATTN_CPU_AUTO));
    ck_assert_int_gt(level, ATTN_CPU_AUTO);
    ck_assert_int_eq(attn_cpu_level_of(attn_cpu_features(level)), level);
}

SUITE(cpu)
