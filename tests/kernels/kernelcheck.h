/* kernelcheck.h: the parts of kernelcheck. */
#ifndef TESTS_KERNELS_KERNELCHECK_H
#define TESTS_KERNELS_KERNELCHECK_H

#include "guard.h"
#include "kernels/kernels.h"

#define PENS 9
#define PEN_FLOATS (1u << 20)

/* The state of a run that checks use. */
struct check {
    const struct attn_kernels *kernels;
    struct rng rng;
    struct pen pens[PENS];
    char what[160]; /* the case at hand, for the message should it fail */
    bool bits_vary; /* with rows and columns, as OpenBLAS' may: they are not compared */
};

/* A check computes one case of the given size and returns NULL, or what is wrong with it. */
const char *check_matmul(struct check *check, size_t rows, size_t k, size_t n);
const char *check_matmul_int8(struct check *check, size_t rows, size_t k, size_t n);
const char *check_pairs(struct check *check, size_t rows, size_t k, size_t n);
const char *check_project(struct check *check, size_t rows, size_t k, size_t n);
const char *check_project_bf16(struct check *check, size_t rows, size_t k, size_t n);
const char *check_project_int8(struct check *check, size_t rows, size_t k, size_t n);
const char *check_quantize(struct check *check, size_t rows, size_t k, size_t n);
const char *check_softmax(struct check *check, size_t rows, size_t k, size_t n);
const char *check_outer(struct check *check, size_t rows, size_t k, size_t n);
const char *check_softmax_columns(struct check *check, size_t rows, size_t k, size_t n);
const char *check_transpose(struct check *check, size_t rows, size_t k, size_t n);
const char *check_widen_keys(struct check *check, size_t rows, size_t k, size_t n);
const char *check_scale(struct check *check, size_t rows, size_t k, size_t n);
const char *check_finish_weights(struct check *check, size_t rows, size_t k, size_t n);
const char *check_scale_rows(struct check *check, size_t rows, size_t k, size_t n);
const char *check_all_within(struct check *check, size_t rows, size_t k, size_t n);

/* Magnitudes of the factors of a product: ordinary, large, tiny with denormal products, denormal
 * inputs. */
#define NUM_PRODUCT_SCALES 6
extern const float product_scales[NUM_PRODUCT_SCALES][2];

/* Whether `got` is near enough to a sum of `terms` products, whose magnitudes sum to `magnitude`
 * and of each of which underflow may take `least`. */
bool product_near(double got, double exact, double magnitude, size_t terms, double least);

/* lib/kernels/avx512_bf16.c with vdpbf16ps emulated, for any CPU of level avx512. */
void kernels_emulated_bf16(struct attn_kernels *table);

/* One step of a chain of bfdot: sum + x[0] w[0] + x[1] w[1], as arm64 rounds it.  x and w are bf16,
 * zero where they are denormal; sum is a float. */
double bfdot(double sum, const double x[2], const double w[2]);

/* The products that lib/kernels/gemm.c takes to OpenBLAS, with bf16 weights by cblas_sgemm and, in
 * *rounding, by cblas_sbgemm; false, with the reason, where it cannot be loaded. */
bool kernels_openblas(struct attn_kernels *table, struct attn_kernels *rounding,
                      struct attn_error *error);

/* |got - exact| in units of the last place of the float nearest to `exact`. */
double ulps(float got, double exact);

/* The largest error of exp, in ulp, over every step-th float of [-104, 0]; *at is where. */
double exp_error(float *at, const struct attn_kernels *kernels, size_t step);

/* Prints GFLOP/s and GB/s of the main shapes. */
void bench_kernels(const struct attn_kernels *kernels);

#endif
