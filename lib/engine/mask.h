/* mask.h: which keys a query sees, and what is added to its scores.
 *
 * Constraints compose.  A score survives where causality, the window, the chunk, padding and the
 * boolean mask all allow it; then the layer's position bias and the call's bias are added.
 * Causality, window and chunk bound the tiles of keys that are computed at all; the rest is applied
 * to a row of scores within one tile.  A window of the call takes the place of the layer's window
 * and of its chunks.
 *
 * A distance is between two positions, which ordinarily are slots: key s is at slot s, query t at
 * slot offset + t.  Two kinds of calls have other positions.  ALiBi under a padding mask counts
 * real tokens.  The new rows of a tree are at their position_ids, which count real tokens too. */
#ifndef ATTN_LIB_ENGINE_MASK_H
#define ATTN_LIB_ENGINE_MASK_H

#include "attn.h"

/* ---- Position bias: what a layer adds to a score for the distance of query and key ----
 *
 * ALiBi (Press et al. 2021) adds slope_h * (key - query).  For 2^n heads the slopes are
 * 2^(-8i/2^n), i = 1 to 2^n; for another number of heads they are those of the next lower power of
 * two, followed by every other slope of the next higher power.  T5 (Raffel et al. 2020) adds a
 * learned number for each head and bucket of key - query.  Half of the buckets hold single
 * distances, the others logarithmic ranges up to max_distance.  A grid (BEiT) has a learned number
 * for each head and pair of distances, of rows and of columns. */

struct attn_position_bias {
    enum attn_position_bias_type type;
    bool bfloat16;  /* alibi: as the specification says */
    bool by_slot;   /* alibi: as the specification says */
    bool both_ways; /* alibi: bidirectional */
    float scale;    /* alibi: factor of slope * position where bfloat16, else part of the slopes */
    float *slopes;  /* alibi: [H] */
    float *table;   /* t5: [H][2*reach + 1] by key - query + reach, clamped to [0, 2*reach]; grid:
                      [H][rows] */
    size_t reach;   /* t5; of grid the rows of the table */
    size_t grid;    /* grid: W */
    float gate;     /* t5: factor of the table; 1 but for a query of a gated layer */
};

/* Checks a specification against its bounds.  Errors: ATTN_OUT_OF_RANGE. */
enum attn_status attn_position_bias_check(const struct attn_position_bias_spec *spec,
                                          struct attn_error *error);

/* Builds the bias of spec->num_heads heads from a checked specification.  `weights` is the layer's
 * table [buckets][H] for t5, [rows][H] for grid, else NULL.  *out is valid for fini also after an
 * error.  Errors: ATTN_OUT_OF_RANGE (a weight beyond ATTN_MAX_MAGNITUDE), ATTN_NO_MEMORY. */
enum attn_status attn_position_bias_init(struct attn_position_bias *out,
                                         const struct attn_layer_spec *spec, const float *weights,
                                         struct attn_error *error);
void attn_position_bias_fini(struct attn_position_bias *bias);

/* The rows of the table of a grid W patches wide. */
static inline size_t attn_grid_rows(size_t width) { return (2 * width - 1) * (2 * width - 1) + 3; }

/* The T5 bucket of a distance key - query. */
size_t attn_t5_bucket(const struct attn_position_bias_spec *spec, int64_t distance);

/* scores[j] += the bias of head h for a query at position `query` and the key at position keys[j],
 * or first + j where keys is NULL; j < n.  A score of -inf stays; a finite one stays finite, at
 * least -FLT_MAX. */
void attn_position_bias_add(float *scores, const struct attn_position_bias *bias, size_t h,
                            int64_t query, const int64_t *keys, int64_t first, size_t n);

/* ---- Masks ---- */

/* The modifiers of one sequence of a batch. */
struct attn_mask {
    size_t queries, keys; /* T, S */
    bool causal;
    int64_t offset;         /* query t is at slot offset + t */
    int64_t left, right;    /* window: keys seen before and after the query's own; -1 = open */
    int64_t chunk;          /* C: a query sees keys of its own chunk of C; 0: no chunks */
    int64_t first_chunk;    /* the slot where chunk 0 begins: that of the first real token */
    const uint8_t *padding; /* [S] or NULL */
    const uint8_t *allowed; /* [T][S - allowed_from] of head 0, or NULL */
    size_t allowed_from;    /* keys before this one are all allowed */
    size_t allowed_head;    /* elements from one head to the next */
    size_t allowed_row;     /* and from one query to the next; 0: one row counts for all */
    size_t group_heads;     /* heads that share a row of the two that follow */
    const uint64_t *chosen; /* [groups][T][ceil(S/64)]: bit s % 64 of word s / 64, whether an
                               indexer or a dynamic mask chose key s for the query; NULL: all */
    const float *key_bias;  /* [groups][ceil(S/64) 64]: of a dynamic mask, added to the scores of
                               each key; NULL: none */
    const float *bias;      /* [T][S] of head 0, or NULL */
    size_t bias_head, bias_row;
    const struct attn_position_bias *position_bias; /* of the layer, or NULL */
    const float *position_gates;                    /* [T][gates] of a gated bias, or NULL */
    size_t gates;                                   /* H */
    const int64_t *key_positions;                   /* [S], NULL: s */
    const int64_t *query_positions;                 /* [T], NULL: offset + t */
    bool
        tree; /* queries are rows of a tree: window and chunks too are counted by these positions */
    size_t tree_first; /* keys before this one are left of what all rows of the tree see */
};

/* The positions of query t and of key s, which the mask counts distances by. */
static inline int64_t attn_mask_query_position(const struct attn_mask *mask, size_t t)
{
    return mask->query_positions != NULL ? mask->query_positions[t] : mask->offset + (int64_t)t;
}

static inline int64_t attn_mask_key_position(const struct attn_mask *mask, size_t s)
{
    return mask->key_positions != NULL ? mask->key_positions[s] : (int64_t)s;
}

/* A layer's settings, which hold where the modifiers say nothing; all zero without a layer. */
struct attn_mask_defaults {
    bool causal;
    size_t sliding_window; /* W, 0: none */
    bool two_sided;        /* the window: |i-j| < W, not only keys before */
    size_t chunk;          /* C, 0: none */
    const struct attn_position_bias *position_bias;
};

/* The mask of sequence `b` under a call's modifiers. */
struct attn_mask attn_mask_of(const struct attn_modifiers *modifiers,
                              const struct attn_mask_defaults *defaults, size_t b, size_t queries,
                              size_t keys);

/* Whether positions are not simply slots, so that attn_mask_set_positions is needed. */
bool attn_mask_needs_positions(const struct attn_modifiers *modifiers,
                               const struct attn_position_bias *position_bias);

/* Computes positions [S + T], of keys and then of queries, for the mask of sequence b.  The mask
 * keeps the pointer. */
void attn_mask_set_positions(struct attn_mask *mask, int64_t *positions,
                             const struct attn_modifiers *modifiers, size_t b);

/* Checks the values of a call's modifiers for B = batch, H = heads; their shapes are trusted.
 * Errors: ATTN_NON_FINITE (a NaN in the bias), ATTN_OUT_OF_RANGE. */
enum attn_status attn_mask_check(const struct attn_modifiers *modifiers, size_t batch, size_t heads,
                                 size_t queries, size_t keys, struct attn_error *error);

/* A span of keys [first, end), outside of which query t sees none; both ends grow with t. */
struct attn_span {
    size_t first, end;
};
struct attn_span attn_mask_visible(const struct attn_mask *mask, size_t t);

/* The first key that is not padding; S where there is none. */
size_t attn_mask_first_key(const struct attn_mask *mask);

/* reachable[s] = whether causality and padding alone would let query t see key s. */
void attn_mask_reachable(uint8_t *reachable, const struct attn_mask *mask, size_t t);

/* Whether the mask is nothing but a span of keys for each query: scores within the span stay as
 * they are, and attn_mask_apply is not needed for a tile within it. */
bool attn_mask_is_span(const struct attn_mask *mask);

/* Applies mask and biases to scores [n] of head h, query t and the keys from `first` on.  Scores of
 * keys that the query does not see become -inf. */
void attn_mask_apply(float *scores, const struct attn_mask *mask, size_t h, size_t t, size_t first,
                     size_t n);

#endif
