/* ablation.c: the norm of each head's share of the output.
 *
 * Each share is a projection of the inputs that are the head's, [h Dv, (h + 1) Dv), by some rows at
 * a time.  Inputs share words of packed weights, so a head's rows are copied with zeros on both
 * sides up to whole words. */
#include "layers/ablation.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "basics/status.h"
#include "layers/linear.h"

struct ablation {
    struct attn_engine *engine;
    const struct attn_ablated *ablated;
    const struct attn_linear *o;
    size_t rows;        /* of all sequences */
    float *x, *y;       /* [ATTN_ABLATED_ROWS][Dv and zeros], [ATTN_ABLATED_ROWS][E] */
    double *squares;    /* [ATTN_ABLATED_ROWS] */
    const float *shown; /* [ATTN_ABLATED_ROWS][E]: whose squares are summed */
};

/* Copies `count` rows of a head from `first` on, and makes them a part of a projection. */
static struct attn_projection head_part(const struct ablation *a, size_t h, size_t first,
                                        size_t count)
{
    const size_t dv = a->ablated->layer->spec.value_head_dim, begin = h * dv, in = a->o->in;
    const size_t from = begin / ATTN_PART_INPUTS * ATTN_PART_INPUTS;
    const size_t end = attn_min(attn_ceil_div(begin + dv, ATTN_PART_INPUTS) * ATTN_PART_INPUTS, in);
    const size_t width = end - from;
    memset(a->x, 0, count * width * sizeof *a->x);
    for (size_t r = 0; r < count; r++)
        memcpy(a->x + r * width + (begin - from), a->ablated->concat + (first + r) * in + begin,
               dv * sizeof *a->x);
    return (struct attn_projection){.linear = a->o,
                                    .x = a->x,
                                    .ldx = width,
                                    .y = a->y,
                                    .ldy = a->o->out,
                                    .rows = count,
                                    .first = from,
                                    .count = width};
}

#define LANES 8 /* sums side by side, which do not wait for each other */

/* Task i sums the squares of row i. */
static void square_task(void *argument, size_t i, unsigned thread)
{
    const struct ablation *a = argument;
    const size_t width = a->o->out, whole = width / LANES * LANES;
    const float *row = a->shown + i * width;
    double lanes[LANES] = {0}, sum = 0;
    (void)thread;
    for (size_t e = 0; e < whole; e += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += (double)row[e + l] * (double)row[e + l];
    for (size_t e = whole; e < width; e++)
        lanes[e - whole] += (double)row[e] * (double)row[e];
    for (size_t l = 0; l < LANES; l++)
        sum += lanes[l];
    a->squares[i] = sum;
}

#define WHOLE SIZE_MAX /* instead of a head: the output */

/* Makes a->shown `count` rows from `first` on of what head h adds to the output, or of the
 * whole. */
static enum attn_status show(struct ablation *a, size_t h, size_t first, size_t count)
{
    const struct attn_linear *o = a->o;
    struct attn_projection projection;
    a->shown = a->y;
    if (h != WHOLE) {
        projection = head_part(a, h, first, count);
    } else if (a->ablated->output != NULL) {
        a->shown = a->ablated->output + first * o->out;
        return ATTN_OK;
    } else {
        projection = attn_projection_of(o, a->ablated->concat + first * o->in, a->y, count);
    }
    const struct attn_workspace_mark before = attn_workspace_get_mark(&a->engine->workspace);
    const enum attn_status status = attn_project(a->engine, &projection, 1, true);
    attn_workspace_rewind(&a->engine->workspace, before);
    return status;
}

/* Sums the squares of what head h adds to the output, or of the whole, into
 * sums [sequences][stride]. */
static enum attn_status add_squares(double *sums, size_t stride, struct ablation *a, size_t h)
{
    const size_t queries = a->ablated->queries;
    for (size_t s = 0; s < a->ablated->sequences; s++)
        sums[s * stride] = 0;
    for (size_t first = 0; first < a->rows; first += ATTN_ABLATED_ROWS) {
        const size_t count = attn_min(ATTN_ABLATED_ROWS, a->rows - first);
        if (show(a, h, first, count) != ATTN_OK)
            return ATTN_NO_MEMORY;
        attn_pool_run(a->engine->pool, square_task, a, count);
        if (attn_engine_cancelled(a->engine, NULL))
            return ATTN_CANCELLED;
        for (size_t r = 0; r < count; r++)
            sums[(first + r) / queries * stride] += a->squares[r];
    }
    return ATTN_OK;
}

static bool alloc_buffers(struct ablation *a, double **whole)
{
    struct attn_workspace *workspace = &a->engine->workspace;
    const size_t rows = attn_min(a->rows, ATTN_ABLATED_ROWS);
    *whole = attn_workspace_alloc(workspace, a->ablated->sequences, sizeof **whole);
    const size_t most = /* floats of a head's row, with the most zeros beside them */
        a->ablated->layer->spec.value_head_dim + 2 * (ATTN_PART_INPUTS - 1);
    a->x = attn_workspace_alloc(workspace, attn_mul(rows, most), sizeof *a->x);
    a->y = attn_workspace_alloc(workspace, attn_mul(rows, a->o->out), sizeof *a->y);
    a->squares = attn_workspace_alloc(workspace, rows, sizeof *a->squares);
    return *whole != NULL && a->x != NULL && a->y != NULL && a->squares != NULL;
}

/* Divides sums of squares by those of the whole. */
static enum attn_status finish(double *ablation, const double *whole, size_t sequences,
                               size_t heads, struct attn_error *error)
{
    for (size_t i = 0; i < sequences * heads; i++) {
        const double of = whole[i / heads];
        if (!isfinite(ablation[i]) || !isfinite(of))
            return attn_fail(error, ATTN_OVERFLOW, "hidden_states",
                             "the output, or what a head adds to it, does not fit float32");
        ablation[i] = of > 0 ? fmin(sqrt(ablation[i] / of), FLT_MAX) : 0;
    }
    return ATTN_OK;
}

enum attn_status attn_ablate(double *ablation, struct attn_engine *engine,
                             const struct attn_ablated *ablated, struct attn_error *error)
{
    struct ablation a = {.engine = engine,
                         .ablated = ablated,
                         .o = &ablated->layer->o,
                         .rows = ablated->sequences * ablated->queries};
    const struct attn_workspace_mark before = attn_workspace_get_mark(&engine->workspace);
    const size_t heads = ablated->layer->spec.num_heads;
    double *whole = NULL;
    enum attn_status status = alloc_buffers(&a, &whole) ? ATTN_OK : ATTN_NO_MEMORY;
    if (status == ATTN_OK)
        status = add_squares(whole, 1, &a, WHOLE);
    for (size_t h = 0; h < heads && status == ATTN_OK; h++)
        status = add_squares(ablation + h, heads, &a, h);
    if (status == ATTN_OK)
        status = finish(ablation, whole, ablated->sequences, heads, error);
    else if (status == ATTN_NO_MEMORY)
        (void)attn_fail_memory(error, 0);
    attn_workspace_rewind(&engine->workspace, before);
    return status == ATTN_CANCELLED ? ATTN_OK : status;
}
