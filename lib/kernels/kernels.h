/* kernels.h: the kernel table, and the contract of each slot.
 *
 * A kernel works on one tile by one thread.  attn_kernels_get fills a table with the portable
 * functions and lets each level up to the chosen one replace what it does better, so every slot
 * is always filled.
 *
 * Common to all slots:
 *   - Reads and writes exactly the elements named, never one beyond; no alignment is required.
 *   - **Row independence**: the bits of row r of the result depend on row r of the inputs and on
 *     k, n and the level, not on `rows` nor on the other rows.  Batch invariance of decoding
 *     rests on this.  kernelcheck tests it.
 *   - rows, k and n are at least 1 unless said otherwise.  Strides (ld*) count floats.
 *   - No floating-point exceptions are unmasked, no state is kept, denormals are as the thread
 *     has set them.
 */
#ifndef ATTN_LIB_KERNELS_H
#define ATTN_LIB_KERNELS_H

#include "attn.h"

#define ATTN_PANEL 32         /* columns of a weight that stand together */
#define ATTN_BLOCK_WORDS 384  /* of a column that a product sums up before it adds to its result */
#define ATTN_PRODUCT_ROWS 168 /* of a block: with the weights in use they stay in a core's L2 */
#define ATTN_PRODUCT_SCRATCH ((size_t)ATTN_PRODUCT_ROWS * (2 * ATTN_BLOCK_WORDS + 32)) /* floats */

/* Weights of a column that share a word of 32 bits: 1, 2 or 4. */
static inline size_t attn_numbers_per_word(enum attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? 2 : dtype == ATTN_INT8 ? 4 : 1;
}

/* One block of a product with weights: y[r][j] = start[r][j] + sum_i x[r][i] * w[i][j]
 * rows is at most ATTN_PRODUCT_ROWS, k at most what ATTN_BLOCK_WORDS words of a column hold.  start
 * is y itself, or one row [n] for all (ldstart 0), or NULL for zeros.
 *
 * w stands in panels: column j is column j % ATTN_PANEL of the panel ldpanel * (j / ATTN_PANEL)
 * words behind w, a panel being [words of k][ATTN_PANEL][in a word], whole also where n ends in it.
 * float32 is one to a word, bf16 two, zero beyond k.  Of int8 a byte is the integer + 128, as the
 * byte products of CPUs want one side unsigned; x then is int8 too, four to a word and zero beyond
 * k, its rows beginning at whole words, and
 *   y[r][j] = start[r][j] + float(sum_i x[r][i] * w[i][j]) * (row_scale[r] * scale[j])
 * where each operation rounds on its own: the sum is exact, so no level has other bits. */
struct attn_project_block {
    float *y;               /* [rows][ldy], of which n are written */
    const float *start;     /* [rows][ldstart] */
    const void *x;          /* [rows][ldx] numbers, of which k are read; of int8 whole words */
    const void *w;          /* [panels][ldpanel] words */
    const void *after;      /* weights that are read after these; NULL: none that are known */
    const float *row_scale; /* [rows], int8 only */
    const float *scale;     /* [n], int8 only */
    float *scratch;         /* [ATTN_PRODUCT_SCRATCH], aligned to ATTN_ALIGN */
    bool kept; /* scratch is as the product before left it, which had the same x, rows and k */
    size_t ldy, ldstart, ldx, ldpanel, rows, k, n;
};

/* The panel that is read after the one of column j, as far as it is known; else that one itself. */
static inline const float *attn_next_panel(const struct attn_project_block *p, size_t j)
{
    const float *own = (const float *)p->w + j / ATTN_PANEL * p->ldpanel;
    if ((j / ATTN_PANEL + 1) * ATTN_PANEL < p->n)
        return own + p->ldpanel;
    return p->after != NULL ? p->after : own;
}

/* A row that was prepared for int8: its numbers are integers in three bytes, and what sums of those
 * begin with, as bytes of int8 count 128 too much. */
struct attn_prepared_row {
    int32_t start[3];
    float unit; /* of the integers */
};

/* A small product inside attention, scores against a tile of keys or weights against a tile of
 * values: c[r][j] = (accumulate ? c[r][j] : 0) + sum_i a[r][i] * b[i][j], times scale[j] at last
 * b is of any dtype.  Of int8 a byte is the integer + 128; four of a column share a word, whole
 * words are read, and rows of a have been prepared; k is at most ATTN_MAX_HEAD_DIM. */
struct attn_matmul {
    float *c;           /* [rows][ldc], of which n are written */
    const float *a;     /* [rows][lda], of which k are read, of int8 whole words */
    const void *b;      /* [k][ldb] of dtype, of which n are read; of int8 [words of k][ldb][4] */
    const char *ahead;  /* what is read next, fetched beside b where rows are few and wait for
                           memory: as many lines as b has; NULL: none */
    const float *scale; /* [n], int8 only; NULL: all 1 */
    const struct attn_prepared_row *prepared; /* [rows], int8 only */
    size_t ldc, lda, ldb, rows, k, n;
    bool accumulate;
};

/* A sum of outer products, which is what a small product is when its rows stand transposed:
 * c[r][j] = (rescale ? c[r][j] * rescale[r] : 0) + sum_i a[i][r] * b[i][j]
 * Scores are one with keys for rows and queries for columns; weighted sums one with those scores
 * for a.  Nothing is gathered and every operand is one stream, so with many rows it is the faster
 * way; its bits are those of matmul after scale_rows. */
struct attn_outer {
    float *c;             /* [rows][ldc], of which n are written */
    const float *rescale; /* [rows], or NULL: c starts from zero */
    const float *a;       /* [k][lda], of which rows are read */
    const float *b;       /* [k][ldb], of which n are read */
    size_t ldc, lda, ldb, rows, k, n;
};

/* Scores that stand transposed, s[j][r] of key j and row r, and the keys that each row sees. */
struct attn_score_columns {
    float *s; /* [n][lds], of which rows are in use */
    size_t lds, rows, n;
    const int32_t *first, *end; /* [rows] row r sees keys first[r] <= j < end[r]; NULL: all */
};
#define ATTN_MIN_QUANTIZABLE 1e-36f /* 127 over less might be infinite */

struct attn_kernels {
    const char *name;

    /* From how many rows on a unit of attention goes by columns (outer, softmax_columns): a matter
     * of speed, for its bits are the same either way. */
    size_t column_rows;

    /* By the dtype of b.  Each element is one chain of multiply-adds over ascending i, starting
     * from c (accumulate) or zero. */
    void (*matmul[ATTN_INT8 + 1])(const struct attn_matmul *product);

    /* Makes rows what matmul multiplies int8 by, in place: x[r][j] *= factor[j] (NULL: 1), whole
     * words of which may be written.  At a level that multiplies bytes these become the nearest
     * multiples of prepared[r].unit, a power of two that is at most 2^-21 max_j |x[r][j]| or
     * 2^-126, in bytes, and a sum of matmul is exact but for the roundings at its end; others leave
     * `prepared` alone. */
    void (*prepare_rows)(float *x, size_t ldx, struct attn_prepared_row *prepared,
                         const float *factor, size_t rows, size_t n);

    /* Projection, by the dtype of the weights; there is none for ATTN_F16.  An element is one chain
     * of multiply-adds over ascending i from zero, added to start; its bits depend on neither j nor
     * n, so columns may be cut anywhere.  The panel that is read next is fetched meanwhile.  Where
     * rounds_rows is set, bf16 is instead one chain of vdpbf16ps over pairs (2i, 2i + 1) of rows
     * rounded to bf16. */
    void (*project[ATTN_INT8 + 1])(const struct attn_project_block *product);
    bool rounds_rows;

    /* x as integers: scale = m/127, m = max_j |x[j]|, out[j] = x[j] * (127/m), to nearest, ties to
     * even.  Where m < ATTN_MIN_QUANTIZABLE all are 0.  The same bits at all levels. */
    void (*quantize)(int8_t *out, float *scale, const float *x, size_t n);

    /* One step of the running softmax over a tile of scores, in place, for each row r:
     *   m' = max(max[r], max_j s[r][j]);  s[r][j] = exp(s[r][j] - m')
     *   rescale[r] = exp(max[r] - m');
     *   sum[r] = sum[r] * rescale[r] + sum_j s[r][j];  max[r] = m'
     * Where m' is -inf (nothing seen so far) s becomes 0, rescale 1, sum stays.  s holds no NaN
     * and no +inf.  exp is within 2 ulp, exactly 1 at 0, and exactly 0 where it would be
     * below FLT_MIN. */
    void (*softmax)(float *s, size_t lds, float *max, float *sum, float *rescale, size_t rows,
                    size_t n);

    /* Each element is one chain of multiply-adds over ascending i, as of matmul. */
    void (*outer)(const struct attn_outer *product);

    /* softmax for scores that stand transposed: the same results, bit for bit.  What a row does not
     * see becomes 0. */
    void (*softmax_columns)(const struct attn_score_columns *scores, float *max, float *sum,
                            float *rescale);

    /* out[i][r] = in[r][i] * factor for r < rows, i < n. */
    void (*transpose)(float *out, size_t ldo, const float *const in[], size_t rows, size_t n,
                      float factor);

    /* w[j] = exp(w[j] - max) * factor: final weights from kept scores; 0 where w[j] is -inf. */
    void (*normalize)(float *w, float max, float factor, size_t n);

    /* x[r][j] *= factor[r] */
    void (*scale_rows)(float *x, size_t ldx, const float *factor, size_t rows, size_t n);

    /* out[j] = x[j] * factor; out may be x. */
    void (*scale)(float *out, const float *x, float factor, size_t n);

    /* Whether |x[j]| <= limit for all j; false for a NaN.  n may be 0. */
    bool (*all_within)(const float *x, size_t n, float limit);
};

/* Fills *out for `level`, which the CPU must support (attn_cpu_best). */
void attn_kernels_get(struct attn_kernels *out, enum attn_cpu_level level);

/* A panel of k bf16 weights as one of float32, [k][ATTN_PANEL]. */
void attn_widen_panel(float *out, const uint16_t *w, size_t k);

/* What each level replaces; called by attn_kernels_get only. */
void attn_kernels_portable(struct attn_kernels *table);
void attn_kernels_avx2(struct attn_kernels *table);
void attn_kernels_avx512(struct attn_kernels *table);

void attn_kernels_avx512_vnni(struct attn_kernels *table);
void attn_kernels_avx512_bf16(struct attn_kernels *table);

/* The products with weights among them; called by the levels. */
void attn_kernels_portable_project(struct attn_kernels *table);
void attn_kernels_avx2_project(struct attn_kernels *table);
void attn_kernels_avx512_project(struct attn_kernels *table);

/* And the products of many rows with what stands transposed. */
void attn_kernels_portable_columns(struct attn_kernels *table);
void attn_kernels_avx2_columns(struct attn_kernels *table);
void attn_kernels_avx512_columns(struct attn_kernels *table);

#endif
