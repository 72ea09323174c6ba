/* forward.h: the forward pass of a layer over rows of one or several calls.
 *
 * A call is what one caller asks for: B sequences of T queries and S keys each.  Keys and values
 * are made of rows that the call brings, or are a cache's, to which the call's own rows may be
 * added.  A pass computes several calls of one sequence each, or some sequences of one call. */
#ifndef ATTN_LIB_ATTENTION_FORWARD_H
#define ATTN_LIB_ATTENTION_FORWARD_H

#include <stdatomic.h>

#include "attention/attention.h"
#include "layers/layer.h"
#include "layers/mla.h"

struct attn_call {
    const struct attn_modifiers *modifiers;
    const struct attn_outputs *outputs;
    struct attn_error *error;    /* the first one stays; not NULL, and ATTN_OK at first */
    size_t batch, queries, keys; /* B, T, S */
    size_t new_keys;             /* N: keys of each sequence that are made of the call's rows */
    /* The rows that q, k and v are projected from, [B][T][E], [B][N][key_size],
     * [B][N][value_size]; of a weightless call q, k and v themselves, [H][T][D], [G][T][D],
     * [G][T][Dv]. */
    const float *query_states, *key_states, *value_states;
    size_t slot; /* of the first row: the tokens before it in its sequence */
    const struct attn_mask_defaults *mask; /* the layer's */
    struct attn_cache *cache;              /* whose keys it attends over; NULL: those of its rows */
    bool puts;           /* its keys are put in the cache, beyond the visible length */
    bool batched;        /* products with other calls; its bits depend on no call */
    size_t first, count; /* C = count sequences from `first` on are computed */
    /* Filled by attn_pass_begin: */
    size_t row, key_row;   /* of its first query and key in the buffers of the pass */
    struct attn_maps maps; /* of all B sequences */
    const float *inv_freq; /* [rope.dim/2], NULL without RoPE */
    int64_t *positions;    /* [B][S + T] where the mask needs positions, else NULL */
    size_t copies_end;     /* tasks that copy outputs, up to the end of this call */
    /* Filled by any thread of the pass: */
    atomic_bool beyond;      /* a query, key, value or gate is out of bounds */
    atomic_bool unfit;       /* a key or value does not fit kv_dtype */
    atomic_bool output_over; /* the output does not fit float32 */
};

#define ATTN_CALL_PRODUCTS \
    6 /* of a call, at most: queries, keys, values, gates, an indexer's two */

struct attn_pass {
    struct attn_engine *engine;
    const struct attn_layer *layer;
    size_t layer_index;      /* of the caches */
    struct attn_call *calls; /* [count]; either all over caches, or one of rows */
    size_t count;
    /* Filled by attn_pass_begin: */
    struct attn_layer_inputs in; /* the maps that read hidden states */
    size_t query_rows, key_rows; /* Q, K: of all calls */
    size_t batched_rows;         /* of the calls that share products, whose rows come first */
    size_t output_rows;          /* of those whose output is asked for, which come before them */
    float *x, *y;                /* [batched_rows][E], [output_rows][E]: hidden states, outputs */
    float *q, *k, *v; /* [Q][H*D], [K][G*D], [K][G*Dv]; k and v of a latent layer are the latents
                         [K][R] and their shared parts [K][value_width], with the keys of an
                         indexer behind them */
    size_t value_width;
    float *index_q, *index_w; /* [Q][I][head_dim], [Q][I]: of an indexer, likewise */
    float *q_a;               /* [Q][q_lora_rank]; q where the layer has no latents of queries */
    /* Keys and values of heads: k and v, or expanded, [K][H*D] and [K][H*Dv]. */
    float *head_k, *head_v;
    /* Absorbed: queries [Q][H][R + rope_head_dim], and weighted sums of latents [Q][H][R]. */
    float *absorbed, *sums;
    size_t groups;         /* parts of the heads where latents are absorbed, else 0 */
    float *gate, *o;       /* [Q][attn_gate_width], [Q][H*Dv]: what heads put out */
    float *position_gates; /* [Q][H]: of a layer whose position bias has a gate */
    float *second;         /* [Q][H*Dv]: what heads put out of the other half of the values */
    struct attn_projection *products;
    struct attn_problem *problems;
};

/* Takes the memory of a pass for the rows that its calls have now, and prepares the calls.  What is
 * wrong with one of them is that call's error, and it is not computed.  Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_pass_begin(struct attn_pass *pass);

/* Computes the calls, with no more rows than the pass began with, and fills what their outputs ask
 * for.  What is wrong with a call is its error.  Errors: ATTN_NO_MEMORY, ATTN_CANCELLED. */
ATTN_MUST_CHECK enum attn_status attn_forward(struct attn_pass *pass);

/* Its first half: makes the keys and values and puts them in the caches; `beyond` and `unfit` of a
 * call say whether they fit.  Errors: as attn_forward. */
ATTN_MUST_CHECK enum attn_status attn_forward_keys(struct attn_pass *pass);

/* Floats that a pass takes for each row of queries and keys, at most, and for each batched row. */
size_t attn_pass_row_floats(size_t *batched, const struct attn_layer_spec *spec);

/* ---- Parts of a pass ---- */

/* Whether latents are expanded to keys and values of heads, where these are of rows; or absorbed in
 * queries and outputs, where latents are cached. */
static inline bool attn_pass_expands(const struct attn_pass *pass)
{
    return attn_layer_is_latent(pass->layer) && pass->calls->cache == NULL;
}

static inline bool attn_pass_absorbs(const struct attn_pass *pass)
{
    return attn_layer_is_latent(pass->layer) && pass->calls->cache != NULL;
}

/* The key/value heads of a call's problems.  The caller has made room for sums of pooled maps by
 * the layer's own. */
static inline size_t attn_pass_kv_heads(const struct attn_pass *pass, const struct attn_call *call)
{
    return attn_pass_absorbs(pass) && call->outputs->pool.rows == 0
               ? pass->groups
               : pass->layer->spec.num_kv_heads;
}

/* Whether nothing is wrong with a call before attention. */
static inline bool attn_call_is_sound(const struct attn_call *call)
{
    return call->error->status == ATTN_OK && !atomic_load(&call->beyond) &&
           !atomic_load(&call->unfit);
}

/* Gives each call its rows in the buffers. */
void attn_pass_assign_rows(struct attn_pass *pass);

/* Prepares a call's maps and positions, for so many heads and columns beside its keys.
 * Errors: as attn_maps_init. */
enum attn_status attn_call_prepare(struct attn_call *call, struct attn_workspace *workspace,
                                   size_t num_heads, size_t num_kv_heads, size_t extra);

/* Adds to a problem, whose sizes are set, what sequence b of its call asks for: mask, maps, lse. */
void attn_call_set(struct attn_problem *p, const struct attn_call *call, size_t b);

/* One token's projections: q [H][D], k [G][D], v [G][Dv]; in a latent layer k is the latent [R] and
 * v the shared part.  q may be NULL, or k and v. */
struct attn_qkv {
    float *q, *k, *v;
};

/* Where a token stands: its position; its index in its sequence; and, in a layer that rotates by a
 * grid of patches, the grid's rows and columns, else NULL. */
struct attn_token {
    int64_t position;
    size_t slot;
    const size_t *grid; /* [2] */
};

/* Clamps, multiplies and normalises q, k and v where the layer does, rotates q and k by their
 * position and the frequencies inv_freq (NULL: no rotation), scales q where the layer does by its
 * position or slot, and checks q, k and v.  False where a number is beyond ATTN_MAX_MAGNITUDE. */
bool attn_qkv_norm_rope(struct attn_qkv row, const struct attn_layer *layer,
                        const struct attn_kernels *kernels, const float *inv_freq,
                        const struct attn_token *token);

/* gates [H]: the factors of a gated position bias for a query made of hidden state x [E]. */
void attn_position_gates(float *gates, const struct attn_layer *layer, const float *x);

/* Of an indexer, one token's queries [I][head_dim] and weights [I], both or none, and its key, or
 * NULL: normalises the key, rotates both, and checks them.  False where a number is beyond
 * ATTN_MAX_MAGNITUDE. */
bool attn_index_norm_rope(float *q, const float *w, float *k, const struct attn_layer *layer,
                          const struct attn_kernels *kernels, const float *inv_freq,
                          int64_t position);

/* Chooses, for the problems [count] of a layer with an indexer, the keys that each query takes part
 * with, and lays them in the problems' masks.  Errors: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_index_choose(const struct attn_pass *pass, size_t count);

/* Bytes that attn_index_choose takes for a call of so many rows that see at most `keys` keys. */
size_t attn_index_bytes(const struct attn_layer_spec *spec, size_t rows, size_t keys);

/* Whether attn_qkv_norm_rope changes rows of this layer. */
bool attn_qkv_needs_norm_rope(const struct attn_layer *layer);

/* The length of a call: its largest position plus 1.  positions [rows]; NULL: first, first + 1,
 * ... */
int64_t attn_qkv_length(const int64_t *positions, size_t rows, int64_t first);

/* The mask of a layer, for where the modifiers say nothing. */
struct attn_mask_defaults attn_layer_mask_defaults(const struct attn_layer *layer, bool causal);

/* Whether an attention over given rows multiplies keys and values as pairs of bf16: where the level
 * can, where neither weights nor caches are of float32 or f16, and where a tile of pairs is no
 * larger than one of float32. */
bool attn_layer_attends_in_pairs(const struct attn_layer *layer,
                                 const struct attn_kernels *kernels);

/* Whether the outputs need what heads put out. */
bool attn_outputs_need_heads(const struct attn_outputs *outputs);

/* Checks the outputs of all calls, and fills those that are no maps.  Errors are the calls'. */
void attn_pass_fill_outputs(struct attn_pass *pass);

#endif
