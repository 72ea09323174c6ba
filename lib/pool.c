/* pool.c: the worker pool.
 *
 * `state` holds, in one word, the generation of the current job, whether it is open, and how many
 * workers are inside.  A worker joins by raising the count while the job is open; the caller closes
 * the job when the indices have run out and waits for the count to fall to zero.  So a worker that
 * wakes late costs nothing, and nobody reads a job's fields unless the caller is bound to wait for
 * them.
 *
 * Sleeping: a worker that has spun in vain registers in `sleepers` and sleeps on `generation`; the
 * caller changes `generation` before it looks at `sleepers`, so no wake is lost. */
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"

#define SPIN_NS 30000
#define STATE_OPEN (UINT64_C(1) << 31)
#define STATE_ACTIVE (STATE_OPEN - 1)

struct worker {
    struct attn_pool *pool;
    pthread_t id;
    unsigned thread;
};

struct attn_pool {
    _Alignas(ATTN_ALIGN) atomic_uint_fast64_t state; /* generation << 32 | open | active */
    _Alignas(ATTN_ALIGN) atomic_size_t next;         /* the index to take */
    _Alignas(ATTN_ALIGN) atomic_uint generation;     /* futex word */
    atomic_uint sleepers;
    atomic_bool stop;
    /* The job: written before it opens, read by those inside. */
    attn_pool_task *task;
    void *context;
    size_t count;
    unsigned threads, started;
    bool alone;             /* the caller's */
    struct worker *workers; /* [threads - 1] */
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void take_tasks(struct attn_pool *pool, unsigned thread)
{
    size_t count = pool->count;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= count)
            return;
        pool->task(pool->context, i, thread);
    }
}

/* Joins the current job if it is open and not `seen`; returns the generation last looked at. */
static uint64_t try_join(struct attn_pool *pool, uint64_t seen, unsigned thread)
{
    uint64_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
    while ((state >> 32) != seen && (state & STATE_OPEN) != 0) {
        if (!atomic_compare_exchange_weak(&pool->state, &state, state + 1))
            continue;
        take_tasks(pool, thread);
        atomic_fetch_sub(&pool->state, 1);
        return state >> 32;
    }
    return seen;
}

static void sleep_until_change(struct attn_pool *pool, unsigned generation)
{
    atomic_fetch_add(&pool->sleepers, 1);
    if (!atomic_load(&pool->stop))
        syscall(SYS_futex, &pool->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct attn_pool *pool = self->pool;
    uint64_t seen = 0;
    while (!atomic_load(&pool->stop)) {
        unsigned generation = atomic_load(&pool->generation);
        uint64_t before = seen, deadline = now_ns() + SPIN_NS;
        while ((seen = try_join(pool, before, self->thread)) == before && now_ns() < deadline)
            for (int i = 0; i < 16; i++)
                pause_cpu();
        if (seen == before)
            sleep_until_change(pool, generation);
    }
    return NULL;
}

static void wake_sleepers(struct attn_pool *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleepers) != 0)
        syscall(SYS_futex, &pool->generation, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void attn_pool_run(struct attn_pool *pool, attn_pool_task *task, void *context, size_t count)
{
    if (count <= 1 || pool->threads == 1 || pool->alone) {
        for (size_t i = 0; i < count; i++)
            task(context, i, 0);
        return;
    }
    pool->task = task;
    pool->context = context;
    pool->count = count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    uint64_t job = (atomic_load(&pool->state) >> 32) + 1;
    atomic_store(&pool->state, (job & UINT32_MAX) << 32 | STATE_OPEN);
    wake_sleepers(pool);
    take_tasks(pool, 0);
    atomic_fetch_and(&pool->state, ~STATE_OPEN);
    while ((atomic_load_explicit(&pool->state, memory_order_acquire) & STATE_ACTIVE) != 0)
        pause_cpu();
}

void attn_pool_alone(struct attn_pool *pool, bool alone) { pool->alone = alone; }

enum attn_status attn_pool_open(struct attn_pool **out, unsigned threads)
{
    struct attn_pool *pool = attn_calloc(1, sizeof *pool);
    if (pool == NULL)
        return ATTN_NO_MEMORY;
    pool->threads = threads;
    pool->workers = attn_calloc(threads, sizeof *pool->workers);
    if (pool->workers == NULL)
        goto fail;
    for (unsigned i = 0; i + 1 < threads; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .thread = i + 1};
        if (pthread_create(&worker->id, NULL, worker_main, worker) != 0)
            goto fail;
        pool->started++;
    }
    *out = pool;
    return ATTN_OK;
fail:
    attn_pool_close(pool);
    return ATTN_NO_MEMORY;
}

void attn_pool_close(struct attn_pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->stop, true);
    wake_sleepers(pool);
    for (unsigned i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].id, NULL);
    attn_free(pool->workers);
    attn_free(pool);
}

unsigned attn_pool_threads(const struct attn_pool *pool) { return pool->threads; }
