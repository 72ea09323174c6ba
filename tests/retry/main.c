/* main.c: 100,000 decodes through a proxy that loses replies and duplicates requests: build/retry
 * [--quick].
 *
 * Callers step the two layers of their sessions, which are of the kinds of mirror.h, or the one
 * layer of those without weights: one or several in a request, in JSON or in binary form.  They
 * begin each session with `start`.  A request without an answer is sent again, as docs/API.md
 * says.  Each answer must have the bits of the mirror (mirror.h), and the daemon must say
 * `replayed` exactly for the requests that it had before.
 *
 * A session that has become long is compared and deleted.  Its exported state must be, byte for
 * byte but for the epoch and the checksum, that of its twin, a session that got the same rows
 * undisturbed; its tensors must be those of the mirror's cache. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binary.h"
#include "calls.h"
#include "mirror.h"
#include "proxy.h"
#include "suite_run.h"
#include "tensors.h"

#define DECODES 100000
#define DECODES_QUICK 20000
#define CALLERS 6
#define SESSIONS 6 /* of each caller */
#define TOGETHER 4 /* sessions in a request, at most */
#define LONG 120   /* tokens of a layer after which a session is deleted */
#define TRIES 1000
#define PREFIX 8 /* bytes of a safetensors file before its header */

static size_t decodes = DECODES;
static struct daemon served, through;

static struct caller {
    unsigned number, random, names;
    size_t requests;
    struct client client, direct; /* through the proxy; past the proxy */
    struct mirror sessions[SESSIONS];
    size_t decodes, retries, wrong, compared[MIRROR_KINDS], rows, differing, encoders;
} callers[CALLERS];

static unsigned below(struct caller *caller, unsigned n)
{
    caller->random = caller->random * 1664525u + 1013904223u;
    return (caller->random >> 8) % n;
}

/* The seed of the row at a position of a layer; mirror.seed is the session's own. */
static unsigned seed_of(const struct mirror *mirror, size_t layer, size_t position)
{
    return mirror->seed + (unsigned)(layer * 2 * LONG + position);
}

/* ---- Asking until there is an answer --------------------------------------------------------- */

/* Sends `json`, as JSON or in binary form, until an answer comes, in either form.  The answer must
 * contain `again` replays where the daemon had the request before, `first` where not. */
static struct answer ask(struct caller *caller, const char *json, size_t again, size_t first)
{
    struct text body = {0};
    struct answer answer;
    char id[80], length[80];
    const bool binary = below(caller, 2) == 1;
    const bool packed = below(caller, 2) == 1;
    snprintf(id, sizeof id, "X-Request-Id: " PROXY_ID, caller->number, ++caller->requests, again,
             first);
    if (binary)
        snprintf(length, sizeof length, JSON_LENGTH ": %zu", binary_body(&body, json, AS_FP32, 0));
    else
        text_add(&body, "%s", json);
    const char *const headers[] = {
        id, binary ? "Content-Type: application/octet-stream" : "Content-Type: application/json",
        packed ? "Accept: application/octet-stream" : "Accept: application/json",
        binary ? length : NULL, NULL};
    const struct request request = {.method = "POST",
                                    .path = "/decode",
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

/* Applies the step to the mirror, and counts an answer that differs from the mirror's. */
static void take_step(struct caller *caller, struct mirror *mirror, size_t layer,
                      const json_t *answer)
{
    float out[TINY];
    size_t position = mirror_length(mirror, layer);
    mirror_step(out, mirror, layer, seed_of(mirror, layer, position), true);
    caller->wrong +=
        !mirror_output_equals(answer, out) ||
        json_integer_value(json_object_get(answer, "position")) != (json_int_t)position ||
        json_integer_value(json_object_get(answer, "length")) != (json_int_t)position + 1;
    caller->decodes++;
}

/* ---- What callers do ------------------------------------------------------------------------- */

/* Creates a session by its first step.  A retry finds the session there, and repeats the step
 * without `start`. */
static void start(struct caller *caller, struct mirror *mirror)
{
    struct text body = {0}, next = {0};
    snprintf(mirror->id, sizeof mirror->id, "r%u-%u", caller->number, ++caller->names);
    mirror->seed = caller->number * 100000000u + caller->names * 4 * LONG;
    mirror->kind = below(caller, MIRROR_KINDS);
    mirror_start(mirror);
    mirror_text_open(&body, mirror, 0);
    mirror_text_step(&body, mirror, seed_of(mirror, 0, 0), ",\"start\":true");
    text_add(&body, "}");
    struct answer answer = ask(caller, body.data, 0, 0);
    if (answer.status == 409 && strcmp(answer_code(&answer), "session_exists") == 0) {
        answer_free(&answer);
        mirror_text_open(&next, mirror, 0);
        mirror_text_step(&next, mirror, seed_of(mirror, 0, 0), ",\"position\":0");
        text_add(&next, "}");
        answer = ask(caller, next.data, 1, 1);
    }
    take_step(caller, mirror, 0, answer.json);
    answer_free(&answer);
    text_free(&body);
    text_free(&next);
}

static void write_step(struct text *body, const struct mirror *mirror, size_t layer)
{
    char extra[64];
    size_t position = mirror_length(mirror, layer);
    snprintf(extra, sizeof extra, ",\"position\":%zu", position);
    mirror_text_step(body, mirror, seed_of(mirror, layer, position), extra);
}

static void step_one(struct caller *caller, struct mirror *mirror, size_t layer)
{
    struct text body = {0};
    mirror_text_open(&body, mirror, layer);
    write_step(&body, mirror, layer);
    text_add(&body, "}");
    struct answer answer = ask(caller, body.data, 1, 0);
    take_step(caller, mirror, layer, answer.json);
    answer_free(&answer);
    text_free(&body);
}

/* Steps each of these sessions, of one model and of none, in one request. */
static void step_many(struct caller *caller, struct mirror *const list[], size_t count,
                      size_t layer)
{
    struct text body = {0};
    const struct mirror *named = list[0];
    for (size_t i = 1; i < count && mirror_model(named) == NULL; i++)
        named = list[i];
    mirror_text_open(&body, named, layer);
    text_add(&body, "\"sequences\":[");
    for (size_t i = 0; i < count; i++) {
        text_add(&body, "%s{", i > 0 ? "," : "");
        write_step(&body, list[i], layer);
        text_add(&body, "}");
    }
    text_add(&body, "]}");
    struct answer answer = ask(caller, body.data, count, 0);
    const json_t *items = json_object_get(answer.json, "sequences");
    for (size_t i = 0; i < count; i++)
        take_step(caller, list[i], layer, json_array_get(items, i));
    answer_free(&answer);
    text_free(&body);
}

/* ---- Encoder rows ---------------------------------------------------------------------------- */

#define ENCODER_ROWS 70
#define ENCODER_STEPS 4

static void add_rows(struct text *body, const char *name, unsigned seed, size_t rows)
{
    float x[ENCODER_ROWS * TINY];
    make_numbers(x, rows * TINY, seed);
    text_add(body, ",\"%s\":", name);
    text_floats(body, x, 9, SHAPE(rows, TINY));
}

/* Compares an answer with that of a request that brings the encoder's rows. */
static void compare_cross(struct caller *caller, const struct answer *answer, unsigned seed,
                          unsigned step)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"crossed\",\"layer\":%u", step % 2);
    add_rows(&body, "hidden_states", seed + step + 1, 1);
    add_rows(&body, "encoder_hidden_states", seed, ENCODER_ROWS);
    text_add(&body, "}");
    struct answer want = client_post(&caller->direct, "/attend", body.data);
    float *a = tensor_of(answer->json, "output", SHAPE(1, TINY));
    float *b = tensor_of(want.json, "output", SHAPE(1, TINY));
    for (size_t i = 0; i < TINY; i++)
        caller->wrong += !(fabsf(a[i] - b[i]) < 1e-5F);
    free(a);
    free(b);
    answer_free(&want);
    text_free(&body);
}

static void cross(struct caller *caller)
{
    char id[40], path[64];
    unsigned seed = caller->number * 100000000u + ++caller->names * 4 * LONG;
    snprintf(id, sizeof id, "x%u-%u", caller->number, caller->names);
    for (unsigned step = 0; step < ENCODER_STEPS; step++) {
        struct text body = {0};
        text_add(&body, "{\"model\":\"crossed\",\"session_id\":\"%s\",\"layer\":%u", id, step % 2);
        add_rows(&body, "hidden_states", seed + step + 1, 1);
        if (step == 0) {
            text_add(&body, ",\"start\":true");
            add_rows(&body, "encoder_hidden_states", seed, ENCODER_ROWS);
        }
        text_add(&body, "}");
        struct answer answer = ask(caller, body.data, step == 0, 0);
        expect_answer(&answer, 200, NULL, id);
        compare_cross(caller, &answer, seed, step);
        answer_free(&answer);
        text_free(&body);
    }
    caller->encoders++;
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer ended = client_delete(&caller->direct, path);
    expect_answer(&ended, 204, NULL, id);
    answer_free(&ended);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static void create_twin(struct caller *caller, const struct mirror *twin)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",", twin->id);
    if (mirror_model(twin) != NULL)
        text_add(&body, "\"model\":\"%s\"}", mirror_model(twin));
    else
        text_add(&body, "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4}");
    struct answer answer = client_post(&caller->direct, "/sessions", body.data);
    expect_answer(&answer, 201, NULL, twin->id);
    answer_free(&answer);
    text_free(&body);
}

static void step_twin(struct caller *caller, const struct mirror *twin, size_t layer,
                      struct text *step)
{
    struct text body = {0};
    mirror_text_open(&body, twin, layer);
    text_add(&body, "%s}", step->data);
    struct answer answer = client_post(&caller->direct, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "a twin's step");
    answer_free(&answer);
    text_free(&body);
    text_free(step);
}

/* Steps the twin to `end` rows of a layer, in as few requests as possible, without weights one by
 * one. */
static void step_twin_to(struct caller *caller, const struct mirror *mirror,
                         const struct mirror *twin, size_t layer, size_t begin, size_t end)
{
    for (size_t i = begin, piece; i < end; i += piece) {
        struct text step = {0};
        char extra[64];
        piece = mirror->kind == MIRROR_WEIGHTLESS ? 1 : end - i > 49 ? 49 : end - i;
        snprintf(extra, sizeof extra, ",\"position\":%zu", i);
        if (mirror->kind == MIRROR_WEIGHTLESS)
            mirror_text_step(&step, twin, seed_of(mirror, layer, i), extra);
        else
            text_steps(&step, twin->id, seed_of(mirror, layer, i), piece, extra);
        step_twin(caller, twin, layer, &step);
    }
}

/* Creates the twin: the same rows, and the last step of each layer as a request of its own, as the
 * session had it. */
static void make_twin(struct caller *caller, const struct mirror *mirror, const char *id)
{
    struct mirror twin = *mirror;
    snprintf(twin.id, sizeof twin.id, "%s", id);
    create_twin(caller, &twin);
    for (size_t last = 0; last < 2; last++)
        for (size_t layer = 0; layer < mirror_layers(mirror); layer++) {
            size_t length = mirror_length(mirror, layer), most = length > 0 ? length - 1 : 0;
            step_twin_to(caller, mirror, &twin, layer, last ? most : 0, last ? length : most);
        }
}

/* What the first layer keeps for the second, which reads it, depends on how far behind the second
 * was: makes a step of each once the second has caught up. */
static void catch_up(struct caller *caller, struct mirror *mirror)
{
    while (mirror_takes(mirror, 1))
        step_one(caller, mirror, 1);
    for (size_t layer = 0; layer < MIRROR_LAYERS; layer++)
        step_one(caller, mirror, layer);
}

/* Splits an exported state into data and header; the notes that differ between sessions (epoch,
 * checksum) are removed. */
static json_t *split(const char **data, size_t *bytes, const struct answer *state)
{
    uint64_t length;
    ck_assert_msg(state->status == 200 && state->length > PREFIX, "%.300s", state->text);
    memcpy(&length, state->text, PREFIX);
    ck_assert_uint_le(length, state->length - PREFIX);
    json_t *header = json_loadb(state->text + PREFIX, length, JSON_REJECT_DUPLICATES, NULL);
    json_t *notes = json_object_get(header, "__metadata__");
    ck_assert_int_eq(json_object_del(notes, "epoch"), 0);
    ck_assert_int_eq(json_object_del(notes, "checksum"), 0);
    *data = state->text + PREFIX + length;
    *bytes = state->length - PREFIX - length;
    return header;
}

static struct answer export(struct caller *caller, const char *id)
{
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    return client_get(&caller->direct, path);
}

/* Compares the session with its twin and with the mirror, and deletes it. */
static void compare(struct caller *caller, struct mirror *mirror)
{
    char twin[40];
    const char *a, *b;
    size_t a_bytes, b_bytes;
    snprintf(twin, sizeof twin, "twin-%s", mirror->id);
    if (mirror->kind == MIRROR_READING)
        catch_up(caller, mirror);
    make_twin(caller, mirror, twin);
    struct answer got = export(caller, mirror->id), want = export(caller, twin);
    json_t *x = split(&a, &a_bytes, &got), *y = split(&b, &b_bytes, &want);
    caller->differing += !json_equal(x, y) || a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0 ||
                         !mirror_holds(mirror, a, a_bytes);
    caller->rows += mirror_length(mirror, 0) + mirror_length(mirror, 1);
    caller->compared[mirror->kind]++;
    json_decref(x);
    json_decref(y);
    answer_free(&got);
    answer_free(&want);
    call_delete(&caller->direct, twin);
    call_delete(&caller->direct, mirror->id);
    mirror_end(mirror);
}

/* ---- All ------------------------------------------------------------------------------------- */

/* Whether the session's model is that of all others that have one. */
static bool joins(const struct mirror *mirror, struct mirror *const list[], size_t count)
{
    bool same = true;
    for (size_t i = 0; i < count; i++)
        same = same && (mirror->kind == list[i]->kind || mirror->kind == MIRROR_WEIGHTLESS ||
                        list[i]->kind == MIRROR_WEIGHTLESS);
    return same;
}

static void act(struct caller *caller)
{
    struct mirror *list[TOGETHER];
    size_t first = below(caller, SESSIONS), layer = below(caller, MIRROR_LAYERS), count = 0;
    size_t wanted = 1 + below(caller, 2) * below(caller, TOGETHER);
    for (size_t i = 0; i < wanted; i++) {
        struct mirror *mirror = &caller->sessions[(first + i) % SESSIONS];
        if (mirror->live && mirror_longest(mirror) >= LONG)
            compare(caller, mirror);
        if (!mirror->live)
            start(caller, mirror);
        else if (mirror_takes(mirror, layer) && joins(mirror, list, count))
            list[count++] = mirror;
    }
    if (below(caller, 16) == 0)
        cross(caller);
    if (count == 1)
        step_one(caller, list[0], layer);
    else if (count > 1)
        step_many(caller, list, count, layer);
}

static void *call(void *argument)
{
    struct caller *caller = argument;
    client_open(&caller->client, &through);
    client_open(&caller->direct, &served);
    while (caller->decodes < decodes / CALLERS + 1)
        act(caller);
    for (size_t i = 0; i < SESSIONS; i++)
        if (caller->sessions[i].live)
            compare(caller, &caller->sessions[i]);
    client_close(&caller->client);
    client_close(&caller->direct);
    return NULL;
}

static struct proxy_figures proxied;

START_TEST(test_retries_lose_and_duplicate_nothing)
{
    static const char *const arguments[] = {"--log", "error", NULL};
    pthread_t threads[CALLERS];
    mirror_open(MIRROR_MODEL);
    daemon_start(&served, MIRROR_CONFIG, arguments, NULL);
    proxy_open(&through, &served);
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.number = i, .random = i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    proxied = proxy_close();
    daemon_stop(&served);
    mirror_close();
}
END_TEST

static bool run(void)
{
    Suite *suite = suite_create("retry");
    TCase *tests = tcase_create("retry");
    tcase_add_test(tests, test_retries_lose_and_duplicate_nothing);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}

int main(int argc, char *argv[])
{
    struct caller all = {0};
    if (argc > 1 && strcmp(argv[1], "--quick") == 0)
        decodes = DECODES_QUICK;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    bool ran = run();
    for (size_t i = 0; i < CALLERS; i++) {
        all.decodes += callers[i].decodes;
        all.wrong += callers[i].wrong;
        all.rows += callers[i].rows;
        all.differing += callers[i].differing;
        all.encoders += callers[i].encoders;
        for (size_t kind = 0; kind < MIRROR_KINDS; kind++)
            all.compared[kind] += callers[i].compared[kind];
    }
    size_t compared = 0;
    bool every = true;
    for (size_t kind = 0; kind < MIRROR_KINDS; kind++) {
        compared += all.compared[kind];
        every = every && all.compared[kind] > 0;
    }
    size_t disturbed = proxied.dropped + proxied.doubled;
    bool right = ran && every && all.encoders > 0 && all.wrong == 0 && all.differing == 0 &&
                 all.rows == all.decodes && all.decodes >= decodes &&
                 disturbed * 11 > proxied.requests && proxied.replayed == proxied.expected &&
                 proxied.replayed > disturbed / 2;
    printf(
        "check-retry: %zu decodes in %zu requests, of which %zu lost their reply and %zu came "
        "twice: %zu rows in %zu sessions compared, %zu sessions differ, %zu answers wrong, %zu of "
        "%zu replays told, %zu sessions over encoder rows%s\n",
        all.decodes, proxied.requests, proxied.dropped, proxied.doubled, all.rows, compared,
        all.differing, all.wrong, proxied.replayed, proxied.expected, all.encoders,
        right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
