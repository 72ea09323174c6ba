/* models.c: opens, loads and finds the models of the configuration. */
#include "session/models.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/nearest.h"
#include "base/owner.h"
#include "config/config.h"
#include "session/weightless.h"

static enum attn_status open_entry(struct srv_model *model, const struct srv_model_entry *entry,
                                   unsigned threads, struct srv_loading *loading,
                                   struct attn_error *error)
{
    struct attn_model_options options = {
        .layers = entry->layers,
        .num_layers = entry->num_layers,
        .stack = entry->stack,
        .config = entry->config,
        .ignore_keys = entry->ignore_keys,
        .dtype = entry->dtype,
        .kv_dtype = entry->kv_dtype,
        .threads = threads,
        .progress = srv_loading_advance,
        .progress_context = loading,
    };
    snprintf(model->name, sizeof model->name, "%s", entry->name);
    if (entry->random != NULL)
        return attn_model_open_random(&model->attn, entry->random, strlen(entry->random), &options,
                                      error);
    return attn_model_open(&model->attn, entry->path, &options, error);
}

/* "model NAME: PARAM: MESSAGE", without PARAM where the message begins with it, and with the
 * checkpoint's directory where it cannot be opened: "path" as PARAM means it.  Where another user
 * owns that, with the remedy. */
static bool report(const struct srv_model *model, const char *path, const struct attn_error *error,
                   char *message, size_t size)
{
    char remedy[SRV_OWNER_TEXT] = "";
    bool named = strncmp(error->message, error->param, strlen(error->param)) == 0;
    if (path != NULL && strstr(error->message, strerror(EACCES)) != NULL)
        srv_owner_remedy(remedy, path, SRV_OWNER_READ);
    if (path != NULL && strcmp(error->param, "path") == 0)
        snprintf(message, size, "model %s: path %s: %s%s", model->name, path, error->message,
                 remedy);
    else
        snprintf(message, size, "model %s: %s%s%s%s%s%s%s", model->name, named ? "" : error->param,
                 named ? "" : ": ", error->message, path != NULL ? " (in " : "",
                 path != NULL ? path : "", path != NULL ? ")" : "", remedy);
    return false;
}

size_t srv_model_first_index(const struct attn_model *model)
{
    size_t i = 0;
    while (i < ATTN_MAX_LAYERS - 1 && attn_model_layer(model, i) == NULL)
        i++;
    return i;
}

const struct attn_layer_spec *srv_model_first_layer(const struct attn_model *model)
{
    return attn_model_layer(model, srv_model_first_index(model));
}

void srv_model_write_name(struct srv_buffer *out, const struct srv_model *model)
{
    if (model != NULL && model->weightless == NULL)
        srv_buffer_json_string(out, model->name);
    else
        srv_buffer_text(out, "null");
}

void srv_model_print_family(char out[SRV_FAMILY_MAX], const struct attn_model_info *info)
{
    snprintf(out, SRV_FAMILY_MAX, "%s%s%s", info->family, info->stack[0] != '\0' ? " " : "",
             info->stack);
}

/* The longest sequence that the positions reach: what the configuration says; or, where RoPE is
 * rescaled, the original reach times the factor.  0: no limit. */
static double reach_of(const struct srv_model *model)
{
    const struct attn_rope_spec *rope = &srv_model_first_layer(model->attn)->rope;
    double said = (double)model->info.max_position;
    if (rope->type == ATTN_ROPE_LINEAR)
        return said * fmax(1, rope->factor);
    if (rope->type == ATTN_ROPE_DYNAMIC || rope->type == ATTN_ROPE_YARN)
        return fmax(said, rope->original_max_position * rope->factor);
    const size_t most = srv_model_first_layer(model->attn)->max_tokens;
    return most > 0 ? fmin(said, (double)most) : said;
}

bool srv_models_open(struct srv_models *models, const struct srv_config *config, char *message,
                     size_t size)
{
    snprintf(message, size, "out of memory");
    models->count = 0;
    models->weights_cache = config->weights_cache;
    models->loading = (struct srv_loading){0};
    models->items = calloc(config->num_models > 0 ? config->num_models : 1, sizeof *models->items);
    models->weightless_stats = calloc(1, sizeof *models->weightless_stats);
    if (models->items == NULL || models->weightless_stats == NULL ||
        !srv_weightless_open(&models->weightless, &config->limits,
                             srv_config_engine(config).threads))
        return false;
    for (size_t i = 0; i < config->num_models; i++) {
        struct srv_model *model = &models->items[i];
        struct attn_error error = {0};
        if (open_entry(model, &config->models[i], (unsigned)config->threads, &models->loading,
                       &error) != ATTN_OK)
            return report(model, config->models[i].path, &error, message, size);
        model->index = models->count++;
        attn_model_describe(&model->info, model->attn);
        model->is_cross = srv_model_first_layer(model->attn)->is_cross;
        const size_t limit = config->limits.max_session_length;
        const double reach = model->is_cross ? 0 : reach_of(model); /* encoder rows: no bound */
        model->max_length = reach > 0 && reach < (double)limit ? (size_t)reach : limit;
        model->stats = calloc(model->info.num_layers, sizeof *model->stats);
        if (model->stats == NULL)
            return false;
    }
    return true;
}

bool srv_models_load(struct srv_models *models, struct attn_cache_pool *pool, char *message,
                     size_t size)
{
    size_t total = 0;
    bool loaded = true;
    srv_weightless_set_pool(models->weightless, pool);
    for (size_t i = 0; i < models->count; i++)
        total += models->items[i].info.weight_bytes;
    srv_loading_begin(&models->loading, total, isatty(STDOUT_FILENO) ? stdout : NULL);
    for (size_t i = 0; i < models->count && loaded; i++) {
        struct srv_model *model = &models->items[i];
        struct attn_error error = {0};
        const char *cache = models->weights_cache;
        const uint64_t begin_ns = srv_now_ns();
        model->pool = pool;
        const enum attn_status status =
            cache != NULL
                ? attn_model_load_cached(&model->cached, model->attn, cache, model->name, &error)
                : attn_model_load(model->attn, &error);
        model->load_ms = (double)(srv_now_ns() - begin_ns) / 1e6;
        if (status != ATTN_OK)
            loaded = report(model, NULL, &error, message, size);
        else
            attn_model_describe(&model->info, model->attn); /* now with its fingerprint */
        srv_loading_next(&models->loading, model->info.weight_bytes);
    }
    srv_loading_end(&models->loading);
    return loaded;
}

void srv_models_close(struct srv_models *models)
{
    for (size_t i = 0; i < models->count; i++) {
        attn_model_close(models->items[i].attn);
        free(models->items[i].stats);
        srv_buffer_fini(&models->items[i].text);
    }
    srv_buffer_fini(&models->text);
    free(models->items);
    free(models->weightless_stats);
    srv_weightless_close(models->weightless);
    *models = (struct srv_models){0};
}

#define LISTED_MODELS 32 /* in an error: the first ones */

static void print_names(char *out, size_t size, const struct srv_models *models, const char *word)
{
    const char *names[LISTED_MODELS];
    size_t count = models->count < LISTED_MODELS ? models->count : LISTED_MODELS;
    for (size_t i = 0; i < count; i++)
        names[i] = models->items[i].name;
    srv_choices(out, size, word, names, count);
}

enum srv_error_code srv_models_find(const struct srv_model **out, const struct srv_models *models,
                                    const char *name, struct srv_error *error)
{
    char names[160];
    if (name == NULL && models->count == 1) {
        *out = &models->items[0];
        return SRV_OK;
    }
    if (models->count == 0)
        return srv_fail(error, SRV_E_MODEL_NOT_FOUND, "model", "no model is configured");
    if (name == NULL) {
        print_names(names, sizeof names, models, "");
        return srv_fail(error, SRV_E_MISSING_FIELD, "model",
                        "model must say which of the %zu models is meant: %s", models->count,
                        names);
    }
    for (size_t i = 0; i < models->count; i++) {
        if (strcmp(models->items[i].name, name) == 0) {
            *out = &models->items[i];
            return SRV_OK;
        }
    }
    print_names(names, sizeof names, models, name);
    return srv_fail(error, SRV_E_MODEL_NOT_FOUND, "model", "there is no model \"%.64s\": one of %s",
                    name, names);
}
