/* cpu.h: what the CPU has that kernels need, and the levels made of it. */
#ifndef ATTN_LIB_MACHINE_CPU_H
#define ATTN_LIB_MACHINE_CPU_H

#include "attn.h"

/* Features of a CPU, of which a set is a sum. */
enum attn_cpu_feature {
    ATTN_HAS_AVX2 = 1 << 0,   /* with FMA and F16C */
    ATTN_HAS_AVX512 = 1 << 1, /* F, BW, DQ, VL and those of AVX2 */
    ATTN_HAS_VNNI = 1 << 2,   /* of AVX-512, as is BF16 */
    ATTN_HAS_BF16 = 1 << 3,   /* also FEAT_BF16 of arm64 */
    ATTN_HAS_AMX = 1 << 4,    /* TILE, BF16, INT8, and the kernel's leave */
    ATTN_HAS_NEON = 1 << 5,
    ATTN_HAS_DOTPROD = 1 << 6,
};

/* The features that kernels of `level` may use: those that processor and operating system both
 * support, of the ones that this level and those before it need.  Of ATTN_CPU_AUTO all, less those
 * that are slower here than doing without.  AMX is asked of the kernel, for the whole process, only
 * where it may be used. */
unsigned attn_cpu_features(enum attn_cpu_level level);

/* The last level that needs none but these features; never ATTN_CPU_AUTO. */
enum attn_cpu_level attn_cpu_level_of(unsigned features);

#ifdef __x86_64__
/* The features of ATTN_CPU_AUTO on a CPU of CPUID's vendor, with or without AVX512_VBMI: all but
 * AVX512_BF16 where an Intel CPU has VBMI (Sapphire Rapids and later) and AMX is masked or refused.
 * vdpbf16ps is half as fast there as float32 multiply-adds, which bf16 weights take without it
 * (docs/BENCHMARKS.md).  Cooper Lake, without VBMI, was not measured. */
unsigned attn_cpu_fastest(unsigned features, const char *vendor, bool vbmi);
#endif

/* As in ATTN_CPU_LEVEL_NAMES. */
const char *attn_cpu_level_name(enum attn_cpu_level level);

/* Prints the CPU's signature (family, model, stepping; in hexadecimal digits) and its name. */
#define ATTN_CPU_TEXT_MAX 80
void attn_cpu_print(char out[ATTN_CPU_TEXT_MAX]);

#endif
