/* caller.c: what callers send, and what they make of the answers. */
#include "caller.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "binary.h"
#include "proxy.h"
#include "tensors.h"

#define TRIES 1000

bool caller_sends_revisions = true;

unsigned caller_draw(struct caller *caller, unsigned n)
{
    caller->random = caller->random * 1664525u + 1013904223u;
    return (caller->random >> 8) % n;
}

/* ---- Asking until there is an answer --------------------------------------------------------- */

struct answer caller_ask(struct caller *caller, const struct call *call)
{
    struct text body = {0};
    struct answer answer;
    char id[80], length[80], key[80];
    const bool steps = strcmp(call->path, "/decode") == 0;
    const bool binary = steps && caller_draw(caller, 2) == 1;
    const bool packed = steps && caller_draw(caller, 2) == 1;
    snprintf(id, sizeof id, "X-Request-Id: " PROXY_ID, caller->number, ++caller->requests,
             call->again, call->first);
    if (binary)
        snprintf(length, sizeof length, JSON_LENGTH ": %zu",
                 binary_body(&body, call->json, AS_FP32, 0));
    else if (call->json != NULL)
        text_add(&body, "%s", call->json);
    const char *headers[6] = {
        id, binary ? "Content-Type: application/octet-stream" : "Content-Type: application/json",
        packed ? "Accept: application/octet-stream" : "Accept: application/json"};
    size_t count = 3;
    if (binary)
        headers[count++] = length;
    snprintf(key, sizeof key, "Idempotency-Key: %s",
             call->idempotency_key != NULL ? call->idempotency_key : "");
    if (call->idempotency_key != NULL)
        headers[count++] = key;
    const struct request request = {.method = call->method,
                                    .path = call->path,
                                    .body = body.data,
                                    .length = body.length,
                                    .headers = headers};
    size_t tries = 1;
    for (; !client_try(&answer, &caller->client, &request) && tries < TRIES; tries++)
        answer_free(&answer);
    ck_assert_uint_lt(tries, TRIES);
    caller->retries += tries - 1;
    if (packed && answer.status == 200)
        binary_decode(&answer, "a decode");
    text_free(&body);
    return answer;
}

void caller_write_known(char out[80], const struct mirror *mirror)
{
    if (caller_sends_revisions)
        mirror_write_noted(out, mirror);
    else
        snprintf(out, 80, ",\"epoch\":%lld", (long long)mirror->epoch);
}

void caller_break(struct caller *caller, struct session *session, const char *what,
                  const struct answer *answer)
{
    if (caller_sends_revisions)
        fprintf(stderr, "retry: %s of %s: %ld %.300s\n", what, session->mirror.id, answer->status,
                answer->text);
    caller->unexplained++;
    session->broken = true;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

void caller_write_step(struct text *body, struct caller *caller, struct session *session,
                       size_t layer)
{
    char extra[160], known[80];
    struct mirror *mirror = &session->mirror;
    size_t position = mirror_length(mirror, layer);
    ck_assert_uint_lt(position, 2 * LONG);
    session->seeds[layer][position] = caller->number * 100000000u + ++caller->rows;
    caller_write_known(known, mirror);
    snprintf(extra, sizeof extra, ",\"position\":%zu%s", position, known);
    mirror_text_step(body, mirror, session->seeds[layer][position], extra);
}

void caller_take_step(struct caller *caller, struct session *session, size_t layer,
                      const json_t *answer)
{
    float out[TINY];
    struct mirror *mirror = &session->mirror;
    size_t position = mirror_length(mirror, layer);
    mirror_step(out, mirror, layer, session->seeds[layer][position], true);
    caller->wrong +=
        !mirror_output_equals(answer, out) || !mirror_is_noted(mirror, answer) ||
        json_integer_value(json_object_get(answer, "position")) != (json_int_t)position ||
        json_integer_value(json_object_get(answer, "length")) != (json_int_t)position + 1;
    caller->decodes++;
}

void caller_step(struct caller *caller, struct session *session, size_t layer)
{
    struct text body = {0};
    mirror_text_open(&body, &session->mirror, layer);
    caller_write_step(&body, caller, session, layer);
    text_add(&body, "}");
    struct answer answer = caller_ask(
        caller, &(struct call){.method = "POST", .path = "/decode", .json = body.data, .again = 1});
    if (answer.status == 200)
        caller_take_step(caller, session, layer, answer.json);
    else
        caller_break(caller, session, "a step", &answer);
    answer_free(&answer);
    text_free(&body);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* An end whose reply was lost finds no session, or one of that id that is another. */
void caller_delete(struct caller *caller, struct session *session)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s?epoch=%lld", session->mirror.id,
             (long long)session->mirror.epoch);
    struct answer answer = caller_ask(caller, &(struct call){.method = "DELETE", .path = path});
    const char *code = answer_code(&answer);
    if (strcmp(code, "session_not_found") == 0 || strcmp(code, "epoch_mismatch") == 0)
        caller->explained++;
    else if (answer.status != 204)
        caller_break(caller, session, "an end", &answer);
    answer_free(&answer);
    mirror_end(&session->mirror);
    session->broken = false;
}
