/* guard.h: arrays between guard pages, and the random numbers to fill them with.
 *
 * A pen is memory between two pages that cannot be touched.  A grid is a matrix in a pen that ends
 * or begins at such a page, so that reading one float too far is a fault.  The memory at its other
 * side, and the gap between a row's end and the next row, hold a pattern that is a NaN: reading it
 * spoils the result, and writing it is seen. */
#ifndef TESTS_KERNELS_GUARD_H
#define TESTS_KERNELS_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
size_t rng_between(struct rng *rng, size_t low, size_t high); /* both included */
float rng_unit(struct rng *rng);                              /* uniform in [-1, 1] */

struct pen {
    float *memory; /* [capacity] between the guard pages */
    size_t capacity;
};

bool pen_open(struct pen *pen, size_t floats);

struct grid {
    float *at; /* [rows][ld], the last row `cols` long */
    size_t rows, cols, ld;
    float *band; /* [band_length] around the matrix, patterned */
    size_t band_length;
};

/* Places a grid of rows x cols, all of it patterned; its stride and its end of the pen are
 * random. */
struct grid grid_index(struct pen *pen, struct rng *rng, size_t rows, size_t cols);

/* Fills the grid with uniform numbers in +-scale. */
void grid_fill(const struct grid *grid, struct rng *rng, float scale);

/* Copies `rows` rows of `from`, beginning with `first`, to the grid. */
void grid_copy(const struct grid *grid, const struct grid *from, size_t first);

/* Whether everything but the elements themselves still holds the pattern. */
bool grid_intact(const struct grid *grid);

/* Whether row r of one grid has the bits of row q of another of the same width. */
bool grid_same_row(const struct grid *a, size_t r, const struct grid *b, size_t q);

#endif
