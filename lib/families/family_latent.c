/* family_latent.c: the weights of latent attention as its families store them. */
#include <string.h>

#include "families/family_weights.h"
#include "mem.h"
#include "status.h"

/* Puts rows 2i and 2i + 1 of the last components of each head, which rotate together, at i and half
 * their number after it. */
static void gather_head(float *rows, float *scratch, size_t in, size_t width)
{
    memcpy(scratch, rows, width * in * sizeof *rows);
    for (size_t i = 0; i < width; i++)
        memcpy(rows + (i % 2 * (width / 2) + i / 2) * in, scratch + i * in, in * sizeof *rows);
}

enum attn_status attn_latent_gather(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t width = spec->mla.rope_head_dim, q_in = layer->q.in, k_in = layer->k_rope.in;
    float *scratch = attn_alloc(width * attn_max(q_in, k_in), sizeof *scratch);
    if (scratch == NULL)
        return attn_fail_memory(error, width * attn_max(q_in, k_in) * sizeof *scratch);
    for (size_t h = 0; h < spec->num_heads; h++)
        gather_head(layer->q.weight + ((h + 1) * spec->head_dim - width) * q_in, scratch, q_in,
                    width);
    gather_head(layer->k_rope.weight, scratch, k_in, width);
    attn_free(scratch);
    return ATTN_OK;
}
