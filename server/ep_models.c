/* ep_models.c: GET /models and GET /models/{name}: what is served, as it was resolved. */
#include <string.h>

#include "app.h"
#include "document.h"
#include "endpoints.h"

static json_t *rope_json(const struct attn_rope_spec *rope)
{
    switch (rope->type) {
    case ATTN_ROPE_NONE:
        break;
    case ATTN_ROPE_DEFAULT:
        return json_pack("{s:s, s:f, s:I}", "type", "default", "theta", rope->theta, "dim",
                         (json_int_t)rope->dim);
    case ATTN_ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:f}", "type", "llama3", "theta",
                         rope->theta, "dim", (json_int_t)rope->dim, "factor", rope->factor,
                         "low_freq_factor", rope->low_freq_factor, "high_freq_factor",
                         rope->high_freq_factor, "original_max_position_embeddings",
                         rope->original_max_position);
    }
    return json_null();
}

/* The indices of the resident layers; *spec is set to the first one's. */
static json_t *layers_json(const struct attn_layer_spec **spec, const struct srv_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->info.num_layers; i++) {
        const struct attn_layer_spec *layer = attn_model_layer(model->attn, i);
        if (layer == NULL)
            continue;
        if (*spec == NULL)
            *spec = layer;
        json_array_append_new(list, json_integer((json_int_t)i));
    }
    return list;
}

static json_t *spec_json(const struct attn_layer_spec *spec)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:s, s:o, s:{s:b, s:b, s:b, s:b}, s:b, s:b}",
        "hidden_size", (json_int_t)spec->hidden_size, "key_size", (json_int_t)spec->key_size,
        "value_size", (json_int_t)spec->value_size, "num_attention_heads",
        (json_int_t)spec->num_heads, "num_key_value_heads", (json_int_t)spec->num_kv_heads,
        "head_dim", (json_int_t)spec->head_dim, "value_head_dim", (json_int_t)spec->value_head_dim,
        "scale", spec->scale, "is_causal", spec->is_causal, "mask",
        spec->is_causal ? "causal" : "full", "rope", rope_json(&spec->rope), "biases", "query",
        spec->q_bias, "key", spec->k_bias, "value", spec->v_bias, "output", spec->o_bias, "bias_kv",
        spec->bias_kv, "add_zero_attn", spec->add_zero_attn);
}

static json_t *kernels_json(const struct srv_app *app)
{
    struct attn_engine_info info;
    attn_engine_describe(&info, app->engine);
    return json_pack("{s:s, s:s, s:b, s:I}", "level", info.level_name, "blas_core", info.blas_core,
                     "blas_overridden", info.blas_overridden, "threads", (json_int_t)info.threads);
}

static json_t *model_json(const struct srv_app *app, const struct srv_model *model)
{
    const struct attn_layer_spec *spec = NULL;
    const struct attn_model_info *info = &model->info;
    json_t *resident = layers_json(&spec, model);
    json_t *json =
        json_pack("{s:s, s:s, s:b, s:I, s:o, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:s, s:o}", "name",
                  model->name, "family", info->family, "random",
                  strcmp(info->family, "random") == 0, "num_layers", (json_int_t)info->num_layers,
                  "resident_layers", resident, "max_position", (json_int_t)info->max_position,
                  "max_length", (json_int_t)model->max_length, "weights_dtype", info->weights_dtype,
                  "dtype", "f32", "kv_dtype", "f32", "weight_bytes", (json_int_t)info->weight_bytes,
                  "cache_bytes_per_token", (json_int_t)info->cache_bytes_per_token, "fingerprint",
                  info->fingerprint, "kernels", kernels_json(app));
    if (strcmp(info->family, "random") == 0)
        json_object_set_new(json, "note",
                            json_string("random weights, for trying and for load tests"));
    if (spec != NULL)
        json_object_update_new(json, spec_json(spec));
    return json;
}

void srv_get_models(struct srv_request *request)
{
    const struct srv_app *app = request->app;
    json_t *list = json_array();
    for (size_t i = 0; i < app->models.count; i++)
        json_array_append_new(list, model_json(app, &app->models.items[i]));
    srv_document_reply(request, 200,
                       json_pack("{s:o, s:o}", "models", list, "kernels", kernels_json(app)));
}

void srv_get_model(struct srv_request *request)
{
    const struct srv_model *model;
    struct srv_error error = {0};
    if (srv_models_find(&model, &request->app->models, request->path_arg, &error) != SRV_OK)
        srv_reply_error(request, &error);
    else
        srv_document_reply(request, 200, model_json(request->app, model));
}
