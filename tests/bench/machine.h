/* machine.h: the clock, this machine's name and memory, and ending the program on failure. */
#ifndef TESTS_BENCH_MACHINE_H
#define TESTS_BENCH_MACHINE_H

#include <stddef.h>

double bench_now(void); /* seconds, monotonic */

/* Prints one line on standard error and exits with 1. */
void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Returns `memory`; calls bench_die where it is NULL. */
void *bench_need(void *memory);

unsigned bench_cpus(void);      /* that this process may use */
size_t bench_cache_bytes(void); /* of the L3 cache that the first CPU reaches */

/* "Intel(R) Xeon(R) Processor @ 3.00GHz (6/85/7), 2 CPUs, 35.8 MiB L3", where 6/85/7 are family,
 * model and stepping. */
void bench_machine_name(char *out, size_t size);

/* Starts a new peak.  Freed memory goes back to the system first, so that later allocations
 * show. */
void bench_reset_peak(void);
double bench_resident_mib(void); /* now */
double bench_peak_mib(void);     /* the most since the last reset */

#endif
