/* kernels_walk.h: how the small products go over their tiles, the same at every vector level.
 *
 * A level has an instance of its tile function for each number of rows; a tile is some rows by four
 * vectors where rows are few, else by two, the last columns by a masked one. */
#ifndef ATTN_LIB_KERNELS_WALK_H
#define ATTN_LIB_KERNELS_WALK_H

#include "kernels.h"
#include "mem.h"

#define WALK_ROWS 14 /* of a tile, at most, at any level */
#define WALK_WIDE 6  /* and of one of four vectors */

typedef void matmul_tile_fn(const struct attn_matmul *tile);
typedef void outer_tile_fn(const struct attn_outer *tile);

struct matmul_tiles { /* by rows; columns are 4, 2 and up to 2 vectors */
    matmul_tile_fn *wide[WALK_WIDE + 1], *full[WALK_ROWS + 1], *edge[WALK_ROWS + 1];
};

struct outer_tiles { /* by rows; columns are 2 and up to 2 vectors */
    outer_tile_fn *full[WALK_ROWS + 1], *edge[WALK_ROWS + 1];
};

/* What of these a level has. */
struct tile_limits {
    size_t lanes; /* of a vector */
    size_t rows;  /* of a tile of up to two vectors, at most */
    size_t wide;  /* of one of four; unused by outer */
};

static inline size_t bytes_of(enum attn_dtype dtype)
{
    return dtype == ATTN_F32 ? 4 : dtype == ATTN_INT8 ? 1 : 2;
}

/* Up to two vectors of columns of all rows, in pieces as equal as can be. */
static inline void walk_matmul_rows(struct attn_matmul panel, matmul_tile_fn *const by_rows[],
                                    size_t most)
{
    size_t rows = panel.rows;
    for (size_t left = attn_ceil_div(rows, most); left > 0; left--) {
        size_t count = attn_ceil_div(rows, left);
        by_rows[count](&panel);
        panel.c += count * panel.ldc;
        panel.a += count * panel.lda;
        rows -= count;
    }
}

static inline void walk_matmul(const struct attn_matmul *p, const struct matmul_tiles *tiles,
                               struct tile_limits limits)
{
    const size_t bytes = bytes_of(p->dtype);
    struct attn_matmul part = *p;
    part.ahead = p->ahead != NULL ? p->ahead : p->b; /* which is no work */
    for (size_t j = 0, width; j < p->n; j += width) {
        const bool wide = p->rows <= limits.wide && part.n >= 4 * limits.lanes;
        width = (wide ? 4 : 2) * limits.lanes;
        if (wide)
            tiles->wide[p->rows](&part);
        else
            walk_matmul_rows(part, part.n >= width ? tiles->full : tiles->edge, limits.rows);
        part.c += width;
        part.b = (const char *)part.b + width * bytes;
        part.ahead = (const char *)part.ahead + width * bytes;
        part.n -= attn_min(part.n, width);
    }
}

/* Rows in pieces as equal as can be. */
static inline void walk_outer_rows(struct attn_outer panel, outer_tile_fn *const by_rows[],
                                   size_t most)
{
    size_t rows = panel.rows;
    for (size_t left = attn_ceil_div(rows, most); left > 0; left--) {
        size_t count = attn_ceil_div(rows, left);
        by_rows[count](&panel);
        panel.c += count * panel.ldc;
        panel.a += count;
        panel.rescale += panel.rescale != NULL ? count : 0;
        rows -= count;
    }
}

static inline void walk_outer(const struct attn_outer *p, const struct outer_tiles *tiles,
                              struct tile_limits limits)
{
    const size_t width = 2 * limits.lanes;
    struct attn_outer panel = *p;
    for (size_t j = 0; j < p->n; j += width) {
        walk_outer_rows(panel, panel.n >= width ? tiles->full : tiles->edge, limits.rows);
        panel.c += width;
        panel.b += width;
        panel.n -= attn_min(panel.n, width);
    }
}

#endif
