/* pool.c: the worker pool: jobs, joining them, pauses and sleeping.
 *
 * A lane holds one job.  The first lane is for the caller's tasks, each further one for tasks that
 * interrupt those of the lane before it.  A lane's `state` holds in one word the generation of the
 * current job, whether it is open, and how many workers have joined it.  A worker joins by raising
 * that count while the job is open.  When the indices have run out the caller closes the job and
 * waits for the count to fall to zero.  A worker that wakes late therefore costs nothing, and no
 * worker reads a job's fields unless the caller is bound to wait for it.
 *
 * Sleeping: a worker that has spun without finding a job counts itself in `sleepers` and sleeps on
 * `generation`.  The caller changes `generation` before it reads `sleepers`, so no wake is lost. */
#include "machine/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "basics/mem.h"

#define SPIN_NS 30000
#define STATE_OPEN (UINT64_C(1) << 31)
#define STATE_ACTIVE (STATE_OPEN - 1)

#define LANES ATTN_YIELD_LEVELS

struct lane {
    _Alignas(ATTN_ALIGN) atomic_uint_fast64_t state; /* generation << 32 | open | active */
    _Alignas(ATTN_ALIGN) atomic_size_t next;         /* the next index to take */
    /* The job: written before it opens, read by threads that have joined it. */
    attn_pool_task *task;
    void *context;
    size_t count;
    /* Of the call whose job it is. */
    const struct attn_yield *yield; /* used by the caller only */
    atomic_bool cancelled;          /* yield->run has returned false */
};

struct worker {
    struct attn_pool *pool;
    pthread_t id;
    unsigned thread;
    unsigned above;         /* it may join lanes from this one on: those above its task's */
    uint64_t joined[LANES]; /* the generation it joined last */
};

struct attn_pool {
    struct lane lanes[LANES];
    _Alignas(ATTN_ALIGN) atomic_uint generation; /* futex word */
    atomic_uint sleepers;
    atomic_bool stop;
    atomic_uint level; /* calls of yield->run that the caller is within: its lane */
    bool caller_only;  /* used by the caller only */
    unsigned threads, started;
    struct worker *workers; /* [threads - 1] */
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` does not wait on current cores */
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_cancelled(const struct lane *lane)
{
    return atomic_load_explicit(&lane->cancelled, memory_order_relaxed);
}

static void run_tasks(struct attn_pool *pool, unsigned which, unsigned thread)
{
    struct lane *lane = &pool->lanes[which];
    size_t count = lane->count;
    for (;;) {
        attn_pool_pause(pool, thread);
        if (is_cancelled(lane))
            return;
        size_t i = atomic_fetch_add_explicit(&lane->next, 1, memory_order_relaxed);
        if (i >= count)
            return;
        lane->task(lane->context, i, thread);
    }
}

/* Joins the lane's job if it is open and this worker has not joined it before. */
static bool try_join(struct worker *self, unsigned which)
{
    struct lane *lane = &self->pool->lanes[which];
    uint64_t state = atomic_load_explicit(&lane->state, memory_order_acquire);
    while ((state >> 32) != self->joined[which] && (state & STATE_OPEN) != 0) {
        if (!atomic_compare_exchange_weak(&lane->state, &state, state + 1))
            continue;
        unsigned above = self->above;
        self->joined[which] = state >> 32;
        self->above = which + 1;
        run_tasks(self->pool, which, self->thread);
        self->above = above;
        atomic_fetch_sub(&lane->state, 1);
        return true;
    }
    return false;
}

/* Joins a job of the lanes that the worker may join, the innermost first. */
static bool try_join_any(struct worker *self)
{
    for (unsigned which = LANES; which-- > self->above;)
        if (try_join(self, which))
            return true;
    return false;
}

/* Takes part in the inner lanes' jobs for as long as they follow one another closely. */
static void join_inner_jobs(struct worker *self)
{
    struct attn_pool *pool = self->pool;
    uint64_t deadline = 0;
    while (atomic_load_explicit(&pool->level, memory_order_acquire) >= self->above) {
        bool joined = try_join_any(self);
        uint64_t now = now_ns();
        if (joined || deadline == 0)
            deadline = now + SPIN_NS;
        else if (now >= deadline)
            return;
        pause_cpu();
    }
}

/* Asks the yield of the caller's call, and lets it run other work if that is wanted. */
static void ask_yield(struct attn_pool *pool)
{
    unsigned level = attn_pool_level(pool);
    struct lane *lane = &pool->lanes[level];
    const struct attn_yield *yield = lane->yield;
    if (yield == NULL || level + 1 == LANES || is_cancelled(lane) || !yield->wanted(yield->context))
        return;
    atomic_store(&pool->level, level + 1);
    bool go_on = yield->run(yield->context);
    atomic_store(&pool->level, level);
    if (!go_on)
        atomic_store(&lane->cancelled, true);
}

void attn_pool_pause(struct attn_pool *pool, unsigned thread)
{
    if (thread == 0)
        ask_yield(pool);
    else
        join_inner_jobs(&pool->workers[thread - 1]);
}

unsigned attn_pool_level(const struct attn_pool *pool)
{
    return atomic_load_explicit(&pool->level, memory_order_relaxed);
}

bool attn_pool_cancelled(const struct attn_pool *pool)
{
    return is_cancelled(&pool->lanes[attn_pool_level(pool)]);
}

void attn_pool_set_yield(struct attn_pool *pool, const struct attn_yield *yield)
{
    struct lane *lane = &pool->lanes[attn_pool_level(pool)];
    lane->yield = yield;
    atomic_store(&lane->cancelled, false);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct attn_pool *pool = self->pool;
    pthread_setname_np(pthread_self(), "attn-worker");
    while (!atomic_load(&pool->stop)) {
        unsigned generation = atomic_load(&pool->generation);
        uint64_t deadline = now_ns() + SPIN_NS;
        bool joined = false;
        while (!(joined = try_join_any(self)) && now_ns() < deadline)
            for (int i = 0; i < 16; i++)
                pause_cpu();
        if (joined)
            continue;
        atomic_fetch_add(&pool->sleepers, 1);
        if (!atomic_load(&pool->stop))
            syscall(SYS_futex, &pool->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
        atomic_fetch_sub(&pool->sleepers, 1);
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
    if (count <= 1 || pool->threads == 1 || pool->caller_only) {
        for (size_t i = 0; i < count; i++) {
            ask_yield(pool);
            if (attn_pool_cancelled(pool))
                return;
            task(context, i, 0);
        }
        return;
    }
    unsigned which = attn_pool_level(pool);
    struct lane *lane = &pool->lanes[which];
    lane->task = task;
    lane->context = context;
    lane->count = count;
    atomic_store_explicit(&lane->next, 0, memory_order_relaxed);
    uint64_t job = (atomic_load(&lane->state) >> 32) + 1;
    atomic_store(&lane->state, (job & UINT32_MAX) << 32 | STATE_OPEN);
    wake_sleepers(pool);
    run_tasks(pool, which, 0);
    atomic_fetch_and(&lane->state, ~STATE_OPEN);
    while ((atomic_load_explicit(&lane->state, memory_order_acquire) & STATE_ACTIVE) != 0) {
        pause_cpu();
        ask_yield(pool);
    }
}

void attn_pool_set_caller_only(struct attn_pool *pool, bool caller_only)
{
    pool->caller_only = caller_only;
}

enum attn_status attn_pool_open(struct attn_pool **out, unsigned threads)
{
    int failed = ENOMEM;
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
        failed = pthread_create(&worker->id, NULL, worker_main, worker);
        if (failed != 0)
            goto fail;
        pool->started++;
    }
    *out = pool;
    return ATTN_OK;
fail:
    attn_pool_close(pool);
    errno = failed;
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
