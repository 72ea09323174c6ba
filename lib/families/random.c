/* random.c: random numbers in place of a checkpoint's tensors. */
#include <math.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "families/weights.h"

#define RANDOM_BIAS 0.1f /* bound of random biases, and of norm weights about 1 */
#define RANDOM_SCORE 1.f /* bound of random sinks and position biases */

static void fill_random(float *out, size_t count, uint64_t stream, float bound)
{
    if (out != NULL)
        attn_random_uniform(out, count, stream, bound);
}

/* Streams of the generator are numbered by tensor: weights, biases, then the rest in a fixed
 * order, and far after the weights that few layers have. */
#define NUM_FIRST 4
#define GATE_STREAM 64
#define LATENT_STREAM 80

/* The streams of matrices, by the order of attn_projections. */
static const size_t matrix_streams[ATTN_NUM_PROJECTIONS] = {
    0, 1, 2, 3, GATE_STREAM, LATENT_STREAM, LATENT_STREAM + 1, LATENT_STREAM + 2};

/* The layer whose tensors a projection has: layers that read the keys and values of an earlier
 * layer have its tensors for them. */
static size_t layer_of(const struct attn_layer_spec *spec, unsigned projection, size_t layer)
{
    const bool shared =
        spec->shares_layer != SIZE_MAX && (projection == ATTN_PROJ_K || projection == ATTN_PROJ_V);
    return shared ? spec->shares_layer : layer;
}

void attn_weights_random_rows(struct attn_weight_rows out[ATTN_NUM_PROJECTIONS],
                              struct attn_layer *layer, uint64_t seed, size_t index)
{
    for (size_t i = 0; i < ATTN_NUM_PROJECTIONS; i++) {
        const unsigned projection = attn_projections[i];
        const struct attn_linear *linear = attn_weights_linear(layer, projection);
        const size_t of = layer_of(&layer->spec, projection, index);
        out[i] = (struct attn_weight_rows){
            .run = linear->out,
            .in = linear->in,
            .stream = attn_random_stream(seed, of, matrix_streams[i]),
            .bound = (float)sqrt(3.0 / (double)attn_max(linear->in, 1)),
        };
    }
}

void attn_weights_random(struct attn_layer *out, uint64_t seed, size_t layer)
{
    const struct attn_layer_spec *spec = &out->spec;
    size_t q_norm = attn_norm_floats(&spec->qk_norm, spec->num_heads, spec->head_dim);
    size_t k_norm = attn_norm_floats(&spec->qk_norm, spec->num_kv_heads, spec->head_dim);
    const size_t source = spec->shares_layer != SIZE_MAX ? spec->shares_layer : layer;
    struct attn_weight_rows rows[ATTN_NUM_PROJECTIONS];
    attn_weights_random_rows(rows, out, seed, layer);
    for (size_t i = 0; i < ATTN_NUM_PROJECTIONS; i++) {
        const struct attn_linear *linear = attn_weights_linear(out, attn_projections[i]);
        const size_t of = layer_of(spec, attn_projections[i], layer);
        fill_random(linear->weight, linear->out * linear->in, rows[i].stream, rows[i].bound);
        fill_random(linear->bias, linear->out,
                    attn_random_stream(seed, of, NUM_FIRST + matrix_streams[i]), RANDOM_BIAS);
    }
    float *table_bias = out->table_norm != NULL ? out->table_norm + spec->hidden_size : NULL;
    const struct {
        float *values;
        size_t count;
        float bound, center;
    } others[] = {
        {out->bias_k, out->k.out, RANDOM_BIAS, 0},
        {out->bias_v, out->v.out, RANDOM_BIAS, 0},
        {out->q_norm, q_norm, RANDOM_BIAS, 1},
        {out->k_norm, k_norm, RANDOM_BIAS, 1},
        {out->sinks, spec->num_heads, RANDOM_SCORE, 0},
        {out->bias_table, attn_layer_table_floats(spec), RANDOM_SCORE, 0},
        {out->q_norm_bias, q_norm, RANDOM_BIAS, 0},
        {out->k_norm_bias, k_norm, RANDOM_BIAS, 0},
        {out->table_norm, spec->hidden_size, RANDOM_BIAS, 1},
        {table_bias, spec->hidden_size, RANDOM_BIAS, 0},
        {out->q_a_norm, spec->mla.q_lora_rank, RANDOM_BIAS, 1},
        {out->kv_a_norm, spec->mla.kv_lora_rank, RANDOM_BIAS, 1},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const bool of_keys =
            others[i].values == out->k_norm || others[i].values == out->k_norm_bias;
        fill_random(others[i].values, others[i].count,
                    attn_random_stream(seed, of_keys ? source : layer, 2 * NUM_FIRST + i),
                    others[i].bound);
        for (size_t j = 0; others[i].values != NULL && j < others[i].count; j++)
            others[i].values[j] += others[i].center;
    }
}
