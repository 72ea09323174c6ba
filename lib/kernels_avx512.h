/* kernels_avx512.h: what the files of the AVX-512 levels share. */
#ifndef ATTN_LIB_KERNELS_AVX512_H
#define ATTN_LIB_KERNELS_AVX512_H

#include <immintrin.h>

#include "kernels.h"
#include "mem.h"

#define INLINE static inline __attribute__((always_inline))
/* Loops over the registers of a tile: unrolled, so that an index is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)

#define LANES 16

/* The first `count` lanes; all where count is LANES or more. */
INLINE __mmask16 first_lanes(size_t count)
{
    return (__mmask16)(count >= LANES ? 0xffffu : (1u << count) - 1u);
}

/* A factor of a row.  The register is opaque to the compiler, which would rather load anew for
 * each use and saturate the load ports. */
INLINE __m512 load_factor(const float *x)
{
    __m512 v = _mm512_set1_ps(*x);
    __asm__("" : "+v"(v));
    return v;
}

#endif
