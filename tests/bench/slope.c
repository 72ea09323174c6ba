/* slope.c: decode time against context.
 *
 * One cache is filled to the longest context; the others are forks of its first tokens, which share
 * its blocks.  Points take turns, round by round, so that a change of the machine's speed affects
 * all of them.  The line ms = base + slope * tokens has the least squares of relative distances
 * from the points; a cost that is not linear shows as a large distance, and as slopes between
 * neighbours that grow. */
#include "slope.h"
#include "attn_state.h"

#include <math.h>
#include <stdio.h>

#include "basics/mem.h"
#include "check.h"
#include "machine.h"
#include "runs.h"
#include "samples.h"
#include "work.h"

#define POINTS 8            /* the longest context, and half of it, and half of that, ... */
#define LONGEST_CHECK 16384 /* a longer context in double would take gigabytes */
#define MIN_ROUNDS 5
#define MAX_ROUNDS 100
#define SECONDS 12

struct point {
    size_t tokens;
    struct attn_cache *cache;
    double samples[MAX_ROUNDS], ms;
};

/* Makes the next run use the point's cache. */
static void turn_to(struct bench_work *work, const struct point *point)
{
    work->caches[0] = work->steps[0].cache = point->cache;
    work->context = point->tokens;
}

static void fork_caches(struct point points[POINTS], const struct bench_work *work)
{
    struct attn_error error = {0};
    points[0] = (struct point){.tokens = work->context, .cache = work->caches[0]};
    for (size_t i = 1; i < POINTS; i++) {
        points[i].tokens = work->context >> i;
        if (attn_cache_fork(&points[i].cache, work->caches[0], points[i].tokens, &error) != ATTN_OK)
            bench_die("%s", error.message);
    }
}

static bool check_points(struct bench_work *work, const struct point points[POINTS],
                         struct attn_engine *engine)
{
    bool right = true;
    for (size_t i = 0; i < POINTS; i++) {
        if (points[i].tokens > LONGEST_CHECK)
            continue;
        turn_to(work, &points[i]);
        bench_work_run(work, engine);
        double error = bench_check(work, engine);
        bool good = error <= work->dtype->tolerance;
        fprintf(stderr, "bench: slope: %zu tokens: max error %.1e%s\n", points[i].tokens, error,
                good ? "" : ": NOT RIGHT");
        right = right && good;
    }
    return right;
}

static void time_points(struct bench_work *work, struct point points[POINTS],
                        struct attn_engine *engine)
{
    size_t rounds = 0;
    for (double start = bench_now();
         rounds < MIN_ROUNDS || (rounds < MAX_ROUNDS && bench_now() - start < SECONDS); rounds++) {
        for (size_t i = 0; i < POINTS; i++) {
            turn_to(work, &points[i]);
            points[i].samples[rounds] = bench_work_run(work, engine) * 1e3;
        }
    }
    for (size_t i = 0; i < POINTS; i++)
        points[i].ms = bench_median(points[i].samples, rounds);
    fprintf(stderr, "bench: slope: %zu rounds\n", rounds);
}

/* Least squares with weights 1 / ms^2. */
static void fit(double *base, double *slope, const struct point points[POINTS])
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < POINTS; i++) {
        double tokens = (double)points[i].tokens, weight = 1 / (points[i].ms * points[i].ms);
        w += weight;
        x += weight * tokens;
        y += weight * points[i].ms;
        xx += weight * tokens * tokens;
        xy += weight * tokens * points[i].ms;
    }
    *slope = (w * xy - x * y) / (w * xx - x * x);
    *base = (y - *slope * x) / w;
}

static void print_points(const struct point points[POINTS], double base, double slope)
{
    printf("%10s %10s %10s %8s %24s\n", "context", "ms", "line", "off by",
           "us/1,024 since the last");
    for (size_t i = POINTS; i-- > 0;) {
        double line = base + slope * (double)points[i].tokens;
        printf("%10zu %10.3f %10.3f %7.1f%%", points[i].tokens, points[i].ms, line,
               (points[i].ms / line - 1) * 100);
        if (i + 1 < POINTS)
            printf(" %24.1f", (points[i].ms - points[i + 1].ms) * 1e3 * 1024 /
                                  (double)(points[i].tokens - points[i + 1].tokens));
        putchar('\n');
    }
}

static void print(const struct point points[POINTS], const struct bench_dtype *dtype,
                  const struct bench_ceilings *ceilings)
{
    const struct bench_layer *l = bench_slope_shape.layer;
    double bytes = 2.0 * (double)(l->kv_heads * l->head_dim) * dtype->kv_bytes; /* of a token */
    double base, slope, worst = 0;
    fit(&base, &slope, points);
    for (size_t i = 0; i < POINTS; i++)
        worst = fmax(worst, fabs(points[i].ms / (base + slope * (double)points[i].tokens) - 1));
    print_points(points, base, slope);
    printf("slope %.1f us per 1,024 tokens, which is reading the cache at %.1f GB/s of memory's "
           "%.1f; base %.3f ms; linear within %.1f %%\n",
           slope * 1024 * 1e3, bytes / slope * 1e-6, ceilings->memory, base, worst * 100);
}

bool bench_slope(const struct bench_dtype *dtype, struct attn_engine *engine,
                 struct bench_meter *meter)
{
    struct point *points = bench_need(attn_calloc(POINTS, sizeof *points));
    struct bench_work work;
    struct attn_engine_info info;
    struct bench_ceilings before, after;
    fprintf(stderr, "bench: slope: filling %zu tokens\n", bench_slope_shape.tokens);
    bench_work_open(&work, &bench_slope_shape, dtype, engine);
    fork_caches(points, &work);
    attn_engine_describe(&info, engine);
    bool right = check_points(&work, points, engine);
    if (right) {
        bench_ceilings_measure(&before, meter, info.threads, 0);
        time_points(&work, points, engine);
        bench_ceilings_measure(&after, meter, info.threads, 0);
        struct bench_ceilings mean = bench_ceilings_mean(&before, &after);
        print(points, dtype, &mean);
    }
    turn_to(&work, &points[0]);
    for (size_t i = 1; i < POINTS; i++)
        attn_cache_free(points[i].cache);
    bench_work_close(&work);
    attn_free(points);
    return right;
}
