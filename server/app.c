/* app.c: what more than one program of the daemon's parts makes of them. */
#include "app.h"

static void wake_engine_thread(void *callback_context)
{
    const struct srv_app *app = callback_context;
    srv_scheduler_wake(app->scheduler);
}

struct srv_store_context srv_app_store_context(struct srv_app *app)
{
    const struct srv_config *config = &app->config;
    return (struct srv_store_context){
        .durability = (enum srv_durability)config->durability,
        .fsync = (enum srv_journal_fsync)config->journal_fsync,
        .state_dir = config->state_dir,
        .naming = config->names_instance ? SRV_NAME_GIVEN : SRV_NAME_DEFAULT,
        .journal_bytes = config->journal_bytes,
        .snapshot_interval_s = config->snapshot_interval_s,
        .snapshot_tokens = config->snapshot_tokens,
        .max_sessions = config->limits.max_sessions,
        .sessions = app->sessions,
        .models = &app->models,
        .pool = app->pool,
        .metrics = app->metrics,
        .log = &app->log,
        .wake_engine_thread = wake_engine_thread,
        .callback_context = app,
    };
}
