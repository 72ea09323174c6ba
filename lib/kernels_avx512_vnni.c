/* kernels_avx512_vnni.c: what AVX-512 VNNI does better: products with int8 weights, four to a word
 * and instruction (vpdpbusd). */
#include "kernels_avx512_project.h"

PROJECT(project_int8, OP_BYTES)

void attn_kernels_avx512_vnni(struct attn_kernels *table)
{
    table->project[ATTN_INT8] = project_int8;
}
