/* steps.c: the table of requests, of all kinds, each sent over a connection of its own. */
#include "steps.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binary.h"
#include "calls.h"
#include "forms.h"
#include "tensors.h"

#define BASE_ROWS 70 /* two blocks */
#define WEIGHTS ",\"outputs\":[\"output\",\"attention_weights\",\"lse\"]"
#define GROUPS ",\"outputs\":[\"head_stats\"],\"target_groups\":[[0],[1,2]]"
#define ABLATE ",\"outputs\":[\"head_stats\"],\"ablate\":true"
#define STATS ",\"outputs\":[\"head_stats\",\"attention_weights\"],\"top_k\":2"

/* ---- Answers --------------------------------------------------------------------------------- */

/* Removes the members that differ from answer to answer. */
static void strip(json_t *value)
{
    static const char *const names[] = {"epoch",      "revision",   "idle_s",
                                        "session_id", "generation", "base",
                                        "running",    "replayed",   "journal_bytes"};
    size_t i;
    json_t *member;
    const char *name;
    for (i = 0; json_is_object(value) && i < sizeof names / sizeof names[0]; i++)
        json_object_del(value, names[i]);
    json_object_foreach(value, name, member) {
        strip(member);
    }
    json_array_foreach(value, i, member) {
        strip(member);
    }
}

bool step_right(const struct step *step, const struct answer *answer)
{
    const struct answer *want = &step->answer;
    if (answer->status != want->status)
        return false;
    if (step->loose)
        return true;
    if (want->json == NULL)
        return answer->length == want->length &&
               memcmp(answer->text, want->text, want->length) == 0;
    json_t *got = json_deep_copy(answer->json), *right = json_deep_copy(want->json);
    strip(got);
    strip(right);
    bool same = json_equal(got, right);
    json_decref(got);
    json_decref(right);
    return same;
}

static bool fault_code(const char *code)
{
    return strcmp(code, "out_of_memory") == 0 || strcmp(code, "insufficient_storage") == 0;
}

/* Whether items of a list were refused, and each for a reason that a fault may have. */
static bool items_refused(const json_t *list)
{
    size_t i, refused = 0;
    json_t *item;
    json_array_foreach(list, i, item) {
        const json_t *error = json_object_get(item, "error");
        const char *code = json_string_value(json_object_get(error, "code"));
        if (error != NULL && (code == NULL || !fault_code(code)))
            return false;
        refused += error != NULL;
    }
    return refused > 0;
}

bool steps_refused(const struct answer *answer)
{
    if (answer->status == 200)
        return items_refused(json_object_get(answer->json, "sequences"));
    return (answer->status == 503 || answer->status == 507) && fault_code(answer_code(answer));
}

char *steps_bits(struct client *client, const char *id)
{
    struct answer answer = call_decode(client, id, 4711, ",\"commit\":false");
    char *bits = answer.status == 200 ? exact_text(answer.json, "output") : NULL;
    answer_free(&answer);
    return bits;
}

static json_t *list_sessions(struct client *client)
{
    struct answer answer = client_get(client, "/sessions");
    expect_answer(&answer, 200, NULL, "GET /sessions");
    json_t *list = json_incref(json_object_get(answer.json, "sessions"));
    answer_free(&answer);
    return list;
}

/* Returns how many sessions have which lengths: the list without ids, without members that change
 * by themselves, and without an order. */
static json_t *summarize(struct client *client)
{
    json_t *list = list_sessions(client), *session, *out = json_object();
    size_t i;
    json_array_foreach(list, i, session) {
        char *text = json_dumps(json_object_get(session, "lengths"), JSON_COMPACT);
        char key[512];
        snprintf(key, sizeof key, "%s", text != NULL ? text : "");
        free(text);
        json_int_t seen = json_integer_value(json_object_get(out, key));
        json_object_set_new(out, key, json_integer(seen + 1));
    }
    json_decref(list);
    return out;
}

static void learn_state(struct step_state *out, struct client *client, bool forks)
{
    json_decref(out->sessions);
    free(out->bits);
    out->sessions = summarize(client);
    out->bits = forks ? steps_bits(client, "work") : NULL;
}

bool step_state(char wrong[600], const struct step_state *state, struct client *client)
{
    json_t *now = summarize(client);
    bool same = json_equal(now, state->sessions);
    if (!same) {
        char *text = json_dumps(now, JSON_COMPACT);
        snprintf(wrong, 600, "sessions are now %.500s", text);
        free(text);
    }
    json_decref(now);
    if (!same || state->bits == NULL)
        return same;
    char *bits = steps_bits(client, "work");
    same = bits != NULL && strcmp(bits, state->bits) == 0;
    if (!same)
        snprintf(wrong, 600, "the next decode is another");
    free(bits);
    return same;
}

/* ---- Sending --------------------------------------------------------------------------------- */

bool step_send(struct answer *out, const struct step *step, const struct client *client)
{
    struct client own;
    const char *const headers[] = {step->header[0][0] != '\0' ? step->header[0] : NULL,
                                   step->header[1][0] != '\0' ? step->header[1] : NULL, NULL};
    client_open(&own, client->daemon);
    bool answered = client_try(out, &own,
                               &(struct request){.method = step->method,
                                                 .path = step->path,
                                                 .body = step->body.data,
                                                 .length = step->body.length,
                                                 .headers = headers});
    client_close(&own);
    return answered;
}

void step_prepare(const struct step *step, struct client *client)
{
    if (!step->forks)
        return;
    expect_posted(client, "/sessions/base/fork", "{\"session_id\":\"work\"}", 201, NULL);
}

void step_clean(struct client *client)
{
    json_t *list = list_sessions(client), *session;
    size_t i;
    json_array_foreach(list, i, session) {
        const char *id = json_string_value(json_object_get(session, "session_id"));
        if (strcmp(id, "base") != 0 && strcmp(id, "formed") != 0)
            call_delete(client, id);
    }
    json_decref(list);
}

/* ---- The table ------------------------------------------------------------------------------- */

static struct step *add(struct steps *steps, const char *name, const char *method, const char *path)
{
    ck_assert_uint_lt(steps->count, STEPS_MAX);
    struct step *step = &steps->items[steps->count++];
    snprintf(step->name, sizeof step->name, "%s", name);
    step->method = method;
    step->path = path;
    return step;
}

static struct step *add_post(struct steps *steps, const char *name, const char *path,
                             const char *body)
{
    struct step *step = add(steps, name, "POST", path);
    text_add(&step->body, "%s", body);
    return step;
}

static void add_forms(struct steps *steps)
{
    static const char *const extras[] = {"", WEIGHTS, STATS, GROUPS, ABLATE};
    const size_t count = sizeof extras / sizeof extras[0];
    for (int i = 0; i < FORM_COUNT; i++)
        for (size_t k = 0; k < (i == FORM_WEIGHTLESS ? count - 1 : count); k++) {
            struct step *step = add(steps, forms[i].name, "POST", form_path(i));
            snprintf(step->name, sizeof step->name, "%s %zu", forms[i].name, k);
            form_body(&step->body, i, extras[k]);
        }
}

static void add_binary(struct steps *steps, int form)
{
    struct text json = {0};
    struct step *step = add(steps, "binary", "POST", form_path(form));
    snprintf(step->name, sizeof step->name, "binary %s", forms[form].name);
    form_body(&json, form, ",\"binary_output\":true");
    size_t length = binary_body(&step->body, json.data, AS_FP32, 0);
    snprintf(step->header[0], sizeof step->header[0], "Inference-Header-Content-Length: %zu",
             length);
    snprintf(step->header[1], sizeof step->header[1], "Content-Type: application/octet-stream");
    text_free(&json);
}

/* Adds steps of the fork (one row, many rows, many items, a prefill) and a start. */
static void add_decodes(struct steps *steps)
{
    struct step *step = add(steps, "decode", "POST", "/decode");
    text_add(&step->body, "{\"model\":\"tiny\",");
    text_step(&step->body, "work", 9, ",\"position\":70}");
    step->forks = true;
    step = add(steps, "decode rows", "POST", "/decode");
    text_add(&step->body, "{\"model\":\"tiny\",");
    text_steps(&step->body, "work", 9, 80, ",\"position\":70}");
    step->forks = true;
    step = add(steps, "decode items", "POST", "/decode");
    text_add(&step->body, "{\"model\":\"tiny\",\"sequences\":[{");
    text_step(&step->body, "work", 9, ",\"position\":70},{");
    text_step(&step->body, "formed", 11, ",\"commit\":false}]}");
    step->forks = true;
    step = add(steps, "start", "POST", "/decode");
    text_add(&step->body, "{\"model\":\"tiny\",");
    text_step(&step->body, "started", 9, ",\"start\":true}");
    step = add(steps, "prefill", "POST", "/attend");
    text_add(&step->body, "{\"model\":\"tiny\",");
    text_steps(&step->body, "work", 9, 100, ",\"position\":70}");
    step->forks = true;
}

/* Adds a request whose body and reply are large enough for the I/O workers. */
static void add_large(struct steps *steps)
{
    static float rows[2000 * TINY];
    struct step *step = add(steps, "large", "POST", "/attend");
    make_numbers(rows, 2000 * TINY, 3);
    text_add(&step->body, "{\"model\":\"tiny\",\"hidden_states\":");
    text_floats(&step->body, rows, 9, SHAPE(2000, TINY));
    text_add(&step->body, "}");
}

static void add_state(struct steps *steps, struct client *client)
{
    struct answer file = client_get(client, "/sessions/base/state");
    expect_answer(&file, 200, NULL, "state");
    add(steps, "export", "GET", "/sessions/base/state");
    struct step *step = add(steps, "import", "PUT", "/sessions/imported/state");
    text_bytes(&step->body, file.text, file.length);
    snprintf(step->header[0], sizeof step->header[0], "Content-Type: application/octet-stream");
    answer_free(&file);
}

static void add_changes(struct steps *steps)
{
    struct step *step = add_post(steps, "create", "/sessions",
                                 "{\"model\":\"tiny\",\"session_id\":\"made\",\"ttl_s\":500}");
    snprintf(step->header[0], sizeof step->header[0], "Idempotency-Key: once");
    step = add_post(steps, "create without id", "/sessions", "{\"model\":\"tiny\"}");
    snprintf(step->header[0], sizeof step->header[0], "Idempotency-Key: twice");
    add_post(steps, "create without body", "/sessions", "{}")->loose = true;
    add_post(steps, "fork", "/sessions/base/fork", "{\"session_id\":\"forked\",\"length\":66}");
    add_post(steps, "truncate", "/sessions/work/truncate", "{\"length\":65}")->forks = true;
    add(steps, "delete", "DELETE", "/sessions/work")->forks = true;
    add(steps, "look", "GET", "/sessions/base");
    add(steps, "list", "GET", "/sessions")->loose = true;
    add(steps, "models", "GET", "/models");
    add(steps, "metrics", "GET", "/metrics")->loose = true;
    add(steps, "ready", "GET", "/readyz");
    add(steps, "snapshot", "GET", "/snapshot")->loose = true;
    add(steps, "nothing", "GET", "/nothing")->loose = true;
    add_post(steps, "malformed", "/decode", "{\"model\":")->loose = true;
    add_post(steps, "malformed document", "/sessions", "{\"model\":")->loose = true;
    add_post(steps, "shape", "/attend", "{\"model\":\"tiny\",\"hidden_states\":[[1]]}")->loose =
        true;
}

/* Does the step twice and keeps the second answer: by then memory is as all later runs meet it. */
static void learn(struct step *step, struct client *client)
{
    for (size_t i = 0; i < 2; i++) {
        answer_free(&step->answer);
        step_prepare(step, client);
        learn_state(&step->before, client, step->forks);
        ck_assert_msg(step_send(&step->answer, step, client), "%s", step->name);
        ck_assert_msg(step->answer.status < 500, "%s: %s", step->name, step->answer.text);
        learn_state(&step->after, client, step->forks);
        step_clean(client);
    }
}

void steps_open(struct steps *steps, struct client *client)
{
    *steps = (struct steps){0};
    struct answer base = call_prefill(client, "base", 40, BASE_ROWS, ",\"start\":true");
    expect_answer(&base, 200, NULL, "base");
    answer_free(&base);
    forms_begin(client);
    add_forms(steps);
    add_binary(steps, FORM_SELF);
    add_binary(steps, FORM_WEIGHTLESS);
    add_binary(steps, FORM_DECODE);
    add_decodes(steps);
    add_large(steps);
    add_state(steps, client);
    add_changes(steps);
    for (size_t i = 0; i < steps->count; i++)
        learn(&steps->items[i], client);
    steps->witness = steps_bits(client, "base");
    ck_assert_ptr_nonnull(steps->witness);
}

void steps_close(struct steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        text_free(&steps->items[i].body);
        answer_free(&steps->items[i].answer);
        json_decref(steps->items[i].before.sessions);
        json_decref(steps->items[i].after.sessions);
        free(steps->items[i].before.bits);
        free(steps->items[i].after.bits);
    }
    free(steps->witness);
}
