/* members.h: the table of what a layer has learned: its matrices and small arrays.
 *
 * A row says what a member is called, how a checkpoint stores it, which shape it has, and which
 * random numbers stand in its place.  Members are allocated, read, checked, hashed, counted, packed
 * and freed by these rows. */
#ifndef ATTN_LIB_LAYERS_MEMBERS_H
#define ATTN_LIB_LAYERS_MEMBERS_H

#include "attn.h"

/* ---- Matrices ---- */

enum attn_matrix {
    ATTN_MATRIX_Q,
    ATTN_MATRIX_K,
    ATTN_MATRIX_V,
    ATTN_MATRIX_O,
    ATTN_MATRIX_GATE,
    ATTN_MATRIX_KV_A,
    ATTN_MATRIX_K_ROPE,
    ATTN_MATRIX_Q_A,
    ATTN_MATRIX_INDEX_Q,
    ATTN_MATRIX_INDEX_K,
    ATTN_MATRIX_INDEX_W,
    ATTN_NUM_MATRICES
};

/* The projections that a tensor holds, as bits: 1 << enum attn_matrix.  The projections
 * of a fused tensor follow each other in this order. */
enum attn_proj {
    ATTN_PROJ_Q = 1,
    ATTN_PROJ_K = 2,
    ATTN_PROJ_V = 4,
    ATTN_PROJ_O = 8,
    ATTN_PROJ_GATE = 16, /* fused with Q alone: by head, its query and then its gate */
    /* of latent attention: hidden states to the latent, to the part of keys that rotates, and to
     * the latent of queries */
    ATTN_PROJ_KV_A = 32,
    ATTN_PROJ_K_ROPE = 64,
    ATTN_PROJ_Q_A = 128,
    /* of an indexer: its queries, its keys, the weights of its heads */
    ATTN_PROJ_INDEX_Q = 256,
    ATTN_PROJ_INDEX_K = 512,
    ATTN_PROJ_INDEX_W = 1024,
};

#define ATTN_PROJ_KV (ATTN_PROJ_K | ATTN_PROJ_V)
#define ATTN_PROJ_QKV (ATTN_PROJ_Q | ATTN_PROJ_KV)
#define ATTN_PROJ_ALL (ATTN_PROJ_QKV | ATTN_PROJ_O)
#define ATTN_PROJ_Q_AND_GATE (ATTN_PROJ_Q | ATTN_PROJ_GATE)
#define ATTN_PROJ_KV_A_AND_ROPE (ATTN_PROJ_KV_A | ATTN_PROJ_K_ROPE)

/* The widths of input and output; out 0 where the layer has no such matrix. */
struct attn_matrix_shape {
    size_t in, out;
    bool bias;
    bool packed; /* it is there, with weights, and not divided by heads (mla.h) */
};

/* Products of one call: queries, keys, values, a gate, an indexer's two. */
static inline size_t attn_call_products(const struct attn_layer_spec *spec)
{
    return 3 + (spec->output_gate ? 1 : 0) + (spec->mla.index.num_heads > 0 ? 2 : 0);
}

/* The numbers of a row's gate; 0: the layer has none. */
static inline size_t attn_gate_width(const struct attn_layer_spec *spec)
{
    if (!spec->output_gate)
        return 0;
    return spec->num_heads * (spec->gate_by_head ? 1 : spec->value_head_dim);
}

/* ---- Arrays ---- */

enum attn_array {
    ATTN_ARRAY_BIAS_K,
    ATTN_ARRAY_BIAS_V,
    ATTN_ARRAY_Q_NORM,
    ATTN_ARRAY_K_NORM,
    ATTN_ARRAY_SINKS,
    ATTN_ARRAY_BIAS_TABLE, /* the last one whose absence is hashed */
    ATTN_ARRAY_Q_NORM_BIAS,
    ATTN_ARRAY_K_NORM_BIAS,
    ATTN_ARRAY_TABLE_NORM,
    ATTN_ARRAY_TABLE_NORM_BIAS,
    ATTN_ARRAY_Q_A_NORM,
    ATTN_ARRAY_KV_A_NORM,
    ATTN_ARRAY_O_NORM,
    ATTN_ARRAY_POSITION_KEY,
    ATTN_ARRAY_POSITION_QUERY,
    ATTN_ARRAY_POSITION_KEY_BIAS,
    ATTN_ARRAY_POSITION_QUERY_BIAS,
    ATTN_ARRAY_GATE_WEIGHT,
    ATTN_ARRAY_GATE_BIAS,
    ATTN_ARRAY_GATE_CONSTANT,
    ATTN_ARRAY_LAMBDA_Q1,
    ATTN_ARRAY_LAMBDA_K1,
    ATTN_ARRAY_LAMBDA_Q2,
    ATTN_ARRAY_LAMBDA_K2,
    ATTN_ARRAY_INDEX_NORM,
    ATTN_ARRAY_INDEX_NORM_BIAS,
    ATTN_ARRAY_DYNAMIC_WEIGHT,
    ATTN_ARRAY_DYNAMIC_BIAS,
    ATTN_ARRAY_DYNAMIC_RATE,
    ATTN_NUM_ARRAYS
};

/* The kind of numbers that a tensor holds. */
enum attn_tensor_role {
    ATTN_ROLE_WEIGHT,        /* [out][in]; [in][out] with ATTN_LAYOUT_TRANSPOSED */
    ATTN_ROLE_BIAS,          /* [out] */
    ATTN_ROLE_BIAS_KV,       /* [1][1][out], the key or value of PyTorch's add_bias_kv */
    ATTN_ROLE_NORM,          /* weights of qk_norm, shaped by its extent; projection Q or K; of
                                the norm of a latent, projection KV_A or Q_A; of output_norm,
                                projection O; of an indexer's keys, INDEX_K */
    ATTN_ROLE_NORM_BIAS,     /* its biases, likewise */
    ATTN_ROLE_SINKS,         /* [H]; entered as projection Q, since every tensor needs a bit */
    ATTN_ROLE_POSITION_BIAS, /* [buckets][H], [2S][E] of a disentangled bias, [rows][D] of a
                                relative key, [rows][H] of a grid; one for all layers, or one each;
                                entered as projection Q */
    ATTN_ROLE_POSITION_NORM, /* [E], norm of a disentangled bias' rows, one for all layers: its
                                weight as projection Q, its bias as K */
    ATTN_ROLE_POSITION_PROJECTION, /* [H*D][E], of those rows where that bias has maps of its own,
                                      to queries and keys: projections Q and K */
    ATTN_ROLE_POSITION_PROJECTION_BIAS, /* [H*D], likewise */
    ATTN_ROLE_POSITION_GATE, /* of a gated bias: the map's weight [8][D] as projection Q, its bias
                                [8] as K, and constants [1][H][1][1] as V */
    ATTN_ROLE_LAMBDA, /* [D] of differential attention: q1 as projection Q, k1 as K, q2 as V, k2
                         as O */
    ATTN_ROLE_DYNAMIC_MASK, /* the map's weight [G][G*Dv] as projection Q, its bias [G] as K, and
                               the rates A [G] as V */
};
#define ATTN_NUM_ROLES 13

struct attn_tensor_shape {
    size_t ndim, size[4];
};

#define ATTN_GATE_OUTPUTS 8 /* of the map of a gated position bias, half of them for each sigmoid */

#define ATTN_RANDOM_BIAS 0.1f /* bound of random biases, and of norm weights about 1 */

struct attn_array_row {
    const char *name; /* of an error; NULL: numbers are checked where they are used up */
    enum attn_tensor_role role;
    unsigned projection;
    size_t floats;                  /* 0: the layer does not have it */
    struct attn_tensor_shape shape; /* if it does */
    float bound, center;            /* random numbers are center +- bound */
};

/* ---- Both ---- */

struct attn_members {
    struct attn_matrix_shape matrices[ATTN_NUM_MATRICES]; /* by enum attn_matrix */
    struct attn_array_row arrays[ATTN_NUM_ARRAYS];        /* by enum attn_array */
};

struct attn_members attn_layer_members(const struct attn_layer_spec *spec);

#endif
