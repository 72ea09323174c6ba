/* rope.c: RoPE's frequencies and rotation.
 *
 * The llama3 rule (Llama 3.1, `rope_type: llama3`) divides long wavelengths by `factor`, keeps
 * short ones, and blends linearly in old_length / wavelength in between. */
#include "rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586

static double bend_llama3(double frequency, const struct attn_rope_spec *spec)
{
    double turns = spec->original_max_position * frequency / TWO_PI; /* old length / wavelength */
    if (turns < spec->low_freq_factor)
        return frequency / spec->factor;
    if (turns > spec->high_freq_factor)
        return frequency;
    double smooth =
        (turns - spec->low_freq_factor) / (spec->high_freq_factor - spec->low_freq_factor);
    return (1 - smooth) * frequency / spec->factor + smooth * frequency;
}

void attn_rope_frequencies(float *inv_freq, const struct attn_rope_spec *spec)
{
    for (size_t i = 0; i < spec->dim / 2; i++) {
        double frequency = pow(spec->theta, -2.0 * (double)i / (double)spec->dim);
        if (spec->type == ATTN_ROPE_LLAMA3)
            frequency = bend_llama3(frequency, spec);
        inv_freq[i] = (float)frequency;
    }
}

void attn_rope_turn(float *turn, const float *inv_freq, size_t dim, int64_t position)
{
    size_t half = dim / 2;
    for (size_t i = 0; i < half; i++) {
        double angle = (double)((float)position * inv_freq[i]);
        turn[i] = (float)cos(angle);
        turn[half + i] = (float)sin(angle);
    }
}

void attn_rope_rotate(float *x, const float *turn, size_t dim)
{
    size_t half = dim / 2;
    const float *cosine = turn, *sine = turn + half;
    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[half + i];
        x[i] = a * cosine[i] - b * sine[i];
        x[half + i] = b * cosine[i] + a * sine[i];
    }
}
