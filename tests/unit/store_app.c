/* store_app.c: the parts of the daemon that its store needs. */
#include "store_app.h"
#include "api/endpoints.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "attn_state.h"
#include "store/store_internal.h"

static struct srv_model_entry model;
static char directory[SCRATCH_PATH], message[512];

void store_app_open(struct srv_app *app, const struct srv_config *config, const char *name,
                    char *random, size_t cache_bytes)
{
    scratch_make(directory);
    model = (struct srv_model_entry){.random = random};
    snprintf(model.name, sizeof model.name, "%s", name);
    *app = (struct srv_app){.config = *config};
    app->config.models = &model;
    app->config.num_models = 1;
    app->config.state_dir = directory;
    srv_log_open(&app->log, SRV_LOG_OFF, STDERR_FILENO);
    ck_assert(srv_metrics_open(&app->metrics, &srv_routes));
    ck_assert_int_eq(attn_cache_pool_new(&app->pool, cache_bytes), ATTN_OK);
    ck_assert_msg(srv_models_open(&app->models, &app->config, message, sizeof message) &&
                      srv_models_load(&app->models, app->pool, message, sizeof message),
                  "%s", message);
}

void store_app_open_tiny(struct srv_app *app, size_t max_sessions, size_t max_session_length)
{
    static char random[] = "{\"hidden_size\":4,\"num_attention_heads\":1,\"seed\":1}";
    const struct srv_config config = {.durability = SRV_DURABLE_JOURNAL,
                                      .journal_bytes = (size_t)1 << 30,
                                      .limits = {.max_sessions = max_sessions,
                                                 .max_session_length = max_session_length,
                                                 .session_ttl_s = 3600,
                                                 .max_reply_bytes = (size_t)1 << 20,
                                                 .max_in_flight_bytes = (size_t)1 << 30}};
    store_app_open(app, &config, "tiny", random, (size_t)8 << 20);
}

void store_app_close(struct srv_app *app)
{
    srv_models_close(&app->models);
    attn_cache_pool_free(app->pool);
    srv_metrics_close(app->metrics);
    srv_log_close(&app->log);
    scratch_remove(directory);
}

void store_app_begin(struct srv_app *app)
{
    store_app_load(app);
    ck_assert_msg(srv_store_start(app->store, message, sizeof message), "%s", message);
    for (int i = 0; i < 1000 && srv_store_restoring(app->store) > 0; i++)
        usleep(10000);
    ck_assert_uint_eq(srv_store_restoring(app->store), 0);
}

void store_app_load(struct srv_app *app)
{
    ck_assert(srv_sessions_open(&app->sessions, &app->config.limits, "test"));
    const struct srv_store_context context = srv_app_store_context(app);
    ck_assert_msg(srv_store_open(&app->store, &context, message, sizeof message) &&
                      srv_store_load(app->store, message, sizeof message),
                  "%s", message);
}

void store_app_end(struct srv_app *app)
{
    ck_assert(srv_store_close(app->store));
    srv_sessions_close(app->sessions);
}

void store_app_shell(const struct srv_app *app, const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "cd %s && %s", app->config.state_dir, command);
    ck_assert_msg(system(line) == 0, "%s", line);
}

void store_app_crash(struct srv_app *app)
{
    store_app_shell(app,
                    "mkdir kept && find . -maxdepth 1 -name '*.*' -type f -exec cp {} kept \\;");
    store_app_end(app);
    store_app_shell(app,
                    "find . -maxdepth 1 -name '*.*' -type f -delete && cp kept/* . && rm -r kept");
}

/* ---- Sessions -------------------------------------------------------------------------------- */

struct srv_session *store_app_session(struct srv_app *app, const char *id)
{
    struct srv_session *session;
    struct srv_error error;
    const struct srv_session_options options = {.id = id};
    ck_assert_int_eq(
        srv_session_create(&session, app->sessions, &app->models.items[0], &options, &error),
        SRV_OK);
    return session;
}

enum srv_error_code store_app_append(struct srv_app *app, struct srv_session *session)
{
    static const float row[STORE_APP_WIDTH] = {1, 2, 3, 4};
    static const uint64_t digest[2] = {1, 2};
    struct attn_error cause;
    struct srv_error error;
    const struct attn_step step = {.position = attn_cache_length(session->cache, 0), .rows = 1};
    const struct attn_appended appended = {&step, row, row};
    const struct srv_store_step one = {session, 0, &appended, digest};
    enum srv_error_code code = srv_store_steps(app->store, &one, 1, &error);
    ck_assert_int_eq(attn_cache_write(session->cache, 0, 1, row, row, &cause), ATTN_OK);
    return code;
}

struct srv_session *store_app_fork(struct srv_app *app, struct srv_session *parent, const char *id)
{
    struct srv_session *fork;
    struct attn_error cause;
    struct srv_error error;
    struct srv_session_options options = {.id = id};
    ck_assert_int_eq(attn_cache_fork(&options.cache, parent->cache, SIZE_MAX, &cause), ATTN_OK);
    ck_assert_int_eq(
        srv_session_create(&fork, app->sessions, &app->models.items[0], &options, &error), SRV_OK);
    ck_assert_int_eq(srv_store_fork(app->store, fork, parent, SIZE_MAX, &error), SRV_OK);
    return fork;
}

enum srv_error_code store_app_truncate(struct srv_app *app, struct srv_session *session,
                                       size_t length)
{
    const struct srv_revision now = srv_session_revision(session);
    struct srv_revision after;
    struct srv_error error;
    ck_assert(srv_revision_draw(&after, &now, length));
    enum srv_error_code code = srv_store_truncate(app->store, session, &after, &error);
    if (code == SRV_OK)
        ck_assert(srv_session_truncate(session, &after));
    return code;
}

size_t store_app_length(struct srv_app *app, const char *id)
{
    struct srv_session *session = srv_session_peek(app->sessions, NULL, id);
    size_t length = session != NULL ? attn_cache_length(session->cache, 0) : SIZE_MAX;
    srv_session_put(session);
    return length;
}

size_t store_app_find_again(struct srv_app *app, const char *id)
{
    store_app_end(app);
    store_app_begin(app);
    return store_app_length(app, id);
}

/* ---- Snapshots, and a disk that is full ------------------------------------------------------ */

void store_app_await_snapshot(struct srv_app *app)
{
    for (unsigned waited = 0; !srv_store_wants_snapshot(app->store); waited += 10) {
        ck_assert_uint_lt(waited, 20000);
        usleep(10000);
    }
}

struct srv_store_status store_app_take_snapshot(struct srv_app *app)
{
    struct srv_store_status status;
    srv_store_take_snapshot(app->store);
    do {
        usleep(10000);
        srv_store_describe(&status, app->store);
    } while (status.running && !srv_store_wants_snapshot(app->store));
    return status;
}

void store_app_snapshot(struct srv_app *app)
{
    struct srv_store_status before;
    srv_store_request_snapshot(&before, app->store);
    store_app_await_snapshot(app);
    ck_assert_uint_eq(store_app_take_snapshot(app).base, before.generation + 1);
}

void store_app_damage_block(const struct srv_app *app, const char *id)
{
    char name[SRV_SLOT_FILE_NAME];
    size_t count, bytes;
    struct srv_session *session = srv_session_peek(app->sessions, NULL, id);
    ck_assert_ptr_nonnull(session);
    struct attn_block *const *blocks = attn_cache_blocks(&count, session->cache, 0);
    const struct attn_stored place = attn_block_stored(blocks[count - 1]);
    const struct srv_slot slot = {place.file, place.slot};
    (void)attn_block_bytes_of(&bytes, blocks[count - 1]);
    bytes = srv_slot_bytes(bytes);
    srv_slot_file_name(name, srv_slot_generation(app->store->slots, slot), bytes);
    int fd = openat(srv_store_directory(app->store), name, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "!", 1, (off_t)(slot.index * bytes)), 1);
    close(fd);
    srv_session_put(session);
}

void store_app_limit_files(rlim_t bytes)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
