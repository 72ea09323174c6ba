/* quantized_rows.c: rows of float32 as integers of 8 or 16 bits. */
#include "layers/linear.h"

#include <string.h>

#include "basics/mem.h"

#define QUANTIZE_ROWS 8 /* of one task */

_Static_assert(sizeof(struct attn_quantized_rows) <= ATTN_QUANTIZED_ROWS_DESCRIPTOR_BYTES,
               "calls/decode.c counts ATTN_QUANTIZED_ROWS_DESCRIPTOR_BYTES");

static size_t planes_of(const struct attn_linear *linear) { return linear->wide_rows ? 2 : 1; }

#define PLANE_STEP 256    /* the high plane's 1 in integers of 16 bits */
#define LEAST_STEP 1e-30f /* high_scale, below which the low plane is 0 */
#define ROUNDER 0x1.8p23f /* x + ROUNDER - ROUNDER is the integer nearest to x, ties to even */

/* x [n] as integers of 16 bits in two planes. */
static void quantize_wide(int8_t *high, int8_t *low, float *high_scale, float *low_scale,
                          const struct attn_kernels *kernels, const float *x, size_t n)
{
    kernels->quantize(high, high_scale, x, n);
    *low_scale = *high_scale / PLANE_STEP;
    if (*high_scale < LEAST_STEP) {
        memset(low, 0, n);
        return;
    }
    const float factor = PLANE_STEP / *high_scale;
    for (size_t i = 0; i < n; i++) {
        const int integer = (int)(x[i] * factor + ROUNDER - ROUNDER);
        const int above = (integer + PLANE_STEP / 2) >> 8;
        high[i] = (int8_t)above;
        low[i] = (int8_t)(integer - above * PLANE_STEP);
    }
}

/* The rows of all projections of a call. */
struct all_rows {
    const struct attn_quantized_rows *rows; /* [count] */
    size_t count;
};

/* The rows that task *i belongs to, by bisection over the running totals; *i becomes the task's
 * index within them. */
static const struct attn_quantized_rows *find_rows(size_t *i, const struct all_rows *all)
{
    size_t low = 0, high = all->count - 1;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all->rows[middle].task_end > *i)
            high = middle;
        else
            low = middle + 1;
    }
    if (low > 0)
        *i -= all->rows[low - 1].task_end;
    return &all->rows[low];
}

static void quantize_task(void *argument, size_t i, unsigned thread)
{
    const struct attn_quantized_rows *quantized = find_rows(&i, argument);
    const struct attn_projection *p = quantized->projection;
    const size_t in = attn_projection_inputs(p), end = attn_min((i + 1) * QUANTIZE_ROWS, p->rows);
    (void)thread;
    for (size_t r = i * QUANTIZE_ROWS; r < end; r++) {
        const float *x = p->x + r * p->ldx;
        int8_t *row = quantized->x + r * quantized->ldx;
        float *scale = quantized->scale + r;
        if (p->linear->wide_rows) {
            int8_t *low = row + p->rows * quantized->ldx;
            quantize_wide(row, low, scale, scale + p->rows, quantized->kernels, x, in);
            memset(low + in, 0, quantized->ldx - in);
        } else {
            quantized->kernels->quantize(row, scale, x, in);
        }
        memset(row + in, 0, quantized->ldx - in);
    }
}

struct attn_quantized_rows *attn_quantize_rows(struct attn_engine *engine,
                                               const struct attn_projection *projections,
                                               size_t count)
{
    struct attn_workspace *workspace = &engine->workspace;
    struct attn_quantized_rows *all = attn_workspace_alloc(workspace, count, sizeof *all);
    size_t tasks = 0;
    for (size_t p = 0; all != NULL && p < count; p++) {
        const size_t rows = projections[p].rows;
        const size_t all_rows = attn_mul(rows, planes_of(projections[p].linear));
        if (p > 0 && attn_same_rows(&projections[p], &projections[p - 1])) {
            all[p] = all[p - 1];
            continue;
        }
        struct attn_quantized_rows *new = &all[p];
        *new = (struct attn_quantized_rows){.projection = &projections[p],
                                            .kernels = &engine->kernels};
        new->ldx = attn_ceil_div(attn_projection_inputs(&projections[p]), ATTN_ALIGN) * ATTN_ALIGN;
        new->x = attn_workspace_alloc(workspace, attn_mul(all_rows, new->ldx), 1);
        new->scale = attn_workspace_alloc(workspace, all_rows, sizeof(float));
        if (new->x == NULL || new->scale == NULL)
            return NULL;
        new->task_end = tasks += attn_ceil_div(rows, QUANTIZE_ROWS);
    }
    struct all_rows context = {all, count};
    if (all != NULL)
        attn_pool_run(engine->pool, quantize_task, &context, tasks);
    return all;
}
