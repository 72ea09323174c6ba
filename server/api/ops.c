/* ops.c: the endpoints for operators: GET /livez, /healthz, /health, /readyz, /metrics,
 * POST /admin/drain, POST and GET of /snapshot.
 *
 * Alive means that an event thread answers; ready means that requests are served and will be.
 * While models load, while the journal's disk does not answer, before the daemon stops and while
 * requests drain, only /readyz answers no, so that a supervisor that restarts unhealthy daemons
 * leaves this one alone. */
#include "api/endpoints.h"
#include "app.h"
#include "session/weightless.h"
#include "store/stores.h"
#include "wire/inputs.h"

#define FEW_MODELS 8  /* whose metrics are short */
#define FEW_FILES 256 /* that are counted in no time */

static const char *phase_name(int phase)
{
    static const char *const names[] = {
        [SRV_LOADING] = "loading",
        [SRV_READY] = "ready",
        [SRV_LAME_DUCK] = "lame_duck",
        [SRV_DRAINING] = "draining",
    };
    return names[phase];
}

void srv_get_health(struct srv_request *request)
{
    struct srv_buffer *out = &request->reply.body;
    srv_buffer_text(out, "{\"status\":\"ok\",\"phase\":\"");
    srv_buffer_text(out, phase_name(atomic_load(&request->app->phase)));
    srv_buffer_text(out, "\"}");
    srv_reply_status(request, 200);
}

void srv_get_ready(struct srv_request *request)
{
    int phase = atomic_load(&request->app->phase);
    size_t waited_s = srv_stores_waited_s(request->app->store);
    struct srv_error error = {0};
    char text[SRV_LOADING_TEXT_MAX];
    if (phase == SRV_READY && waited_s < SRV_JOURNAL_WAIT_S) {
        srv_buffer_text(&request->reply.body, "{\"status\":\"ready\"}");
        srv_reply_status(request, 200);
        return;
    }
    if (phase == SRV_LOADING) {
        srv_loading_print(text, &request->app->models.loading);
        srv_fail(&error, SRV_E_LOADING, NULL, "models are being loaded%s%s",
                 text[0] != '\0' ? ": " : "", text);
    } else if (phase == SRV_LAME_DUCK)
        srv_fail(&error, SRV_E_LAME_DUCK, NULL, "attnd serves, and is about to stop");
    else if (phase == SRV_READY)
        srv_fail(&error, SRV_E_STALLED, NULL,
                 "the journal has waited %zu s for its disk, and requests wait for the journal: is "
                 "the file system of state_dir frozen, or out of reach?",
                 waited_s);
    else
        srv_fail(&error, SRV_E_DRAINING, NULL, "attnd is stopping");
    srv_reply_error(request, &error);
}

/* The phase is another when the reply is read, and the main thread does the rest. */
void srv_post_drain(struct srv_request *request)
{
    struct srv_app *app = request->app;
    struct srv_error error;
    int phase = SRV_READY;
    if (app->config.api_keys == NULL) {
        srv_fail(&error, SRV_E_FORBIDDEN, NULL,
                 "draining asks for an API key of the scope admin, and none are configured; "
                 "SIGTERM does the same");
        srv_reply_error(request, &error);
        return;
    }
    if (atomic_compare_exchange_strong(&app->phase, &phase, SRV_LAME_DUCK))
        pthread_kill(app->main_thread, SRV_DRAIN_SIGNAL);
    srv_document_reply(request, 202,
                       json_pack("{s:s, s:I, s:I}", "phase", phase_name(SRV_LAME_DUCK),
                                 "lame_duck_s", (json_int_t)app->config.lame_duck_s,
                                 "drain_timeout_s",
                                 (json_int_t)app->config.limits.drain_timeout_s));
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static void read_gauges(struct srv_gauges *g, struct srv_app *app, int phase)
{
    bool loading = phase == SRV_LOADING; /* app->http and app->models are not set yet */
    *g = (struct srv_gauges){.draining = phase > SRV_READY};
    g->journal_wait_s = srv_stores_waited_s(app->store);
    g->ready = phase == SRV_READY && g->journal_wait_s < SRV_JOURNAL_WAIT_S;
    g->limits = app->config.limits;
    g->sessions = srv_sessions_count(app->sessions);
    g->sessions_restoring = srv_stores_restoring(app->store);
    g->sessions_unread = srv_stores_unread(app->store);
    g->running = srv_scheduler_running(app->scheduler);
    g->queue = srv_scheduler_depth(app->scheduler);
    g->waiting = g->queue > g->running ? g->queue - g->running : 0; /* read one after the other */
    g->in_flight = atomic_load(&app->in_flight.used);
    g->inputs_bytes = srv_inputs_bytes(app->inputs);
    g->cache_used_bytes = attn_cache_pool_used(app->pool);
    g->cache_budget_bytes = attn_cache_pool_budget(app->pool);
    g->memory_limit_bytes = app->memory.limit;
    srv_usage_read(&g->process, app->usage);
    if (loading)
        return;
    srv_stores_count_blocks(&g->store_used, &g->store_held, app->store);
    g->connections = srv_http_connections(app->http);
    g->certificate_expires = (double)srv_http_certificate_expires(app->http);
    g->weightless_shapes = srv_weightless_count(app->models.weightless);
    for (size_t i = 0; i < app->models.count; i++) {
        const struct attn_model_info *info = &app->models.items[i].info;
        g->weight_bytes += info->weight_bytes;
        g->mapped_bytes += info->is_mapped ? info->weight_bytes : 0;
    }
}

static void print_models(struct srv_buffer *out, const struct srv_app *app)
{
    struct srv_model_gauges models[SRV_MAX_MODELS + 1];
    for (size_t i = 0; i < app->models.count; i++) {
        const struct srv_model *model = &app->models.items[i];
        models[i] = (struct srv_model_gauges){
            .name = model->name,
            .sessions = srv_sessions_count_of(app->sessions, model->index),
            .weight_bytes = model->info.weight_bytes};
    }
    models[app->models.count] = (struct srv_model_gauges){
        .name = SRV_NO_MODEL_NAME,
        .sessions = srv_sessions_count_of(app->sessions, SRV_WEIGHTLESS_INDEX)};
    srv_metrics_print_models(out, models, app->models.count + 1);
}

/* The text grows with models and keys, and open files are counted. */
bool srv_metrics_are_long(const struct srv_request *request)
{
    struct srv_app *app = request->app;
    return atomic_load(&app->phase) != SRV_LOADING &&
           (app->models.count > FEW_MODELS || srv_keyring_metrics_keys(&app->keys) ||
            srv_http_connections(app->http) > FEW_FILES);
}

void srv_get_metrics(struct srv_request *request)
{
    struct srv_app *app = request->app;
    struct srv_buffer *out = &request->reply.body;
    struct srv_gauges gauges;
    int phase = atomic_load(&app->phase);
    read_gauges(&gauges, app, phase);
    srv_metrics_print(out, app->metrics);
    srv_metrics_print_gauges(out, &gauges);
    if (phase != SRV_LOADING)
        print_models(out, app);
    if (srv_keyring_metrics_keys(&app->keys))
        srv_metrics_print_accounts(out, &app->keys.accounts);
    request->reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    srv_reply_status(request, 200);
}

/* ---- Snapshots ------------------------------------------------------------------------------- */

/* POST replies before the snapshot is written, which the store's thread does.  The snapshot is
 * complete when GET shows a larger `base` than POST did. */
static void reply_status(struct srv_request *request, unsigned code,
                         void (*get_status)(struct srv_store_status *, struct srv_store *))
{
    struct srv_store_status status;
    struct srv_error error = {0};
    if (request->app->store == NULL) {
        srv_fail(&error, SRV_E_UNSUPPORTED, "durability", "durability is none: nothing is kept");
        srv_reply_error(request, &error);
        return;
    }
    get_status(&status, request->app->store);
    srv_document_reply(request, code,
                       json_pack("{s:I, s:I, s:I, s:b}", "generation",
                                 (json_int_t)status.generation, "base", (json_int_t)status.base,
                                 "journal_bytes", (json_int_t)status.journal_bytes, "running",
                                 status.running));
}

void srv_post_snapshot(struct srv_request *request)
{
    reply_status(request, 202, srv_stores_request_snapshot);
}

void srv_get_snapshot(struct srv_request *request)
{
    reply_status(request, 200, srv_stores_describe);
}
