/* neon_project.c: products with packed weights that arm64 computes as float32; see
 * neon_project.h.  Products with int8 weights stay the portable ones below sdot. */
#include "kernels/neon_project.h"

PROJECT(project_f32_neon, OP_F32)
PROJECT(project_bf16_neon, OP_BF16_AS_F32)

void attn_kernels_neon_project(struct attn_kernels *table)
{
    table->project[ATTN_F32] = project_f32_neon;
    table->project[ATTN_BF16] = project_bf16_neon;
}
