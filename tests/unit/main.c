/* main.c: runs every unit suite, each test in a process of its own.  Some suites wait for a disk,
 * so that one more runs than there are CPUs.
 *
 * libcheck reads CK_RUN_SUITE=name (one suite), CK_RUN_CASE=name, CK_FORK=no (one process, for a
 * debugger), CK_VERBOSITY=verbose and CK_DEFAULT_TIMEOUT=seconds from the environment. */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner.h"
#include "suites.h"

/* Generous: sanitizers slow a test down tenfold, and the machine may be busy.  libcheck's own
 * default of 4 s is meant for toys. */
#define TIMEOUT_S "120"

#define ROW(name) {#name, suite_##name},

static const struct runner_suite suites[] = {SUITES(ROW)};

int main(void)
{
    if (setenv("CK_DEFAULT_TIMEOUT", TIMEOUT_S, 0) != 0)
        return EXIT_FAILURE;
    return runner_run("unit", suites, sizeof suites / sizeof suites[0], 0,
                      1 + (size_t)sysconf(_SC_NPROCESSORS_ONLN));
}
