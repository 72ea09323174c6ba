/* load.c: three callers: steps of several sessions, attentions, requests that are refused. */
#include "load.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

#define PAUSE_MS 2 /* between rounds: the machine may have one processor */

static atomic_bool over;
static atomic_size_t requests;

static void expect(struct client *client, const char *method, const char *path, const char *body,
                   long status)
{
    struct answer answer =
        client_send(client, &(struct request){.method = method, .path = path, .body = body});
    ck_assert_msg(answer.status == status, "%s %s: %ld: %s", method, path, answer.status,
                  answer.text);
    answer_free(&answer);
    requests++;
}

static void step_two(struct client *client)
{
    struct text body = {0};
    text_add(&body, "{\"sequences\":[{");
    text_step(&body, "a", 1, "},{");
    text_step(&body, "b", 2, "}]}");
    expect(client, "POST", "/decode", body.data, 200);
    text_free(&body);
}

static void step_round(struct client *client)
{
    call_create(client, "a", "");
    call_create(client, "b", "");
    for (int i = 0; i < 20; i++)
        step_two(client);
    call_delete(client, "a");
    call_delete(client, "b");
    requests += 4;
}

static void attend_round(struct client *client)
{
    struct answer prefill;
    expect(client, "POST", "/attend", "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[7]]]}", 200);
    call_create(client, "p", "");
    prefill = call_prefill(client, "p", 3, 100, "");
    expect_answer(&prefill, 200, NULL, "a prefill");
    answer_free(&prefill);
    call_delete(client, "p");
    requests += 3;
}

static void refused_round(struct client *client)
{
    expect(client, "GET", "/nowhere", NULL, 404);
    expect(client, "DELETE", "/decode", NULL, 405);
    expect(client, "POST", "/decode", "{", 400);
    expect(client, "POST", "/decode", "{\"session_id\":\"none\",\"hidden_states\":[1]}", 404);
    expect(client, "GET", "/models/none", NULL, 404);
    expect(client, "GET", "/models", NULL, 200);
}

static struct caller {
    const struct daemon *daemon;
    void (*round)(struct client *client);
    pthread_t thread;
} callers[] = {{.round = step_round}, {.round = attend_round}, {.round = refused_round}};

#define NUM_CALLERS (sizeof callers / sizeof callers[0])

static void *call(void *argument)
{
    struct caller *caller = argument;
    struct client client;
    client_open(&client, caller->daemon);
    while (!atomic_load(&over)) {
        caller->round(&client);
        pause_ms(PAUSE_MS);
    }
    client_close(&client);
    return NULL;
}

void load_start(const struct daemon *daemon)
{
    for (size_t i = 0; i < NUM_CALLERS; i++) {
        callers[i].daemon = daemon;
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
}

size_t load_stop(void)
{
    atomic_store(&over, true);
    for (size_t i = 0; i < NUM_CALLERS; i++) {
        if (callers[i].daemon != NULL)
            pthread_join(callers[i].thread, NULL);
        callers[i].daemon = NULL;
    }
    return requests;
}
