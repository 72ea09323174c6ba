/* runs.c: checks a shape's result, times it, and judges the time by the ceilings. */
#include "runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "basics/mem.h"
#include "check.h"
#include "machine.h"
#include "samples.h"
#include "work.h"

#define MAX_RUNS ((size_t)4096)
#define MAX_ATTEMPTS 3
#define SHAPE_SECONDS 15 /* no attempt begins that would end later */

const char *bench_bound_name(enum bench_bound bound)
{
    static const char *const names[] = {"flops", "memory", "L3"};
    return names[bound];
}

/* Short calls are repeated for a second, long ones at least three times, very long ones as often
 * as ten seconds allow. */
static bool enough(size_t runs, double seconds)
{
    double next = runs > 0 ? seconds + seconds / (double)runs : 0;
    return runs == MAX_RUNS || next > 10 || (runs >= 3 && seconds >= 4) ||
           (runs >= 5 && seconds >= 1);
}

/* The first call: checks the result and the growth of memory. */
static void first_run(struct bench_result *out, struct bench_work *work, struct attn_engine *engine)
{
    const struct bench_shape *shape = work->shape;
    bench_reset_peak();
    double before = bench_resident_mib();
    bench_work_run(work, engine);
    if (shape->growth_mib > 0)
        out->growth_mib = bench_peak_mib() - before;
    out->max_error = bench_check(work, engine);
    out->right = out->max_error <= work->dtype->tolerance &&
                 (shape->growth_mib == 0 || out->growth_mib <= shape->growth_mib);
    fprintf(stderr, "bench: %s %s %s: max error %.1e", shape->name, work->dtype->name,
            out->engine.level_name, out->max_error);
    if (shape->growth_mib > 0)
        fprintf(stderr, ", growth %.1f MiB of %.0f", out->growth_mib, shape->growth_mib);
    fputs(out->right ? "\n" : ": NOT RIGHT, not timed\n", stderr);
}

/* The faster of the instruction made for the dtype, if the level has it, and of multiply-adds of
 * float32, to which any number can be widened: on some CPUs vdpbf16ps is the slower one. */
static enum bench_peak peak_of(const struct bench_result *r, const struct bench_ceilings *c)
{
    static const enum attn_cpu_level least[BENCH_NUM_PEAKS] = {
        [BENCH_BF16] = ATTN_CPU_AVX512BF16,
        [BENCH_INT8] = ATTN_CPU_AVX512VNNI,
    };
    const double *peaks = c->peak[BENCH_REGISTERS];
    const enum bench_peak own = r->dtype->peak;
    return r->engine.level >= least[own] && peaks[own] > peaks[BENCH_FP32] ? own : BENCH_FP32;
}

/* Derives floor, fractions and steadiness of r->ms from the ceilings before and after. */
static void judge(struct bench_result *r, const struct bench_ceilings *before,
                  const struct bench_ceilings *after)
{
    enum bench_peak peak = peak_of(r, before);
    double flops = bench_flops(r->shape), bytes = bench_bytes(r->shape, r->dtype);
    bool in_cache = bytes <= bench_cache_room();
    r->ceilings = bench_ceilings_mean(before, after);
    const double *const before_peak = before->peak[BENCH_REGISTERS];
    double by_flops = flops / r->ceilings.peak[BENCH_REGISTERS][peak] * 1e-6;
    double by_bytes = bytes / (in_cache ? r->ceilings.cache : r->ceilings.memory) * 1e-6;
    if (by_flops >= by_bytes) {
        r->bound = BENCH_BY_FLOPS;
        r->gap = bench_gap(before_peak[peak], after->peak[BENCH_REGISTERS][peak]);
    } else if (in_cache) {
        r->bound = BENCH_BY_CACHE;
        r->gap = bench_gap(before->cache, after->cache);
    } else {
        r->bound = BENCH_BY_MEMORY;
        r->gap = bench_gap(before->memory, after->memory);
    }
    r->floor_ms = fmax(by_flops, by_bytes);
    for (int f = 0; f < BENCH_NUM_FEEDS; f++) { /* without a loop that is fed: that of registers */
        const enum bench_feed feed = r->ceilings.peak[f][peak] > 0 ? f : BENCH_REGISTERS;
        r->fraction[f] = fmax(flops / r->ceilings.peak[feed][peak] * 1e-6, by_bytes) / r->ms;
    }
    r->steady = fmax(r->gap, r->spread) <= BENCH_MAX_GAP && r->fraction[BENCH_REGISTERS] <= 1;
    r->gflops = flops / r->ms * 1e-6;
    r->gbs = bytes / r->ms * 1e-6;
}

/* One attempt: ceilings, calls in turn, ceilings. */
static void attempt(struct bench_result out[], struct bench_work *work,
                    struct attn_engine *const engines[], size_t sides, struct bench_meter *meter)
{
    double *ms = bench_need(attn_alloc(sides * MAX_RUNS, sizeof *ms)), seconds = 0;
    double bytes = bench_bytes(work->shape, work->dtype);
    unsigned threads = out[0].engine.threads;
    struct bench_ceilings before, after;
    size_t runs = 0;
    bench_ceilings_measure(&before, meter, threads, bytes);
    for (size_t s = 0; s < sides && bytes <= bench_cache_room(); s++)
        bench_work_run(work, engines[s]); /* refills the caches, which the meter has emptied */
    for (double start = bench_now(); !enough(runs, seconds); runs++) {
        for (size_t s = 0; s < sides; s++)
            ms[s * MAX_RUNS + runs] = bench_work_run(work, engines[s]) * 1e3;
        seconds = (bench_now() - start) / (double)sides;
    }
    bench_ceilings_measure(&after, meter, threads, bytes);
    for (size_t s = 0; s < sides; s++) {
        out[s].spread = bench_spread(ms + s * MAX_RUNS, runs);
        out[s].ms = bench_median(ms + s * MAX_RUNS, runs);
        out[s].runs = runs;
        judge(&out[s], &before, &after);
    }
    attn_free(ms);
}

static void attempts(struct bench_result out[], struct bench_work *work,
                     struct attn_engine *const engines[], size_t sides, struct bench_meter *meter,
                     double start)
{
    double took = 0;
    for (size_t n = 1; n <= MAX_ATTEMPTS; n++) {
        if (n > 1 && bench_now() + took > start + SHAPE_SECONDS)
            return;
        struct bench_result now[BENCH_MAX_SIDES] = {out[0], out[sides - 1]};
        double begun = bench_now();
        attempt(now, work, engines, sides, meter);
        took = bench_now() - begun;
        bool better = n == 1 || now[0].steady ||
                      fmax(now[0].gap, now[0].spread) < fmax(out[0].gap, out[0].spread);
        for (size_t s = 0; s < sides; s++) {
            if (better)
                out[s] = now[s];
            out[s].attempts = n;
        }
        fprintf(stderr,
                "bench: %s: attempt %zu: %.3f ms, %zu runs, %s moved by %.0f %%, times by %.0f\n",
                work->shape->name, n, now[0].ms, now[0].runs, bench_bound_name(now[0].bound),
                now[0].gap * 100, now[0].spread * 100);
        if (out[0].steady)
            return;
    }
}

void bench_measure(struct bench_result out[], const struct bench_shape *shape,
                   const struct bench_dtype *dtype, struct attn_engine *const engines[],
                   size_t sides, struct bench_meter *meter)
{
    struct bench_work work;
    double start = bench_now();
    bool right = true;
    fprintf(stderr, "bench: %s %s: preparing\n", shape->name, dtype->name);
    bench_work_open(&work, shape, dtype, engines[0]);
    for (size_t s = 0; s < sides; s++) {
        out[s] = (struct bench_result){.shape = shape, .dtype = dtype};
        attn_engine_describe(&out[s].engine, engines[s]);
        first_run(&out[s], &work, engines[s]);
        right = right && out[s].right;
    }
    if (right)
        attempts(out, &work, engines, sides, meter, start);
    bench_work_close(&work);
}
