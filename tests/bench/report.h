/* report.h: results as JSON lines and as a table. */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include "runs.h"

/* Prints one JSON object on one line of standard output. */
void bench_print_json(const struct bench_result *result);

/* Print the machine with its ceilings at 1 and at the engine's threads, then the head of a table,
 * then a row for each result. */
void bench_print_machine(const struct attn_engine_info *engine, const struct bench_meter *meter,
                         const struct bench_ceilings *one, const struct bench_ceilings *all);
void bench_print_head(void);
void bench_print_row(const struct bench_result *result);

/* Prints the medians of two engines that took turns. */
void bench_print_ratio(const struct bench_result sides[2]);

#endif
