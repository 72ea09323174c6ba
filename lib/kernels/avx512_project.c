/* avx512_project.c: products with packed weights by the instructions of every AVX-512 CPU,
 * made by avx512_project.h, and quantize. */
#include "kernels/avx512_project.h"

PROJECT(project_f32_avx512, OP_F32)
PROJECT(project_bf16_avx512, OP_BF16_AS_F32)
PROJECT(project_int8_avx512, OP_INT8_AS_INT16)

static void quantize_avx512(int8_t *out, float *scale, const float *x, size_t n)
{
    __m512 lane = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += LANES)
        lane = _mm512_max_ps(lane, _mm512_abs_ps(_mm512_maskz_loadu_ps(first_lanes(n - i), x + i)));
    const float max = _mm512_reduce_max_ps(lane);
    const bool none = max < ATTN_MIN_QUANTIZABLE;
    const __m512 factor = _mm512_set1_ps(none ? 0 : 127 / max);
    *scale = none ? 0 : max / 127;
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 mask = first_lanes(n - i);
        __m512i near =
            _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), factor));
        _mm_mask_storeu_epi8(out + i, mask, _mm512_cvtepi32_epi8(near));
    }
}

void attn_kernels_avx512_project(struct attn_kernels *table)
{
    table->project[ATTN_F32] = project_f32_avx512;
    table->project[ATTN_BF16] = project_bf16_avx512;
    table->project[ATTN_INT8] = project_int8_avx512;
    table->quantize = quantize_avx512;
}
