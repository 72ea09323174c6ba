/* kernels_tiling.h: how the small products go over their tiles, the same at every vector level.
 *
 * A level has an instance of its tile function for each number of rows; a tile is some rows by four
 * vectors where rows are few, else by two, the last columns by a masked one. */
#ifndef ATTN_LIB_KERNELS_TILING_H
#define ATTN_LIB_KERNELS_TILING_H

#include "kernels/kernels.h"
#include "mem.h"

#define TILE_MAX_ROWS 14     /* of a tile, at most, at any level */
#define TILE_MAX_WIDE_ROWS 6 /* and of one of four vectors */

/* A tile of the product from row r and column j on.  (A copy of the product that says so would be
 * read while what it was copied from is on its way to the cache, which stalls.) */
typedef void matmul_tile_fn(const struct attn_matmul *product, size_t r, size_t j);
typedef void outer_tile_fn(const struct attn_outer *product, size_t r, size_t j);

struct matmul_tiles { /* by rows; columns are 4, 2 and up to 2 vectors */
    matmul_tile_fn *wide[TILE_MAX_WIDE_ROWS + 1], *full[TILE_MAX_ROWS + 1],
        *edge[TILE_MAX_ROWS + 1];
};

struct outer_tiles { /* by rows; columns are 4, 2 and up to 2 vectors */
    outer_tile_fn *wide[TILE_MAX_WIDE_ROWS + 1], *full[TILE_MAX_ROWS + 1], *edge[TILE_MAX_ROWS + 1];
};

/* What of these a level has. */
struct tile_limits {
    size_t lanes; /* of a vector */
    size_t rows;  /* of a tile of up to two vectors, at most */
    size_t wide;  /* of one of four; 0: there are none */
};

/* Bytes of a column in a row of b: a number, or a word of int8. */
static inline size_t column_bytes(enum attn_dtype dtype)
{
    return dtype == ATTN_BF16 || dtype == ATTN_F16 ? 2 : 4;
}

/* Numbers of a column that follow one another there. */
static inline size_t numbers_per_column(enum attn_dtype dtype)
{
    return dtype == ATTN_INT8 ? 4 : 1;
}

#define LINE 64 /* of the cache: bytes */

/* What is read next, from a line on; where nothing is, lines that are there anyway. */
static inline const char *prefetch_begin(const struct attn_matmul *p, size_t line)
{
    return (p->prefetch != NULL ? p->prefetch : (const char *)p->b) + line * LINE;
}

/* Fetches `lines` (constant) and returns what is behind them. */
static inline __attribute__((always_inline)) const char *prefetch_lines(const char *ahead,
                                                                        const size_t lines)
{
    for (size_t l = 0; l < lines; l++)
        __builtin_prefetch(ahead + l * LINE, 0, 3);
    return ahead + lines * LINE;
}

/* Rows in pieces as equal as can be: `more` of them have one row more than `few`. */
struct pieces {
    uint32_t few, more;
};

static inline struct pieces partition_rows(size_t rows, size_t most)
{
    const uint32_t count = (uint32_t)attn_ceil_div(rows, most);
    return (struct pieces){(uint32_t)rows / count, (uint32_t)rows % count};
}

static inline void matmul_over_tiles(const struct attn_matmul *p, const struct matmul_tiles *tiles,
                                     struct tile_limits limits)
{
    const struct pieces cut = partition_rows(p->rows, limits.rows);
    for (size_t j = 0, width; j < p->n; j += width) {
        const bool wide = p->rows <= limits.wide && p->n - j >= 4 * limits.lanes;
        width = (wide ? 4 : 2) * limits.lanes;
        if (wide) {
            tiles->wide[p->rows](p, 0, j);
            continue;
        }
        matmul_tile_fn *const *by_rows = p->n - j >= width ? tiles->full : tiles->edge;
        for (size_t r = 0, i = 0, rows; r < p->rows; r += rows, i++)
            by_rows[rows = cut.few + (i < cut.more)](p, r, j);
    }
}

/* Tiles of four vectors wherever there are so many columns, as a is then read half as often. */
static inline void outer_over_tiles(const struct attn_outer *p, const struct outer_tiles *tiles,
                                    struct tile_limits limits)
{
    for (size_t j = 0, width; j < p->n; j += width) {
        const bool wide = limits.wide > 0 && p->n - j >= 4 * limits.lanes;
        const struct pieces cut = partition_rows(p->rows, wide ? limits.wide : limits.rows);
        width = (wide ? 4 : 2) * limits.lanes;
        outer_tile_fn *const *by_rows = wide                ? tiles->wide
                                        : p->n - j >= width ? tiles->full
                                                            : tiles->edge;
        for (size_t r = 0, i = 0, rows; r < p->rows; r += rows, i++)
            by_rows[rows = cut.few + (i < cut.more)](p, r, j);
    }
}

#endif
