/* weights.h: the tensors of one layer, found and read by its family's row. */
#ifndef ATTN_LIB_FAMILIES_WEIGHTS_H
#define ATTN_LIB_FAMILIES_WEIGHTS_H

#include "attn.h"
#include "families/config.h"
#include "families/weight_shapes.h"
#include "files/read_ahead.h"
#include "layers/checkpoint.h"
#include "layers/layer.h"
#include "machine/pool.h"

/* Checks, without reading, that every tensor of layer `layer` exists, in a readable type and the
 * shape that its specification asks for, and that no bias exists that the configuration denies.
 * *dtype is the type in which the query weights are stored.
 * Errors: ATTN_NOT_FOUND, ATTN_SHAPE_MISMATCH, ATTN_UNSUPPORTED, ATTN_MALFORMED, ATTN_IO,
 * ATTN_NO_MEMORY. */
enum attn_status attn_weights_check(const char **dtype, struct attn_checkpoint *checkpoint,
                                    const struct attn_config *config, size_t layer,
                                    struct attn_error *error);

/* Lists where the weights of a layer's matrices are, for reading them ahead.
 * Errors: as attn_weights_check. */
enum attn_status attn_weights_list(struct attn_read_ahead *ahead,
                                   struct attn_checkpoint *checkpoint,
                                   const struct attn_config *config, size_t layer,
                                   struct attn_error *error);

/* The tensor files of a layer, for reading it; on all threads of `pool`, ahead of which the files
 * of matrices that stand whole are read. */
struct attn_weights_source {
    struct attn_checkpoint *checkpoint;
    const struct attn_config *config;
    struct attn_pool *pool;
    struct attn_read_ahead *ahead;
};

/* Reads the weights and biases into *out, which attn_layer_init has made for the layer; of the
 * matrices those that stand whole (attn_layer_make_weights).
 * Errors: as attn_weights_check; ATTN_NON_FINITE. */
enum attn_status attn_weights_read(struct attn_layer *out, const struct attn_weights_source *source,
                                   size_t layer, struct attn_error *error);

/* Where the rows of a matrix are: row r is `in` elements from first + r / run * stride + r % run *
 * in on, of a tensor or, where its entry is NULL, of a random stream. */
struct attn_weight_rows {
    struct attn_tensor tensor;
    size_t first, stride; /* elements */
    size_t run;           /* rows */
    size_t in;
    size_t head, gathered; /* rows of a head, and the last of these that attn_latent_gather puts
                              apart; 0: none is */
    uint64_t stream;
    float bound;
};

/* Whether the matrices of such a layer can be read by rows. */
bool attn_weights_have_rows(const struct attn_config *config, const struct attn_layer_spec *spec);

/* Fills the rows of layer's matrices, by the order of attn_projections.  Of a layer that has them:
 * attn_weights_have_rows.
 * Errors: as attn_weights_check. */
enum attn_status attn_weights_rows(struct attn_weight_rows out[ATTN_NUM_PROJECTIONS],
                                   struct attn_layer *layer,
                                   const struct attn_weights_source *source, size_t index,
                                   struct attn_error *error);

/* Reads rows [row, row + count), whole heads where rows are gathered, to out [count][in].  Any
 * thread; of an .npz file one at a time, and fast in the order of rows.
 * Errors: ATTN_NON_FINITE, ATTN_IO, ATTN_NO_MEMORY. */
enum attn_status attn_weight_rows_read(float *out, const struct attn_weight_rows *rows, size_t row,
                                       size_t count, struct attn_error *error);

/* The matrix of a projection. */
struct attn_linear *attn_weights_linear(struct attn_layer *layer, unsigned projection);

/* Fills the weights and biases of *out from the generator of basics/random.h instead: weights
 * uniform in +-sqrt(3/in), biases in +-0.1, weights of norms in 1 +-0.1, sinks and position biases
 * in +-1. */
void attn_weights_random(struct attn_layer *out, uint64_t seed, size_t layer);
void attn_weights_random_rows(struct attn_weight_rows out[ATTN_NUM_PROJECTIONS],
                              struct attn_layer *layer, uint64_t seed, size_t index);

/* Puts the components of queries and keys that rotate in pairs, which lie side by side in weights,
 * half of their number apart: of the rows that are gathered of each head row 2i becomes row i, row
 * 2i + 1 comes after all even ones.  rows [count][in] are those of whole heads.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_latent_gather(float *rows, const struct attn_weight_rows *of, size_t count,
                                    struct attn_error *error);

#endif
