/* gemm.h: products of float32 and bf16 through OpenBLAS, in place of the packed kernels.
 *
 * OpenBLAS is loaded when an engine that uses it is opened, and never where none does.  Each call
 * runs on the calling thread alone: the pool splits the work.  gemm.c is the only file that knows
 * the library. */
#ifndef ATTN_LIB_KERNELS_GEMM_H
#define ATTN_LIB_KERNELS_GEMM_H

#include "attn.h"
#include "kernels/kernels.h"

/* Rows of a product from which on ATTN_GEMM_OPENBLAS takes it to OpenBLAS.  Fewer wait for memory,
 * which the packed kernels fetch ahead. */
#define ATTN_GEMM_ROWS 8

/* And of a projection from which on ATTN_GEMM_AUTO does, where that is the faster way. */
#define ATTN_GEMM_AUTO_ROWS 65

/* Panels of a part for attn_gemm_project, and the float32 of a thread that it needs. */
#define ATTN_GEMM_PANELS 8
#define ATTN_GEMM_SCRATCH ((size_t)2 * ATTN_RANGE_WORDS * ATTN_GEMM_PANELS * ATTN_PANEL)

/* Memory that OpenBLAS touches when it is loaded, and for each thread that calls it; and the
 * address space that it reserves for either. */
#define ATTN_GEMM_BYTES ((size_t)8 << 20)
#define ATTN_GEMM_THREAD_BYTES ((size_t)4 << 20)
#define ATTN_GEMM_RESERVED ((size_t)64 << 20)
#define ATTN_GEMM_THREAD_RESERVED ((size_t)136 << 20)

/* OpenBLAS's functions, as <cblas.h> declares them with int for every enum and size. */
typedef void attn_sgemm(int order, int transpose_a, int transpose_b, int rows, int n, int k,
                        float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                        float *c, int ldc);
typedef void attn_sbgemm(int order, int transpose_a, int transpose_b, int rows, int n, int k,
                         float alpha, const uint16_t *a, int lda, const uint16_t *b, int ldb,
                         float beta, float *c, int ldc);

struct attn_gemm {
    attn_sgemm *sgemm;   /* NULL: not loaded */
    attn_sbgemm *sbgemm; /* NULL where the library has none */
    const char *core;    /* the kernel set that OpenBLAS chose, such as "SkylakeX" */
};

/* Loads OpenBLAS, with one thread.  Sets OPENBLAS_NUM_THREADS in the environment, since the library
 * starts its threads while it is loaded.  OpenBLAS stays loaded until the process ends.  Errors:
 * ATTN_UNSUPPORTED, which names the library and its package. */
ATTN_MUST_CHECK enum attn_status attn_gemm_load(struct attn_gemm *out, struct attn_error *error);

/* The work of matmul for float32 (kernels.h).  The bits of a row may depend on `rows`. */
void attn_gemm_matmul(const struct attn_gemm *gemm, const struct attn_matmul *product);

/* The work of project for weights of `dtype`, float32 or bf16, any number of rows and at
 * most ATTN_GEMM_PANELS panels; scratch is [ATTN_GEMM_SCRATCH].  The bits of a row may depend on
 * `rows`. */
void attn_gemm_project(const struct attn_gemm *gemm, const struct attn_projection_part *part,
                       enum attn_dtype dtype, bool rounds_rows);

#endif
