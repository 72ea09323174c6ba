/* self_check.c: runs the library's proof of batch invariance (attn_self_check), at start and in
 * --check. */
#include "main.h"

#include "attn_self_check.h"
#include "base/clock.h"

/* Proves one model; false, with a message, where the proof fails or finds a difference. */
static bool prove(struct attn_self_check *found, struct attn_engine *engine,
                  const struct srv_model *model, char *message)
{
    struct attn_error error = {0};
    struct attn_engine_info info;
    attn_engine_describe(&info, engine);
    if (attn_self_check(found, engine, model->attn, &error) != ATTN_OK)
        return srv_refuse(message, "model %s: self-check: %s", model->name, error.message);
    return found->same ||
           srv_refuse(message,
                      "model %s: self-check: a step of %zu rows over %zu tokens has other bits %s "
                      "on %u threads than alone on one: the %s kernels compute wrongly on this "
                      "CPU; another --cpu-level may do",
                      model->name, found->step_rows, found->step_length,
                      found->in_batch ? "in a batch" : "alone", found->threads, info.level_name);
}

bool srv_self_check(struct srv_app *app, char message[SRV_MESSAGE_MAX])
{
    for (size_t i = 0; i < app->models.count; i++) {
        const struct srv_model *model = &app->models.items[i];
        struct attn_self_check found;
        uint64_t begin_ns = srv_now_ns();
        if (!prove(&found, app->engine, model, message))
            return false;
        double ms = (double)(srv_now_ns() - begin_ns) / 1e6;
        if (found.is_noted)
            srv_log_event(
                &app->log, SRV_LOG_INFO, "self_check",
                "model %s: an earlier start noted the same bits for these mapped weights, "
                "this CPU and build, and %u threads; %.1f ms",
                model->name, found.threads, ms);
        else if (found.steps > 0)
            srv_log_event(&app->log, SRV_LOG_INFO, "self_check",
                          "model %s: steps have the same bits alone and in a batch of %zu rows, on "
                          "1 thread and on %u, over up to %zu tokens; %.1f ms",
                          model->name, found.rows, found.threads, found.length, ms);
    }
    return true;
}

/* ---- --check --------------------------------------------------------------------------------- */

/* Loads one layer of the model of config->models[index] and proves it. */
static bool check_entry(struct srv_buffer *out, struct attn_engine *engine,
                        const struct srv_config *config, size_t index, char *message)
{
    struct srv_model_entry entry = config->models[index];
    struct srv_config one = *config;
    struct srv_models models = {0};
    struct attn_self_check found;
    size_t layer = 0;
    one.models = &entry;
    one.num_models = 1;
    one.weights_cache = NULL; /* the proof is computed, not read */
    bool right = srv_models_open(&models, &one, message, SRV_MESSAGE_MAX);
    if (right)
        layer = srv_model_first_index(models.items[0].attn);
    srv_models_close(&models);
    entry.layers = &layer;
    entry.num_layers = 1;
    right = right && srv_models_open(&models, &one, message, SRV_MESSAGE_MAX) &&
            srv_models_load(&models, NULL, message, SRV_MESSAGE_MAX) &&
            prove(&found, engine, &models.items[0], message);
    srv_models_close(&models);
    if (right)
        srv_buffer_printf(out, "  %s %s\n",
                          found.steps > 0 ? "the same bits alone and in a batch: steps of"
                                          : "no caches:",
                          entry.name);
    return right;
}

bool srv_self_check_print(struct srv_buffer *out, const struct srv_config *config,
                          char message[SRV_MESSAGE_MAX])
{
    struct attn_engine_options options = srv_config_engine(config);
    struct attn_engine *engine = NULL;
    struct attn_error error = {0};
    bool right = attn_engine_open(&engine, &options, &error) == ATTN_OK;
    if (!right)
        srv_refuse(message, "%s", error.message);
    if (config->num_models > 0)
        srv_buffer_text(out, "self-check:\n");
    for (size_t i = 0; i < config->num_models && right; i++)
        right = check_entry(out, engine, config, i, message);
    attn_engine_close(engine);
    return right;
}
