/* app.h: the daemon's parts.  main.c says in which order they are opened and closed.
 *
 * Only api/ and the files at the top see the whole; a lower room is given a context of its own. */
#ifndef SRV_APP_H
#define SRV_APP_H

#include <signal.h>

#include "config/config.h"
#include "http/http.h"
#include "memory.h"
#include "ops/metrics.h"
#include "ops/notify.h"
#include "schedule/scheduler.h"
#include "session/models.h"
#include "store/store.h"

struct srv_upkeep; /* main.h */

#define SRV_DRAIN_SIGNAL SIGUSR1 /* to the main thread, by POST /admin/drain */

struct srv_app {
    const struct srv_routes *routes;
    struct srv_config config;
    struct srv_keyring keys;
    struct srv_log log;
    struct srv_notifier notifier;
    struct srv_metrics *metrics;
    struct srv_usage *usage;
    struct attn_cache_pool *pool;
    struct srv_models models;
    struct srv_memory memory; /* an upper bound on all of it */
    struct attn_engine *engine;
    struct srv_sessions *sessions;
    struct srv_store *store; /* NULL: sessions end with the process */
    struct srv_scheduler_context scheduler_context;
    struct srv_scheduler *scheduler;
    struct srv_http *http;
    struct srv_upkeep *upkeep;
    pthread_t main_thread;       /* takes signals (serve.c) */
    atomic_int phase;            /* enum srv_phase */
    atomic_bool stopping;        /* what still runs or waits is refused */
    struct srv_inputs *inputs;   /* that calls may name */
    struct srv_budget in_flight; /* bodies, arenas and replies, as admitted */
};

/* The context that the store is opened with: the configuration's options, and parts that are
 * open. */
struct srv_store_context srv_app_store_context(struct srv_app *app);

#endif
