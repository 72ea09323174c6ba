/* kernels_avx512_project.c: products with packed weights for AVX-512.
 *
 * Register tiles as in kernels_avx512.c; an element is one chain of fused multiply-adds per block
 * of k, added to what came before, whatever the tile. */
#include "kernels_avx512.h"

#define LIST_6(name) NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6

#define FEW_ROWS 6    /* x 4 vectors, two panels; read where they are */
#define STRIP_ROWS 14 /* x 2 vectors, a panel: 28 accumulators; from a strip */
#define STEPS 2       /* of k between prefetches */

/* A tile of y: some rows of n columns.  x stands as rows of ldx, or as a strip, [k][LANES]. */
struct project_tile {
    float *y;
    const float *start, *x, *w;
    const float *ahead; /* weights of the next panel, prefetched where x is a strip */
    size_t lines;       /* of them in each STEPS */
    size_t ldy, ldstart, ldx, ldpanel, k, n;
};

typedef void project_tile_fn(const struct project_tile *tile);

INLINE void project_step(__m512 sum[STRIP_ROWS][4], const struct project_tile *t, size_t i,
                         const int rows, const int panels, const bool strip)
{
    __m512 w[4];
    unroll_for(v, 2 * panels)
        w[v] = _mm512_loadu_ps(t->w + v / 2 * t->ldpanel + i * ATTN_PANEL + v % 2 * LANES);
    unroll_for(r, rows) {
        __m512 factor = load_factor(strip ? t->x + i * LANES + r : t->x + r * t->ldx + i);
        unroll_for(v, 2 * panels)
            sum[r][v] = _mm512_fmadd_ps(factor, w[v], sum[r][v]);
    }
}

/* y = start + sum. */
INLINE void project_end(__m512 sum[STRIP_ROWS][4], const struct project_tile *t, const int rows,
                        const int panels)
{
    unroll_for(v, 2 * panels) {
        __mmask16 mask = first_lanes(t->n - attn_min(t->n, v * LANES));
        unroll_for(r, rows) {
            __m512 start = _mm512_maskz_loadu_ps(mask, t->start + r * t->ldstart + v * LANES);
            _mm512_mask_storeu_ps(t->y + r * t->ldy + v * LANES, mask,
                                  _mm512_add_ps(start, sum[r][v]));
        }
    }
}

/* Computes a tile of a constant number of rows and panels. */
INLINE void project_tile(const struct project_tile *tile, const int rows, const int panels,
                         const bool strip)
{
    const struct project_tile t = *tile;
    __m512 sum[STRIP_ROWS][4];
    unroll_for(r, rows) {
        unroll_for(v, 2 * panels)
            sum[r][v] = _mm512_setzero_ps();
        unroll_for(v, 2 * panels)
            _mm_prefetch(t.y + r * t.ldy + v * LANES, _MM_HINT_T0);
    }
    const float *ahead = t.ahead;
    size_t i = 0;
    for (; i + STEPS <= t.k; i += STEPS) {
        for (size_t l = 0; strip && l < t.lines; l++)
            _mm_prefetch(ahead + l * LANES, _MM_HINT_T0);
        ahead += t.lines * LANES;
        unroll_for(s, STEPS)
            project_step(sum, &t, i + s, rows, panels, strip);
    }
    for (; i < t.k; i++)
        project_step(sum, &t, i, rows, panels, strip);
    project_end(sum, &t, rows, panels);
}

#define PROJECT(name, rows, panels, strip)                     \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile(tile, rows, panels, strip);               \
    }
#define PROJECTS_6(name, panels)    \
    PROJECT(name, 1, panels, false) \
    PROJECT(name, 2, panels, false) \
    PROJECT(name, 3, panels, false) \
    PROJECT(name, 4, panels, false) \
    PROJECT(name, 5, panels, false) \
    PROJECT(name, 6, panels, false)

PROJECTS_6(pair, 2)
PROJECTS_6(last, 1)
PROJECT(strip, 7, 1, true)
PROJECT(strip, 8, 1, true)
PROJECT(strip, 9, 1, true)
PROJECT(strip, 10, 1, true)
PROJECT(strip, 11, 1, true)
PROJECT(strip, 12, 1, true)
PROJECT(strip, 13, 1, true)
PROJECT(strip, 14, 1, true)

static project_tile_fn *const pair_tiles[] = {LIST_6(pair)};
static project_tile_fn *const last_tiles[] = {LIST_6(last)};
/* From FEW_ROWS + 1 on: rows beyond STRIP_ROWS make strips of at least half as many. */
static project_tile_fn *const strip_tiles[] = {strip_7,  strip_8,  strip_9,  strip_10,
                                               strip_11, strip_12, strip_13, strip_14};

/* Few rows: two panels at a time, and the last one alone.  They wait for memory, and the hardware
 * sees two plain streams: prefetches only cost. */
static void project_few(const struct attn_product *p, struct project_tile tile)
{
    for (size_t j = 0, width; j < p->n; j += width) {
        width = j + ATTN_PANEL < p->n ? 2 * ATTN_PANEL : ATTN_PANEL;
        tile.n = p->n - j;
        (width == ATTN_PANEL ? last_tiles : pair_tiles)[p->rows](&tile);
        tile.w += width / ATTN_PANEL * p->ldpanel;
        tile.y += width;
        if (p->start != NULL)
            tile.start += width;
    }
}

/* strip[i][r] = x[r][i]: rows that are a power of two apart would evict each other from L1. */
static void pack_strip(float *strip, const float *x, size_t ldx, size_t rows, size_t k)
{
    for (size_t i = 0; i < k; i += LANES) {
        __m512 in[LANES], out[LANES];
        __mmask16 mask = first_lanes(k - i);
        unroll_for(r, LANES)
            in[r] = _mm512_maskz_loadu_ps((size_t)r < rows ? mask : 0, x + r * ldx + i);
        transpose_lanes(out, in);
        unroll_for(c, LANES)
            if (i + c < k)
                _mm512_store_ps(strip + (i + c) * LANES, out[c]);
    }
}

/* Many rows, in strips as equal as can be.  The strips of a panel share the fetching of the next
 * one. */
static void project_many(const struct attn_product *p, struct project_tile tile)
{
    const size_t strips = attn_ceil_div(p->rows, STRIP_ROWS);
    const size_t few = p->rows / strips, more = p->rows % strips; /* `more` strips have one more */
    for (size_t s = 0, r = 0; s < strips; r += few + (s < more), s++)
        pack_strip(p->scratch + s * p->k * LANES, p->x + r * p->ldx, p->ldx, few + (s < more),
                   p->k);
    tile.lines = attn_ceil_div(STEPS * ATTN_PANEL / LANES, strips);
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        tile.y = p->y + j;
        tile.start = p->start != NULL ? p->start + j : tile.start;
        tile.x = p->scratch;
        tile.ahead = tile.w + p->ldpanel;
        tile.n = p->n - j;
        for (size_t s = 0; s < strips; s++) {
            size_t rows = few + (s < more);
            strip_tiles[rows - FEW_ROWS - 1](&tile);
            tile.y += rows * p->ldy;
            tile.start += rows * p->ldstart;
            tile.x += p->k * LANES;
            tile.ahead += p->k / STEPS * tile.lines * LANES;
        }
        tile.w += p->ldpanel;
    }
}

static void project(const struct attn_product *p)
{
    static const float zeros[2 * ATTN_PANEL];
    const struct project_tile tile = {
        .y = p->y,
        .start = p->start != NULL ? p->start : zeros,
        .x = p->x,
        .w = p->w,
        .ldy = p->ldy,
        .ldstart = p->start != NULL ? p->ldstart : 0,
        .ldx = p->ldx,
        .ldpanel = p->ldpanel,
        .k = p->k,
        .ahead = p->w,
    };
    if (p->rows <= FEW_ROWS)
        project_few(p, tile);
    else
        project_many(p, tile);
}

void attn_kernels_avx512_project(struct attn_kernels *table) { table->project = project; }
