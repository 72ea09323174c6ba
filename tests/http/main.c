/* main.c: runs every HTTP suite against a real daemon, each test in a process of its own.  Suites
 * mostly wait, so that more run at a time than there are CPUs.
 *
 * ATTND names the daemon under test (build/attnd by default); run from the top directory
 * of the tree.  libcheck reads CK_RUN_SUITE=name, CK_RUN_CASE=name, CK_FORK=no and
 * CK_VERBOSITY=verbose from the environment. */
#include <curl/curl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner.h"
#include "suites.h"

/* Sanitizers slow a test down tenfold, and the machine may be busy. */
#define TIMEOUT_S "300"

#define ROW(name) {#name, suite_##name},

#define ONE_MORE(name) +1 /* a list of these, after 0, is the number of names */

static const struct runner_suite suites[] = {SUITES(ROW)};

int main(void)
{
    if (setenv("CK_DEFAULT_TIMEOUT", TIMEOUT_S, 0) != 0 ||
        curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    int status = runner_run("http_suite", suites, sizeof suites / sizeof suites[0],
                            0 SUITES_ALONE(ONE_MORE), 2 * (size_t)sysconf(_SC_NPROCESSORS_ONLN));
    curl_global_cleanup();
    return status;
}
