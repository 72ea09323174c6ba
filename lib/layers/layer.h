/* layer.h: one attention layer with its weights resident.
 *
 * The four weight matrices are those of linear.h, packed in the layer's dtype; all other numbers
 * stay float32.  A layer is made in four steps: attn_layer_init, filling by the loader,
 * attn_layer_derive, packing by the loader; matrices are filled whole (attn_layer_make_weights), or
 * in strips of rows after attn_layer_derive, if this does not need them whole.  Or, of the arrays
 * of a packed one, in three steps: attn_layer_init_packed, attn_layer_visit, attn_layer_derive. */
#ifndef ATTN_LIB_LAYERS_LAYER_H
#define ATTN_LIB_LAYERS_LAYER_H

#include "attn.h"
#include "basics/tile.h"
#include "engine/mask.h"
#include "layers/linear.h"
#include "layers/members.h"
#include "layers/relative.h"

struct attn_layer {
    struct attn_layer_spec spec;
    union {
        struct {
            struct attn_linear q;    /* E -> H*D */
            struct attn_linear k;    /* key_size -> G*D */
            struct attn_linear v;    /* value_size -> G*Dv */
            struct attn_linear o;    /* H*Dv -> E */
            struct attn_linear gate; /* E -> attn_gate_width; zeroed without output_gate */
            /* Latent attention: hidden states to latents and the shared part, E -> R,
             * E -> rope_head_dim and E -> q_lora_rank.  q then reads the latent of queries (E
             * where there is none), k is R -> H*nope, v is R -> H*Dv; both are without panels
             * once packed, which mla_heads has. */
            struct attn_linear kv_a, k_rope, q_a;
            /* Of an indexer, with I heads: q_lora_rank -> I*head_dim, E -> head_dim, E -> I. */
            struct attn_linear index_q, index_k, index_w;
        };
        struct attn_linear matrices[ATTN_NUM_MATRICES];
    };
    union {
        struct {                    /* NULL where the layer has none */
            float *bias_k, *bias_v; /* [G*D], [G*Dv]: PyTorch add_bias_kv */
            float *q_norm, *k_norm; /* weights of qk_norm, shaped by its extent */
            float *sinks;           /* [H] */
            float *bias_table;      /* [buckets][H] of a T5 position bias, [rows][H] of a grid;
                                       until `relative` is derived, [2S][E] of a disentangled one,
                                       [rows][D] of a relative key */
            float *q_norm_bias, *k_norm_bias;
            float *table_norm, *table_norm_bias; /* [E]: norm of that table's rows, likewise */
            float *q_a_norm, *kv_a_norm;         /* weights of the RMSNorms of both latents */
            float *o_norm;                       /* [H*Dv]: weights of output_norm */
            float *position_key,
                *position_query; /* [H*D][E]: maps of that table's rows, likewise */
            float *position_key_bias, *position_query_bias; /* [H*D] */
            float *gate_weight, *gate_bias, *gate_constant; /* [8][D], [8], [H]: of a gated bias */
            float *lambda_q1, *lambda_k1, *lambda_q2, *lambda_k2; /* [D]: differential attention */
            float *index_norm, *index_norm_bias; /* of the LayerNorm of an indexer's keys */
            float *dynamic_weight, *dynamic_bias, *dynamic_rate; /* [G][G*Dv], [G], [G] */
        };
        float *arrays[ATTN_NUM_ARRAYS];
    };
    struct attn_mla_head *mla_heads; /* [H], what mla.h makes of k and v of latent attention */
    float lambda;                    /* of differential attention, which these make, else 0 */
    float *inv_freq;                 /* [rope.dim/2] up to the trained length, NULL without RoPE */
    struct attn_relative
        relative; /* of a disentangled position bias or relative key, else zeroed */
    struct attn_position_bias position_bias; /* type ATTN_BIAS_NONE without */
    /* The keys and values of bias_kv and add_zero_attn as one tile for each key/value head, which
     * follows the real keys: [G][D][ATTN_TILE] and [G] tiles of values; NULL where the layer has
     * none. */
    float *extra_k, *extra_v;
    size_t extra; /* columns of these tiles in use, 0 to 2 */
};

/* Allocates zeroed arrays for `spec`, which attn_layer_check has let pass, all but the matrices.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_layer_init(struct attn_layer *layer, const struct attn_layer_spec *spec,
                                 struct attn_error *error);

/* Allocates those of the matrices that are not there, as they are loaded, contents unspecified.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_layer_make_weights(struct attn_layer *layer, struct attn_error *error);

/* Derives from the loaded weights what attention needs beside them: inv_freq, position bias, tiles
 * of extra keys; checks bounds of the arrays that no projection passes on.  Tables of a
 * disentangled position bias that are there already are kept.
 * Errors: ATTN_OUT_OF_RANGE, ATTN_NO_MEMORY. */
enum attn_status attn_layer_derive(struct attn_layer *layer, struct attn_error *error);

void attn_layer_fini(struct attn_layer *layer); /* takes a zeroed or half-built layer */

/* Makes the layer as it is once packed, without its arrays, which are all NULL.
 * Error: as attn_layer_init. */
enum attn_status attn_layer_init_packed(struct attn_layer *layer,
                                        const struct attn_layer_spec *spec,
                                        struct attn_error *error);

/* Calls `visit` for every array that a packed layer keeps of its checkpoint, in an order that
 * follows from the specification alone, and puts what it returns in the array's place.  Sizes
 * follow from the specification too.  Not visited is what attn_layer_derive makes of them in
 * microseconds. */
typedef void *attn_visit(void *context, void *array, size_t bytes);
void attn_layer_visit(struct attn_layer *layer, attn_visit *visit, void *context);

/* Checks a specification against the bounds of attn_model.h; all products of its sizes then fit
 * size_t.
 * Errors: ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
enum attn_status attn_layer_check(const struct attn_layer_spec *spec, struct attn_error *error);

/* x [n] in place: RMSNorm (Zhang and Sennrich 2019), or LayerNorm (Ba et al. 2016), by the type and
 * eps of `norm`.  weight and bias [n] may be NULL. */
void attn_norm_vector(float *x, const struct attn_norm_spec *norm, const float *weight,
                      const float *bias, size_t n);

/* The numbers of bias_table, as it is loaded, and of its norm, where all layers share them. */
size_t attn_layer_table_parameters(const struct attn_layer_spec *spec);

/* Bytes of what is loaded but not resident: what `relative` is made of. */
size_t attn_layer_loading_bytes(const struct attn_layer_spec *spec);

/* The numbers that such a layer has learned; resident bytes of its packed weights; cache bytes of
 * one token. */
size_t attn_layer_parameters(const struct attn_layer_spec *spec);
size_t attn_layer_weight_bytes(const struct attn_layer_spec *spec);
size_t attn_layer_token_bytes(const struct attn_layer_spec *spec);

/* ---- fingerprint.c: what a model's fingerprint says of a layer ---- */

/* How the weights of a matrix are hashed: `add` returns the hash continued by linear's in x out
 * weights, as attn_hash_floats has it, and may read and pack them meanwhile.  The matrices come in
 * an order that follows from the specification. */
struct attn_weights_hash {
    uint64_t (*add)(void *context, uint64_t hash, struct attn_linear *linear);
    void *context;
};

/* `hash` continued by the layer's specification and weights, which are not packed yet; matrices are
 * left to `weights`.  Members that only newer layers have are hashed where they are set, so the
 * fingerprints of others stay. */
uint64_t attn_layer_hash(uint64_t hash, struct attn_layer *layer,
                         const struct attn_weights_hash *weights);

/* `hash` continued by floats, two at a step; of an array in parts, all but the last have an even
 * count. */
uint64_t attn_hash_floats(uint64_t hash, const float *x, size_t count);

#endif
