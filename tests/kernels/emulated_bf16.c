/* emulated_bf16.c: the kernels of level avx512bf16, with vdpbf16ps emulated as its manual defines
 * it.
 *
 * For each word: sum = fma(odd of x, odd of w, sum), then fma(even, even, sum).  Denormal operands
 * count as zeros, denormal results become zeros, rounding is to nearest even. */
#include <immintrin.h>

static inline __m512 flush(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __mmask16 normal = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
    const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32((int)0x80000000));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(sign, normal, bits));
}

static inline __m512 multiply_add(__m512 sum, __m512i x, __m512i w)
{
    return flush(
        _mm512_fmadd_ps(flush(_mm512_castsi512_ps(x)), flush(_mm512_castsi512_ps(w)), flush(sum)));
}

static inline __m512 emulated_dot(__m512 sum, __m512i x, __m512i w)
{
    const __m512i odd = _mm512_set1_epi32((int)0xffff0000);
    sum = multiply_add(sum, _mm512_and_si512(x, odd), _mm512_and_si512(w, odd));
    return multiply_add(sum, _mm512_slli_epi32(x, 16), _mm512_slli_epi32(w, 16));
}

#define PROJECT_DOT_BF16 emulated_dot
#define attn_kernels_avx512_bf16 kernels_emulated_bf16
#include "kernelcheck.h"

#include "../../lib/kernels/avx512_bf16.c"
