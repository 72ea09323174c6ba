/* rng.c: SplitMix64 and arrays filled from it. */
#include "rng.h"

#include <stdlib.h>

struct rng rng_seeded(uint64_t seed) { return (struct rng){seed}; }

static uint64_t next(struct rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

unsigned rng_below(struct rng *r, unsigned bound)
{
    return (unsigned)((next(r) >> 32) * bound >> 32);
}

float rng_float(struct rng *r, float range)
{
    return ((float)(next(r) >> 40) / 8388608.0f - 1) * range;
}

float *rng_floats(struct rng *r, size_t count, float range)
{
    float *data = malloc((count ? count : 1) * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = rng_float(r, range);
    return data;
}

uint8_t *rng_bytes(struct rng *r, size_t count, unsigned percent)
{
    uint8_t *data = malloc(count ? count : 1);
    for (size_t i = 0; i < count; i++)
        data[i] = rng_below(r, 100) < percent;
    return data;
}
