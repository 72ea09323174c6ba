/* weights.h: the tensors of one layer, found and read by its family's row. */
#ifndef ATTN_LIB_FAMILIES_WEIGHTS_H
#define ATTN_LIB_FAMILIES_WEIGHTS_H

#include "families/config.h"
#include "files/file.h"
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
    size_t head, gathered; /* rows of a head, and the last of these whose neighbours, which rotate
                              together, are put half of their number apart; 0: none */
    uint64_t stream;
    float bound;
};

/* Whether the matrices of such a layer can be read by rows. */
bool attn_weights_have_rows(const struct attn_config *config, const struct attn_layer_spec *spec);

/* Fills the rows of layer's matrices, by enum attn_matrix.  Of a layer that has them:
 * attn_weights_have_rows.
 * Errors: as attn_weights_check. */
enum attn_status attn_weights_rows(struct attn_weight_rows out[ATTN_NUM_MATRICES],
                                   struct attn_layer *layer,
                                   const struct attn_weights_source *source, size_t index,
                                   struct attn_error *error);

/* Reads rows [row, row + count), whole heads where rows are gathered, to out [count][in].  Any
 * thread; of an .npz file one at a time, and fast in the order of rows.
 * Errors: ATTN_NON_FINITE, ATTN_IO, ATTN_NO_MEMORY. */
enum attn_status attn_weight_rows_read(float *out, const struct attn_weight_rows *rows, size_t row,
                                       size_t count, struct attn_error *error);

/* Fills the weights and biases of *out from the generator of basics/random.h instead: weights
 * uniform in +-sqrt(3/in), biases in +-0.1, weights of norms in 1 +-0.1, sinks and position biases
 * in +-1. */
void attn_weights_random(struct attn_layer *out, uint64_t seed, size_t layer);
void attn_weights_random_rows(struct attn_weight_rows out[ATTN_NUM_MATRICES],
                              struct attn_layer *layer, uint64_t seed, size_t index);

/* ---- Binding: weights.c and weight_module.c ---- */

#define ATTN_MAX_BINDINGS 24 /* tensors of a layer, at most */

struct attn_bindings {
    struct attn_binding {
        const struct attn_family_tensor *pattern;
        struct attn_tensor tensor;
    } items[ATTN_MAX_BINDINGS];
    size_t count;
};

/* A layer of a checkpoint, with its specification. */
struct attn_checkpoint_layer {
    const struct attn_config *config;
    struct attn_layer_spec spec;
    size_t layer;
};

struct attn_checkpoint_layer attn_checkpoint_layer(const struct attn_config *config, size_t layer);

#define ATTN_TENSOR_NAME_MAX 160 /* bytes of prefix, name and index, all from the tables */

/* The indices in a name: in the place of each '*', '#' and '%'; and those of layer `layer` of the
 * configuration. */
struct attn_name_indices {
    size_t layer, head, attention;
};
struct attn_name_indices attn_name_indices(const struct attn_config *config, size_t layer,
                                           size_t head);

/* Writes prefix and name with these indices. */
void attn_expand_name(char out[ATTN_TENSOR_NAME_MAX], const char *prefix, const char *name,
                      struct attn_name_indices indices);

/* Finds the tensor of a pattern, of `head` where each head has one; entry NULL where the checkpoint
 * has none.  Errors: those of attn_weights_check. */
enum attn_status attn_find_tensor(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                  const struct attn_checkpoint_layer *source,
                                  const struct attn_family_tensor *pattern, size_t head,
                                  struct attn_error *error);

/* Heads that have a tensor of the pattern each, 0 where one tensor holds all. */
size_t attn_tensor_heads(const struct attn_checkpoint_layer *source,
                         const struct attn_family_tensor *pattern);

/* The tensors that the layer may have. */
const struct attn_family_tensor *attn_tensors_of(const struct attn_checkpoint_layer *source);

/* Gives each projection in each role that the specification asks for the one tensor that holds it,
 * checked in type and shape.  Errors: those of attn_weights_check. */
enum attn_status attn_bind_layer(struct attn_bindings *out, struct attn_checkpoint *checkpoint,
                                 const struct attn_checkpoint_layer *source,
                                 struct attn_error *error);

/* Refuses a tensor of the layer's own attention module that is neither bound nor harmless: such a
 * tensor would change what the layer computes.  Errors: ATTN_UNSUPPORTED, and those of finding. */
enum attn_status attn_check_module(const struct attn_bindings *bindings,
                                   struct attn_checkpoint *checkpoint,
                                   const struct attn_checkpoint_layer *source,
                                   struct attn_error *error);

/* Fails with ATTN_NOT_FOUND for the first of the `missing` projections in that role, with what the
 * checkpoint has instead. */
enum attn_status attn_fail_missing(const struct attn_checkpoint *checkpoint,
                                   const struct attn_checkpoint_layer *source,
                                   enum attn_tensor_role role, unsigned missing,
                                   struct attn_error *error);

/* The widths of input and output of a pattern's projections together; false if they read inputs of
 * different widths and so cannot share a weight. */
bool attn_fused_shape(struct attn_matrix_shape *out, const struct attn_layer_spec *spec,
                      const struct attn_family_tensor *pattern);

#endif
