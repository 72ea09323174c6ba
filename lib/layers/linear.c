/* linear.c: projections with packed weights on all threads.
 *
 * Consecutive projections of the same rows form a group, whose panels are numbered side by side.  A
 * group is partitioned into tasks of the pool, rows by panels. */
#include "layers/linear.h"

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
    /* Tasks of each group, where all have as many and the same number of projections; else 0. */
    size_t tasks_each;
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

/* A group is partitioned into tasks: ranges of rows by ranges of columns.  An element is summed in
 * the same order in any task, so the partition is a matter of speed alone.  Each task copies its
 * rows for itself, once for all its projections, which costs as much as 10 to 40 columns; kernels
 * read few rows in place. */

/* Rows of a group, at most, that kernels read in place (FEW_ROWS of AVX-512). */
#define UNCOPIED_ROWS_MAX 6

/* Tasks of a group that each thread is to have. */
#define TASKS_PER_THREAD 4

/* Columns of a task, at least; a narrow group has fewer tasks for that. */
#define GOOD_COLUMNS 512

/* Columns of a task, at least, where a thread would otherwise have no task. */
#define LEAST_COLUMNS 256

/* Columns of a task, at most, roughly. */
#define MOST_COLUMNS 4096

/* TASKS_PER_THREAD for a group of uncopied rows. */
#define UNCOPIED_TASKS_PER_THREAD 16

/* GOOD_COLUMNS and LEAST_COLUMNS for a group of uncopied rows. */
#define UNCOPIED_LEAST_COLUMNS 64

/* Panels of a range of inputs between two pauses. */
#define PAUSE_PANELS 16

struct partition {
    size_t rows, panels; /* of a task */
    size_t count;        /* tasks of the group */
    size_t across;       /* tasks side by side in a range of rows */
};

/* OpenBLAS may sum an element in another order in a product of another shape, so tasks for it are
 * the same for every number of threads. */
#define GEMM_ROWS 512 /* of a task */

/* Tasks that a projection's columns are divided into, if each has LEAST_GEMM_PANELS. */
#define GEMM_TASKS 4
#define LEAST_GEMM_PANELS 2

static struct partition partition_for_gemm(const struct group *group)
{
    const size_t wanted = attn_max(group->panels / GEMM_TASKS, LEAST_GEMM_PANELS);
    struct partition part = {.rows = GEMM_ROWS, .panels = attn_min(wanted, ATTN_GEMM_PANELS)};
    part.across = attn_ceil_div(group->panels, part.panels);
    part.count = part.across * attn_ceil_div(group->projections->rows, part.rows);
    return part;
}

/* Tasks side by side in each of the `down` ranges of rows of a group. */
static size_t tasks_across(const struct project_context *context, const struct group *group,
                           size_t down)
{
    const size_t out = group->panels * ATTN_PANEL, fewest = out / MOST_COLUMNS;
    const size_t threads = attn_pool_threads(context->engine->pool);
    const bool uncopied = group->projections->rows <= UNCOPIED_ROWS_MAX;
    const size_t each = uncopied ? UNCOPIED_TASKS_PER_THREAD : TASKS_PER_THREAD;
    const size_t good = out / (uncopied ? UNCOPIED_LEAST_COLUMNS : GOOD_COLUMNS);
    const size_t most = out / (uncopied ? UNCOPIED_LEAST_COLUMNS : LEAST_COLUMNS);
    if (context->groups >= TASKS_PER_THREAD * threads) /* tasks enough by themselves */
        return attn_max(fewest, 1);
    const size_t wanted = attn_min(attn_ceil_div(each * threads, down), attn_max(good, 1));
    const size_t across = attn_max(wanted, fewest);
    if (down % threads == 0)
        return across;
    /* A multiple of the threads: none waits while another computes the last task. */
    return across < threads ? attn_min(threads, attn_max(most, 1)) : across - across % threads;
}

static struct partition partition_group(const struct project_context *context,
                                        const struct group *group)
{
    if (group->gemm)
        return partition_for_gemm(group);
    const size_t rows = group->projections->rows;
    const size_t threads = attn_pool_threads(context->engine->pool);
    size_t down = attn_ceil_div(rows, ATTN_PRODUCT_ROWS);
    if (down > threads) /* a multiple of the threads: else more tasks across would copy the rows */
        down += (threads - down % threads) % threads;
    struct partition part = {.rows = attn_ceil_div(rows, down)};
    part.panels = attn_ceil_div(group->panels, tasks_across(context, group, down));
    part.across = attn_ceil_div(group->panels, part.panels);
    part.count = part.across * attn_ceil_div(rows, part.rows);
    return part;
}

/* Some rows of a group by some of its panels. */
struct task {
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
static const float *weights_of(const struct task *task, size_t panel, size_t i)
{
    const struct attn_linear *linear = projection_of(&task->group, &panel)->linear;
    return (const float *)linear->panels + attn_linear_word(linear, panel, i);
}

/* The weights that the task reads after inputs [i, i + k) of all panels before `panel`; NULL at
 * its end. */
static const float *weights_after(const struct task *task, size_t panel, size_t i, size_t k)
{
    if (panel < task->panel + task->panels)
        return weights_of(task, panel, i);
    return i + k < attn_projection_end(task->group.projections)
               ? weights_of(task, task->panel, i + k)
               : NULL;
}

/* The part of a projection that adds inputs [i, i + k) to its columns [first, first + n), still
 * without weights; of wide rows the high plane. */
static struct attn_projection_part part_of(const struct task *task, const struct attn_projection *p,
                                           size_t first, size_t n, size_t i, size_t k)
{
    const struct project_context *context = task->context;
    const struct attn_linear *linear = p->linear;
    struct attn_projection_part part = {
        .y = p->y + task->row * p->ldy + first,
        .addend = linear->bias != NULL && p->count == 0 ? linear->bias + first : NULL,
        .x = p->x + task->row * p->ldx + (i - p->first),
        .scratch = context->scratch + task->thread * ATTN_SCRATCH_FLOATS,
        .ldy = p->ldy,
        .ldx = p->ldx,
        .ldpanel = attn_linear_range_words(linear, i) * ATTN_PANEL,
        .rows = task->rows,
        .k = k,
        .n = n,
    };
    if (i > p->first) {
        part.addend = part.y;
        part.ldaddend = part.ldy;
    }
    if (context->quantized != NULL) {
        const struct attn_quantized_rows *quantized = &context->quantized[p - context->projections];
        part.x = quantized->x + task->row * quantized->ldx + (i - p->first);
        part.ldx = quantized->ldx;
        part.row_scale = quantized->scale + task->row;
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

/* Adds the inputs [i, i + k) to all columns of a task, PAUSE_PANELS panels at a time. */
static void run_range(const struct task *task, size_t i, size_t k)
{
    const struct attn_engine *engine = task->context->engine;
    const size_t end = task->panel + task->panels;
    for (size_t panel = task->panel, panels; panel < end; panel += panels) {
        size_t own = panel;
        const struct attn_projection *p = projection_of(&task->group, &own);
        const struct attn_linear *linear = p->linear;
        panels =
            attn_min(attn_min(end - panel, PAUSE_PANELS), attn_linear_panels(linear->out) - own);
        const size_t n = attn_min(panels * ATTN_PANEL, linear->out - own * ATTN_PANEL);
        struct attn_projection_part part = part_of(task, p, own * ATTN_PANEL, n, i, k);
        part.w = weights_of(task, panel, i);
        part.next_w = weights_after(task, panel + panels, i, k);
        part.rows_copied = panel > task->panel && !linear->wide_rows;
        attn_pool_pause(engine->pool, task->thread);
        if (task->group.gemm)
            attn_gemm_project(&engine->gemm, &part, linear->dtype,
                              engine->kernels.bf16_rounds_rows);
        else
            engine->kernels.project[linear->dtype](&part);
        if (linear->wide_rows) {
            const struct attn_projection_part low = low_part(task->context, p, &part);
            engine->kernels.project[linear->dtype](&low);
        }
        if (p->beyond != NULL && i + k == attn_projection_end(p))
            check_bounds(p, &part, &engine->kernels);
    }
}

/* Task i, counted through all groups. */
static void project_task(void *argument, size_t i, unsigned thread)
{
    const struct project_context *context = argument;
    const struct attn_projection *end = context->projections + context->count;
    size_t before = 0; /* projections of groups before that of the task */
    if (context->tasks_each > 0) {
        before = i / context->tasks_each * (context->count / context->groups);
        i %= context->tasks_each;
    }
    struct group group = group_of(context, context->projections + before, context->count - before);
    struct partition part = partition_group(context, &group);
    while (i >= part.count) {
        i -= part.count;
        group = group_of(context, group.projections + group.count,
                         (size_t)(end - group.projections) - group.count);
        part = partition_group(context, &group);
    }
    struct task task = {.context = context,
                        .group = group,
                        .row = i / part.across * part.rows,
                        .panel = i % part.across * part.panels,
                        .thread = thread};
    task.rows = attn_min(part.rows, group.projections->rows - task.row);
    task.panels = attn_min(part.panels, group.panels - task.panel);
    const size_t depth = attn_linear_range(group.projections->linear->dtype);
    for (size_t at = group.projections->first, k; at < attn_projection_end(group.projections);
         at += k) {
        k = attn_min(attn_projection_end(group.projections) - at, depth - at % depth);
        run_range(&task, at, k);
    }
}

/* Fills context->groups and tasks_each, and returns the tasks of all groups. */
static size_t count_tasks(struct project_context *context)
{
    size_t tasks = 0, p, first_count = 0, first_tasks = 0;
    bool alike = true;
    context->groups = 0;
    for (p = 0; p < context->count; context->groups++)
        p += group_of(context, context->projections + p, context->count - p).count;
    for (p = 0; p < context->count;) {
        const struct group group = group_of(context, context->projections + p, context->count - p);
        const size_t count = partition_group(context, &group).count;
        if (p == 0) {
            first_count = group.count;
            first_tasks = count;
        }
        alike = alike && group.count == first_count && count == first_tasks;
        tasks += count;
        p += group.count;
    }
    context->tasks_each = alike ? first_tasks : 0;
    return tasks;
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
    attn_pool_run(engine->pool, project_task, &context, count_tasks(&context));
    return ATTN_OK;
}
