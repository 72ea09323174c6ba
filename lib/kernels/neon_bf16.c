/* neon_bf16.c: the kernel that FEAT_BF16 does better: products with bf16 weights, two to a
 * word, by rows rounded to bf16.  An instruction takes two words of two rows and of two columns
 * (bfmmla), of few rows a word of one row and of four columns (bfdot).  The manual defines the one
 * as two of the other, so bits do not depend on it. */
#include "kernels/neon_project.h"

PROJECT(project_bf16_bfmmla, OP_BF16_MATMUL)

void attn_kernels_neon_bf16(struct attn_kernels *table)
{
    table->project[ATTN_BF16] = project_bf16_bfmmla;
    table->bf16_rounds_rows = true;
}
