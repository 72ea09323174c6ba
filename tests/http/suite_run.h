/* suite_run.h: one suite in this process, for programs that end with a figure of their own. */
#ifndef TESTS_SUITE_RUN_H
#define TESTS_SUITE_RUN_H

#include <check.h>
#include <stdbool.h>

/* Runs the suite without forking, and frees it; true where every test passed. */
bool suite_run(Suite *suite);

#endif
