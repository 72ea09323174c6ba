/* record.c: sends random requests to a recorded daemon, one after the other, and notes after each
 * answer where the log is and what the session has become. */
#include "record.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "disk.h"
#include "mirror.h"

#define MOST_PAUSE_MS 60
#define SLOW_MS 800         /* a flush, in some of the time */
#define FADE_NS 3000000000u /* after which a session with ttl_s 1 has ended */
#define LARGE_TOKENS 2500   /* an import in several pieces */
#define LONGEST 120         /* tokens after which a session is deleted */
#define FAIL_EVERY 400      /* requests, about, after which a flush of a snapshot fails */
#define MOST_FLUSHES 8      /* until it does */

const char *const power_mode_names[POWER_MODES] = {"always", "everysec", "os", "snapshot"};

struct scene {
    struct record *record;
    struct power_log *log;
    const struct record_plan *plan;
    struct daemon daemon;
    struct client client;
    uint64_t random;
    unsigned rows;                     /* seeds of rows */
    json_int_t asked;                  /* generation of the snapshot asked for; -1: none */
    uint64_t born_ns[RECORD_SESSIONS]; /* of sessions that fade */
    size_t length[RECORD_SESSIONS];    /* of the first layer */
    char *state, *large;               /* that are imported */
    size_t state_size, large_size, state_length;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static size_t draw(struct scene *scene, size_t n) { return disk_draw(&scene->random, n); }

void record_id(char out[16], size_t session) { snprintf(out, 16, "s%zu", session); }

size_t record_session(const char *id)
{
    char other[16];
    size_t session = id != NULL && id[0] == 's' ? strtoul(id + 1, NULL, 10) : RECORD_SESSIONS;
    if (session >= RECORD_SESSIONS)
        return RECORD_SESSIONS;
    record_id(other, session);
    return strcmp(id, other) == 0 ? session : RECORD_SESSIONS;
}

static uint64_t digest_of(const char *bytes, size_t size)
{
    uint64_t digest = 0xcbf29ce484222325; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        digest = (digest ^ (unsigned char)bytes[i]) * 0x100000001b3;
    return digest != 0 ? digest : 1;
}

static struct answer get_state(struct client *client, size_t session)
{
    char path[64], id[16];
    record_id(id, session);
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    return client_get(client, path);
}

/* The session's revision, which its state does not have; false where it has expired meanwhile. */
static bool get_revision(uint64_t *out, struct client *client, size_t session)
{
    char path[64], id[16];
    record_id(id, session);
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(client, path);
    const bool there = answer.status != 404;
    *out = (uint64_t)json_integer_value(json_object_get(answer.json, "revision"));
    answer_free(&answer);
    return there;
}

uint64_t record_digest(struct client *client, size_t session)
{
    struct answer answer = get_state(client, session);
    uint64_t digest = 0, revision;
    if (answer.status == 200 && get_revision(&revision, client, session))
        digest = digest_of(answer.text, answer.length) ^ revision;
    if (answer.status != 200 && answer.status != 404)
        digest = UINT64_MAX; /* of no session */
    answer_free(&answer);
    return digest;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static uint64_t *row(struct scene *scene) { return scene->record->digest[scene->record->requests]; }

static bool lives(struct scene *scene, size_t session) { return row(scene)[session] != 0; }

/* Sends a request, whose effect on `session` and those after it, `count` in all, is noted.  The
 * answer's status must be `status`. */
static void send_request(struct scene *scene, const struct request *request, long status,
                         const size_t *sessions, size_t count)
{
    struct record *record = scene->record;
    ck_assert_uint_lt(record->requests, RECORD_REQUESTS);
    struct record_request *entry = &record->request[record->requests + 1];
    snprintf(entry->what, sizeof entry->what, "%s %s", request->method, request->path);
    entry->sent_at = atomic_load(&scene->log->count);
    struct answer answer = client_send(&scene->client, request);
    entry->answered_ns = now_ns();
    entry->answered_at = atomic_load(&scene->log->count);
    ck_assert_msg(answer.status == status, "%s %s: %ld %.300s", request->method, request->path,
                  answer.status, answer.text);
    memcpy(record->digest[record->requests + 1], row(scene), sizeof record->digest[0]);
    record->requests++;
    for (size_t i = 0; i < count; i++)
        row(scene)[sessions[i]] = record_digest(&scene->client, sessions[i]);
    answer_free(&answer);
}

static void post(struct scene *scene, const char *path, struct text *body, size_t session)
{
    send_request(scene, &(struct request){.method = "POST", .path = path, .body = body->data}, 200,
                 &session, 1);
    text_free(body);
}

/* Makes a session, in half of the cases with an idempotency key. */
static void make_session(struct scene *scene, const char *path, const char *body, size_t session)
{
    char header[64];
    struct record *record = scene->record;
    struct record_idempotent *kept = &record->idempotents[record->idempotent];
    const char *const headers[] = {header, NULL};
    bool keyed = record->idempotent < RECORD_IDEMPOTENT && draw(scene, 2) == 0;
    *kept = (struct record_idempotent){.request = record->requests + 1, .session = session};
    snprintf(kept->key, sizeof kept->key, "key-%llu-%zu", (unsigned long long)record->seed,
             kept->request);
    snprintf(kept->path, sizeof kept->path, "%s", path);
    snprintf(kept->body, sizeof kept->body, "%s", body);
    snprintf(header, sizeof header, "Idempotency-Key: %s", kept->key);
    send_request(
        scene,
        &(struct request){
            .method = "POST", .path = path, .body = body, .headers = keyed ? headers : NULL},
        201, &session, 1);
    if (keyed) {
        char where[64], id[16];
        record_id(id, session);
        snprintf(where, sizeof where, "/sessions/%s", id);
        struct answer answer = client_get(&scene->client, where);
        kept->epoch = answer_integer(&answer, "epoch");
        answer_free(&answer);
        record->idempotent++;
    }
}

static void create(struct scene *scene, size_t session)
{
    char id[16], body[96];
    record_id(id, session);
    snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"model\":\"tiny\"%s}", id,
             record_fades(session) ? ",\"ttl_s\":1" : "");
    make_session(scene, "/sessions", body, session);
    scene->length[session] = 0;
    scene->born_ns[session] = now_ns();
}

static void step(struct scene *scene, size_t session)
{
    char id[16];
    size_t layer = draw(scene, MIRROR_LAYERS);
    struct text body = {0};
    record_id(id, session);
    text_add(&body, "{\"model\":\"tiny\",\"layer\":%zu,", layer);
    text_step(&body, id, ++scene->rows, "}");
    post(scene, "/decode", &body, session);
    scene->length[session] += layer == 0;
}

static void step_many(struct scene *scene, size_t first)
{
    char id[16];
    size_t sessions[RECORD_SESSIONS], count = 0, layer = draw(scene, MIRROR_LAYERS);
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"layer\":%zu,\"sequences\":[", layer);
    for (size_t i = RECORD_IDLE + first; i < RECORD_SESSIONS - RECORD_FADING; i += 3) {
        if (!lives(scene, i))
            continue;
        record_id(id, i);
        text_add(&body, "%s{", count > 0 ? "," : "");
        text_step(&body, id, ++scene->rows, "}");
        sessions[count++] = i;
        scene->length[i] += layer == 0;
    }
    text_add(&body, "]}");
    if (count > 0)
        send_request(scene,
                     &(struct request){.method = "POST", .path = "/decode", .body = body.data}, 200,
                     sessions, count);
    text_free(&body);
}

static void prefill(struct scene *scene, size_t session)
{
    char id[16];
    size_t rows = 1 + draw(scene, 40);
    struct text body = {0};
    record_id(id, session);
    text_add(&body, "{\"model\":\"tiny\",");
    scene->rows += 1000;
    text_steps(&body, id, scene->rows, rows, "}");
    post(scene, "/attend", &body, session);
    scene->length[session] += rows;
}

static void fork_session(struct scene *scene, size_t session, size_t made)
{
    char id[16], other[16], path[48], body[96];
    record_id(id, session);
    record_id(other, made);
    size_t length = draw(scene, scene->length[session] + 1);
    snprintf(path, sizeof path, "/sessions/%s/fork", id);
    snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"length\":%zu}", other, length);
    make_session(scene, path, body, made);
    scene->length[made] = length;
}

static void truncate_session(struct scene *scene, size_t session)
{
    char id[16], path[48];
    struct text body = {0};
    size_t length = draw(scene, scene->length[session] + 1);
    record_id(id, session);
    snprintf(path, sizeof path, "/sessions/%s/truncate", id);
    text_add(&body, "{\"length\":%zu}", length);
    post(scene, path, &body, session);
    scene->length[session] = length;
}

static void delete_session(struct scene *scene, size_t session)
{
    char id[16], path[48];
    record_id(id, session);
    snprintf(path, sizeof path, "/sessions/%s", id);
    send_request(scene, &(struct request){.method = "DELETE", .path = path}, 204, &session, 1);
}

/* Imports the state that was exported last or, seldom, a large one. */
static void import_session(struct scene *scene, size_t session)
{
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    char id[16], path[48];
    bool large = draw(scene, 8) == 0;
    record_id(id, session);
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    const struct request request = {.method = "PUT",
                                    .path = path,
                                    .body = large ? scene->large : scene->state,
                                    .length = large ? scene->large_size : scene->state_size,
                                    .headers = headers};
    if (request.body == NULL)
        return;
    send_request(scene, &request, 201, &session, 1);
    scene->length[session] = large ? LONGEST + 1 : scene->state_length;
}

static void export_session(struct scene *scene, size_t session)
{
    struct answer answer = get_state(&scene->client, session);
    ck_assert_int_eq(answer.status, 200);
    free(scene->state);
    scene->state = malloc(answer.length);
    ck_assert_ptr_nonnull(scene->state);
    memcpy(scene->state, answer.text, answer.length);
    scene->state_size = answer.length;
    scene->state_length = scene->length[session];
    answer_free(&answer);
}

/* ---- Snapshots ------------------------------------------------------------------------------- */

static struct record_snapshot *newest_snapshot(struct scene *scene)
{
    return &scene->record->snapshot[scene->record->snapshots - 1];
}

static void begin_snapshot(struct scene *scene)
{
    ck_assert_uint_lt(scene->record->snapshots, RECORD_SNAPSHOTS);
    scene->record->snapshots++;
    *newest_snapshot(scene) = (struct record_snapshot){.asked_at = atomic_load(&scene->log->count),
                                                       .first = scene->record->requests,
                                                       .last = RECORD_REQUESTS,
                                                       .complete_at = UINT64_MAX};
}

static void end_snapshot(struct scene *scene)
{
    newest_snapshot(scene)->last = scene->record->requests;
    newest_snapshot(scene)->complete_at = atomic_load(&scene->log->count);
    scene->asked = -1;
}

static void ask_snapshot(struct scene *scene)
{
    if (scene->asked >= 0)
        return;
    begin_snapshot(scene);
    struct answer answer = client_post(&scene->client, "/snapshot", "");
    expect_answer(&answer, 202, NULL, "snapshot");
    scene->asked = answer_integer(&answer, "generation");
    answer_free(&answer);
}

static void look_at_snapshot(struct scene *scene)
{
    if (scene->asked < 0)
        return;
    struct answer answer = client_get(&scene->client, "/snapshot");
    if (answer_integer(&answer, "base") > scene->asked)
        end_snapshot(scene);
    answer_free(&answer);
}

/* ---- The scene ------------------------------------------------------------------------------- */

static size_t pick(struct scene *scene, bool live)
{
    size_t n = RECORD_SESSIONS - RECORD_FADING - RECORD_IDLE, first = draw(scene, n);
    for (size_t i = 0; i < n; i++) {
        size_t session = RECORD_IDLE + (first + i) % n;
        if (lives(scene, session) == live)
            return session;
    }
    return RECORD_SESSIONS;
}

static void make_fading(struct scene *scene)
{
    size_t session = RECORD_SESSIONS - 1 - draw(scene, RECORD_FADING);
    if (lives(scene, session) && now_ns() - scene->born_ns[session] < FADE_NS)
        return;
    if (lives(scene, session) && record_digest(&scene->client, session) != 0)
        return; /* the machine is slow */
    create(scene, session);
}

static void send_one(struct scene *scene)
{
    size_t kind = draw(scene, 100), live = pick(scene, true), none = pick(scene, false);
    bool snapshots = scene->plan->mode == MODE_SNAPSHOT;
    if (live == RECORD_SESSIONS || (kind < 10 && none < RECORD_SESSIONS))
        create(scene, none);
    else if (kind < 14)
        make_fading(scene);
    else if (scene->length[live] > LONGEST || kind < 19)
        delete_session(scene, live);
    else if (kind < 26 && none < RECORD_SESSIONS)
        fork_session(scene, live, none);
    else if (kind < 32)
        truncate_session(scene, live);
    else if (kind < 36)
        export_session(scene, live);
    else if (kind < 40 && none < RECORD_SESSIONS)
        import_session(scene, none);
    else if (kind < (snapshots ? 46 : 42))
        ask_snapshot(scene);
    else if (kind < 56)
        prefill(scene, live);
    else if (kind < 68)
        step_many(scene, draw(scene, 3));
    else
        step(scene, live);
}

static void make_idle(struct scene *scene)
{
    for (size_t i = 0; i < RECORD_IDLE; i++) {
        if (lives(scene, i))
            continue;
        create(scene, i);
        prefill(scene, i);
    }
}

static void send_requests(struct scene *scene, uint64_t until_ns)
{
    bool flushes = scene->plan->mode == MODE_EVERYSEC || scene->plan->mode == MODE_OS;
    while (now_ns() < until_ns && scene->record->requests + 2 < RECORD_REQUESTS) {
        if (draw(scene, 40) == 0)
            atomic_store(&scene->log->slow_ms, flushes && draw(scene, 2) == 0 ? SLOW_MS : 0);
        if (scene->plan->fails && draw(scene, FAIL_EVERY) == 0)
            atomic_store(&scene->log->failing, 1 + (uint32_t)draw(scene, MOST_FLUSHES));
        send_one(scene);
        look_at_snapshot(scene);
        if (draw(scene, 4) == 0)
            pause_ms((unsigned)draw(scene, MOST_PAUSE_MS));
    }
    atomic_store(&scene->log->slow_ms, 0);
    atomic_store(&scene->log->failing, 0);
}

void record_arguments(const char *out[RECORD_ARGUMENTS], enum power_mode mode,
                      const char *directory)
{
    const char *const words[RECORD_ARGUMENTS] = {"--durability",
                                                 mode == MODE_SNAPSHOT ? "snapshot" : "journal",
                                                 "--journal-fsync",
                                                 mode == MODE_SNAPSHOT ? "os"
                                                                       : power_mode_names[mode],
                                                 "--state-dir",
                                                 directory,
                                                 "--journal-bytes",
                                                 "32KiB",
                                                 "--snapshot-interval-s",
                                                 "0",
                                                 "--log",
                                                 "info",
                                                 NULL};
    memcpy(out, words, sizeof words);
}

static void start(struct scene *scene)
{
    char preload[160], log[160], directory[160];
    const char *arguments[RECORD_ARGUMENTS];
    const char *const variables[] = {preload, log, directory, NULL};
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", scene->plan->recorder);
    snprintf(log, sizeof log, POWER_LOG_VARIABLE "=%s", scene->plan->log_path);
    snprintf(directory, sizeof directory, POWER_DIRECTORY_VARIABLE "=%s", scene->plan->directory);
    record_arguments(arguments, scene->plan->mode, scene->plan->directory);
    daemon_start(&scene->daemon, CONFIG_SMALL(""), arguments, variables);
    client_open(&scene->client, &scene->daemon);
    scene->asked = -1;
}

/* SIGTERM, or SIGKILL where everything answered must be there afterwards. */
static void stop(struct scene *scene, bool kills)
{
    scene->record->failed += (size_t)call_metric(&scene->client, "attnd_snapshots_failed_total");
    client_close(&scene->client);
    if (kills) {
        process_end(&scene->daemon.process);
        return;
    }
    if (scene->asked < 0)
        begin_snapshot(scene);
    daemon_stop(&scene->daemon);
    end_snapshot(scene);
}

/* ---- A directory that is there already ------------------------------------------------------- */

static void add(struct power_log *log, struct power_op op, const void *bytes)
{
    uint64_t used = atomic_load(&log->used), size = (op.size + 7) & ~(uint64_t)7;
    ck_assert_uint_le(sizeof *log + used + sizeof op + size, POWER_LOG_BYTES);
    op.time_ns = now_ns();
    memcpy(log->entries + used, &op, sizeof op);
    if (op.size > 0)
        memcpy(log->entries + used + sizeof op, bytes, op.size);
    atomic_store(&log->used, used + sizeof op + size);
    atomic_fetch_add(&log->count, 1);
}

static void adopt_file(struct power_log *log, const char *directory, const char *name)
{
    char path[512];
    uint32_t number = log->files++;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    ck_assert(file != NULL && number < POWER_FILES && fseek(file, 0, SEEK_END) == 0);
    size_t size = (size_t)ftell(file);
    char *bytes = malloc(size + 1);
    rewind(file);
    ck_assert(bytes != NULL && fread(bytes, 1, size, file) == size);
    fclose(file);
    snprintf(log->names[number], POWER_NAME, "%s", name);
    add(log, (struct power_op){.kind = POWER_CREATE, .file = number, .size = strlen(name) + 1},
        name);
    if (size > 0)
        add(log, (struct power_op){.kind = POWER_WRITE, .file = number, .size = size}, bytes);
    free(bytes);
}

/* Logs the directory's files as created, written and synced. */
static void adopt(struct power_log *log, const char *directory)
{
    DIR *stream = opendir(directory);
    if (stream == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (entry->d_name[0] != '.')
            adopt_file(log, directory, entry->d_name);
    closedir(stream);
    uint64_t begin = atomic_load(&log->count);
    add(log, (struct power_op){.kind = POWER_SYNC_BEGIN, .file = POWER_ALL}, NULL);
    add(log, (struct power_op){.kind = POWER_SYNC_END, .file = POWER_ALL, .at = begin}, NULL);
    add(log, (struct power_op){.kind = POWER_SYNC_END, .file = POWER_DIRECTORY, .at = begin}, NULL);
}

/* Reads what the first start has restored, first the sessions that fade. */
static void look_first(struct scene *scene)
{
    char id[16];
    for (size_t i = RECORD_SESSIONS; i-- > 0;) {
        row(scene)[i] = record_digest(&scene->client, i);
        scene->born_ns[i] = now_ns();
        record_id(id, i);
        if (lives(scene, i))
            scene->length[i] = call_length(&scene->client, id, 0);
    }
}

/* ---- All ------------------------------------------------------------------------------------- */

/* `tiny` of daemon.h. */
#define TINY_MODEL                                                             \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2," \
    "\"num_hidden_layers\":2,\"rope_theta\":10000,\"is_causal\":true,\"seed\":7}"

static void make_large(struct scene *scene)
{
    struct mirror mirror = {0};
    mirror_open(TINY_MODEL);
    mirror_fill(&mirror, LARGE_TOKENS);
    scene->large = mirror_state(&scene->large_size, &mirror);
    mirror_end(&mirror);
    mirror_close();
}

/* Whether the directory's files are those of the log. */
static bool is_whole(const struct scene *scene)
{
    char copy[160], command[512];
    struct disk disk;
    disk_open(&disk, scene->log);
    const struct disk_state all = {.cut = disk.count, .kind = DISK_ALL};
    snprintf(copy, sizeof copy, "%s.whole", scene->plan->directory);
    disk_build(&disk, &all, copy);
    disk_close(&disk);
    snprintf(command, sizeof command, "diff -r %s %s >&2 && rm -rf %s", copy,
             scene->plan->directory, copy);
    return system(command) == 0 && !atomic_load(&scene->log->full);
}

void record_make(struct record *out, struct power_log *log, const struct record_plan *plan)
{
    struct scene scene = {.record = out, .log = log, .plan = plan, .random = plan->seed};
    uint64_t now = now_ns(), half = (uint64_t)plan->seconds * 500000000;
    out->mode = plan->mode;
    out->seed = plan->seed;
    log->files = POWER_FIRST_FILE;
    atomic_store(&log->spares_journals, true);
    adopt(log, plan->directory);
    out->starts[0] = atomic_load(&log->count);
    make_large(&scene);
    start(&scene);
    look_first(&scene);
    make_idle(&scene);
    ask_snapshot(&scene);
    send_requests(&scene, now + half);
    stop(&scene, plan->kills && plan->mode != MODE_SNAPSHOT);
    out->starts[1] = atomic_load(&log->count);
    start(&scene);
    for (size_t i = 0; i < RECORD_SESSIONS; i++)
        ck_assert(record_fades(i) || record_digest(&scene.client, i) == row(&scene)[i]);
    send_requests(&scene, now + 2 * half);
    stop(&scene, false);
    out->whole = is_whole(&scene);
    free(scene.state);
    free(scene.large);
}
