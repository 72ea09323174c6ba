/* store_app.c: of the daemon what its store needs. */
#include "store_app.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
    ck_assert(srv_metrics_open(&app->metrics));
    ck_assert_int_eq(attn_cache_pool_new(&app->pool, cache_bytes), ATTN_OK);
    ck_assert_msg(srv_models_open(&app->models, &app->config, message, sizeof message) &&
                      srv_models_load(&app->models, app->pool, message, sizeof message),
                  "%s", message);
}

void store_app_close(struct srv_app *app)
{
    char command[SCRATCH_PATH + 16];
    srv_models_close(&app->models);
    attn_cache_pool_free(app->pool);
    srv_metrics_close(app->metrics);
    srv_log_close(&app->log);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    ck_assert_int_eq(system(command), 0);
}

void store_app_begin(struct srv_app *app)
{
    ck_assert(srv_sessions_open(&app->sessions, &app->config.limits, "test"));
    ck_assert_msg(srv_store_open(&app->store, app, message, sizeof message) &&
                      srv_store_load(app->store, message, sizeof message) &&
                      srv_store_start(app->store, message, sizeof message),
                  "%s", message);
}

void store_app_end(struct srv_app *app)
{
    ck_assert(srv_store_close(app->store));
    srv_sessions_close(app->sessions);
}
