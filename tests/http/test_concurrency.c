/* test_concurrency.c: many callers at once.  Steps of one session are taken in turn, steps of many
 * sessions share batches, and no answer depends on other requests. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "raw.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

#define CALLERS 8
#define SESSIONS 32
#define STEPS 40

static void set_up(void) { serve(CONFIG_SMALL("\"max_session_waiting\":4,")); }

/* Runs `count` threads of one function, each with its element of `arguments`. */
static void run_threads(void *(*run)(void *argument), void *arguments, size_t size, size_t count)
{
    pthread_t threads[SESSIONS];
    ck_assert_uint_le(count, SESSIONS);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run, (char *)arguments + i * size), 0);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* ---- One session ----------------------------------------------------------------------------- */

struct caller {
    unsigned number;
    size_t taken, busy, other; /* answers: 200, 429 session_busy, anything else */
    size_t positions[STEPS];   /* [taken] of its steps, in order */
    unsigned seeds[STEPS];     /* [taken] */
};

static void *step_one_session(void *argument)
{
    struct caller *caller = argument;
    struct client own;
    client_open(&own, &served);
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned seed = caller->number * STEPS + i;
        struct answer answer = call_decode(&own, "shared", seed, "");
        if (answer.status == 200) {
            caller->positions[caller->taken] = (size_t)answer_integer(&answer, "position");
            caller->seeds[caller->taken++] = seed;
        } else if (answer.status == 429 && strcmp(answer_code(&answer), "session_busy") == 0) {
            caller->busy++;
        } else {
            caller->other++;
        }
        answer_free(&answer);
    }
    client_close(&own);
    return NULL;
}

/* Puts each step's seed at the position that it got.  Every position below the total is one
 * step's. */
static size_t order_steps(unsigned order[CALLERS * STEPS], const struct caller callers[CALLERS])
{
    bool seen[CALLERS * STEPS] = {false};
    size_t total = 0;
    for (size_t c = 0; c < CALLERS; c++) {
        ck_assert_uint_eq(callers[c].other, 0);
        total += callers[c].taken;
    }
    for (size_t c = 0; c < CALLERS; c++) {
        for (size_t i = 0; i < callers[c].taken; i++) {
            size_t position = callers[c].positions[i];
            ck_assert_msg(position < total && !seen[position], "two steps at %zu", position);
            seen[position] = true;
            order[position] = callers[c].seeds[i];
        }
    }
    return total;
}

CASE(callers, set_up, serve_end, 0)

TEST(callers_of_one_session_take_turns_and_its_cache_is_their_steps_in_order)
{
    static struct caller callers[CALLERS];
    static unsigned order[CALLERS * STEPS];
    static const char all[] = ",\"commit\":false,\"outputs\":[\"output\",\"key\",\"value\"]";
    call_create(&client, "shared", "");
    call_create(&client, "alone", "");
    for (unsigned i = 0; i < CALLERS; i++)
        callers[i].number = i;
    run_threads(step_one_session, callers, sizeof callers[0], CALLERS);
    size_t total = order_steps(order, callers);
    ck_assert_uint_ge(total, STEPS);
    ck_assert_uint_eq(call_length(&client, "shared", 0), total);
    for (size_t i = 0; i < total; i++)
        expect_decode(&client, "alone", order[i], i);
    struct answer shared = call_decode(&client, "shared", 9999, all);
    struct answer alone = call_decode(&client, "alone", 9999, all);
    expect_answer(&shared, 200, NULL, "shared");
    expect_same("shared", shared.json, alone.json, "output");
    expect_same("shared", shared.json, alone.json, "key");
    expect_same("shared", shared.json, alone.json, "value");
    answer_free(&shared);
    answer_free(&alone);
}

/* ---- Many sessions --------------------------------------------------------------------------- */

struct sequence {
    unsigned number;
    const char *how;     /* beginning of the session id */
    char *output[STEPS]; /* exact texts of the replies' outputs */
};

static void *step_own_session(void *argument)
{
    struct sequence *sequence = argument;
    struct client own;
    char id[32];
    client_open(&own, &served);
    snprintf(id, sizeof id, "%s.%u", sequence->how, sequence->number);
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned seed = sequence->number * STEPS + i;
        struct answer answer = call_decode(&own, id, seed, i == 0 ? ",\"start\":true" : "");
        expect_answer(&answer, 200, NULL, id);
        sequence->output[i] = exact_text(answer.json, "output");
        answer_free(&answer);
    }
    client_close(&own);
    return NULL;
}

TEST(sessions_stepped_together_get_the_bits_they_get_alone)
{
    static struct sequence together[SESSIONS], alone[SESSIONS];
    for (unsigned i = 0; i < SESSIONS; i++) {
        together[i] = (struct sequence){.number = i, .how = "together"};
        alone[i] = (struct sequence){.number = i, .how = "alone"};
    }
    double batches = call_metric_so_far(&client, "attnd_decode_batch_size_count");
    double steps = call_metric_so_far(&client, "attnd_decode_batch_size_sum");
    run_threads(step_own_session, together, sizeof together[0], SESSIONS);
    batches = call_metric(&client, "attnd_decode_batch_size_count") - batches;
    steps = call_metric(&client, "attnd_decode_batch_size_sum") - steps;
    ck_assert_double_eq(steps, SESSIONS * STEPS);
    for (size_t i = 0; i < SESSIONS; i++) {
        step_own_session(&alone[i]);
        for (size_t j = 0; j < STEPS; j++) {
            ck_assert_msg(strcmp(together[i].output[j], alone[i].output[j]) == 0,
                          "sequence %zu, step %zu: %s together, %s alone", i, j,
                          together[i].output[j], alone[i].output[j]);
            free(together[i].output[j]);
            free(alone[i].output[j]);
        }
    }
    printf("concurrency: %d sessions at once, mean decode batch %.2f\n", SESSIONS, steps / batches);
    ck_assert_double_gt(steps / batches, 1);
}

TEST(steps_go_on_beside_long_attention)
{
    struct text body = {0};
    float *rows = calloc(2000 * TINY, sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    make_numbers(rows, 2000 * TINY, 1);
    text_add(&body, "{\"model\":\"tiny\",\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(2000, TINY));
    text_add(&body, "}");
    struct sequence beside = {.number = 0, .how = "beside"}, alone = {.number = 0, .how = "quiet"};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, step_own_session, &beside), 0);
    struct answer first = client_post(&client, "/attend", body.data);
    struct answer second = client_post(&client, "/attend", body.data);
    pthread_join(thread, NULL);
    expect_answer(&first, 200, NULL, "first");
    expect_same("long attention", second.json, first.json, "output");
    step_own_session(&alone);
    for (size_t i = 0; i < STEPS; i++) {
        ck_assert_str_eq(beside.output[i], alone.output[i]);
        free(beside.output[i]);
        free(alone.output[i]);
    }
    answer_free(&first);
    answer_free(&second);
    text_free(&body);
    free(rows);
}

/* The scheduler keeps a job whose connection has ended; its memory is given back when it ends. */
TEST(clients_that_leave_while_they_wait_harm_nobody_and_keep_no_memory)
{
    struct text body = {0}, head = {0};
    float *rows = calloc(400 * TINY, sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    make_numbers(rows, 400 * TINY, 1);
    text_add(&body, "{\"model\":\"tiny\",\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(400, TINY));
    text_add(&body, "}");
    text_add(&head,
             "POST /attend HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             strlen(body.data));
    for (unsigned i = 0; i < 24; i++) {
        struct raw raw;
        raw_open(&raw, served.host, served.port);
        ck_assert(raw_text(&raw, head.data) && raw_text(&raw, body.data));
        (i % 2 == 0 ? raw_reset : raw_close)(&raw);
        expect_posted(&client, "/attend", body.data, 200, NULL);
    }
    double bytes = 1;
    for (unsigned i = 0; i < 1000 && bytes > 0; i++)
        bytes = call_metric(&client, "attnd_in_flight_bytes");
    ck_assert_double_eq(bytes, 0);
    ck_assert_double_eq(call_metric(&client, "attnd_queue_depth"), 0);
    text_free(&body);
    text_free(&head);
    free(rows);
}

SUITE(concurrency)
