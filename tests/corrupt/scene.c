/* scene.c: the parts of a daemon that a store needs, and the files that the store writes. */
#include "scene.h"
#include "api/endpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "session/weightless.h"
#include "store/store_files.h"

#define WIDTH 4
#define TOKENS 64 /* of a session, that are not forgotten, at most */

enum { TINY, CROSSED, LATENT, READING, NUM_MODELS }; /* reading: its second layer reads the first */

struct scene scene;

static void need(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "check-corrupt: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

void scene_open_table(void)
{
    need(srv_sessions_open(&scene.app.sessions, &scene.app.config.limits, "test"), "a table");
}

void scene_close_table(void)
{
    srv_sessions_close(scene.app.sessions);
    scene.app.sessions = NULL;
}

void scene_open(void)
{
    static const char random[] = "{\"hidden_size\":4,\"num_attention_heads\":1,"
                                 "\"num_hidden_layers\":2,\"is_causal\":true,\"seed\":1,"
                                 "\"sliding_window\":2,\"layer_types\":[\"full_attention\","
                                 "\"sliding_attention\"]}";
    char message[256] = "";
    struct srv_config *config = &scene.app.config;
    struct attn_error error;
    static const char crossed[] = "{\"hidden_size\":4,\"num_attention_heads\":1,"
                                  "\"num_hidden_layers\":2,\"is_cross\":true,\"seed\":2}";
    static const char latent[] = "{\"hidden_size\":4,\"num_attention_heads\":1,\"kv_lora_rank\":3,"
                                 "\"qk_nope_head_dim\":2,\"qk_rope_head_dim\":2,"
                                 "\"num_hidden_layers\":2,\"rope_theta\":100,\"seed\":3}";
    static const char reading[] =
        "{\"hidden_size\":4,\"num_attention_heads\":1,\"sliding_window\":2,"
        "\"num_hidden_layers\":2,\"num_kv_shared_layers\":1,\"seed\":4}";
    const char *const models[NUM_MODELS][2] = {[TINY] = {"tiny", random},
                                               [CROSSED] = {"crossed", crossed},
                                               [LATENT] = {"latent", latent},
                                               [READING] = {"reading", reading}};
    config->models = calloc(NUM_MODELS, sizeof *config->models);
    need(config->models != NULL, "memory");
    config->num_models = NUM_MODELS;
    for (size_t i = 0; i < NUM_MODELS; i++) {
        snprintf(config->models[i].name, sizeof config->models[i].name, "%s", models[i][0]);
        config->models[i].random = strdup(models[i][1]);
    }
    config->limits = (struct srv_limits){.max_sessions = MAX_SESSIONS,
                                         .max_weightless_shapes = 1,
                                         .max_session_length = 4096,
                                         .session_ttl_s = 3600};
    srv_log_open(&scene.app.log, SRV_LOG_OFF, STDERR_FILENO);
    need(srv_metrics_open(&scene.app.metrics, &srv_routes), "metrics");
    need(attn_engine_open(&scene.app.engine, &(struct attn_engine_options){.threads = 1}, &error) ==
             ATTN_OK,
         "an engine");
    need(attn_cache_pool_new(&scene.app.pool, (size_t)8 << 20) == ATTN_OK, "a pool");
    need(srv_models_open(&scene.app.models, config, message, sizeof message) &&
             srv_models_load(&scene.app.models, scene.app.pool, message, sizeof message),
         message);
    /* In memory where that is there: each damage is written and read. */
    snprintf(scene.path, sizeof scene.path, "%s/attnd-corrupt-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    need(mkdtemp(scene.path) != NULL, "a directory");
}

static void close_file(struct scene_file *file)
{
    free(file->bytes);
    close(file->fd);
}

void scene_close(void)
{
    char command[128];
    close_file(&scene.copies[0]);
    close_file(&scene.copies[1]);
    for (size_t i = 0; i < scene.num_blocks; i++)
        close_file(&scene.blocks[i]);
    close(scene.directory);
    snprintf(command, sizeof command, "rm -rf %s", scene.path);
    need(system(command) == 0, command);
    srv_models_close(&scene.app.models);
    attn_cache_pool_free(scene.app.pool);
    attn_engine_close(scene.app.engine);
    srv_metrics_close(scene.app.metrics);
    srv_log_close(&scene.app.log);
    srv_config_fini(&scene.app.config);
}

uint64_t scene_state_of(const struct srv_session *session)
{
    XXH3_state_t sum;
    const struct srv_revision revision = srv_session_revision(session);
    float key[TOKENS * WIDTH], value[TOKENS * WIDTH];
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, session->id, sizeof session->id / 4 * 4);
    XXH3_64bits_update(&sum, &session->epoch, sizeof session->epoch);
    XXH3_64bits_update(&sum, &revision, sizeof revision);
    XXH3_64bits_update(&sum, session->key_digest, sizeof session->key_digest);
    for (size_t i = 0; i < 2; i++) {
        size_t length = attn_cache_length(session->cache, i);
        size_t first = attn_cache_first(session->cache, i), kept = length - first;
        const struct attn_cached_sizes sizes =
            attn_cached_sizes(attn_model_layer(session->model->attn, i));
        need(kept <= TOKENS && sizes.heads * sizes.key <= WIDTH &&
                 sizes.heads * sizes.value <= WIDTH,
             "no more tokens than were written, and none wider");
        attn_cache_read_from(key, value, session->cache, i, first, kept);
        XXH3_64bits_update(&sum, &length, sizeof length);
        XXH3_64bits_update(&sum, key, kept * sizes.heads * sizes.key * sizeof *key);
        XXH3_64bits_update(&sum, value, kept * sizes.heads * sizes.value * sizeof *value);
        if (session->last_steps[i].position + session->last_steps[i].rows == length)
            XXH3_64bits_update(&sum, &session->last_steps[i], sizeof session->last_steps[i]);
    }
    return XXH3_64bits_digest(&sum);
}

/* ---- What is written ------------------------------------------------------------------------- */

struct stepping {
    struct srv_session *session;
    size_t layer;
};

static bool record(void *context, const struct attn_appended list[], size_t count,
                   struct attn_error *error)
{
    static const uint64_t digest[2] = {17, 23};
    struct stepping *stepping = context;
    struct srv_store_step step = {stepping->session, stepping->layer, list, digest};
    struct srv_error cause;
    (void)error;
    return count == 1 && srv_store_steps(scene.app.store, &step, 1, &cause) == SRV_OK;
}

/* Makes a step of n rows, as the engine thread does. */
static void step(struct srv_session *session, size_t layer, size_t n)
{
    float rows[8 * WIDTH];
    for (size_t i = 0; i < n * WIDTH; i++)
        rows[i] = (float)((i * 7 + layer) % 11) / 11 - 0.5f;
    struct attn_step one = {.cache = session->cache,
                            .position = attn_cache_length(session->cache, layer),
                            .rows = n,
                            .hidden_states = rows,
                            .query = rows, /* one head: [1][n][4] */
                            .key = rows,
                            .value = rows,
                            .commit = true};
    struct attn_step *steps[] = {&one};
    struct stepping stepping = {session, layer};
    const struct attn_recorder recorder = {record, &stepping};
    need(attn_decode_recorded(scene.app.engine, session->model->attn, layer, steps, 1, &recorder) ==
                 ATTN_OK &&
             one.error.status == ATTN_OK,
         one.error.message);
    session->last_steps[layer] = (struct srv_last_step){one.position, n, {17, 23}};
}

static struct srv_session *create_of(const struct srv_model *model,
                                     const struct srv_session_options *options)
{
    struct srv_session *session;
    struct srv_error error = {0};
    need(srv_session_create(&session, scene.app.sessions, model, options, &error) == SRV_OK,
         error.message);
    return session;
}

static struct srv_session *create(const char *id, struct attn_cache *cache, const char *key)
{
    const struct srv_session_options options = {.id = id, .cache = cache, .idempotency_key = key};
    return create_of(&scene.app.models.items[TINY], &options);
}

/* A session of that model with steps in both layers. */
static struct srv_session *create_stepped(size_t model, const char *id)
{
    const struct srv_session_options options = {.id = id};
    struct srv_session *session = create_of(&scene.app.models.items[model], &options);
    step(session, 0, 2);
    step(session, 1, 1);
    return session;
}

/* A session over encoder rows, as its start leaves it. */
static struct srv_session *create_encoded(const char *id)
{
    static const float rows[3 * WIDTH] = {1, 2, 3, 4, 4, 3, 2, 1, -1, 1, -1, 1};
    const struct attn_encode_args args = {.rows = 3, .encoder_hidden_states = rows};
    const struct srv_session_options options = {.id = id};
    struct srv_session *session = create_of(&scene.app.models.items[CROSSED], &options);
    struct attn_error error;
    need(attn_cache_encode(session->cache, scene.app.engine, &args, &error) == ATTN_OK,
         "encoder rows");
    for (size_t i = 0; i < 2; i++)
        session->last_steps[i] = (struct srv_last_step){0, 3, {17, 23}};
    return session;
}

/* A session without weights, of the same widths. */
static struct srv_session *create_weightless(const char *id)
{
    static const struct attn_weightless_options shape = {
        .num_heads = 1, .head_dim = WIDTH, .num_layers = 2};
    const struct srv_session_options options = {.id = id};
    const struct srv_model *model;
    struct srv_error error = {0};
    need(srv_weightless_get(&model, scene.app.models.weightless, &shape, &error) == SRV_OK,
         error.message);
    struct srv_session *session = create_of(model, &options);
    srv_model_put(model);
    return session;
}

/* Records an import, and a step of another session between its rows and its commit. */
static void record_import(struct srv_session *session, struct srv_session *other)
{
    struct srv_store_import import = {.begun = false};
    struct srv_error error;
    bool more = true;
    while (more)
        need(srv_store_import_piece(&more, scene.app.store, &import, session, &error) == SRV_OK,
             error.message);
    step(other, 0, 1);
    need(srv_store_import_end(scene.app.store, &import, session, &error) == SRV_OK, error.message);
}

static struct attn_cache *fork_of(const struct srv_session *session, size_t length)
{
    struct attn_cache *cache;
    struct attn_error error;
    need(attn_cache_fork(&cache, session->cache, length, &error) == ATTN_OK, "a fork");
    return cache;
}

/* A cache like that of the session, whose second layer has forgotten 64 tokens. */
static struct attn_cache *forgetful_like(const struct srv_session *session)
{
    static const float row[WIDTH] = {0.25f, 0.5f, 0.75f, 1};
    struct attn_cache *cache = fork_of(session, 0);
    struct attn_error error;
    need(attn_cache_write(cache, 0, 1, row, row, &error) == ATTN_OK &&
             attn_cache_begin_at(cache, 1, 64, &error) == ATTN_OK &&
             attn_cache_write(cache, 1, 1, row, row, &error) == ATTN_OK,
         "a cache that begins at token 64");
    return cache;
}

static void truncate_to(struct srv_session *session, size_t length)
{
    const struct srv_revision now = srv_session_revision(session);
    struct srv_revision after;
    struct srv_error error = {0};
    need(srv_revision_draw(&after, &now, length) &&
             srv_store_truncate(scene.app.store, session, &after, &error) == SRV_OK &&
             srv_session_truncate(session, &after),
         error.message);
}

/* Records something of every kind, in several writes, of which the last has several records. */
static void record_all_kinds(void)
{
    struct srv_store *store = scene.app.store;
    struct srv_error error = {0};
    struct srv_session *a = create("a", NULL, "key"), *b = create("b", NULL, NULL);
    struct srv_session *w = create_weightless("w");
    struct srv_session *latent = create_stepped(LATENT, "l");
    struct srv_session *reading = create_stepped(READING, "r");
    need(srv_store_create(store, a, &error) == SRV_OK, error.message);
    step(a, 0, 2);
    step(b, 1, 1); /* creates the session too */
    step(a, 1, 3);
    step(w, 0, 1); /* likewise */
    struct srv_session *fork = create("f", fork_of(a, 1), NULL);
    need(srv_store_fork(store, fork, a, 1, &error) == SRV_OK, error.message);
    step(a, 0, 1);
    need(srv_store_delete(store, b, &error) == SRV_OK, error.message);
    truncate_to(a, 2);
    step(fork, 0, 1);
    struct srv_session *import = create("i", forgetful_like(a), NULL);
    record_import(import, a);
    struct srv_session *encoded = create_encoded("e");
    record_import(encoded, fork);
    truncate_to(reading, 1);
    srv_session_put(latent);
    srv_session_put(reading);
    srv_session_put(encoded);
    srv_session_put(a);
    srv_session_put(b);
    srv_session_put(w);
    srv_session_put(fork);
    srv_session_put(import);
}

/* Steps, truncates and deletes sessions that a manifest has. */
static void change_some(void)
{
    struct srv_error error = {0};
    struct srv_session *a = srv_session_get(scene.app.sessions, NULL, "a");
    struct srv_session *latent = srv_session_get(scene.app.sessions, NULL, "l");
    struct srv_session *weightless = srv_session_get(scene.app.sessions, NULL, "w");
    need(a != NULL && latent != NULL && weightless != NULL, "sessions");
    step(a, 0, 2);
    truncate_to(latent, 1);
    need(srv_store_delete(scene.app.store, weightless, &error) == SRV_OK, error.message);
    need(srv_session_remove(scene.app.sessions, weightless), "a session");
    srv_session_put(a);
    srv_session_put(latent);
    srv_session_put(weightless);
}

static void open_file(struct scene_file *out, const char *name)
{
    out->fd = openat(scene.directory, name, O_RDWR | O_CLOEXEC);
    need(out->fd >= 0, name);
    out->size = (size_t)lseek(out->fd, 0, SEEK_END);
    out->bytes = malloc(out->size);
    need(pread(out->fd, out->bytes, out->size, 0) == (ssize_t)out->size, name);
}

static void open_files(void)
{
    struct srv_file *files;
    size_t count;
    need(srv_files_list(&files, &count, scene.directory), "a list of files");
    for (size_t i = 0; i < count; i++) {
        if (files[i].kind == SRV_FILE_MANIFEST || files[i].kind == SRV_FILE_COPY)
            open_file(&scene.copies[files[i].kind == SRV_FILE_COPY], files[i].name);
        if (files[i].kind == SRV_FILE_MANIFEST)
            scene.generation = files[i].generation;
        if (files[i].kind != SRV_FILE_BLOCKS)
            continue;
        need(scene.num_blocks < SCENE_BLOCKS, "fewer files of blocks");
        open_file(&scene.blocks[scene.num_blocks], files[i].name);
        scene.blocks[scene.num_blocks++].slot_bytes = files[i].slot_bytes;
    }
    free(files);
    need(scene.copies[0].size == scene.copies[1].size && scene.num_blocks > 0, "a manifest");
}

/* Opens a store and loads its directory. */
static void open_store(enum srv_durability durability)
{
    char message[512];
    scene_open_table();
    const struct srv_store_context context = {
        .durability = durability,
        .journal_bytes = (size_t)1 << 30,
        .state_dir = scene.path,
        .max_sessions = MAX_SESSIONS,
        .sessions = scene.app.sessions,
        .models = &scene.app.models,
        .pool = scene.app.pool,
        .metrics = scene.app.metrics,
        .log = &scene.app.log,
    };
    need(srv_store_open(&scene.app.store, &context, message, sizeof message) &&
             srv_store_load(scene.app.store, message, sizeof message),
         message);
}

static void close_store(void)
{
    need(srv_store_close(scene.app.store), "closing the store");
    scene.app.store = NULL;
    scene_close_table();
}

void scene_make(unsigned char **journal, size_t *journal_size)
{
    struct srv_file name;
    struct scene_file file;
    scene.directory = open(scene.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    need(scene.directory >= 0, scene.path);
    open_store(SRV_DURABLE_JOURNAL);
    record_all_kinds();
    close_store();
    srv_file_name(&name, SRV_FILE_JOURNAL, 1);
    open_file(&file, name.name);
    close(file.fd);
    *journal = file.bytes;
    *journal_size = file.size;
    open_store(SRV_DURABLE_SNAPSHOT); /* writes the journal's sessions as the first section */
    change_some();
    close_store(); /* and the second one */
    open_files();
}
