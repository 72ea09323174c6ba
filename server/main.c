/* main.c: from configuration to a serving daemon and back.
 *
 * open_parts, open_http and load open the parts, each after those that it uses.  close_all stops
 * the scheduler, then closes each part before those that it uses; models, block pool and engine do
 * not use each other, so their order is free.  The port opens before weights are read, so that
 * /livez answers and /readyz says "loading". */
#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/endpoints.h"
#include "attn_json.h"
#include "base/clock.h"
#include "base/thread.h"
#include "http/tls.h"
#include "main.h"
#include "ops/sandbox.h"
#include "store/stores.h"

#define FILES_BESIDE_CONNECTIONS 64 /* descriptors that are no connections, without those */
#define FILES_OF_MAPPED_MODEL 2     /* the file of weights, and its directory */

/* Of each event thread: sockets linger before connections are closed, and reserved connections end
 * after newer ones have come. */
#define FILES_OF_LOOP (68 + 2 * SRV_MAX_RESERVED)

extern char **environ;

/* ---- Opening --------------------------------------------------------------------------------- */

/* Raises the limit on descriptors to the hard limit, and lowers max_connections where even that is
 * too low, so that the daemon's own files never lack a descriptor. */
static void fit_connections(struct srv_app *app)
{
    struct rlimit files;
    size_t *connections = &app->config.limits.max_connections;
    size_t beside = FILES_BESIDE_CONNECTIONS + app->config.event_threads * FILES_OF_LOOP;
    if (app->config.weights_cache != NULL)
        beside += app->config.num_models * FILES_OF_MAPPED_MODEL;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur >= *connections + beside)
        return;
    size_t allowed = files.rlim_cur > 2 * beside ? files.rlim_cur - beside : files.rlim_cur / 2;
    srv_log_event(&app->log, SRV_LOG_INFO, "limit",
                  "max_connections is %zu and not %zu: the process may open %llu files", allowed,
                  *connections, (unsigned long long)files.rlim_cur);
    *connections = allowed;
}

static bool open_engine(struct srv_app *app, char *message)
{
    struct attn_engine_options options = srv_config_engine(&app->config);
    options.call_bytes = app->memory.call_bytes;
    options.yield_call_bytes = app->memory.yield_call_bytes;
    struct attn_engine_info info;
    struct attn_error error = {0};
    errno = 0;
    if (attn_engine_open(&app->engine, &options, &error) != ATTN_OK) {
        srv_refuse(message, "%s", error.message);
        srv_thread_explain(message, SRV_MESSAGE_MAX);
        return false;
    }
    attn_engine_describe(&info, app->engine);
    const bool openblas = info.blas_core != NULL;
    srv_log_event(&app->log, SRV_LOG_INFO, "engine", "%u threads, %s kernels, gemm %s%s%s%s",
                  info.threads, info.level_name, info.gemm_name, openblas ? ", OpenBLAS core " : "",
                  openblas ? info.blas_core : "",
                  info.blas_overridden ? " (OPENBLAS_CORETYPE chose it: the CPU may do better)"
                                       : "");
    if (info.gemm_missing[0] != '\0')
        srv_log_event(&app->log, SRV_LOG_ERROR, "gemm", "packed products only: %s",
                      info.gemm_missing);
    return true;
}

/* Called before weights are read, and before any part is made whose size the options set. */
static bool fit_memory(struct srv_app *app, char *message)
{
    struct srv_memory *memory = &app->memory;
    size_t *connections = &app->config.limits.max_connections, allowed = *connections;
    if (!srv_memory_fit(memory, &app->config, &app->models, message))
        return false;
    if (*connections > allowed) /* the fit began with the default */
        *connections = allowed;
    app->in_flight.limit = app->config.limits.max_in_flight_bytes;
    if (memory->divisor > 1)
        srv_log_event(&app->log, SRV_LOG_INFO, "limit",
                      "%s gives %zu MiB: defaults that are shares of memory are divided by %u",
                      memory->source, memory->limit >> 20, memory->divisor);
    return true;
}

static bool open_store(struct srv_app *app, char *message)
{
    const struct srv_store_context context = srv_app_store_context(app);
    if (srv_config_implies_journal(&app->config))
        srv_log_event(&app->log, SRV_LOG_INFO, "durability",
                      "journal, since state_dir is given and no durability is");
    srv_sessions_set_sharded(app->sessions, app->config.sharded != 0);
    return srv_stores_open(&app->store, &context, app->config.adopt, message, SRV_MESSAGE_MAX);
}

static void resume(void *app, struct srv_request *const requests[], size_t count)
{
    srv_http_resume(((struct srv_app *)app)->http, requests, count);
}

static bool open_scheduler(struct srv_app *app, char *message)
{
    const struct srv_config *config = &app->config;
    app->scheduler_context = (struct srv_scheduler_context){
        .engine = app->engine,
        .models = &app->models,
        .sessions = app->sessions,
        .store = app->store,
        .metrics = app->metrics,
        .limits = &config->limits,
        .routes = app->routes,
        .reply_compression = config->reply_compression,
        .records_on_disk = config->durability == SRV_DURABLE_JOURNAL,
        .stopping = &app->stopping,
        .resume = resume,
        .resume_context = app,
    };
    bool opened = srv_scheduler_open(&app->scheduler, &app->scheduler_context);
    if (!opened)
        srv_thread_explain(message, SRV_MESSAGE_MAX);
    return opened;
}

/* Opens the parts that neither read files of models nor take requests. */
static bool open_parts(struct srv_app *app, char *message)
{
    const struct srv_limits *limits = &app->config.limits;
    if (app->config.api_keys != NULL &&
        srv_keyring_read(&app->keys, app->config.api_keys, message) == 0)
        return false;
    srv_refuse(message, "out of memory");
    bool opened = srv_metrics_open(&app->metrics, app->routes) &&
                  (app->usage = srv_usage_open()) != NULL &&
                  srv_models_open(&app->models, &app->config, message, SRV_MESSAGE_MAX);
    for (size_t i = 0; i < app->models.count && opened; i++)
        srv_metrics_add_model(app->metrics, app->models.items[i].name);
    return opened && fit_memory(app, message) &&
           attn_cache_pool_new(&app->pool, app->config.limits.cache_bytes) == ATTN_OK &&
           open_engine(app, message) &&
           (app->inputs = srv_inputs_open(limits->inputs_bytes)) != NULL &&
           srv_sessions_open(&app->sessions, limits, app->config.instance) &&
           open_store(app, message) && open_scheduler(app, message);
}

static bool open_http(struct srv_app *app, char *message)
{
    const struct srv_config *config = &app->config;
    const struct srv_http_context context = {
        .limits = &config->limits,
        .routes = app->routes,
        .instance = srv_sessions_identity(app->sessions)->instance,
        .keys = config->api_keys != NULL ? &app->keys : NULL,
        .allowed_hosts = config->allowed_hosts,
        .allow_origins = config->allow_origins,
        .log = &app->log,
        .metrics = app->metrics,
        .scheduler = app->scheduler,
        .in_flight = &app->in_flight,
        .inputs = app->inputs,
        .phase = &app->phase,
        .stopping = &app->stopping,
        .app = app,
    };
    struct srv_tls tls;
    char date[SRV_TLS_DATE];
    struct srv_http_options options = {
        .host = config->host,
        .port = (unsigned)config->port,
        .threads = (unsigned)config->event_threads,
        .tls = &tls,
    };
    bool opened = srv_tls_read(&tls, config->tls_cert, config->tls_key, message, SRV_MESSAGE_MAX) &&
                  srv_http_open(&app->http, &context, &options, message, SRV_MESSAGE_MAX);
    if (opened && srv_tls_expired(&tls)) {
        srv_tls_date(date, &tls);
        srv_log_event(&app->log, SRV_LOG_ERROR, "certificate", "expires %s", date);
    }
    srv_tls_fini(&tls);
    return opened;
}

/* How the weights of each model came, and how long that took. */
static void log_weights(struct srv_app *app)
{
    for (size_t i = 0; i < app->models.count; i++) {
        const struct srv_model *model = &app->models.items[i];
        const struct attn_cached_load *cached = &model->cached;
        const char *how = cached->written  ? "packed, written and mapped"
                          : cached->mapped ? "mapped"
                                           : "packed, in memory of this process";
        srv_log_event(&app->log, cached->reason[0] != '\0' ? SRV_LOG_ERROR : SRV_LOG_INFO,
                      "weights", "model %s: %s, %.1f MiB; %.1f ms%s%s", model->name, how,
                      (double)model->info.weight_bytes / (1 << 20), model->load_ms,
                      cached->reason[0] != '\0' ? ": " : "", cached->reason);
    }
}

static bool load(struct srv_app *app, char *message)
{
    srv_notify(&app->notifier, SRV_NOTICE_LOADING, "loading");
    srv_signals_stop_at_once(0); /* nothing is lost before the first request */
    if (app->config.weights_cache != NULL)
        srv_mapped_watch(&app->models, app->config.weights_cache, &app->log);
    bool loaded = srv_models_load(&app->models, app->pool, message, SRV_MESSAGE_MAX);
    if (loaded)
        log_weights(app);
    loaded = loaded && srv_self_check(app, message) &&
             srv_stores_load(app->store, message, SRV_MESSAGE_MAX);
    if (loaded && app->config.api_keys != NULL)
        srv_sessions_set_accounts(app->sessions, &app->keys.accounts);
    srv_signals_block();
    if (loaded && !srv_models_describe(app))
        return srv_refuse(message, "out of memory");
    return loaded;
}

/* Starts what goes on beside the requests. */
static bool start_threads(struct srv_app *app, char *message)
{
    if (!srv_stores_start(app->store, message, SRV_MESSAGE_MAX))
        return false;
    if (srv_upkeep_open(app))
        return true;
    srv_refuse(message, "out of memory");
    srv_thread_explain(message, SRV_MESSAGE_MAX);
    return false;
}

/* Warns of each key of a model's configuration that is passed over unread. */
static void note_ignored_keys(struct srv_app *app, const struct srv_model_entry *entry)
{
    size_t length;
    for (const char *at = entry->ignore_keys; at != NULL && *at != '\0';
         at += length + (at[length] == ' ')) {
        length = strcspn(at, " ");
        srv_log_event(&app->log, SRV_LOG_INFO, "ignored",
                      "warning: model %s: key '%.*s' of its configuration is passed over, as "
                      "ignore_keys says; outputs are wrong if it changes attention",
                      entry->name, (int)length, at);
    }
}

/* Logs what was passed over, and exposure.  The configuration asks for both, so that neither is an
 * error. */
static void note_configuration(struct srv_app *app)
{
    const struct srv_config *config = &app->config;
    for (size_t i = 0; i < config->num_models; i++)
        note_ignored_keys(app, &config->models[i]);
    for (size_t i = 0; i < SRV_CONFIG_NOTES && config->notes[i][0] != '\0'; i++)
        srv_log_event(&app->log, SRV_LOG_INFO, "config", "%s", config->notes[i]);
    if (srv_config_is_loopback(config->host))
        return;
    if (config->api_keys == NULL)
        srv_log_event(&app->log, SRV_LOG_INFO, "exposed",
                      "no API keys: whoever reaches %s may use and end every session",
                      config->host);
    else if (config->tls_cert == NULL)
        srv_log_event(&app->log, SRV_LOG_INFO, "exposed",
                      "no TLS: API keys and tensors cross the network to %s in the clear",
                      config->host);
}

/* From then on no thread is started, and no file is opened but those of the state directory and
 * those that SIGHUP reloads. */
static bool restrict_calls(struct srv_app *app, char *message)
{
    int directories[SRV_MAX_ADOPTED + 1];
    const bool reads_again = app->config.api_keys != NULL || app->config.tls_cert != NULL;
    return !app->config.sandbox ||
           srv_sandbox_restrict_calls(directories, srv_stores_directories(directories, app->store),
                                      reads_again, message);
}

static bool restrict_files(struct srv_app *app, char *message)
{
    const struct srv_config *config = &app->config;
    const char *directories[SRV_MAX_ADOPTED + 2], *names = config->adopt;
    char adopted[SRV_MAX_ADOPTED][SRV_LISTED_MAX + 1];
    size_t count = 0;
    for (size_t i = 0; i < SRV_MAX_ADOPTED && srv_config_take_name(adopted[i], &names); i++)
        if (access(adopted[i], F_OK) == 0) /* it is not to be made */
            directories[count++] = adopted[i];
    if (config->durability != SRV_DURABLE_NONE)
        directories[count++] = config->state_dir;
    if (config->weights_cache != NULL)
        directories[count++] = config->weights_cache;
    return !config->sandbox || srv_sandbox_restrict_files(directories, count, message);
}

static void announce_ready(struct srv_app *app)
{
    char url[SRV_URL_MAX];
    srv_config_print_url(url, &app->config, srv_http_port(app->http));
    srv_log_event(&app->log, SRV_LOG_INFO, "ready", "%s, %zu models%s", url, app->models.count,
                  app->models.count == 0 ? ": attention without weights only" : "");
    srv_log_flush(&app->log); /* who waits for the next line finds all of the start in the log */
    if (getpid() != 1) { /* a container's engine keeps both streams as one log, of lines of JSON */
        printf("attnd: ready on %s\n", url);
        if (srv_has_page)
            printf("attnd: attention viewer: %s/\n", url);
        fflush(stdout);
    }
    srv_notify(&app->notifier, SRV_NOTICE_READY, url);
}

/* ---- From start to end ----------------------------------------------------------------------- */

/* Closes all but the log.  False where sessions could not be saved. */
static bool close_all(struct srv_app *app)
{
    srv_scheduler_stop(app->scheduler);
    srv_http_close(app->http);
    srv_upkeep_close(app->upkeep);
    bool saved = srv_stores_close(app->store);
    srv_scheduler_free(app->scheduler);
    srv_sessions_close(app->sessions);
    srv_inputs_close(app->inputs);
    srv_mapped_forget();
    srv_models_close(&app->models);
    attn_cache_pool_free(app->pool);
    attn_engine_close(app->engine);
    srv_usage_close(app->usage);
    srv_metrics_close(app->metrics);
    srv_keyring_fini(&app->keys);
    srv_notifier_close(&app->notifier);
    return saved;
}

static bool open_log(struct srv_app *app, char *message)
{
    if (srv_log_open(&app->log, (enum srv_log_level)app->config.log, STDERR_FILENO))
        return true;
    srv_refuse(message, "neither memory nor a thread for the log");
    srv_thread_explain(message, SRV_MESSAGE_MAX);
    return false;
}

static int run(struct srv_app *app)
{
    char message[SRV_MESSAGE_MAX];
    uint64_t asked_ns = 0;
    app->main_thread = pthread_self();
    srv_heap_configure(app->config.event_threads);
    srv_signals_block();
    srv_signals_ignore();
    bool opened = restrict_files(app, message) && open_log(app, message);
    if (opened) {
        srv_notifier_open(&app->notifier, &app->log);
        fit_connections(app);
        opened = open_parts(app, message) && open_http(app, message) && load(app, message) &&
                 start_threads(app, message) && restrict_calls(app, message);
    }
    if (opened) {
        atomic_store(&app->phase, SRV_READY);
        note_configuration(app);
        announce_ready(app);
        if (!srv_usage_is_whole(app->usage))
            srv_log_event(
                &app->log, SRV_LOG_ERROR, "metrics",
                "/proc cannot be read: memory and descriptors of the process are unknown");
        asked_ns = srv_serve(app);
    } else {
        srv_log_flush(&app->log);
        fprintf(stderr, "attnd: %s\n", message);
    }
    bool saved = close_all(app);
    if (opened)
        srv_log_event(&app->log, SRV_LOG_INFO, "stopped", "%" PRIu64 " ms after it was asked for",
                      (srv_now_ns() - asked_ns) / 1000000);
    srv_log_close(&app->log);
    return opened && saved ? 0 : 1;
}

/* The health check of an image knows no flags of `docker run`: those of the daemon count. */
static bool read_configuration(struct srv_config *config, int argc, char *argv[], char *message)
{
    struct srv_first_process first;
    if (argc == 2 && strcmp(argv[1], "--health-check") == 0 &&
        srv_first_process_read(&first, "/proc/1/cmdline")) {
        if (srv_config_read(config, first.count, first.words, environ, message) &&
            config->mode == SRV_RUN_HEALTH)
            return true;
        srv_config_fini(config);
    }
    return srv_config_read(config, argc, argv, environ, message);
}

int main(int argc, char *argv[])
{
    /* Every destructor takes a part that was never opened. */
    struct srv_app app = {.routes = &srv_routes, .keys = SRV_KEYRING_EMPTY, .notifier = {.fd = -1}};
    char message[SRV_MESSAGE_MAX];
    int status = 2;
    attn_json_set_allocator();
    if (argc > 1 && strcmp(argv[1], "inspect") == 0)
        return srv_command_inspect(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "journal") == 0)
        return srv_command_journal(argc - 2, argv + 2);
    if (!read_configuration(&app.config, argc, argv, message)) {
        fprintf(stderr, "attnd: %s\n", message);
    } else {
        switch ((enum srv_run_mode)app.config.mode) {
        case SRV_RUN_SERVE:
            status = run(&app);
            break;
        case SRV_RUN_CHECK:
        case SRV_RUN_CHECK_SHORT:
            status = srv_command_check(&app.config);
            break;
        case SRV_RUN_HEALTH:
            status = srv_command_health(&app.config);
            break;
        case SRV_RUN_HELP:
            status = srv_command_help();
            break;
        case SRV_RUN_VERSION:
            status = srv_command_version();
            break;
        }
    }
    srv_config_fini(&app.config);
    return status;
}
