/* gemm.c: OpenBLAS behind one call.  OpenBLAS runs on the calling thread only; the pool cuts large
 * products into pieces and calls from every thread. */
#include "gemm.h"

#include <cblas.h>

void attn_gemm_init(void) { openblas_set_num_threads(1); }

const char *attn_gemm_core_name(void) { return openblas_get_corename(); }

void attn_gemm(float *y, size_t ldy, const float *x, size_t ldx, const float *w, size_t ldw,
               size_t rows, size_t k, size_t n)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)n, (blasint)k,
                1.0f, x, (blasint)ldx, w, (blasint)ldw, 1.0f, y, (blasint)ldy);
}
