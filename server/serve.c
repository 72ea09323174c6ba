/* serve.c: the main thread while the daemon serves: expiry, memory, reloading, draining.
 *
 * Requests are served by other threads; the main thread waits for signals and does what comes round
 * once a second. */
#include "serve.h"

#include <time.h>

#include "base/clock.h"
#include "http/tls.h"
#include "memory.h"
#include "ops/heap.h"

#define TRIM_NS UINT64_C(10000000000) /* from one trim of the heap to the next, at least */
#define TRIM_SHARE 1000               /* a trim may take this part of the time */

static void expire_sessions(struct srv_app *app)
{
    struct srv_session *session = srv_sessions_expire(app->sessions, srv_now_ns()), *next;
    for (; session != NULL; session = next) {
        next = session->next;
        srv_store_expire(app->store, session);
        srv_metrics_session(app->metrics, SRV_SESSION_EXPIRED, 1);
        srv_session_put(session);
    }
}

/* Trims the heap, while which threads that allocate wait, and returns when to do it next. */
static uint64_t trim_heap(void)
{
    uint64_t start = srv_now_ns();
    srv_heap_trim();
    uint64_t took = srv_now_ns() - start;
    return start + (took > TRIM_NS / TRIM_SHARE ? took * TRIM_SHARE : TRIM_NS);
}

/* ---- Reloading ------------------------------------------------------------------------------- */

static void reload_keys(struct srv_app *app)
{
    char message[SRV_MESSAGE_MAX];
    if (app->config.api_keys == NULL)
        return;
    size_t keys = srv_keyring_read(&app->keys, app->config.api_keys, message, sizeof message);
    if (keys > 0)
        srv_log_event(&app->log, SRV_LOG_INFO, "keys", "%zu, from %s", keys, app->config.api_keys);
    else
        srv_log_event(&app->log, SRV_LOG_ERROR, "keys", "are what they were: %s", message);
}

static void reload_certificate(struct srv_app *app)
{
    const struct srv_config *config = &app->config;
    struct srv_tls tls;
    char message[SRV_MESSAGE_MAX], date[SRV_TLS_DATE];
    if (config->tls_cert == NULL)
        return;
    bool read = srv_tls_read(&tls, config->tls_cert, config->tls_key, message, sizeof message);
    bool used = read && srv_http_replace_certificate(app->http, &tls);
    if (read)
        srv_tls_date(date, &tls);
    if (used)
        srv_log_event(&app->log, SRV_LOG_INFO, "certificate", "expires %s, from %s", date,
                      config->tls_cert);
    else
        srv_log_event(&app->log, SRV_LOG_ERROR, "certificate", "is what it was: %s",
                      read ? "out of memory" : message);
    srv_tls_fini(&tls);
}

/* ---- Serving and draining -------------------------------------------------------------------- */

void srv_serve(struct srv_app *app, const sigset_t *signals)
{
    const struct timespec second = {.tv_sec = 1};
    uint64_t trim_ns = srv_now_ns() + TRIM_NS;
    int signal_number;
    do {
        signal_number = sigtimedwait(signals, NULL, &second);
        expire_sessions(app);
        if (srv_now_ns() >= trim_ns)
            trim_ns = trim_heap();
        if (signal_number == SIGHUP) {
            reload_keys(app);
            reload_certificate(app);
        }
    } while (signal_number < 0 || signal_number == SIGHUP);
}

void srv_drain(struct srv_app *app)
{
    const struct timespec poll = {.tv_nsec = 10 * 1000 * 1000};
    uint64_t deadline_ns = srv_now_ns() + app->config.limits.drain_timeout_s * UINT64_C(1000000000);
    atomic_store(&app->phase, SRV_DRAINING);
    srv_log_event(&app->log, SRV_LOG_INFO, "draining", "%zu requests are running",
                  srv_http_active(app->http));
    srv_http_quiesce(app->http);
    while (srv_http_active(app->http) > 0 && srv_now_ns() < deadline_ns)
        nanosleep(&poll, NULL);
    srv_log_event(&app->log, SRV_LOG_INFO, "stopped", "%zu requests were cut off",
                  srv_http_active(app->http));
}
