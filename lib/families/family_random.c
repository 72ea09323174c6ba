/* family_random.c: random numbers in place of a checkpoint's tensors. */
#include <math.h>

#include "families/family_weights.h"
#include "random.h"

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

/* Layers that read the keys and values of an earlier layer have its tensors for them. */
void attn_weights_random(struct attn_layer *out, uint64_t seed, size_t layer)
{
    const struct attn_layer_spec *spec = &out->spec;
    size_t q_norm = attn_norm_floats(&spec->qk_norm, spec->num_heads, spec->head_dim);
    size_t k_norm = attn_norm_floats(&spec->qk_norm, spec->num_kv_heads, spec->head_dim);
    const size_t source = spec->shares_layer != SIZE_MAX ? spec->shares_layer : layer;
    const struct {
        const struct attn_linear *linear;
        size_t stream;
    } linears[] = {
        {&out->q, 0},
        {&out->k, 1},
        {&out->v, 2},
        {&out->o, 3},
        {&out->gate, GATE_STREAM},
        {&out->kv_a, LATENT_STREAM},
        {&out->k_rope, LATENT_STREAM + 1},
        {&out->q_a, LATENT_STREAM + 2},
    };
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        const struct attn_linear *linear = linears[i].linear;
        const size_t stream = linears[i].stream;
        const size_t of = linear == &out->k || linear == &out->v ? source : layer;
        if (linear->out == 0)
            continue;
        fill_random(linear->weight, linear->out * linear->in, attn_random_stream(seed, of, stream),
                    (float)sqrt(3.0 / (double)linear->in));
        fill_random(linear->bias, linear->out, attn_random_stream(seed, of, NUM_FIRST + stream),
                    RANDOM_BIAS);
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
