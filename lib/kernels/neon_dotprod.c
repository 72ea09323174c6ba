/* neon_dotprod.c: the kernels that FEAT_DotProd does better: products with int8, four to a
 * word and instruction (sdot).
 *
 * Inside attention the float32 side of a product with int8 becomes an integer of 23 bits and a
 * sign, stored as three signed bytes, as avx512_vnni.c has it:
 *   n = 65536 b2 + 256 b1 + b0
 * The product is three exact sums of byte products, as fine as float32.  Both sides are signed
 * here, so the sums need no correction. */
#include "kernels/neon_project.h"

PROJECT(project_int8_dotprod, OP_INT8_DOT)

/* ---- Rows ------------------------------------------------------------------------------------ */

#define BYTES 3 /* of a number; a group of four numbers is a word of each, and one unused */

/* Converts floats to integers of 23 bits, x * per_unit, and regroups their bytes: a word of the
 * lowest bytes, one of the second bytes and so on.  Adding 128 to each byte and then flipping its
 * highest bit makes the bytes signed, with the right carries. */
INLINE float32x4_t split_bytes_dotprod(float32x4_t x, float per_unit)
{
    static const uint8_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const int32x4_t middle = vdupq_n_s32(0x808080);
    int32x4_t n = vaddq_s32(vcvtnq_s32_f32(vmulq_n_f32(x, per_unit)), middle);
    uint8x16_t bytes = vreinterpretq_u8_s32(veorq_s32(n, middle));
    return vreinterpretq_f32_u8(vqtbl1q_u8(bytes, vld1q_u8(order)));
}

INLINE float32x4_t load_scaled_dotprod(const float *x, const float *factor, size_t j, size_t n)
{
    float32x4_t v = load_first(x + j, n - j, 0);
    return factor != NULL ? vmulq_f32(v, load_first(factor + j, n - j, 0)) : v;
}

INLINE float max_magnitude_dotprod(const float *x, const float *factor, size_t n)
{
    float32x4_t top = vdupq_n_f32(0);
    for (size_t j = 0; j < n; j += LANES)
        top = vmaxq_f32(top, vabsq_f32(load_scaled_dotprod(x, factor, j, n)));
    return vmaxvq_f32(top);
}

/* The power of two by which numbers of at most `most` become integers of at least 2^22 (the
 * largest) and less than 127.5 * 65536, whose highest byte still fits. */
INLINE float units_dotprod(float most)
{
    const int exponent = (int)(attn_float_to_bits(1.005f * most) >> 23) - 127;
    return attn_bits_to_float((uint32_t)(attn_min(22 - exponent, 126) + 127) << 23);
}

static void prepare_rows_dotprod(float *x, size_t ldx, struct attn_prepared_row *prepared,
                                 const float *factor, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, x += ldx) {
        const float per_unit = units_dotprod(max_magnitude_dotprod(x, factor, n));
        for (size_t j = 0; j < n; j += LANES)
            vst1q_f32(x + j, split_bytes_dotprod(load_scaled_dotprod(x, factor, j, n), per_unit));
        prepared[r] = (struct attn_prepared_row){.step = 1 / per_unit};
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

#define MAX_ROWS 4 /* x 2 vectors: 24 accumulators of 32 registers */
#define MAX_WIDE 0

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void matmul_tile(const struct attn_matmul *p, size_t r0, size_t j,
                        const enum attn_dtype dtype, const int rows, const int vectors,
                        const bool masked)
{
    (void)dtype; /* int8 */
    const struct attn_matmul t = *p;
    const float *a = t.a + r0 * t.lda, *b = (const float *)t.b + j;
    float *c = t.c + r0 * t.ldc + j;
    float32x4_t sum[MAX_ROWS][BYTES][2], row[2];
    size_t left[2];
    unroll_for(v, vectors)
        left[v] = t.n - attn_min(t.n, j + v * LANES);
    unroll_for(r, rows)
        unroll_for(d, BYTES)
            unroll_for(v, vectors)
                sum[r][d][v] = vdupq_n_f32(0);
    for (size_t i = 0; i < t.k; i += LANES, b += t.ldb) {
        unroll_for(v, vectors)
            row[v] =
                project_weights_neon(load_part(b + v * LANES, left[v], masked), OP_INT8_DOT, 0);
        unroll_for(r, rows) {
            const float32x4_t factor = vld1q_f32(a + r * t.lda + i);
            unroll_for(d, BYTES)
                unroll_for(v, vectors)
                    sum[r][d][v] =
                        project_multiply_add_neon(sum[r][d][v], row[v], factor, d, OP_INT8_DOT);
        }
    }
    unroll_for(r, rows)
        unroll_for(v, vectors) {
            float32x4_t bytes[BYTES], total;
            unroll_for(d, BYTES)
                bytes[d] = vcvtq_f32_s32(vreinterpretq_s32_f32(sum[r][d][v]));
            total = vfmaq_n_f32(bytes[0], bytes[1], 256);
            total = vfmaq_n_f32(total, bytes[2], 65536);
            total = vfmaq_n_f32(t.accumulate ? load_part(c + r * t.ldc + v * LANES, left[v], masked)
                                             : vdupq_n_f32(0),
                                total, t.prepared[r0 + r].step);
            if (t.scale != NULL)
                total = vmulq_f32(total, load_part(t.scale + j + v * LANES, left[v], masked));
            store_part(c + r * t.ldc + v * LANES, total, left[v], masked);
        }
}

MATMUL(matmul_int8_dotprod, ATTN_INT8, ROWS_4, ROWS_0)

void attn_kernels_neon_dotprod(struct attn_kernels *table)
{
    table->project[ATTN_INT8] = project_int8_dotprod;
    table->matmul[ATTN_INT8] = matmul_int8_dotprod;
    table->prepare_rows = prepare_rows_dotprod;
}
