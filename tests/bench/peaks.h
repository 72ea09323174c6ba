/* peaks.h: loops that reach the highest rates of one thread of this CPU: multiply-adds and reading.
 *
 * The table of loops is filled for this CPU at run time; peaks.c, or peaks_arm64.c, has the only
 * intrinsics of the benchmarks. */
#ifndef TESTS_BENCH_PEAKS_H
#define TESTS_BENCH_PEAKS_H

#include <stddef.h>

enum bench_peak {
    BENCH_FP32, /* multiply-add, fused where the CPU can */
    BENCH_BF16, /* vdpbf16ps, bfmmla */
    BENCH_INT8, /* vpdpbusd, sdot */
    BENCH_NUM_PEAKS
};

#define BENCH_STREAMS 4 /* read side by side: one does not keep the prefetchers busy */

struct bench_simd {
    const char *name; /* "avx512", "avx2", "sse2", "neon" */
    /* Computes for some tens of microseconds in registers; returns the number of operations, two
     * for a multiply-add.  NULL where the CPU has no such instruction. */
    double (*burst[BENCH_NUM_PEAKS])(void);
    /* Reads `bytes`, a multiple of 64, of each of BENCH_STREAMS streams `stride` bytes apart. */
    void (*read)(const char *first, size_t stride, size_t bytes);
};

void bench_simd_get(struct bench_simd *out);

#endif
