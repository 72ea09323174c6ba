/* runs.h: measuring one shape: first its error, then its time, beside the machine's ceilings. */
#ifndef TESTS_BENCH_RUNS_H
#define TESTS_BENCH_RUNS_H

#include "attn.h"
#include "ceilings.h"
#include "shapes.h"

#define BENCH_MAX_SIDES 2
#define BENCH_MAX_GAP 0.1 /* also of the times' spread */

enum bench_bound { BENCH_BY_FLOPS, BENCH_BY_MEMORY, BENCH_BY_CACHE };

/* The result of one engine on one shape. */
struct bench_result {
    const struct bench_shape *shape;
    const struct bench_dtype *dtype;
    struct attn_engine_info engine;
    double ms;       /* median of `runs` */
    double floor_ms; /* the larger of flops / peak and least bytes / bandwidth */
    /* floor / ms, the floor being that of multiply-adds in registers (floor_ms), or with operands
     * from L1 or L2. */
    double fraction[BENCH_NUM_FEEDS];
    double gflops, gbs;
    double max_error;  /* see check.h */
    double growth_mib; /* the first call's, beyond inputs and output; shapes with a limit only */
    bool right;        /* max_error and growth are within their limits */
    enum bench_bound bound;
    struct bench_ceilings ceilings; /* mean of before and after */
    double gap;                     /* relative difference of the two that the floor is made of */
    double spread;                  /* of the times: see bench_spread */
    bool steady;                    /* both are small, and the fraction not beyond 1 */
    size_t runs, attempts;
};

/* "flops", "memory", "L3". */
const char *bench_bound_name(enum bench_bound bound);

/* Measures `shape` on each of 1 or 2 engines, which take turns call by call, over the same inputs.
 * Ceilings are measured before and after.  Where the one that the floor is made of moved by more
 * than BENCH_MAX_GAP, or the time is below the floor, the ceilings were not those of the calls;
 * where the times spread by more, they have no median worth the name.  Then the measurement is
 * repeated, up to three times within some 15 seconds, and the first steady one counts, or else the
 * one whose gap and spread are least.  A wrong result is not timed: its ms is 0. */
void bench_measure(struct bench_result out[], const struct bench_shape *shape,
                   const struct bench_dtype *dtype, struct attn_engine *const engines[],
                   size_t sides, struct bench_meter *meter);

#endif
