/* choice.c: the JSON of a configuration, the family that reads it and the class that it
 * names, the object that holds its settings. */
#include "families/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "attn_json.h"
#include "attn_limits.h"
#include "attn_nearest.h"
#include "basics/status.h"

#define MOST_FAMILIES 512 /* that are compared with a misspelt one */
#define MOST_KEYS 128     /* of a family, likewise */
#define CLASS_MAX 96      /* characters of a class that are compared */

/* Writes the constants that Python's json adds to JSON as strings of the same length, which no key
 * that is a number takes. */
static void quote_constants(char *text, size_t length)
{
    static const char *const constants[] = {"NaN", "-Infinity", "Infinity"};
    bool quoted = false;
    for (size_t at = 0; at < length; at++) {
        if (quoted && text[at] == '\\')
            at++;
        else if (text[at] == '"')
            quoted = !quoted;
        for (size_t i = 0; i < 3 && !quoted && at < length; i++) {
            const size_t size = strlen(constants[i]);
            if (length - at >= size && memcmp(text + at, constants[i], size) == 0) {
                text[at] = text[at + size - 1] = '"';
                at += size - 1;
                break;
            }
        }
    }
}

/* Parses JSON as Python's json writes it. */
static enum attn_status load(json_t **out, const char *text, size_t length, json_error_t *why)
{
    char *copy = NULL;
    if (memmem(text, length, "NaN", 3) == NULL && memmem(text, length, "Infinity", 8) == NULL)
        return attn_json_load(out, text, length, JSON_REJECT_DUPLICATES, why);
    copy = attn_alloc(length, 1);
    if (copy == NULL)
        return ATTN_NO_MEMORY;
    memcpy(copy, text, length);
    quote_constants(copy, length);
    const enum attn_status status = attn_json_load(out, copy, length, JSON_REJECT_DUPLICATES, why);
    attn_free(copy);
    return status;
}

enum attn_status attn_config_parse(json_t **out, const char *text, size_t length,
                                   struct attn_error *error)
{
    json_error_t why;
    if (length > ATTN_CHECKPOINT_MAX_CONFIG)
        return attn_fail(error, ATTN_MALFORMED, "", "configuration of %zu bytes, limit %d", length,
                         ATTN_CHECKPOINT_MAX_CONFIG);
    enum attn_status status = load(out, text, length, &why);
    if (status == ATTN_NO_MEMORY)
        return attn_fail_memory(error, length);
    if (status != ATTN_OK)
        return attn_fail(error, ATTN_MALFORMED, "", "not valid JSON, line %d column %d", why.line,
                         why.column);
    if (!json_is_object(*out)) {
        json_decref(*out);
        return attn_fail(error, ATTN_MALFORMED, "", "configuration is not a JSON object");
    }
    return ATTN_OK;
}

enum attn_status attn_fail_key(const char *within, const char *key, const struct attn_hf_key *keys,
                               struct attn_error *error)
{
    const char *names[MOST_KEYS];
    size_t count = 0;
    for (; keys->name != NULL && count < MOST_KEYS; keys++)
        if (keys->kind != ATTN_CONFIG_IGNORED)
            names[count++] = keys->name;
    const char *nearest = attn_nearest(key, names, count);
    return attn_fail(error, ATTN_UNSUPPORTED, key, "%s%skey '%.96s' is not understood%s%s%s",
                     within, within[0] != '\0' ? ": " : "", key,
                     nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "?" : "");
}

json_t *attn_config_object(const json_t *object, const char *name)
{
    json_t *inner = name != NULL ? json_object_get(object, name) : NULL;
    return json_is_object(inner) ? inner : NULL;
}

/* The object that holds the settings of a text model inside a model of several, NULL where there is
 * none, and the path of its key. */
static json_t *find_inner(const json_t *object, const char **path)
{
    static const char *const paths[] = {"text_config",
                                        "llm_config",
                                        "language_config",
                                        "language_model",
                                        "thinker_config.text_config",
                                        "vlm_config.text_config",
                                        "backbone_config"};
    json_t *inner = NULL;
    for (size_t i = 0; i < ATTN_COUNT(paths) && inner == NULL; i++) {
        const char *dot = strchr(paths[i], '.');
        char outer[16];
        *path = paths[i];
        snprintf(outer, sizeof outer, "%.*s", dot != NULL ? (int)(dot - *path) : 0, *path);
        inner = dot == NULL ? attn_config_object(object, *path)
                            : attn_config_object(json_object_get(object, outer), dot + 1);
    }
    return inner;
}

bool attn_config_prefix(char out[ATTN_PREFIX_MAX], const struct attn_config *config, size_t i)
{
    static const char *const of_text[] = {"model.language_model.",
                                          "language_model.",
                                          "model.text_model.",
                                          "language.",
                                          "thinker.",
                                          "backbone.",
                                          "vlm.model.language_model.",
                                          "vlm.language_model.",
                                          "vlm.",
                                          "llm.",
                                          ""};
    static const char *const of_images[] = {"model.vision_tower.", "vision_tower.", "model.", ""};
    const char *const *own = config->family->prefixes;
    const char *const *parts = config->is_vision ? of_images : of_text;
    const size_t num_parts = config->is_vision ? ATTN_COUNT(of_images) : ATTN_COUNT(of_text);
    size_t count = 0;
    while (own[count] != NULL)
        count++;
    if (i >= count * (config->is_wrapped ? num_parts : 1))
        return false;
    if (config->is_wrapped) /* the family's last prefix first: published names often have none */
        snprintf(out, ATTN_PREFIX_MAX, "%s%s", parts[i / count], own[count - 1 - i % count]);
    else
        snprintf(out, ATTN_PREFIX_MAX, "%s", own[i]);
    return true;
}

/* Finds the family of the model of images that a configuration has inside. */
static enum attn_status find_vision(struct attn_choice *out, json_t *inner,
                                    struct attn_error *error)
{
    const char *type = json_string_value(json_object_get(inner, "model_type"));
    const struct attn_family *family = type != NULL ? attn_family_find(type, NULL, NULL) : NULL;
    if (family == NULL || family->subconfig != NULL || family->stack != NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, "stack",
                         "stack: the model_type of vision_config, '%.64s', is not supported; "
                         "without a stack the text model is read",
                         type != NULL ? type : "");
    *out = (struct attn_choice){
        .family = family, .settings = inner, .is_wrapped = true, .is_vision = true};
    return ATTN_OK;
}

/* Finds the family of a text model that a configuration of an unknown type has inside. */
static enum attn_status find_wrapped(struct attn_choice *out, const json_t *object,
                                     const char *stack, struct attn_error *error)
{
    const char *path;
    json_t *inner = find_inner(object, &path);
    const json_t *latents = json_object_get(inner, "use_mla");
    const char *subtype = json_string_value(json_object_get(inner, "model_type"));
    if (json_is_false(latents) && (subtype == NULL || strcmp(subtype, "deepseek_v2") == 0)) {
        subtype = "deepseek"; /* DeepSeek-OCR: the class of DeepSeek V2 has both forms */
        json_object_del(inner, "architectures");
    }
    if (subtype == NULL)
        return ATTN_OK;
    const struct attn_family *known = attn_family_find(subtype, NULL, NULL);
    if ((known == NULL || known->subconfig != NULL) && strcmp(path, "backbone_config") == 0)
        return ATTN_OK; /* the whole is no better known */
    if (known == NULL || known->subconfig != NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, path, "%s: model_type '%.64s' is not supported",
                         path, subtype);
    *out = (struct attn_choice){
        .family = attn_family_find(subtype, NULL, stack), .settings = inner, .is_wrapped = true};
    return ATTN_OK;
}

/* Finds the family of the configuration's type, or of its text model. */
static enum attn_status find_family(struct attn_choice *out, const json_t *object, const char *type,
                                    const char *stack, struct attn_error *error)
{
    const struct attn_family *first = attn_family_find(type, NULL, stack);
    json_t *images = attn_config_object(object, "vision_config");
    if (first == NULL && images != NULL && strcmp(stack != NULL ? stack : "", "vision") == 0)
        return find_vision(out, images, error);
    if (first == NULL)
        return attn_family_find(type, NULL, NULL) == NULL ? find_wrapped(out, object, stack, error)
                                                          : ATTN_OK;
    json_t *inner = attn_config_object(object, first->subconfig);
    if (inner == NULL)
        inner = attn_config_object(object, first->subconfig_dict);
    const char *subtype = json_string_value(json_object_get(inner, "model_type"));
    *out = (struct attn_choice){.family = attn_family_find(type, subtype, stack),
                                .settings = inner,
                                .is_wrapped = first->wrapped};
    return out->family != NULL
               ? ATTN_OK
               : attn_fail(error, ATTN_UNSUPPORTED, first->subconfig,
                           "%s: model_type '%.64s' is not supported", first->subconfig, subtype);
}

/* ---- The class that `architectures` names ---- */

/* Copies letters and digits, in lower case. */
static void fold(char out[CLASS_MAX], const char *name, size_t length)
{
    size_t at = 0;
    for (size_t i = 0; i < length && at < CLASS_MAX - 1; i++)
        if (isalnum((unsigned char)name[i]))
            out[at++] = (char)tolower((unsigned char)name[i]);
    out[at] = '\0';
}

/* The characters before what a class is for: 5 of LlamaForCausalLM, LlamaModel. */
static size_t stem_length(const char *name)
{
    static const char *const ends[] = {"For", "Model", "LMHead", "With"};
    size_t length = strlen(name);
    for (size_t i = 0; i < ATTN_COUNT(ends); i++) {
        const char *at = strstr(name, ends[i]);
        if (at != NULL && (size_t)(at - name) < length)
            length = (size_t)(at - name);
    }
    return length;
}

/* The stack of a family that a class is of: T5EncoderModel, CLIPTextModel; NULL where it says
 * none. */
static const char *stack_of_class(const char *type, const char *name)
{
    char stem[CLASS_MAX], own[CLASS_MAX];
    const struct attn_family *row;
    if (name == NULL)
        return NULL;
    fold(stem, name, stem_length(name));
    fold(own, type, strlen(type));
    for (size_t i = 0; (row = attn_family_at(i)) != NULL; i++)
        if (row->stack != NULL && strcmp(row->model_type, type) == 0 &&
            strncmp(stem, own, strlen(own)) == 0 && strcmp(stem + strlen(own), row->stack) == 0)
            return row->stack;
    return NULL;
}

/* Refuses a class whose attention is another than that of the family, as far as its name tells: a
 * class of another row, whose keys are others, or one without the causal mask. */
static enum attn_status check_class(const struct attn_family *family, const char *name,
                                    struct attn_error *error)
{
    char stem[CLASS_MAX], type[CLASS_MAX];
    const struct attn_family *row, *other = NULL;
    const size_t length = stem_length(name);
    /* as LlamaBiModel, LlamaBidirectionalModel, MistralEncoderModel, ColQwen2 */
    const bool both_ways =
        strstr(name, "Bidirec") != NULL ||
        (length > 2 && memcmp(name + length - 2, "Bi", 2) == 0) ||
        (family->stack == NULL && length > 7 && memcmp(name + length - 7, "Encoder", 7) == 0) ||
        (strncmp(name, "Col", 3) == 0 && isupper((unsigned char)name[3]));
    if (family->defaults.is_causal && both_ways)
        return attn_fail(error, ATTN_UNSUPPORTED, "architectures",
                         "architectures: %.64s attends in both directions, a model of model_type "
                         "\"%s\" to earlier tokens only: this class is not supported",
                         name, family->model_type);
    fold(stem, name, length);
    for (size_t i = 0; (row = attn_family_at(i)) != NULL; i++) {
        fold(type, row->model_type, strlen(row->model_type));
        if (strcmp(stem, type) != 0)
            continue;
        if (row->keys == family->keys)
            return ATTN_OK;
        other = row;
    }
    if (other == NULL)
        return ATTN_OK;
    return attn_fail(error, ATTN_MALFORMED, "architectures",
                     "architectures: %.64s is a class of model_type \"%s\", but model_type is "
                     "\"%s\": which of the two is it?",
                     name, other->model_type, family->model_type);
}

/* ---- The family ---- */

/* Says why a type that is known is not supported, or names the nearest that is, of which a family's
 * name in replies counts too. */
static enum attn_status fail_type(const char *type, struct attn_error *error)
{
    static const char own[] = "; /attend takes query, key and value that you make, without a model";
    static const struct {
        const char *types, *why, *remedy;
    } known[] = {
        {"deepseek_v4", "its layers attend to keys that are made of several tokens each", own},
        {"phi3small", "its layers attend to blocks of a pattern of each head", own},
        {"donut-swin maskformer-swin swin swin2sr swinv2", "it attends within windows of patches",
         own},
        {"transfo-xl wav2vec2-conformer xlnet",
         "its scores have terms of relative positions as Transformer-XL has them", own},
        {"vits", "its values have terms of relative positions", own},
        {"zamba zamba2", "its attention reads rows of twice the width that it writes", own},
        {"edgetam edgetam_video sam sam_hq sam2 sam2_video vitdet",
         "its scores have a bias by rows and columns that queries make", own},
        {"glpn pvt pvt_v2 segformer", "its keys are patches that a convolution joins", own},
        {"pixtral", "its patches rotate by rows and columns of several images in one sequence",
         own},
        {"conditional_detr d_fine dab-detr deformable_detr grounding-dino mm-grounding-dino "
         "rt_detr "
         "rt_detr_v2",
         "its decoder attends to points that it samples, or joins two queries in one", own},
        {"minicpmo minicpmv", "the class of its text model follows from its version",
         "; put its keys into an llm_config whose model_type is llama, qwen2 or qwen3"},
        {"reformer", "its tokens attend within buckets of a hash", own},
        {"falcon_mamba mamba mamba2 rwkv rwkv6 rwkv7 xlstm", "it has no attention by softmax", ""},
    };
    const char *names[2 * MOST_FAMILIES], *nearest = NULL;
    size_t count = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (attn_hf_names_have(known[i].types, type))
            return attn_fail(error, ATTN_UNSUPPORTED, "model_type",
                             "model_type: \"%s\" is not supported: %s%s", type, known[i].why,
                             known[i].remedy);
    while (count < MOST_FAMILIES && attn_family_at(count) != NULL) {
        names[2 * count] = attn_family_at(count)->model_type;
        names[2 * count + 1] = attn_family_at(count)->name;
        count++;
    }
    nearest = attn_nearest(type, names, 2 * count);
    for (size_t i = 0; i < count; i++)
        if (nearest == names[2 * i + 1])
            nearest = names[2 * i];
    return attn_fail(error, ATTN_UNSUPPORTED, "model_type",
                     "model_type: \"%.60s\" is not supported%s%s%s; MODELS.md lists those that are",
                     type, nearest != NULL ? "; the nearest that is: \"" : "",
                     nearest != NULL ? nearest : "", nearest != NULL ? "\"" : "");
}

static enum attn_status check_classes(const struct attn_family *family, const json_t *object,
                                      struct attn_error *error)
{
    const json_t *classes = json_object_get(object, "architectures");
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < json_array_size(classes) && status == ATTN_OK; i++) {
        const char *name = json_string_value(json_array_get(classes, i));
        status = name != NULL ? check_class(family, name, error) : ATTN_OK;
    }
    return status;
}

/* Refuses a direction that stands beside the text model's configuration and not in it: no class
 * reads it there, and who wrote it may mean it. */
static enum attn_status check_direction(const json_t *object, const json_t *settings,
                                        struct attn_error *error)
{
    static const struct {
        const char *key;
        json_type both_ways;
    } keys[] = {{"is_causal", JSON_FALSE}, {"use_bidirectional_attention", JSON_TRUE}};
    for (size_t i = 0; i < ATTN_COUNT(keys) && settings != object; i++) {
        const json_t *value = json_object_get(object, keys[i].key);
        if (value != NULL && json_typeof(value) == keys[i].both_ways &&
            !json_equal(value, json_object_get(settings, keys[i].key)))
            return attn_fail(error, ATTN_UNSUPPORTED, keys[i].key,
                             "%s is %s beside the text model's configuration, which does not say "
                             "so: set it there, or leave it out",
                             keys[i].key, keys[i].both_ways == JSON_TRUE ? "true" : "false");
    }
    return ATTN_OK;
}

enum attn_status attn_config_choose(struct attn_choice *out, json_t *object, const char *stack,
                                    struct attn_error *error)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    if (type == NULL)
        return attn_fail(error, ATTN_MALFORMED, "model_type", "model_type must be a string");
    const json_t *classes = json_object_get(object, "architectures");
    if (stack == NULL)
        stack = stack_of_class(type, json_string_value(json_array_get(classes, 0)));
    *out = (struct attn_choice){.family = NULL};
    enum attn_status status = find_family(out, object, type, stack, error);
    if (status == ATTN_OK && out->family == NULL)
        return attn_family_find(type, NULL, NULL) == NULL && !out->is_wrapped
                   ? fail_type(type, error)
                   : attn_fail(error, ATTN_UNSUPPORTED, "stack",
                               "stack: a %.32s model has no stack '%.64s'", type, stack);
    if (out->settings == NULL)
        out->settings = object;
    if (status == ATTN_OK && !out->is_vision)
        status = check_classes(out->family, object, error);
    if (status == ATTN_OK && out->settings != object)
        status = check_classes(out->family, out->settings, error);
    return status == ATTN_OK && !out->is_vision ? check_direction(object, out->settings, error)
                                                : status;
}
