/* main.c: SIGKILL under load, again and again: build/kill [--quick].
 *
 * Callers step, fork, truncate, delete and start sessions of a daemon whose journal is small, so
 * that snapshots are made too.  After a random number of answers the daemon is killed and started
 * again.  Every change that was answered must be there; a request without an answer is sent again.
 * Then the lengths of every session and the bits of its next decode must be those of a mirror that
 * was never killed.
 *
 * A session is of a model whose window forgets, of latent attention, of one with a layer that reads
 * another's keys and values, or without weights.  Another caller starts sessions over encoder rows
 * (encoder.h).
 *
 * In a second test memory holds a sixth of these sessions; in a third the daemon is killed in the
 * middle of large imports, between two pieces of one,
 * and nothing of such an import may be left.  The last line has the figures. */
#include <check.h>
#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "calls.h"
#include "cases.h"
#include "encoder.h"
#include "import.h"
#include "mirror.h"
#include "suite_run.h"
#include "verdict.h"

#define KILLS 300
#define KILLS_QUICK 25
#define IMPORTS 20 /* interrupted by a kill */
#define IMPORTS_QUICK 3
#define TRIES 40 /* kills for each of these, at most: a kill may come late */
#define MORE 20  /* times as many kills, at most, until all kinds of sessions have been seen */
#define ANSWERS_LEAST 10 /* before a kill */
#define ANSWERS_DRAWN 120
#define ANSWERS_MS 60000 /* for these, in which a busy machine gives them too */
#define CALLERS 4
#define SESSIONS 6 /* of each caller */
#define LONG 150   /* tokens after which a session is deleted */
#define SHORT \
    "112KiB" /* memory for a sixth of the sessions: one over encoder rows and a few others */
#define FORGETFUL \
    100 /* tokens of the layer with a window: a caller's first session becomes as long */

static size_t kills = KILLS, imports = IMPORTS;
static struct daemon served;
static char directory[64], state[80];
static const char *cache_bytes;

static struct caller {
    unsigned number, random, names, seeds;
    struct client client;
    struct mirror sessions[SESSIONS];
    atomic_size_t answers;
    size_t wrong;  /* answers that differ from the mirror's */
    size_t forgot; /* truncations of a session that had forgotten */
} callers[CALLERS];

static struct {
    size_t kills, rows, lost, doubled, differing, encoders;
    size_t sessions[MIRROR_KINDS];
    size_t interrupted,
        left; /* imports interrupted by a kill, and those of which something was left */
    unsigned slowest_ms;
} result;

static unsigned below(struct caller *caller, unsigned n)
{
    caller->random = caller->random * 1664525u + 1013904223u;
    return (caller->random >> 8) % n;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Applies an answered step to the mirror; false where the answer differs from the mirror's. */
static bool take_step(struct mirror *mirror, const json_t *answer)
{
    float out[TINY];
    if (mirror->pending == PENDING_START) {
        mirror_start(mirror);
        mirror_note(mirror, answer);
    }
    mirror_step(out, mirror, mirror->layer, mirror->seed, true);
    mirror->pending = NOT_PENDING;
    return mirror_output_equals(answer, out) && mirror_is_noted(mirror, answer) &&
           json_integer_value(json_object_get(answer, "length")) ==
               (json_int_t)mirror_length(mirror, mirror->layer);
}

/* Sends a request; false, with nothing to free, where no answer came. */
static bool ask(struct answer *answer, struct client *client, const struct request *request)
{
    bool answered = client_try(answer, client, request);
    if (!answered)
        answer_free(answer);
    return answered;
}

static bool post(struct answer *answer, struct client *client, const char *path, struct text *body)
{
    bool answered =
        ask(answer, client, &(struct request){.method = "POST", .path = path, .body = body->data});
    text_free(body);
    return answered;
}

/* ---- The load -------------------------------------------------------------------------------- */

/* What a session that a step of this layer starts is of.  A caller's first session forgets. */
static enum mirror_kind draw_kind(struct caller *caller, const struct mirror *mirror, size_t layer)
{
    enum mirror_kind kind = mirror != caller->sessions ? below(caller, MIRROR_KINDS) : MIRROR_TINY;
    struct mirror drawn = {.kind = kind};
    return mirror_takes(&drawn, layer) ? kind : MIRROR_TINY;
}

/* Whether the session may take a step of the layer in a request that names the model. */
static bool joins(const struct mirror *mirror, size_t layer, const char *model)
{
    const char *own = mirror_model(mirror);
    return mirror_takes(mirror, layer) && (own == NULL || strcmp(own, model) == 0);
}

/* Adds a new step to a body and records it in the mirror as pending. */
static void write_step(struct text *body, struct caller *caller, struct mirror *mirror,
                       size_t layer)
{
    char extra[160], noted[80];
    mirror->layer = layer;
    mirror->seed = caller->number * 10000000u + ++caller->seeds;
    mirror->pending = mirror->live ? PENDING_STEP : PENDING_START;
    if (mirror->live) {
        mirror_write_noted(noted, mirror);
        snprintf(extra, sizeof extra, ",\"position\":%zu%s", mirror_length(mirror, layer), noted);
    } else {
        snprintf(mirror->id, sizeof mirror->id, "s%u-%u", caller->number, ++caller->names);
        snprintf(extra, sizeof extra, ",\"start\":true");
    }
    mirror_text_step(body, mirror, mirror->seed, extra);
}

static bool step_layer(struct caller *caller, struct mirror *mirror, size_t layer)
{
    struct text body = {0}, step = {0};
    struct answer answer;
    write_step(&step, caller, mirror, layer);
    mirror_text_open(&body, mirror, layer);
    text_add(&body, "%s}", step.data);
    text_free(&step);
    if (!post(&answer, &caller->client, "/decode", &body))
        return false;
    caller->wrong += answer.status != 200 || !take_step(mirror, answer.json);
    answer_free(&answer);
    return true;
}

static bool step_one(struct caller *caller, struct mirror *mirror)
{
    size_t layer = below(caller, MIRROR_LAYERS);
    if (!mirror->live)
        mirror->kind = draw_kind(caller, mirror, layer);
    return step_layer(caller, mirror, mirror_takes(mirror, layer) ? layer : 0);
}

/* Steps half of the caller's sessions in one request. */
static bool step_many(struct caller *caller)
{
    struct text body = {0};
    struct answer answer;
    size_t layer = below(caller, MIRROR_LAYERS), first = below(caller, 2);
    const struct mirror named = {.kind = below(caller, MIRROR_MODELS)};
    const char *model = mirror_model(&named);
    mirror_text_open(&body, &named, layer);
    text_add(&body, "\"sequences\":[");
    struct mirror *list[SESSIONS];
    size_t count = 0;
    for (size_t i = first; i < SESSIONS; i += 2) {
        if (!caller->sessions[i].live)
            caller->sessions[i].kind = draw_kind(caller, &caller->sessions[i], layer);
        if (!joins(&caller->sessions[i], layer, model))
            continue;
        text_add(&body, "%s{", count > 0 ? "," : "");
        list[count++] = &caller->sessions[i];
        write_step(&body, caller, &caller->sessions[i], layer);
        text_add(&body, "}");
    }
    text_add(&body, "]}");
    if (count == 0) {
        text_free(&body);
        return true;
    }
    if (!post(&answer, &caller->client, "/decode", &body))
        return false;
    const json_t *items = json_object_get(answer.json, "sequences");
    for (size_t i = 0; i < count; i++)
        caller->wrong += !take_step(list[i], json_array_get(items, i));
    answer_free(&answer);
    return true;
}

static bool delete_one(struct caller *caller, struct mirror *mirror)
{
    char path[64];
    struct answer answer;
    snprintf(path, sizeof path, "/sessions/%s?epoch=%lld", mirror->id, (long long)mirror->epoch);
    mirror->pending = PENDING_DELETE;
    if (!ask(&answer, &caller->client, &(struct request){.method = "DELETE", .path = path}))
        return false;
    caller->wrong += answer.status != 204;
    answer_free(&answer);
    mirror->pending = NOT_PENDING;
    mirror_end(mirror);
    return true;
}

static bool has_forgotten(const struct mirror *mirror)
{
    return mirror->live && attn_cache_lowest_length(mirror->cache) > 0;
}

/* Draws a length to which the session can be truncated or forked. */
static size_t draw_length(struct caller *caller, const struct mirror *mirror)
{
    size_t length = below(caller, (unsigned)mirror_longest(mirror) + 1);
    size_t lowest = attn_cache_lowest_length(mirror->cache);
    return length > 0 && length < lowest ? lowest : length;
}

/* Sends the pending truncation, whose answer has another revision, and takes that. */
static bool send_truncation(size_t *wrong, struct client *client, struct mirror *mirror)
{
    char path[64], noted[80];
    struct text body = {0};
    struct answer answer;
    snprintf(path, sizeof path, "/sessions/%s/truncate", mirror->id);
    mirror_write_noted(noted, mirror);
    text_add(&body, "{\"length\":%zu%s}", mirror->length, noted);
    if (!post(&answer, client, path, &body))
        return false;
    *wrong += answer.status != 200 || mirror_is_noted(mirror, answer.json);
    mirror_note(mirror, answer.json);
    answer_free(&answer);
    mirror->pending = NOT_PENDING;
    return attn_cache_truncate(mirror->cache, mirror->length);
}

static bool truncate_one(struct caller *caller, struct mirror *mirror)
{
    mirror->length = draw_length(caller, mirror);
    mirror->pending = PENDING_TRUNCATE;
    const bool forgotten = has_forgotten(mirror);
    const bool answered = send_truncation(&caller->wrong, &caller->client, mirror);
    caller->forgot += answered && forgotten;
    return answered;
}

static bool fork_one(struct caller *caller, struct mirror *mirror, struct mirror *from)
{
    char path[64], noted[80];
    struct text body = {0};
    struct answer answer;
    snprintf(path, sizeof path, "/sessions/%s/fork", from->id);
    mirror_write_noted(noted, from);
    snprintf(mirror->id, sizeof mirror->id, "f%u-%u", caller->number, ++caller->names);
    mirror->length = draw_length(caller, from);
    mirror->from = from;
    mirror->pending = PENDING_FORK;
    text_add(&body, "{\"session_id\":\"%s\",\"length\":%zu%s}", mirror->id, mirror->length, noted);
    if (!post(&answer, &caller->client, path, &body))
        return false;
    caller->wrong += answer.status != 201;
    mirror_note(mirror, answer.json);
    answer_free(&answer);
    mirror->pending = NOT_PENDING;
    mirror_fork(mirror, from, mirror->length);
    return true;
}

/* Sends one request of a random kind; false where no answer came. */
static bool send_one(struct caller *caller)
{
    struct mirror *mirror = &caller->sessions[below(caller, SESSIONS)];
    struct mirror *other = &caller->sessions[below(caller, SESSIONS)];
    unsigned kind = below(caller, 100);
    if (mirror->live && mirror_longest(mirror) > LONG)
        return delete_one(caller, mirror);
    if (kind < 20)
        return step_many(caller);
    if (mirror == caller->sessions && mirror->live && mirror_length(mirror, 1) < FORGETFUL)
        return step_one(caller, mirror);
    if (mirror->live && kind < 25)
        return truncate_one(caller, mirror);
    if (mirror->live && kind < 32 && !other->live)
        return fork_one(caller, other, mirror);
    if (mirror->live && kind < 36)
        return delete_one(caller, mirror);
    return step_one(caller, mirror);
}

/* First truncates the session that has forgotten, so that a kill follows that. */
static void *call(void *argument)
{
    struct caller *caller = argument;
    client_open(&caller->client, &served);
    bool answered = !has_forgotten(caller->sessions) || truncate_one(caller, caller->sessions);
    while (answered) {
        caller->answers++;
        answered = send_one(caller);
    }
    client_close(&caller->client);
    return NULL;
}

/* ---- After a kill ---------------------------------------------------------------------------- */

/* Reads the session's lengths, epoch and revision; false where the session does not exist. */
static bool read_session(size_t lengths[MIRROR_LAYERS], struct mirror *noted, struct client *client,
                         const char *id)
{
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(client, path);
    bool found = answer.status == 200;
    mirror_note(noted, answer.json);
    for (size_t i = 0; i < MIRROR_LAYERS; i++)
        lengths[i] = (size_t)json_integer_value(
            json_object_get(json_array_get(json_object_get(answer.json, "lengths"), i), "length"));
    answer_free(&answer);
    return found;
}

static struct answer decode(struct client *client, const struct mirror *mirror, size_t layer,
                            unsigned seed, const char *extra)
{
    struct text body = {0};
    struct answer answer;
    mirror_text_open(&body, mirror, layer);
    mirror_text_step(&body, mirror, seed, extra);
    text_add(&body, "}");
    ck_assert(post(&answer, client, "/decode", &body));
    return answer;
}

/* Sends a pending step again; the step must count once. */
static void step_again(struct client *client, struct mirror *mirror)
{
    char extra[160], noted[80];
    size_t position = mirror->pending == PENDING_START ? 0 : mirror_length(mirror, mirror->layer);
    mirror_write_noted(noted, mirror);
    snprintf(extra, sizeof extra, ",\"position\":%zu%s", position, noted);
    struct answer answer = decode(client, mirror, mirror->layer, mirror->seed, extra);
    result.doubled += answer.status == 409;
    result.differing += answer.status == 200 && !take_step(mirror, answer.json);
    result.lost += answer.status == 404;
    answer_free(&answer);
}

/* Finds out whether the pending request took effect, and brings the mirror to the same state. */
static void settle(struct client *client, struct mirror *mirror)
{
    size_t lengths[MIRROR_LAYERS];
    struct mirror noted;
    enum pending pending = mirror->pending;
    bool found = read_session(lengths, &noted, client, mirror->id);
    if (pending == PENDING_STEP || (pending == PENDING_START && found))
        step_again(client, mirror);
    else if (pending == PENDING_FORK && found) {
        mirror_fork(mirror, mirror->from, mirror->length);
        mirror->epoch = noted.epoch;
        mirror->revision = noted.revision;
    } else if (pending == PENDING_DELETE && !found)
        mirror_end(mirror);
    else if (pending == PENDING_TRUNCATE)
        ck_assert(send_truncation(&result.lost, client, mirror));
    mirror->pending = NOT_PENDING;
}

static void compare(struct client *client, struct mirror *mirror)
{
    size_t lengths[MIRROR_LAYERS];
    float out[TINY];
    struct mirror noted;
    bool found = read_session(lengths, &noted, client, mirror->id);
    if (!found) {
        result.lost += mirror_length(mirror, 0) + mirror_length(mirror, 1) + 1;
        return;
    }
    result.lost += noted.epoch != mirror->epoch || noted.revision != mirror->revision;
    for (size_t i = 0; i < mirror_layers(mirror); i++) {
        size_t want = mirror_length(mirror, i);
        result.lost += lengths[i] < want ? want - lengths[i] : 0;
        result.doubled += lengths[i] > want ? lengths[i] - want : 0;
        result.rows += want;
        if (!mirror_takes(mirror, i))
            continue;
        struct answer answer = decode(client, mirror, i, 77, ",\"commit\":false");
        mirror_step(out, mirror, i, 77, false);
        result.differing += answer.status != 200 || !mirror_output_equals(answer.json, out);
        answer_free(&answer);
    }
    result.sessions[mirror->kind]++;
}

static void verify(void)
{
    struct client client;
    client_open(&client, &served);
    for (size_t pass = 0; pass < 3; pass++) /* forks are settled before their parents */
        for (size_t c = 0; c < CALLERS; c++)
            for (size_t i = 0; i < SESSIONS; i++) {
                struct mirror *mirror = &callers[c].sessions[i];
                bool fork = mirror->pending == PENDING_FORK;
                if (pass < 2 && mirror->pending != NOT_PENDING && fork == (pass == 0))
                    settle(&client, mirror);
                else if (pass == 2 && mirror->live)
                    compare(&client, mirror);
            }
    result.lost += encoder_verify(&result.encoders, &client);
    result.lost +=
        (size_t)call_metric(&client, "attnd_sessions_lost_total"); /* as the start says */
    client_close(&client);
}

/* ---- All ------------------------------------------------------------------------------------- */

static void start(void)
{
    const char *const arguments[] = {"--durability",
                                     "journal",
                                     "--journal-fsync",
                                     "os",
                                     "--state-dir",
                                     state,
                                     "--journal-bytes",
                                     "64KiB",
                                     "--log",
                                     "error",
                                     "--cache-bytes",
                                     cache_bytes,
                                     NULL};
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    daemon_start(&served, MIRROR_CONFIG, arguments, NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    unsigned ms = (unsigned)((after.tv_sec - before.tv_sec) * 1000 +
                             (after.tv_nsec - before.tv_nsec) / 1000000);
    result.slowest_ms = ms > result.slowest_ms ? ms : result.slowest_ms;
}

static size_t count_answers(void)
{
    size_t answers = 0;
    for (size_t i = 0; i < CALLERS; i++)
        answers += callers[i].answers;
    return answers;
}

/* Waits for so many answers more. */
static void await_answers(size_t before, size_t more)
{
    for (unsigned ms = 0; count_answers() - before < more; ms++) {
        ck_assert_uint_lt(ms, ANSWERS_MS);
        pause_ms(1);
    }
}

/* Kills the daemon under load after as many answers as `moments` draws or, where that is NULL,
 * within an import if possible. */
static void kill_under_load(struct caller *moments)
{
    const size_t before = count_answers();
    pthread_t threads[CALLERS], encoder;
    for (size_t i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    ck_assert_int_eq(pthread_create(&encoder, NULL, encoder_call, &served), 0);
    if (moments != NULL)
        await_answers(before, ANSWERS_LEAST + below(moments, ANSWERS_DRAWN));
    else
        import_begin(&served, state);
    process_end(&served.process); /* SIGKILL */
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(encoder, NULL);
}

/* Makes the caller's first session so long that its window forgets. */
static void make_forget(struct caller *caller)
{
    struct mirror *mirror = caller->sessions;
    client_open(&caller->client, &served);
    mirror->kind = MIRROR_TINY;
    while (!mirror->live || mirror_length(mirror, 1) < FORGETFUL)
        ck_assert(step_layer(caller, mirror, 1));
    ck_assert(has_forgotten(mirror));
    client_close(&caller->client);
}

static void set_up_with(const char *name, const char *memory)
{
    snprintf(state, sizeof state, "%s/%s", directory, name);
    cache_bytes = memory;
    mirror_open(MIRROR_MODEL);
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i].number = i + 1;
        callers[i].random = i + 1;
    }
    start();
    for (size_t i = 0; i < CALLERS; i++)
        make_forget(&callers[i]);
}

static void set_up(void) { set_up_with("whole", "1GiB"); }
static void set_up_short(void) { set_up_with("short", SHORT); }

static void tear_down(void)
{
    daemon_stop(&served);
    for (size_t c = 0; c < CALLERS; c++)
        for (size_t i = 0; i < SESSIONS; i++)
            mirror_end(&callers[c].sessions[i]);
    mirror_close();
}

/* Whether sessions of every kind were compared often, and some were truncated after their windows
 * had forgotten. */
static bool has_seen_all(void)
{
    size_t forgot = 0;
    bool every = true;
    for (size_t i = 0; i < CALLERS; i++)
        forgot += callers[i].forgot;
    for (size_t i = 0; i < MIRROR_KINDS; i++)
        every = every && result.sessions[i] > kills / 2;
    return every && forgot > 0;
}

START_TEST(test_answered_changes_survive_kills)
{
    struct caller moments = {.random = 5};
    while (result.kills < kills || (!has_seen_all() && result.kills < MORE * kills)) {
        kill_under_load(&moments);
        result.kills++;
        start();
        verify();
    }
}
END_TEST

START_TEST(test_answered_changes_survive_kills_where_sessions_leave_memory)
{
    struct caller moments = {.random = 7};
    for (size_t i = 0; i < kills / 3; i++, result.kills++) {
        kill_under_load(&moments);
        start();
        verify();
    }
}
END_TEST

/* Counts the import.  An import that was answered before the kill is in the daemon, and is
 * deleted. */
static void settle_import(struct client *client, bool interrupted)
{
    result.interrupted += interrupted;
    result.left += interrupted && !import_left_nothing(client);
    if (call_status(client, "large") == 200)
        call_delete(client, "large");
}

START_TEST(test_kill_within_an_import_leaves_no_row_of_it_and_every_other_session)
{
    struct client client;
    import_open();
    for (size_t i = 0; i < TRIES * imports && result.interrupted < imports; i++) {
        kill_under_load(NULL);
        bool interrupted = import_was_interrupted(state);
        start();
        verify();
        client_open(&client, &served);
        settle_import(&client, interrupted);
        client_close(&client);
    }
    client_open(&client, &served);
    ck_assert(import_completes(&client));
    call_delete(&client, "large");
    client_close(&client);
    import_close();
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("kill");
    TCase *tests = suite_cases(suite, "kill", set_up, tear_down, 0);
    TCase *few = suite_cases(suite, "kill beyond memory", set_up_short, tear_down, 0);
    tcase_add_test(few, test_answered_changes_survive_kills_where_sessions_leave_memory);
    tcase_add_test(tests, test_answered_changes_survive_kills);
    tcase_add_test(tests, test_kill_within_an_import_leaves_no_row_of_it_and_every_other_session);
    return suite;
}

int main(int argc, char *argv[])
{
    char command[128];
    size_t wrong = 0, sessions = 0;
    if (argc > 1 && strcmp(argv[1], "--quick") == 0) {
        kills = KILLS_QUICK;
        imports = IMPORTS_QUICK;
    }
    snprintf(directory, sizeof directory, "/tmp/attnd-kill-XXXXXX");
    if (mkdtemp(directory) == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    bool ran = suite_run(suite());
    const size_t answers = count_answers();
    for (size_t i = 0; i < CALLERS; i++)
        wrong += callers[i].wrong;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    bool removed = system(command) == 0;
    for (size_t i = 0; i < MIRROR_KINDS; i++)
        sessions += result.sessions[i];
    const struct verdict_condition conditions[] = {
        VERDICT(ran),
        VERDICT(removed),
        VERDICT(wrong == 0),
        VERDICT(result.lost == 0),
        VERDICT(result.doubled == 0),
        VERDICT(result.differing == 0),
        VERDICT(has_seen_all()),
        VERDICT(result.encoders > kills),
        VERDICT(result.interrupted == imports),
        VERDICT(result.left == 0),
        VERDICT(answers >= ANSWERS_LEAST * kills),
    };
    const bool right = VERDICTS("check-kill", conditions);
    printf("check-kill: %zu kills, %zu more within imports, %zu of which left something; %zu "
           "answers, %zu rows of %zu sessions looked at: %zu lost, %zu doubled, %zu decodes "
           "differ, %zu answers wrong; %zu starts over encoder rows sent again; ready again within "
           "%u ms%s\n",
           result.kills, result.interrupted, result.left, answers, result.rows, sessions,
           result.lost, result.doubled, result.differing, wrong, result.encoders, result.slowest_ms,
           right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
