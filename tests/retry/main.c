/* main.c: 100,000 decodes through a proxy that loses, doubles, holds and reorders requests:
 * build/retry [--quick].
 *
 * Callers step the two layers of their sessions, which are of the kinds of mirror.h, or the one
 * layer of those without weights: one or several in a request, in JSON or in binary form.  They
 * begin each session with `start` or as a fork, truncate, and delete, and begin the next one under
 * the same id.  Each request names the position, epoch and revision that its caller knows, and one
 * without an answer is sent again, as docs/API.md says.  Each answer must have the bits of the
 * mirror (mirror.h), the daemon must say `replayed` exactly for the requests that it had before,
 * and a request that arrives late may do nothing but begin a session that has ended.
 *
 * A session is compared before it is deleted.  Its exported state must be, byte for byte but for
 * the epoch and the checksum, that of its twin, a session that got the same rows undisturbed; its
 * tensors must be those of the mirror's cache.
 *
 * A caller goes on until it has truncated, forked and compared sessions of every kind.  Then the
 * same is done by callers that send no revisions: it must be found. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caller.h"
#include "proxy.h"
#include "suite_run.h"
#include "tensors.h"
#include "verdict.h"

#define DECODES 100000
#define DECODES_QUICK 10000
#define DECODES_PLANTED 4000
#define CALLERS 6
#define MORE 10    /* times as many decodes, at most, until a caller has done everything */
#define TOGETHER 4 /* sessions in a request, at most */

static size_t decodes = DECODES;
static struct daemon served, through;
static struct caller callers[CALLERS];

/* ---- Sessions that a late request has begun -------------------------------------------------- */

/* Looks at the session of this mirror's id, which is its caller's or one that a late request has
 * begun; false where there is none. */
static bool look(struct caller *caller, struct mirror *mirror)
{
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s", mirror->id);
    struct answer answer = client_get(&caller->direct, path);
    bool found = answer.status == 200;
    if (found)
        mirror_note(mirror, answer.json);
    answer_free(&answer);
    return found;
}

/* Deletes a session that a late request has begun. */
static void sweep(struct caller *caller, struct mirror *mirror)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s?epoch=%lld", mirror->id, (long long)mirror->epoch);
    struct answer answer = caller_ask(caller, &(struct call){.method = "DELETE", .path = path});
    caller->swept++;
    caller->explained++;
    answer_free(&answer);
}

/* ---- What callers do ------------------------------------------------------------------------- */

/* Sends the first step as one over the session that is there: true where the answer has its
 * result. */
static bool repeat_start(struct caller *caller, struct session *session)
{
    struct text body = {0};
    char extra[160], known[80];
    struct mirror *mirror = &session->mirror;
    if (!look(caller, mirror))
        return false;
    caller_write_known(known, mirror);
    snprintf(extra, sizeof extra, ",\"position\":0%s", known);
    mirror_text_open(&body, mirror, 0);
    mirror_text_step(&body, mirror, session->seeds[0][0], extra);
    text_add(&body, "}");
    struct answer answer = caller_ask(caller, &(struct call){.method = "POST",
                                                             .path = "/decode",
                                                             .json = body.data,
                                                             .again = PROXY_ANY,
                                                             .first = PROXY_ANY});
    const bool done = answer.status == 200;
    if (done) {
        mirror_note(mirror, answer.json);
        caller_take_step(caller, session, 0, answer.json);
    } else {
        sweep(caller, mirror); /* of another row: it is none of this caller's life */
    }
    answer_free(&answer);
    text_free(&body);
    return done;
}

/* One try to create a session by its first step.  A retry finds the session there, and repeats the
 * step without `start`. */
static bool try_start(struct caller *caller, struct session *session)
{
    struct text body = {0};
    struct mirror *mirror = &session->mirror;
    mirror_text_open(&body, mirror, 0);
    mirror_text_step(&body, mirror, session->seeds[0][0], ",\"start\":true");
    text_add(&body, "}");
    struct answer answer =
        caller_ask(caller, &(struct call){.method = "POST", .path = "/decode", .json = body.data});
    bool done = answer.status == 200;
    if (done) {
        mirror_note(mirror, answer.json);
        caller_take_step(caller, session, 0, answer.json);
    } else if (strcmp(answer_code(&answer), "session_exists") == 0) {
        caller->explained++;
        done = repeat_start(caller, session);
    } else {
        caller_break(caller, session, "a start", &answer);
        done = true;
    }
    answer_free(&answer);
    text_free(&body);
    return done;
}

static void start(struct caller *caller, struct session *session)
{
    struct mirror *mirror = &session->mirror;
    mirror->kind = caller_draw(caller, MIRROR_KINDS);
    mirror_start(mirror);
    session->seeds[0][0] = caller->number * 100000000u + ++caller->rows;
    while (!try_start(caller, session))
        continue;
}

/* Draws a length to which the session can be truncated or forked, mostly one near its end. */
static size_t draw_length(struct caller *caller, const struct mirror *mirror)
{
    size_t longest = mirror_longest(mirror), lowest = attn_cache_lowest_length(mirror->cache);
    unsigned most = (unsigned)(caller_draw(caller, 4) > 0 && longest > 3 ? 3 : longest);
    size_t length = longest - caller_draw(caller, most + 1);
    return length > 0 && length < lowest ? lowest : length;
}

static size_t count_rows(const struct mirror *mirror)
{
    return mirror_length(mirror, 0) + mirror_length(mirror, 1);
}

static void truncate_one(struct caller *caller, struct session *session)
{
    char path[64], body[160], known[80];
    struct mirror *mirror = &session->mirror;
    size_t length = draw_length(caller, mirror), rows = count_rows(mirror);
    caller_write_known(known, mirror);
    snprintf(path, sizeof path, "/sessions/%s/truncate", mirror->id);
    snprintf(body, sizeof body, "{\"length\":%zu%s}", length, known);
    struct answer answer =
        caller_ask(caller, &(struct call){.method = "POST",
                                          .path = path,
                                          .json = body,
                                          .again = caller_sends_revisions ? 1 : PROXY_ANY,
                                          .first = caller_sends_revisions ? 0 : PROXY_ANY});
    if (answer.status == 200) {
        caller->wrong += mirror_is_noted(mirror, answer.json);
        mirror_note(mirror, answer.json);
        ck_assert(attn_cache_truncate(mirror->cache, length));
        caller->cut += rows - count_rows(mirror);
        caller->truncated++;
    } else {
        caller_break(caller, session, "a truncation", &answer);
    }
    answer_free(&answer);
}

static void take_fork(struct caller *caller, struct session *made, const struct session *from,
                      size_t length, const json_t *answer)
{
    mirror_fork(&made->mirror, &from->mirror, length);
    memcpy(made->seeds, from->seeds, sizeof made->seeds);
    mirror_note(&made->mirror, answer);
    caller->copied += count_rows(&made->mirror);
    caller->forked++;
}

/* With an Idempotency-Key, so that a session which is there already is none of this fork. */
static void fork_one(struct caller *caller, struct session *made, struct session *from)
{
    char path[64], body[160], known[80], key[40];
    size_t length = draw_length(caller, &from->mirror);
    bool done = false;
    caller_write_known(known, &from->mirror);
    snprintf(path, sizeof path, "/sessions/%s/fork", from->mirror.id);
    snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"length\":%zu%s}", made->mirror.id, length,
             known);
    snprintf(key, sizeof key, "k%u-%zu", caller->number, caller->requests);
    while (!done) {
        struct answer answer = caller_ask(
            caller,
            &(struct call){
                .method = "POST", .path = path, .json = body, .idempotency_key = key, .again = 1});
        done = strcmp(answer_code(&answer), "session_exists") != 0;
        if (answer.status == 201)
            take_fork(caller, made, from, length, answer.json);
        else if (done)
            caller_break(caller, from, "a fork", &answer);
        else if (look(caller, &made->mirror))
            sweep(caller, &made->mirror);
        answer_free(&answer);
    }
}

/* Steps each of these sessions, of one model and of none, in one request. */
static void step_many(struct caller *caller, struct session *const list[], size_t count,
                      size_t layer)
{
    struct text body = {0};
    const struct mirror *named = &list[0]->mirror;
    for (size_t i = 1; i < count && mirror_model(named) == NULL; i++)
        named = &list[i]->mirror;
    mirror_text_open(&body, named, layer);
    text_add(&body, "\"sequences\":[");
    for (size_t i = 0; i < count; i++) {
        text_add(&body, "%s{", i > 0 ? "," : "");
        caller_write_step(&body, caller, list[i], layer);
        text_add(&body, "}");
    }
    text_add(&body, "]}");
    /* A caller without revisions may have items that fail, and are no replays when repeated. */
    struct answer answer =
        caller_ask(caller, &(struct call){.method = "POST",
                                          .path = "/decode",
                                          .json = body.data,
                                          .again = caller_sends_revisions ? count : PROXY_ANY,
                                          .first = caller_sends_revisions ? 0 : PROXY_ANY});
    const json_t *items = json_object_get(answer.json, "sequences");
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(items, i);
        if (item != NULL && json_object_get(item, "error") == NULL)
            caller_take_step(caller, list[i], layer, item);
        else
            caller_break(caller, list[i], "a step of a list", &answer);
    }
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
    unsigned seed = caller->number * 100000000u + 4 * LONG * (unsigned)++caller->names;
    snprintf(id, sizeof id, "x%u-%zu", caller->number, caller->names);
    for (unsigned step = 0; step < ENCODER_STEPS; step++) {
        struct text body = {0};
        text_add(&body, "{\"model\":\"crossed\",\"session_id\":\"%s\",\"layer\":%u", id, step % 2);
        add_rows(&body, "hidden_states", seed + step + 1, 1);
        if (step == 0) {
            text_add(&body, ",\"start\":true");
            add_rows(&body, "encoder_hidden_states", seed, ENCODER_ROWS);
        }
        text_add(&body, "}");
        struct answer answer = caller_ask(caller, &(struct call){.method = "POST",
                                                                 .path = "/decode",
                                                                 .json = body.data,
                                                                 .again = step == 0});
        expect_answer(&answer, 200, NULL, id);
        compare_cross(caller, &answer, seed, step);
        answer_free(&answer);
        text_free(&body);
    }
    caller->encoders++;
    snprintf(path, sizeof path, "/sessions/%s", id);
    expect_deleted(&caller->direct, path, 204, NULL);
}

/* ---- All ------------------------------------------------------------------------------------- */

/* Whether the session's model is that of all others that have one. */
static bool joins(const struct mirror *mirror, struct session *const list[], size_t count)
{
    bool same = true;
    for (size_t i = 0; i < count; i++) {
        const struct mirror *other = &list[i]->mirror;
        same = same && (mirror->kind == other->kind || mirror->kind == MIRROR_WEIGHTLESS ||
                        other->kind == MIRROR_WEIGHTLESS);
    }
    return same;
}

/* Begins the session, or truncates, compares and ends it; false where it is to be stepped. */
static bool change(struct caller *caller, struct session *session)
{
    struct session *other = &caller->sessions[caller_draw(caller, SESSIONS)];
    const struct mirror *mirror = &session->mirror;
    const unsigned what = caller_draw(caller, 200);
    if (mirror->live && session->broken) {
        caller->held_rows += count_rows(mirror);
        caller_delete(caller, session);
    } else if (!mirror->live && what < 100 && other->mirror.live && !other->broken) {
        fork_one(caller, session, other);
    } else if (!mirror->live) {
        start(caller, session);
    } else if (mirror_longest(mirror) >= LONG || what == 0) {
        caller_compare(caller, session);
    } else if (what < 12) {
        truncate_one(caller, session);
    } else {
        return false;
    }
    return true;
}

static void act(struct caller *caller)
{
    struct session *list[TOGETHER];
    size_t first = caller_draw(caller, SESSIONS), layer = caller_draw(caller, MIRROR_LAYERS);
    size_t wanted = 1 + caller_draw(caller, 2) * caller_draw(caller, TOGETHER), count = 0;
    for (size_t i = 0; i < wanted; i++) {
        struct session *session = &caller->sessions[(first + i) % SESSIONS];
        if (!change(caller, session) && mirror_takes(&session->mirror, layer) &&
            joins(&session->mirror, list, count))
            list[count++] = session;
    }
    if (caller_draw(caller, 16) == 0)
        cross(caller);
    if (count == 1)
        caller_step(caller, list[0], layer);
    else if (count > 1)
        step_many(caller, list, count, layer);
}

/* Whether the caller has truncated and forked often enough and compared sessions of every kind. */
static bool has_done_all(const struct caller *caller, size_t wanted)
{
    bool every = true;
    for (size_t kind = 0; kind < MIRROR_KINDS; kind++)
        every = every && caller->compared[kind] > 0;
    return every && caller->truncated > wanted / 100 && caller->forked > 0 && caller->encoders > 0;
}

/* Whether the caller finds what is wrong without revisions. */
static bool has_found(const struct caller *caller)
{
    return caller->wrong + caller->unexplained + caller->differing > 0;
}

static void *call(void *argument)
{
    struct caller *caller = argument;
    client_open(&caller->client, &through);
    client_open(&caller->direct, &served);
    const size_t wanted = decodes / CALLERS + 1;
    bool done = false;
    while (caller->decodes < wanted || (!done && caller->decodes < MORE * wanted)) {
        act(caller);
        done = caller_sends_revisions ? has_done_all(caller, wanted) : has_found(caller);
    }
    for (size_t i = 0; i < SESSIONS; i++)
        if (caller->sessions[i].mirror.live)
            caller_compare(caller, &caller->sessions[i]);
    client_close(&caller->client);
    client_close(&caller->direct);
    return NULL;
}

/* The sessions that are left: those that late requests have begun. */
static size_t count_left(void)
{
    struct client client;
    client_open(&client, &served);
    size_t left = (size_t)call_metric(&client, "attnd_sessions");
    client_close(&client);
    return left;
}

static struct figures {
    struct caller all; /* the sums */
    struct proxy_figures proxy;
    size_t compared, left;
} good, planted;

static void add_up(struct figures *f)
{
    for (size_t i = 0; i < CALLERS; i++) {
        const struct caller *caller = &callers[i];
        const size_t *from[] = {&caller->decodes,   &caller->wrong,       &caller->differing,
                                &caller->encoders,  &caller->held_rows,   &caller->copied,
                                &caller->cut,       &caller->truncated,   &caller->forked,
                                &caller->explained, &caller->unexplained, &caller->swept};
        size_t *const to[] = {&f->all.decodes,   &f->all.wrong,       &f->all.differing,
                              &f->all.encoders,  &f->all.held_rows,   &f->all.copied,
                              &f->all.cut,       &f->all.truncated,   &f->all.forked,
                              &f->all.explained, &f->all.unexplained, &f->all.swept};
        for (size_t j = 0; j < sizeof to / sizeof *to; j++)
            *to[j] += *from[j];
        for (size_t kind = 0; kind < MIRROR_KINDS; kind++)
            f->all.compared[kind] += caller->compared[kind];
    }
    for (size_t kind = 0; kind < MIRROR_KINDS; kind++)
        f->compared += f->all.compared[kind];
}

static void run_callers(struct figures *f)
{
    static const char *const arguments[] = {"--log", "error", NULL};
    pthread_t threads[CALLERS];
    mirror_open(MIRROR_MODEL);
    daemon_start(&served, MIRROR_CONFIG, arguments, NULL);
    proxy_open(&through, &served);
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.number = i, .random = i + 1};
        for (unsigned j = 0; j < SESSIONS; j++)
            snprintf(callers[i].sessions[j].mirror.id, sizeof callers[i].sessions[j].mirror.id,
                     "r%u-%u", i, j);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    f->proxy = proxy_close();
    f->left = count_left();
    daemon_stop(&served);
    mirror_close();
    add_up(f);
}

START_TEST(test_retries_and_late_requests_lose_and_double_nothing) { run_callers(&good); }
END_TEST

START_TEST(test_callers_without_revisions_lose_rows)
{
    decodes = DECODES_PLANTED;
    caller_sends_revisions = false;
    run_callers(&planted);
}
END_TEST

static bool run(void)
{
    Suite *suite = suite_create("retry");
    TCase *tests = tcase_create("retry");
    tcase_add_test(tests, test_retries_and_late_requests_lose_and_double_nothing);
    tcase_add_test(tests, test_callers_without_revisions_lose_rows);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}

/* What must hold of the callers that send revisions, and of those that do not. */
static bool is_right(bool ran, size_t wanted)
{
    const struct caller *all = &good.all;
    const struct proxy_figures *proxy = &good.proxy;
    const size_t disturbed = proxy->dropped + proxy->doubled;
    const struct verdict_condition conditions[] = {
        VERDICT(ran),
        VERDICT(all->wrong == 0),
        VERDICT(all->differing == 0),
        VERDICT(all->unexplained == 0),
        VERDICT(proxy->applied == 0),
        VERDICT(all->held_rows == all->decodes + all->copied - all->cut),
        VERDICT(proxy->begun == all->swept + good.left),
        VERDICT(proxy->replayed == proxy->expected),
        VERDICT(all->decodes >= wanted),
        VERDICT(has_done_all(all, wanted)),
        VERDICT(disturbed * 9 > proxy->requests),
        VERDICT(proxy->held * 11 > proxy->requests),
        VERDICT(proxy->reordered > proxy->held / 4),
        VERDICT(proxy->replayed > disturbed / 4),
        VERDICT(has_found(&planted.all)),
        VERDICT(planted.proxy.applied > 0),
    };
    return VERDICTS("check-retry", conditions);
}

int main(int argc, char *argv[])
{
    if (argc > 1 && strcmp(argv[1], "--quick") == 0)
        decodes = DECODES_QUICK;
    const size_t wanted = decodes;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    const bool ran = run();
    const bool right = is_right(ran, wanted);
    const struct caller *all = &good.all;
    const struct proxy_figures *proxy = &good.proxy;
    printf("check-retry: without revisions, %zu late requests of %zu were applied: %zu conflicts "
           "without explanation, %zu answers wrong, %zu sessions differ\n",
           planted.proxy.applied, planted.proxy.held, planted.all.unexplained, planted.all.wrong,
           planted.all.differing);
    printf("check-retry: %zu decodes, %zu truncations and %zu forks in %zu requests, of which %zu "
           "were dropped or lost their reply, %zu came twice, %zu came late, %zu of these in "
           "another order: %zu rows in %zu sessions compared, %zu sessions differ, %zu answers "
           "wrong, %zu late requests applied, %zu of %zu replays told, %zu conflicts explained, "
           "%zu not, %zu sessions begun late, %zu sessions over encoder rows%s\n",
           all->decodes, all->truncated, all->forked, proxy->requests, proxy->dropped,
           proxy->doubled, proxy->held, proxy->reordered, all->held_rows, good.compared,
           all->differing, all->wrong, proxy->applied, proxy->replayed, proxy->expected,
           all->explained, all->unexplained, proxy->begun, all->encoders,
           right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
