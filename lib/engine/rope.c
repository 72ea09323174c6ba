/* rope.c: RoPE's frequencies and rotation, and the checks of a specification.
 *
 * A plain frequency is the reciprocal of float32(theta^(2i/dim)), here called the period (though
 * the true period has a factor of 2 pi).  The table `rules` has a function for each type, with the
 * float32 operations of Hugging Face in their order: at position 4,000 the last bit of a frequency
 * is worth 1e-4 rad. */
#include "engine/rope.h"

#include <math.h>
#include <string.h>

#include "basics/status.h"

#define TWO_PI 6.283185307179586

/* ---- Frequencies ---- */

typedef float rule_fn(const struct attn_rope_spec *spec, float period, size_t i, int64_t length);

static float plain(const struct attn_rope_spec *spec, float period, size_t i, int64_t length)
{
    (void)spec, (void)i, (void)length;
    return 1.0f / period;
}

static float linear(const struct attn_rope_spec *spec, float period, size_t i, int64_t length)
{
    (void)i, (void)length;
    return 1.0f / period / (float)spec->factor;
}

/* The index, as a real number, of the pair that makes so many rotations within the trained
 * length. */
static double yarn_pair(const struct attn_rope_spec *spec, double rotations)
{
    return (double)spec->dim * log(spec->original_max_position / (rotations * TWO_PI)) /
           (2 * log(spec->theta));
}

static float yarn(const struct attn_rope_spec *spec, float period, size_t i, int64_t length)
{
    double low = yarn_pair(spec, spec->beta_fast), high = yarn_pair(spec, spec->beta_slow);
    low = fmax(spec->truncate ? floor(low) : low, 0);
    high = fmin(spec->truncate ? ceil(high) : high, (double)spec->dim - 1);
    if (low == high)
        high += 0.001;
    (void)length;
    float ramp = ((float)i - (float)low) / (float)(high - low);
    float kept = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1 / ((float)spec->factor * period) * (1 - kept) + 1 / period * kept;
}

static float llama3(const struct attn_rope_spec *spec, float period, size_t i, int64_t length)
{
    double low = spec->low_freq_factor, high = spec->high_freq_factor;
    double trained = spec->original_max_position;
    float frequency = 1.0f / period, factor = (float)spec->factor;
    float wavelength = 1.0f / frequency * (float)TWO_PI;
    (void)i, (void)length;
    if (wavelength > (float)(trained / low))
        return frequency / factor;
    if (wavelength < (float)(trained / high) || low >= high) /* Llama 4 Scout has no blend */
        return frequency;
    float smooth = (1.0f / wavelength * (float)trained - (float)low) / (float)(high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

static float longrope(const struct attn_rope_spec *spec, float period, size_t i, int64_t length)
{
    const double *factors =
        attn_rope_is_rescaled(spec, length) ? spec->long_factor : spec->short_factor;
    return 1 / ((float)factors[i] * period);
}

static float proportional(const struct attn_rope_spec *spec, float period, size_t i, int64_t length)
{
    (void)length;
    return i < spec->proportional_dim / 2 ? 1.0f / period : 0;
}

static rule_fn *const rules[ATTN_NUM_ROPE_TYPES] = {
    [ATTN_ROPE_DEFAULT] = plain,
    [ATTN_ROPE_LINEAR] = linear,
    [ATTN_ROPE_DYNAMIC] = plain,
    [ATTN_ROPE_YARN] = yarn,
    [ATTN_ROPE_LLAMA3] = llama3,
    [ATTN_ROPE_LONGROPE] = longrope,
    [ATTN_ROPE_PROPORTIONAL] = proportional,
};

void attn_rope_frequencies(float *inv_freq, const struct attn_rope_spec *spec, int64_t length)
{
    float theta = (float)spec->theta;
    if (spec->type == ATTN_ROPE_DYNAMIC && attn_rope_is_rescaled(spec, length)) {
        double dim = (double)spec->dim; /* only the power has a double exponent */
        float growth = (float)spec->factor * (float)length / (float)spec->original_max_position -
                       (float)(spec->factor - 1);
        theta *= (float)pow((double)growth, dim / (dim - 2));
    }
    for (size_t i = 0; i < spec->dim / 2; i++) {
        /* Of a grid both halves of the pairs have every other frequency. */
        const size_t at = spec->grid_prefix > 0 ? 2 * (i % (spec->dim / 4)) : i;
        float exponent = (float)(2 * at) / (float)spec->dim;
        float period = (float)pow((double)theta, (double)exponent);
        inv_freq[i] = rules[spec->type](spec, period, i, length) * (spec->reversed ? -1 : 1);
    }
}

bool attn_rope_is_rescaled(const struct attn_rope_spec *spec, int64_t length)
{
    return (spec->type == ATTN_ROPE_DYNAMIC || spec->type == ATTN_ROPE_LONGROPE) &&
           (double)length > spec->original_max_position;
}

size_t attn_rope_short_length(const struct attn_rope_spec *spec)
{
    const bool same = spec->type != ATTN_ROPE_LONGROPE ||
                      ((spec->long_attention_factor == 0 ||
                        spec->long_attention_factor == spec->attention_factor) &&
                       memcmp(spec->short_factor, spec->long_factor,
                              spec->dim / 2 * sizeof *spec->short_factor) == 0);
    return same ? 0 : (size_t)spec->original_max_position;
}

/* ---- Rotation ---- */

void attn_rope_cos_sin(float *cos_sin, const struct attn_rope_spec *spec, const float *inv_freq,
                       int64_t position, bool rescaled)
{
    const bool longer = rescaled && spec->long_attention_factor != 0;
    size_t half = spec->dim / 2;
    float factor = (float)(longer ? spec->long_attention_factor : spec->attention_factor);
    for (size_t i = 0; i < half; i++) {
        double angle = (double)((float)position * inv_freq[i]);
        cos_sin[i] = (float)cos(angle) * factor;
        cos_sin[half + i] = (float)sin(angle) * factor;
    }
}

void attn_rope_grid_cos_sin(float *cos_sin, const struct attn_rope_spec *spec,
                            const float *inv_freq, size_t patch, const size_t grid[2])
{
    const size_t half = spec->dim / 2, cell[2] = {patch / grid[1], patch % grid[1]};
    for (size_t i = 0; i < half; i++) {
        const size_t side = i < half / 2 ? 0 : 1; /* rows, then columns */
        const float at = 2 * (((float)cell[side] + 0.5f) / (float)grid[side]) - 1;
        const double angle = (double)((float)TWO_PI * at * inv_freq[i]);
        cos_sin[i] = (float)cos(angle);
        cos_sin[half + i] = (float)sin(angle);
    }
}

void attn_rope_rotate(float *x, const struct attn_rope_spec *spec, const float *cos_sin)
{
    size_t half = spec->dim / 2;
    size_t step = spec->interleaved ? 2 : 1, other = spec->interleaved ? 1 : half;
    const float *cosine = cos_sin, *sine = cos_sin + half;
    for (size_t i = 0; i < half; i++) {
        float *pair = x + i * step, a = pair[0], b = pair[other];
        pair[0] = a * cosine[i] - b * sine[i];
        pair[other] = b * cosine[i] + a * sine[i];
    }
}

/* ---- Checking ---- */

#define OFFSET(field) offsetof(struct attn_rope_spec, field)

/* Sets of types. */
enum {
    LINEAR = 1 << ATTN_ROPE_LINEAR,
    DYNAMIC = 1 << ATTN_ROPE_DYNAMIC,
    YARN = 1 << ATTN_ROPE_YARN,
    LLAMA3 = 1 << ATTN_ROPE_LLAMA3,
    LONGROPE = 1 << ATTN_ROPE_LONGROPE,
    EVERY = (1 << ATTN_NUM_ROPE_TYPES) - 1,
};

/* The bounds of each number.  Within them positions below 2^31 times frequencies are finite in
 * float32. */
static const struct field {
    const char *name;
    size_t offset;  /* of a double in struct attn_rope_spec */
    unsigned types; /* the types that read it */
    double least, most;
} fields[] = {
    {"rope_theta", OFFSET(theta), EVERY, 1e-6, 1e18},
    {"attention_factor", OFFSET(attention_factor), EVERY, 1e-6, 1e6},
    {"long_mscale", OFFSET(long_attention_factor), LONGROPE, 0, 1e6},
    {"factor", OFFSET(factor), LINEAR | DYNAMIC | YARN | LLAMA3, 1e-6, 1e6},
    {"original_max_position_embeddings", OFFSET(original_max_position),
     DYNAMIC | YARN | LLAMA3 | LONGROPE, 1, 2147483647},
    {"low_freq_factor", OFFSET(low_freq_factor), LLAMA3, 1e-6, 1e6},
    {"high_freq_factor", OFFSET(high_freq_factor), LLAMA3, 1e-6, 1e6},
    {"beta_fast", OFFSET(beta_fast), YARN, 1e-6, 1e6},
    {"beta_slow", OFFSET(beta_slow), YARN, 1e-6, 1e6},
};

/* The factors of longrope, one for each pair. */
static enum attn_status check_factors(const double *factors, size_t n, const char *name,
                                      struct attn_error *error)
{
    if (factors == NULL)
        return attn_fail(error, ATTN_OUT_OF_RANGE, name, "%s is missing, needs %zu numbers", name,
                         n);
    for (size_t i = 0; i < n; i++)
        if (!(factors[i] >= 1e-6 && factors[i] <= 1e6))
            return attn_fail(error, ATTN_OUT_OF_RANGE, name,
                             "%s holds %g at element %zu, allowed are 1e-06 to 1e+06", name,
                             factors[i], i);
    return ATTN_OK;
}

/* Checks relations that a type needs: nothing may be divided by 0, and no ramp run backwards. */
static enum attn_status check_type(const struct attn_rope_spec *spec, struct attn_error *error)
{
    if (spec->type == ATTN_ROPE_DYNAMIC && spec->dim <= 2)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "head_dim",
                         "rotary width is %zu, needs to be above 2 for dynamic scaling", spec->dim);
    if (spec->type == ATTN_ROPE_YARN && !(spec->theta > 1))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "rope_theta",
                         "rope_theta is %g, needs to be above 1 for yarn", spec->theta);
    if (spec->type == ATTN_ROPE_YARN && !(spec->beta_fast >= spec->beta_slow))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "beta_fast",
                         "beta_fast is %g, needs to be at least beta_slow, %g", spec->beta_fast,
                         spec->beta_slow);
    if (spec->type == ATTN_ROPE_LLAMA3 && !(spec->high_freq_factor >= spec->low_freq_factor))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "low_freq_factor",
                         "low_freq_factor is %g, must not be above high_freq_factor, %g",
                         spec->low_freq_factor, spec->high_freq_factor);
    if (spec->type == ATTN_ROPE_PROPORTIONAL &&
        (spec->proportional_dim % 2 != 0 || spec->proportional_dim > spec->dim))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "partial_rotary_factor",
                         "%zu components turn, needs to be even and at most %zu",
                         spec->proportional_dim, spec->dim);
    if (spec->type != ATTN_ROPE_LONGROPE)
        return ATTN_OK;
    enum attn_status status =
        check_factors(spec->short_factor, spec->dim / 2, "short_factor", error);
    return status != ATTN_OK
               ? status
               : check_factors(spec->long_factor, spec->dim / 2, "long_factor", error);
}

enum attn_status attn_rope_check(const struct attn_rope_spec *spec, size_t head_dim,
                                 struct attn_error *error)
{
    if ((unsigned)spec->type >= ATTN_NUM_ROPE_TYPES || spec->type == ATTN_ROPE_NONE)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "rope_type",
                         "rope_type is number %d, allowed are 1 to %d", (int)spec->type,
                         ATTN_NUM_ROPE_TYPES - 1);
    if (spec->grid_prefix > 0 && (spec->type != ATTN_ROPE_DEFAULT || spec->dim % 4 != 0))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "head_dim",
                         "rotary width is %zu, needs to be a multiple of 4 for a grid of patches, "
                         "without scaling",
                         spec->dim);
    if (spec->dim < 2 || spec->dim % 2 != 0 || spec->dim > head_dim)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "head_dim",
                         "rotary width is %zu, needs to be even and at most head_dim %zu",
                         spec->dim, head_dim);
    for (size_t i = 0; i < ATTN_COUNT(fields); i++) {
        const struct field *field = &fields[i];
        double value = *(const double *)((const char *)spec + field->offset);
        if ((field->types & 1u << spec->type) != 0 &&
            !(value >= field->least && value <= field->most))
            return attn_fail(error, ATTN_OUT_OF_RANGE, field->name,
                             "%s is %g, allowed are %g to %g", field->name, value, field->least,
                             field->most);
    }
    return check_type(spec, error);
}
