/* random.c: the counter-based generator of `random` models.
 *
 * The counter advances by the golden ratio, as in SplitMix64, so that neighbouring elements differ
 * in many bits before they are mixed.  A float is an odd integer below 2^24 times a scale: one
 * rounding, which IEEE 754 fixes, so the bits do not depend on the compiler or the CPU. */
#include "basics/random.h"

#include "basics/hash.h"

uint64_t attn_random_stream(uint64_t seed, uint64_t layer, uint64_t tensor)
{
    uint64_t stream = attn_hash_mix(seed + ATTN_HASH_GOLDEN);
    stream = attn_hash_mix(stream + (layer + 1) * ATTN_HASH_GOLDEN);
    return attn_hash_mix(stream + (tensor + 1) * ATTN_HASH_GOLDEN);
}

void attn_random_uniform(float *out, size_t count, uint64_t stream, float bound)
{
    attn_random_uniform_from(out, 0, count, stream, bound);
}

void attn_random_uniform_from(float *out, size_t first, size_t count, uint64_t stream, float bound)
{
    const float step = bound * 0x1p-24f;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = attn_hash_mix(stream + (uint64_t)(first + i) * ATTN_HASH_GOLDEN);
        int32_t odd = (int32_t)(bits >> 40) * 2 + 1 - (1 << 24); /* -2^24 + 1 .. 2^24 - 1 */
        out[i] = (float)odd * step;
    }
}
