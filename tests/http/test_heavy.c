/* test_heavy.c: requests with much to compute in few rows hold up no other request: steps over long
 * sessions are computed in several batches or alone, and many steps of one session are not computed
 * on an event thread. */
#include <check.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "long_call.h"
#include "served.h"
#include "suites.h"

/* ---- Heavy steps ----------------------------------------------------------------------------- */

#define LONG_SESSION 8192
#define HEAVY_CONFIG(members)                                                                   \
    "{\"port\":0,\"threads\":1,\"models\":[{\"name\":\"heavy\",\"random\":{\"hidden_size\":64," \
    "\"num_attention_heads\":16,\"num_key_value_heads\":1,\"head_dim\":128,\"is_causal\":"      \
    "true," members "\"seed\":1}}]}"
#define WINDOW "\"sliding_window\":64,"

/* Steps over as many sessions h0, h1, ...: each step of 64 rows is long by itself; the others are
 * more than a batch together. */
static const struct heavy {
    size_t items, rows;
    const char *config, *wishes; /* of each item */
} heavies[] = {
    {6, 64, HEAVY_CONFIG(""), ""},
    {64, 6, HEAVY_CONFIG(""), ""},
    {64, 1, HEAVY_CONFIG(""), "\"outputs\":[\"attention_weights\"],\"top_k\":1024,"},
    {64, 4, HEAVY_CONFIG(WINDOW), "\"outputs\":[\"attention_scores\"],\"heads\":[0],"},
    {64, 8, HEAVY_CONFIG(WINDOW), "\"outputs\":[\"head_stats\"],"},
};
#define NUM_HEAVIES 5
#define TRIES 10 /* other processes may disturb some */
#define PART 3   /* the longest wait is less than a third of the whole time; a tenth is usual */

static void begin_heavy(const struct heavy *heavy, size_t tokens)
{
    struct long_call call;
    serve(heavy->config);
    long_begin(&call, &client, "\"session_id\":\"h0\",\"start\":true,\"sliding_window\":1,",
               tokens);
    long_end(&call, 200, NULL);
    for (size_t i = 1; i < heavy->items; i++) {
        char id[32];
        snprintf(id, sizeof id, "h%zu", i);
        call_fork(&client, "h0", id, "");
    }
}

/* All steps in one request. */
static void write_heavy(struct long_call *call, const char *const headers[],
                        const struct heavy *heavy)
{
    *call = (struct long_call){.daemon = &served, .path = "/decode", .headers = headers};
    text_add(&call->body, "{\"binary_output\":true,\"sequences\":[");
    for (size_t i = 0; i < heavy->items; i++) {
        text_add(&call->body, "%s{\"session_id\":\"h%zu\",\"commit\":false,%s", i > 0 ? "," : "", i,
                 heavy->wishes);
        add_rows(&call->body, heavy->rows);
    }
    text_add(&call->body, "]}");
}

/* A tensor of one head and one component, in ascending order. */
static void add_column(struct text *body, const char *name, size_t count, double step)
{
    text_add(body, ",\"%s\":{\"shape\":[1,%zu,1],\"data\":[", name, count);
    for (size_t i = 0; i < count; i++)
        text_add(body, "%s%g", i > 0 ? "," : "", (double)(i + 1) * step);
    text_add(body, "]}");
}

/* Whether steps of the session `short` wait for no more than a small part of the heavy request's
 * time, *whole. */
static bool waits_are_short(double *whole, struct long_call *call)
{
    double longest = 0, began = clock_ms();
    long_send(call, &client);
    while (!atomic_load(&call->answered)) {
        double asked = clock_ms();
        (void)step(&client, "short", false);
        longest = fmax(longest, clock_ms() - asked);
    }
    *whole = clock_ms() - began;
    long_end(call, 200, NULL);
    printf("heavy: a decode took at most %.1f ms beside a request of %.1f ms\n", longest, *whole);
    return longest * PART < *whole;
}

#define MEAN_KEYS 8192
#define MEAN_ROWS 256

/* The weights ascend, so that ranking them takes longest. */
TEST(decodes_are_answered_while_mean_weights_are_ranked)
{
    double whole;
    bool soon = false;
    serve(HEAVY_CONFIG(""));
    ck_assert_int_eq(step(&client, "short", true), 0);
    for (size_t tries = 0; !soon && tries < TRIES; tries++) {
        struct long_call call = {.daemon = &served, .path = "/attend"};
        text_add(&call.body, "{\"outputs\":[\"attention_weights\"],\"average_heads\":true,"
                             "\"top_k\":1024,\"binary_output\":true,\"scale\":1");
        add_column(&call.body, "query", MEAN_ROWS, 1);
        add_column(&call.body, "key", MEAN_KEYS, 1e-3);
        add_column(&call.body, "value", MEAN_KEYS, 1);
        text_add(&call.body, "}");
        soon = waits_are_short(&whole, &call);
    }
    ck_assert(soon);
    serve_end();
}

TEST(rows_of_32_sessions_of_4096_tokens_are_one_batch)
{
    static const struct heavy usual = {32, 1, HEAVY_CONFIG(""), ""};
    struct long_call call;
    begin_heavy(&usual, 4096);
    write_heavy(&call, NULL, &usual);
    long_send(&call, &client);
    long_end(&call, 200, NULL);
    ck_assert_double_eq(call_metric(&client, "attnd_decode_batch_size_count"), 1);
    serve_end();
}

/* Whether the deadline passes before all is computed.  Items of the list that were not computed
 * have an error; the metric counts rows when they are computed. */
static bool is_stopped(const struct heavy *heavy, double deadline_ms)
{
    struct long_call call;
    char deadline[40];
    const char *const headers[] = {deadline, NULL};
    snprintf(deadline, sizeof deadline, "X-Deadline-Ms: %.0f", ceil(deadline_ms));
    const double before = call_metric(&client, "attnd_decode_rows_total");
    write_heavy(&call, headers, heavy);
    long_send(&call, &client);
    pthread_join(call.thread, NULL);
    expect_answer(&call.answer, 200, NULL, "the list");
    const bool stopped = strstr(call.answer.text, "\"deadline_exceeded\"") != NULL;
    if (stopped)
        ck_assert_double_lt(call_metric(&client, "attnd_decode_rows_total"),
                            before + (double)(heavy->items * heavy->rows));
    answer_free(&call.answer);
    text_free(&call.body);
    return stopped;
}

/* A deadline is a quarter of the time that the request takes without one, or less where the machine
 * has become less busy meanwhile. */
TEST_EACH(heavy_steps_over_long_sessions_hold_up_no_decode_and_end_with_their_deadline, NUM_HEAVIES)
{
    const struct heavy *heavy = &heavies[_i];
    struct long_call call;
    double whole = 0;
    bool soon = false;
    begin_heavy(heavy, LONG_SESSION);
    ck_assert_int_eq(step(&client, "short", true), 0);
    for (size_t tries = 0; !soon && tries < TRIES; tries++) {
        write_heavy(&call, NULL, heavy);
        soon = waits_are_short(&whole, &call);
    }
    ck_assert(soon);
    for (double deadline = whole / 4; !is_stopped(heavy, deadline); deadline /= 2)
        ck_assert_double_ge(deadline, 1);
    ck_assert_int_eq(step(&client, "h0", false), LONG_SESSION);
    serve_end();
}

/* ---- Event threads --------------------------------------------------------------------------- */

#define CHAIN_TOKENS (INSTRUMENTED ? 2048 : 12288)
#define CHAIN_ITEMS 900 /* few enough bytes for a round on an event thread */
#define CHAIN_LOOKS 5   /* the first may come before the steps */
#define CHAIN_MODEL                                                                        \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\",\"models\":[{\"name\":\"thin\"," \
    "\"random\":"                                                                          \
    "{\"hidden_size\":4,\"num_attention_heads\":4,\"is_causal\":true,\"seed\":1}}]}"

static void begin_chain(void)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"chain\",\"start\":true,\"hidden_states\":[[1,2,3,4]");
    for (size_t i = 1; i < CHAIN_TOKENS; i++)
        text_add(&body, ",[1,2,3,4]");
    text_add(&body, "]}");
    expect_posted(&client, "/attend", body.data, 200, NULL);
    text_free(&body);
}

/* Posts steps that are little to compute, but cannot be one batch. */
static void post_chain(struct raw *raw)
{
    struct text body = {0};
    text_add(&body, "{\"sequences\":[");
    for (size_t i = 0; i < CHAIN_ITEMS; i++)
        text_add(&body, "%s{\"session_id\":\"chain\",\"commit\":false,\"hidden_states\":[1,2,3,4]}",
                 i > 0 ? "," : "");
    text_add(&body, "]}");
    ck_assert_uint_le(body.length, 65536);
    post_body(raw, &served, "/decode", "1.1", "", &body);
}

TEST(connections_are_served_while_many_steps_of_one_session_follow_one_another)
{
    struct raw raw;
    serve(CHAIN_MODEL);
    begin_chain();
    post_chain(&raw);
    for (int i = 0; i < CHAIN_LOOKS; i++)
        ck_assert_int_eq(call_status(&client, "chain"), 200);
    ck_assert_msg(poll(&(struct pollfd){.fd = raw.fd, .events = POLLIN}, 1, 0) == 0,
                  "the steps were answered first");
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    raw_answer_free(&answer);
    raw_close(&raw);
    serve_end();
}

SUITE(heavy)
