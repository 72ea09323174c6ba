/* serve.c: the main thread while the daemon serves: reloading, draining.
 *
 * All other work is done by other threads, so that the main thread sees a signal at once. */
#include "serve.h"

#include <time.h>

#include "base/clock.h"
#include "http/tls.h"
#include "memory.h"

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
    int signal_number;
    while ((signal_number = sigwaitinfo(signals, NULL)) < 0 || signal_number == SIGHUP) {
        if (signal_number < 0)
            continue; /* interrupted, as by a debugger */
        srv_notify(&app->notifier, SRV_NOTICE_RELOADING, "reloading");
        if (app->config.api_keys == NULL && app->config.tls_cert == NULL)
            srv_log_event(&app->log, SRV_LOG_INFO, "reload",
                          "neither keys nor a certificate to read");
        reload_keys(app);
        reload_certificate(app);
        srv_notify(&app->notifier, SRV_NOTICE_READY, "ready");
    }
}

void srv_drain(struct srv_app *app)
{
    const struct timespec poll = {.tv_nsec = 10 * 1000 * 1000};
    uint64_t deadline_ns = srv_now_ns() + app->config.limits.drain_timeout_s * UINT64_C(1000000000);
    atomic_store(&app->phase, SRV_DRAINING);
    srv_notify(&app->notifier, SRV_NOTICE_STOPPING, "draining");
    srv_log_event(&app->log, SRV_LOG_INFO, "draining", "%zu requests are running",
                  srv_http_active(app->http));
    srv_http_quiesce(app->http);
    while (srv_http_active(app->http) > 0 && srv_now_ns() < deadline_ns)
        nanosleep(&poll, NULL);
    srv_log_event(&app->log, SRV_LOG_INFO, "stopped", "%zu requests were cut off",
                  srv_http_active(app->http));
}
