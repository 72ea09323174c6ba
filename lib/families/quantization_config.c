/* quantization_config.c: what a configuration, or a file beside it, says of quantised weights. */
#include <string.h>
#include <strings.h>

#include "basics/status.h"
#include "basics/text.h"
#include "families/quantization.h"
#include "families/spec.h"

static const char *const methods[] = {
    /* names, with blanks between */
    [ATTN_QUANT_OTHER] = "",
    [ATTN_QUANT_FP8] = "fp8 fbgemm_fp8",
    [ATTN_QUANT_COMPRESSED] = "compressed-tensors",
    [ATTN_QUANT_GPTQ] = "gptq",
    [ATTN_QUANT_AWQ] = "awq",
    [ATTN_QUANT_BITSANDBYTES] = "bitsandbytes",
    [ATTN_QUANT_MODELOPT] = "modelopt",
    [ATTN_QUANT_TORCHAO] = "torchao",
    [ATTN_QUANT_MLX] = "mlx",
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Checks that the number of that key, where there is one, is among those. */
static bool is_one_of(const json_t *object, const char *key, const json_int_t *allowed,
                      struct attn_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return true;
    for (; json_is_integer(value) && *allowed != 0; allowed++)
        if (json_integer_value(value) == *allowed)
            return true;
    attn_fail(error, ATTN_UNSUPPORTED, key,
              "quantization_config.%s is %" JSON_INTEGER_FORMAT ", which is not read", key,
              json_integer_value(value));
    return false;
}

static enum attn_status read_block(struct attn_quantization *out, const char *key,
                                   const json_t *block, struct attn_error *error)
{
    if (block == NULL || json_is_null(block))
        return ATTN_OK;
    for (size_t i = 0; i < 2; i++) {
        const json_int_t size = json_integer_value(json_array_get(block, i));
        if (json_array_size(block) != 2 || size < 1 || size > ATTN_MAX_HIDDEN_SIZE)
            return attn_fail(error, ATTN_MALFORMED, key,
                             "quantization_config.%s must be two integers from 1 to %d", key,
                             ATTN_MAX_HIDDEN_SIZE);
        out->block[i] = (size_t)size;
    }
    return ATTN_OK;
}

/* Adds the size of groups that an object says: the whole, one module of MLX, or the weights of one
 * of config_groups. */
static void add_group(struct attn_quantization *out, const json_t *object)
{
    const json_int_t size = json_integer_value(json_object_get(object, "group_size"));
    size_t i = 0;
    while (i < out->num_groups && (json_int_t)out->groups[i] != size)
        i++;
    if (size > 0 && i < ATTN_QUANT_GROUPS && i == out->num_groups)
        out->groups[out->num_groups++] = (size_t)size;
}

/* Whether the `weights` of compressed-tensors order inputs by activations, so that each input's
 * group is stored. */
static bool is_ordered(const json_t *weights)
{
    const char *order = text_of(weights, "actorder");
    return json_is_true(json_object_get(weights, "actorder")) || strcmp(order, "group") == 0 ||
           strcmp(order, "dynamic") == 0;
}

static enum attn_status read_groups(struct attn_quantization *out, const json_t *groups,
                                    struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    const char *name;
    json_t *one;
    bool several = false;
    json_object_foreach((json_t *)groups, name, one) {
        const json_t *weights = json_object_get(one, "weights");
        const json_int_t width = json_integer_value(json_object_get(weights, "num_bits"));
        add_group(out, weights);
        out->asymmetric = out->asymmetric || json_is_false(json_object_get(weights, "symmetric"));
        out->ordered = out->ordered || is_ordered(weights);
        several = several || (out->bits != 0 && (json_int_t)out->bits != width);
        out->bits = width >= 2 && width <= 8 ? (unsigned)width : 0;
        if (status == ATTN_OK)
            status = read_block(out, "block_structure", json_object_get(weights, "block_structure"),
                                error);
    }
    out->bits = several ? 0 : out->bits;
    return status;
}

/* Checks what GPTQ and AWQ say. */
static enum attn_status check_words(const struct attn_quantization *out, const json_t *value,
                                    struct attn_error *error)
{
    static const json_int_t bits[] = {2, 3, 4, 8, 0};
    const json_int_t group = json_integer_value(json_object_get(value, "group_size"));
    const char *version = text_of(value, "version");
    if (!is_one_of(value, "bits", bits, error))
        return ATTN_UNSUPPORTED;
    if (json_object_get(value, "group_size") != NULL && group != -1 && group < 1)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "group_size",
                         "quantization_config.group_size is %" JSON_INTEGER_FORMAT
                         ", wanted is -1 or a size",
                         group);
    if (out->method == ATTN_QUANT_AWQ && version[0] != '\0' && strcasecmp(version, "gemm") != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "version",
                         "quantization_config.version is \"%.64s\", read is gemm", version);
    return ATTN_OK;
}

enum attn_status attn_quantization_read(struct attn_quantization *out, const char *key,
                                        const json_t *value, struct attn_error *error)
{
    const bool mlx = strcmp(key, "quantization") == 0;
    if (json_is_null(value))
        return ATTN_OK;
    if (!json_is_object(value))
        return attn_fail(error, ATTN_MALFORMED, key, "%s must be an object", key);
    const char *method = mlx ? "mlx" : text_of(value, "quant_method");
    if (out->method == ATTN_QUANT_MLX) /* its quantization_config repeats `quantization` */
        return ATTN_OK;
    if (attn_hf_names_have("bitnet fp_quant higgs quip quip_sharp spqr vptq", method) ||
        json_object_size(json_object_get(value, "transform_config")) > 0)
        return attn_fail(error, ATTN_UNSUPPORTED, key,
                         "%s: this form rounds or rotates weights or inputs as the model runs, "
                         "which is not computed; serve a checkpoint that is not quantised so",
                         key);
    snprintf(out->name, sizeof out->name, "%s", method);
    snprintf(out->format, sizeof out->format, "%s", text_of(value, "format"));
    out->method = ATTN_QUANT_OTHER;
    for (size_t i = 1; i < sizeof methods / sizeof methods[0]; i++)
        if (attn_text_word_number(methods[i], method) != 0)
            out->method = (enum attn_quant_method)i;
    out->adds_one = strcmp(text_of(value, "checkpoint_format"), "gptq_v2") != 0;
    out->ordered = json_is_true(json_object_get(value, "desc_act"));
    const json_int_t bits = json_integer_value(json_object_get(value, "bits"));
    out->bits = bits >= 2 && bits <= 8 ? (unsigned)bits : 0;
    add_group(out, value);
    const char *name;
    json_t *one;
    json_object_foreach((json_t *)value, name, one) {
        if (mlx)
            add_group(out, one);
    }
    enum attn_status status = ATTN_OK;
    if (out->method == ATTN_QUANT_GPTQ || out->method == ATTN_QUANT_AWQ)
        status = check_words(out, value, error);
    if (status == ATTN_OK)
        status = read_groups(out, json_object_get(value, "config_groups"), error);
    const json_t *block = json_object_get(value, "weight_block_size");
    out->usual_block = out->method == ATTN_QUANT_FP8 && block == NULL;
    if (out->usual_block) /* as Hugging Face's class has them */
        out->block[0] = out->block[1] = 128;
    return status != ATTN_OK ? status : read_block(out, "weight_block_size", block, error);
}

/* ---- Files beside config.json ---------------------------------------------------------------- */

enum attn_status attn_quantization_read_beside(struct attn_quantization *out,
                                               struct attn_checksum *sum,
                                               const struct attn_checkpoint *checkpoint,
                                               struct attn_error *error)
{
    static const struct {
        const char *name, *method, *member; /* of the settings; NULL: the object itself */
    } files[] = {{"quantize_config.json", "gptq", NULL},
                 {"hf_quant_config.json", "modelopt", "quantization"}};
    size_t length;
    if (attn_checkpoint_is_gguf(checkpoint) || attn_checkpoint_config(checkpoint, &length) == NULL)
        return ATTN_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *text;
        json_t *object;
        enum attn_status status =
            attn_checkpoint_text(&text, &length, checkpoint, files[i].name, error);
        if (status == ATTN_NOT_FOUND)
            continue;
        if (status != ATTN_OK)
            return status;
        attn_checksum_add(sum, text, length);
        status = attn_config_parse(&object, text, length, error);
        attn_free(text);
        if (status != ATTN_OK)
            return attn_fail(error, status, files[i].name, "%s is no JSON object", files[i].name);
        json_t *settings =
            files[i].member != NULL ? json_object_get(object, files[i].member) : object;
        if (json_is_object(settings) && json_object_get(settings, "quant_method") == NULL &&
            json_object_set_new(settings, "quant_method", json_string(files[i].method)) != 0)
            status = attn_fail_memory(error, length);
        else
            status = attn_quantization_read(out, files[i].name, settings, error);
        json_decref(object);
        return status;
    }
    return ATTN_OK;
}
