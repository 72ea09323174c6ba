/* engine.c: making and ending an engine, and running other people's tasks on its threads. */
#include "engine.h"

#include <stdlib.h>

#include "cpu.h"
#include "gemm.h"
#include "mem.h"
#include "status.h"

#define MAX_THREADS 128 /* Debian's OpenBLAS is built for no more callers */

static enum attn_status check_options(unsigned *threads, enum attn_cpu_level *level,
                                      const struct attn_engine_options *options,
                                      struct attn_error *error)
{
    *threads = options->threads ? options->threads : attn_cpu_count();
    if (*threads > MAX_THREADS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "threads", "threads is %u, at most %u", *threads,
                         MAX_THREADS);
    enum attn_cpu_level best = attn_cpu_best();
    *level = options->level == ATTN_CPU_AUTO ? best : options->level;
    if (*level > best)
        return attn_fail(error, ATTN_UNSUPPORTED, "cpu_level",
                         "cpu_level is %s, this CPU has at most %s", attn_cpu_level_name(*level),
                         attn_cpu_level_name(best));
    return ATTN_OK;
}

enum attn_status attn_engine_open(struct attn_engine **out,
                                  const struct attn_engine_options *options,
                                  struct attn_error *error)
{
    const struct attn_engine_options defaults = {0};
    unsigned threads;
    enum attn_cpu_level level = ATTN_CPU_AUTO;
    enum attn_status status = check_options(&threads, &level, options ? options : &defaults, error);
    if (status != ATTN_OK)
        return status;
    struct attn_engine *engine = attn_calloc(1, sizeof *engine);
    if (engine == NULL)
        return attn_fail_memory(error, sizeof *engine);
    engine->level = level;
    attn_kernels_get(&engine->kernels, level);
    attn_gemm_init();
    pthread_mutex_init(&engine->lock, NULL);
    engine->scratch = attn_alloc_huge(threads, ATTN_SCRATCH_FLOATS * sizeof(float));
    status = attn_pool_open(&engine->pool, threads);
    if (engine->scratch == NULL || status != ATTN_OK) {
        attn_engine_close(engine);
        return attn_fail_memory(error, ATTN_SCRATCH_FLOATS * sizeof(float));
    }
    *out = engine;
    return ATTN_OK;
}

void attn_engine_close(struct attn_engine *engine)
{
    if (engine == NULL)
        return;
    attn_pool_close(engine->pool);
    attn_workspace_fini(&engine->workspace);
    attn_free(engine->scratch);
    pthread_mutex_destroy(&engine->lock);
    attn_free(engine);
}

void attn_engine_describe(struct attn_engine_info *out, const struct attn_engine *engine)
{
    *out = (struct attn_engine_info){
        .threads = attn_pool_threads(engine->pool),
        .level = engine->level,
        .level_name = attn_cpu_level_name(engine->level),
        .blas_core = attn_gemm_core_name(),
        .blas_overridden = getenv("OPENBLAS_CORETYPE") != NULL,
    };
}

void attn_engine_lock(struct attn_engine *engine) { pthread_mutex_lock(&engine->lock); }

void attn_engine_unlock(struct attn_engine *engine)
{
    attn_workspace_reset(&engine->workspace);
    pthread_mutex_unlock(&engine->lock);
}

struct plain_task {
    void (*task)(void *context, size_t i);
    void *context;
};

static void run_plain(void *context, size_t i, unsigned thread)
{
    const struct plain_task *plain = context;
    (void)thread;
    plain->task(plain->context, i);
}

void attn_engine_run(struct attn_engine *engine, void (*task)(void *context, size_t i),
                     void *context, size_t count)
{
    struct plain_task plain = {task, context};
    attn_engine_lock(engine);
    attn_pool_run(engine->pool, run_plain, &plain, count);
    attn_engine_unlock(engine);
}
