/* range.c: whether numbers are within their bounds, on all threads of an engine. */
#include <float.h>
#include <stdatomic.h>

#include "basics/status.h"
#include "basics/widen.h"
#include "engine/engine.h"

#define WITHIN_FLOATS ((size_t)32 << 10) /* of one task: some microseconds */

struct within {
    const struct attn_engine *engine;
    const float *x; /* [n] */
    size_t n;
    float limit;
    atomic_bool beyond;
};

static void within_task(void *argument, size_t i, unsigned thread)
{
    struct within *within = argument;
    size_t first = i * WITHIN_FLOATS, count = attn_min(within->n - first, WITHIN_FLOATS);
    (void)thread;
    if (!within->engine->kernels.all_within(within->x + first, count, within->limit))
        atomic_store(&within->beyond, true);
}

bool attn_engine_all_within(struct attn_engine *engine, const float *x, size_t n, float limit)
{
    struct within within = {.engine = engine, .x = x, .n = n, .limit = limit};
    attn_pool_run(engine->pool, within_task, &within, attn_ceil_div(n, WITHIN_FLOATS));
    return !atomic_load(&within.beyond);
}

enum attn_status attn_input_check(struct attn_engine *engine, const float *x, size_t n,
                                  const char *param, struct attn_error *error)
{
    if (attn_engine_all_within(engine, x, n, FLT_MAX))
        return ATTN_OK;
    return attn_fail(error, ATTN_NON_FINITE, param, "%s is not finite at element %zu", param,
                     attn_first_non_finite(x, n));
}
