/* model.c: a model from opening to closing.
 *
 * Opening resolves the configuration, chooses the resident layers and checks that every tensor they
 * need is there; load.c loads them.  Families are known to families/ only. */
#include "models/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basics/status.h"
#include "families/quantization.h"
#include "families/weights.h"

/* Of models without a configuration, which have no row in the table of families. */
static const struct attn_family weightless_family = {.name = "weightless"};

/* ---- Opening ------------------------------------------------------------------------------- */

static enum attn_status check_chosen(const struct attn_model_options *options, size_t num_layers,
                                     struct attn_error *error)
{
    if (options->num_layers == 0)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "layers", "layers is empty");
    for (size_t i = 0; i < options->num_layers; i++) {
        if (options->layers[i] >= num_layers)
            return attn_fail(error, ATTN_OUT_OF_RANGE, "layers",
                             "layers has %zu, the checkpoint has layers 0 to %zu",
                             options->layers[i], num_layers - 1);
        if (i > 0 && options->layers[i] <= options->layers[i - 1])
            return attn_fail(error, ATTN_OUT_OF_RANGE, "layers",
                             "layers has %zu after %zu, must ascend", options->layers[i],
                             options->layers[i - 1]);
    }
    return ATTN_OK;
}

/* Writes the layers to be resident to model->indices, which has room for all layers: those that
 * options choose, or every layer that is attention.
 * Errors: ATTN_UNSUPPORTED (a layer chosen is no attention, or none is). */
static enum attn_status list_layers(struct attn_model *model, const size_t *chosen, size_t count,
                                    struct attn_error *error)
{
    const struct attn_config *config = &model->config;
    for (size_t i = 0; i < count; i++) {
        size_t layer = chosen != NULL ? chosen[i] : i;
        if (attn_config_attends(config, layer))
            model->indices[model->num_resident++] = layer;
        else if (chosen != NULL)
            return config->types[layer] == ATTN_LAYER_ELSEWHERE
                       ? attn_fail(error, ATTN_UNSUPPORTED, "layers",
                                   "layers has %zu, which is a layer of another stack", layer)
                       : attn_fail(error, ATTN_UNSUPPORTED, "layers",
                                   "layers has %zu, which is %s and is not computed", layer,
                                   attn_layer_types[config->types[layer]]);
    }
    if (model->num_resident == 0)
        return attn_fail(
            error, ATTN_UNSUPPORTED, "layers", "layers: every layer is %s, which is not computed",
            config->types[0] == ATTN_LAYER_ELSEWHERE ? "of another stack"
                                                     : attn_layer_types[config->types[0]]);
    return ATTN_OK;
}

static enum attn_status choose_layers(struct attn_model *model,
                                      const struct attn_model_options *options,
                                      struct attn_error *error)
{
    const size_t num_layers = model->config.num_layers;
    const bool all = options == NULL || options->layers == NULL;
    const size_t most = all ? num_layers : options->num_layers;
    enum attn_status status = all ? ATTN_OK : check_chosen(options, num_layers, error);
    if (status != ATTN_OK)
        return status;
    model->indices = attn_alloc(most, sizeof *model->indices);
    model->index_of = attn_alloc(num_layers, sizeof *model->index_of);
    model->specs = attn_alloc(most, sizeof *model->specs);
    model->layers = attn_calloc(most, sizeof *model->layers);
    if (model->indices == NULL || model->index_of == NULL || model->specs == NULL ||
        model->layers == NULL)
        return attn_fail_memory(error, num_layers * sizeof *model->layers);

    status = list_layers(model, all ? NULL : options->layers, most, error);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < num_layers; i++)
        model->index_of[i] = NOT_RESIDENT;
    for (size_t i = 0; i < model->num_resident; i++) {
        model->index_of[model->indices[i]] = i;
        if (model->config.family == &weightless_family)
            continue;
        attn_config_layer_spec(&model->specs[i], &model->config, model->indices[i]);
        if (options != NULL) {
            model->specs[i].dtype = options->dtype;
            model->specs[i].kv_dtype = options->kv_dtype;
        }
    }
    return ATTN_OK;
}

static enum attn_status configure(struct attn_model *model, const struct attn_family *family,
                                  const char *text, size_t length,
                                  const struct attn_model_options *options,
                                  struct attn_error *error)
{
    const struct attn_config_options reading = {
        .family = family,
        .stack = options != NULL ? options->stack : NULL,
        .ignore_keys = options != NULL ? options->ignore_keys : NULL,
    };
    struct attn_checksum sum;
    if (options != NULL) {
        model->threads = options->threads;
        model->progress = options->progress;
        model->progress_context = options->progress_context;
    }
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, text, length);
    enum attn_status status = attn_config_read(&model->config, &reading, text, length, error);
    if (status == ATTN_OK && model->checkpoint != NULL &&
        model->config.hf.quantization.method == ATTN_QUANT_NONE)
        status = attn_quantization_read_beside(&model->config.hf.quantization, &sum,
                                               model->checkpoint, error);
    attn_checksum_hex(model->config_sum, &sum);
    if (status == ATTN_OK)
        status = choose_layers(model, options, error);
    for (size_t i = 0; status == ATTN_OK && i < model->num_resident; i++)
        status = attn_layer_check(&model->specs[i], error);
    return status;
}

enum attn_status attn_model_open(struct attn_model **out, const char *path,
                                 const struct attn_model_options *options, struct attn_error *error)
{
    struct attn_model *model = attn_calloc(1, sizeof *model);
    if (model == NULL)
        return attn_fail_memory(error, sizeof *model);
    const char *config = options != NULL ? options->config : NULL;
    enum attn_status status = attn_checkpoint_open(&model->checkpoint, path, config != NULL, error);
    if (status == ATTN_OK) {
        size_t length = config != NULL ? strlen(config) : 0;
        const char *text =
            config != NULL ? config : attn_checkpoint_config(model->checkpoint, &length);
        status = configure(model, NULL, text, length, options, error);
    }
    if (status == ATTN_OK)
        status =
            attn_checkpoint_check_type(model->checkpoint, model->config.family->model_type, error);
    if (status == ATTN_OK && attn_checkpoint_is_gguf(model->checkpoint) &&
        model->config.layout == ATTN_LAYOUT_TRANSPOSED)
        model->config.layout = ATTN_LAYOUT_PLAIN;
    /* The last layer is checked first, so that the dtype reported is that of the first layer. */
    const char *dtype = "";
    for (size_t i = model->num_resident; i-- > 0 && status == ATTN_OK;)
        status =
            attn_weights_check(&dtype, model->checkpoint, &model->config, model->indices[i], error);
    snprintf(model->weights_dtype, sizeof model->weights_dtype, "%s", dtype);
    if (status == ATTN_OK)
        *out = model;
    else
        attn_model_close(model);
    return status;
}

/* Opens a model of a configuration that no checkpoint comes with. */
static enum attn_status open_text(struct attn_model **out, const struct attn_family *family,
                                  const char *config, size_t length,
                                  const struct attn_model_options *options,
                                  struct attn_error *error)
{
    struct attn_model *model = attn_calloc(1, sizeof *model);
    if (model == NULL)
        return attn_fail_memory(error, sizeof *model);
    if (family != NULL)
        memcpy(model->weights_dtype, "F32", sizeof "F32");
    enum attn_status status = configure(model, family, config, length, options, error);
    if (status == ATTN_OK)
        *out = model;
    else
        attn_model_close(model);
    return status;
}

enum attn_status attn_model_open_random(struct attn_model **out, const char *config, size_t length,
                                        const struct attn_model_options *options,
                                        struct attn_error *error)
{
    return open_text(out, &attn_family_random, config, length, options, error);
}

enum attn_status attn_model_open_config(struct attn_model **out, const char *config, size_t length,
                                        const struct attn_model_options *options,
                                        struct attn_error *error)
{
    return open_text(out, NULL, config, length, options, error);
}

enum attn_status attn_model_check_weights(const struct attn_model *model, struct attn_error *error)
{
    if (model->checkpoint != NULL || model->config.family->tensors == NULL)
        return ATTN_OK;
    return attn_fail(error, ATTN_NOT_FOUND, "weights",
                     "the model was opened from its configuration alone: it has no weights");
}

enum attn_status attn_model_set_dtypes(struct attn_model *model, enum attn_dtype dtype,
                                       enum attn_dtype kv_dtype, struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < model->num_resident && status == ATTN_OK; i++) {
        struct attn_layer_spec spec = model->specs[i];
        spec.dtype = dtype;
        spec.kv_dtype = kv_dtype;
        status = attn_layer_check(&spec, error);
    }
    for (size_t i = 0; i < model->num_resident && status == ATTN_OK; i++) {
        model->specs[i].dtype = dtype;
        model->specs[i].kv_dtype = kv_dtype;
    }
    return status;
}

size_t attn_model_weights_of(const struct attn_model *model, size_t resident)
{
    const struct attn_config *config = &model->config;
    const size_t index = attn_config_tensor_index(config, model->indices[resident]);
    while (resident > 0 && attn_config_tensor_index(config, model->indices[resident - 1]) == index)
        resident--;
    return resident;
}

/* ---- Without weights ------------------------------------------------------------------------ */

static struct attn_layer_spec weightless_spec(const struct attn_weightless_options *options)
{
    size_t kv_heads = options->num_kv_heads, value_head_dim = options->value_head_dim;
    return (struct attn_layer_spec){
        .num_heads = options->num_heads,
        .num_kv_heads = kv_heads > 0 ? kv_heads : options->num_heads,
        .head_dim = options->head_dim,
        .value_head_dim = value_head_dim > 0 ? value_head_dim : options->head_dim,
        .scale = options->scale != 0 ? options->scale : 1 / sqrt((double)options->head_dim),
        .softcap = options->softcap,
        .sliding_window = options->sliding_window,
        .is_causal = true,
        .is_weightless = true,
        .shares_layer = SIZE_MAX,
        .kv_dtype = options->kv_dtype,
    };
}

enum attn_status attn_model_open_weightless(struct attn_model **out,
                                            const struct attn_weightless_options *options,
                                            struct attn_error *error)
{
    size_t num_layers = options->num_layers > 0 ? options->num_layers : 1;
    enum attn_status status =
        attn_check_count(num_layers, ATTN_MAX_LAYERS, "num_hidden_layers", error);
    if (status != ATTN_OK)
        return status;
    struct attn_model *model = attn_calloc(1, sizeof *model);
    if (model == NULL)
        return attn_fail_memory(error, sizeof *model);
    model->config.family = &weightless_family;
    model->config.num_layers = num_layers;
    status = choose_layers(model, NULL, error);
    for (size_t i = 0; status == ATTN_OK && i < num_layers; i++) {
        model->specs[i] = weightless_spec(options);
        status = attn_layer_check(&model->specs[i], error);
    }
    if (status == ATTN_OK)
        status = attn_model_load(model, error);
    if (status == ATTN_OK)
        *out = model;
    else
        attn_model_close(model);
    return status;
}

void attn_model_close(struct attn_model *model)
{
    if (model == NULL)
        return;
    attn_model_unload(model);
    attn_checkpoint_close(model->checkpoint);
    attn_free(model->layers);
    attn_free(model->specs);
    attn_free(model->index_of);
    attn_free(model->indices);
    attn_free(model);
}

/* ---- Access -------------------------------------------------------------------------------- */

/* Layers of a checkpoint share its table of a position bias; random layers have one each. */
static size_t count_parameters(const struct attn_model *model)
{
    size_t parameters = 0, table = 0;
    for (size_t i = 0; i < model->num_resident; i++) {
        if (attn_model_weights_of(model, i) != i)
            continue;
        const size_t own = attn_layer_table_parameters(&model->specs[i]);
        parameters += attn_layer_parameters(&model->specs[i]) - table;
        table = model->config.family->tensors != NULL ? own : 0;
    }
    return parameters;
}

void attn_model_describe(struct attn_model_info *out, const struct attn_model *model)
{
    const struct attn_family *family = model->config.family;
    *out = (struct attn_model_info){
        .family = family->name,
        .stack = family->stack != NULL ? family->stack : "",
        .weights_dtype = model->weights_dtype,
        .num_layers = model->config.num_layers,
        .num_resident = model->num_resident,
        .num_parameters = count_parameters(model),
        .max_position = model->config.max_position,
        .dtype = model->specs[0].dtype,
        .kv_dtype = model->specs[0].kv_dtype,
        .is_mapped = model->mapped.memory != NULL,
    };
    out->linear_type = "";
    for (size_t i = 0; i < model->config.num_layers; i++) {
        if (attn_config_attends(&model->config, i) ||
            model->config.types[i] == ATTN_LAYER_ELSEWHERE)
            continue;
        const char *type = attn_layer_types[model->config.types[i]];
        if (out->num_linear_layers++ == 0)
            out->linear_type = type;
        else if (out->linear_type != type)
            out->linear_type = "mamba, mlp or moe";
    }
    for (size_t i = 0; i < model->num_resident; i++) {
        const struct attn_layer_spec *spec = &model->specs[i];
        if (attn_model_weights_of(model, i) == i)
            out->weight_bytes += attn_layer_weight_bytes(spec);
        const bool caches = spec->shares_layer == SIZE_MAX;
        out->cache_bytes_per_token += caches ? attn_layer_token_bytes(spec) : 0;
    }
    memcpy(out->fingerprint, model->fingerprint, sizeof out->fingerprint);
}

size_t attn_model_num_resident(const struct attn_model *model) { return model->num_resident; }

size_t attn_model_resident_index(const struct attn_model *model, size_t layer)
{
    return layer < model->config.num_layers ? model->index_of[layer] : NOT_RESIDENT;
}

const struct attn_layer_spec *attn_model_resident_spec(const struct attn_model *model,
                                                       size_t resident)
{
    return resident < model->num_resident ? &model->specs[resident] : NULL;
}

const struct attn_layer_spec *attn_model_layer(const struct attn_model *model, size_t layer)
{
    return attn_model_resident_spec(model, attn_model_resident_index(model, layer));
}

const struct attn_layer *attn_model_loaded_layer(const struct attn_model *model, size_t layer)
{
    size_t resident = attn_model_resident_index(model, layer);
    return model->loaded && resident != NOT_RESIDENT
               ? &model->layers[attn_model_weights_of(model, resident)]
               : NULL;
}

size_t attn_model_headers_memory(const struct attn_model *model)
{
    return attn_add(
        attn_checkpoint_memory(model->checkpoint),
        attn_mul(attn_model_loading_threads(model), attn_checkpoint_scratch(model->checkpoint)));
}
