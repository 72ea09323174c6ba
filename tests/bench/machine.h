/* machine.h: the clock, the name of this machine, its memory, and giving up. */
#ifndef TESTS_BENCH_MACHINE_H
#define TESTS_BENCH_MACHINE_H

#include <stddef.h>

double bench_now(void); /* seconds, monotonic */

/* One line on stderr and exit 1. */
void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* memory, or bench_die. */
void *bench_need(void *memory);

unsigned bench_cpus(void);      /* that this process may use */
size_t bench_cache_bytes(void); /* of the L3 cache that the first CPU reaches */

/* "Intel(R) Xeon(R) Processor @ 3.00GHz (6/85/7), 2 CPUs, 35.8 MiB L3", numbers being family, model
 * and stepping. */
void bench_machine_name(char *out, size_t size);

/* What was freed goes back to the system first, so that it cannot hide what is taken later. */
void bench_reset_peak(void);
double bench_resident_mib(void); /* now */
double bench_peak_mib(void);     /* the most since the last reset */

#endif
