/* avx512_project.h: products with packed weights for AVX-512, of any dtype.
 *
 * Rows and weights are read as words of 32 bits: one float32, two bf16 or four int8.  In each step
 * a tile of sums takes one word from each of its rows and one word from each column of a panel,
 * multiplies and adds.  A constant, enum project_op, says what a word means; all else is the same
 * code.  Register tiles are as in avx512.c: whatever the tile, an element is one chain of
 * operations per range of k, and that chain's sum is added to `addend`.
 *
 * PROJECT(name, op) defines the kernel of one operation in the file that includes this header. */
#ifndef ATTN_LIB_KERNELS_AVX512_PROJECT_H
#define ATTN_LIB_KERNELS_AVX512_PROJECT_H

#include "kernels/avx512.h"

enum project_op {
    OP_F32,           /* float32 by float32 */
    OP_BF16_AS_F32,   /* float32 by bf16 widened: two words of x for one of w */
    OP_BF16_DOT,      /* pairs of bf16, vdpbf16ps */
    OP_INT8_AS_INT16, /* pairs of int8 widened to int16, vpmaddwd: two words of x for one of w */
    OP_INT8_DOT,      /* fours of int8, vpdpbusd */
};

#define FEW_ROWS 6 /* x 4 vectors, two panels: 24 accumulators; x is read in place if it can be */
#define STRIP_ROWS 14 /* x 2 vectors, a panel: 28 accumulators of 32 registers; x is copied */
#define STEPS 4       /* words of x between prefetches and branches */
#define STEP_LINES (STEPS * ATTN_PANEL / LANES) /* cache lines of a panel read in STEPS */
#define NEAR 24      /* words of a column between prefetch and use, of few rows */
#define FAR 64       /* the same in strips, at least */
#define COPY_AHEAD 4 /* rows between prefetch and copy */

/* Words of x between the prefetches of two rows of y of a strip.  Rows of y come from far; all
 * prefetched at once they would delay every other load. */
#define ROW_STEPS 16

/* Words from one copied row to the next.  No power of two, or rows would evict each other from L1;
 * one word more than whole vectors, or all rows would reach their next cache line in one step. */
#define COPY_STRIDE (2 * ATTN_RANGE_WORDS + LANES + 1)
_Static_assert(ATTN_PRODUCT_ROWS *(COPY_STRIDE + 1) <= ATTN_PRODUCT_SCRATCH,
               "copies of rows, then the first value of the sums of each");

/* A tile of y: some rows of n columns.  A word is declared float, whatever it holds. */
struct project_tile {
    float *y;
    const float *addend, *x, *w;
    /* Prefetching of a strip: in each STEPS so many cache lines, from word `at` of its panel on,
     * and after the end of that from the beginning of the next panel. */
    const float *next;
    size_t at, lines;
    size_t ldy, ldaddend, ldx, ldpanel, words, n;
    /* Of int8 only: the first values of the sums, and the scales of rows and columns. */
    const int32_t *offset;
    const float *row_scale, *scale;
};

typedef void project_tile_fn(const struct project_tile *tile);

struct project_tiles {
    project_tile_fn *pair[FEW_ROWS + 1];    /* by rows: two panels */
    project_tile_fn *last[FEW_ROWS + 1];    /* by rows: the last panel alone */
    project_tile_fn *strip[STRIP_ROWS + 1]; /* by rows, from FEW_ROWS on */
};

/* ---- Operations ------------------------------------------------------------------------------ */

/* Words of x for one word of weights. */
INLINE size_t project_words_per_weight_avx512(const enum project_op op)
{
    return op == OP_BF16_AS_F32 || op == OP_INT8_AS_INT16 ? 2 : 1;
}

/* Rows of a strip, at most: widening takes registers too. */
INLINE size_t project_strip_rows_avx512(const enum project_op op)
{
    return op == OP_INT8_AS_INT16 ? 12 : op == OP_BF16_AS_F32 ? 13 : STRIP_ROWS;
}

/* STEPS, and fewer where six rows by four vectors would not leave registers to widen weights. */
INLINE size_t project_steps_avx512(const bool strip, const enum project_op op)
{
    return strip || project_words_per_weight_avx512(op) == 1 ? STEPS : STEPS / 2;
}

INLINE bool project_is_int8_avx512(const enum project_op op)
{
    return op == OP_INT8_AS_INT16 || op == OP_INT8_DOT;
}

/* Whether rows are multiplied as they are, so that few rows need no copy. */
INLINE bool project_is_in_place_avx512(const enum project_op op)
{
    return op != OP_BF16_DOT && op != OP_INT8_AS_INT16;
}

INLINE size_t project_words_avx512(const enum project_op op, size_t k)
{
    switch (op) {
    case OP_BF16_DOT:
        return attn_ceil_div(k, 2);
    case OP_INT8_AS_INT16:
        return 2 * attn_ceil_div(k, 4);
    case OP_INT8_DOT:
        return attn_ceil_div(k, 4);
    default:
        return k;
    }
}

/* Bytes of an uncopied row for each word of its copy. */
INLINE size_t project_word_bytes_avx512(const enum project_op op)
{
    return op == OP_BF16_DOT ? 8 : op == OP_INT8_AS_INT16 ? 2 : 4;
}

/* A vector of weights, widened.  Where x has two words for one of weights, `half` (constant) says
 * which of them multiplies the result. */
INLINE __m512 project_weights_avx512(const float *w, const enum project_op op, const int half)
{
    __m512i words = _mm512_loadu_si512(w);
    if (op == OP_BF16_AS_F32)
        words = half == 0 ? _mm512_slli_epi32(words, 16)
                          : _mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000));
    if (op == OP_INT8_AS_INT16)
        words = half == 0 ? _mm512_and_si512(words, _mm512_set1_epi16(0xff))
                          : _mm512_srli_epi16(words, 8);
    return _mm512_castsi512_ps(words);
}

INLINE __m512 project_multiply_add_avx512(__m512 sum, __m512 x, __m512 w, const enum project_op op)
{
    const __m512i sums = _mm512_castps_si512(sum), xs = _mm512_castps_si512(x);
    const __m512i ws = _mm512_castps_si512(w);
    switch (op) { /* assembler, because the compiler would copy sums about and spill them */
    case OP_INT8_AS_INT16:
        sum = _mm512_castsi512_ps(_mm512_add_epi32(sums, _mm512_madd_epi16(xs, ws)));
        __asm__("" : "+v"(sum));
        return sum;
#ifdef __AVX512VNNI__
    case OP_INT8_DOT:
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(ws), "v"(xs));
        return sum;
#endif
#ifdef PROJECT_DOT_BF16
    case OP_BF16_DOT:
        return PROJECT_DOT_BF16(sum, xs, ws);
#endif
    default:
        __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
        return sum;
    }
}

INLINE __m512i round_to_bf16_avx512(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

/* Words [i, i + LANES) of the copy of a row of k numbers; zero beyond k. */
INLINE __m512i project_row_words_avx512(const void *row, size_t i, size_t k,
                                        const enum project_op op)
{
    const float *x = row;
    if (op == OP_BF16_DOT) {
        const __m512i odd_shorts =
            _mm512_add_epi16(_mm512_set1_epi16(1),
                             _mm512_cvtepu8_epi16(_mm256_set_epi8(
                                 62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30,
                                 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0)));
        __m512 low = _mm512_maskz_loadu_ps(first_lanes(k - 2 * i), x + 2 * i);
        __m512 high =
            _mm512_maskz_loadu_ps(first_lanes(k - attn_min(k, 2 * i + LANES)), x + 2 * i + LANES);
        return _mm512_permutex2var_epi16(round_to_bf16_avx512(low), odd_shorts,
                                         round_to_bf16_avx512(high));
    }
    if (op ==
        OP_INT8_AS_INT16) { /* bytes 0 and 2, then 1 and 3, as project_weights_avx512 has them */
        __m256i bytes = _mm256_maskz_loadu_epi32(
            (__mmask8)first_lanes(attn_min(attn_ceil_div(k, 4) - i / 2, LANES / 2)), x + i / 2);
        return _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(_mm512_cvtepi8_epi16(bytes), 0xd8),
                                      0xd8);
    }
    return _mm512_maskz_loadu_epi32(first_lanes(project_words_avx512(op, k) - i), x + i);
}

/* The first value of a row's sums: -128 sum_i x[i], because the bytes of weights are 128 too high.
 * x is whole words. */
INLINE int32_t project_offset_avx512(const int8_t *x, size_t k)
{
    const __m512i flip = _mm512_set1_epi8(-128), zero = _mm512_setzero_si512();
    __m512i sum = zero;
    for (size_t i = 0; i < k; i += 4 * LANES) {
        __m512i bytes = _mm512_maskz_loadu_epi32(first_lanes(attn_ceil_div(k - i, 4)), x + i);
        sum = _mm512_add_epi64(sum, _mm512_sad_epu8(_mm512_xor_si512(bytes, flip), zero));
    }
    long long flipped = 128 * 4 * LANES * (long long)attn_ceil_div(k, 4 * LANES);
    return (int32_t)(-128 * (_mm512_reduce_add_epi64(sum) - flipped));
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

INLINE void project_step_avx512(__m512 sum[STRIP_ROWS][4], const struct project_tile *t, size_t i,
                                const int half, const int rows, const int panels, const bool strip,
                                const enum project_op op)
{
    const size_t word = i + (size_t)half,
                 line = project_words_per_weight_avx512(op) == 2 ? i / 2 : word;
    __m512 w[4];
    unroll_for(v, 2 * panels)
        w[v] = project_weights_avx512(t->w + v / 2 * t->ldpanel + line * ATTN_PANEL + v % 2 * LANES,
                                      op, half);
    unroll_for(r, rows) {
        __m512 factor = load_factor(t->x + (size_t)r * (strip ? COPY_STRIDE : t->ldx) + word);
        unroll_for(v, 2 * panels)
            sum[r][v] = project_multiply_add_avx512(sum[r][v], factor, w[v], op);
    }
}

INLINE void project_begin_avx512(__m512 sum[STRIP_ROWS][4], const struct project_tile *t,
                                 const int rows, const int panels, const bool strip,
                                 const enum project_op op)
{
    float *y = t->y + opaque(0);
    unroll_for(r, rows) {
        unroll_for(v, 2 * panels) {
            sum[r][v] = project_is_int8_avx512(op)
                            ? _mm512_castsi512_ps(_mm512_set1_epi32(t->offset[r]))
                            : _mm512_setzero_ps();
            if (!strip)
                _mm_prefetch(y + v * LANES, _MM_HINT_T0);
        }
        y += t->ldy;
    }
}

/* y = addend + sum, where a sum of integers is first scaled. */
INLINE void project_end_avx512(__m512 sum[STRIP_ROWS][4], const struct project_tile *t,
                               const int rows, const int panels, const enum project_op op)
{
    unroll_for(v, 2 * panels) {
        __mmask16 mask = first_lanes(t->n - attn_min(t->n, v * LANES));
        __m512 scale = _mm512_setzero_ps();
        if (project_is_int8_avx512(op))
            scale = _mm512_maskz_loadu_ps(mask, t->scale + v * LANES);
        float *y = t->y + opaque(v * LANES);
        const float *addend = t->addend + opaque(v * LANES);
        unroll_for(r, rows) {
            __m512 total = sum[r][v];
            if (project_is_int8_avx512(op))
                total = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_castps_si512(total)),
                                      _mm512_mul_ps(_mm512_set1_ps(t->row_scale[r]), scale));
            total = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, addend), total);
            _mm512_mask_storeu_ps(y, mask, total);
            y += t->ldy;
            addend += t->ldaddend;
        }
    }
}

/* Prefetches weights, beside project_steps_avx512 words of x from the i-th on; returns the next
 * value of `at`.  A strip prefetches as project_many_rows_avx512 plans.  One to four rows prefetch
 * nothing: they wait for memory, and the two plain streams of their panels keep it busy.  Five and
 * six rows have too few loads under way for that. */
INLINE size_t project_prefetch_avx512(const struct project_tile *t, size_t i, size_t at,
                                      const int rows, const int panels, const bool strip,
                                      const enum project_op op)
{
    const size_t line = i / project_words_per_weight_avx512(op);
    const size_t lines =
        project_steps_avx512(strip, op) * ATTN_PANEL / LANES / project_words_per_weight_avx512(op);
    const size_t panel = t->words / project_words_per_weight_avx512(op) * ATTN_PANEL;
    if (strip) {
        const float *ahead = at < panel ? t->w + at : t->next + (at - panel);
        for (size_t l = 0; l < t->lines; l++)
            _mm_prefetch(ahead + l * LANES, _MM_HINT_T0);
        return at + t->lines * LANES;
    }
    for (int v = 0; v < panels && rows > 4; v++)
        for (size_t l = 0; l < lines; l++)
            _mm_prefetch(t->w + v * t->ldpanel + (line + NEAR) * ATTN_PANEL + l * LANES,
                         _MM_HINT_T0);
    return at;
}

/* Computes a tile of a constant number of rows and panels. */
INLINE void project_tile_avx512(const struct project_tile *tile, const int rows, const int panels,
                                const bool strip, const enum project_op op)
{
    const struct project_tile t = *tile;
    __m512 sum[STRIP_ROWS][4];
    project_begin_avx512(sum, &t, rows, panels, strip, op);
    const float *y = t.y;
    size_t i = 0, at = t.at;
    const size_t steps = project_steps_avx512(strip, op);
    for (; i + steps <= t.words; i += steps) {
        at = project_prefetch_avx512(&t, i, at, rows, panels, strip, op);
        if (strip && i % ROW_STEPS == 0) {
            _mm_prefetch(y, _MM_HINT_T0);
            _mm_prefetch(y + LANES, _MM_HINT_T0);
            y += t.ldy;
        }
        unroll_for(s, (int)steps)
            project_step_avx512(sum, &t, i + (size_t)s / 2 * 2, s % 2, rows, panels, strip, op);
    }
    for (; i + 2 <= t.words; i += 2)
        unroll_for(s, 2)
            project_step_avx512(sum, &t, i, s, rows, panels, strip, op);
    if (i < t.words)
        project_step_avx512(sum, &t, i, 0, rows, panels, strip, op);
    project_end_avx512(sum, &t, rows, panels, op);
}

/* ---- Copied rows ----------------------------------------------------------------------------- */

/* Copies the words of x into scratch memory, [rows][COPY_STRIDE], unless the previous call has done
 * so; meanwhile prefetches the row COPY_AHEAD rows further. */
INLINE void project_copy_rows_avx512(const struct attn_projection_part *p, const enum project_op op)
{
    const size_t words = project_words_avx512(op, p->k),
                 number = project_is_int8_avx512(op) ? 1 : sizeof(float);
    for (size_t r = 0; !p->rows_copied && r < p->rows; r++) {
        const char *row = (const char *)p->x + r * p->ldx * number;
        const char *far =
            (const char *)p->x + attn_min(r + COPY_AHEAD, p->rows - 1) * p->ldx * number;
        for (size_t i = 0; i < words; i += LANES) {
            for (size_t at = 0; at < LANES * project_word_bytes_avx512(op); at += CACHE_LINE)
                _mm_prefetch(far + i * project_word_bytes_avx512(op) + at, _MM_HINT_T0);
            _mm512_storeu_si512(p->scratch + r * COPY_STRIDE + i,
                                project_row_words_avx512(row, i, p->k, op));
        }
    }
}

/* ---- Few rows -------------------------------------------------------------------------------- */

/* Takes two panels at a time, which are two plain streams from memory; an odd last panel alone. */
INLINE void project_few_rows_avx512(const struct attn_projection_part *p, struct project_tile tile,
                                    const struct project_tiles *tiles, const enum project_op op)
{
    if (project_is_in_place_avx512(op)) {
        tile.x = p->x;
        tile.ldx = p->ldx * (project_is_int8_avx512(op) ? 1 : sizeof(float)) / sizeof(float);
    } else {
        project_copy_rows_avx512(p, op);
    }
    for (size_t j = 0, width; j < p->n; j += width) {
        width = j + ATTN_PANEL < p->n ? 2 * ATTN_PANEL : ATTN_PANEL;
        tile.n = p->n - j;
        (width == ATTN_PANEL ? tiles->last : tiles->pair)[p->rows](&tile);
        tile.w += width / ATTN_PANEL * p->ldpanel;
        tile.y += width;
        tile.addend += p->addend != NULL ? width : 0;
        tile.scale += project_is_int8_avx512(op) ? width : 0;
    }
}

/* ---- Many rows ------------------------------------------------------------------------------- */

/* Takes panel by panel, in strips of rows as equal as possible.  The first strip reads a panel from
 * memory, the others from L2.  To keep memory busy throughout, all strips prefetch at the same
 * rate, through the rest of the panel and the beginning of the next.  The first strip reads faster
 * than it prefetches, so prefetching starts as far ahead (`at`) as that strip needs. */
INLINE void project_many_rows_avx512(const struct attn_projection_part *p, struct project_tile tile,
                                     const struct project_tiles *tiles, const enum project_op op)
{
    const size_t strips = attn_ceil_div(p->rows, project_strip_rows_avx512(op));
    const size_t least = p->rows / strips, longer = p->rows % strips; /* these have a row more */
    const size_t lines = STEP_LINES / project_words_per_weight_avx512(op);
    const size_t words =
        tile.words / project_words_per_weight_avx512(op) * ATTN_PANEL; /* of a panel */
    project_copy_rows_avx512(p, op);
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        struct project_tile t = tile;
        t.y = p->y + j;
        t.addend += p->addend != NULL ? j : 0;
        t.scale += project_is_int8_avx512(op) ? j : 0;
        t.w += j / ATTN_PANEL * p->ldpanel;
        t.next = attn_next_panel(p, j);
        t.at = attn_min(words - words / strips + FAR * ATTN_PANEL, words);
        t.n = p->n - j;
        for (size_t s = 0; s < strips; s++) {
            size_t rows = least + (s < longer);
            t.lines = lines / strips + (s < lines % strips);
            tiles->strip[rows](&t);
            t.at += t.words / STEPS * t.lines * LANES;
            t.y += rows * p->ldy;
            t.addend += rows * t.ldaddend;
            t.x += rows * COPY_STRIDE;
            t.offset += project_is_int8_avx512(op) ? rows : 0;
            t.row_scale += project_is_int8_avx512(op) ? rows : 0;
        }
    }
}

INLINE void project_rows_avx512(const struct attn_projection_part *p,
                                const struct project_tiles *tiles, const enum project_op op)
{
    static const float zeros[2 * ATTN_PANEL];
    int32_t *offset = (int32_t *)(void *)(p->scratch + (size_t)ATTN_PRODUCT_ROWS * COPY_STRIDE);
    const struct project_tile tile = {
        .y = p->y,
        .addend = p->addend != NULL ? p->addend : zeros,
        .w = p->w,
        .next = p->w,
        .ldy = p->ldy,
        .ldaddend = p->addend != NULL ? p->ldaddend : 0,
        .x = p->scratch,
        .ldx = COPY_STRIDE,
        .ldpanel = p->ldpanel,
        .words = project_words_avx512(op, p->k),
        .offset = offset,
        .row_scale = p->row_scale,
        .scale = p->scale,
    };
    for (size_t r = 0; project_is_int8_avx512(op) && !p->rows_copied && r < p->rows; r++)
        offset[r] = project_offset_avx512((const int8_t *)p->x + r * p->ldx, p->k);
    if (p->rows <= FEW_ROWS)
        project_few_rows_avx512(p, tile, tiles, op);
    else
        project_many_rows_avx512(p, tile, tiles, op);
}

/* ---- Instances ------------------------------------------------------------------------------- */

#define PROJECT_TILE(rows, name, panels, strip, op)            \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile_avx512(tile, rows, panels, strip, op);    \
    }
/* Defines static void name(const struct attn_projection_part *). */
#define PROJECT(name, op)                                                                     \
    ROWS_6(PROJECT_TILE, name##_pair, 2, false, op)                                           \
    ROWS_6(PROJECT_TILE, name##_last, 1, false, op)                                           \
    ROWS_14(PROJECT_TILE, name##_strip, 1, true, op)                                          \
    static void name(const struct attn_projection_part *p)                                    \
    {                                                                                         \
        static const struct project_tiles tiles = {.pair = {ROWS_6(LISTED, name##_pair)},     \
                                                   .last = {ROWS_6(LISTED, name##_last)},     \
                                                   .strip = {ROWS_14(LISTED, name##_strip)}}; \
        project_rows_avx512(p, &tiles, op);                                                   \
    }

#endif
