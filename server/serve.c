/* serve.c: the main thread while the daemon serves: reloading, the lame duck, draining.
 *
 * All other work is done by other threads, so that the main thread sees a signal at once. */
#include "main.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text_file.h"
#include "http/tls.h"

/* ---- Reloading ------------------------------------------------------------------------------- */

static void reload_keys(struct srv_app *app)
{
    char message[SRV_MESSAGE_MAX], file[SRV_TEXT_DESCRIBED];
    if (app->config.api_keys == NULL)
        return;
    size_t keys = srv_keyring_read(&app->keys, app->config.api_keys, message);
    srv_text_describe(file, app->config.api_keys);
    if (keys > 0)
        srv_log_event(&app->log, SRV_LOG_INFO, "keys", "%zu, from %s (%s)", keys,
                      app->config.api_keys, file);
    else
        srv_log_event(&app->log, SRV_LOG_ERROR, "keys", "are what they were: %s", message);
}

static void reload_certificate(struct srv_app *app)
{
    const struct srv_config *config = &app->config;
    struct srv_tls tls;
    char message[SRV_MESSAGE_MAX], date[SRV_TLS_DATE], file[SRV_TEXT_DESCRIBED];
    if (config->tls_cert == NULL)
        return;
    bool read = srv_tls_read(&tls, config->tls_cert, config->tls_key, message, sizeof message);
    bool used = read && srv_http_replace_certificate(app->http, &tls);
    if (read)
        srv_tls_date(date, &tls);
    srv_text_describe(file, config->tls_cert);
    if (used)
        srv_log_event(&app->log, srv_tls_expired(&tls) ? SRV_LOG_ERROR : SRV_LOG_INFO,
                      "certificate", "expires %s, from %s (%s)", date, config->tls_cert, file);
    else
        srv_log_event(&app->log, SRV_LOG_ERROR, "certificate", "is what it was: %s",
                      read ? "out of memory" : message);
    srv_tls_fini(&tls);
}

static void reload(struct srv_app *app)
{
    srv_notify(&app->notifier, SRV_NOTICE_RELOADING, "reloading");
    if (app->config.api_keys == NULL && app->config.tls_cert == NULL)
        srv_log_event(&app->log, SRV_LOG_INFO, "reload", "neither keys nor a certificate to read");
    reload_keys(app);
    reload_certificate(app);
    srv_notify(&app->notifier, SRV_NOTICE_READY, "ready");
}

/* ---- Serving --------------------------------------------------------------------------------- */

/* Reloads until another signal or `until_ns` comes; returns that signal, or 0. */
static int serve_until(struct srv_app *app, const sigset_t *signals, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = srv_now_ns(), left = until_ns > now ? until_ns - now : 0;
        const struct timespec wait = {.tv_sec = (time_t)(left / SRV_S_NS),
                                      .tv_nsec = (long)(left % SRV_S_NS)};
        int number = sigtimedwait(signals, NULL, until_ns != UINT64_MAX ? &wait : NULL);
        if (number == SIGHUP)
            reload(app);
        else if (number > 0 || left == 0)
            return number > 0 ? number : 0;
    }
}

/* Serves, with /readyz 503, until `until_ns` or SIGINT comes.  *signalled becomes true with the
 * first signal; the second one ends the process. */
static void serve_as_lame_duck(bool *signalled, struct srv_app *app, const sigset_t *signals,
                               uint64_t until_ns)
{
    int number;
    char detail[64];
    snprintf(detail, sizeof detail, "serves for %zu more seconds", app->config.lame_duck_s);
    atomic_store(&app->phase, SRV_LAME_DUCK);
    srv_notify(&app->notifier, SRV_NOTICE_STOPPING, detail);
    srv_log_event(&app->log, SRV_LOG_INFO, "lame_duck", "%s; /readyz is 503", detail);
    while ((number = serve_until(app, signals, until_ns)) != 0) {
        if (number == SRV_DRAIN_SIGNAL)
            continue;
        if (*signalled)
            _exit(1);
        *signalled = true;
        if (number == SIGINT)
            return;
    }
}

/* Takes no new requests and lets the running ones finish, within `drain_timeout_s`. */
static void drain(struct srv_app *app, uint64_t asked_ns)
{
    const struct timespec poll = {.tv_nsec = 1000 * 1000};
    uint64_t deadline_ns = srv_now_ns() + app->config.limits.drain_timeout_s * SRV_S_NS;
    atomic_store(&app->phase, SRV_DRAINING);
    srv_notify(&app->notifier, SRV_NOTICE_STOPPING, "draining");
    srv_log_event(&app->log, SRV_LOG_INFO, "draining", "%zu requests are running",
                  srv_http_active(app->http));
    srv_http_quiesce(app->http);
    while (srv_http_active(app->http) > 0 && srv_now_ns() < deadline_ns)
        nanosleep(&poll, NULL);
    srv_log_event(&app->log, SRV_LOG_INFO, "drained",
                  "%" PRIu64 " ms after it was asked for; %zu requests were cut off",
                  (srv_now_ns() - asked_ns) / 1000000, srv_http_active(app->http));
}

uint64_t srv_serve(struct srv_app *app)
{
    const sigset_t signals = srv_signals_served();
    const uint64_t lame_duck_ns = app->config.lame_duck_s * SRV_S_NS;
    int number;
    do /* srv_post_drain sets the phase before it sends its signal, of others' it means nothing */
        number = serve_until(app, &signals, UINT64_MAX);
    while (number == SRV_DRAIN_SIGNAL && atomic_load(&app->phase) != SRV_LAME_DUCK);
    const uint64_t asked_ns = srv_now_ns();
    bool signalled = number != SRV_DRAIN_SIGNAL; /* a further signal ends the process at once */
    if (number != SIGINT && lame_duck_ns > 0)
        serve_as_lame_duck(&signalled, app, &signals, asked_ns + lame_duck_ns);
    if (signalled)
        srv_signals_stop_at_once(1);
    else
        srv_signals_expect_another();
    drain(app, asked_ns);
    return asked_ns;
}
