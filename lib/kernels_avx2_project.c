/* kernels_avx2_project.c: products with packed weights for AVX2 and FMA.
 *
 * The plan of kernels_avx512_project.c with half the width and half the registers. */
#include <string.h>

#include "kernels_avx2.h"

#define LIST_3(name) NULL, name##_1, name##_2, name##_3
#define LIST_6(name) LIST_3(name), name##_4, name##_5, name##_6

#define STRIP_ROWS 6 /* x 2 vectors, half a panel: 12 accumulators */
#define FEW_ROWS 3   /* x 4 vectors; read where they are */

/* Floats between copied rows: no power of two, so that rows do not evict each other from L1. */
#define COPY_STRIDE (ATTN_K_BLOCK + 16)

/* A tile of y: some rows of n columns. */
struct project_tile {
    float *y;
    const float *start, *x, *w;
    const float *ahead; /* weights of the next panel, prefetched */
    size_t ldy, ldstart, ldx, k, n;
};

typedef void project_tile_fn(const struct project_tile *tile);

/* Computes a tile of a constant number of rows and vectors. */
INLINE void project_tile(const struct project_tile *tile, const int rows, const int vectors)
{
    const struct project_tile t = *tile;
    __m256 sum[STRIP_ROWS][4];
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = _mm256_setzero_ps();
    for (size_t i = 0; i < t.k; i++) {
        __m256 w[4];
        unroll_for(v, vectors)
            w[v] = _mm256_loadu_ps(t.w + i * ATTN_PANEL + v * LANES);
        _mm_prefetch(t.ahead + i * ATTN_PANEL, _MM_HINT_T0);
        unroll_for(r, rows) {
            __m256 factor = _mm256_broadcast_ss(t.x + r * t.ldx + i);
            unroll_for(v, vectors)
                sum[r][v] = _mm256_fmadd_ps(factor, w[v], sum[r][v]);
        }
    }
    unroll_for(v, vectors) {
        __m256i mask = first_lanes(t.n - attn_min(t.n, v * LANES));
        unroll_for(r, rows) {
            __m256 start = _mm256_maskload_ps(t.start + r * t.ldstart + v * LANES, mask);
            _mm256_maskstore_ps(t.y + r * t.ldy + v * LANES, mask, _mm256_add_ps(start, sum[r][v]));
        }
    }
}

#define PROJECT(name, rows, vectors)                           \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile(tile, rows, vectors);                     \
    }

PROJECT(whole, 1, 4)
PROJECT(whole, 2, 4)
PROJECT(whole, 3, 4)
PROJECT(half, 1, 2)
PROJECT(half, 2, 2)
PROJECT(half, 3, 2)
PROJECT(half, 4, 2)
PROJECT(half, 5, 2)
PROJECT(half, 6, 2)

static project_tile_fn *const whole_tiles[] = {LIST_3(whole)};
static project_tile_fn *const half_tiles[] = {LIST_6(half)};

/* All rows of half a panel, in strips as equal as can be.  The first one has the next panel
 * fetched: of each step the line that is the half's own. */
static void project_half(struct project_tile tile, size_t rows)
{
    for (size_t left = attn_ceil_div(rows, STRIP_ROWS); left > 0; left--) {
        size_t count = attn_ceil_div(rows, left);
        half_tiles[count](&tile);
        tile.y += count * tile.ldy;
        tile.start += count * tile.ldstart;
        tile.x += count * tile.ldx;
        tile.ahead = tile.w;
        rows -= count;
    }
}

static void project(const struct attn_product *p)
{
    static const float zeros[ATTN_PANEL];
    const bool few = p->rows <= FEW_ROWS;
    struct project_tile tile = {
        .x = few ? p->x : p->scratch,
        .ldx = few ? p->ldx : COPY_STRIDE,
        .ldy = p->ldy,
        .ldstart = p->start != NULL ? p->ldstart : 0,
        .k = p->k,
    };
    for (size_t r = 0; !few && r < p->rows; r++)
        memcpy(p->scratch + r * COPY_STRIDE, p->x + r * p->ldx, p->k * sizeof(float));
    const size_t width = few ? ATTN_PANEL : ATTN_PANEL / 2;
    for (size_t j = 0; j < p->n; j += width) {
        tile.y = p->y + j;
        tile.start = p->start != NULL ? p->start + j : zeros;
        tile.w = p->w + j / ATTN_PANEL * p->ldpanel + j % ATTN_PANEL;
        tile.ahead = tile.w + p->ldpanel;
        tile.n = p->n - j;
        if (few)
            whole_tiles[p->rows](&tile);
        else
            project_half(tile, p->rows);
    }
}

void attn_kernels_avx2_project(struct attn_kernels *table) { table->project = project; }
