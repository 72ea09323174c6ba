/* kernels.h: the kernel table, and the contract of each kernel.
 *
 * A kernel is an inner loop: one tile, one thread.  attn_kernels_get takes for each entry the best
 * function whose features the CPU has; there is a portable one for every entry but those of
 * products of tiles.
 *
 * Common to all kernels:
 *   - A kernel reads and writes exactly the elements named (of int8 rounded up to whole words),
 *     never one beyond; it requires no alignment.
 *   - **Row independence**: the bits of row r of the result depend on row r of the inputs and on
 *     k, n and the features, not on `rows` nor on the other rows.  Batch invariance of decoding
 *     rests on this rule, and kernelcheck tests it.
 *   - rows, k and n are at least 1 unless said otherwise.  Strides (ld*) count floats unless said
 *     otherwise.
 *   - A kernel keeps no state and unmasks no floating-point exception.  Denormals are treated as
 *     the thread has set them, but those of bf16 in tiles (AMX) as zeros.
 */
#ifndef ATTN_LIB_KERNELS_KERNELS_H
#define ATTN_LIB_KERNELS_KERNELS_H

#include "attn.h"

#define INLINE static inline __attribute__((always_inline)) /* a part of kernels' loops */

#define ATTN_PANEL 32         /* columns of a weight matrix that are stored side by side */
#define ATTN_RANGE_WORDS 384  /* words of a column that a product sums before adding to y */
#define ATTN_PAIR_STEP 32     /* numbers of a divided row, or rows of pairs, are multiples of it */
#define ATTN_PRODUCT_ROWS 168 /* rows of a part: with the weights in use they fit a core's L2 */
#define ATTN_PRODUCT_SCRATCH ((size_t)ATTN_PRODUCT_ROWS * (2 * ATTN_RANGE_WORDS + 32)) /* floats */

/* The smallest max |x| of a row that quantize can scale: 127 over less might be infinite. */
#define ATTN_MIN_QUANTIZABLE 1e-36f

/* Weights of a column that share a word of 32 bits: 1 of float32, 2 of bf16, 4 of int8. */
static inline size_t attn_numbers_per_word(enum attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? 2 : dtype == ATTN_INT8 ? 4 : 1;
}

/* One part of a projection, some rows by a range of inputs by some columns of packed weights:
 *   y[r][j] = addend[r][j] + sum_i x[r][i] * w[i][j]
 * `rows` is at most ATTN_PRODUCT_ROWS; k is at most what ATTN_RANGE_WORDS words of a column hold.
 * `addend` is y itself, or one row [n] for all (ldaddend 0), or NULL for zeros.
 *
 * w is packed in panels of ATTN_PANEL columns.  Column j is column j % ATTN_PANEL of the panel that
 * begins ldpanel * (j / ATTN_PANEL) words after w.  A panel is [words of k][ATTN_PANEL][numbers of
 * a word], whole also where n ends within it.  A word holds one float32, or two bf16 (zero beyond
 * k), or four int8.  A byte of int8 is the integer + 128, because the byte products of CPUs want
 * one side unsigned; x is then int8 too, four to a word and zero beyond k, each row beginning at a
 * whole word, and
 *   y[r][j] = addend[r][j] + float(sum_i x[r][i] * w[i][j]) * (row_scale[r] * scale[j])
 * where each operation rounds on its own.  The sum of integers is exact, so all levels have the
 * same bits. */
struct attn_projection_part {
    float *y;               /* [rows][ldy], of which n are written */
    const float *addend;    /* [rows][ldaddend] */
    const void *x;          /* [rows][ldx] numbers, of which k are read; of int8 whole words */
    const void *w;          /* [panels][ldpanel] words */
    const void *next_w;     /* weights read after this part, for prefetching; NULL: not known */
    const float *row_scale; /* [rows], int8 only */
    const float *scale;     /* [n], int8 only */
    float *scratch;         /* [ATTN_PRODUCT_SCRATCH], aligned to ATTN_ALIGN */
    bool rows_copied;       /* scratch still holds x, copied by the previous call with the same x,
                               rows and k */
    size_t ldy, ldaddend, ldx, ldpanel, rows, k, n;
};

/* The panel read after that of column j: the next one of the part, else next_w, else (where that
 * is not known) the panel of column j itself. */
static inline const float *attn_next_panel(const struct attn_projection_part *p, size_t j)
{
    const float *own = (const float *)p->w + j / ATTN_PANEL * p->ldpanel;
    if ((j / ATTN_PANEL + 1) * ATTN_PANEL < p->n)
        return own + p->ldpanel;
    return p->next_w != NULL ? p->next_w : own;
}

/* How prepare_rows quantized a row: its numbers are integers of three signed bytes. */
struct attn_prepared_row {
    int32_t correction[3]; /* first values of the three byte sums: they make up for the 128 that
                              each byte of int8 counts too much */
    float step;            /* the value of integer 1 */
};

/* A small product inside attention, scores against a tile of keys or weights against a tile of
 * values: c[r][j] = ((accumulate ? c[r][j] : 0) + sum_i a[r][i] * b[i][j]) * scale[j]
 * b is of any dtype.  A byte of int8 is the integer + 128; four numbers of a column share a word,
 * whole words are read, and prepare_rows has been applied to a.  k is at most
 * ATTN_MAX_HEAD_DIM. */
struct attn_matmul {
    float *c;             /* [rows][ldc], of which n are written */
    const float *a;       /* [rows][lda], of which k are read, of int8 whole words */
    const void *b;        /* [k][ldb] of dtype, of which n are read; of int8 [words of k][ldb][4] */
    const char *prefetch; /* memory read after b, as many cache lines as b has; fetched beside b
                             where rows are few and so wait for memory; NULL: none */
    const float *scale;   /* [n], int8 only; NULL: all 1 */
    const struct attn_prepared_row *prepared; /* [rows], int8 only */
    size_t ldc, lda, ldb, rows, k, n;
    bool accumulate;
    bool transposed; /* b is [n][ldb]; matmul_many alone reads it so */
};

/* A sum of outer products:
 *   c[r][j] = (rescale ? c[r][j] * rescale[r] : 0) + sum_i a[i][r] * b[i][j]
 * Both products of attention take this form where the unit's rows are stored transposed: scores
 * with keys for a and queries for b, weighted sums with the transposed scores for a.  Every operand
 * is then one stream and nothing is gathered, which is faster with many rows.  The bits are those
 * of scale_rows followed by matmul. */
struct attn_outer {
    float *c;             /* [rows][ldc], of which n are written */
    const float *rescale; /* [rows], or NULL: c starts from zero */
    const float *a;       /* [k][lda], of which rows are read */
    const float *b;       /* [k][ldb], of which n are read */
    size_t ldc, lda, ldb, rows, k, n;
};

/* Transposed scores, s[j][r] of key j and row r, and the keys that each row sees. */
struct attn_score_columns {
    float *s; /* [n][lds], of which `rows` columns are in use */
    size_t lds, rows, n;
    const int32_t *first, *end; /* [rows]: row r sees keys first[r] <= j < end[r]; NULL: all */
};

struct attn_kernels {
    const char *name;  /* of the level */
    unsigned features; /* of the CPU, from which the kernels were chosen */

    /* A unit of attention with so many rows or more may be computed by columns (outer,
     * softmax_columns: both NULL where this is SIZE_MAX); attention/unit.c has the other
     * conditions.  The bits are the same either way. */
    size_t columns_from_rows;

    /* By the dtype of b.  Each element is one chain of multiply-adds over ascending i, starting
     * from c (accumulate) or zero. */
    void (*matmul[ATTN_NUM_NUMBER_FORMATS])(const struct attn_matmul *product);

    /* matmul of bf16 for many rows, as exact and faster, in an order of its own: of each 32 values
     * of i the products of the even, those of the odd, and both added to c.  NULL where the level
     * has none; which of the two computes an element must not depend on the rows. */
    void (*matmul_many)(const struct attn_matmul *product);

    /* Products with keys and values rounded to the nearest bf16 and stored as pairs, words of 32
     * bits.  matmul_pairs is matmul of rows that divide_rows has divided by b [k/2][ldb] words, of
     * which k, to whole steps of ATTN_PAIR_STEP, are read; of each step an element takes the
     * products of the high parts of a, then of the low, each those of the even values of i and
     * those of the odd.  All four are NULL where the level has none. */
    void (*matmul_pairs)(const struct attn_matmul *product);

    /* Replaces x [rows][ldx] by two bf16 for each number: n becomes whole steps, of which each is
     * 16 words of high parts and 16 of low ones.  high + low differs from x by at most 2^-17 |x|,
     * or by 2^-126 where that is more. */
    void (*divide_rows)(float *x, size_t ldx, size_t rows, size_t n);

    /* Keys: out[i][r] = (in[r][2i], in[r][2i+1]) for r < rows and all i of whole steps.  Values:
     * out[i][j] = (in[2i][j], in[2i+1][j]) for j < n, likewise.  Zero beyond what is there. */
    void (*pair_keys)(uint32_t *out, size_t ldo, const float *const in[], size_t rows, size_t n);
    void (*pair_values)(uint32_t *out, size_t ldo, const float *const in[], size_t rows, size_t n);

    /* Turns rows x [rows][ldx] in place into the form that matmul multiplies with int8.  First
     * x[r][j] *= factor[j] (NULL: 1).  A level that multiplies bytes then replaces each number by
     * the nearest multiple of prepared[r].step, stored as bytes; whole words of a row may be
     * written.  `step` is a power of two, at most the larger of 2^-21 max_j |x[r][j]| and 2^-126.
     * matmul's sum is then exact; only the final conversion and scaling round.  Other levels leave
     * `prepared` alone. */
    void (*prepare_rows)(float *x, size_t ldx, struct attn_prepared_row *prepared,
                         const float *factor, size_t rows, size_t n);

    /* Projection, by the dtype of the weights; ATTN_F16 has none.  An element is one chain of
     * multiply-adds over ascending i from zero, added to addend.  Its bits depend on neither j nor
     * n, so columns may be divided anywhere.  The panel read next is fetched meanwhile.  Where
     * bf16_rounds_rows is set, an element of bf16 weights is instead one chain of vdpbf16ps over
     * pairs (2i, 2i + 1) of rows rounded to bf16. */
    void (*project[ATTN_NUM_NUMBER_FORMATS])(const struct attn_projection_part *part);
    bool bf16_rounds_rows;

    /* x as integers: scale = m/127, m = max_j |x[j]|, out[j] = x[j] * (127/m), to nearest, ties to
     * even.  Where m < ATTN_MIN_QUANTIZABLE scale and all of out are 0.  The same bits at all
     * levels. */
    void (*quantize)(int8_t *out, float *scale, const float *x, size_t n);

    /* One step of the online softmax over a tile of scores, in place, for each row r:
     *   m' = max(max[r], max_j s[r][j]);  s[r][j] = exp(s[r][j] - m')
     *   rescale[r] = exp(max[r] - m');
     *   sum[r] = sum[r] * rescale[r] + sum_j s[r][j];  max[r] = m'
     * Where m' is -inf (no key seen so far) s becomes 0, rescale 1, and sum stays.  s holds no NaN
     * and no +inf.  exp is within 2 ulp, exactly 1 at 0, and exactly 0 where it would be
     * below FLT_MIN. */
    void (*softmax)(float *s, size_t lds, float *max, float *sum, float *rescale, size_t rows,
                    size_t n);

    /* Each element is one chain of multiply-adds over ascending i, as of matmul. */
    void (*outer)(const struct attn_outer *product);

    /* softmax for transposed scores, with the same results bit for bit.  The weight of a key that a
     * row does not see becomes 0. */
    void (*softmax_columns)(const struct attn_score_columns *scores, float *max, float *sum,
                            float *rescale);

    /* out[i][r] = in[r][i] * factor for r < rows, i < n. */
    void (*transpose)(float *out, size_t ldo, const float *const in[], size_t rows, size_t n,
                      float factor);

    /* Reads all keys of a tile, or all second keys, as [d][ATTN_TILE] (basics/tile.h): the numbers
     * of attn_tile_get.  scale [ATTN_TILE] is for int8 only.  The same bits at all levels. */
    void (*widen_keys)(float *out, const void *keys, const float *scale, enum attn_dtype dtype,
                       size_t d);

    /* w[j] = exp(w[j] - max) * factor: final weights from kept scores; 0 where w[j] is -inf. */
    void (*finish_weights)(float *w, float max, float factor, size_t n);

    /* x[r][j] *= factor[r] */
    void (*scale_rows)(float *x, size_t ldx, const float *factor, size_t rows, size_t n);

    /* out[j] = x[j] * factor; out may be x. */
    void (*scale)(float *out, const float *x, float factor, size_t n);

    /* Whether |x[j]| <= limit for all j; false where one is NaN.  n may be 0. */
    bool (*all_within)(const float *x, size_t n, float limit);
};

/* Fills *out for a CPU with these features (attn_cpu_features). */
void attn_kernels_get(struct attn_kernels *out, unsigned features);

/* Widens a panel of k bf16 weights to float32: out [k][ldo], of which ATTN_PANEL columns are
 * written. */
void attn_widen_panel(float *out, size_t ldo, const uint16_t *w, size_t k);

/* Set the kernels of a file; called by attn_kernels_get only. */
void attn_kernels_portable(struct attn_kernels *table);
void attn_kernels_avx2(struct attn_kernels *table);
void attn_kernels_avx512(struct attn_kernels *table);
void attn_kernels_avx512_vnni(struct attn_kernels *table);
void attn_kernels_avx512_bf16(struct attn_kernels *table);
void attn_kernels_avx512_amx(struct attn_kernels *table);
void attn_kernels_neon(struct attn_kernels *table);
void attn_kernels_neon_dotprod(struct attn_kernels *table);
void attn_kernels_neon_bf16(struct attn_kernels *table);
void attn_kernels_portable_project(struct attn_kernels *table);
void attn_kernels_avx2_project(struct attn_kernels *table);
void attn_kernels_avx512_project(struct attn_kernels *table);
void attn_kernels_neon_project(struct attn_kernels *table);
void attn_kernels_avx512_amx_matmul(struct attn_kernels *table);
void attn_kernels_avx512_amx_pairs(struct attn_kernels *table);

#endif
