/* avx512_bf16.c: the kernel that AVX-512 BF16 does better: products with bf16 weights, two to
 * a word and instruction (vdpbf16ps), by rows rounded to bf16.
 *
 * One function wraps the instruction.  tests/kernels replace it by an emulation, so that all but
 * the instruction itself is tested on any AVX-512 machine. */
#ifndef PROJECT_DOT_BF16
#include <immintrin.h>

#include "kernels/kernels.h"

/* For each word: sum + odd x odd, then + even x even, both fused; denormals count as zeros. */
INLINE __m512 project_dot_bf16_avx512bf16(__m512 sum, __m512i x, __m512i w)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
}
#define PROJECT_DOT_BF16 project_dot_bf16_avx512bf16
#endif

#include "kernels/avx512_project.h"

PROJECT(project_bf16_avx512bf16, OP_BF16_DOT)

void attn_kernels_avx512_bf16(struct attn_kernels *table)
{
    table->project[ATTN_BF16] = project_bf16_avx512bf16;
    table->bf16_rounds_rows = true;
}
