/* models.c: GET /models and GET /models/{name}: the models served, with the specification
 * of each layer as it was resolved.
 *
 * The replies are made once, when models have been loaded: building JSON trees for all layers of a
 * model would take milliseconds of an event thread's time, and always give the same text, which
 * stays where it is. */

#include "api/endpoints.h"
#include "app.h"
#include "attn_limits.h"

/* The indices of the resident layers. */
static json_t *resident_json(const struct srv_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->info.num_layers; i++)
        if (attn_model_layer(model->attn, i) != NULL)
            srv_document_append(&list, json_integer((json_int_t)i));
    return list;
}

/* The members of a layer's specification that differ from those of `first`.  Takes the reference to
 * `layer`. */
static json_t *difference_json(json_t *layer, const json_t *first)
{
    json_t *different = layer != NULL ? json_object() : NULL, *value;
    const char *key;
    json_object_foreach(layer, key, value) {
        if (!json_equal(value, json_object_get(first, key)))
            srv_document_set(&different, key, json_incref(value));
    }
    json_decref(layer);
    return different;
}

/* The resident layers that differ from the first one, each with the members that differ. */
static json_t *differing_json(const struct srv_model *model, const json_t *first)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->info.num_layers; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model->attn, i);
        if (spec == NULL)
            continue;
        json_t *different = difference_json(srv_layer_json(spec), first);
        if (different != NULL && json_object_size(different) == 0) {
            json_decref(different);
            continue;
        }
        srv_document_set(&different, "layer", json_integer((json_int_t)i));
        srv_document_append(&list, different);
    }
    return list;
}

static json_t *kernels_json(const struct srv_app *app)
{
    struct attn_engine_info info;
    attn_engine_describe(&info, app->engine);
    return json_pack("{s:s, s:s, s:s?, s:b, s:I}", "level", info.level_name, "gemm", info.gemm_name,
                     "blas_core", info.blas_core, "blas_overridden", info.blas_overridden,
                     "threads", (json_int_t)info.threads);
}

static json_t *model_json(const struct srv_app *app, const struct srv_model *model)
{
    const struct attn_model_info *info = &model->info;
    json_t *first = srv_layer_json(srv_model_first_layer(model->attn));
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:b, s:I, s:o, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:s, "
        "s:o}",
        "name", model->name, "family", info->family, "stack",
        info->stack[0] != '\0' ? json_string(info->stack) : json_null(), "random",
        strcmp(info->family, "random") == 0, "num_layers", (json_int_t)info->num_layers,
        "resident_layers", resident_json(model), "max_position", (json_int_t)info->max_position,
        "max_length", (json_int_t)model->max_length, "weights_dtype", info->weights_dtype, "dtype",
        attn_dtype_name(info->dtype), "kv_dtype", attn_dtype_name(info->kv_dtype), "parameters",
        (json_int_t)info->num_parameters, "weight_bytes", (json_int_t)info->weight_bytes,
        "weights_mapped", info->is_mapped, "cache_bytes_per_token",
        (json_int_t)info->cache_bytes_per_token, "cache_bytes_per_session",
        (json_int_t)attn_model_cache_bytes(model->attn, model->max_length), "fingerprint",
        info->fingerprint, "kernels", kernels_json(app));
    if (strcmp(info->family, "random") == 0)
        srv_document_set(&json, "note",
                         json_string("random weights, for trying and for load tests"));
    if (info->num_linear_layers > 0) {
        srv_document_set(&json, "num_linear_layers",
                         json_integer((json_int_t)info->num_linear_layers));
        srv_document_set(&json, "linear_type", json_string(info->linear_type));
    }
    if (json_object_update(json, first) != 0) {
        json_decref(json);
        json = NULL;
    }
    srv_document_set(&json, "differing_layers", differing_json(model, first));
    json_decref(first);
    return json;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static bool write_text(struct srv_buffer *out, json_t *document)
{
    srv_buffer_init(out, SIZE_MAX);
    return srv_document_write(out, document);
}

bool srv_models_describe(struct srv_app *app)
{
    bool written = true;
    json_t *list = json_array();
    for (size_t i = 0; i < app->models.count; i++) {
        struct srv_model *model = &app->models.items[i];
        json_t *json = model_json(app, model);
        srv_document_append(&list, json_incref(json));
        written = write_text(&model->text, json) && written;
    }
    json_t *all = json_pack("{s:o, s:o}", "models", list, "kernels", kernels_json(app));
    return write_text(&app->models.text, all) && written;
}

static void reply(struct srv_request *request, const struct srv_buffer *text)
{
    srv_buffer_wrap(&request->reply.body, text->data, text->length);
    srv_reply_status(request, 200);
}

void srv_get_models(struct srv_request *request) { reply(request, &request->app->models.text); }

void srv_get_model(struct srv_request *request)
{
    const struct srv_model *model;
    struct srv_error error = {0};
    if (srv_models_find(&model, &request->app->models, request->path_arg, &error) != SRV_OK)
        srv_reply_error(request, &error);
    else
        reply(request, &model->text);
}
