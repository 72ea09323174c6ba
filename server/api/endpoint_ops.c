/* endpoint_ops.c: the endpoints for operators: GET /livez, /healthz, /health, /readyz, /metrics.
 *
 * Alive means that an event thread answers; ready means that requests are served.  While models
 * load and while requests drain, only /readyz answers no, so that a supervisor that restarts
 * unhealthy daemons leaves this one alone. */
#include "api/endpoints.h"
#include "app.h"

static const char *phase_name(int phase)
{
    static const char *const names[] = {"loading", "ready", "draining"};
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
    struct srv_error error = {0};
    if (phase == SRV_READY) {
        srv_buffer_text(&request->reply.body, "{\"status\":\"ready\"}");
        srv_reply_status(request, 200);
        return;
    }
    srv_fail(&error, phase == SRV_LOADING ? SRV_E_LOADING : SRV_E_DRAINING, NULL, "%s",
             phase == SRV_LOADING ? "models are being loaded" : "attnd is stopping");
    srv_reply_error(request, &error);
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static size_t weight_bytes(const struct srv_models *models)
{
    size_t bytes = 0;
    for (size_t i = 0; i < models->count; i++)
        bytes += models->items[i].info.weight_bytes;
    return bytes;
}

void srv_get_metrics(struct srv_request *request)
{
    struct srv_app *app = request->app;
    int phase = atomic_load(&app->phase);
    bool loading = phase == SRV_LOADING; /* app->http and app->models are not set yet */
    struct srv_gauges gauges = {
        .sessions = srv_sessions_count(app->sessions),
        .queue = srv_scheduler_depth(app->scheduler),
        .in_flight = atomic_load(&app->in_flight.used),
        .connections = loading ? 0 : srv_http_connections(app->http),
        .cache_used_bytes = attn_cache_pool_used(app->pool),
        .cache_budget_bytes = attn_cache_pool_budget(app->pool),
        .weight_bytes = loading ? 0 : weight_bytes(&app->models),
        .resident_bytes = srv_usage_resident_bytes(app->usage),
        .heap_bytes = srv_usage_heap_bytes(app->usage),
        .open_files = srv_usage_open_files(app->usage),
        .ready = phase == SRV_READY,
        .draining = phase == SRV_DRAINING,
    };
    srv_metrics_print(&request->reply.body, app->metrics, &gauges);
    if (srv_keyring_metrics_keys(&app->keys))
        srv_metrics_print_accounts(&request->reply.body, &app->keys.accounts);
    request->reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    srv_reply_status(request, 200);
}
