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
#include "pairs.h"
#include "scenes.h"
#include "verdict.h"
#include "volumes.h"

#define QUICK_STRIDE 24
#define SCENE_STRIDE 3 /* for starts, saves and stops, each of which takes a tenth of a second */
#define PAIR_STRIDE 40
#define INJECTIONS_MIN 1000 /* of each test that counts them, */
#define INJECTIONS_QUICK 100
#define PAIRS_MIN 4 /* of the short form: one for each of its requests */

static char directory[64];

static unsigned stride(void) { return figures.quick ? QUICK_STRIDE : 1; }

/* A test that has found too few calls to fail has shown nothing. */
static void expect_injections(size_t before)
{
    ck_assert_uint_ge(figures.injections - before,
                      figures.quick ? INJECTIONS_QUICK : INJECTIONS_MIN);
}

START_TEST(test_requests_survive_every_failing_call)
{
    const size_t before = figures.injections;
    live_run("requests", NULL, stride());
    expect_injections(before);
}
END_TEST

START_TEST(test_requests_survive_every_failing_call_with_a_journal)
{
    const char *const arguments[] = {
        "--durability", "journal", "--journal-fsync", "always", "--state-dir", directory, NULL};
    const size_t before = figures.injections;
    live_run("journal", arguments, stride());
    expect_injections(before);
}
END_TEST

START_TEST(test_start_save_and_stop_survive_every_failing_call)
{
    const size_t before = figures.injections;
    scenes_run(directory, figures.quick ? QUICK_STRIDE : SCENE_STRIDE);
    expect_injections(before);
}
END_TEST

START_TEST(test_what_is_refused_leaves_no_trace_whichever_two_calls_fail)
{
    pairs_run(directory, figures.quick ? 0 : PAIR_STRIDE);
    ck_assert_uint_ge(figures.pairs, PAIRS_MIN);
}
END_TEST

START_TEST(test_sessions_outlive_file_systems_that_fail) { volumes_run(directory); }
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("fault");
    const struct {
        const char *name;
        const TTest *test;
    } cases[] = {
        {"requests", test_requests_survive_every_failing_call},
        {"journal", test_requests_survive_every_failing_call_with_a_journal},
        {"starts", test_start_save_and_stop_survive_every_failing_call},
        {"pairs", test_what_is_refused_leaves_no_trace_whichever_two_calls_fail},
        {"volumes", test_sessions_outlive_file_systems_that_fail},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TCase *tests = tcase_create(cases[i].name); /* CK_RUN_CASE runs one alone */
        tcase_add_test(tests, cases[i].test);
        tcase_set_timeout(tests, 0);
        suite_add_tcase(suite, tests);
    }
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
    srunner_run_all(runner, CK_NORMAL);
    const bool ran = srunner_ntests_run(runner) > 0 && srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    volumes_end();
    snprintf(command, sizeof command, "rm -rf %s", directory);
    bool removed = system(command) == 0;
    const struct verdict_condition conditions[] = {
        VERDICT(ran), VERDICT(removed), VERDICT(figures.wrong == 0), VERDICT(figures.leaks == 0)};
    const bool right = VERDICTS("fault", conditions);
    printf("fault: %zu injections, %zu wrong, %zu leaks; %zu requests refused and %zu unanswered, "
           "then right; %zu starts ended with one line; %zu pairs; %zu file systems%s\n",
           figures.injections, figures.wrong, figures.leaks, figures.refused, figures.unanswered,
           figures.ended, figures.pairs, figures.volumes, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
