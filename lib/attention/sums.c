/* sums.c: online-softmax sums: placing, clearing, and merging by their log-sum-exp. */
#include "attention/unit.h"

#include <math.h>
#include <string.h>

struct attn_sums attn_sums_in(float *floats, size_t rows, size_t dv)
{
    struct attn_sums sums = {.out = floats, .max = floats + rows * dv};
    sums.sum = sums.max + rows;
    return sums;
}

void attn_sums_clear(struct attn_sums sums, size_t rows, size_t dv)
{
    for (size_t r = 0; r < rows; r++) {
        sums.max[r] = -INFINITY;
        sums.sum[r] = 0;
    }
    memset(sums.out, 0, rows * dv * sizeof *sums.out);
}

/* Merges one row where both sums have seen a key. */
static void merge_row(const struct attn_kernels *kernels, struct attn_sums total,
                      struct attn_sums sums, size_t dv)
{
    float m = fmaxf(*total.max, *sums.max);
    float before = expf(*total.max - m), now = expf(*sums.max - m);
    *total.max = m;
    *total.sum = *total.sum * before + *sums.sum * now;
    kernels->scale_rows(total.out, dv, &before, 1, dv);
    kernels->matmul[ATTN_F32](&(struct attn_matmul){.c = total.out,
                                                    .ldc = dv,
                                                    .a = &now,
                                                    .lda = 1,
                                                    .b = sums.out,
                                                    .ldb = dv,
                                                    .rows = 1,
                                                    .k = 1,
                                                    .n = dv,
                                                    .accumulate = true});
}

void attn_sums_merge(const struct attn_kernels *kernels, struct attn_sums total,
                     struct attn_sums sums, size_t rows, size_t dv)
{
    for (size_t r = 0; r < rows; r++) {
        struct attn_sums a = {total.out + r * dv, total.max + r, total.sum + r};
        struct attn_sums b = {sums.out + r * dv, sums.max + r, sums.sum + r};
        if (*a.max > -INFINITY && *b.max > -INFINITY) {
            merge_row(kernels, a, b, dv);
        } else if (*b.max > -INFINITY) {
            memcpy(a.out, b.out, dv * sizeof *a.out);
            *a.max = *b.max;
            *a.sum = *b.sum;
        }
    }
}
