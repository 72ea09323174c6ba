/* engine.c: opening and closing an engine, its lock and pauses, and tasks of the caller on its
 * threads. */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attn_limits.h"
#include "basics/status.h"
#include "machine/cpu.h"

/* ---- OpenBLAS ---- */

const char *attn_gemm_mode_name(enum attn_gemm_mode mode)
{
    static const char *const names[] = {
        [ATTN_GEMM_AUTO] = "auto",
        [ATTN_GEMM_PACKED] = "packed",
        [ATTN_GEMM_OPENBLAS] = "openblas",
    };
    size_t i = (size_t)mode;
    return i < ATTN_COUNT(names) ? names[i] : "unknown";
}

bool attn_engine_uses_openblas(const struct attn_engine_options *options)
{
    return options->gemm == ATTN_GEMM_OPENBLAS ||
           (options->gemm == ATTN_GEMM_AUTO && attn_cpu_features(options->level) == 0);
}

/* Chooses the products that go through OpenBLAS.  ATTN_GEMM_AUTO means those for which OpenBLAS is
 * faster; with AVX2 and better the packed kernels are, for every product (docs/BENCHMARKS.md). */
static enum attn_status open_gemm(struct attn_engine *engine,
                                  const struct attn_engine_options *options,
                                  struct attn_error *error)
{
    struct attn_error *missing = &engine->gemm_missing;
    engine->gemm_mode = options->gemm;
    engine->gemm_project_rows = SIZE_MAX;
    if (!attn_engine_uses_openblas(options))
        return ATTN_OK;
    if (attn_gemm_load(&engine->gemm, missing) == ATTN_OK) {
        engine->gemm_attends = options->gemm == ATTN_GEMM_OPENBLAS;
        engine->gemm_project_rows = engine->gemm_attends ? ATTN_GEMM_ROWS : ATTN_GEMM_AUTO_ROWS;
        return ATTN_OK;
    }
    if (options->gemm == ATTN_GEMM_AUTO)
        return ATTN_OK;
    return attn_fail(error, missing->status, missing->param, "gemm is openblas: %s",
                     missing->message);
}

/* ---- Pauses ---- */

static bool yield_wanted(void *context)
{
    const struct attn_engine *engine = context;
    const struct attn_yield *yield = engine->yields[attn_pool_level(engine->pool)];
    return yield->wanted(yield->context);
}

/* Exchanges workspace and scratch.  A call inside a yield has memory of its own, because the outer
 * call's other threads go on using theirs. */
static void exchange_memory(struct attn_engine *engine, struct attn_engine_memory *spare)
{
    const struct attn_engine_memory current = {engine->workspace, engine->scratch};
    engine->workspace = spare->workspace;
    engine->scratch = spare->scratch;
    *spare = current;
}

static bool yield_run(void *context)
{
    struct attn_engine *engine = context;
    unsigned outer = attn_pool_level(engine->pool) - 1;
    const struct attn_yield *yield = engine->yields[outer];
    exchange_memory(engine, &engine->spare[outer]);
    bool go_on = yield->run(yield->context);
    exchange_memory(engine, &engine->spare[outer]);
    return go_on;
}

/* ---- The memory of a call ----
 *
 * Together the calls that run one inside another hold at most call_bytes, and one without a yield,
 * which is the innermost, yield_call_bytes beside them.  At the first level of yields a share of
 * yield_call_bytes is kept from call to call, at further ones nothing. */

size_t attn_engine_free_bytes(const struct attn_engine *engine, bool has_yield)
{
    size_t held = 0, most = engine->call_bytes; /* held by the calls outside of this level */
    if (most == 0)
        return SIZE_MAX;
    for (unsigned i = 0; i < attn_pool_level(engine->pool); i++)
        held += engine->spare[i].workspace.bytes;
    most = most > held ? most - held : 0;
    if (attn_pool_level(engine->pool) == 0 || has_yield)
        return most;
    return engine->yield_call_bytes > 0 ? attn_add(most, engine->yield_call_bytes) : SIZE_MAX;
}

void attn_engine_lock(struct attn_engine *engine, const struct attn_yield *yield)
{
    pthread_mutex_lock(&engine->lock);
    engine->yields[attn_pool_level(engine->pool)] = yield;
    attn_pool_set_yield(engine->pool, yield != NULL ? &engine->pool_yield : NULL);
    const size_t most = attn_engine_free_bytes(engine, yield != NULL);
    engine->workspace.limit = most == SIZE_MAX ? 0 : attn_max(most, 1);
}

void attn_engine_unlock(struct attn_engine *engine)
{
    const unsigned level = attn_pool_level(engine->pool);
    if (level == 1)
        engine->workspace.limit = engine->yield_call_bytes;
    if (level > 1)
        attn_workspace_fini(&engine->workspace);
    else
        attn_workspace_reset(&engine->workspace);
    attn_pool_set_yield(engine->pool, NULL);
    pthread_mutex_unlock(&engine->lock);
}

bool attn_engine_cancelled(const struct attn_engine *engine, struct attn_error *error)
{
    bool cancelled = attn_pool_cancelled(engine->pool);
    if (cancelled)
        attn_fail(error, ATTN_CANCELLED, NULL, "the call was told to stop");
    return cancelled;
}

/* ---- Opening and closing ---- */

static bool open_scratch(struct attn_engine *engine, unsigned threads)
{
    engine->scratch = attn_alloc_huge(threads, ATTN_SCRATCH_FLOATS * sizeof(float));
    bool made = engine->scratch != NULL;
    for (size_t i = 0; i < ATTN_YIELD_LEVELS - 1; i++) {
        engine->spare[i].scratch = attn_alloc_huge(threads, ATTN_SCRATCH_FLOATS * sizeof(float));
        made = made && engine->spare[i].scratch != NULL;
    }
    return made;
}

enum attn_status attn_engine_open(struct attn_engine **out,
                                  const struct attn_engine_options *options,
                                  struct attn_error *error)
{
    const struct attn_engine_options defaults = {0};
    options = options != NULL ? options : &defaults;
    const unsigned threads = options->threads ? options->threads : attn_usable_cpus();
    if (threads > ATTN_MAX_THREADS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "threads", "threads is %u, at most %u", threads,
                         ATTN_MAX_THREADS);
    const unsigned features = attn_cpu_features(options->level);
    const enum attn_cpu_level level = attn_cpu_level_of(features);
    if (options->level != ATTN_CPU_AUTO && options->level != level)
        return attn_fail(error, ATTN_UNSUPPORTED, "cpu_level",
                         "cpu_level is %s, this CPU has at most %s",
                         attn_cpu_level_name(options->level), attn_cpu_level_name(level));
    struct attn_engine *engine = attn_calloc(1, sizeof *engine);
    if (engine == NULL)
        return attn_fail_memory(error, sizeof *engine);
    engine->call_bytes = options->call_bytes;
    engine->yield_call_bytes = options->yield_call_bytes;
    attn_kernels_get(&engine->kernels, features);
    engine->pool_yield = (struct attn_yield){yield_wanted, yield_run, engine};
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&engine->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    const bool made = open_scratch(engine, threads);
    enum attn_status status = attn_pool_open(&engine->pool, threads);
    if (made && status != ATTN_OK && errno != ENOMEM)
        status = attn_fail(error, ATTN_NO_MEMORY, "threads", "%u threads cannot be started: %s",
                           threads, strerror(errno));
    else if (!made || status != ATTN_OK)
        status = attn_fail_memory(error, ATTN_SCRATCH_FLOATS * sizeof(float));
    else
        status = open_gemm(engine, options, error);
    if (status == ATTN_OK)
        *out = engine;
    else
        attn_engine_close(engine);
    return status;
}

void attn_engine_close(struct attn_engine *engine)
{
    if (engine == NULL)
        return;
    attn_pool_close(engine->pool);
    attn_workspace_fini(&engine->workspace);
    attn_free(engine->scratch);
    for (size_t i = 0; i < ATTN_YIELD_LEVELS - 1; i++) {
        attn_workspace_fini(&engine->spare[i].workspace);
        attn_free(engine->spare[i].scratch);
    }
    pthread_mutex_destroy(&engine->lock);
    attn_free(engine);
}

void attn_engine_describe(struct attn_engine_info *out, const struct attn_engine *engine)
{
    *out = (struct attn_engine_info){
        .threads = attn_pool_threads(engine->pool),
        .level = attn_cpu_level_of(engine->kernels.features),
        .level_name = engine->kernels.name,
        .gemm = engine->gemm_mode,
        .gemm_name = attn_gemm_mode_name(engine->gemm_mode),
        .gemm_missing = engine->gemm_missing.message,
        .blas_core = engine->gemm.core,
        .blas_overridden = engine->gemm.core != NULL && getenv("OPENBLAS_CORETYPE") != NULL,
    };
}

/* ---- Tasks of the caller ---- */

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
    attn_engine_lock(engine, NULL);
    attn_pool_run(engine->pool, run_plain, &plain, count);
    attn_engine_unlock(engine);
}
