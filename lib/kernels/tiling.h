/* tiling.h: the loops of matmul and outer over register tiles, the same at every vector
 * level.
 *
 * A level brings one compiled instance of its tile function for each number of rows, in tables.  A
 * tile is some rows by four vectors of columns ("wide"), or by two ("full"), or by up to two with
 * the columns beyond n masked ("edge"). */
#ifndef ATTN_LIB_KERNELS_TILING_H
#define ATTN_LIB_KERNELS_TILING_H

#include "basics/mem.h"
#include "kernels/kernels.h"

#define CACHE_LINE 64        /* bytes */
#define TILE_MAX_ROWS 14     /* of a full or edge tile, at any level */
#define TILE_MAX_WIDE_ROWS 6 /* of a wide tile */

/* Computes the tile of the product that begins at row r and column j.  The product is passed as it
 * is: a copy with its pointers moved on would be read (wide loads) before the stores that made it
 * have reached the cache, and each such load stalls. */
typedef void matmul_tile_fn(const struct attn_matmul *product, size_t r, size_t j);
typedef void outer_tile_fn(const struct attn_outer *product, size_t r, size_t j);

struct matmul_tiles { /* each indexed by the rows of the tile */
    matmul_tile_fn *wide[TILE_MAX_WIDE_ROWS + 1], *full[TILE_MAX_ROWS + 1],
        *edge[TILE_MAX_ROWS + 1];
};

struct outer_tiles { /* each indexed by the rows of the tile */
    outer_tile_fn *wide[TILE_MAX_WIDE_ROWS + 1], *full[TILE_MAX_ROWS + 1], *edge[TILE_MAX_ROWS + 1];
};

/* Which entries of those tables a level fills. */
struct tile_limits {
    size_t lanes; /* of a vector */
    size_t rows;  /* of a full or edge tile, at most */
    size_t wide;  /* of a wide tile, at most; 0: the level has none */
};

/* Bytes of one column in a row of b: one number, or a word of four int8. */
static inline size_t column_bytes(enum attn_dtype dtype)
{
    return dtype == ATTN_BF16 || dtype == ATTN_F16 ? 2 : 4;
}

/* Values of the summation index i that one row of b holds. */
static inline size_t row_depth(enum attn_dtype dtype) { return dtype == ATTN_INT8 ? 4 : 1; }

/* F(rows, ...) for each number of rows up to 3, 4, 6, ...: instances of a tile function, or their
 * names in a list. */
#define ROWS_0(F, ...)
#define ROWS_3(F, ...) F(1, __VA_ARGS__) F(2, __VA_ARGS__) F(3, __VA_ARGS__)
#define ROWS_4(F, ...) ROWS_3(F, __VA_ARGS__) F(4, __VA_ARGS__)
#define ROWS_6(F, ...) ROWS_4(F, __VA_ARGS__) F(5, __VA_ARGS__) F(6, __VA_ARGS__)
#define ROWS_8(F, ...) ROWS_6(F, __VA_ARGS__) F(7, __VA_ARGS__) F(8, __VA_ARGS__)
#define ROWS_12(F, ...)    \
    ROWS_8(F, __VA_ARGS__) \
    F(9, __VA_ARGS__) F(10, __VA_ARGS__) F(11, __VA_ARGS__) F(12, __VA_ARGS__)
#define ROWS_14(F, ...) ROWS_12(F, __VA_ARGS__) F(13, __VA_ARGS__) F(14, __VA_ARGS__)
#define LISTED(rows, name) [rows] = name##_##rows,

/* name_ROWS: the instance for so many rows of matmul_tile and outer_tile, which each level has. */
#define MATMUL_TILE(rows, name, dtype, vectors, masked)                        \
    static void name##_##rows(const struct attn_matmul *p, size_t r, size_t j) \
    {                                                                          \
        matmul_tile(p, r, j, dtype, rows, vectors, masked);                    \
    }
#define OUTER_TILE(rows, name, vectors, masked)                               \
    static void name##_##rows(const struct attn_outer *p, size_t r, size_t j) \
    {                                                                         \
        outer_tile(p, r, j, rows, vectors, masked);                           \
    }

/* The kernel matmul of one dtype of b, and outer, with all their tiles.  FULL and WIDE are the
 * ROWS_ of MAX_ROWS and MAX_WIDE, or of OUTER_ROWS and OUTER_WIDE. */
#define MATMUL(name, dtype, FULL, WIDE)                                                 \
    WIDE(MATMUL_TILE, name##_wide, dtype, 4, false)                                     \
    FULL(MATMUL_TILE, name##_full, dtype, 2, false)                                     \
    FULL(MATMUL_TILE, name##_edge, dtype, 2, true)                                      \
    static void name(const struct attn_matmul *p)                                       \
    {                                                                                   \
        static const struct matmul_tiles tiles = {.wide = {WIDE(LISTED, name##_wide)},  \
                                                  .full = {FULL(LISTED, name##_full)},  \
                                                  .edge = {FULL(LISTED, name##_edge)}}; \
        matmul_over_tiles(p, &tiles, (struct tile_limits){LANES, MAX_ROWS, MAX_WIDE});  \
    }
#define OUTER(name, FULL, WIDE)                                                           \
    WIDE(OUTER_TILE, name##_wide, 4, false)                                               \
    FULL(OUTER_TILE, name##_full, 2, false)                                               \
    FULL(OUTER_TILE, name##_edge, 2, true)                                                \
    static void name(const struct attn_outer *p)                                          \
    {                                                                                     \
        static const struct outer_tiles tiles = {.wide = {WIDE(LISTED, name##_wide)},     \
                                                 .full = {FULL(LISTED, name##_full)},     \
                                                 .edge = {FULL(LISTED, name##_edge)}};    \
        outer_over_tiles(p, &tiles, (struct tile_limits){LANES, OUTER_ROWS, OUTER_WIDE}); \
    }

/* Where prefetching begins for a tile whose part of b begins at cache line `line`.  Without
 * memory to prefetch the result is in b itself, whose lines are in the cache anyway. */
static inline const char *prefetch_begin(const struct attn_matmul *p, size_t line)
{
    return (p->prefetch != NULL ? p->prefetch : (const char *)p->b) + line * CACHE_LINE;
}

/* Prefetches `lines` (constant) cache lines and returns the address after them. */
INLINE const char *prefetch_lines(const char *at, const size_t lines)
{
    for (size_t l = 0; l < lines; l++)
        __builtin_prefetch(at + l * CACHE_LINE, 0, 3);
    return at + lines * CACHE_LINE;
}

/* Rows divided into parts as equal as possible: the first `longer` parts have rows + 1 rows, the
 * others `rows`. */
struct partition {
    uint32_t rows, longer;
};

static inline struct partition partition_rows(size_t rows, size_t most)
{
    const uint32_t count = (uint32_t)attn_ceil_div(rows, most);
    return (struct partition){(uint32_t)rows / count, (uint32_t)rows % count};
}

static inline void matmul_over_tiles(const struct attn_matmul *p, const struct matmul_tiles *tiles,
                                     struct tile_limits limits)
{
    const struct partition part = partition_rows(p->rows, limits.rows);
    for (size_t j = 0, width; j < p->n; j += width) {
        const bool wide = p->rows <= limits.wide && p->n - j >= 4 * limits.lanes;
        width = (wide ? 4 : 2) * limits.lanes;
        if (wide) {
            tiles->wide[p->rows](p, 0, j);
            continue;
        }
        matmul_tile_fn *const *by_rows = p->n - j >= width ? tiles->full : tiles->edge;
        for (size_t r = 0, i = 0, rows; r < p->rows; r += rows, i++)
            by_rows[rows = part.rows + (i < part.longer)](p, r, j);
    }
}

/* Wide tiles are taken wherever the columns suffice: factors of a are then read half as often. */
static inline void outer_over_tiles(const struct attn_outer *p, const struct outer_tiles *tiles,
                                    struct tile_limits limits)
{
    for (size_t j = 0, width; j < p->n; j += width) {
        const bool wide = limits.wide > 0 && p->n - j >= 4 * limits.lanes;
        const struct partition part = partition_rows(p->rows, wide ? limits.wide : limits.rows);
        width = (wide ? 4 : 2) * limits.lanes;
        outer_tile_fn *const *by_rows = wide                ? tiles->wide
                                        : p->n - j >= width ? tiles->full
                                                            : tiles->edge;
        for (size_t r = 0, i = 0, rows; r < p->rows; r += rows, i++)
            by_rows[rows = part.rows + (i < part.longer)](p, r, j);
    }
}

#endif
