/* report.h: results as JSON lines, as a table, and as Markdown. */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include <stdio.h>

#include "runs.h"

/* One object on one line of stdout. */
void bench_print_json(const struct bench_result *result);

/* The machine and its ceilings at 1 and at the engine's threads, then a table: a head, and a row
 * for each result. */
void bench_print_machine(FILE *to, const struct attn_engine_info *engine,
                         const struct bench_meter *meter, const struct bench_ceilings *one,
                         const struct bench_ceilings *all);
void bench_print_head(void);
void bench_print_row(const struct bench_result *result);

/* The medians of two engines that took turns. */
void bench_print_ratio(const struct bench_result sides[2]);

/* Puts machine and results between the two marker lines of the document at `path` and leaves the
 * rest of it alone; where there is no such file one of just that is made. */
void bench_write_markdown(const char *path, const struct bench_result results[], size_t count,
                          const struct bench_meter *meter, const struct bench_ceilings *one,
                          const struct bench_ceilings *all);

#endif
