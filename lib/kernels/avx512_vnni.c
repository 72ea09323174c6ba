/* avx512_vnni.c: the kernels that AVX-512 VNNI does better: products with int8, four to a
 * word and instruction (vpdpbusd).
 *
 * Projections are those of avx512_project.h.  Inside attention the float32 side of a
 * product with int8 becomes an integer of 23 bits and a sign, stored as three signed bytes:
 *   n = 65536 b2 + 256 b1 + b0
 * The product is three exact sums of byte products, as fine as float32.  A vector of words takes
 * three instructions that way; widening it takes eight and multiplying it four. */
#include "kernels/avx512_project.h"

PROJECT(project_int8_avx512vnni, OP_INT8_DOT)

/* ---- Rows ------------------------------------------------------------------------------------ */

#define BYTES 3       /* of a number; a group of four numbers is a word of each, and one unused */
#define WORD_FLOATS 4 /* from one group of a row to the next: as many floats as it replaces */

/* Converts floats to integers of 23 bits, x * per_unit, and regroups the bytes of each four: a word
 * of their lowest bytes, one of their second bytes and so on.  Adding 128 to each byte and then
 * flipping its highest bit makes the bytes signed, with the right carries. */
INLINE __m512i split_bytes_avx512vnni(__m512 x, __m512 per_unit)
{
    const __m512i middle = _mm512_set1_epi32(0x808080);
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m512i n = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x, per_unit)), middle);
    return _mm512_shuffle_epi8(_mm512_xor_si512(n, middle), order);
}

INLINE __m512 load_scaled_avx512vnni(const float *x, const float *factor, size_t j, size_t n)
{
    const __mmask16 mask = first_lanes(n - j);
    __m512 v = _mm512_maskz_loadu_ps(mask, x + j);
    return factor != NULL ? _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, factor + j)) : v;
}

INLINE float max_magnitude_avx512vnni(const float *x, const float *factor, size_t n)
{
    __m512 top = _mm512_setzero_ps();
    for (size_t j = 0; j < n; j += LANES)
        top = _mm512_max_ps(top, _mm512_abs_ps(load_scaled_avx512vnni(x, factor, j, n)));
    return _mm512_reduce_max_ps(top);
}

INLINE void prepare_row_avx512vnni(float *x, struct attn_prepared_row *prepared,
                                   const float *factor, size_t n, float per_unit)
{
    __m512i sum = _mm512_setzero_si512();
    for (size_t j = 0; j < n; j += LANES) {
        __m512i words = split_bytes_avx512vnni(load_scaled_avx512vnni(x, factor, j, n),
                                               _mm512_set1_ps(per_unit));
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), words);
        if (n - j >= LANES) /* a masked store is not forwarded to loads */
            _mm512_storeu_si512(x + j, words);
        else
            _mm512_mask_storeu_epi32(x + j, first_lanes(attn_ceil_div(n - j, 4) * 4), words);
    }
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    __m128i excess = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_storeu_si128((__m128i *)prepared, _mm_sub_epi32(_mm_setzero_si128(), excess));
    prepared->step = 1 / per_unit;
}

/* Takes LANES rows at a time, so that they overlap instead of each waiting for its own largest
 * magnitude.  The largest becomes an integer of at least 2^22 and less than 127.5 * 65536, whose
 * highest byte still fits. */
static void prepare_rows_avx512vnni(float *x, size_t ldx, struct attn_prepared_row *prepared,
                                    const float *factor, size_t rows, size_t n)
{
    float most[LANES] = {0}, per_unit[LANES];
    for (size_t r = 0; r < rows; r += LANES) {
        const size_t count = attn_min(rows - r, LANES);
        for (size_t i = 0; i < count; i++)
            most[i] = 1.005f * max_magnitude_avx512vnni(x + (r + i) * ldx, factor, n);
        __m512 power = _mm512_sub_ps(_mm512_set1_ps(22), _mm512_getexp_ps(_mm512_loadu_ps(most)));
        power = _mm512_min_ps(power, _mm512_set1_ps(126));
        _mm512_storeu_ps(per_unit, _mm512_scalef_ps(_mm512_set1_ps(1), power));
        for (size_t i = 0; i < count; i++)
            prepare_row_avx512vnni(x + (r + i) * ldx, &prepared[r + i], factor, n, per_unit[i]);
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

#define MAX_ROWS 4 /* x 2 vectors: 24 accumulators of 32 registers */
#define MAX_WIDE 0

INLINE __m512i matmul_multiply_add_avx512vnni(__m512i sum, __m512i row, __m512i factor)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(factor));
    return sum;
}

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void matmul_tile(const struct attn_matmul *p, size_t r0, size_t j,
                        const enum attn_dtype dtype, const int rows, const int vectors,
                        const bool masked)
{
    (void)dtype; /* int8 */
    const struct attn_matmul t = *p;
    const struct attn_prepared_row *prepared = t.prepared + r0;
    const float *a = t.a + r0 * t.lda;
    const int32_t *b = (const int32_t *)t.b + j;
    const char *ahead = prefetch_begin(&t, j / LANES * t.k / WORD_FLOATS);
    __m512i sum[MAX_ROWS][BYTES][2];
    __mmask16 mask[2];
    unroll_for(v, vectors)
        mask[v] = masked ? first_lanes(t.n - attn_min(t.n, j + v * LANES)) : 0xffff;
    unroll_for(r, rows)
        unroll_for(d, BYTES)
            unroll_for(v, vectors)
                sum[r][d][v] = _mm512_set1_epi32(prepared[r].correction[d]);
    for (size_t i = 0; i < t.k; i += WORD_FLOATS, b += t.ldb) {
        __m512i row[2];
        ahead = prefetch_lines(ahead, 2);
        unroll_for(v, vectors)
            row[v] = _mm512_maskz_loadu_epi32(mask[v], b + v * LANES);
        unroll_for(r, rows)
            unroll_for(d, BYTES) {
                __m512i factor = _mm512_castps_si512(load_factor(a + r * t.lda + i + d));
                unroll_for(v, vectors)
                    sum[r][d][v] = matmul_multiply_add_avx512vnni(sum[r][d][v], row[v], factor);
            }
    }
    unroll_for(r, rows)
        unroll_for(v, vectors) {
            float *c = t.c + (r0 + (size_t)r) * t.ldc + j + v * LANES;
            __m512 total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][1][v]), _mm512_set1_ps(256),
                                           _mm512_cvtepi32_ps(sum[r][0][v]));
            total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][2][v]), _mm512_set1_ps(65536), total);
            total = _mm512_fmadd_ps(total, _mm512_set1_ps(prepared[r].step),
                                    t.accumulate ? _mm512_maskz_loadu_ps(mask[v], c)
                                                 : _mm512_setzero_ps());
            if (t.scale != NULL)
                total =
                    _mm512_mul_ps(total, _mm512_maskz_loadu_ps(mask[v], t.scale + j + v * LANES));
            _mm512_mask_storeu_ps(c, mask[v], total);
        }
}

MATMUL(matmul_int8_avx512vnni, ATTN_INT8, ROWS_4, ROWS_0)

void attn_kernels_avx512_vnni(struct attn_kernels *table)
{
    table->project[ATTN_INT8] = project_int8_avx512vnni;
    table->matmul[ATTN_INT8] = matmul_int8_avx512vnni;
    table->prepare_rows = prepare_rows_avx512vnni;
}
