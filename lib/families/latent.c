/* latent.c: the weights of latent attention as its families store them. */
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "families/weights.h"

/* Puts rows 2i and 2i + 1 of the last components of each head, which rotate together, at i and half
 * their number after it. */
static void gather_head(float *rows, float *scratch, size_t in, size_t width)
{
    memcpy(scratch, rows, width * in * sizeof *rows);
    for (size_t i = 0; i < width; i++)
        memcpy(rows + (i % 2 * (width / 2) + i / 2) * in, scratch + i * in, in * sizeof *rows);
}

enum attn_status attn_latent_gather(float *rows, const struct attn_weight_rows *of, size_t count,
                                    struct attn_error *error)
{
    float *scratch = attn_alloc(attn_mul(of->gathered, of->in), sizeof *scratch);
    if (scratch == NULL)
        return attn_fail_memory(error, of->gathered * of->in * sizeof *scratch);
    for (size_t row = of->head; row <= count; row += of->head)
        gather_head(rows + (row - of->gathered) * of->in, scratch, of->in, of->gathered);
    attn_free(scratch);
    return ATTN_OK;
}
