/* gemm.h: large matrix products through OpenBLAS, for CPUs that the kernels do not know.  gemm.c
 * is the only file with <cblas.h>. */
#ifndef ATTN_LIB_GEMM_H
#define ATTN_LIB_GEMM_H

#include "attn.h"

/* Tells OpenBLAS to use the calling thread only: parallelism is the pool's. */
void attn_gemm_init(void);
const char *attn_gemm_core_name(void);

/* y[r][j] += sum_i x[r][i] w[i][j]:  x [rows][k], w [k][n], y [rows][n]; strides in floats.  One
 * thread; may be called from several at once.  Bits of a row may depend on `rows`, so decoding does
 * not come here. */
void attn_gemm(float *y, size_t ldy, const float *x, size_t ldx, const float *w, size_t ldw,
               size_t rows, size_t k, size_t n);

#endif
