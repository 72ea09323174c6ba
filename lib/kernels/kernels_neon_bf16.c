/* kernels_neon_bf16.c: the slot that FEAT_BF16 does better: products with bf16 weights, two to a
 * word and instruction (bfdot), by rows rounded to bf16. */
#include "kernels/kernels_neon_project.h"

PROJECT(project_bf16_bfdot, OP_BF16_DOT)

void attn_kernels_neon_bf16(struct attn_kernels *table)
{
    table->project[ATTN_BF16] = project_bf16_bfdot;
    table->bf16_rounds_rows = true;
}
