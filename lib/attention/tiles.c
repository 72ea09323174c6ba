/* tiles.c: the tiles of a key/value head, in the blocks of a cache, filled from rows, or read from
 * cached latents. */
#include <string.h>

#include "attention/unit.h"
#include "basics/mem.h"

void attn_head_tile(struct attn_tile *out, const struct attn_head_tiles *head, size_t j)
{
    const struct attn_problem *p = head->problem;
    if (head->tiles == NULL) {
        attn_block_tile(out, p->cache.blocks[j - p->cache.first], p->cache.spec, head->group);
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

static void fill_pairs(const struct attn_tile *tile, const struct attn_kernels *kernels,
                       const struct attn_head_tiles *head, size_t j, size_t count)
{
    const struct attn_problem *p = head->problem;
    const float *rows[ATTN_TILE];
    find_rows(rows, &p->k, head->group, j * ATTN_TILE, count);
    kernels->pair_keys(tile->k, ATTN_TILE, rows, count, p->head_dim);
    find_rows(rows, &p->v, head->group, j * ATTN_TILE, count);
    kernels->pair_values(tile->v, p->value_head_dim, rows, count, p->value_head_dim);
}

void attn_fill_tile(const struct attn_kernels *kernels, const struct attn_head_tiles *head,
                    size_t j)
{
    const struct attn_problem *p = head->problem;
    const size_t count = attn_head_tile_tokens(head, j);
    struct attn_tile tile;
    const float *rows[ATTN_TILE];
    const float *value = p->v.data + j * ATTN_TILE * p->v.token + head->group * p->v.head;
    attn_head_tile(&tile, head, j);
    if (tile.pairs) {
        fill_pairs(&tile, kernels, head, j, count);
        return;
    }
    find_rows(rows, &p->k, head->group, j * ATTN_TILE, count);
    if (count < ATTN_TILE)
        memset(tile.k, 0, p->head_dim * ATTN_TILE * sizeof(float));
    kernels->transpose(tile.k, ATTN_TILE, rows, count, p->head_dim, 1);
    for (size_t s = 0; s < count; s++)
        (void)attn_tile_put_value(&tile, s, value + s * p->v.token, p->value_head_dim);
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

/* Values in panels, [ATTN_TILE][width] each, of latents [R][ATTN_TILE]. */
static void transpose_values(float *out, const float *latents, const struct attn_kernels *kernels,
                             size_t rank, size_t count)
{
    const float *rows[ATTN_TILE];
    for (size_t j = 0, width; j < rank; j += width) {
        width = attn_tile_width(ATTN_F32, rank, j);
        for (size_t i = 0; i < width; i++)
            rows[i] = latents + (j + i) * ATTN_TILE;
        kernels->transpose(out + j * ATTN_TILE, width, rows, width, count, 1);
    }
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
    transpose_values(latent->tile.v, latent->tile.k, kernels, rank, count);
}
