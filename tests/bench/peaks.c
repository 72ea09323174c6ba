/* peaks.c: loops that do nothing but multiply-adds, with their loads or without, or nothing but
 * loads, for each vector width.
 *
 * CHAINS independent sums are more than latency times ports of any CPU this runs on, and few enough
 * for 16 registers.  A fed loop has the register tile and the loads of `project` with many rows
 * (lib/kernels/) and nothing else: no copies, no prefetches, no stores.  keep() tells the compiler
 * that a value is used, so that no loop is dropped.  Each function has its target as an attribute,
 * or is assembler: the file itself is compiled for the baseline, and bench_simd_get takes only
 * functions that the CPU can run. */
#include "peaks.h"

#include <immintrin.h>
#include <stdint.h>

#define CHAINS 12
#define ROUNDS 20000
#define PER_BURST ((double)CHAINS * ROUNDS)

#define TARGET(features) __attribute__((target(features)))
#define keep(vector) __asm__ volatile("" : : "v"(vector))
#define for_chains _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++)
#define for_streams _Pragma("GCC unroll 4") for (int i = 0; i < BENCH_STREAMS; i++)

TARGET("avx512f") static double fp32_avx512(void)
{
    __m512 sums[CHAINS], factor = _mm512_set1_ps(0.999f), addend = _mm512_set1_ps(0.001f);
    for_chains sums[i] = _mm512_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = _mm512_fmadd_ps(sums[i], factor, addend);
    for_chains keep(sums[i]);
    return PER_BURST * 16 * 2;
}

TARGET("avx2,fma") static double fp32_avx2(void)
{
    __m256 sums[CHAINS], factor = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(0.001f);
    for_chains sums[i] = _mm256_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = _mm256_fmadd_ps(sums[i], factor, addend);
    for_chains keep(sums[i]);
    return PER_BURST * 8 * 2;
}

static double fp32_sse2(void)
{
    __m128 sums[CHAINS], factor = _mm_set1_ps(0.999f), addend = _mm_set1_ps(0.001f);
    for_chains sums[i] = _mm_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = _mm_add_ps(_mm_mul_ps(sums[i], factor), addend);
    for_chains keep(sums[i]);
    return PER_BURST * 4 * 2;
}

TARGET("avx512f,avx512bf16") static double bf16_avx512(void)
{
    __m512 sums[CHAINS];
    __m512i ones = _mm512_set1_epi16(0x3f80); /* 1.0 as bfloat16 */
    for_chains sums[i] = _mm512_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)ones, (__m512bh)ones);
    for_chains keep(sums[i]);
    return PER_BURST * 32 * 2;
}

TARGET("avx512f,avx512vnni") static double int8_avx512(void)
{
    __m512i sums[CHAINS], ones = _mm512_set1_epi8(1);
    for_chains sums[i] = _mm512_set1_epi32(i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = _mm512_dpbusd_epi32(sums[i], ones, ones);
    for_chains keep(sums[i]);
    return PER_BURST * 64 * 2;
}

/* ---- AMX ------------------------------------------------------------------------------------ */

#define TILES 6 /* of sums */
#define TILE_BURST ((double)ROUNDS / 10 * TILES * 16 * 16)
#define multiply_tiles(instruction)                                                         \
    for (int round = 0; round < ROUNDS / 10; round++)                                       \
    __asm__ volatile(                                                                       \
        instruction                                                                         \
        " %%tmm7, %%tmm6, %%tmm0\n\t" instruction " %%tmm7, %%tmm6, %%tmm1\n\t" instruction \
        " %%tmm7, %%tmm6, %%tmm2\n\t" instruction " %%tmm7, %%tmm6, %%tmm3\n\t" instruction \
        " %%tmm7, %%tmm6, %%tmm4\n\t" instruction " %%tmm7, %%tmm6, %%tmm5" ::)

static void configure_tiles(void)
{
    static const struct {
        uint8_t palette, zero[15];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

static double bf16_amx(void)
{
    configure_tiles();
    multiply_tiles("tdpbf16ps");
    __asm__ volatile("tilerelease" ::);
    return TILE_BURST * 32 * 2;
}

static double int8_amx(void)
{
    configure_tiles();
    multiply_tiles("tdpbsud");
    __asm__ volatile("tilerelease" ::);
    return TILE_BURST * 64 * 2;
}

/* The kernels' block of 32 rows by 32 columns: four products of tiles for four loads. */
#define TILE_LDX 400 /* words from one row to the next */
#define FED_TILES(name, instruction, numbers)                                               \
    static double name(const struct bench_operands *o)                                      \
    {                                                                                       \
        const size_t strips = (o->rows + 31) / 32, ldx = TILE_LDX * sizeof *o->x;           \
        configure_tiles();                                                                  \
        for (size_t s = 0; s < o->passes * strips; s++) {                                   \
            const float *x = o->x + s % strips * 32 * TILE_LDX, *w = o->w;                  \
            for (size_t i = 0; i < o->words; i += 16, x += 16, w += 16 * 32)                \
                __asm__ volatile("tileloadd (%0,%1,1), %%tmm6\n\t"                          \
                                 "tileloadd 64(%0,%1,1), %%tmm7\n\t"                        \
                                 "tileloadd (%2,%4,1), %%tmm4\n\t"                          \
                                 "tileloadd (%3,%4,1), %%tmm5\n\t" instruction              \
                                 " %%tmm6, %%tmm4, %%tmm0\n\t" instruction                  \
                                 " %%tmm7, %%tmm4, %%tmm1\n\t" instruction                  \
                                 " %%tmm6, %%tmm5, %%tmm2\n\t" instruction                  \
                                 " %%tmm7, %%tmm5, %%tmm3" ::"r"(w),                        \
                                 "r"((size_t)128), "r"(x), "r"(x + 16 * TILE_LDX), "r"(ldx) \
                                 : "memory");                                               \
        }                                                                                   \
        __asm__ volatile("tilerelease" ::);                                                 \
        return (double)(o->passes * strips * o->words) * 32 * 32 * 2 * (numbers);           \
    }

FED_TILES(fed_bf16_amx, "tdpbf16ps", 2)
FED_TILES(fed_int8_amx, "tdpbsud", 4)

/* ---- Fed from a cache ---------------------------------------------------------------------- */

#define FED_STEPS 4 /* words of a row that are taken between two branches */
#define for_rows(r, rows) _Pragma("GCC unroll 14") for (size_t r = 0; r < (rows); r++)

/* Defines the loop of `height` rows by two vectors; `per_step` operations in each step of it. */
#define FED(name, features, vector, height, lanes, load, splat, multiply_add, per_step) \
    TARGET(features) static double name(const struct bench_operands *o)                 \
    {                                                                                   \
        const size_t strips = o->rows / (height);                                       \
        vector sums[height][2];                                                         \
        for_rows(r, height) sums[r][0] = sums[r][1] = splat(0.0f);                      \
        for (size_t s = 0; s < o->passes * strips; s++) {                               \
            const float *x = o->x + s % strips * (height)*BENCH_LDX, *w = o->w;         \
            for (size_t i = 0; i < o->words; i += FED_STEPS, x += FED_STEPS)            \
                for_rows(step, FED_STEPS)                                               \
                {                                                                       \
                    vector first = load(w), second = load(w + (lanes));                 \
                    for_rows(r, height)                                                 \
                    {                                                                   \
                        vector factor = splat(x[r * BENCH_LDX + step]);                 \
                        __asm__("" : "+v"(factor)); /* loaded once */                   \
                        multiply_add(sums[r][0], factor, first);                        \
                        multiply_add(sums[r][1], factor, second);                       \
                    }                                                                   \
                    w += 2 * (lanes);                                                   \
                }                                                                       \
        }                                                                               \
        for_rows(r, height)                                                             \
        {                                                                               \
            keep(sums[r][0]);                                                           \
            keep(sums[r][1]);                                                           \
        }                                                                               \
        return (double)(o->passes * strips * o->words) * (per_step);                    \
    }

/* Assembler, because gcc would copy sums about. */
#define FMA(sum, x, w) __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#define DOT_BF16(sum, x, w) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#define DOT_INT8(sum, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))
#define MULTIPLY_THEN_ADD(sum, x, w) sum = _mm_add_ps(sum, _mm_mul_ps(x, w))

#define FED_AVX512(name, multiply_add, numbers)                                         \
    FED(name, "avx512f", __m512, 14, 16, _mm512_loadu_ps, _mm512_set1_ps, multiply_add, \
        14 * 2 * 16 * 2 * (numbers))

FED_AVX512(fed_fp32_avx512, FMA, 1)
FED_AVX512(fed_bf16_avx512, DOT_BF16, 2)
FED_AVX512(fed_int8_avx512, DOT_INT8, 4)
FED(fed_fp32_avx2, "avx2,fma", __m256, 6, 8, _mm256_loadu_ps, _mm256_set1_ps, FMA, 6 * 2 * 8 * 2)
FED(fed_fp32_sse2, "sse2", __m128, 6, 4, _mm_loadu_ps, _mm_set1_ps, MULTIPLY_THEN_ADD,
    6 * 2 * 4 * 2)

/* ---- Reading ------------------------------------------------------------------------------- */

TARGET("avx512f") static void read_avx512(const char *first, size_t stride, size_t bytes)
{
    __m512i seen[BENCH_STREAMS];
    for_streams seen[i] = _mm512_setzero_si512();
    for (size_t at = 0; at < bytes; at += 64)
        for_streams seen[i] =
            _mm512_xor_si512(seen[i], _mm512_loadu_si512(first + (size_t)i * stride + at));
    for_streams keep(seen[i]);
}

TARGET("avx2") static void read_avx2(const char *first, size_t stride, size_t bytes)
{
    __m256i seen[BENCH_STREAMS];
    for_streams seen[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < bytes; at += 32)
        for_streams seen[i] = _mm256_xor_si256(
            seen[i], _mm256_loadu_si256((const void *)(first + (size_t)i * stride + at)));
    for_streams keep(seen[i]);
}

static void read_sse2(const char *first, size_t stride, size_t bytes)
{
    __m128i seen[BENCH_STREAMS];
    for_streams seen[i] = _mm_setzero_si128();
    for (size_t at = 0; at < bytes; at += 16)
        for_streams seen[i] = _mm_xor_si128(
            seen[i], _mm_loadu_si128((const void *)(first + (size_t)i * stride + at)));
    for_streams keep(seen[i]);
}

void bench_simd_get(struct bench_simd *out, enum attn_cpu_level level)
{
    __builtin_cpu_init();
    *out = (struct bench_simd){"sse2", {fp32_sse2}, {fed_fp32_sse2}, read_sse2};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        *out = (struct bench_simd){"avx2", {fp32_avx2}, {fed_fp32_avx2}, read_avx2};
    if (!__builtin_cpu_supports("avx512f"))
        return;
    *out = (struct bench_simd){"avx512", {fp32_avx512}, {fed_fp32_avx512}, read_avx512};
    if (__builtin_cpu_supports("avx512bf16")) {
        out->burst[BENCH_BF16] = bf16_avx512;
        out->fed[BENCH_BF16] = fed_bf16_avx512;
    }
    if (__builtin_cpu_supports("avx512vnni")) {
        out->burst[BENCH_INT8] = int8_avx512;
        out->fed[BENCH_INT8] = fed_int8_avx512;
    }
    if (level >= ATTN_CPU_AVX512AMX) { /* an engine of that level is open: tiles are permitted */
        out->burst[BENCH_BF16] = bf16_amx;
        out->burst[BENCH_INT8] = int8_amx;
        out->fed[BENCH_BF16] = fed_bf16_amx;
        out->fed[BENCH_INT8] = fed_int8_amx;
    }
}
