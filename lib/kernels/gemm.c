/* gemm.c: OpenBLAS, loaded when an engine asks for it.
 *
 * Weights stand in panels of ATTN_PANEL columns, [k][ATTN_PANEL] each, which is a row-major matrix
 * that sgemm takes as it is.  OpenBLAS copies its operands unless a product is small, so many rows
 * by one panel after the other would be copied once for each panel: their panels are first put side
 * by side, as bf16 weights must be anyway to become float32. */
#include "kernels/gemm.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/status.h"
#include "machine/cpu.h"

#define LIBRARY "libopenblas.so.0"
#define PACKAGE "libopenblas0-pthread"

/* ---- Loading --------------------------------------------------------------------------------- */

static enum attn_status fail(struct attn_error *error, const char *why)
{
    return attn_fail(error, ATTN_UNSUPPORTED, "gemm",
                     "OpenBLAS cannot be loaded (Debian: " PACKAGE "): %s", why);
}

typedef char *core_name_function(void);

/* The core whose kernels a CPU runs that is younger than the library, which takes its kernels of
 * the year 2004 (Prescott) for one that it does not know.  NULL: the library's choice holds. */
static const char *better_core(void *library)
{
#ifdef __x86_64__
    core_name_function *core_name = (core_name_function *)dlsym(library, "openblas_get_corename");
    const unsigned features = attn_cpu_features(ATTN_CPU_AVX512);
    if (core_name == NULL || strcmp(core_name(), "Prescott") != 0 ||
        getenv("OPENBLAS_CORETYPE") != NULL)
        return NULL;
    return features & ATTN_HAS_AVX512 ? "SkylakeX" : features & ATTN_HAS_AVX2 ? "Haswell" : NULL;
#else
    (void)library; /* there the CPU says what it has, not which it is */
    return NULL;
#endif
}

/* Loads the library, and once more where it has kernels for another core that are better.  NULL:
 * dlerror() says why. */
static void *open_library(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *core = library != NULL ? better_core(library) : NULL;
    if (core != NULL) {
        dlclose(library);
        setenv("OPENBLAS_CORETYPE", core, 1);
    }
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (core != NULL)
        unsetenv("OPENBLAS_CORETYPE");
    return library;
}

enum attn_status attn_gemm_load(struct attn_gemm *out, struct attn_error *error)
{
    *out = (struct attn_gemm){0};
    void *library = open_library();
    if (library == NULL)
        return fail(error, dlerror());
    attn_sgemm *sgemm = (attn_sgemm *)dlsym(library, "cblas_sgemm");
    void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    core_name_function *core_name = (core_name_function *)dlsym(library, "openblas_get_corename");
    if (sgemm == NULL || set_threads == NULL || core_name == NULL)
        return fail(error, LIBRARY " is not OpenBLAS");
    set_threads(1); /* where the program has loaded it before */
    *out = (struct attn_gemm){
        .sgemm = sgemm,
        .sbgemm = (attn_sbgemm *)dlsym(library, "cblas_sbgemm"),
        .core = core_name(),
    };
    return ATTN_OK;
}

/* ---- Attention ------------------------------------------------------------------------------- */

enum { ROW_MAJOR = 101, AS_IT_IS = 111 }; /* of <cblas.h> */

void attn_gemm_matmul(const struct attn_gemm *gemm, const struct attn_matmul *p)
{
    gemm->sgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, (int)p->rows, (int)p->n, (int)p->k, 1.0f, p->a,
                (int)p->lda, p->b, (int)p->ldb, p->accumulate ? 1.0f : 0.0f, p->c, (int)p->ldc);
}

/* ---- Projections ----------------------------------------------------------------------------- */

/* Up to here a panel is a product of its own: OpenBLAS copies nothing where rows x n x k is at most
 * a million. */
#define ROWS_BY_PANEL 64

/* y += x w for n columns from j on; w [k][ldw] float32. */
static void add_columns(const struct attn_gemm *gemm, const struct attn_projection_part *p,
                        size_t j, size_t n, const float *w, size_t ldw)
{
    gemm->sgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, (int)p->rows, (int)n, (int)p->k, 1.0f, p->x,
                (int)p->ldx, w, (int)ldw, 1.0f, p->y + j, (int)p->ldy);
}

static const void *panel_at(const struct attn_projection_part *p, size_t j)
{
    return (const float *)p->w + j / ATTN_PANEL * p->ldpanel;
}

static void project_by_panel(const struct attn_gemm *gemm, const struct attn_projection_part *p,
                             enum attn_dtype dtype)
{
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        const void *panel = panel_at(p, j);
        if (dtype == ATTN_BF16) {
            attn_widen_panel(p->scratch, ATTN_PANEL, panel, p->k);
            panel = p->scratch;
        }
        add_columns(gemm, p, j, attn_min(p->n - j, ATTN_PANEL), panel, ATTN_PANEL);
    }
}

/* Panels side by side in scratch, as float32. */
static void project_wide(const struct attn_gemm *gemm, const struct attn_projection_part *p,
                         enum attn_dtype dtype)
{
    const size_t ldw = attn_ceil_div(p->n, ATTN_PANEL) * ATTN_PANEL;
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        const float *panel = panel_at(p, j);
        if (dtype == ATTN_BF16)
            attn_widen_panel(p->scratch + j, ldw, (const void *)panel, p->k);
        else
            for (size_t i = 0; i < p->k; i++)
                memcpy(p->scratch + i * ldw + j, panel + i * ATTN_PANEL,
                       ATTN_PANEL * sizeof(float));
    }
    add_columns(gemm, p, 0, p->n, p->scratch, ldw);
}

#define ROUNDED_ROWS 128 /* that are made bf16 at a time */
_Static_assert(ATTN_GEMM_SCRATCH * sizeof(float) >=
                   sizeof(uint16_t) * 2 * ATTN_RANGE_WORDS *
                       (ATTN_GEMM_PANELS * ATTN_PANEL + ROUNDED_ROWS),
               "weights and rows fit");

/* Weights and rows of bf16, where rows are rounded to it at this level anyway.  In a panel, pairs
 * of a column's weights stand together; here they are put apart, [k][ldw]. */
static void project_bf16(const struct attn_gemm *gemm, const struct attn_projection_part *p)
{
    const size_t ldw = attn_ceil_div(p->n, ATTN_PANEL) * ATTN_PANEL;
    uint16_t *w = (uint16_t *)p->scratch, *x = w + p->k * ldw; /* x: [rows][k] */
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        const uint16_t *panel = panel_at(p, j);
        for (size_t i = 0; i < p->k; i++)
            for (size_t c = 0; c < ATTN_PANEL; c++)
                w[i * ldw + j + c] = panel[(i / 2 * ATTN_PANEL + c) * 2 + i % 2];
    }
    for (size_t first = 0, rows; first < p->rows; first += rows) {
        rows = attn_min(p->rows - first, ROUNDED_ROWS);
        const float *from = (const float *)p->x + first * p->ldx;
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < p->k; i++)
                x[r * p->k + i] = attn_float_to_bf16(from[r * p->ldx + i]);
        gemm->sbgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, (int)rows, (int)p->n, (int)p->k, 1.0f, x,
                     (int)p->k, w, (int)ldw, 1.0f, p->y + first * p->ldy, (int)p->ldy);
    }
}

void attn_gemm_project(const struct attn_gemm *gemm, const struct attn_projection_part *p,
                       enum attn_dtype dtype, bool rounds_rows)
{
    for (size_t r = 0; r < p->rows && p->addend != p->y; r++)
        for (size_t j = 0; j < p->n; j++)
            p->y[r * p->ldy + j] = p->addend != NULL ? p->addend[r * p->ldaddend + j] : 0;
    if (dtype == ATTN_BF16 && rounds_rows && gemm->sbgemm != NULL)
        project_bf16(gemm, p);
    else if (p->rows <= ROWS_BY_PANEL)
        project_by_panel(gemm, p, dtype);
    else
        project_wide(gemm, p, dtype);
}
