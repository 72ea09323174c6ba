/* alike.c: a tree of the tokens that blocks hold.
 *
 * Sessions that shared blocks come out of their files one by one, each with all of its tokens.  A
 * fork may have ended within a block that its parent went on in, and may be read before or after
 * it, so equal blocks are not enough: what is looked for is the longest beginning in common.  So
 * the tree has a node for each block, and one wherever two part; a node stands for the tokens from
 * the root to it, of which a block has them all.  A node is found in a hash table by its edge: the
 * hash of its parent's tokens and one more.  Hashes only lead to a block; before it is shared the
 * tokens themselves are compared.
 *
 * A leaf is a block, and may become longer; no other node is one.  So there are as few blocks in
 * the end as there are tokens that are not the beginning of others, in whatever order they came. */
#include "alike.h"

#include <string.h>

#include "blockpool.h"
#include "model.h"
#include "status.h"

#define LEAST_NODES 64

struct node {
    uint64_t edge; /* 0: free */
    uint64_t hash; /* of its tokens */
    struct attn_block *block;
    const struct attn_layer_spec *spec;
    uint32_t count; /* tokens */
    bool leaf;      /* holds a reference to its block, which has no more tokens */
};

struct attn_alike {
    struct attn_cache_pool *pool;
    struct node *nodes; /* [capacity] a power of 2, three quarters of it at most in use */
    size_t capacity, count;
};

/* Tokens that are to be written, and their hashes: hashes[n] of the first n. */
struct tokens {
    const struct attn_layer_spec *spec;
    size_t count;
    const float *key, *value; /* [G][count][D], [G][count][Dv] */
    uint64_t hashes[ATTN_TILE + 1];
};

/* ---- Hashes ---------------------------------------------------------------------------------- */

/* Multiply and fold.  Never 0. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (uint64_t)product ^ (uint64_t)(product >> 64) ^ word << 1;
    return hash != 0 ? hash : 1;
}

static uint64_t mix_row(uint64_t hash, const float *row, size_t width)
{
    uint64_t word = 0;
    size_t bytes = width * sizeof *row, at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const char *)row + at, sizeof word);
        hash = mix(hash, word);
    }
    if (at == bytes)
        return hash;
    word = 0;
    memcpy(&word, (const char *)row + at, bytes - at);
    return mix(hash, word);
}

/* Begins with where the tree lies, which callers do not know: they cannot make hashes meet. */
static void hash_tokens(struct tokens *tokens, const struct attn_alike *alike)
{
    const struct attn_layer_spec *s = tokens->spec;
    uint64_t hash = mix((uint64_t)(uintptr_t)alike, s->num_kv_heads);
    tokens->hashes[0] = mix(mix(mix(hash, s->head_dim), s->value_head_dim), s->kv_dtype);
    for (size_t i = 0; i < tokens->count; i++) {
        hash = tokens->hashes[i];
        for (size_t g = 0; g < s->num_kv_heads; g++) {
            size_t row = g * tokens->count + i;
            hash = mix_row(hash, tokens->key + row * s->head_dim, s->head_dim);
            hash = mix_row(hash, tokens->value + row * s->value_head_dim, s->value_head_dim);
        }
        tokens->hashes[i + 1] = hash;
    }
}

/* The hash of the tokens that have `hash` and token `slot` of a block. */
static uint64_t hash_slot(uint64_t hash, const struct node *node, size_t slot)
{
    const struct attn_layer_spec *s = node->spec;
    float key[ATTN_MAX_HEAD_DIM], value[ATTN_MAX_HEAD_DIM];
    for (size_t g = 0; g < s->num_kv_heads; g++) {
        struct attn_tile tile;
        attn_block_tile(&tile, node->block, s, g);
        attn_tile_get(key, value, &tile, slot, s->head_dim, s->value_head_dim);
        hash = mix_row(mix_row(hash, key, s->head_dim), value, s->value_head_dim);
    }
    return hash;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool same_kind(const struct attn_layer_spec *a, const struct attn_layer_spec *b)
{
    return a->num_kv_heads == b->num_kv_heads && a->head_dim == b->head_dim &&
           a->value_head_dim == b->value_head_dim && a->kv_dtype == b->kv_dtype;
}

static bool same_token(const struct node *node, const struct tokens *tokens, size_t i)
{
    const struct attn_layer_spec *s = node->spec;
    const size_t d = s->head_dim, dv = s->value_head_dim;
    float key[ATTN_MAX_HEAD_DIM], value[ATTN_MAX_HEAD_DIM];
    for (size_t g = 0; g < s->num_kv_heads; g++) {
        size_t row = g * tokens->count + i;
        struct attn_tile tile;
        attn_block_tile(&tile, node->block, s, g);
        attn_tile_get(key, value, &tile, i, d, dv);
        if (memcmp(key, tokens->key + row * d, d * sizeof *key) != 0 ||
            memcmp(value, tokens->value + row * dv, dv * sizeof *value) != 0)
            return false;
    }
    return true;
}

/* How many of the node's tokens and of these are the same, from the first one on. */
static size_t common(const struct node *node, const struct tokens *tokens)
{
    size_t same = 0, most = attn_min(node->count, tokens->count);
    if (node->edge == 0 || !same_kind(node->spec, tokens->spec))
        return 0;
    while (same < most && same_token(node, tokens, same))
        same++;
    return same;
}

/* ---- The tree -------------------------------------------------------------------------------- */

static struct node *node_of(struct node *nodes, size_t capacity, uint64_t edge)
{
    size_t i = (size_t)edge & (capacity - 1);
    while (nodes[i].edge != 0 && nodes[i].edge != edge)
        i = (i + 1) & (capacity - 1);
    return &nodes[i];
}

/* For two nodes more. */
static enum attn_status make_room(struct attn_alike *alike, struct attn_error *error)
{
    if (4 * (alike->count + 2) <= 3 * alike->capacity)
        return ATTN_OK;
    size_t capacity = attn_max(LEAST_NODES, 2 * alike->capacity);
    struct node *nodes = attn_calloc(capacity, sizeof *nodes);
    if (nodes == NULL)
        return attn_fail_memory(error, capacity * sizeof *nodes);
    for (size_t i = 0; i < alike->capacity; i++)
        if (alike->nodes[i].edge != 0)
            *node_of(nodes, capacity, alike->nodes[i].edge) = alike->nodes[i];
    attn_free(alike->nodes);
    alike->nodes = nodes;
    alike->capacity = capacity;
    return ATTN_OK;
}

/* The node on whose edge the tokens end, or part from its own; a free one where nobody goes that
 * way.  *depth is the number of tokens of its parent. */
static struct node *descend(size_t *depth, const struct attn_alike *alike,
                            const struct tokens *tokens)
{
    for (*depth = 0;;) {
        struct node *node = node_of(alike->nodes, alike->capacity, tokens->hashes[*depth + 1]);
        if (node->edge == 0 || node->leaf || node->count >= tokens->count ||
            node->count <= *depth || node->hash != tokens->hashes[node->count])
            return node;
        *depth = node->count;
    }
}

/* Makes a node where `node` and the tokens part, which is behind `same` tokens; false where hashes
 * meet by chance: then the tokens are not remembered, which costs a block. */
static bool part(struct attn_alike *alike, struct node *node, const struct tokens *tokens,
                 size_t same)
{
    struct node lower = *node;
    lower.edge = hash_slot(tokens->hashes[same], node, same);
    struct node *to = node_of(alike->nodes, alike->capacity, lower.edge);
    if (to->edge != 0 || lower.edge == tokens->hashes[same + 1])
        return false;
    *to = lower;
    node->hash = tokens->hashes[same];
    node->count = (uint32_t)same;
    node->leaf = false;
    alike->count++;
    return true;
}

/* Adds a leaf for a block that was found nowhere: `node` and `depth` are what descend gave. */
static void remember(struct attn_alike *alike, struct node *node, size_t depth, size_t same,
                     const struct tokens *tokens, struct attn_block *block)
{
    if (node->edge != 0 && (same <= depth || !part(alike, node, tokens, same)))
        return;
    size_t above = node->edge != 0 ? same : depth;
    node = node_of(alike->nodes, alike->capacity, tokens->hashes[above + 1]);
    if (node->edge != 0)
        return;
    *node = (struct node){.edge = tokens->hashes[above + 1],
                          .hash = tokens->hashes[tokens->count],
                          .block = block,
                          .spec = tokens->spec,
                          .count = (uint32_t)tokens->count,
                          .leaf = true};
    attn_block_ref(block);
    alike->count++;
}

/* ---- Life ------------------------------------------------------------------------------------ */

enum attn_status attn_alike_new(struct attn_alike **out, struct attn_cache_pool *pool,
                                struct attn_error *error)
{
    struct attn_alike *alike = attn_calloc(1, sizeof *alike);
    if (alike == NULL)
        return attn_fail_memory(error, sizeof *alike);
    alike->pool = pool;
    *out = alike;
    return ATTN_OK;
}

void attn_alike_free(struct attn_alike *alike)
{
    if (alike == NULL)
        return;
    for (size_t i = 0; i < alike->capacity; i++)
        if (alike->nodes[i].edge != 0 && alike->nodes[i].leaf)
            attn_block_unref(alike->pool, alike->nodes[i].block);
    attn_free(alike->nodes);
    attn_free(alike);
}

/* The cache takes the node's block, which has the first `same` tokens. */
static enum attn_status share(struct node *node, const struct tokens *tokens, size_t same,
                              struct attn_cache *cache, size_t layer, struct attn_error *error)
{
    const struct attn_layer_spec *s = tokens->spec;
    const size_t numbers = tokens->count * s->num_kv_heads;
    enum attn_status status =
        attn_check_magnitudes(tokens->key, numbers * s->head_dim, "key", error);
    if (status == ATTN_OK)
        status = attn_check_magnitudes(tokens->value, numbers * s->value_head_dim, "value", error);
    if (status == ATTN_OK)
        status = attn_cache_adopt(cache, layer, node->block, error);
    if (status == ATTN_OK)
        status = attn_cache_put_rows(cache, layer, tokens->count, same, tokens->key, tokens->value,
                                     error);
    if (status != ATTN_OK || same == tokens->count)
        return status;
    node->count = (uint32_t)tokens->count;
    node->hash = tokens->hashes[tokens->count];
    return ATTN_OK;
}

enum attn_status attn_alike_write(struct attn_alike *alike, struct attn_cache *cache, size_t layer,
                                  size_t count, const float *key, const float *value,
                                  struct attn_error *error)
{
    struct tokens tokens = {.spec = attn_model_layer(attn_cache_model(cache), layer),
                            .count = count,
                            .key = key,
                            .value = value};
    size_t depth, length = attn_cache_length(cache, layer);
    if (count == 0)
        return ATTN_OK;
    enum attn_status status = make_room(alike, error);
    if (status != ATTN_OK)
        return status;
    hash_tokens(&tokens, alike);
    struct node *node = descend(&depth, alike, &tokens);
    size_t same = common(node, &tokens);
    if (same == count || (same > 0 && same == node->count && node->leaf))
        return share(node, &tokens, same, cache, layer, error);
    status = attn_cache_write(cache, layer, count, key, value, error);
    if (status == ATTN_OK)
        remember(alike, node, depth, same, &tokens,
                 attn_cache_view(cache, layer).blocks[length / ATTN_TILE]);
    return status;
}
