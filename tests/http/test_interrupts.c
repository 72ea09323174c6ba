/* test_interrupts.c: callers share the engine within long computations.  An attention or a prefill
 * that is not larger interrupts the long one of another caller; what is interrupted gets its half
 * of the time, and all get the bits that they get alone. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "clock.h"
#include "long_call.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define LONG 3072 /* tokens: seconds of one thread with portable kernels */
#define SMALL 256 /* tokens */
#define CALLS 15
#define SOON_MS \
    100         /* for half of the small calls, which take less than a tenth of that alone ... */
#define SOON 20 /* ... or this many times as long as alone, on a busy machine */

#define CONFIG                                                                             \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\",\"models\":[{\"name\":\"slow\"," \
    "\"random\":"                                                                          \
    "{\"hidden_size\":64,\"num_attention_heads\":16,\"is_causal\":true,\"seed\":1}}]}"

/* Both callers may look at the queue. */
#define KEYS_TWO                                                                                  \
    "{\"keys\":[{\"name\":\"one\",\"key\":\"" KEY_INFER "\",\"scopes\":[\"infer\",\"metrics\"]}," \
    "{\"name\":\"other\",\"key\":\"" KEY_BOTH "\",\"scopes\":[\"infer\",\"metrics\"]}]}"

static struct daemon mine, theirs; /* the daemon as two callers see it */
static struct client one, other;
static char keys_path[SECRET_PATH];

static void set_up(void)
{
    char variable[96];
    const char *const variables[] = {variable, NULL};
    secret_write(keys_path, KEYS_TWO);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", keys_path);
    daemon_start(&served, CONFIG, NULL, variables);
    mine = theirs = served;
    mine.authorization = "Authorization: Bearer " KEY_INFER;
    theirs.authorization = "Authorization: Bearer " KEY_BOTH;
    client_open(&one, &mine);
    client_open(&other, &theirs);
}

static void tear_down(void)
{
    client_close(&one);
    client_close(&other);
    daemon_stop(&served);
    unlink(keys_path);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* CALLS calls of SMALL rows. */
struct calls {
    double median_ms, slowest_ms;
    char *text; /* of the last answer */
};

static void make_calls(struct calls *calls, struct client *caller)
{
    double times[CALLS];
    struct text body = {0};
    text_add(&body, "{");
    add_rows(&body, SMALL);
    for (size_t i = 0; i < CALLS; i++) {
        double before = clock_ms();
        struct answer answer = client_post(caller, "/attend", body.data);
        times[i] = clock_ms() - before;
        expect_answer(&answer, 200, NULL, "a small call");
        if (i == CALLS - 1)
            calls->text = strdup(answer.text);
        answer_free(&answer);
    }
    text_free(&body);
    qsort(times, CALLS, sizeof times[0], by_value);
    calls->median_ms = times[CALLS / 2];
    calls->slowest_ms = times[CALLS - 1];
}

/* Small calls of `caller` while the first caller's long one runs, begun with `members`. */
static void expect_soon(struct client *caller, const char *members)
{
    struct long_call call;
    struct calls alone, beside;
    make_calls(&alone, caller);
    long_begin(&call, &one, members, LONG);
    double before = clock_ms();
    make_calls(&beside, caller);
    bool ended = atomic_load(&call.answered);
    long_end(&call, 200, NULL);
    double whole_ms = clock_ms() - before;
    printf(
        "interrupts: %d tokens take %.1f ms alone, beside a call of %.0f ms %.1f, at most %.1f\n",
        SMALL, alone.median_ms, whole_ms, beside.median_ms, beside.slowest_ms);
    ck_assert(!ended);
    ck_assert_str_eq(alone.text, beside.text);
    ck_assert_double_le(beside.median_ms, fmax(SOON_MS, SOON * alone.median_ms));
    ck_assert_double_le(beside.slowest_ms, whole_ms / 2);
    free(alone.text);
    free(beside.text);
}

CASE(interrupts, set_up, tear_down, 240)

TEST(attends_of_another_key_are_answered_while_a_long_attend_runs) { expect_soon(&other, ""); }

TEST(attends_of_another_key_are_answered_while_a_prefill_runs)
{
    expect_soon(&other, "\"session_id\":\"long\",\"start\":true,");
}

TEST(prefill_of_another_key_is_answered_while_a_long_attend_runs)
{
    struct long_call call;
    struct text body = {0};
    long_begin(&call, &one, "", LONG);
    text_add(&body, "{\"session_id\":\"p\",\"start\":true,");
    add_rows(&body, SMALL);
    struct answer answer = client_post(&other, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "a prefill");
    ck_assert(!atomic_load(&call.answered));
    ck_assert_uint_eq(call_length(&other, "p", 0), SMALL);
    answer_free(&answer);
    text_free(&body);
    long_end(&call, 200, NULL);
}

/* Decodes go on inside the call that interrupts another. */
TEST(decodes_are_answered_while_one_long_attend_interrupts_another)
{
    struct long_call first, second;
    ck_assert_int_eq(step(&other, "short", true), 0);
    long_begin(&first, &one, "", LONG);
    long_begin(&second, &other, "", LONG * 3 / 4);
    await_depth(&other, 2, 2);
    for (int i = 1; i < CALLS; i++)
        ck_assert_int_eq(step(&other, "short", false), i);
    ck_assert(!atomic_load(&first.answered) && !atomic_load(&second.answered));
    long_end(&second, 200, NULL);
    ck_assert(!atomic_load(&first.answered)); /* the second, begun later, had less to do */
    long_end(&first, 200, NULL);
}

/* One of the other key's calls is under way at any time, each of a quarter of the long call's
 * work. */
TEST(a_long_attend_that_is_interrupted_gets_half_of_the_time)
{
    struct long_call call;
    struct text body = {0};
    long_begin(&call, &one, "", LONG);
    double before = clock_ms();
    long_end(&call, 200, NULL);
    double alone_ms = clock_ms() - before;
    text_add(&body, "{");
    add_rows(&body, LONG / 2);
    long_begin(&call, &one, "", LONG);
    before = clock_ms();
    unsigned calls = 0;
    for (; !atomic_load(&call.answered) && calls < 100; calls++) {
        expect_posted(&other, "/attend", body.data, 200, NULL);
    }
    long_end(&call, 200, NULL);
    double beside_ms = clock_ms() - before;
    printf("interrupts: a call of %.0f ms takes %.0f beside %u of a quarter of its work\n",
           alone_ms, beside_ms, calls);
    ck_assert_uint_ge(calls, 3);
    ck_assert_double_le(beside_ms, 4 * alone_ms);
    text_free(&body);
}

TEST(deadline_ends_a_long_attend_and_the_one_that_interrupts_it)
{
    struct long_call first, second;
    long_begin_with(&first, &one, (const char *const[]){"X-Deadline-Ms: 1500", NULL}, "", 20480);
    long_begin_with(&second, &other, (const char *const[]){"X-Deadline-Ms: 700", NULL}, "", 16384);
    long_end(&second, 504, "deadline_exceeded");
    long_end(&first, 504, "deadline_exceeded");
    ck_assert_double_ge(second.took_ms, 700);
    ck_assert_double_ge(first.took_ms, 1500); /* by its own, not by what interrupts it */
}

/* What one attend takes of another one's time is not held against the decodes that follow. */
TEST(decodes_go_on_after_one_long_attend_has_interrupted_another)
{
    struct long_call first, second;
    double slowest = 0;
    ck_assert_int_eq(step(&other, "short", true), 0);
    long_begin(&first, &one, "", LONG * 3 / 2);
    long_begin(&second, &other, "", LONG * 3 / 4);
    long_end(&second, 200, NULL);
    for (int i = 1; i < CALLS; i++) {
        double before = clock_ms();
        ck_assert_int_eq(step(&other, "short", false), i);
        slowest = clock_ms() - before > slowest ? clock_ms() - before : slowest;
    }
    ck_assert(!atomic_load(&first.answered));
    printf("interrupts: decodes after a long call that interrupted take at most %.1f ms\n",
           slowest);
    ck_assert_double_le(slowest, INSTRUMENTED ? WAIT_MS : SOON_MS * 3);
    long_end(&first, 200, NULL);
}

SUITE(interrupts)
