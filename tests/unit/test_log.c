/* test_log.c: the lines of the log: valid JSON with any text in them, written without waiting. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "ops/log.h"
#include "suites.h"

static struct srv_log log_;
static int reader;

static void open_log(void)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    reader = ends[0];
    srv_log_open(&log_, SRV_LOG_ACCESS, ends[1]);
}

static void close_log(void)
{
    close(reader);
    close(log_.fd);
    srv_log_close(&log_);
}

/* The next line of the log as JSON, for json_decref. */
static json_t *next_line(void)
{
    char line[8192];
    size_t length = 0;
    do {
        ck_assert_uint_lt(length, sizeof line);
        ck_assert_int_eq(read(reader, line + length, 1), 1);
    } while (line[length++] != '\n');
    json_error_t error;
    json_t *json = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s: %.*s", error.text, (int)length, line);
    return json;
}

static const char *member(const json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));
    ck_assert_msg(text != NULL, "no %s", name);
    return text;
}

/* Whether the pipe is empty; takes a byte where it is not. */
static bool is_empty(void)
{
    char byte;
    ck_assert_int_eq(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    bool empty = read(reader, &byte, 1) < 0;
    ck_assert_int_eq(fcntl(reader, F_SETFL, 0), 0);
    return empty;
}

START_TEST(test_log_event_is_json_whatever_the_message_holds)
{
    static const char nasty[] = "quote \" back \\ line \n bell \a euro \xe2\x82\xac cut \xe2\x82";
    srv_log_event(&log_, SRV_LOG_INFO, "ready", "%s", nasty);
    json_t *line = next_line();
    ck_assert_str_eq(member(line, "level"), "info");
    ck_assert_str_eq(member(line, "event"), "ready");
    ck_assert_int_eq(strncmp(member(line, "message"), nasty, strlen(nasty) - 2), 0);
    const char *time = member(line, "time"); /* 2026-01-31T23:59:59.999Z */
    ck_assert_uint_eq(strlen(time), 24);
    ck_assert_int_eq(time[10], 'T');
    ck_assert_int_eq(time[19], '.');
    ck_assert_int_eq(time[23], 'Z');
    json_decref(line);
}
END_TEST

START_TEST(test_log_a_message_of_control_bytes_still_fits_a_line)
{
    char long_[1000];
    memset(long_, 1, sizeof long_ - 1);
    long_[sizeof long_ - 1] = '\0';
    srv_log_event(&log_, SRV_LOG_ERROR, "long", "%s", long_);
    json_t *line = next_line();
    ck_assert_uint_eq(strlen(member(line, "message")), 511);
    json_decref(line);
}
END_TEST

START_TEST(test_log_request_has_route_status_code_and_times)
{
    struct srv_request request = {
        .route = &srv_routes.items[0], .method = SRV_POST, .body_length = 77};
    memcpy(request.request_id, "abc", 4);
    request.reply.status = 429;
    request.reply.code = SRV_E_QUEUE_FULL;
    request.t_start = 1;
    request.t_replied = 1 + 2345678;
    srv_log_request(&log_, &request);
    json_t *line = next_line();
    ck_assert_str_eq(member(line, "level"), "access");
    ck_assert_str_eq(member(line, "request_id"), "abc");
    ck_assert_str_eq(member(line, "method"), "POST");
    ck_assert_str_eq(member(line, "route"), "/attend");
    ck_assert_str_eq(member(line, "code"), "queue_full");
    ck_assert_int_eq(json_integer_value(json_object_get(line, "status")), 429);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "bytes_in")), 77);
    ck_assert_double_eq_tol(json_real_value(json_object_get(line, "ms")), 2.345, 1e-9);
    ck_assert_ptr_null(json_object_get(line, "compute_ms")); /* the request was not computed */
    json_decref(line);
}
END_TEST

START_TEST(test_log_computed_request_has_its_stages)
{
    struct srv_request request = {.route = &srv_routes.items[0]};
    request.t_compute = 5000000;
    request.t_computed = 6234999;
    srv_log_request(&log_, &request);
    json_t *line = next_line();
    ck_assert_double_eq_tol(json_real_value(json_object_get(line, "compute_ms")), 1.234, 1e-9);
    ck_assert_double_eq(json_real_value(json_object_get(line, "write_ms")), 0);
    ck_assert_ptr_null(json_object_get(line, "code"));
    json_decref(line);
}
END_TEST

START_TEST(test_log_levels_above_the_configured_one_are_silent)
{
    struct srv_request request = {.route = NULL};
    log_.level = SRV_LOG_ERROR;
    srv_log_event(&log_, SRV_LOG_INFO, "info", "no");
    srv_log_request(&log_, &request);
    ck_assert(is_empty());
    srv_log_event(&log_, SRV_LOG_ERROR, "error", "yes");
    ck_assert(!is_empty());
    log_.level = SRV_LOG_OFF;
    srv_log_event(&log_, SRV_LOG_ERROR, "error", "no");
    log_.level = SRV_LOG_ACCESS;
}
END_TEST

START_TEST(test_log_to_a_full_pipe_drops_counts_and_tells_later)
{
    char sink[1 << 16];
    size_t before = 0;
    while (log_.dropped == 0 && before < 100000) {
        srv_log_event(&log_, SRV_LOG_INFO, "fill", "line %zu", before++);
    }
    ck_assert_uint_eq(log_.dropped, 1);
    srv_log_event(&log_, SRV_LOG_INFO, "fill", "lost too");
    ck_assert_uint_eq(log_.dropped, 2);
    ck_assert_int_eq(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    while (read(reader, sink, sizeof sink) > 0)
        continue;
    ck_assert_int_eq(fcntl(reader, F_SETFL, 0), 0);
    srv_log_event(&log_, SRV_LOG_INFO, "after", "room again");
    json_t *told = next_line(), *after = next_line();
    ck_assert_str_eq(member(told, "event"), "log_dropped");
    ck_assert_str_eq(member(told, "message"), "2 lines");
    ck_assert_str_eq(member(after, "event"), "after");
    ck_assert_uint_eq(log_.dropped, 0);
    json_decref(told);
    json_decref(after);
}
END_TEST

Suite *suite_log(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    tcase_add_checked_fixture(tests, open_log, close_log);
    tcase_add_test(tests, test_log_event_is_json_whatever_the_message_holds);
    tcase_add_test(tests, test_log_a_message_of_control_bytes_still_fits_a_line);
    tcase_add_test(tests, test_log_request_has_route_status_code_and_times);
    tcase_add_test(tests, test_log_computed_request_has_its_stages);
    tcase_add_test(tests, test_log_levels_above_the_configured_one_are_silent);
    tcase_add_test(tests, test_log_to_a_full_pipe_drops_counts_and_tells_later);
    suite_add_tcase(suite, tests);
    return suite;
}
