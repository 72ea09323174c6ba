/* family_weights.c: names -> tensors.
 *
 * A layer's tensors are bound first: each projection (q, k, v, o) in each role (weight, bias, ...)
 * that the specification asks for gets the one tensor that holds it, checked in type and shape.
 * After that, reading (weight_reading.c) can fail on the bytes only. */
#include "families/family_weights.h"

#include <stdio.h>
#include <string.h>

#include "families/weight_bindings.h"
#include "mem.h"
#include "status.h"

#define NAME_SIZE 160 /* bytes of prefix, name and index, all from the tables */

struct attn_checkpoint_layer attn_checkpoint_layer(const struct attn_config *config, size_t layer)
{
    struct attn_checkpoint_layer source = {.config = config, .layer = layer};
    attn_config_layer_spec(&source.spec, config, layer);
    return source;
}

/* ---- Binding ------------------------------------------------------------------------------- */

/* Writes prefix and name with the layer's index in the place of each '*'. */
static void expand(char out[NAME_SIZE], const char *prefix, const char *name, size_t layer)
{
    const char *pieces[] = {prefix, name};
    size_t at = 0;
    for (size_t i = 0; i < 2; i++)
        for (const char *c = pieces[i]; *c != '\0' && at + 24 < NAME_SIZE; c++) {
            if (*c == '*')
                at += (size_t)snprintf(out + at, NAME_SIZE - at, "%zu", layer);
            else
                out[at++] = *c;
        }
    out[at] = '\0';
}

/* Finds the tensor of a pattern under the first prefix that has it; entry NULL if none has.  A
 * layer that reads another's cache has the tensors of that layer's keys and values.  A name
 * without an index belongs to a model's only layer, or to a tensor that all layers share. */
static enum attn_status find_tensor(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                    const struct attn_checkpoint_layer *source,
                                    const struct attn_family_tensor *pattern,
                                    struct attn_error *error)
{
    const struct attn_config *config = source->config;
    bool single = config->num_layers == 1 || pattern->role == ATTN_ROLE_POSITION_BIAS ||
                  pattern->role == ATTN_ROLE_POSITION_NORM;
    bool shared = source->spec.shares_layer != SIZE_MAX &&
                  (pattern->projections & (ATTN_PROJ_K | ATTN_PROJ_V)) != 0;
    size_t layer = shared ? source->spec.shares_layer : source->layer;
    char name[NAME_SIZE];
    *out = (struct attn_tensor){.entry = NULL};
    for (const char *const *prefix = config->family->prefixes; *prefix != NULL; prefix++) {
        bool indexed = strchr(*prefix, '*') != NULL || strchr(pattern->name, '*') != NULL;
        if (!indexed && !single)
            continue;
        expand(name, *prefix, pattern->name, attn_config_tensor_index(config, layer));
        enum attn_status status = attn_checkpoint_find(out, checkpoint, name, error);
        if (status != ATTN_OK || out->entry != NULL)
            return status;
    }
    return ATTN_OK;
}

static void write_shape(char *out, size_t size, const size_t *shape, size_t ndim)
{
    size_t at = (size_t)snprintf(out, size, "[");
    for (size_t i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%zu", i > 0 ? ", " : "", shape[i]);
    if (at < size)
        snprintf(out + at, size - at, "]");
}

/* Refuses a tensor of another shape than the configuration asks for.  Where the tensor is what the
 * other orientation asks for, the message says so. */
static enum attn_status fail_shape(const struct attn_checkpoint_layer *source,
                                   const struct attn_tensor_shape *shape,
                                   const struct attn_tensor_entry *entry, struct attn_error *error)
{
    char got[64], needed[64];
    const bool transposed = source->config->layout == ATTN_LAYOUT_TRANSPOSED;
    const bool turned = attn_family_key(source->config->family, "transposed") != NULL &&
                        entry->ndim == 2 && shape->ndim == 2 && entry->shape[0] == shape->size[1] &&
                        entry->shape[1] == shape->size[0];
    write_shape(got, sizeof got, entry->shape, entry->ndim);
    write_shape(needed, sizeof needed, shape->size, shape->ndim);
    return attn_fail(error, ATTN_SHAPE_MISMATCH, entry->name,
                     "tensor '%.80s' is %s, the configuration asks for %s%s", entry->name, got,
                     needed,
                     !turned      ? ""
                     : transposed ? ", as [in, out]: is transposed false?"
                                  : ", as [out, in]: is transposed true?");
}

/* Whether neither the tensor's name nor the configuration says how the weight is stored. */
static bool lies_either_way(const struct attn_config *config,
                            const struct attn_family_tensor *pattern)
{
    const char *prefix = config->family->either_way;
    return prefix != NULL && !config->says_layout && pattern->role == ATTN_ROLE_WEIGHT &&
           strncmp(pattern->name, prefix, strlen(prefix)) == 0;
}

static enum attn_status check_tensor(const struct attn_checkpoint_layer *source,
                                     const struct attn_family_tensor *pattern,
                                     const struct attn_tensor_entry *entry,
                                     struct attn_error *error)
{
    struct attn_tensor_shape shape =
        attn_tensor_shape(source->config->layout, &source->spec, pattern);
    if (!entry->dtype->readable)
        return attn_fail(error, ATTN_UNSUPPORTED, entry->name,
                         "tensor '%.96s' is %s, supported are F32, F16 and BF16", entry->name,
                         entry->dtype->name);
    if (lies_either_way(source->config, pattern))
        return attn_fail(error, ATTN_MALFORMED, "transposed",
                         "transposed must say how '%.80s' is stored: true for [in, out], as in x @ "
                         "W; false for [out, in], as in x @ W.T",
                         entry->name);
    if (entry->ndim == shape.ndim &&
        memcmp(entry->shape, shape.size, shape.ndim * sizeof *shape.size) == 0)
        return ATTN_OK;
    return fail_shape(source, &shape, entry, error);
}

/* The tensors that the layer may have. */
static const struct attn_family_tensor *tensors_of(const struct attn_checkpoint_layer *source)
{
    const struct attn_config *config = source->config;
    bool full = config->types[source->layer] == ATTN_LAYER_FULL;
    return config->keys_as_values && full ? config->family->shared_tensors
                                          : config->family->tensors;
}

/* The names of a single file's tensors follow: its writer may have others in mind. */
static enum attn_status fail_missing(const struct attn_checkpoint *checkpoint,
                                     const struct attn_checkpoint_layer *source,
                                     enum attn_tensor_role role, unsigned missing,
                                     struct attn_error *error)
{
    char there[96];
    const struct attn_family *family = source->config->family;
    char name[NAME_SIZE];
    struct attn_projection_shape shape;
    const struct attn_family_tensor *pattern = tensors_of(source);
    while (pattern->name != NULL &&
           (pattern->role != role || (pattern->projections & missing) == 0 ||
            !attn_fused_shape(&shape, &source->spec, pattern)))
        pattern++;
    expand(name, family->prefixes[0], pattern->name != NULL ? pattern->name : "",
           attn_config_tensor_index(source->config, source->layer));
    attn_checkpoint_list(there, sizeof there, checkpoint);
    return attn_fail(error, ATTN_NOT_FOUND, name, "tensor '%s' is missing%s%s", name,
                     there[0] != '\0' ? "; the file has " : "", there);
}

enum attn_status attn_bind_layer(struct attn_bindings *out, struct attn_checkpoint *checkpoint,
                                 const struct attn_checkpoint_layer *source,
                                 struct attn_error *error)
{
    const struct attn_family_tensor *pattern = tensors_of(source);
    unsigned bound[ATTN_NUM_ROLES] = {0};
    out->count = 0;
    for (; pattern->name != NULL; pattern++) {
        struct attn_projection_shape shape;
        struct attn_tensor tensor;
        if ((bound[pattern->role] & pattern->projections) != 0 ||
            !attn_fused_shape(&shape, &source->spec, pattern))
            continue;
        enum attn_status status = find_tensor(&tensor, checkpoint, source, pattern, error);
        if (status == ATTN_OK && tensor.entry == NULL)
            continue;
        if (status == ATTN_OK &&
            (pattern->projections & ~attn_needed_projections(&source->spec, pattern->role)) != 0)
            status = attn_fail(error, ATTN_MALFORMED, tensor.entry->name,
                               "tensor '%.96s' is there, but the configuration denies it",
                               tensor.entry->name);
        if (status == ATTN_OK)
            status = check_tensor(source, pattern, tensor.entry, error);
        if (status != ATTN_OK)
            return status;
        bound[pattern->role] |= pattern->projections;
        out->items[out->count++] = (struct attn_binding){pattern, tensor};
    }
    for (enum attn_tensor_role role = 0; role < ATTN_NUM_ROLES; role++) {
        unsigned missing = attn_needed_projections(&source->spec, role) & ~bound[role];
        if (missing != 0)
            return fail_missing(checkpoint, source, role, missing, error);
    }
    return ATTN_OK;
}

enum attn_status attn_weights_check(const char **dtype, struct attn_checkpoint *checkpoint,
                                    const struct attn_config *config, size_t layer,
                                    struct attn_error *error)
{
    struct attn_bindings bindings;
    struct attn_checkpoint_layer source = attn_checkpoint_layer(config, layer);
    enum attn_status status = attn_bind_layer(&bindings, checkpoint, &source, error);
    if (status == ATTN_OK)
        *dtype = bindings.items[0].tensor.entry->dtype->name;
    return status;
}

enum attn_status attn_weights_list(struct attn_read_ahead *ahead,
                                   struct attn_checkpoint *checkpoint,
                                   const struct attn_config *config, size_t layer,
                                   struct attn_error *error)
{
    struct attn_bindings bindings;
    struct attn_checkpoint_layer source = attn_checkpoint_layer(config, layer);
    enum attn_status status = attn_bind_layer(&bindings, checkpoint, &source, error);
    for (size_t i = 0; status == ATTN_OK && i < bindings.count; i++) {
        const struct attn_tensor *tensor = &bindings.items[i].tensor;
        size_t bytes = tensor->entry->end - tensor->entry->begin;
        if (bindings.items[i].pattern->role != ATTN_ROLE_WEIGHT)
            continue;
        if (tensor->npz == NULL) {
            attn_read_ahead_add(ahead, attn_safetensors_descriptor(tensor->file),
                                attn_safetensors_offset(tensor->file, tensor->entry), bytes);
            continue;
        }
        const size_t offset = attn_npz_offset(&bytes, tensor->entry);
        attn_read_ahead_add(ahead, attn_npz_descriptor(tensor->npz), offset, bytes);
    }
    return status;
}
