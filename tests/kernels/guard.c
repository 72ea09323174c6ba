/* guard.c: arrays between guard pages; see guard.h. */
#include "guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATTERN 0x7fc0deadu /* a quiet NaN */
#define BAND 64             /* floats of pattern on the side of a grid without a guard page */

/* splitmix64 (Steele, Lea and Flood 2014). */
uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t rng_between(struct rng *rng, size_t low, size_t high)
{
    return low + rng_next(rng) % (high - low + 1);
}

float rng_unit(struct rng *rng) { return (float)(int32_t)(rng_next(rng) >> 32) * 0x1p-31f; }

bool pen_open(struct pen *pen, size_t floats)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (floats * sizeof(float) + page - 1) / page * page;
    char *map = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    pen->memory = (float *)(map + page);
    pen->capacity = bytes / sizeof(float);
    return true;
}

static void set_pattern(float *at, size_t count)
{
    const uint32_t pattern = PATTERN;
    for (size_t i = 0; i < count; i++)
        memcpy(at + i, &pattern, sizeof pattern);
}

static bool has_pattern(const float *at, size_t count)
{
    const uint32_t pattern = PATTERN;
    for (size_t i = 0; i < count; i++)
        if (memcmp(at + i, &pattern, sizeof pattern) != 0)
            return false;
    return true;
}

struct grid grid_index(struct pen *pen, struct rng *rng, size_t rows, size_t cols)
{
    static const size_t gaps[] = {0, 0, 1, 3, 7, 16, 29};
    struct grid grid = {.rows = rows, .cols = cols};
    grid.ld = cols + gaps[rng_next(rng) % (sizeof gaps / sizeof gaps[0])];
    size_t length = (rows - 1) * grid.ld + cols;
    bool against_end = rng_next(rng) % 4 != 0;
    grid.band_length = length + BAND;
    grid.band = against_end ? pen->memory + pen->capacity - grid.band_length : pen->memory;
    grid.at = against_end ? grid.band + BAND : grid.band;
    set_pattern(grid.band, grid.band_length);
    return grid;
}

void grid_fill(const struct grid *grid, struct rng *rng, float scale)
{
    for (size_t r = 0; r < grid->rows; r++)
        for (size_t j = 0; j < grid->cols; j++)
            grid->at[r * grid->ld + j] = rng_unit(rng) * scale;
}

void grid_copy(const struct grid *grid, const struct grid *from, size_t first)
{
    for (size_t r = 0; r < grid->rows; r++)
        memcpy(grid->at + r * grid->ld, from->at + (first + r) * from->ld,
               grid->cols * sizeof(float));
}

bool grid_intact(const struct grid *grid)
{
    const float *end = grid->band + grid->band_length;
    if (!has_pattern(grid->band, (size_t)(grid->at - grid->band)))
        return false;
    for (size_t r = 0; r + 1 < grid->rows; r++)
        if (!has_pattern(grid->at + r * grid->ld + grid->cols, grid->ld - grid->cols))
            return false;
    const float *last = grid->at + (grid->rows - 1) * grid->ld + grid->cols;
    return has_pattern(last, (size_t)(end - last));
}

bool grid_same_row(const struct grid *a, size_t r, const struct grid *b, size_t q)
{
    return memcmp(a->at + r * a->ld, b->at + q * b->ld, a->cols * sizeof(float)) == 0;
}
