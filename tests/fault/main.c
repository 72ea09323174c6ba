/* main.c: makes every call of attnd that can fail do so in turn: build/fault [--quick].
 *
 * The last line has the figures. */
#include <check.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject.h"
#include "live.h"
#include "scenes.h"

#define QUICK_STRIDE 24
#define SCENE_STRIDE 3 /* for starts, saves and stops, each of which takes a tenth of a second */
#define INJECTIONS_MIN 3000
#define INJECTIONS_QUICK 200

static char directory[64];

static unsigned stride(void) { return figures.quick ? QUICK_STRIDE : 1; }

START_TEST(test_requests_survive_every_failing_call) { live_run("requests", NULL, stride()); }
END_TEST

START_TEST(test_requests_survive_every_failing_call_with_a_journal)
{
    const char *const arguments[] = {
        "--durability", "journal", "--journal-fsync", "always", "--state-dir", directory, NULL};
    live_run("journal", arguments, stride());
}
END_TEST

START_TEST(test_start_save_and_stop_survive_every_failing_call)
{
    scenes_run(directory, figures.quick ? QUICK_STRIDE : SCENE_STRIDE);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("fault");
    TCase *tests = tcase_create("fault");
    tcase_add_test(tests, test_requests_survive_every_failing_call);
    tcase_add_test(tests, test_requests_survive_every_failing_call_with_a_journal);
    tcase_add_test(tests, test_start_save_and_stop_survive_every_failing_call);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(int argc, char *argv[])
{
    char command[128];
    figures.quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    snprintf(directory, sizeof directory, "/tmp/attnd-fault-XXXXXX");
    if (mkdtemp(directory) == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        !inject_open())
        return EXIT_FAILURE;
    SRunner *runner = srunner_create(suite());
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_MINIMAL);
    bool ran = srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    bool removed = system(command) == 0;
    size_t least = figures.quick ? INJECTIONS_QUICK : INJECTIONS_MIN;
    bool right =
        ran && removed && figures.wrong == 0 && figures.leaks == 0 && figures.injections >= least;
    printf("fault: %zu injections, %zu clean, %zu leaks; %zu requests refused and %zu unanswered, "
           "then right; %zu starts ended with one line%s\n",
           figures.injections, figures.injections - figures.wrong, figures.leaks, figures.refused,
           figures.unanswered, figures.ended, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
