/* judge.c: what may be there, from the record, and what is there, from the daemon.
 *
 * After a power failure the sessions are those after some request: with `always` after the last
 * answered one or the one under way, with `everysec` and `os` not before the last request that a
 * flush covers, with `snapshot` those of the last whole snapshot or a later one.  A second start
 * finds the same; idempotency keys still name their sessions; a session can be stepped. */
#include "judge.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "calls.h"

#define READY_SECONDS 60
#define STOP_SECONDS 60
#define POLL_MS 1
#define EVERYSEC_NS 3500000000u /* two seconds, a slow flush and a busy machine */

/* ---- What may be there ----------------------------------------------------------------------- */

/* Requests after which the sessions may be. */
struct range {
    size_t first, last;
};

#define RANGES (RECORD_SNAPSHOTS + 1)

struct allowed {
    struct range ranges[RANGES]; /* [count] */
    size_t count;
    bool damage; /* that a start finds */
};

static size_t answered(const struct record *record, uint64_t cut)
{
    size_t count = 0;
    while (count < record->requests && record->request[count + 1].answered_at <= cut)
        count++;
    return count;
}

static size_t sent(const struct record *record, uint64_t cut)
{
    size_t count = answered(record, cut);
    return count + (count < record->requests && record->request[count + 1].sent_at <= cut);
}

static size_t allow_snapshots(struct range out[RANGES], const struct record *record, uint64_t cut)
{
    size_t count = 0;
    out[count++] = (struct range){0, 0}; /* what was there at first */
    for (size_t i = 0; i < record->snapshots; i++) {
        const struct record_snapshot *snapshot = &record->snapshot[i];
        bool complete = snapshot->complete_at <= cut;
        if (complete)
            count = 0;
        if (snapshot->asked_at <= cut)
            out[count++] =
                (struct range){snapshot->first, complete ? snapshot->last : sent(record, cut)};
    }
    return count;
}

/* Writes what the promise allows. */
static void allow(struct allowed *out, const struct record *record, const struct disk *disk,
                  const struct disk_state *state)
{
    size_t last = answered(record, state->cut), first = last;
    out->damage = state->kind != DISK_ALL || state->plant != PLANT_NOTHING ||
                  record->starts[0] > 0; /* it goes on after a power failure */
    if (record->mode == MODE_SNAPSHOT) {
        out->count = allow_snapshots(out->ranges, record, state->cut);
        return;
    }
    if (record->mode != MODE_ALWAYS && state->kind != DISK_ALL) {
        uint64_t now_ns = state->cut > 0 ? disk->ops[state->cut - 1]->time_ns : 0;
        first = answered(record, disk_first_unsynced(disk, state->cut));
        while (record->mode == MODE_EVERYSEC && first < last &&
               record->request[first + 1].answered_ns + EVERYSEC_NS < now_ns)
            first++;
    }
    out->ranges[0] = (struct range){first, sent(record, state->cut)};
    out->count = 1;
}

/* Whether the sessions are those after request `at` or, each, those after the next, up to
 * `last`. */
static bool matches(const struct record *record, const uint64_t found[RECORD_SESSIONS], size_t at,
                    size_t last)
{
    const uint64_t *before = record->digest[at], *after = record->digest[at < last ? at + 1 : at];
    for (size_t i = 0; i < RECORD_SESSIONS; i++) {
        bool missing = found[i] == 0 && record_fades(i);
        if (found[i] != before[i] && found[i] != after[i] && !missing)
            return false;
    }
    return true;
}

/* Counts the sessions that were the same after all requests from `first` to `last`, and those of
 * them that are gone. */
static void count_lost(struct judge_verdict *out, const struct record *record, size_t first,
                       size_t last, const uint64_t found[RECORD_SESSIONS])
{
    for (size_t i = 0; i < RECORD_SESSIONS; i++) {
        bool same = record->digest[first][i] != 0 && !record_fades(i);
        for (size_t at = first; at <= last; at++)
            same = same && record->digest[at][i] == record->digest[first][i];
        out->promised += same;
        out->lost += same && found[i] == 0;
    }
}

/* Returns the request after which the sessions are as found; false where it is none allowed. */
static bool place(size_t *out, struct judge_verdict *verdict, const struct record *record,
                  const struct allowed *allowed, const uint64_t found[RECORD_SESSIONS])
{
    char *text = verdict->text;
    const struct range *ranges = allowed->ranges;
    const size_t count = allowed->count;
    count_lost(verdict, record, ranges[0].first, ranges[count - 1].last, found);
    for (size_t i = 0; i < count; i++)
        for (size_t at = ranges[i].last + 1; at-- > ranges[i].first;)
            if (matches(record, found, at, ranges[i].last)) {
                *out = at;
                return true;
            }
    int used = snprintf(text, JUDGE_TEXT,
                        "sessions are those of no request in %zu to %zu:", ranges[0].first,
                        ranges[count - 1].last);
    const uint64_t *want = record->digest[ranges[0].first];
    for (size_t i = 0; i < RECORD_SESSIONS && used < JUDGE_TEXT - 32; i++)
        if (found[i] != want[i] && !(record_fades(i) && found[i] == 0))
            used += snprintf(text + used, (size_t)(JUDGE_TEXT - used), " s%zu %s", i,
                             found[i] == 0  ? "missing"
                             : want[i] == 0 ? "extra"
                                            : "differs");
    return false;
}

/* ---- What is there --------------------------------------------------------------------------- */

static bool wait_ready(struct daemon *daemon)
{
    static const char begin[] = "attnd: ready on ";
    for (unsigned waited = 0; waited < READY_SECONDS * 1000; waited += POLL_MS) {
        int status;
        char *text = process_text(daemon->process.out), *line = strstr(text, begin);
        bool ready = line != NULL && strchr(line, '\n') != NULL;
        if (ready)
            snprintf(daemon->url, sizeof daemon->url, "%.*s",
                     (int)strcspn(line + strlen(begin), "\n"), line + strlen(begin));
        free(text);
        if (ready || process_wait(&status, &daemon->process, 0))
            return ready;
        pause_ms(POLL_MS);
    }
    return false;
}

static void last_line(char out[JUDGE_TEXT], const char *what, const struct daemon *daemon)
{
    char *log = daemon_log(daemon);
    size_t length = strlen(log);
    snprintf(out, JUDGE_TEXT, "%s: %s", what, log + (length > 400 ? length - 400 : 0));
    free(log);
}

static bool start(struct daemon *daemon, char text[JUDGE_TEXT], const struct record *record,
                  const char *path, const char *config)
{
    char config_file[96];
    const char *words[RECORD_ARGUMENTS + 2] = {"--config", config_file};
    *daemon = (struct daemon){0};
    snprintf(config_file, sizeof config_file, "%s", config);
    record_arguments(words + 2, (enum power_mode)record->mode, path);
    process_start(&daemon->process, words, NULL);
    if (wait_ready(daemon))
        return true;
    last_line(text, "the daemon did not start", daemon);
    process_end(&daemon->process);
    return false;
}

/* Whether a start has found damage that may not be there. */
static bool is_damaged(char text[JUDGE_TEXT], struct client *client, const struct allowed *allowed)
{
    const double lost = call_metric(client, "attnd_sessions_lost_total");
    const double damaged = call_metric(client, "attnd_damaged_files_total");
    snprintf(text, JUDGE_TEXT, "the start finds %.0f sessions lost, %.0f files damaged", lost,
             damaged);
    return !allowed->damage && lost + damaged > 0;
}

/* Reads the digests of all sessions; false where one of them is none of the record. */
static bool look(uint64_t found[RECORD_SESSIONS], char text[JUDGE_TEXT], struct client *client)
{
    struct answer answer = client_get(client, "/sessions?limit=100");
    const json_t *list = json_object_get(answer.json, "sessions");
    bool known = json_is_array(list);
    memset(found, 0, RECORD_SESSIONS * sizeof *found);
    snprintf(text, JUDGE_TEXT, "no list: %.200s", answer.text);
    for (size_t i = 0; i < json_array_size(list) && known; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "session_id"));
        size_t session = record_session(id);
        known = session < RECORD_SESSIONS;
        if (known)
            found[session] = record_digest(client, session);
        else
            snprintf(text, JUDGE_TEXT, "a session %s that nobody made", id);
    }
    answer_free(&answer);
    return known;
}

/* ---- Going on -------------------------------------------------------------------------------- */

/* Repeats the requests that made the sessions that are there; each must name its session again. */
static bool repeat(char text[JUDGE_TEXT], struct client *client, const struct record *record,
                   size_t at, const uint64_t found[RECORD_SESSIONS])
{
    bool right = true;
    for (size_t i = 0; i < record->idempotent && right; i++) {
        char header[64];
        const struct record_idempotent *made = &record->idempotents[i];
        const char *const headers[] = {header, NULL};
        bool stands =
            made->request <= at && found[made->session] != 0 && !record_fades(made->session);
        for (size_t later = made->request; stands && later <= at; later++)
            stands = record->digest[later][made->session] != 0;
        if (!stands)
            continue; /* ended since, or is another one by now */
        snprintf(header, sizeof header, "Idempotency-Key: %s", made->key);
        struct answer answer = client_send(client, &(struct request){.method = "POST",
                                                                     .path = made->path,
                                                                     .body = made->body,
                                                                     .headers = headers});
        right = answer.status == 201 && json_is_true(json_object_get(answer.json, "replayed")) &&
                json_integer_value(json_object_get(answer.json, "epoch")) == made->epoch;
        if (!right)
            snprintf(text, JUDGE_TEXT, "%s again: %ld %.300s", made->key, answer.status,
                     answer.text);
        answer_free(&answer);
    }
    return right;
}

/* Steps a session that is there, or a new one. */
static bool go_on(char text[JUDGE_TEXT], struct client *client,
                  const uint64_t found[RECORD_SESSIONS])
{
    char id[16] = "new";
    for (size_t i = 0; i < RECORD_SESSIONS; i++)
        if (found[i] != 0 && !record_fades(i))
            record_id(id, i);
    struct answer answer =
        call_decode(client, id, 99, strcmp(id, "new") == 0 ? ",\"start\":true" : "");
    bool right = answer.status == 200 || strcmp(answer_code(&answer), "session_full") == 0;
    if (!right)
        snprintf(text, JUDGE_TEXT, "a step of %s: %ld %.300s", id, answer.status, answer.text);
    answer_free(&answer);
    return right;
}

static bool same(char text[JUDGE_TEXT], const uint64_t a[RECORD_SESSIONS],
                 const uint64_t b[RECORD_SESSIONS])
{
    for (size_t i = 0; i < RECORD_SESSIONS; i++)
        if (a[i] != b[i] && !record_fades(i)) {
            snprintf(text, JUDGE_TEXT, "a second start has another s%zu", i);
            return false;
        }
    return true;
}

/* ---- All ------------------------------------------------------------------------------------- */

static void keep_log(const char *path, const struct daemon *daemon)
{
    char name[256], *log = daemon_log(daemon);
    snprintf(name, sizeof name, "%s.log", path);
    FILE *file = fopen(name, "we");
    ck_assert_ptr_nonnull(file);
    fputs(log, file);
    fclose(file);
    free(log);
}

/* The first start, which ends by SIGKILL. */
static bool first_start(uint64_t found[RECORD_SESSIONS], size_t *at, struct judge_verdict *out,
                        const struct record *record, const struct allowed *allowed,
                        const char *const paths[2])
{
    struct daemon daemon;
    struct client client;
    if (!start(&daemon, out->text, record, paths[0], paths[1]))
        return false;
    client_open(&client, &daemon);
    bool right = look(found, out->text, &client) && place(at, out, record, allowed, found) &&
                 !is_damaged(out->text, &client, allowed);
    client_close(&client);
    if (!right)
        keep_log(paths[0], &daemon);
    process_end(&daemon.process);
    return right;
}

/* The second start, which ends by SIGTERM. */
static bool second_start(char text[JUDGE_TEXT], const struct record *record,
                         const uint64_t found[RECORD_SESSIONS], size_t at,
                         const char *const paths[2])
{
    struct daemon daemon;
    struct client client;
    uint64_t again[RECORD_SESSIONS];
    int status = 0;
    if (!start(&daemon, text, record, paths[0], paths[1]))
        return false;
    client_open(&client, &daemon);
    bool right = look(again, text, &client) && same(text, found, again) &&
                 repeat(text, &client, record, at, found) && go_on(text, &client, found);
    client_close(&client);
    daemon_terminate(&daemon);
    if (right && (!process_wait(&status, &daemon.process, STOP_SECONDS) || status != 0)) {
        last_line(text, "the daemon did not stop", &daemon);
        right = false;
    }
    process_end(&daemon.process);
    return right;
}

bool judge(struct judge_verdict *out, const struct record *record, const struct disk *disk,
           const struct disk_state *state, const char *path)
{
    char directory[64], config[96], command[256];
    struct allowed allowed;
    uint64_t found[RECORD_SESSIONS];
    size_t at = 0;
    *out = (struct judge_verdict){0};
    allow(&allowed, record, disk, state);
    disk_build(disk, state, path);
    config_write(directory, config, CONFIG_SMALL(""));
    const char *const paths[2] = {path, config};
    bool right = first_start(found, &at, out, record, &allowed, paths) &&
                 second_start(out->text, record, found, at, paths);
    config_remove(directory);
    if (right) {
        snprintf(command, sizeof command, "rm -rf %s", path);
        right = system(command) == 0;
    }
    return right;
}
