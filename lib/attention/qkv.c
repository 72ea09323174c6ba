/* qkv.c: one row's query, key and value: normalised, clipped, rotated, scaled, checked; and what a
 * layer asks of its rows. */
#include <math.h>

#include "attention/forward.h"
#include "engine/rope.h"

/* Components of a head from which on keys in pairs, padded to whole steps, take no more memory than
 * in float32. */
#define LEAST_PAIRED (ATTN_PAIR_STEP / 2)

int64_t attn_qkv_length(const int64_t *positions, size_t rows, int64_t first)
{
    int64_t last = positions ? positions[0] : first + (int64_t)rows - 1;
    for (size_t r = 1; positions != NULL && r < rows; r++)
        last = positions[r] > last ? positions[r] : last;
    return last + 1;
}

/* Normalises x [heads][width] where there is a norm; weight and bias have the
 * shape of its extent. */
static void normalize(float *x, const struct attn_norm_spec *norm, const float *weight,
                      const float *bias, size_t heads, size_t width)
{
    bool together = norm->extent == ATTN_NORM_ALL_HEADS;
    size_t n = together ? heads * width : width, step = norm->extent == ATTN_NORM_EACH_HEAD ? n : 0;
    size_t vectors = norm->type == ATTN_NORM_NONE ? 0 : together ? heads > 0 : heads;
    for (size_t i = 0; i < vectors; i++)
        attn_norm_vector(x + i * n, norm, weight != NULL ? weight + i * step : NULL,
                         bias != NULL ? bias + i * step : NULL, n);
}

static void normalize_qk(struct attn_qkv row, const struct attn_layer *layer, size_t q_heads,
                         size_t k_heads)
{
    const struct attn_norm_spec *norm = &layer->spec.qk_norm;
    size_t width = layer->spec.head_dim;
    normalize(row.q, norm, layer->q_norm, layer->q_norm_bias, q_heads, width);
    normalize(row.k, norm, layer->k_norm, layer->k_norm_bias, k_heads, width);
}

/* Clamps x [n] to +-limit; a NaN stays. */
static void clip(float *x, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* Multiplies a query's heads by the factor that grows with the position. */
static void scale_query(float *q, const struct attn_layer_spec *spec, int64_t position, size_t slot)
{
    const struct attn_query_scaling *scaling = &spec->query_scaling;
    if (q == NULL || scaling->period == 0)
        return;
    double at = (scaling->by_slot ? (double)slot : (double)position) + (scaling->next ? 1 : 0);
    float factor = (float)(1 + scaling->beta * log(1 + floor(at / scaling->period)));
    for (size_t i = 0; i < spec->num_heads * spec->head_dim; i++)
        q[i] *= factor;
}

static void rotate(float *x, const struct attn_layer_spec *spec, const float *cos_sin, size_t heads)
{
    for (size_t h = 0; h < heads; h++)
        attn_rope_rotate(x + h * spec->head_dim, &spec->rope, cos_sin);
}

/* The row of a latent layer: the last components of each query and the shared part rotate. */
static bool norm_rope_latent(struct attn_qkv row, const struct attn_layer *layer,
                             const struct attn_kernels *kernels, const float *inv_freq,
                             int64_t position, size_t slot)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t nope = attn_mla_nope(spec), width = spec->num_heads * spec->head_dim;
    if (inv_freq != NULL) {
        float cos_sin[ATTN_MAX_HEAD_DIM];
        attn_rope_cos_sin(cos_sin, &spec->rope, inv_freq, position, inv_freq != layer->inv_freq);
        rotate(row.q + nope, spec, cos_sin, spec->num_heads);
        rotate(row.v, spec, cos_sin, 1);
    }
    scale_query(row.q, spec, position, slot);
    return kernels->all_within(row.q, width, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(row.k, spec->mla.kv_lora_rank, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(row.v, spec->mla.rope_head_dim, ATTN_MAX_MAGNITUDE);
}

bool attn_qkv_norm_rope(struct attn_qkv row, const struct attn_layer *layer,
                        const struct attn_kernels *kernels, const float *inv_freq,
                        const struct attn_token *token)
{
    const struct attn_layer_spec *spec = &layer->spec;
    size_t q_heads = row.q ? spec->num_heads : 0, k_heads = row.k ? spec->num_kv_heads : 0;
    size_t v_heads = row.v ? spec->num_kv_heads : 0;
    const int64_t position = token->position;
    const size_t slot = token->slot, prefix = spec->rope.grid_prefix;
    if (attn_layer_is_latent(layer))
        return norm_rope_latent(row, layer, kernels, inv_freq, position, slot);
    for (size_t i = 0; spec->key_multiplier != 0 && i < k_heads * spec->head_dim; i++)
        row.k[i] *= (float)spec->key_multiplier;
    normalize(row.v, &spec->v_norm, NULL, NULL, v_heads, spec->value_head_dim);
    if (spec->value_scale != 0)
        for (size_t i = 0; i < v_heads * spec->value_head_dim; i++)
            row.v[i] *= (float)spec->value_scale;
    if (!spec->qk_norm.after_rope)
        normalize_qk(row, layer, q_heads, k_heads);
    if (spec->clip_qkv != 0) {
        clip(row.q, q_heads * spec->head_dim, (float)spec->clip_qkv);
        clip(row.k, k_heads * spec->head_dim, (float)spec->clip_qkv);
        clip(row.v, v_heads * spec->value_head_dim, (float)spec->clip_qkv);
    }
    if (inv_freq != NULL && slot >= prefix) { /* what stands before patches does not rotate */
        float cos_sin[ATTN_MAX_HEAD_DIM];
        if (prefix > 0)
            attn_rope_grid_cos_sin(cos_sin, &spec->rope, inv_freq, slot - prefix, token->grid);
        else
            attn_rope_cos_sin(cos_sin, &spec->rope, inv_freq, position,
                              inv_freq != layer->inv_freq);
        rotate(row.q, spec, cos_sin, q_heads);
        rotate(row.k, spec, cos_sin, k_heads);
    }
    if (spec->qk_norm.after_rope)
        normalize_qk(row, layer, q_heads, k_heads);
    scale_query(row.q, spec, position, slot);
    return kernels->all_within(row.q, q_heads * spec->head_dim, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(row.k, k_heads * spec->head_dim, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(row.v, v_heads * spec->value_head_dim, ATTN_MAX_MAGNITUDE);
}

bool attn_qkv_needs_norm_rope(const struct attn_layer *layer)
{
    const struct attn_layer_spec *spec = &layer->spec;
    return spec->qk_norm.type != ATTN_NORM_NONE || spec->v_norm.type != ATTN_NORM_NONE ||
           layer->inv_freq != NULL || spec->query_scaling.period != 0 || spec->clip_qkv != 0 ||
           spec->value_scale != 0 || spec->key_multiplier != 0 || spec->position_bias.gated ||
           attn_layer_is_latent(layer);
}

/* The gates of a head from its part of the hidden state, as WavLM has them. */
static float position_gate(const struct attn_layer *layer, size_t h, const float *x)
{
    const size_t d = layer->spec.head_dim;
    float sums[2] = {0, 0};
    for (size_t i = 0; i < ATTN_GATE_OUTPUTS; i++) {
        float sum = layer->gate_bias[i];
        for (size_t j = 0; j < d; j++)
            sum += layer->gate_weight[i * d + j] * x[j];
        sums[i / (ATTN_GATE_OUTPUTS / 2)] += sum;
    }
    const float a = 1 / (1 + expf(-sums[0])), b = 1 / (1 + expf(-sums[1]));
    return a * (b * layer->gate_constant[h] - 1) + 2;
}

void attn_position_gates(float *gates, const struct attn_layer *layer, const float *x)
{
    for (size_t h = 0; h < layer->spec.num_heads; h++)
        gates[h] = position_gate(layer, h, x + h * layer->spec.head_dim);
}

bool attn_layer_attends_in_pairs(const struct attn_layer *layer, const struct attn_kernels *kernels)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const bool rounds = spec->kv_dtype == ATTN_BF16 || spec->kv_dtype == ATTN_INT8;
    return kernels->matmul_pairs != NULL && rounds && spec->dtype != ATTN_F32 &&
           spec->head_dim >= LEAST_PAIRED && layer->relative.rows == 0;
}

struct attn_mask_defaults attn_layer_mask_defaults(const struct attn_layer *layer, bool causal)
{
    return (struct attn_mask_defaults){
        .causal = causal,
        .sliding_window = layer->spec.sliding_window,
        .two_sided = !layer->spec.is_causal,
        .chunk = layer->spec.attention_chunk_size,
        .position_bias = layer->position_bias.type != ATTN_BIAS_NONE ? &layer->position_bias : NULL,
    };
}
