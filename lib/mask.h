/* mask.h: which keys a query may see, and what is added to its scores.
 *
 * Constraints compose: a score survives where causality, padding and the boolean mask all allow
 * it; then the bias is added.  Causality limits how far the tiles of keys run; the rest is applied
 * to a row of scores within one tile. */
#ifndef ATTN_LIB_MASK_H
#define ATTN_LIB_MASK_H

#include "attn.h"

/* The modifiers of one sequence of a batch. */
struct attn_mask {
    size_t queries, keys; /* T, S */
    bool causal;
    int64_t offset;         /* query t stands at key position offset + t */
    int64_t left, right;    /* keys it sees before and after that; -1 = open */
    const uint8_t *padding; /* [S] or NULL */
    const uint8_t *allowed; /* [T][S] of head 0, or NULL */
    size_t allowed_head;    /* elements from one head to the next */
    const float *bias;      /* [T][S] of head 0, or NULL */
    size_t bias_head;
};

/* The mask of sequence `b` under a call's modifiers; layer_is_causal is what "default" means. */
struct attn_mask attn_mask_of(const struct attn_modifiers *modifiers, bool layer_is_causal,
                              size_t b, size_t queries, size_t keys);

/* Checks the modifiers of a call for B = batch, H = heads: values only, shapes are the caller's
 * word.  Errors: ATTN_NON_FINITE (a NaN in the bias), ATTN_OUT_OF_RANGE. */
enum attn_status attn_mask_check(const struct attn_modifiers *modifiers, size_t batch, size_t heads,
                                 size_t queries, size_t keys, struct attn_error *error);

/* The keys [first, end) that query t may see at most; both grow with t.  first = end: none. */
struct attn_span {
    size_t first, end;
};
struct attn_span attn_mask_visible(const struct attn_mask *mask, size_t t);

/* True where a visible key's score is final, so that apply need not be called for it. */
bool attn_mask_is_plain(const struct attn_mask *mask);

/* Applies the mask to scores [n] of head h, query t and the keys from `first` on; those of keys
 * outside the visible span become -inf. */
void attn_mask_apply(float *scores, const struct attn_mask *mask, size_t h, size_t t, size_t first,
                     size_t n);

#endif
