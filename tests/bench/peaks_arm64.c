/* peaks_arm64.c: peaks.c for arm64: loops that do nothing but multiply-adds, or nothing but loads.
 *
 * CHAINS independent sums are more than latency times pipes of any CPU this runs on, and few enough
 * for 32 registers. */
#include "peaks.h"

#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#define CHAINS 24
#define ROUNDS 10000
#define PER_BURST ((double)CHAINS * ROUNDS)

#define TARGET(features) __attribute__((target("arch=armv8.2-a+" features)))
#define keep(vector) __asm__ volatile("" : : "w"(vector))
#define for_chains _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++)
#define for_streams _Pragma("GCC unroll 4") for (int i = 0; i < BENCH_STREAMS; i++)

static double fp32_neon(void)
{
    float32x4_t sums[CHAINS], factor = vdupq_n_f32(0.999f), addend = vdupq_n_f32(0.001f);
    for_chains sums[i] = vdupq_n_f32((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = vfmaq_f32(sums[i], factor, addend);
    for_chains keep(sums[i]);
    return PER_BURST * 4 * 2;
}

TARGET("bf16") static double bf16_bfmmla(void)
{
    float32x4_t sums[CHAINS];
    uint16x8_t bits = vdupq_n_u16(0x3f80); /* 1.0 as bfloat16 */
    __asm__("" : "+w"(bits));              /* gcc 12 would make it a constant of FEAT_FP16 */
    const bfloat16x8_t ones = vreinterpretq_bf16_u16(bits);
    for_chains sums[i] = vdupq_n_f32((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = vbfmmlaq_f32(sums[i], ones, ones);
    for_chains keep(sums[i]);
    return PER_BURST * 16 * 2;
}

TARGET("dotprod") static double int8_sdot(void)
{
    int32x4_t sums[CHAINS];
    int8x16_t ones = vdupq_n_s8(1);
    for_chains sums[i] = vdupq_n_s32(i);
    for (int round = 0; round < ROUNDS; round++)
        for_chains sums[i] = vdotq_s32(sums[i], ones, ones);
    for_chains keep(sums[i]);
    return PER_BURST * 16 * 2;
}

static void read_neon(const char *first, size_t stride, size_t bytes)
{
    uint8x16_t seen[BENCH_STREAMS];
    for_streams seen[i] = vdupq_n_u8(0);
    for (size_t at = 0; at < bytes; at += 16)
        for_streams seen[i] =
            veorq_u8(seen[i], vld1q_u8((const uint8_t *)first + (size_t)i * stride + at));
    for_streams keep(seen[i]);
}

void bench_simd_get(struct bench_simd *out, enum attn_cpu_level level)
{
    (void)level;
    *out = (struct bench_simd){.name = "neon", .burst = {fp32_neon}, .read = read_neon};
    if (getauxval(AT_HWCAP2) & HWCAP2_BF16)
        out->burst[BENCH_BF16] = bf16_bfmmla;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        out->burst[BENCH_INT8] = int8_sdot;
}
