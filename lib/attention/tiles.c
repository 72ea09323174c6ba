/* tiles.c: the tiles of a key/value head, in the blocks of a cache, filled from rows, or read from
 * cached latents. */
#include <string.h>

#include "attention/unit.h"
#include "basics/mem.h"

/* The head whose values a key/value head has. */
static size_t value_head(const struct attn_head_tiles *head)
{
    const struct attn_problem *p = head->problem;
    return p->value_heads == 0 ? head->group : p->first_value_head + head->group % p->value_heads;
}

/* The tile of a key/value head in a block, with the values of another head where it has these. */
static void read_block(struct attn_tile *out, const struct attn_head_tiles *head,
                       const struct attn_block *block)
{
    const struct attn_problem *p = head->problem;
    struct attn_tile values;
    attn_block_tile(out, block, p->cache.spec, head->group);
    if (p->value_heads == 0)
        return;
    attn_block_tile(&values, block, p->cache.spec, value_head(head));
    out->v = values.v;
    out->v_scale = values.v_scale;
}

void attn_head_tile(struct attn_tile *out, const struct attn_head_tiles *head, size_t j)
{
    const struct attn_problem *p = head->problem;
    if (head->tiles == NULL) {
        read_block(out, head, p->cache.blocks[j - p->cache.first]);
        return;
    }
    *out = (struct attn_tile){.k = head->tiles + j * ATTN_TILE * (p->head_dim + p->value_head_dim),
                              .dtype = p->pairs ? ATTN_BF16 : ATTN_F32,
                              .pairs = p->pairs};
    out->v = (float *)out->k + ATTN_TILE * p->head_dim;
}

size_t attn_head_tile_tokens(const struct attn_head_tiles *head, size_t j)
{
    return attn_min(head->problem->keys - j * ATTN_TILE, ATTN_TILE);
}

size_t attn_head_tiles_floats(const struct attn_problem *p)
{
    return attn_key_tiles(p) * ATTN_TILE * (p->head_dim + p->value_head_dim);
}

/* Where the rows of a head's tokens [first, first + count) begin. */
static void find_rows(const float **out, const struct attn_rows *rows, size_t group, size_t first,
                      size_t count)
{
    for (size_t s = 0; s < count; s++)
        out[s] = rows->data + (first + s) * rows->token + group * rows->head;
}

void attn_fill_tile(const struct attn_kernels *kernels, const struct attn_head_tiles *head,
                    size_t j)
{
    const struct attn_problem *p = head->problem;
    const size_t count = attn_head_tile_tokens(head, j), d = p->head_dim, dv = p->value_head_dim;
    const float *keys[ATTN_TILE], *values[ATTN_TILE];
    struct attn_tile tile;
    attn_head_tile(&tile, head, j);
    find_rows(keys, &p->k, head->group, j * ATTN_TILE, count);
    find_rows(values, &p->v, value_head(head), j * ATTN_TILE, count);
    if (tile.pairs) {
        kernels->pair_keys(tile.k, ATTN_TILE, keys, count, d);
        kernels->pair_values(tile.v, dv, values, count, dv);
        return;
    }
    if (count < ATTN_TILE)
        memset(tile.k, 0, d * ATTN_TILE * sizeof(float));
    kernels->transpose(tile.k, ATTN_TILE, keys, count, d, 1);
    for (size_t s = 0; s < count; s++)
        (void)attn_tile_put_value(&tile, s, values[s], dv);
}

/* ---- Tiles of latents ----
 *
 * A block has the latents of 64 tokens transposed, [R][64], and their shared parts likewise.  As
 * float32 the two are the keys; the values are the latents once more, token by token.  A task reads
 * a tile once for all of its heads.  Levels that multiply tiles of bf16 take the block as it is. */

size_t attn_latent_floats(const struct attn_problem *p)
{
    const size_t line = ATTN_ALIGN / sizeof(float);
    if (!attn_is_latent(p))
        return 0;
    return attn_ceil_div(ATTN_TILE * (p->head_dim + p->value_head_dim), line) * line;
}

void attn_latent_read(struct attn_latent_tile *latent, const struct attn_problem *p, float *floats,
                      const struct attn_kernels *kernels, size_t j, size_t count)
{
    const size_t rank = p->value_head_dim, shared = p->head_dim - rank;
    struct attn_tile cached;
    if (latent->index == j)
        return;
    attn_block_tile(&cached, p->cache.blocks[j - p->cache.first], p->cache.spec, 0);
    latent->index = j;
    if (attn_latent_is_whole(p, kernels)) {
        latent->tile = cached;
        latent->tile.v = cached.k;
        return;
    }
    latent->tile = (struct attn_tile){.k = floats, .v = floats + ATTN_TILE * p->head_dim};
    if (cached.dtype == ATTN_F32) { /* the two parts lie side by side */
        latent->tile.k = cached.k;
    } else {
        kernels->widen_keys(floats, cached.k, cached.k_scale, cached.dtype, rank);
        kernels->widen_keys(floats + rank * ATTN_TILE, cached.v, cached.v_scale, cached.dtype,
                            shared);
    }
    const float *keys = latent->tile.k, *rows[ATTN_TILE];
    for (size_t at = 0, width; at < rank; at += width) { /* values in panels, [ATTN_TILE][width] */
        width = attn_tile_width(ATTN_F32, rank, at);
        for (size_t i = 0; i < width; i++)
            rows[i] = keys + (at + i) * ATTN_TILE;
        kernels->transpose((float *)latent->tile.v + at * ATTN_TILE, width, rows, width, count, 1);
    }
}
