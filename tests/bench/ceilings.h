/* ceilings.h: the highest rates that this machine reaches at the moment of a run.
 *
 * Memory bandwidth of a virtual machine changes by a factor for seconds to minutes, as its threads
 * share a cache with each other or with other machines' threads.  So a time means something only
 * beside the ceilings measured right before and after it. */
#ifndef TESTS_BENCH_CEILINGS_H
#define TESTS_BENCH_CEILINGS_H

#include "peaks.h"

struct bench_ceilings {
    /* GFLOP/s of all threads; 0: no such instruction */
    double peak[BENCH_NUM_FEEDS][BENCH_NUM_PEAKS];
    double memory, cache; /* GB/s of reading, all threads; beyond and within the L3 cache */
    double handover_ns;   /* a cache line from one thread to another; 0: one thread */
};

struct bench_meter; /* a buffer larger than the caches, and the loops to run */

/* For engines of a level, one of which is open; NULL where memory is short. */
struct bench_meter *bench_meter_new(enum attn_cpu_level level);
void bench_meter_free(struct bench_meter *meter);

/* The loops' instructions: "avx512", "avx2" or "sse2". */
const char *bench_meter_level(const struct bench_meter *meter);

/* Bytes that count as fitting the L3 cache: three quarters of it, as others use it too. */
double bench_cache_room(void);

/* Measures with `threads` threads in about a second.  The rate `cache` is that of
 * reading `cache_bytes` where they fit the cache, else a quarter of the cache. */
void bench_ceilings_measure(struct bench_ceilings *out, struct bench_meter *meter, unsigned threads,
                            double cache_bytes);

struct bench_ceilings bench_ceilings_mean(const struct bench_ceilings *a,
                                          const struct bench_ceilings *b);

#endif
