/* portable_project.c: products with packed weights, and quantize, in plain C.
 *
 * A panel of bf16 or int8 is first unpacked to [k][ATTN_PANEL] numbers in scratch memory, once for
 * all rows, so that the inner loops run over whole vectors. */
#include <math.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernels/kernels.h"

static const float zeros[ATTN_PANEL];

INLINE const float *project_addend_portable(const struct attn_projection_part *p, size_t r,
                                            size_t j)
{
    return p->addend != NULL ? p->addend + r * p->ldaddend + j : zeros;
}

/* ---- float32 and bf16 ------------------------------------------------------------------------ */

/* All rows by one panel w [k][ATTN_PANEL] of floats, which begins at column j. */
static void project_panel_portable(const struct attn_projection_part *p, const float *w, size_t j)
{
    const size_t cols = attn_min(p->n - j, ATTN_PANEL);
    for (size_t r = 0; r < p->rows; r++) {
        const float *x = (const float *)p->x + r * p->ldx,
                    *addend = project_addend_portable(p, r, j);
        float sum[ATTN_PANEL] = {0}, *y = p->y + r * p->ldy + j;
        for (size_t i = 0; i < p->k; i++)
            for (size_t c = 0; c < ATTN_PANEL; c++)
                sum[c] += x[i] * w[i * ATTN_PANEL + c];
        for (size_t c = 0; c < cols; c++)
            y[c] = addend[c] + sum[c];
    }
}

static void project_f32_portable(const struct attn_projection_part *p)
{
    for (size_t j = 0; j < p->n; j += ATTN_PANEL)
        project_panel_portable(p, (const float *)p->w + j / ATTN_PANEL * p->ldpanel, j);
}

void attn_widen_panel(float *out, size_t ldo, const uint16_t *w, size_t k)
{
    for (size_t i = 0; i < k; i += 2, w += 2 * ATTN_PANEL)
        for (size_t half = 0; half < attn_min(k - i, 2); half++)
            for (size_t c = 0; c < ATTN_PANEL; c++)
                out[(i + half) * ldo + c] = attn_bf16_to_float(w[2 * c + half]);
}

static void project_bf16_portable(const struct attn_projection_part *p)
{
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        attn_widen_panel(p->scratch, ATTN_PANEL,
                         (const uint16_t *)p->w + 2 * (j / ATTN_PANEL * p->ldpanel), p->k);
        project_panel_portable(p, p->scratch, j);
    }
}

/* ---- int8 ------------------------------------------------------------------------------------ */

static void project_unpack_int8_portable(int16_t *out, const uint8_t *w, size_t k)
{
    for (size_t i = 0; i < k; i++)
        for (size_t c = 0; c < ATTN_PANEL; c++)
            out[i * ATTN_PANEL + c] = (int16_t)(w[(i / 4 * ATTN_PANEL + c) * 4 + i % 4] - 128);
}

static void project_int8_portable(const struct attn_projection_part *p)
{
    int16_t *plain = (int16_t *)(void *)p->scratch;
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        const size_t cols = attn_min(p->n - j, ATTN_PANEL);
        project_unpack_int8_portable(
            plain, (const uint8_t *)p->w + 4 * (j / ATTN_PANEL * p->ldpanel), p->k);
        for (size_t r = 0; r < p->rows; r++) {
            const int8_t *x = (const int8_t *)p->x + r * p->ldx;
            const float *addend = project_addend_portable(p, r, j);
            float *y = p->y + r * p->ldy + j;
            int32_t sum[ATTN_PANEL] = {0};
            for (size_t i = 0; i < p->k; i++)
                for (size_t c = 0; c < ATTN_PANEL; c++)
                    sum[c] += (int16_t)x[i] * plain[i * ATTN_PANEL + c];
            for (size_t c = 0; c < cols; c++)
                y[c] = addend[c] + (float)sum[c] * (p->row_scale[r] * p->scale[j + c]);
        }
    }
}

/* Adding 1.5 x 2^23 to a float leaves its nearest integer in the last bits. */
static void quantize_portable(int8_t *out, float *scale, const float *x, size_t n)
{
    const float rounder = 0x1.8p23f;
    float lane[ATTN_PANEL] = {0}, max = 0;
    size_t i = 0;
    for (; i + ATTN_PANEL <= n; i += ATTN_PANEL)
        for (size_t l = 0; l < ATTN_PANEL; l++)
            lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
    for (size_t l = 0; l < ATTN_PANEL; l++)
        max = lane[l] > max ? lane[l] : max;
    const bool none = max < ATTN_MIN_QUANTIZABLE;
    const float factor = none ? 0 : 127 / max;
    *scale = none ? 0 : max / 127;
    for (i = 0; i < n; i++)
        out[i] =
            (int8_t)(attn_float_to_bits(x[i] * factor + rounder) - attn_float_to_bits(rounder));
}

void attn_kernels_portable_project(struct attn_kernels *table)
{
    table->project[ATTN_F32] = project_f32_portable;
    table->project[ATTN_BF16] = project_bf16_portable;
    table->project[ATTN_INT8] = project_int8_portable;
    table->quantize = quantize_portable;
}
