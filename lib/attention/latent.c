/* latent.c: tiles of cached latents, read as keys and values.
 *
 * A block has the latents of 64 tokens transposed, [R][64], and their shared parts likewise.  As
 * float32 the two are the keys; the values are the latents once more, token by token.  A task reads
 * a tile once for all of its heads.  Levels that multiply tiles of bf16 take the block as it is. */
#include "attention/unit.h"

#include "basics/mem.h"

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
