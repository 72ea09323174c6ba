/* neon.c: the kernel table for arm64's vectors of four floats.
 *
 * The design is that of avx2.c with 32 registers.  A multiply-add takes its factor from a
 * lane of a register, so one load has the factors of a row for four steps.  Elements are the same
 * chain of fused multiply-adds whatever the tile.  Slots that gcc makes the same code of stay those
 * of the portable level.
 */
#include <math.h>
#include <string.h>

#include "kernels/neon.h"

#include "kernels/rows.h"

/* ---- matmul ---------------------------------------------------------------------------------- */

#define MAX_ROWS 8 /* x 2 vectors: 16 accumulators, 8 vectors of factors, of 32 registers */
#define MAX_WIDE 4 /* x 4 vectors: as many; few rows need more chains to hide the latency */

/* Loads the next LANES columns of a row of b as float32; of words of int8 number `at` (constant) of
 * each.  Where `masked` (constant) nothing beyond `count` columns is read. */
INLINE float32x4_t load_numbers_neon(const void *from, size_t count, const bool masked,
                                     const enum attn_dtype dtype, const int at)
{
    uint16_t some[LANES] = {0};
    if (dtype == ATTN_F32)
        return load_part(from, count, masked);
    if (dtype == ATTN_INT8) {
        int32x4_t words = vreinterpretq_s32_f32(load_part(from, count, masked));
        words = veorq_s32(words, vdupq_n_s32((int)0x80808080));
        words = at < 3 ? vshlq_s32(words, vdupq_n_s32(24 - 8 * at)) : words;
        return vcvtq_f32_s32(vshrq_n_s32(words, 24));
    }
    if (masked)
        from = memcpy(some, from, attn_min(count, LANES) * 2);
    uint16x4_t half = vld1_u16(from);
    if (dtype == ATTN_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* The columns of a tile: its part of b and c, and how much of it there is. */
struct tile_columns {
    const char *b;
    size_t step, vector; /* bytes from one row of b to the next, from one vector to the next */
    size_t left[4];      /* columns of n from each vector on */
};

/* Adds `steps` (constant) steps of the sum from the current row of b on, by lanes of factor[r]. */
INLINE void matmul_steps_neon(float32x4_t sum[MAX_ROWS][4], const float32x4_t factor[MAX_ROWS],
                              const struct tile_columns *t, const enum attn_dtype dtype,
                              const int rows, const int vectors, const bool masked, const int steps)
{
    const char *b = t->b;
    unroll_for(s, steps) {
        float32x4_t row[4];
        const int at = dtype == ATTN_INT8 ? s : 0;
        unroll_for(v, vectors)
            row[v] = load_numbers_neon(b + v * t->vector, t->left[v], masked, dtype, at);
        unroll_for(r, rows)
            unroll_for(v, vectors)
                sum[r][v] = multiply_add(sum[r][v], row[v], factor[r], s);
        b += dtype == ATTN_INT8 ? 0 : t->step;
    }
}

/* The last k % LANES steps. */
INLINE void matmul_last_steps_neon(float32x4_t sum[MAX_ROWS][4], const struct attn_matmul *p,
                                   const float *a, size_t i, struct tile_columns t,
                                   const enum attn_dtype dtype, const int rows, const int vectors,
                                   const bool masked)
{
    float32x4_t factor[MAX_ROWS];
    unroll_for(r, rows)
        factor[r] = load_first(a + r * p->lda + i, p->k - i, 0);
    switch (p->k - i) {
    case 3:
        matmul_steps_neon(sum, factor, &t, dtype, rows, vectors, masked, 3);
        break;
    case 2:
        matmul_steps_neon(sum, factor, &t, dtype, rows, vectors, masked, 2);
        break;
    case 1:
        matmul_steps_neon(sum, factor, &t, dtype, rows, vectors, masked, 1);
        break;
    default:
        break;
    }
}

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void matmul_tile(const struct attn_matmul *p, size_t r0, size_t j,
                        const enum attn_dtype dtype, const int rows, const int vectors,
                        const bool masked)
{
    struct tile_columns t = {.b = (const char *)p->b + j * column_bytes(dtype),
                             .step = p->ldb * column_bytes(dtype),
                             .vector = LANES * column_bytes(dtype)};
    const float *a = p->a + r0 * p->lda;
    float *c = p->c + r0 * p->ldc + j;
    float32x4_t sum[MAX_ROWS][4], factor[MAX_ROWS];
    unroll_for(v, vectors)
        t.left[v] = p->n - attn_min(p->n, j + v * LANES);
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = p->accumulate ? load_part(c + r * p->ldc + v * LANES, t.left[v], masked)
                                      : vdupq_n_f32(0);
    size_t i = 0;
    for (; i + LANES <= p->k; i += LANES, t.b += LANES / row_depth(dtype) * t.step) {
        const float *from = a + i;
        if (dtype == ATTN_F16) /* else gcc computes the address of each row anew */
            __asm__("" : "+r"(from));
        unroll_for(r, rows)
            factor[r] = vld1q_f32(from + r * p->lda);
        matmul_steps_neon(sum, factor, &t, dtype, rows, vectors, masked, LANES);
    }
    matmul_last_steps_neon(sum, p, a, i, t, dtype, rows, vectors, masked);
    if (dtype == ATTN_INT8 && p->scale != NULL)
        unroll_for(v, vectors) {
            float32x4_t scale = load_part(p->scale + j + v * LANES, t.left[v], masked);
            unroll_for(r, rows)
                sum[r][v] = vmulq_f32(sum[r][v], scale);
        }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            store_part(c + r * p->ldc + v * LANES, sum[r][v], t.left[v], masked);
}

MATMUL(matmul_f32_neon, ATTN_F32, ROWS_8, ROWS_4)
MATMUL(matmul_bf16_neon, ATTN_BF16, ROWS_8, ROWS_4)
MATMUL(matmul_f16_neon, ATTN_F16, ROWS_8, ROWS_4)
MATMUL(matmul_int8_neon, ATTN_INT8, ROWS_8, ROWS_4)

/* ---- outer ----------------------------------------------------------------------------------- */

#define OUTER_ROWS 12 /* x 2 vectors: 24 accumulators, 3 vectors of factors, of 32 registers */
#define OUTER_WIDE 0

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void outer_tile(const struct attn_outer *p, size_t r0, size_t j, const int rows,
                       const int vectors, const bool masked)
{
    const struct attn_outer t = *p;
    const float *a = t.a + r0, *b = t.b + j;
    float *c = t.c + r0 * t.ldc + j;
    float32x4_t sum[OUTER_ROWS][4], row[4], factor[OUTER_ROWS / LANES];
    size_t left[4];
    unroll_for(v, vectors)
        left[v] = t.n - attn_min(t.n, j + v * LANES);
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = t.rescale
                            ? vmulq_n_f32(load_part(c + r * t.ldc + v * LANES, left[v], masked),
                                          t.rescale[r0 + r])
                            : vdupq_n_f32(0);
    for (size_t i = 0; i < t.k; i++, a += t.lda, b += t.ldb) {
        unroll_for(v, vectors)
            row[v] = load_part(b + v * LANES, left[v], masked);
        for (int f = 0; f < rows; f += LANES)
            factor[f / LANES] = load_first(a + f, (size_t)(rows - f), 0);
        unroll_for(r, rows)
            unroll_for(v, vectors)
                sum[r][v] = multiply_add(sum[r][v], row[v], factor[r / LANES], r % LANES);
    }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            store_part(c + r * t.ldc + v * LANES, sum[r][v], left[v], masked);
}

OUTER(outer_neon, ROWS_12, ROWS_0)

void attn_kernels_neon(struct attn_kernels *table)
{
    table->matmul[ATTN_F32] = matmul_f32_neon;
    table->matmul[ATTN_BF16] = matmul_bf16_neon;
    table->matmul[ATTN_F16] = matmul_f16_neon;
    table->matmul[ATTN_INT8] = matmul_int8_neon;
    table->columns_from_rows = 2 * LANES;
    table->outer = outer_neon;
    table->softmax_columns = softmax_columns;
    table->transpose = transpose;
    table->softmax = softmax;
    table->finish_weights = finish_weights;
}
