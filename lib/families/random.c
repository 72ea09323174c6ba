/* random.c: random numbers in place of a checkpoint's tensors. */
#include <math.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "families/weights.h"

static void fill_random(float *out, size_t count, uint64_t stream, float bound)
{
    if (out != NULL)
        attn_random_uniform(out, count, stream, bound);
}

/* Streams of the generator are numbered by tensor: weights, biases, then arrays in their order, and
 * far after these what few layers have. */
#define NUM_FIRST 4
#define GATE_STREAM 64
#define LATENT_STREAM 80

static const size_t matrix_streams[ATTN_NUM_MATRICES] = {0,
                                                         1,
                                                         2,
                                                         3,
                                                         GATE_STREAM,
                                                         LATENT_STREAM,
                                                         LATENT_STREAM + 1,
                                                         LATENT_STREAM + 2,
                                                         LATENT_STREAM + 3,
                                                         LATENT_STREAM + 4,
                                                         LATENT_STREAM + 5};

/* The layer whose tensors a projection has: layers that read the keys and values of an earlier
 * layer have its tensors for them. */
static size_t layer_of(const struct attn_layer_spec *spec, unsigned projection, size_t layer)
{
    const bool shared = spec->shares_layer != SIZE_MAX && (projection & ATTN_PROJ_KV) != 0;
    return shared ? spec->shares_layer : layer;
}

void attn_weights_random_rows(struct attn_weight_rows out[ATTN_NUM_MATRICES],
                              struct attn_layer *layer, uint64_t seed, size_t index)
{
    for (unsigned i = 0; i < ATTN_NUM_MATRICES; i++) {
        const struct attn_linear *linear = &layer->matrices[i];
        const size_t of = layer_of(&layer->spec, 1u << i, index);
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
    const struct attn_members all = attn_layer_members(spec);
    struct attn_weight_rows rows[ATTN_NUM_MATRICES];
    attn_weights_random_rows(rows, out, seed, layer);
    for (unsigned i = 0; i < ATTN_NUM_MATRICES; i++) {
        const struct attn_linear *linear = &out->matrices[i];
        const size_t of = layer_of(spec, 1u << i, layer);
        fill_random(linear->weight, linear->out * linear->in, rows[i].stream, rows[i].bound);
        fill_random(linear->bias, linear->out,
                    attn_random_stream(seed, of, NUM_FIRST + matrix_streams[i]), ATTN_RANDOM_BIAS);
    }
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++) {
        const struct attn_array_row *row = &all.arrays[i];
        const bool table = row->role == ATTN_ROLE_POSITION_NORM;
        const size_t of = table ? layer : layer_of(spec, row->projection, layer);
        fill_random(out->arrays[i], row->floats, attn_random_stream(seed, of, 2 * NUM_FIRST + i),
                    row->bound);
        for (size_t j = 0; j < row->floats; j++)
            out->arrays[i][j] += row->center;
    }
}
