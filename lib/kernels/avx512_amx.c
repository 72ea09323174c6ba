/* avx512_amx.c: the kernels that AMX does better: products with weights of bf16 and int8,
 * 16 rows by 16 columns by 16 words in one instruction (TDPBF16PS, TDPBSUD).
 *
 * A panel of packed weights is the right operand of that instruction as it lies: a row of a tile
 * is a word of each of 16 columns.  Rows are copied as bf16 or bytes, as by the other levels.  A
 * block of 32 rows by one panel has its sums in four tiles, and two tiles of each operand beside
 * them: four products for four loads.
 *
 * TDPBF16PS takes for each element of the result two chains of fused multiply-adds from zero over
 * 16 words, one of the even numbers and one of the odd, and adds both to the element; denormals
 * count as zeros.  An element's bits depend on its row and column alone, so any number of rows is
 * computed in whole tiles, and what lies beyond the rows is dropped. */
#include <string.h>

#include "kernels/avx512_amx.h"
#include "kernels/avx512_project.h"

#define BLOCK_ROWS (2 * TILE_ROWS)
#define STRIDE (ATTN_RANGE_WORDS + LANES) /* words from one copied row to the next */
#define COPIES ((ATTN_PRODUCT_ROWS + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS) /* whole tiles */
#define FEW_INT8 15 /* rows of int8 below which a tile would be mostly empty */

_Static_assert(COPIES *STRIDE + ATTN_PRODUCT_ROWS <= ATTN_PRODUCT_SCRATCH,
               "copies of rows, then the first value of the sums of each");

/* ---- Projections ----------------------------------------------------------------------------- */

/* One block of rows by one panel. */
struct block {
    const float *x, *w; /* copied rows, words */
    size_t words;
    const float *next; /* prefetched meanwhile, from this word on */
    size_t lines;      /* cache lines of that beside each step */
};

/* Adds a step, 16 words, to the sums in tiles 0 to 3. */
INLINE void multiply_step_avx512amx(const float *x, const float *w, const bool two,
                                    const enum project_op op)
{
    TILE_LOAD(6, w, ATTN_PANEL * sizeof *w);
    TILE_LOAD(7, w + LANES, ATTN_PANEL * sizeof *w);
    TILE_LOAD(4, x, STRIDE * sizeof *x);
    if (two)
        TILE_LOAD(5, x + TILE_ROWS * STRIDE, STRIDE * sizeof *x);
    if (op == OP_INT8_DOT) {
        TILE_MULTIPLY("tdpbsud", 0, 4, 6);
        TILE_MULTIPLY("tdpbsud", 1, 4, 7);
        if (two) {
            TILE_MULTIPLY("tdpbsud", 2, 5, 6);
            TILE_MULTIPLY("tdpbsud", 3, 5, 7);
        }
    } else {
        TILE_MULTIPLY("tdpbf16ps", 0, 4, 6);
        TILE_MULTIPLY("tdpbf16ps", 1, 4, 7);
        if (two) {
            TILE_MULTIPLY("tdpbf16ps", 2, 5, 6);
            TILE_MULTIPLY("tdpbf16ps", 3, 5, 7);
        }
    }
}

/* sums [BLOCK_ROWS][ATTN_PANEL] of a block; `two` (constant): it has more rows than a tile. */
INLINE void multiply_block_avx512amx(float *sums, const struct block *b, const bool two,
                                     const enum project_op op)
{
    const float *ahead = b->next;
    size_t i = 0;
    TILE_ZERO(0);
    TILE_ZERO(1);
    if (two) {
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (; i + TILE_ROWS <= b->words; i += TILE_ROWS, ahead += b->lines * LANES) {
        for (size_t l = 0; l < b->lines; l++)
            _mm_prefetch(ahead + l * LANES, _MM_HINT_T1);
        multiply_step_avx512amx(b->x + i, b->w + i * ATTN_PANEL, two, op);
    }
    if (i < b->words) { /* the panel ends within the step */
        float rest[TILE_ROWS * ATTN_PANEL] __attribute__((aligned(CACHE_LINE))) = {0};
        memcpy(rest, b->w + i * ATTN_PANEL, (b->words - i) * ATTN_PANEL * sizeof *rest);
        multiply_step_avx512amx(b->x + i, rest, two, op);
    }
    TILE_STORE(0, sums, ATTN_PANEL * sizeof *sums);
    TILE_STORE(1, sums + LANES, ATTN_PANEL * sizeof *sums);
    if (two) {
        TILE_STORE(2, sums + TILE_ROWS * ATTN_PANEL, ATTN_PANEL * sizeof *sums);
        TILE_STORE(3, sums + TILE_ROWS * ATTN_PANEL + LANES, ATTN_PANEL * sizeof *sums);
    }
}

/* y = addend + sums for rows [first, end) and the panel of column j. */
INLINE void add_sums_avx512amx(const struct attn_projection_part *p, const float *sums,
                               const int32_t *offset, size_t first, size_t end, size_t j,
                               const enum project_op op)
{
    unroll_for(v, 2) {
        const size_t at = j + (size_t)v * LANES;
        const __mmask16 mask = first_lanes(p->n - attn_min(p->n, at));
        __m512 scale = _mm512_setzero_ps();
        if (mask == 0)
            break;
        if (op == OP_INT8_DOT)
            scale = _mm512_maskz_loadu_ps(mask, p->scale + at);
        for (size_t r = first; r < end; r++) {
            __m512 total = _mm512_load_ps(sums + (r - first) * ATTN_PANEL + v * LANES);
            if (op == OP_INT8_DOT) {
                __m512i sum =
                    _mm512_add_epi32(_mm512_castps_si512(total), _mm512_set1_epi32(offset[r]));
                total = _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                                      _mm512_mul_ps(_mm512_set1_ps(p->row_scale[r]), scale));
            }
            const __m512 before =
                p->addend != NULL ? _mm512_maskz_loadu_ps(mask, p->addend + r * p->ldaddend + at)
                                  : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(p->y + r * p->ldy + at, mask, _mm512_add_ps(before, total));
        }
    }
}

/* Copies the words of x, rows STRIDE apart and zero up to a whole step. */
INLINE void copy_rows_avx512amx(const struct attn_projection_part *p, int32_t *offset,
                                const enum project_op op)
{
    const size_t number = op == OP_INT8_DOT ? 1 : sizeof(float);
    const size_t words = project_words_avx512(op, p->k);
    for (size_t r = 0; r < p->rows; r++) {
        const char *row = (const char *)p->x + r * p->ldx * number;
        for (size_t i = 0; i < words; i += LANES)
            _mm512_store_si512(p->scratch + r * STRIDE + i,
                               project_row_words_avx512(row, i, p->k, op));
        if (op == OP_INT8_DOT)
            offset[r] = project_offset_avx512((const int8_t *)row, p->k);
    }
}

/* Panel by panel, all blocks of rows by a panel one after another: the first reads the panel from
 * memory or L2.  All prefetch an equal part of the next panel. */
INLINE void project_avx512amx(const struct attn_projection_part *p, const enum project_op op)
{
    float sums[BLOCK_ROWS * ATTN_PANEL] __attribute__((aligned(CACHE_LINE)));
    int32_t *offset = (int32_t *)(void *)(p->scratch + COPIES * STRIDE);
    const size_t blocks = attn_ceil_div(p->rows, BLOCK_ROWS), step_lines = 2 * TILE_ROWS;
    const size_t words = project_words_avx512(op, p->k), steps = words / TILE_ROWS;
    if (!p->rows_copied)
        copy_rows_avx512amx(p, offset, op);
    configure_tiles_avx512amx();
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        struct block b = {.w = (const float *)p->w + j / ATTN_PANEL * p->ldpanel,
                          .next = attn_next_panel(p, j),
                          .words = words};
        for (size_t i = 0; i < blocks; i++) {
            const size_t first = i * BLOCK_ROWS, end = attn_min(first + BLOCK_ROWS, p->rows);
            b.x = p->scratch + first * STRIDE;
            b.lines = step_lines / blocks + (i < step_lines % blocks);
            if (end - first > TILE_ROWS)
                multiply_block_avx512amx(sums, &b, true, op);
            else
                multiply_block_avx512amx(sums, &b, false, op);
            b.next += steps * b.lines * LANES;
            add_sums_avx512amx(p, sums, offset, first, end, j, op);
        }
    }
    release_tiles_avx512amx();
}

static void project_bf16_avx512amx(const struct attn_projection_part *p)
{
    project_avx512amx(p, OP_BF16_DOT);
}

PROJECT(project_few_int8_avx512amx, OP_INT8_DOT)

static void project_int8_avx512amx(const struct attn_projection_part *p)
{
    if (p->rows <= FEW_INT8)
        project_few_int8_avx512amx(p);
    else
        project_avx512amx(p, OP_INT8_DOT);
}

void attn_kernels_avx512_amx(struct attn_kernels *table)
{
    table->project[ATTN_BF16] = project_bf16_avx512amx;
    table->project[ATTN_INT8] = project_int8_avx512amx;
}
