/* runner.h: libcheck's suites, several at a time. */
#ifndef TESTS_COMMON_RUNNER_H
#define TESTS_COMMON_RUNNER_H

#include <check.h>
#include <stddef.h>

struct runner_suite {
    const char *name; /* as libcheck's */
    Suite *(*create)(void);
};

/* Runs the suites in their order, each in a process of its own and `jobs` at a time, and the last
 * `alone` ones one after the other when all others have ended.  Shows what a suite has printed when
 * it ends; the last line counts tests, and those before it name the suites that failed.  Where
 * CK_RUN_SUITE names a suite, that one alone runs, in this process.  Returns the program's exit
 * status: a run without a test has failed too. */
int runner_run(const char *program, const struct runner_suite *suites, size_t count, size_t alone,
               size_t jobs);

#endif
