/* calls.c: bodies and answers of calls on sessions of the model `tiny`. */
#include "calls.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

#define MAX_ROWS 512

void text_step(struct text *body, const char *id, unsigned seed, const char *extra)
{
    float row[TINY];
    make_numbers(row, TINY, seed);
    text_add(body, "\"session_id\":\"%s\",\"hidden_states\":", id);
    text_floats(body, row, 9, SHAPE(TINY));
    text_add(body, "%s", extra);
}

void text_steps(struct text *body, const char *id, unsigned seed, size_t n, const char *extra)
{
    float rows[MAX_ROWS * TINY];
    ck_assert_uint_le(n, MAX_ROWS);
    for (size_t i = 0; i < n; i++)
        make_numbers(rows + i * TINY, TINY, seed + (unsigned)i);
    text_add(body, "\"session_id\":\"%s\",\"hidden_states\":", id);
    text_floats(body, rows, 9, SHAPE(n, TINY));
    text_add(body, "%s", extra);
}

/* POSTs {"model":"tiny", followed by the contents of `body` and }; frees `body`. */
static struct answer post(struct client *client, const char *path, struct text *body)
{
    struct text whole = {0};
    text_add(&whole, "{\"model\":\"tiny\",%s}", body->data);
    struct answer answer = client_post(client, path, whole.data);
    text_free(&whole);
    text_free(body);
    return answer;
}

struct answer call_decode(struct client *client, const char *id, unsigned seed, const char *extra)
{
    struct text body = {0};
    text_step(&body, id, seed, extra);
    return post(client, "/decode", &body);
}

char *call_next_bits(struct client *client, const char *id)
{
    struct answer answer = call_decode(client, id, 4711, ",\"commit\":false");
    expect_answer(&answer, 200, NULL, id);
    char *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    return bits;
}

struct answer call_decode_rows(struct client *client, const char *id, unsigned seed, size_t n,
                               const char *extra)
{
    struct text body = {0};
    text_steps(&body, id, seed, n, extra);
    return post(client, "/decode", &body);
}

struct answer call_prefill(struct client *client, const char *id, unsigned seed, size_t n,
                           const char *extra)
{
    struct text body = {0};
    text_steps(&body, id, seed, n, extra);
    return post(client, "/attend", &body);
}

void expect_decode(struct client *client, const char *id, unsigned seed, size_t position)
{
    char extra[64];
    snprintf(extra, sizeof extra, ",\"position\":%zu", position);
    struct answer answer = call_decode(client, id, seed, extra);
    expect_answer(&answer, 200, NULL, "decode");
    ck_assert_int_eq(answer_integer(&answer, "position"), (json_int_t)position);
    ck_assert_int_eq(answer_integer(&answer, "length"), (json_int_t)position + 1);
    answer_free(&answer);
}

void refuse_decode(struct client *client, const char *id, unsigned seed, const char *extra,
                   long status, const char *code)
{
    struct answer answer = call_decode(client, id, seed, extra);
    expect_answer(&answer, status, code, extra);
    answer_free(&answer);
}

json_int_t call_create(struct client *client, const char *id, const char *extra)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"session_id\":\"%s\"%s}", id, extra);
    struct answer answer = client_post(client, "/sessions", body.data);
    expect_answer(&answer, 201, NULL, id);
    json_int_t epoch = answer_integer(&answer, "epoch");
    answer_free(&answer);
    text_free(&body);
    return epoch;
}

static struct answer get_session(struct client *client, const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "/sessions/%s", id);
    return client_get(client, path);
}

void call_delete(struct client *client, const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_delete(client, path);
    expect_answer(&answer, 204, NULL, path);
    answer_free(&answer);
}

void call_fork(struct client *client, const char *parent, const char *id, const char *extra)
{
    char path[128], body[192];
    snprintf(path, sizeof path, "/sessions/%s/fork", parent);
    snprintf(body, sizeof body, "{\"session_id\":\"%s\"%s}", id, extra);
    struct answer answer = client_post(client, path, body);
    expect_answer(&answer, 201, NULL, id);
    answer_free(&answer);
}

size_t call_length(struct client *client, const char *id, size_t layer)
{
    struct answer answer = get_session(client, id);
    expect_answer(&answer, 200, NULL, id);
    const json_t *entry = json_array_get(json_object_get(answer.json, "lengths"), layer);
    ck_assert_int_eq(json_integer_value(json_object_get(entry, "layer")), (json_int_t)layer);
    size_t length = (size_t)json_integer_value(json_object_get(entry, "length"));
    answer_free(&answer);
    return length;
}

long call_status(struct client *client, const char *id)
{
    struct answer answer = get_session(client, id);
    long status = answer.status;
    answer_free(&answer);
    return status;
}

static json_int_t base_of(struct client *client)
{
    struct answer answer = client_get(client, "/snapshot");
    expect_answer(&answer, 200, NULL, "GET /snapshot");
    json_int_t base = answer_integer(&answer, "base");
    answer_free(&answer);
    return base;
}

void call_snapshot(struct client *client)
{
    struct answer asked = client_post(client, "/snapshot", NULL);
    expect_answer(&asked, 202, NULL, "POST /snapshot");
    const json_int_t before = answer_integer(&asked, "generation");
    for (unsigned waited = 0; base_of(client) <= before; waited += 10) {
        ck_assert_uint_lt(waited, 60000);
        pause_ms(10);
    }
    answer_free(&asked);
}

/* The sum of the samples; *found is their number. */
static double sum_samples(size_t *found, struct client *client, const char *sample)
{
    struct answer answer = client_get(client, "/metrics");
    expect_answer(&answer, 200, NULL, sample);
    size_t length = strlen(sample);
    double value = 0;
    const char *next;
    for (const char *line = answer.text; *line != '\0'; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (strncmp(line, sample, length) != 0 || (line[length] != ' ' && line[length] != '{'))
            continue;
        value += strtod(strchr(line + length, ' '), NULL);
        ++*found;
    }
    answer_free(&answer);
    return value;
}

double call_metric(struct client *client, const char *sample)
{
    size_t found = 0;
    double value = sum_samples(&found, client, sample);
    ck_assert_msg(found > 0, "there is no sample %s", sample);
    return value;
}

double call_metric_so_far(struct client *client, const char *sample)
{
    size_t found = 0;
    return sum_samples(&found, client, sample);
}
