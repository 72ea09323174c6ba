/* peaks.h: loops that reach the highest rates of one thread of this CPU: multiply-adds and reading.
 *
 * The table of loops is filled for this CPU at run time; peaks.c, or peaks_arm64.c, has the only
 * intrinsics of the benchmarks. */
#ifndef TESTS_BENCH_PEAKS_H
#define TESTS_BENCH_PEAKS_H

#include <stddef.h>

#include "attn.h"

enum bench_peak {
    BENCH_FP32, /* multiply-add, fused where the CPU can */
    BENCH_BF16, /* vdpbf16ps, bfmmla */
    BENCH_INT8, /* vpdpbusd, sdot */
    BENCH_NUM_PEAKS
};

#define BENCH_STREAMS 4 /* read side by side: one does not keep the prefetchers busy */

/* Where the operands of multiply-adds come from. */
enum bench_feed {
    BENCH_REGISTERS,
    BENCH_L1, /* and L2: loaded as often as the kernels of projections load them */
    BENCH_L2,
    BENCH_NUM_FEEDS
};

/* The operands of a fed burst: all words of a panel w by a strip of rows of x, then by the next
 * strip, and so on, `passes` times.  Words have 32 bits, whatever they hold; a strip has 32 rows
 * (AMX, which completes the last strip), 14 (AVX-512) or 6, a word of the panel two vectors. */
#define BENCH_LDX 401 /* as COPY_STRIDE of the kernels: rows do not evict each other */
struct bench_operands {
    const float *x, *w;         /* [rows][BENCH_LDX], [words][two vectors] */
    size_t rows, words, passes; /* words: a multiple of 4, at most 384 */
};

struct bench_simd {
    const char *name; /* "avx512", "avx2", "sse2", "neon" */
    /* Computes for some tens of microseconds in registers; returns the number of operations, two
     * for a multiply-add.  NULL where the CPU has no such instruction. */
    double (*burst[BENCH_NUM_PEAKS])(void);
    /* The same in the kernels' register tile: each step loads two vectors of w and a word of each
     * row.  NULL where there is no such loop. */
    double (*fed[BENCH_NUM_PEAKS])(const struct bench_operands *operands);
    /* Reads `bytes`, a multiple of 64, of each of BENCH_STREAMS streams `stride` bytes apart. */
    void (*read)(const char *first, size_t stride, size_t bytes);
};

/* The loops of this CPU; those of tiles (AMX) only for an open engine's level that has them, which
 * has asked the kernel for their use. */
void bench_simd_get(struct bench_simd *out, enum attn_cpu_level level);

#endif
