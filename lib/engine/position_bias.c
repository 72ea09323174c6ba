/* position_bias.c: ALiBi's slopes, T5's buckets, BEiT's grid, and adding them to a row of scores.
 *
 * Buckets and slopes are computed in the float32 arithmetic of Hugging Face: a bucket that is off
 * by one would be another learned number.  No bias passes 1e15 in magnitude, while half of the last
 * bit of the lowest float32 is 1e31, so a finite sum stays finite without a clamp. */
#include "engine/mask.h"

#include <math.h>

#include "basics/half_float.h"
#include "basics/status.h"

#define RUN 64 /* scores added to at a time */

/* ---- ALiBi ---- */

static float round_bfloat16(float x) { return attn_bf16_to_float(attn_float_to_bf16(x)); }

/* With c the power of two at or below H, head h < c has slope h + 1 as power of 2^(-8/c), the heads
 * from c on the odd powers of its square root. */
static enum attn_status init_alibi(struct attn_position_bias *out,
                                   const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t heads = spec->num_heads;
    size_t c = 1;
    out->bfloat16 = bias->bfloat16;
    out->by_slot = bias->by_slot;
    out->both_ways = bias->bidirectional;
    out->scale = (float)bias->scale;
    out->slopes = attn_alloc(heads, sizeof(float));
    if (out->slopes == NULL)
        return attn_fail_memory(error, heads * sizeof(float));
    while (c * 2 <= heads)
        c *= 2;
    for (size_t h = 0; h < heads; h++) {
        const double base = exp2(-8.0 / (double)(h < c ? c : 2 * c));
        const double power = (double)(h < c ? h + 1 : 2 * (h - c) + 1);
        const float slope = (float)pow((double)(float)base, power);
        out->slopes[h] = bias->bfloat16 ? round_bfloat16(slope) : slope * out->scale;
    }
    return ATTN_OK;
}

/* ---- T5 ---- */

/* Buckets of one direction, and how many of them hold a single distance. */
static size_t direction_buckets(const struct attn_position_bias_spec *spec)
{
    return spec->bidirectional ? spec->buckets / 2 : spec->buckets;
}

static size_t exact_buckets(const struct attn_position_bias_spec *spec)
{
    return direction_buckets(spec) / 2;
}

size_t attn_t5_bucket(const struct attn_position_bias_spec *spec, int64_t distance)
{
    size_t buckets = direction_buckets(spec), singles = exact_buckets(spec);
    size_t offset = spec->bidirectional && distance > 0 ? buckets : 0;
    if (!spec->bidirectional && distance > 0)
        distance = 0;
    size_t far = distance < 0 ? (size_t)-distance : (size_t)distance;
    if (far < singles)
        return offset + far;
    float range = (float)log((double)spec->max_distance / (double)singles);
    float ratio = logf((float)far / (float)singles) / range;
    size_t bucket = singles + (size_t)(ratio * (float)(buckets - singles));
    return offset + attn_min(bucket, buckets - 1);
}

static enum attn_status check_t5(const struct attn_position_bias_spec *spec,
                                 struct attn_error *error)
{
    size_t least = spec->bidirectional ? 4 : 2;
    if (spec->buckets < least || spec->buckets > ATTN_MAX_BUCKETS ||
        (spec->bidirectional && spec->buckets % 2 != 0))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "relative_attention_num_buckets",
                         "relative_attention_num_buckets is %zu, allowed are %s%zu to %d",
                         spec->buckets, spec->bidirectional ? "even numbers from " : "", least,
                         ATTN_MAX_BUCKETS);
    if (spec->max_distance <= exact_buckets(spec) || spec->max_distance > ATTN_MAX_BUCKETS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "relative_attention_max_distance",
                         "relative_attention_max_distance is %zu, allowed are %zu to %d",
                         spec->max_distance, exact_buckets(spec) + 1, ATTN_MAX_BUCKETS);
    return ATTN_OK;
}

static enum attn_status init_t5(struct attn_position_bias *out, const struct attn_layer_spec *spec,
                                const float *weights, struct attn_error *error)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    enum attn_status status =
        attn_check_magnitudes(weights, attn_mul(bias->buckets, spec->num_heads), ATTN_MAX_MAGNITUDE,
                              "relative_attention_bias", error);
    if (status != ATTN_OK)
        return status;
    out->reach = bias->max_distance;
    size_t width = 2 * out->reach + 1, size = attn_mul(spec->num_heads, width);
    out->table = attn_alloc(size, sizeof(float));
    if (out->table == NULL)
        return attn_fail_memory(error, attn_mul(size, sizeof(float)));
    for (size_t d = 0; d < width; d++) {
        size_t bucket = attn_t5_bucket(bias, (int64_t)d - (int64_t)out->reach);
        for (size_t h = 0; h < spec->num_heads; h++)
            out->table[h * width + d] = weights[bucket * spec->num_heads + h];
    }
    return ATTN_OK;
}

/* ---- A grid ---- */

static enum attn_status init_grid(struct attn_position_bias *out,
                                  const struct attn_layer_spec *spec, const float *weights,
                                  struct attn_error *error)
{
    const size_t heads = spec->num_heads;
    out->grid = spec->position_bias.grid;
    out->reach = attn_grid_rows(out->grid);
    enum attn_status status =
        attn_check_magnitudes(weights, attn_mul(out->reach, heads), ATTN_MAX_MAGNITUDE,
                              "relative_position_bias_table", error);
    if (status != ATTN_OK)
        return status;
    out->table = attn_alloc(attn_mul(out->reach, heads), sizeof(float));
    if (out->table == NULL)
        return attn_fail_memory(error, attn_mul(out->reach, heads) * sizeof(float));
    for (size_t i = 0; i < out->reach; i++)
        for (size_t h = 0; h < heads; h++)
            out->table[h * out->reach + i] = weights[i * heads + h];
    return ATTN_OK;
}

/* A patch's row times 2W-1, plus its column: differences of two of these are rows of the table. */
static int64_t grid_index(const struct attn_position_bias *bias, int64_t token)
{
    const int64_t width = (int64_t)bias->grid, patch = token - 1;
    return patch / width * (2 * width - 1) + patch % width;
}

static void add_grid(float *scores, const struct attn_position_bias *bias, size_t h, int64_t query,
                     const int64_t *keys, size_t n)
{
    const int64_t rows = (int64_t)bias->reach, middle = (rows - 3) / 2;
    const float *table = bias->table + h * bias->reach;
    const int64_t own = query == 0 ? 0 : grid_index(bias, query) + middle;
    for (size_t j = 0; j < n; j++) {
        const int64_t at = query == 0     ? (keys[j] == 0 ? rows - 1 : rows - 3)
                           : keys[j] == 0 ? rows - 2
                                          : own - grid_index(bias, keys[j]);
        scores[j] += table[at];
    }
}

/* ---- All ---- */

enum attn_status attn_position_bias_check(const struct attn_position_bias_spec *spec,
                                          struct attn_error *error)
{
    switch (spec->type) {
    case ATTN_BIAS_NONE:
    case ATTN_BIAS_DISENTANGLED: /* layers/relative.c */
    case ATTN_BIAS_RELATIVE_KEY:
        return ATTN_OK;
    case ATTN_BIAS_GRID:
        return attn_check_count(spec->grid, ATTN_MAX_GRID, "image_size / patch_size", error);
    case ATTN_BIAS_ALIBI:
        if (fabs(spec->scale) <= ATTN_MAX_SCALE)
            return ATTN_OK;
        return attn_fail(error, ATTN_OUT_OF_RANGE, "alibi",
                         "the scale of alibi is %g, at most %g is allowed", spec->scale,
                         ATTN_MAX_SCALE);
    case ATTN_BIAS_T5:
        return check_t5(spec, error);
    }
    return attn_fail(error, ATTN_OUT_OF_RANGE, "position_bias", "there is no position bias %d",
                     (int)spec->type);
}

enum attn_status attn_position_bias_init(struct attn_position_bias *out,
                                         const struct attn_layer_spec *spec, const float *weights,
                                         struct attn_error *error)
{
    *out = (struct attn_position_bias){.type = spec->position_bias.type, .gate = 1};
    if (out->type == ATTN_BIAS_ALIBI)
        return init_alibi(out, spec, error);
    if (out->type == ATTN_BIAS_GRID)
        return init_grid(out, spec, weights, error);
    return out->type == ATTN_BIAS_T5 ? init_t5(out, spec, weights, error) : ATTN_OK;
}

void attn_position_bias_fini(struct attn_position_bias *bias)
{
    attn_free(bias->slopes);
    attn_free(bias->table);
    *bias = (struct attn_position_bias){0};
}

/* slope * position in bfloat16: the position is rounded to it, and the product. */
static inline float slope_bfloat16(float slope, int64_t position)
{
    return round_bfloat16(slope * round_bfloat16((float)position));
}

static void add_run(float *scores, const struct attn_position_bias *bias, size_t h, int64_t query,
                    const int64_t *keys, size_t n)
{
    if (bias->type == ATTN_BIAS_T5) {
        const int64_t reach = (int64_t)bias->reach, last = 2 * reach;
        const float *table = bias->table + h * (size_t)(last + 1); /* by key - query + reach */
        for (size_t j = 0; j < n; j++) {
            const int64_t at = keys[j] - query + reach;
            scores[j] += bias->gate * table[at < 0 ? 0 : at > last ? last : at];
        }
    } else if (bias->type == ATTN_BIAS_GRID) {
        add_grid(scores, bias, h, query, keys, n);
    } else if (bias->bfloat16) {
        const float slope = bias->slopes[h], own = slope_bfloat16(slope, query);
        for (size_t j = 0; j < n; j++)
            scores[j] += bias->scale * (slope_bfloat16(slope, keys[j]) - own);
    } else if (bias->both_ways) {
        for (size_t j = 0; j < n; j++)
            scores[j] -= bias->slopes[h] * fabsf((float)(keys[j] - query));
    } else {
        for (size_t j = 0; j < n; j++)
            scores[j] += bias->slopes[h] * (float)(keys[j] - query);
    }
}

void attn_position_bias_add(float *scores, const struct attn_position_bias *bias, size_t h,
                            int64_t query, const int64_t *keys, int64_t first, size_t n)
{
    int64_t counted[RUN];
    const bool adds =
        bias->type == ATTN_BIAS_ALIBI || bias->type == ATTN_BIAS_T5 || bias->type == ATTN_BIAS_GRID;
    for (size_t at = 0; at < n && adds; at += RUN) {
        size_t run = attn_min(RUN, n - at);
        for (size_t j = 0; keys == NULL && j < run; j++)
            counted[j] = first + (int64_t)(at + j);
        add_run(scores + at, bias, h, query, keys ? keys + at : counted, run);
    }
}
