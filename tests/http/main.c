/* main.c: runs every HTTP suite against a real daemon, each test in a process of its own.
 *
 * ATTND names the daemon under test (build/attnd by default); run from the top directory
 * of the tree.  libcheck reads CK_RUN_SUITE=name, CK_RUN_CASE=name, CK_FORK=no and
 * CK_VERBOSITY=verbose from the environment. */
#include <curl/curl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "suites.h"

/* Sanitizers slow a test down tenfold, and the machine may be busy. */
#define TIMEOUT_S "300"

#define SUITE(name) suite_##name,

static Suite *(*const suites[])(void) = {SUITES(SUITE)};

int main(void)
{
    if (setenv("CK_DEFAULT_TIMEOUT", TIMEOUT_S, 0) != 0 ||
        curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    curl_global_cleanup();
    printf("%d passed, %d failed\n", run - failed, failed);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
