/* v2_models.c: the Open Inference Protocol but for infer: server, models and their metadata,
 * configurations and statistics, the repository. */
#include <stdlib.h>

#include "api/endpoints.h"
#include "app.h"

/* ---- Names ----------------------------------------------------------------------------------- */

static const struct srv_model *find_configured(const struct srv_models *models, const char *name,
                                               size_t length)
{
    for (size_t i = 0; i < models->count; i++) {
        const struct srv_model *model = &models->items[i];
        if (strlen(model->name) == length && memcmp(model->name, name, length) == 0)
            return model;
    }
    return NULL;
}

/* Splits NAME.LAYER; false where the name has no such form or the layer is not resident. */
static bool find_layer(struct srv_v2_model *out, const struct srv_models *models, const char *name)
{
    const char *dot = strrchr(name, '.');
    size_t digits = dot != NULL ? strspn(dot + 1, "0123456789") : 0;
    if (digits == 0 || digits > strlen("1023") || dot[1 + digits] != '\0' ||
        (dot[1] == '0' && digits > 1))
        return false;
    out->model = find_configured(models, name, (size_t)(dot - name));
    out->has_layer = true;
    out->layer = strtoul(dot + 1, NULL, 10);
    return out->model != NULL && out->layer < ATTN_MAX_LAYERS &&
           attn_model_layer(out->model->attn, out->layer) != NULL;
}

enum srv_error_code srv_v2_find(struct srv_v2_model *out, const struct srv_models *models,
                                const char *name, struct srv_error *error)
{
    *out = (struct srv_v2_model){.name = name};
    out->model = find_configured(models, name, strlen(name));
    if (out->model != NULL || strcmp(name, SRV_V2_WEIGHTLESS) == 0 || find_layer(out, models, name))
        return SRV_OK;
    return srv_fail(error, SRV_E_MODEL_NOT_FOUND, "model",
                    "there is no model \"%.64s\"; POST /v2/repository/index lists all", name);
}

/* Appends what there is to say of a model. */
typedef void model_writer(struct srv_buffer *out, const struct srv_v2_model *model,
                          const struct srv_app *app);

/* Appends a list of what `write` writes of each name that a path can have. */
static void write_all(struct srv_request *request, model_writer *write)
{
    const struct srv_models *models = &request->app->models;
    struct srv_buffer *out = &request->reply.body;
    char name[SRV_ID_MAX + 8];
    srv_buffer_text(out, "[");
    for (size_t i = 0; i < models->count; i++) {
        struct srv_v2_model model = {.name = models->items[i].name, .model = &models->items[i]};
        srv_buffer_text(out, i > 0 ? "," : "");
        write(out, &model, request->app);
        model = (struct srv_v2_model){.name = name, .model = model.model, .has_layer = true};
        for (; model.layer < model.model->info.num_layers; model.layer++) {
            int length = snprintf(name, sizeof name, "%s.%zu", model.model->name, model.layer);
            if (length > SRV_ID_MAX || find_configured(models, name, (size_t)length) != NULL ||
                attn_model_layer(model.model->attn, model.layer) == NULL)
                continue;
            srv_buffer_text(out, ",");
            write(out, &model, request->app);
        }
    }
    if (find_configured(models, SRV_V2_WEIGHTLESS, strlen(SRV_V2_WEIGHTLESS)) == NULL) {
        srv_buffer_text(out, models->count > 0 ? "," : "");
        write(out, &(struct srv_v2_model){.name = SRV_V2_WEIGHTLESS}, request->app);
    }
    srv_buffer_text(out, "]");
}

/* The specification that describes the model: its layer's, for NAME layer 0's or else that of the
 * first resident one; NULL: weightless. */
static const struct attn_layer_spec *spec_of(const struct srv_v2_model *model)
{
    if (model->model == NULL)
        return NULL;
    const struct attn_layer_spec *spec = attn_model_layer(model->model->attn, model->layer);
    return spec != NULL ? spec : srv_model_first_layer(model->model->attn);
}

/* ---- One model ------------------------------------------------------------------------------- */

/* Replies with what `write` writes of the model in the path. */
static void reply_model(struct srv_request *request, model_writer *write)
{
    struct srv_v2_model model;
    struct srv_error error = {0};
    if (srv_v2_find(&model, &request->app->models, request->path_arg, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        return;
    }
    write(&request->reply.body, &model, request->app);
    srv_reply_status(request, 200);
}

static void write_metadata(struct srv_buffer *out, const struct srv_v2_model *model,
                           const struct srv_app *app)
{
    (void)app;
    const struct attn_layer_spec *spec = spec_of(model);
    srv_buffer_printf(out,
                      "{\"name\":\"%s\",\"versions\":[\"" SRV_V2_VERSION
                      "\"],\"platform\":\"attnd\",\"inputs\":",
                      model->name);
    srv_v2_write_inputs(out, spec, false);
    srv_buffer_text(out, ",\"outputs\":");
    srv_v2_write_outputs(out, spec, false);
    srv_buffer_text(out, "}");
}

/* max_batch_size 0 means that dims are whole shapes: not every input has a batch dimension. */
static void write_config(struct srv_buffer *out, const struct srv_v2_model *model,
                         const struct srv_app *app)
{
    const struct attn_layer_spec *spec = spec_of(model);
    srv_buffer_printf(out,
                      "{\"name\":\"%s\",\"platform\":\"attnd\",\"backend\":\"attnd\","
                      "\"version_policy\":{\"latest\":{\"num_versions\":1}},"
                      "\"max_batch_size\":0,\"input\":",
                      model->name);
    srv_v2_write_inputs(out, spec, true);
    srv_buffer_text(out, ",\"output\":");
    srv_v2_write_outputs(out, spec, true);
    if (spec != NULL && !spec->is_cross)
        srv_buffer_printf(out,
                          ",\"sequence_batching\":{\"max_sequence_idle_microseconds\":%zu000000,"
                          "\"direct\":{},\"control_input\":[],\"state\":[]}",
                          app->config.limits.session_ttl_s);
    srv_buffer_text(out, "}");
}

static void write_ready(struct srv_buffer *out, const struct srv_v2_model *model,
                        const struct srv_app *app)
{
    (void)app;
    srv_buffer_printf(out, "{\"name\":\"%s\",\"ready\":true}", model->name);
}

void srv_get_v2_model(struct srv_request *request) { reply_model(request, write_metadata); }
void srv_get_v2_model_config(struct srv_request *request) { reply_model(request, write_config); }
void srv_get_v2_model_ready(struct srv_request *request) { reply_model(request, write_ready); }

/* ---- Statistics ------------------------------------------------------------------------------ */

static void write_stats(struct srv_buffer *out, const struct srv_v2_model *model,
                        const struct srv_app *app)
{
    static const char *const names[SRV_INFERENCE_PARTS] = {
        [SRV_INFERENCE_SUCCESS] = "success",     [SRV_INFERENCE_FAIL] = "fail",
        [SRV_INFERENCE_QUEUE] = "queue",         [SRV_INFERENCE_INPUT] = "compute_input",
        [SRV_INFERENCE_INFER] = "compute_infer", [SRV_INFERENCE_OUTPUT] = "compute_output",
    };
    struct srv_model_stats stats = {0};
    /* Of the model's layer; of NAME, the sums of all its layers. */
    size_t layers = model->model != NULL && !model->has_layer ? model->model->info.num_layers : 1;
    for (size_t i = 0; i < layers; i++)
        srv_model_stats_add(&stats, srv_models_stats(&app->models, model->model, model->layer + i));
    srv_buffer_printf(out, "{\"name\":\"%s\",\"version\":\"" SRV_V2_VERSION "\"", model->name);
    srv_buffer_number(out, ",\"last_inference\":", stats.last_ms);
    srv_buffer_number(out, ",\"inference_count\":", stats.inferences);
    srv_buffer_number(out, ",\"execution_count\":", stats.executions);
    srv_buffer_text(out, ",\"inference_stats\":{");
    for (size_t part = 0; part < SRV_INFERENCE_PARTS; part++) {
        srv_buffer_text(out, part > 0 ? ",\"" : "\"");
        srv_buffer_text(out, names[part]);
        srv_buffer_number(out, "\":{\"count\":", stats.parts[part].count);
        srv_buffer_number(out, ",\"ns\":", stats.parts[part].ns);
        srv_buffer_text(out, "}");
    }
    srv_buffer_text(out, "},\"batch_stats\":[]}");
}

static void write_one_of_stats(struct srv_buffer *out, const struct srv_v2_model *model,
                               const struct srv_app *app)
{
    srv_buffer_text(out, "{\"model_stats\":[");
    write_stats(out, model, app);
    srv_buffer_text(out, "]}");
}

void srv_get_v2_model_stats(struct srv_request *request)
{
    reply_model(request, write_one_of_stats);
}

#define FEW_LAYERS 64 /* each has several names */

bool srv_v2_is_long(const struct srv_request *request)
{
    const struct srv_models *models = &request->app->models;
    size_t layers = 0;
    for (size_t i = 0; i < models->count; i++)
        layers += models->items[i].info.num_layers;
    return layers > FEW_LAYERS;
}

void srv_get_v2_stats(struct srv_request *request)
{
    srv_buffer_text(&request->reply.body, "{\"model_stats\":");
    write_all(request, write_stats);
    srv_buffer_text(&request->reply.body, "}");
    srv_reply_status(request, 200);
}

/* ---- Server and repository ------------------------------------------------------------------- */

void srv_get_v2(struct srv_request *request)
{
    srv_buffer_text(&request->reply.body,
                    "{\"name\":\"attnd\",\"version\":\"" ATTN_VERSION
                    "\",\"extensions\":[\"binary_tensor_data\",\"model_configuration\","
                    "\"parameters\",\"sequence\",\"statistics\"]}");
    srv_reply_status(request, 200);
}

static void write_entry(struct srv_buffer *out, const struct srv_v2_model *model,
                        const struct srv_app *app)
{
    (void)app;
    srv_buffer_printf(out,
                      "{\"name\":\"%s\",\"version\":\"" SRV_V2_VERSION
                      "\",\"state\":\"READY\",\"reason\":\"\"}",
                      model->name);
}

/* All models are ready, so that what the body may ask for does not matter. */
void srv_post_v2_index(struct srv_request *request)
{
    write_all(request, write_entry);
    srv_reply_status(request, 200);
}

void srv_post_v2_load(struct srv_request *request)
{
    struct srv_error error;
    srv_fail(&error, SRV_E_BAD_REQUEST, NULL,
             "models are configured when attnd starts; none is loaded or unloaded later");
    srv_reply_error(request, &error);
}
