/* random.h: reproducible random numbers, addressed by counter.
 *
 * Element i of a stream is a pure function of (stream, i): no state, no order, the same bits on
 * every machine. */
#ifndef ATTN_LIB_BASICS_RANDOM_H
#define ATTN_LIB_BASICS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* The number of the stream for tensor `tensor` of layer `layer` under `seed`. */
uint64_t attn_random_stream(uint64_t seed, uint64_t layer, uint64_t tensor);

/* out[i] = element i of `stream`, i < count: uniform over 2^24 equally spaced values in (-bound,
 * bound), symmetric about 0.  bound is positive. */
void attn_random_uniform(float *out, size_t count, uint64_t stream, float bound);

/* The same, from element `first` on: out[i] = element first + i. */
void attn_random_uniform_from(float *out, size_t first, size_t count, uint64_t stream, float bound);

#endif
