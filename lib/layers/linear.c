/* linear.c: projections with packed weights on all threads.
 *
 * Consecutive projections of the same rows form a group, whose panels are numbered side by side.  A
 * group is partitioned into pieces, rows by panels, and a piece is one task of the pool. */
#include "layers/linear.h"

#include <string.h>

#include "basics/mem.h"
#include "kernels/gemm.h"

/* ---- Projections ---- */

struct project_context {
    struct attn_engine *engine;
    const struct attn_projection *projections;
    size_t count;
    const struct attn_quantized_rows *quantized; /* [count]; NULL where weights are not int8 */
    bool invariant;
    float *scratch; /* [threads][ATTN_SCRATCH_FLOATS] */
    size_t groups;  /* of the projections */
    /* Pieces of each group, where all have as many and the same number of projections; else 0. */
    size_t pieces_each;
};

/* Consecutive projections of the same rows, as of q, k and v: their columns are numbered side by
 * side, whole panels of each.  A projection that goes through OpenBLAS is a group of its own. */
struct group {
    const struct attn_projection *projections;
    size_t count, panels;
    bool gemm; /* through OpenBLAS */
};

/* The group that begins with the first of projections [count], at least one. */
static struct group group_of(const struct project_context *context,
                             const struct attn_projection *projections, size_t count)
{
    struct group group = {.projections = projections};
    group.gemm = !context->invariant && projections->linear->dtype != ATTN_INT8 &&
                 projections->rows >= context->engine->gemm_project_rows;
    const size_t most = group.gemm ? 1 : count;
    while (group.count < most && attn_same_rows(projections, &projections[group.count]))
        group.panels += attn_linear_panels(projections[group.count++].linear->out);
    return group;
}

/* A group is partitioned into pieces: ranges of rows by ranges of columns.  An element is summed in
 * the same order in any piece, so the partition is a matter of speed alone.  Each piece copies its
 * rows for itself, once for all its projections, which costs as much as 10 to 40 columns; kernels
 * read few rows in place. */

/* Rows of a group, at most, that kernels read in place (FEW_ROWS of AVX-512). */
#define UNCOPIED_ROWS_MAX 6

/* Pieces of a group that each thread is to have. */
#define PIECES_PER_THREAD 4

/* Columns of a piece, at least; a narrow group has fewer pieces for that. */
#define GOOD_COLUMNS 512

/* Columns of a piece, at least, where a thread would otherwise have no piece. */
#define LEAST_COLUMNS 256

/* Columns of a piece, at most, roughly. */
#define MOST_COLUMNS 4096

/* PIECES_PER_THREAD for a group of uncopied rows. */
#define UNCOPIED_PIECES_PER_THREAD 16

/* GOOD_COLUMNS and LEAST_COLUMNS for a group of uncopied rows. */
#define UNCOPIED_LEAST_COLUMNS 64

/* Panels of a range of inputs between two pauses. */
#define PAUSE_PANELS 16

struct partition {
    size_t rows, panels; /* of a piece */
    size_t count;        /* pieces of the group */
    size_t across;       /* pieces side by side in a range of rows */
};

/* OpenBLAS may sum an element in another order in a product of another shape, so pieces for it are
 * the same for every number of threads. */
#define GEMM_ROWS 512 /* of a piece */

/* Pieces that a projection's columns are divided into, if each has LEAST_GEMM_PANELS. */
#define GEMM_PIECES 4
#define LEAST_GEMM_PANELS 2

static struct partition partition_for_gemm(const struct group *group)
{
    const size_t wanted = attn_max(group->panels / GEMM_PIECES, LEAST_GEMM_PANELS);
    struct partition part = {.rows = GEMM_ROWS, .panels = attn_min(wanted, ATTN_GEMM_PANELS)};
    part.across = attn_ceil_div(group->panels, part.panels);
    part.count = part.across * attn_ceil_div(group->projections->rows, part.rows);
    return part;
}

static struct partition partition_group(const struct project_context *context,
                                        const struct group *group)
{
    const struct attn_engine *engine = context->engine;
    if (group->gemm)
        return partition_for_gemm(group);
    const size_t rows = group->projections->rows, out = group->panels * ATTN_PANEL;
    const size_t threads = attn_pool_threads(engine->pool);
    const bool uncopied = rows <= UNCOPIED_ROWS_MAX;
    struct partition part;
    size_t down = attn_ceil_div(rows, ATTN_PRODUCT_ROWS);
    if (down > threads) /* a multiple of the threads: else more pieces across would copy the rows */
        down += (threads - down % threads) % threads;
    size_t wanted =
        attn_ceil_div((uncopied ? UNCOPIED_PIECES_PER_THREAD : PIECES_PER_THREAD) * threads, down);
    size_t good_across = attn_max(out / (uncopied ? UNCOPIED_LEAST_COLUMNS : GOOD_COLUMNS), 1);
    size_t most_across = attn_max(out / (uncopied ? UNCOPIED_LEAST_COLUMNS : LEAST_COLUMNS), 1);
    size_t across = attn_max(attn_min(wanted, good_across), out / MOST_COLUMNS);
    const bool many = context->groups >= PIECES_PER_THREAD * threads; /* pieces enough by itself */
    if (many)
        across = attn_max(out / MOST_COLUMNS, 1);
    /* A multiple of the threads: none waits while another computes the last piece. */
    else if (down % threads != 0)
        across = across < threads ? attn_min(threads, most_across) : across - across % threads;
    part.rows = attn_ceil_div(rows, down);
    part.panels = attn_ceil_div(group->panels, across);
    part.across = attn_ceil_div(group->panels, part.panels);
    part.count = part.across * attn_ceil_div(rows, part.rows);
    return part;
}

/* Some rows of a group by some of its panels. */
struct piece {
    const struct project_context *context;
    struct group group;
    size_t row, rows, panel, panels;
    unsigned thread;
};

/* The projection that a panel of the group belongs to; *panel becomes the panel's index in that
 * projection. */
static const struct attn_projection *projection_of(const struct group *group, size_t *panel)
{
    const struct attn_projection *p = group->projections;
    for (; *panel >= attn_linear_panels(p->linear->out); p++)
        *panel -= attn_linear_panels(p->linear->out);
    return p;
}

/* The weights of a panel of the group in the range of inputs from i on. */
static const float *weights_of(const struct piece *piece, size_t panel, size_t i)
{
    const struct attn_linear *linear = projection_of(&piece->group, &panel)->linear;
    return (const float *)linear->panels + attn_linear_word(linear, panel, i);
}

/* The weights that the piece reads after inputs [i, i + k) of all panels before `panel`; NULL at
 * its end. */
static const float *weights_after(const struct piece *piece, size_t panel, size_t i, size_t k)
{
    if (panel < piece->panel + piece->panels)
        return weights_of(piece, panel, i);
    return i + k < attn_projection_end(piece->group.projections)
               ? weights_of(piece, piece->panel, i + k)
               : NULL;
}

/* The part of a projection that adds inputs [i, i + k) to its columns [first, first + n), still
 * without weights; of wide rows the high plane. */
static struct attn_projection_part part_of(const struct piece *piece,
                                           const struct attn_projection *p, size_t first, size_t n,
                                           size_t i, size_t k)
{
    const struct project_context *context = piece->context;
    const struct attn_linear *linear = p->linear;
    struct attn_projection_part part = {
        .y = p->y + piece->row * p->ldy + first,
        .addend = linear->bias != NULL && p->count == 0 ? linear->bias + first : NULL,
        .x = p->x + piece->row * p->ldx + (i - p->first),
        .scratch = context->scratch + piece->thread * ATTN_SCRATCH_FLOATS,
        .ldy = p->ldy,
        .ldx = p->ldx,
        .ldpanel = attn_linear_range_words(linear, i) * ATTN_PANEL,
        .rows = piece->rows,
        .k = k,
        .n = n,
    };
    if (i > p->first) {
        part.addend = part.y;
        part.ldaddend = part.ldy;
    }
    if (context->quantized != NULL) {
        const struct attn_quantized_rows *quantized = &context->quantized[p - context->projections];
        part.x = quantized->x + piece->row * quantized->ldx + (i - p->first);
        part.ldx = quantized->ldx;
        part.row_scale = quantized->scale + piece->row;
        part.scale = linear->scale + first;
    }
    return part;
}

/* The part that adds the low plane after the part `high`. */
static struct attn_projection_part low_part(const struct project_context *context,
                                            const struct attn_projection *p,
                                            const struct attn_projection_part *high)
{
    const struct attn_quantized_rows *quantized = &context->quantized[p - context->projections];
    struct attn_projection_part low = *high;
    low.x = (const int8_t *)high->x + p->rows * quantized->ldx;
    low.row_scale = high->row_scale + p->rows;
    low.addend = high->y;
    low.ldaddend = high->ldy;
    low.rows_copied = false;
    return low;
}

/* Checks the bounds of the part's y, which is complete and still in a cache. */
static void check_bounds(const struct attn_projection *p, const struct attn_projection_part *part,
                         const struct attn_kernels *kernels)
{
    bool within = true;
    for (size_t r = 0; r < part->rows && within; r++)
        within = kernels->all_within(part->y + r * part->ldy, part->n, p->limit);
    if (!within)
        atomic_store(p->beyond, true);
}

/* Adds the inputs [i, i + k) to all columns of a piece, PAUSE_PANELS panels at a time. */
static void run_range(const struct piece *piece, size_t i, size_t k)
{
    const struct attn_engine *engine = piece->context->engine;
    const size_t end = piece->panel + piece->panels;
    for (size_t panel = piece->panel, panels; panel < end; panel += panels) {
        size_t own = panel;
        const struct attn_projection *p = projection_of(&piece->group, &own);
        const struct attn_linear *linear = p->linear;
        panels =
            attn_min(attn_min(end - panel, PAUSE_PANELS), attn_linear_panels(linear->out) - own);
        const size_t n = attn_min(panels * ATTN_PANEL, linear->out - own * ATTN_PANEL);
        struct attn_projection_part part = part_of(piece, p, own * ATTN_PANEL, n, i, k);
        part.w = weights_of(piece, panel, i);
        part.next_w = weights_after(piece, panel + panels, i, k);
        part.rows_copied = panel > piece->panel && !linear->wide_rows;
        attn_pool_pause(engine->pool, piece->thread);
        if (piece->group.gemm)
            attn_gemm_project(&engine->gemm, &part, linear->dtype,
                              engine->kernels.bf16_rounds_rows);
        else
            engine->kernels.project[linear->dtype](&part);
        if (linear->wide_rows) {
            const struct attn_projection_part low = low_part(piece->context, p, &part);
            engine->kernels.project[linear->dtype](&low);
        }
        if (p->beyond != NULL && i + k == attn_projection_end(p))
            check_bounds(p, &part, &engine->kernels);
    }
}

/* Task i computes piece i, counted through all groups. */
static void project_task(void *argument, size_t i, unsigned thread)
{
    const struct project_context *context = argument;
    const struct attn_projection *end = context->projections + context->count;
    size_t before = 0; /* projections of groups before that of the piece */
    if (context->pieces_each > 0) {
        before = i / context->pieces_each * (context->count / context->groups);
        i %= context->pieces_each;
    }
    struct group group = group_of(context, context->projections + before, context->count - before);
    struct partition part = partition_group(context, &group);
    while (i >= part.count) {
        i -= part.count;
        group = group_of(context, group.projections + group.count,
                         (size_t)(end - group.projections) - group.count);
        part = partition_group(context, &group);
    }
    struct piece piece = {.context = context,
                          .group = group,
                          .row = i / part.across * part.rows,
                          .panel = i % part.across * part.panels,
                          .thread = thread};
    piece.rows = attn_min(part.rows, group.projections->rows - piece.row);
    piece.panels = attn_min(part.panels, group.panels - piece.panel);
    const size_t depth = attn_linear_range(group.projections->linear->dtype);
    for (size_t at = group.projections->first, k; at < attn_projection_end(group.projections);
         at += k) {
        k = attn_min(attn_projection_end(group.projections) - at, depth - at % depth);
        run_range(&piece, at, k);
    }
}

/* Fills context->groups and pieces_each, and returns the pieces of all groups. */
static size_t count_pieces(struct project_context *context)
{
    size_t pieces = 0, p, first_count = 0, first_pieces = 0;
    bool alike = true;
    context->groups = 0;
    for (p = 0; p < context->count; context->groups++)
        p += group_of(context, context->projections + p, context->count - p).count;
    for (p = 0; p < context->count;) {
        const struct group group = group_of(context, context->projections + p, context->count - p);
        const size_t count = partition_group(context, &group).count;
        if (p == 0) {
            first_count = group.count;
            first_pieces = count;
        }
        alike = alike && group.count == first_count && count == first_pieces;
        pieces += count;
        p += group.count;
    }
    context->pieces_each = alike ? first_pieces : 0;
    return pieces;
}

enum attn_status attn_project(struct attn_engine *engine, const struct attn_projection *projections,
                              size_t count, bool invariant)
{
    struct project_context context = {.engine = engine,
                                      .projections = projections,
                                      .count = count,
                                      .invariant = invariant,
                                      .scratch = engine->scratch};
    if (count > 0 && projections[0].linear->dtype == ATTN_INT8) {
        context.quantized = attn_quantize_rows(engine, projections, count);
        if (context.quantized == NULL)
            return ATTN_NO_MEMORY;
    }
    attn_pool_run(engine->pool, project_task, &context, count_pieces(&context));
    return ATTN_OK;
}
