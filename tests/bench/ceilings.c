/* ceilings.c: multiply-adds and bytes per second of several threads at once.
 *
 * Every rate is measured in the same way: the threads start a window together, each repeats its
 * unit of work until the window ends, and their rates add up.  The best of several windows counts,
 * since other work on the machine only lowers a rate.  Memory is read from huge pages: each thread
 * has a part of its own and continues in the next window where it stopped. */
#include "ceilings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "basics/mem.h"
#include "kernels/kernels.h"
#include "machine.h"

#define MAX_THREADS 128
#define WINDOWS 12
#define WINDOW_SECONDS 0.008
#define HUGE_PAGE ((size_t)2 << 20)
#define LEAST_BUFFER ((size_t)256 << 20)
#define UNIT_BYTES ((size_t)16384) /* of each stream */
#define ROUND_TRIPS 10000
#define OPERANDS ((size_t)1 << 20) /* bytes from one thread's to the next one's */
#define FACTOR 0x3f /* each byte of the buffer: floats and bf16 of 0.75, integers of 63 */
#define GROUP 200   /* round trips that are timed together */

struct bench_meter {
    struct bench_simd simd;
    char *buffer; /* [bytes] */
    size_t bytes;
};

/* One thread of a measurement. */
struct lane {
    pthread_barrier_t *start;
    double (*unit)(struct lane *lane); /* does some work and returns how much */
    const struct bench_simd *simd;
    enum bench_peak peak;
    enum bench_feed feed;
    const char *part;      /* this thread's part: BENCH_STREAMS streams of `stride` bytes */
    size_t stride, at;     /* a multiple of 64 bytes; the offset read next */
    double rates[WINDOWS]; /* per second */
};

/* L1: a strip of rows by words that fill half of 32 KiB.  L2: what a kernel reads for one panel,
 * 312 KiB, so most of it comes from L2 again in every pass. */
static double compute_unit(struct lane *lane)
{
    static const struct bench_operands operands[] = {
        [BENCH_L1] = {.rows = 14, .words = 96, .passes = 64},
        [BENCH_L2] = {.rows = ATTN_PRODUCT_ROWS, .words = ATTN_RANGE_WORDS, .passes = 1},
    };
    if (lane->feed == BENCH_REGISTERS)
        return lane->simd->burst[lane->peak]();
    struct bench_operands o = operands[lane->feed];
    o.w = (const float *)(const void *)lane->part;
    o.x = o.w + o.words * ATTN_PANEL;
    return lane->simd->fed[lane->peak](&o);
}

static double read_unit(struct lane *lane)
{
    size_t bytes = attn_min(UNIT_BYTES, lane->stride - lane->at);
    lane->simd->read(lane->part + lane->at, lane->stride, bytes);
    lane->at += bytes;
    if (lane->at == lane->stride)
        lane->at = 0;
    return (double)(bytes * BENCH_STREAMS);
}

static void *lane_main(void *argument)
{
    struct lane *lane = argument;
    for (int window = 0; window < WINDOWS; window++) {
        double done = 0, took;
        pthread_barrier_wait(lane->start);
        double start = bench_now();
        do {
            done += lane->unit(lane);
            took = bench_now() - start;
        } while (took < WINDOW_SECONDS);
        lane->rates[window] = done / took;
    }
    return NULL;
}

/* The rate of the best window, in 10^9 per second, of lanes that differ from `model` only in the
 * part of `bytes` that they read. */
static double best_rate(const struct lane *model, unsigned threads, size_t bytes)
{
    struct lane *lanes = attn_calloc(threads, sizeof *lanes);
    pthread_t ids[MAX_THREADS];
    pthread_barrier_t start;
    double best = 0;
    if (lanes == NULL)
        return 0;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        lanes[i] = *model;
        lanes[i].start = &start;
        lanes[i].stride = attn_max(bytes / threads / BENCH_STREAMS / 64, 1) * 64;
        lanes[i].part = model->part + i * lanes[i].stride * BENCH_STREAMS;
        if (pthread_create(&ids[i], NULL, lane_main, &lanes[i]) != 0)
            bench_die("cannot start thread %u", i);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    for (int window = 0; window < WINDOWS; window++) {
        double sum = 0;
        for (unsigned i = 0; i < threads; i++)
            sum += lanes[i].rates[window];
        best = sum > best ? sum : best;
    }
    pthread_barrier_destroy(&start);
    attn_free(lanes);
    return best * 1e-9;
}

/* ---- Hand-over of a cache line ------------------------------------------------------------- */

/* Waits for each odd number and answers with the next even one. */
static void *answer(void *argument)
{
    atomic_uint *turn = argument;
    for (unsigned i = 0; i < ROUND_TRIPS; i++) {
        while (atomic_load_explicit(turn, memory_order_acquire) != 2 * i + 1)
            continue;
        atomic_store_explicit(turn, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

/* The best of several groups of round trips: a thread that loses its CPU spoils a whole group. */
static double handover_ns(unsigned threads)
{
    _Alignas(ATTN_ALIGN) atomic_uint turn = 0;
    pthread_t other;
    double best = 1, start = 0;
    if (threads < 2 || bench_cpus() < 2) /* on one CPU this would wait for the scheduler */
        return 0;
    if (pthread_create(&other, NULL, answer, &turn) != 0)
        bench_die("cannot start a thread");
    for (unsigned i = 0; i < ROUND_TRIPS; i++) {
        if (i % GROUP == 0) {
            double now = bench_now();
            best = i > 0 && now - start < best ? now - start : best;
            start = now;
        }
        atomic_store_explicit(&turn, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(&turn, memory_order_acquire) != 2 * i + 2)
            continue;
    }
    pthread_join(other, NULL);
    return best * 1e9 / (2.0 * GROUP);
}

/* ---- All ceilings -------------------------------------------------------------------------- */

double bench_cache_room(void) { return 0.75 * (double)bench_cache_bytes(); }

struct bench_meter *bench_meter_new(enum attn_cpu_level level)
{
    struct bench_meter *meter = attn_calloc(1, sizeof *meter);
    if (meter == NULL)
        return NULL;
    bench_simd_get(&meter->simd, level);
    meter->bytes =
        attn_max(LEAST_BUFFER, attn_ceil_div(8 * bench_cache_bytes(), HUGE_PAGE) * HUGE_PAGE);
    meter->buffer = aligned_alloc(HUGE_PAGE, meter->bytes);
    if (meter->buffer == NULL) {
        bench_meter_free(meter);
        return NULL;
    }
    madvise(meter->buffer, meter->bytes, MADV_HUGEPAGE);
    memset(meter->buffer, FACTOR, meter->bytes);
    return meter;
}

void bench_meter_free(struct bench_meter *meter)
{
    if (meter == NULL)
        return;
    free(meter->buffer);
    attn_free(meter);
}

const char *bench_meter_level(const struct bench_meter *meter) { return meter->simd.name; }

void bench_ceilings_measure(struct bench_ceilings *out, struct bench_meter *meter, unsigned threads,
                            double cache_bytes)
{
    struct lane lane = {.simd = &meter->simd, .part = meter->buffer, .unit = read_unit};
    bool fits = cache_bytes > 0 && cache_bytes <= bench_cache_room();
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    *out = (struct bench_ceilings){0};
    out->memory = best_rate(&lane, threads, meter->bytes);
    out->cache = best_rate(&lane, threads, fits ? (size_t)cache_bytes : bench_cache_bytes() / 4);
    lane.unit = compute_unit;
    for (lane.feed = 0; lane.feed < BENCH_NUM_FEEDS; lane.feed++)
        for (lane.peak = 0; lane.peak < BENCH_NUM_PEAKS; lane.peak++)
            if (lane.feed == BENCH_REGISTERS ? meter->simd.burst[lane.peak] != NULL
                                             : meter->simd.fed[lane.peak] != NULL)
                out->peak[lane.feed][lane.peak] = best_rate(&lane, threads, threads * OPERANDS);
    out->handover_ns = handover_ns(threads);
}

struct bench_ceilings bench_ceilings_mean(const struct bench_ceilings *a,
                                          const struct bench_ceilings *b)
{
    struct bench_ceilings mean = {
        .memory = (a->memory + b->memory) / 2,
        .cache = (a->cache + b->cache) / 2,
        .handover_ns = (a->handover_ns + b->handover_ns) / 2,
    };
    for (int f = 0; f < BENCH_NUM_FEEDS; f++)
        for (int i = 0; i < BENCH_NUM_PEAKS; i++)
            mean.peak[f][i] = (a->peak[f][i] + b->peak[f][i]) / 2;
    return mean;
}
