/* test_observed.c: what a monitoring system sees of a request: series by model, requests that wait
 * and that run, the process. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "long_call.h"
#include "metrics_text.h"
#include "served.h"
#include "suites.h"

/* ---- Metrics --------------------------------------------------------------------------------- */

#define MODEL(name) \
    "{\"name\":\"" name "\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":4,\"seed\":1}}"
#define CONFIG "{\"port\":0,\"threads\":1,\"models\":[" MODEL("first") "," MODEL("second") "]}"

static void serve_two(void) { serve(CONFIG); }

static void decode(const char *id, const char *model)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",\"start\":true,\"model\":\"%s\",", id, model);
    add_rows(&body, 1);
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
    text_free(&body);
}

START_TEST(test_computations_sessions_and_weights_are_counted_by_model)
{
    decode("a", "first");
    decode("b", "first");
    decode("c", "second");
    struct answer plain = client_post(&client, "/attend",
                                      "{\"query\":[[[1],[2]]],\"key\":[[[1]]],\"value\":[[[7]]]}");
    expect_answer(&plain, 200, NULL, "/attend");
    answer_free(&plain);
    static const struct {
        const char *sample;
        double value;
    } wanted[] = {
        {"attnd_decode_rows_total{model=\"first\"}", 2},
        {"attnd_decode_rows_total{model=\"second\"}", 1},
        {"attnd_decode_rows_total", 3},
        {"attnd_decode_batch_seconds_count{model=\"second\"}", 1},
        {"attnd_attend_rows_total{model=\"(none)\"}", 2},
        {"attnd_attend_rows_total{model=\"first\"}", 0},
        {"attnd_attend_seconds_count{model=\"(none)\"}", 1},
        {"attnd_model_sessions{model=\"first\"}", 2},
        {"attnd_model_sessions{model=\"second\"}", 1},
        {"attnd_sessions", 3},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        ck_assert_msg(call_metric(&client, wanted[i].sample) == wanted[i].value, "%s is %g",
                      wanted[i].sample, call_metric(&client, wanted[i].sample));
    call_delete(&client, "a");
    ck_assert_double_eq(call_metric(&client, "attnd_model_sessions{model=\"first\"}"), 1);
    ck_assert_double_eq(call_metric(&client, "attnd_model_weight_bytes"),
                        call_metric(&client, "attnd_weight_bytes"));
}
END_TEST

/* No label of any series is a text of the client. */
START_TEST(test_texts_of_clients_are_no_labels)
{
    struct answer step = client_post(&client, "/decode",
                                     "{\"session_id\":\"intruder\",\"start\":true,"
                                     "\"model\":\"intruder\",\"hidden_states\":[1]}");
    expect_answer(&step, 404, "model_not_found", "/decode");
    struct answer path = client_get(&client, "/models/intruder?intruder");
    expect_answer(&path, 404, "model_not_found", "/models/intruder");
    struct answer metrics = client_get(&client, "/metrics");
    ck_assert_uint_ge(metrics_check(metrics.text), 100);
    ck_assert_ptr_null(strstr(metrics.text, "intruder"));
    answer_free(&step);
    answer_free(&path);
    answer_free(&metrics);
}
END_TEST

START_TEST(test_the_process_has_its_usual_metrics)
{
    double cpu = call_metric(&client, "process_cpu_seconds_total");
    double start = call_metric(&client, "process_start_time_seconds");
    ck_assert_double_gt(cpu, 0);
    ck_assert_double_le(cpu, daemon_cpu_s(&served) + 0.1);
    ck_assert_double_ge(start, (double)time(NULL) - 600);
    ck_assert_double_le(start, (double)time(NULL) + 1);
    ck_assert_double_ge(call_metric(&client, "process_virtual_memory_bytes"),
                        call_metric(&client, "process_resident_memory_bytes"));
    ck_assert_double_gt(call_metric(&client, "process_max_fds"),
                        call_metric(&client, "process_open_fds"));
    decode("a", "first");
    ck_assert_double_gt(call_metric(&client, "process_cpu_seconds_total"), cpu);
    ck_assert_double_eq(call_metric(&client, "process_start_time_seconds"), start);
}
END_TEST

#define LONG_ROWS 12000

static double sample_of(const struct answer *metrics, const char *name)
{
    const char *at = strstr(metrics->text, name);
    ck_assert_msg(at != NULL, "no %s", name);
    return strtod(at + strlen(name), NULL);
}

/* Without API keys long calls are computed one after the other: the first runs, the second waits,
 * and every scrape says how many wait and how many run of those that are there. */
START_TEST(test_requests_that_wait_and_that_run_are_counted_apart)
{
    struct long_call first, second;
    bool seen = false;
    long_begin(&first, &client, "\"model\":\"first\",", LONG_ROWS);
    long_begin(&second, &client, "\"model\":\"second\",", LONG_ROWS);
    for (unsigned tries = 0; !atomic_load(&first.answered) && tries < WAIT_MS; tries++) {
        struct answer metrics = client_get(&client, "/metrics");
        double depth = sample_of(&metrics, "\nattnd_queue_depth ");
        double waiting = sample_of(&metrics, "\nattnd_requests_waiting ");
        double running = sample_of(&metrics, "\nattnd_requests_running ");
        ck_assert_double_eq(waiting + running, depth);
        seen = seen || (waiting == 1 && running == 1);
        answer_free(&metrics);
        pause_ms(1);
    }
    long_end(&first, 200, NULL);
    long_end(&second, 200, NULL);
    ck_assert_msg(seen, "no scrape has seen one that runs and one that waits");
    await_depth(&client, 0, 0);
    ck_assert_double_eq(call_metric(&client, "attnd_requests_running"), 0);
    ck_assert_double_eq(call_metric(&client, "attnd_requests_waiting"), 0);
}
END_TEST

Suite *suite_observed(void)
{
    Suite *suite = suite_create("observed");
    TCase *tests = tcase_create("observed");
    tcase_set_timeout(tests, 240);
    tcase_add_checked_fixture(tests, serve_two, serve_end);
    tcase_add_test(tests, test_computations_sessions_and_weights_are_counted_by_model);
    tcase_add_test(tests, test_texts_of_clients_are_no_labels);
    tcase_add_test(tests, test_the_process_has_its_usual_metrics);
    tcase_add_test(tests, test_requests_that_wait_and_that_run_are_counted_apart);
    suite_add_tcase(suite, tests);
    return suite;
}
