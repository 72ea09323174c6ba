/* mask.c: resolving a call's modifiers, the positions of keys and queries, checking values, and the
 * mask over one row of scores. */
#include "engine/mask.h"

#include <float.h>
#include <math.h>

#include "basics/status.h"

/* Whether the queries are rows of a tree with positions of their own. */
static bool has_tree_positions(const struct attn_modifiers *m)
{
    return m->tree && m->position_ids != NULL;
}

struct attn_mask attn_mask_of(const struct attn_modifiers *m,
                              const struct attn_mask_defaults *defaults, size_t b, size_t queries,
                              size_t keys)
{
    struct attn_mask mask = {
        .queries = queries,
        .keys = keys,
        .causal = m->is_causal == ATTN_CAUSAL_DEFAULT ? defaults->causal
                                                      : m->is_causal == ATTN_CAUSAL_YES,
        .offset = m->query_offset ? m->query_offset[b] : (int64_t)keys - (int64_t)queries,
        .left = -1,
        .right = -1,
        .allowed_head = m->attention_mask_head_stride,
        .bias_head = m->attention_bias_head_stride,
        .position_bias = defaults->position_bias,
        .tree = has_tree_positions(m),
    };
    if (m->has_window) {
        mask.left = m->window_left;
        mask.right = m->window_right;
    } else {
        mask.chunk = (int64_t)defaults->chunk;
        if (defaults->sliding_window > 0) {
            mask.left = (int64_t)defaults->sliding_window - 1;
            mask.right = defaults->two_sided ? mask.left : 0;
        }
    }
    if (m->padding_mask != NULL)
        mask.padding = m->padding_mask + b * keys;
    if (mask.chunk > 0)
        mask.first_chunk = (int64_t)attn_mask_first_key(&mask);
    if (m->attention_mask != NULL)
        mask.allowed = m->attention_mask + b * m->attention_mask_batch_stride;
    if (m->tree)
        mask.allowed_from = keys - queries;
    mask.allowed_row = m->attention_mask_one_row ? 0 : keys - mask.allowed_from;
    if (m->attention_bias != NULL)
        mask.bias = m->attention_bias + b * m->attention_bias_batch_stride;
    mask.bias_row = m->attention_bias_one_row ? 0 : keys;
    return mask;
}

/* ---- Positions ---- */

/* Whether positions count real tokens only. */
static bool counts_tokens(const struct attn_modifiers *m, const struct attn_position_bias *bias)
{
    bool alibi = bias != NULL && bias->type == ATTN_BIAS_ALIBI && !bias->by_slot;
    return m->padding_mask != NULL && (alibi || has_tree_positions(m));
}

bool attn_mask_needs_positions(const struct attn_modifiers *m,
                               const struct attn_position_bias *bias)
{
    return counts_tokens(m, bias) || has_tree_positions(m);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first key that is in a window or chunk, or the first row of the tree.  No cached key's
 * position is beyond its slot, so a key whose slot is left of all windows and chunks is left of
 * them itself. */
static size_t tree_first(const struct attn_mask *mask, const int64_t *keys, const int64_t *queries)
{
    int64_t lowest = queries[0];
    for (size_t t = 1; t < mask->queries; t++)
        lowest = smaller(lowest, queries[t]);
    int64_t first = mask->left >= 0 && lowest > mask->left ? lowest - mask->left : 0;
    if (mask->chunk > 0)
        first = larger(first, lowest / mask->chunk * mask->chunk);
    if (first == 0)
        return 0;
    size_t s = attn_min((size_t)first, mask->allowed_from);
    while (s < mask->allowed_from &&
           (keys[s] < first || (mask->padding != NULL && !mask->padding[s])))
        s++;
    return s;
}

void attn_mask_set_positions(struct attn_mask *mask, int64_t *positions,
                             const struct attn_modifiers *m, size_t b)
{
    int64_t *keys = positions, *queries = positions + mask->keys, real = 0;
    bool count = counts_tokens(m, mask->position_bias);
    for (size_t s = 0; s < mask->keys; s++) {
        real += count && mask->padding[s];
        keys[s] = !count ? (int64_t)s : mask->padding[s] ? real - 1 : 0;
    }
    for (size_t t = 0; t < mask->queries; t++) { /* outside of the keys they go on one by one */
        const int64_t slot = mask->offset + (int64_t)t, last = (int64_t)mask->keys - 1;
        queries[t] = slot < 0      ? keys[0] + slot
                     : slot > last ? keys[last] + slot - last
                                   : keys[slot];
    }
    if (mask->tree)
        for (size_t t = 0; t < mask->queries; t++)
            queries[t] = keys[mask->allowed_from + t] = m->position_ids[b * mask->queries + t];
    if (mask->tree)
        mask->tree_first = tree_first(mask, keys, queries);
    mask->key_positions = keys;
    mask->query_positions = queries;
}

enum attn_status attn_mask_check(const struct attn_modifiers *m, size_t batch, size_t heads,
                                 size_t queries, size_t keys, struct attn_error *error)
{
    const float *bias = m->attention_bias;
    const size_t plane = m->attention_bias_one_row ? keys : queries * keys;
    const size_t biases = (batch - 1) * m->attention_bias_batch_stride +
                          (heads - 1) * m->attention_bias_head_stride + plane;
    if (!(fabs(m->scale) <= ATTN_MAX_SCALE))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "scale", "scale is %g, at most %g is allowed",
                         m->scale, ATTN_MAX_SCALE);
    if (m->softcap != 0 && !(m->softcap >= ATTN_MIN_SOFTCAP && m->softcap <= ATTN_MAX_SOFTCAP))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "softcap",
                         "softcap is %g, allowed are 0 (none) and %g to %g", m->softcap,
                         ATTN_MIN_SOFTCAP, ATTN_MAX_SOFTCAP);
    if (m->has_window && (m->window_left < -1 || m->window_left > INT32_MAX ||
                          m->window_right < -1 || m->window_right > INT32_MAX))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "sliding_window",
                         "sliding_window is [%lld,%lld], allowed are -1 (open) to %d",
                         (long long)m->window_left, (long long)m->window_right, INT32_MAX);
    for (size_t i = 0; bias != NULL && i < biases; i++) {
        if (isnan(bias[i]))
            return attn_fail(error, ATTN_NON_FINITE, "attention_bias",
                             "attention_bias holds NaN at element %zu", i);
        if (bias[i] > ATTN_MAX_MAGNITUDE)
            return attn_fail(error, ATTN_OUT_OF_RANGE, "attention_bias",
                             "attention_bias holds %g at element %zu, at most %g is allowed",
                             (double)bias[i], i, (double)ATTN_MAX_MAGNITUDE);
    }
    for (size_t i = 0; m->position_ids != NULL && i < batch * queries; i++)
        if (m->position_ids[i] < 0 || m->position_ids[i] > INT32_MAX)
            return attn_fail(error, ATTN_OUT_OF_RANGE, "position_ids",
                             "position_ids holds %lld at element %zu, allowed are 0 to %d",
                             (long long)m->position_ids[i], i, INT32_MAX);
    for (size_t b = 0; m->query_offset != NULL && b < batch; b++)
        if (m->query_offset[b] < -INT32_MAX || m->query_offset[b] > INT32_MAX)
            return attn_fail(error, ATTN_OUT_OF_RANGE, "query_offset",
                             "query_offset is %lld, allowed are -%d to %d",
                             (long long)m->query_offset[b], INT32_MAX, INT32_MAX);
    for (size_t h = 0; m->head_mask != NULL && h < heads; h++)
        if (!(fabsf(m->head_mask[h]) <= ATTN_MAX_MAGNITUDE))
            return attn_fail(error, ATTN_OUT_OF_RANGE, "head_mask",
                             "head_mask holds %g at head %zu, at most %g is allowed",
                             (double)m->head_mask[h], h, (double)ATTN_MAX_MAGNITUDE);
    return ATTN_OK;
}

/* ---- What a query sees ---- */

/* Rows of a tree have positions in any order.  Their span only leaves out the keys that none of
 * them sees; forbid_far applies the rest of the window. */
struct attn_span attn_mask_visible(const struct attn_mask *mask, size_t t)
{
    const int64_t at = mask->offset + (int64_t)t;
    int64_t first = mask->left >= 0 ? at - mask->left : 0, end = (int64_t)mask->keys;
    if (mask->causal)
        end = smaller(end, at + 1);
    if (mask->right >= 0 && !mask->tree)
        end = smaller(end, at + mask->right + 1);
    if (mask->chunk > 0) {
        int64_t from = at - mask->first_chunk, past = from % mask->chunk;
        const int64_t start = at - (past < 0 ? past + mask->chunk : past);
        first = larger(first, start);
        end = mask->tree ? end : smaller(end, start + mask->chunk);
    }
    if (mask->tree)
        first = (int64_t)mask->tree_first;
    struct attn_span span = {.first = first > 0 ? attn_min((size_t)first, mask->keys) : 0,
                             .end = end > 0 ? (size_t)end : 0};
    span.end = attn_max(span.end, span.first);
    return span;
}

size_t attn_mask_first_key(const struct attn_mask *mask)
{
    size_t s = 0;
    while (mask->padding != NULL && s < mask->keys && !mask->padding[s])
        s++;
    return s;
}

void attn_mask_reachable(uint8_t *reachable, const struct attn_mask *mask, size_t t)
{
    int64_t at = mask->offset + (int64_t)t;
    for (size_t s = 0; s < mask->keys; s++)
        reachable[s] = (!mask->causal || (int64_t)s <= at) && (!mask->padding || mask->padding[s]);
}

bool attn_mask_is_span(const struct attn_mask *mask)
{
    return mask->padding == NULL && mask->allowed == NULL && mask->bias == NULL &&
           mask->chosen == NULL && mask->key_bias == NULL && mask->position_bias == NULL &&
           !mask->tree;
}

/* ---- Applying ---- */

static void forbid(float *scores, const uint8_t *allowed, size_t n)
{
    for (size_t j = 0; j < n; j++)
        scores[j] = allowed[j] ? scores[j] : -INFINITY;
}

/* A sum of finite numbers stays finite, at least -FLT_MAX.  Hugging Face forbids a key by adding
 * the lowest float32; where all keys of a row are forbidden that way they share its weight evenly,
 * there and here. */
static void add_bias(float *scores, const float *bias, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        float sum = scores[j] + bias[j];
        bool finite = scores[j] >= -FLT_MAX && bias[j] >= -FLT_MAX;
        scores[j] = finite && sum < -FLT_MAX ? -FLT_MAX : sum;
    }
}

static void forbid_all(float *scores, size_t n)
{
    for (size_t j = 0; j < n; j++)
        scores[j] = -INFINITY;
}

/* Applies the boolean mask to the keys [from, from + n) of query t, as far as it covers them. */
static void forbid_masked(float *scores, const struct attn_mask *mask, size_t h, size_t t,
                          size_t from, size_t n)
{
    size_t skip = from < mask->allowed_from ? attn_min(mask->allowed_from - from, n) : 0;
    const uint8_t *row = mask->allowed + h * mask->allowed_head + t * mask->allowed_row;
    if (skip < n)
        forbid(scores + skip, row + (from + skip - mask->allowed_from), n - skip);
}

static void forbid_unchosen(float *scores, const struct attn_mask *mask, size_t h, size_t t,
                            size_t from, size_t n)
{
    const size_t words = attn_ceil_div(mask->keys, 64);
    const uint64_t *row = mask->chosen + (h / mask->group_heads * mask->queries + t) * words;
    for (size_t s = from; s < from + n; s++)
        if ((row[s / 64] >> s % 64 & 1) == 0)
            scores[s - from] = -INFINITY;
}

/* Applies window and chunks to a row of a tree, by positions. */
static void forbid_far(float *scores, const struct attn_mask *mask, size_t t, size_t from, size_t n)
{
    int64_t at = attn_mask_query_position(mask, t);
    for (size_t j = 0; j < n; j++) {
        int64_t key = attn_mask_key_position(mask, from + j);
        if ((mask->left >= 0 && key < at - mask->left) ||
            (mask->right >= 0 && key > at + mask->right) ||
            (mask->chunk > 0 && key / mask->chunk != at / mask->chunk))
            scores[j] = -INFINITY;
    }
}

void attn_mask_apply(float *scores, const struct attn_mask *mask, size_t h, size_t t, size_t first,
                     size_t n)
{
    struct attn_span span = attn_mask_visible(mask, t);
    size_t from = attn_min(attn_max(span.first, first), first + n);
    size_t end = attn_max(attn_min(span.end, first + n), from), seen = end - from;
    float *visible = scores + (from - first);
    if (mask->padding != NULL)
        forbid(visible, mask->padding + from, seen);
    if (mask->allowed != NULL)
        forbid_masked(visible, mask, h, t, from, seen);
    if (mask->chosen != NULL)
        forbid_unchosen(visible, mask, h, t, from, seen);
    if (mask->key_bias != NULL)
        add_bias(visible,
                 mask->key_bias + h / mask->group_heads * attn_ceil_div(mask->keys, 64) * 64 + from,
                 seen);
    if (mask->tree && (mask->left >= 0 || mask->right >= 0 || mask->chunk > 0))
        forbid_far(visible, mask, t, from, seen);
    if (mask->position_bias != NULL) {
        struct attn_position_bias bias = *mask->position_bias;
        if (mask->position_gates != NULL)
            bias.gate = mask->position_gates[t * mask->gates + h];
        attn_position_bias_add(visible, &bias, h, attn_mask_query_position(mask, t),
                               mask->key_positions ? mask->key_positions + from : NULL,
                               (int64_t)from, seen);
    }
    if (mask->bias != NULL)
        add_bias(visible, mask->bias + h * mask->bias_head + t * mask->bias_row + from, seen);
    forbid_all(scores, from - first);
    forbid_all(scores + (end - first), first + n - end);
}
