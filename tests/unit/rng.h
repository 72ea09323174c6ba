/* rng.h: seeded random inputs for tests. */
#ifndef TESTS_RNG_H
#define TESTS_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

struct rng rng_seeded(uint64_t seed);
unsigned rng_below(struct rng *r, unsigned bound);           /* [0, bound) */
float rng_float(struct rng *r, float range);                 /* [-range, range) */
float *rng_floats(struct rng *r, size_t count, float range); /* caller frees */

/* Bytes that are 1 with the given chance in percent, else 0; caller frees. */
uint8_t *rng_bytes(struct rng *r, size_t count, unsigned percent);

#endif
