/* models.c: opens, loads and finds the models of the configuration. */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

static enum attn_status open_entry(struct srv_model *model, const struct srv_model_entry *entry,
                                   struct attn_error *error)
{
    struct attn_model_options options = {entry->layers, entry->num_layers};
    memcpy(model->name, entry->name, sizeof model->name);
    if (entry->random != NULL)
        return attn_model_open_random(&model->attn, entry->random, strlen(entry->random), error);
    return attn_model_open(&model->attn, entry->path, &options, error);
}

/* "model NAME: PARAM: MESSAGE"; many messages name the parameter themselves. */
static bool report(const struct srv_model *model, const struct attn_error *error, char *message,
                   size_t size)
{
    bool named = strncmp(error->message, error->param, strlen(error->param)) == 0;
    snprintf(message, size, "model %s: %s%s%s", model->name, named ? "" : error->param,
             named ? "" : ": ", error->message);
    return false;
}

bool srv_models_open(struct srv_models *models, const struct srv_config *config,
                     struct attn_cache_pool *pool, char *message, size_t size)
{
    models->count = 0;
    models->items = calloc(config->num_models > 0 ? config->num_models : 1, sizeof *models->items);
    if (models->items == NULL) {
        snprintf(message, size, "out of memory");
        return false;
    }
    for (size_t i = 0; i < config->num_models; i++) {
        struct srv_model *model = &models->items[i];
        struct attn_error error = {0};
        if (open_entry(model, &config->models[i], &error) != ATTN_OK)
            return report(model, &error, message, size);
        models->count++;
        attn_model_describe(&model->info, model->attn);
        model->pool = pool;
        model->max_length = config->limits.max_session_length;
        if (model->info.max_position > 0 && model->info.max_position < model->max_length)
            model->max_length = model->info.max_position;
    }
    return true;
}

bool srv_models_load(struct srv_models *models, char *message, size_t size)
{
    for (size_t i = 0; i < models->count; i++) {
        struct srv_model *model = &models->items[i];
        struct attn_error error = {0};
        if (attn_model_load(model->attn, &error) != ATTN_OK)
            return report(model, &error, message, size);
        attn_model_describe(&model->info, model->attn); /* now with its fingerprint */
    }
    return true;
}

void srv_models_close(struct srv_models *models)
{
    for (size_t i = 0; i < models->count; i++)
        attn_model_close(models->items[i].attn);
    free(models->items);
    *models = (struct srv_models){0};
}

enum srv_error_code srv_models_find(const struct srv_model **out, const struct srv_models *models,
                                    const char *name, struct srv_error *error)
{
    if (name == NULL && models->count == 1) {
        *out = &models->items[0];
        return SRV_OK;
    }
    if (name == NULL && models->count == 0)
        return srv_fail(error, SRV_E_MODEL_NOT_FOUND, "model", "no model is configured");
    if (name == NULL)
        return srv_fail(error, SRV_E_MISSING_FIELD, "model",
                        "model must say which of the %zu models is meant", models->count);
    for (size_t i = 0; i < models->count; i++) {
        if (strcmp(models->items[i].name, name) == 0) {
            *out = &models->items[i];
            return SRV_OK;
        }
    }
    return srv_fail(error, SRV_E_MODEL_NOT_FOUND, "model", "there is no model \"%.64s\"", name);
}
