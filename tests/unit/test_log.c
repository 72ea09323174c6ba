/* test_log.c: the lines of the log: valid JSON with any text in them, written without waiting. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "ops/log.h"
#include "suites.h"

static struct srv_log log_;
static int reader, writer;

static void open_log(void)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    reader = ends[0];
    writer = ends[1];
    ck_assert(srv_log_open(&log_, SRV_LOG_ACCESS, writer));
}

static void close_log(void)
{
    srv_log_close(&log_);
    close(reader);
    close(writer);
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

/* Whether the pipe is empty once all is written; takes a byte where it is not. */
static bool is_empty(void)
{
    char byte;
    srv_log_flush(&log_);
    ck_assert_int_eq(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    bool empty = read(reader, &byte, 1) < 0;
    ck_assert_int_eq(fcntl(reader, F_SETFL, 0), 0);
    return empty;
}

CASE(log, open_log, close_log, 0)

TEST(log_event_is_json_whatever_the_message_holds)
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

TEST(log_a_message_of_control_bytes_still_fits_a_line)
{
    char long_[1000];
    memset(long_, 1, sizeof long_ - 1);
    long_[sizeof long_ - 1] = '\0';
    srv_log_event(&log_, SRV_LOG_ERROR, "long", "%s", long_);
    json_t *line = next_line();
    ck_assert_uint_eq(strlen(member(line, "message")), 511);
    json_decref(line);
}

TEST(log_request_has_route_status_code_and_times)
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

TEST(log_computed_request_has_its_stages)
{
    struct srv_request request = {.route = &srv_routes.items[0]};
    request.t_compute = 5000000;
    request.t_computed = 6034999;
    srv_log_request(&log_, &request);
    json_t *line = next_line();
    ck_assert_double_eq_tol(json_real_value(json_object_get(line, "compute_ms")), 1.034, 1e-9);
    ck_assert_double_eq(json_real_value(json_object_get(line, "write_ms")), 0);
    ck_assert_ptr_null(json_object_get(line, "code"));
    json_decref(line);
}

TEST(log_levels_above_the_configured_one_are_silent)
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

TEST(log_to_a_full_pipe_drops_counts_and_tells_later)
{
    enum { LINES = 40000 }; /* far beyond the pipe's 64 KiB and the buffer */
    size_t read_ = 0, dropped = 0;
    for (size_t i = 0; i < LINES; i++) /* nobody reads: each call returns all the same */
        srv_log_event(&log_, SRV_LOG_INFO, "fill", "line %zu", i);
    while (read_ + dropped < LINES) {
        json_t *line = next_line();
        if (strcmp(member(line, "event"), "log_dropped") == 0)
            dropped += strtoul(member(line, "message"), NULL, 10);
        else
            read_++;
        json_decref(line);
    }
    ck_assert(read_ > 0 && dropped > 0);
    ck_assert_uint_eq(read_ + dropped, LINES);
    srv_log_event(&log_, SRV_LOG_INFO, "after", "room again");
    json_t *after = next_line();
    ck_assert_str_eq(member(after, "event"), "after");
    json_decref(after);
}

TEST(log_to_a_terminal_that_nobody_reads_holds_up_nobody)
{
    struct srv_log log;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(terminal, 0);
    ck_assert(srv_log_open(&log, SRV_LOG_INFO, terminal));
    for (size_t i = 0; i < 10000; i++)
        srv_log_event(&log, SRV_LOG_INFO, "fill", "line %zu", i);
    srv_log_close(&log);
    close(master); /* the thread's write fails, and it waits for the end of the process */
    close(terminal);
}

/* Whether each line of the file is JSON but `torn` ones. */
static void expect_lines(int fd, size_t torn)
{
    static char text[1 << 16];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    ck_assert_int_gt(length, 0);
    text[length] = '\0';
    for (char *line = text, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_msg(end != NULL, "ends in a part of a line: %s", line);
        json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
        torn -= json == NULL;
        json_decref(json);
    }
    ck_assert_uint_eq(torn, 0);
}

TEST(log_line_torn_by_a_full_disk_does_not_touch_the_next)
{
    struct srv_log log;
    char path[] = "/tmp/attnd-log-XXXXXX";
    int fd = mkstemp(path);
    struct rlimit before, full;
    ck_assert_int_ge(fd, 0);
    unlink(path);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = (struct rlimit){250, before.rlim_max}; /* in the middle of the third line */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
    ck_assert(srv_log_open(&log, SRV_LOG_INFO, fd));
    for (size_t i = 0; i < 4; i++)
        srv_log_event(&log, SRV_LOG_INFO, "fill", "a line of a hundred bytes");
    srv_log_flush(&log);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    srv_log_event(&log, SRV_LOG_INFO, "after", "room again");
    srv_log_close(&log);
    expect_lines(fd, 1);
    close(fd);
}

SUITE(log)
