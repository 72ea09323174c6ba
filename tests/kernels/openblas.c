/* openblas.c: lib/gemm.c as a kernel table, held to what kernels are held to.
 *
 * A slot has no context, so the library stands in a variable. */
#include "gemm.h"
#include "kernelcheck.h"
#include "mem.h"

static struct attn_gemm library;

static void matmul(const struct attn_matmul *product) { attn_gemm_matmul(&library, product); }

/* As many columns at a time as lib/linear.c gives it. */
static void project(const struct attn_project_block *whole, enum attn_dtype dtype)
{
    const size_t most = ATTN_GEMM_PANELS * ATTN_PANEL;
    for (size_t j = 0; j < whole->n; j += most) {
        struct attn_project_block part = *whole;
        part.y += j;
        part.start = whole->start != NULL ? whole->start + j : NULL;
        part.w = (const float *)whole->w + j / ATTN_PANEL * whole->ldpanel;
        part.n = attn_min(whole->n - j, most);
        attn_gemm_project(&library, &part, dtype, false);
    }
}

static void project_f32(const struct attn_project_block *block) { project(block, ATTN_F32); }

static void project_bf16(const struct attn_project_block *block) { project(block, ATTN_BF16); }

bool kernels_openblas(struct attn_kernels *table, struct attn_error *error)
{
    if (attn_gemm_load(&library, error) != ATTN_OK)
        return false;
    attn_kernels_get(table, ATTN_CPU_PORTABLE);
    table->name = "openblas";
    table->matmul[ATTN_F32] = matmul;
    table->project[ATTN_F32] = project_f32;
    table->project[ATTN_BF16] = project_bf16;
    return true;
}
