/* long_call.c: requests of many rows whose answers come later. */
#include "long_call.h"

#include <check.h>

#include "clock.h"

void add_rows(struct text *body, size_t rows)
{
    text_add(body, "\"hidden_states\":{\"shape\":[%zu,%d],\"data\":[", rows, ROW_WIDTH);
    for (size_t i = 0; i < rows * ROW_WIDTH; i++)
        text_add(body, i > 0 ? ",%zu" : "%zu", i * 7 % 11);
    text_add(body, "]}}");
}

void add_weights_call(struct text *body, int rows)
{
    const char *const names[] = {"query", "key", "value"};
    text_add(body, "{\"outputs\":[\"attention_weights\"]");
    for (size_t i = 0; i < 3; i++) {
        text_add(body, ",\"%s\":{\"shape\":[1,%d,1],\"data\":[0", names[i], rows);
        for (int row = 1; row < rows; row++)
            text_add(body, ",0");
        text_add(body, "]}");
    }
    text_add(body, "}");
}

static void *call_long(void *argument)
{
    struct long_call *call = argument;
    struct client own;
    client_open(&own, call->daemon);
    const double before = clock_ms();
    call->answer = client_send(&own, &(struct request){.method = "POST",
                                                       .path = call->path,
                                                       .body = call->body.data,
                                                       .headers = call->headers});
    call->took_ms = clock_ms() - before;
    atomic_store(&call->answered, true);
    client_close(&own);
    return NULL;
}

void await_depth(struct client *client, double low, double high)
{
    double depth = -1;
    for (unsigned tries = 0; depth < low || depth > high; tries++) {
        ck_assert_uint_lt(tries, WAIT_MS / 2);
        pause_ms(2);
        depth = call_metric(client, "attnd_queue_depth");
    }
}

void long_send(struct long_call *call, struct client *client)
{
    ck_assert_int_eq(pthread_create(&call->thread, NULL, call_long, call), 0);
    await_depth(client, 1, 100);
}

void long_begin_with(struct long_call *call, struct client *client, const char *const headers[],
                     const char *members, size_t rows)
{
    *call = (struct long_call){.daemon = client->daemon, .path = "/attend", .headers = headers};
    text_add(&call->body, "{%s", members);
    add_rows(&call->body, rows);
    long_send(call, client);
}

void long_begin(struct long_call *call, struct client *client, const char *members, size_t rows)
{
    long_begin_with(call, client, NULL, members, rows);
}

void long_end(struct long_call *call, long status, const char *code)
{
    pthread_join(call->thread, NULL);
    expect_answer(&call->answer, status, code, "the long call");
    answer_free(&call->answer);
    text_free(&call->body);
}

json_int_t step(struct client *client, const char *id, bool start)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",%s", id, start ? "\"start\":true," : "");
    add_rows(&body, 1);
    struct answer answer = client_post(client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, id);
    json_int_t position = answer_integer(&answer, "position");
    answer_free(&answer);
    text_free(&body);
    return position;
}

void post_body(struct raw *raw, const struct daemon *daemon, const char *path, const char *version,
               const char *fields, struct text *body)
{
    struct text head = {0};
    text_add(&head,
             "POST %s HTTP/%s\r\nHost: test\r\nContent-Type: application/json\r\n%s"
             "Content-Length: %zu\r\n\r\n",
             path, version, fields, body->length);
    raw_open(raw, daemon->host, daemon->port);
    ck_assert(raw_text(raw, head.data) && raw_text(raw, body->data));
    text_free(body);
    text_free(&head);
}
