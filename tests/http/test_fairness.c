/* test_fairness.c: two API keys, one of which floods the daemon.  A request of the other key is
 * computed within a few of the flood's requests, and is admitted where the flood has filled its
 * part of the queue.
 *
 * The daemon's own log says when each request was served, so that it does not matter when this
 * process gets to run. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WIDTH 64
#define ROWS 640 /* of one request of the flood: tens of milliseconds on one thread */
#define FLOOD 24
#define FEW 3 /* most requests of the flood that are computed while one of the other key waits */
#define WAIT_MS 120000

#define CONFIG                                                                                    \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\",\"max_queue\":%d,\"models\":["          \
    "{\"name\":\"slow\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":16,\"is_causal\":" \
    "true,\"seed\":1}}]}"

static struct client other;         /* has a key of its own */
static struct raw flood[2 * FLOOD]; /* connections with the key that floods */
static char keys_path[SECRET_PATH];

static void begin(int max_queue)
{
    char config[512], variable[96];
    const char *const variables[] = {variable, NULL};
    secret_write(keys_path, KEYS_THREE);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", keys_path);
    snprintf(config, sizeof config, CONFIG, max_queue);
    daemon_start(&served, config, NULL, variables);
    served.authorization = "Authorization: Bearer " KEY_BOTH;
    client_open(&other, &served);
}

static void end(void)
{
    client_close(&other);
    daemon_stop(&served);
    unlink(keys_path);
}

static void add_rows(struct text *body, size_t rows)
{
    text_add(body, "\"hidden_states\":{\"shape\":[%zu,%d],\"data\":[", rows, WIDTH);
    for (size_t i = 0; i < rows * WIDTH; i++)
        text_add(body, i > 0 ? ",%zu" : "%zu", i * 7 % 11);
    text_add(body, "]}}");
}

/* A call of one row by the other key. */
static void expect_served(const char *path, const char *members)
{
    struct text body = {0};
    text_add(&body, "{%s", members);
    add_rows(&body, 1);
    expect_posted(&other, path, body.data, 200, NULL);
    text_free(&body);
}

/* Sends `count` calls of so many rows, each on its own connection. */
static void send_calls(struct raw calls[], size_t count, const char *key, size_t rows)
{
    struct text body = {0}, text = {0};
    text_add(&body, "{");
    add_rows(&body, rows);
    text_add(&text,
             "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Authorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n",
             key, body.length);
    text_bytes(&text, body.data, body.length);
    for (size_t i = 0; i < count; i++) {
        raw_open(&calls[i], served.host, served.port);
        ck_assert(raw_send(&calls[i], text.data, text.length));
    }
    text_free(&body);
    text_free(&text);
}

/* Reads the answers, each 200 or 429, and closes the connections; returns how many were 429. */
static size_t end_calls(struct raw calls[], size_t count)
{
    size_t refused = 0;
    for (size_t i = 0; i < count; i++) {
        struct raw_answer answer = raw_read(&calls[i], false, WAIT_MS);
        ck_assert_msg(answer.status == 200 || answer.status == 429, "%u", answer.status);
        refused += answer.status == 429;
        raw_answer_free(&answer);
        raw_close(&calls[i]);
    }
    return refused;
}

static void await_depth(double least)
{
    for (unsigned tries = 0; call_metric(&other, "attnd_queue_depth") < least; tries++) {
        ck_assert_uint_lt(tries, WAIT_MS / 2);
        pause_ms(2);
    }
}

/* Waits until the first request of the flood has been refused. */
static void await_refusal(void)
{
    for (unsigned tries = 0; call_metric(&other, "attnd_errors_total{code=\"queue_full\"}") == 0;
         tries++)
        ck_assert_uint_lt(tries, WAIT_MS / 2);
}

/* ---- The log --------------------------------------------------------------------------------- */

/* When the request of a log line was answered, and when it began, in seconds. */
static double answered_at(double *began, json_t *line)
{
    struct tm date = {0};
    const char *text = json_string_value(json_object_get(line, "time"));
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &date);
    ck_assert_msg(rest != NULL && *rest == '.', "%s", text);
    double at = (double)timegm(&date) + strtod(rest, NULL);
    *began = at - json_real_value(json_object_get(line, "ms")) / 1000;
    return at;
}

/* The next line of a request to `route` by `caller`, NULL at the end; json_decref it. */
static json_t *next_line(const char **at, const char *caller, const char *route)
{
    while (**at != '\0') {
        size_t length = strcspn(*at, "\n");
        json_t *line = json_loadb(*at, length, 0, NULL);
        *at += length + ((*at)[length] == '\n');
        const char *by = json_string_value(json_object_get(line, "caller"));
        const char *what = json_string_value(json_object_get(line, "route"));
        if (by != NULL && what != NULL && strcmp(by, caller) == 0 && strcmp(what, route) == 0)
            return line;
        json_decref(line);
    }
    return NULL;
}

/* The log, once it has so many lines of the other key's requests to that route; free it. */
static char *await_lines(const char *route, size_t lines)
{
    char *log = daemon_log(&served);
    for (unsigned tries = 0; tries < WAIT_MS / 2; tries++) {
        const char *at = log;
        size_t found = 0;
        json_t *line;
        for (; (line = next_line(&at, "lead", route)) != NULL; found++)
            json_decref(line);
        if (found >= lines)
            return log;
        free(log);
        pause_ms(2);
        log = daemon_log(&served);
    }
    ck_abort_msg("no %zu requests to %s in %s", lines, route, log);
    return NULL;
}

/* How many requests of the flood were answered during the last one of so many requests of the other
 * key to `route`. */
static size_t count_overtaking(const char *route, size_t requests)
{
    char *log = await_lines(route, requests);
    const char *at = log;
    double from = 0, until = 0, began;
    size_t count = 0;
    json_t *line;
    while ((line = next_line(&at, "lead", route)) != NULL) {
        until = answered_at(&from, line);
        json_decref(line);
    }
    at = log;
    while ((line = next_line(&at, "router", "/attend")) != NULL) {
        double answered = answered_at(&began, line);
        count += answered >= from && answered <= until;
        json_decref(line);
    }
    free(log);
    return count;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

CASE(fairness, NULL, NULL, 240)

TEST(a_key_is_served_within_a_few_requests_of_another_that_floods)
{
    begin(4096);
    expect_served("/decode", "\"session_id\":\"short\",\"start\":true,");
    send_calls(flood, FLOOD, KEY_INFER, ROWS);
    await_depth(FLOOD * 3 / 4);
    expect_served("/decode", "\"session_id\":\"short\",");
    expect_served("/attend", "");
    ck_assert_double_ge(call_metric(&other, "attnd_queue_depth"),
                        FLOOD / 4); /* the flood goes on */
    ck_assert_uint_le(count_overtaking("/decode", 2), FEW);
    ck_assert_uint_le(count_overtaking("/attend", 1), FEW);
    ck_assert_uint_eq(end_calls(flood, FLOOD), 0);
    end();
}

TEST(a_flood_that_fills_the_queue_leaves_another_key_its_place)
{
    struct raw few[FEW];
    begin(FLOOD); /* an eighth of it, 3 places, is reserved for keys that have less than half */
    expect_served("/attend", "");
    send_calls(flood, 2 * FLOOD, KEY_INFER, ROWS);
    await_refusal();
    send_calls(few, FEW, KEY_BOTH, 1);
    ck_assert_uint_eq(end_calls(few, FEW), 0);
    ck_assert_uint_ge(end_calls(flood, 2 * FLOOD), 1);
    end();
}

SUITE(fairness)
