/* portable.c: the kernel table in plain C, for any CPU and as the reference for the other
 * levels.
 *
 * Inner loops run over small arrays of constant size, of columns or of partial sums, which the
 * compiler keeps in whatever vector registers the target has.  The code spells out the order of
 * every sum; without -ffast-math and with -ffp-contract=off the machine follows it.
 */
#include <math.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"
#include "kernels/widen.h"

#define LANES 32 /* columns or partial sums side by side; gcc makes no vector loop of fewer */

/* The sum of all lanes, the upper half added to the lower until one lane is left. */
INLINE float sum_lanes_portable(float lane[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* exp(x), see exp.h.  The comparison becomes a mask because the compiler does not vectorise
 * a choice between a result and 0. */
INLINE float exp_portable(float x)
{
    float rounded = x * EXP_LOG2E + EXP_ROUND, n = rounded - EXP_ROUND;
    float r = (x - n * EXP_LN2_HI) - n * EXP_LN2_LO;
    float q = (((EXP_Q4 * r + EXP_Q3) * r + EXP_Q2) * r + EXP_Q1) * r + EXP_Q0;
    float e = (1.0f + (r + r * r * q)) * attn_bits_to_float(attn_float_to_bits(rounded) << 23);
    return attn_bits_to_float(attn_float_to_bits(e) & -(uint32_t)(x >= EXP_LOWEST));
}

#define FEW 8 /* columns of a tile where fewer than LANES are left */

/* ---- Products -------------------------------------------------------------------------------- */

/* Number i of b as float32. */
INLINE float number_at_portable(const void *b, size_t i, const enum attn_dtype dtype)
{
    switch (dtype) {
    case ATTN_BF16:
        return attn_bf16_to_float(((const uint16_t *)b)[i]);
    case ATTN_F16:
        return attn_f16_to_float(((const uint16_t *)b)[i]);
    default:
        return ((const float *)b)[i];
    }
}

/* `cols` (constant) columns of row r of c, from column j on. */
INLINE void matmul_tile_portable(const struct attn_matmul *p, size_t r, size_t j,
                                 const enum attn_dtype dtype, const size_t cols)
{
    float sum[LANES], *c = p->c + r * p->ldc + j;
    const float *a = p->a + r * p->lda;
    for (size_t l = 0; l < cols; l++)
        sum[l] = p->accumulate ? c[l] : 0;
    for (size_t i = 0; i < p->k; i++)
        for (size_t l = 0; l < cols; l++)
            sum[l] += a[i] * number_at_portable(p->b, i * p->ldb + j + l, dtype);
    for (size_t l = 0; l < cols; l++)
        c[l] = sum[l];
}

INLINE void matmul_of_dtype_portable(const struct attn_matmul *p, const enum attn_dtype dtype)
{
    for (size_t r = 0; r < p->rows; r++) {
        size_t j = 0;
        for (; j + LANES <= p->n; j += LANES)
            matmul_tile_portable(p, r, j, dtype, LANES);
        for (; j + FEW <= p->n; j += FEW)
            matmul_tile_portable(p, r, j, dtype, FEW);
        for (; j < p->n; j++)
            matmul_tile_portable(p, r, j, dtype, 1);
    }
}

#define MATMUL(name, dtype) \
    static void name(const struct attn_matmul *p) { matmul_of_dtype_portable(p, dtype); }

MATMUL(matmul_f32_portable, ATTN_F32)
MATMUL(matmul_bf16_portable, ATTN_BF16)
MATMUL(matmul_f16_portable, ATTN_F16)

/* Unpacks words of `cols` columns of int8 into floats, out [k][LANES]. */
static void matmul_unpack_int8_portable(float *out, const uint8_t *b, size_t ldb, size_t k,
                                        size_t cols)
{
    for (size_t i = 0; i < k; i += 4, out += 4 * LANES, b += 4 * ldb)
        for (size_t c = 0; c < cols; c++)
            for (size_t at = 0; at < 4; at++)
                out[at * LANES + c] = (float)(b[4 * c + at] - 128);
}

static void matmul_int8_portable(const struct attn_matmul *p)
{
    float plain[ATTN_MAX_HEAD_DIM * LANES];
    struct attn_matmul part = *p;
    for (size_t j = 0; j < p->n; j += LANES) {
        part.n = attn_min(p->n - j, LANES);
        part.c = p->c + j;
        part.b = plain;
        part.ldb = LANES;
        matmul_unpack_int8_portable(plain, (const uint8_t *)p->b + 4 * j, p->ldb, p->k, part.n);
        matmul_of_dtype_portable(&part, ATTN_F32);
        for (size_t r = 0; p->scale != NULL && r < p->rows; r++)
            for (size_t c = 0; c < part.n; c++)
                part.c[r * p->ldc + c] *= p->scale[j + c];
    }
}

/* ---- Softmax --------------------------------------------------------------------------------- */

static float max_row_portable(const float *s, size_t n, float start)
{
    float lane[LANES], max = start;
    for (size_t l = 0; l < LANES; l++)
        lane[l] = start;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
    for (size_t l = 0; j + l < n; l++)
        lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
    for (size_t l = 0; l < LANES; l++)
        max = lane[l] > max ? lane[l] : max;
    return max;
}

static float sum_row_portable(const float *s, size_t n)
{
    float lane[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += s[j + l];
    for (size_t l = 0; j + l < n; l++)
        lane[l] += s[j + l];
    return sum_lanes_portable(lane);
}

static void softmax_portable(float *s, size_t lds, float *max, float *sum, float *rescale,
                             size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        float top = max_row_portable(s + r * lds, n, max[r]);
        for (size_t j = 0; j < n; j++)
            s[r * lds + j] = exp_portable(s[r * lds + j] - top);
        float total = sum_row_portable(s + r * lds, n);
        rescale[r] = top == -INFINITY ? 1 : exp_portable(max[r] - top);
        sum[r] = sum[r] * rescale[r] + total;
        max[r] = top;
    }
}

static void finish_weights_portable(float *w, float max, float factor, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        float e = exp_portable(w[j] - max);
        w[j] = attn_bits_to_float(attn_float_to_bits(e * factor) &
                                  -(uint32_t)(e > 0)); /* factor may be infinite */
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void prepare_rows_portable(float *x, size_t ldx, struct attn_prepared_row *prepared,
                                  const float *factor, size_t rows, size_t n)
{
    (void)prepared;
    for (size_t r = 0; factor != NULL && r < rows; r++)
        for (size_t j = 0; j < n; j++)
            x[r * ldx + j] *= factor[j];
}

static void scale_rows_portable(float *x, size_t ldx, const float *factor, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            x[r * ldx + j] *= factor[r];
}

static void scale_portable(float *out, const float *x, float factor, size_t n)
{
    for (size_t j = 0; j < n; j++)
        out[j] = x[j] * factor;
}

static bool all_within_portable(const float *x, size_t n, float limit)
{
    uint32_t beyond = 0;
    for (size_t i = 0; i < n; i++)
        beyond |= !(fabsf(x[i]) <= limit);
    return !beyond;
}

static void transpose_portable(float *out, size_t ldo, const float *const in[], size_t rows,
                               size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            out[i * ldo + r] = in[r][i] * factor;
}

void attn_kernels_portable(struct attn_kernels *table)
{
    table->matmul[ATTN_F32] = matmul_f32_portable;
    table->matmul[ATTN_BF16] = matmul_bf16_portable;
    table->matmul[ATTN_F16] = matmul_f16_portable;
    table->matmul[ATTN_INT8] = matmul_int8_portable;
    table->softmax = softmax_portable;
    table->finish_weights = finish_weights_portable;
    table->prepare_rows = prepare_rows_portable;
    table->scale_rows = scale_rows_portable;
    table->scale = scale_portable;
    table->all_within = all_within_portable;
    table->columns_from_rows = SIZE_MAX; /* never: compilers vectorise no such loops */
    table->transpose = transpose_portable;
    table->widen_keys = widen_keys;
}
