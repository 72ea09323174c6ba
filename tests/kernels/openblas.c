/* openblas.c: lib/kernels/gemm.c as kernel tables, held to what kernels are held to.
 *
 * A slot has no context, so the library stands in a variable. */
#include <float.h>
#include <math.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernelcheck.h"
#include "kernels/gemm.h"

static struct attn_gemm library;

static void matmul(const struct attn_matmul *product) { attn_gemm_matmul(&library, product); }

/* As many columns at a time as lib/layers/linear.c gives it. */
static void project(const struct attn_projection_part *whole, enum attn_dtype dtype,
                    bool rounds_rows)
{
    const size_t most = ATTN_GEMM_PANELS * ATTN_PANEL;
    for (size_t j = 0; j < whole->n; j += most) {
        struct attn_projection_part part = *whole;
        part.y += j;
        part.addend = whole->addend != NULL ? whole->addend + j : NULL;
        part.w = (const float *)whole->w + j / ATTN_PANEL * whole->ldpanel;
        part.n = attn_min(whole->n - j, most);
        attn_gemm_project(&library, &part, dtype, rounds_rows);
    }
}

static void project_f32(const struct attn_projection_part *block)
{
    project(block, ATTN_F32, false);
}

static void project_bf16(const struct attn_projection_part *block)
{
    project(block, ATTN_BF16, false);
}

static void project_rounded(const struct attn_projection_part *block)
{
    project(block, ATTN_BF16, true);
}

/* As the kernels' reference has it: subnormal numbers count as zeros. */
static float number(uint16_t half)
{
    float x = attn_bf16_to_float(half);
    return fabsf(x) < FLT_MIN ? 0 : x;
}

/* What cblas_sbgemm does for these arguments, where the library has none (Debian 12's). */
static void plain_sbgemm(int order, int transpose_a, int transpose_b, int rows, int n, int k,
                         float alpha, const uint16_t *a, int lda, const uint16_t *b, int ldb,
                         float beta, float *c, int ldc)
{
    (void)order, (void)transpose_a, (void)transpose_b, (void)alpha, (void)beta;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++)
            for (int i = 0; i < k; i++)
                c[r * ldc + j] += number(a[r * lda + i]) * number(b[i * ldb + j]);
}

bool kernels_openblas(struct attn_kernels *table, struct attn_kernels *rounding,
                      struct attn_error *error)
{
    if (attn_gemm_load(&library, error) != ATTN_OK)
        return false;
    if (library.sbgemm == NULL)
        library.sbgemm = plain_sbgemm;
    attn_kernels_get(table, 0);
    table->name = "openblas";
    table->matmul[ATTN_F32] = matmul;
    table->project[ATTN_F32] = project_f32;
    table->project[ATTN_BF16] = project_bf16;
    *rounding = *table;
    rounding->name = "sbgemm";
    rounding->project[ATTN_BF16] = project_rounded;
    rounding->bf16_rounds_rows = true;
    return true;
}
