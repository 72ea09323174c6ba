/* main.c: runs every unit suite, each test in a process of its own, and prints libcheck's summary.
 *
 * libcheck reads CK_RUN_SUITE=name (one suite), CK_RUN_CASE=name, CK_FORK=no (one process, for a
 * debugger), CK_VERBOSITY=verbose and CK_DEFAULT_TIMEOUT=seconds from the environment. */
#include <stddef.h>
#include <stdlib.h>

#include "suites.h"

/* Generous: sanitizers slow a test down tenfold, and the machine may be busy.  libcheck's own
 * default of 4 s is meant for toys. */
#define TIMEOUT_S "120"

#define SUITE(name) suite_##name,

static Suite *(*const suites[])(void) = {SUITES(SUITE)};

int main(void)
{
    if (setenv("CK_DEFAULT_TIMEOUT", TIMEOUT_S, 0) != 0)
        return EXIT_FAILURE;
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
