/* weights.c: names -> tensors.
 *
 * A layer's tensors are bound first: each projection (q, k, v, o) in each role (weight, bias, ...)
 * that the specification asks for gets the one tensor that holds it, checked in type and shape.
 * After that, reading (weight_reading.c) can fail on the bytes only. */
#include "families/weights.h"

#include <stdio.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "families/quantization.h"

struct attn_checkpoint_layer attn_checkpoint_layer(const struct attn_config *config, size_t layer)
{
    struct attn_checkpoint_layer source = {.config = config, .layer = layer};
    attn_config_layer_spec(&source.spec, config, layer);
    return source;
}

/* ---- Which tensors a specification asks for ------------------------------------------------- */

/* The projections for which the specification asks for a tensor of this role. */
static unsigned needed_projections(const struct attn_members *all, enum attn_tensor_role role)
{
    unsigned needed = 0;
    for (unsigned i = 0; i < ATTN_NUM_MATRICES; i++)
        if ((role == ATTN_ROLE_WEIGHT && all->matrices[i].out != 0) ||
            (role == ATTN_ROLE_BIAS && all->matrices[i].bias))
            needed |= 1u << i;
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++)
        if (all->arrays[i].role == role && all->arrays[i].floats != 0)
            needed |= all->arrays[i].projection;
    return needed;
}

bool attn_fused_shape(struct attn_matrix_shape *out, const struct attn_layer_spec *spec,
                      const struct attn_family_tensor *pattern)
{
    const struct attn_members all = attn_layer_members(spec);
    *out = (struct attn_matrix_shape){.in = 0};
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++) {
        if ((pattern->projections & 1u << i) == 0)
            continue;
        if (out->in != 0 && out->in != all.matrices[i].in && pattern->role == ATTN_ROLE_WEIGHT)
            return false;
        out->in = all.matrices[i].in;
        out->out += all.matrices[i].out;
    }
    return true;
}

/* The shape that the tensor of a pattern has. */
static struct attn_tensor_shape tensor_shape(const struct attn_checkpoint_layer *source,
                                             const struct attn_family_tensor *pattern)
{
    const struct attn_members all = attn_layer_members(&source->spec);
    struct attn_matrix_shape fused;
    size_t i = 0;
    attn_fused_shape(&fused, &source->spec, pattern);
    if (pattern->role == ATTN_ROLE_BIAS)
        return (struct attn_tensor_shape){1, {fused.out}};
    if (pattern->role == ATTN_ROLE_WEIGHT)
        return source->config->layout == ATTN_LAYOUT_TRANSPOSED
                   ? (struct attn_tensor_shape){2, {fused.in, fused.out}}
                   : (struct attn_tensor_shape){2, {fused.out, fused.in}};
    while (all.arrays[i].role != pattern->role || all.arrays[i].projection != pattern->projections)
        i++;
    const struct attn_tensor_shape *shape = &all.arrays[i].shape;
    return strchr(pattern->name, '#') == NULL ? *shape
                                              : (struct attn_tensor_shape){1, {shape->size[1]}};
}

size_t attn_tensor_heads(const struct attn_checkpoint_layer *source,
                         const struct attn_family_tensor *pattern)
{
    const struct attn_layer_spec *spec = &source->spec;
    return strchr(pattern->name, '#') == NULL          ? 0
           : (pattern->projections & ATTN_PROJ_Q) != 0 ? spec->num_heads
                                                       : spec->num_kv_heads;
}

/* ---- Binding ------------------------------------------------------------------------------- */

struct attn_name_indices attn_name_indices(const struct attn_config *config, size_t layer,
                                           size_t head)
{
    const size_t attentions = config->hf.attentions != 0 ? config->hf.attentions : 1;
    const size_t index = attn_config_tensor_index(config, layer);
    return (struct attn_name_indices){index / attentions, head, index % attentions};
}

void attn_expand_name(char out[ATTN_TENSOR_NAME_MAX], const char *prefix, const char *name,
                      struct attn_name_indices indices)
{
    const char *parts[] = {prefix, name};
    size_t at = 0;
    for (size_t i = 0; i < 2; i++)
        for (const char *c = parts[i]; *c != '\0' && at + 24 < ATTN_TENSOR_NAME_MAX; c++) {
            if (*c == '*' || *c == '#' || *c == '%')
                at += (size_t)snprintf(out + at, ATTN_TENSOR_NAME_MAX - at, "%zu",
                                       *c == '*'   ? indices.layer
                                       : *c == '#' ? indices.head
                                                   : indices.attention);
            else
                out[at++] = *c;
        }
    out[at] = '\0';
}

static enum attn_status fail_twice(const char *one, const char *other, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, other,
                     "tensors '%.80s' and '%.80s' hold the same: which of them counts? Leave one "
                     "out of the file",
                     one, other);
}

/* The prefix is the one that has it.  A layer that reads another's cache has the tensors of that
 * layer's keys and values.  A name without an index belongs to a model's only layer, or to a tensor
 * that all layers share. */
enum attn_status attn_find_tensor(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                  const struct attn_checkpoint_layer *source,
                                  const struct attn_family_tensor *pattern, size_t head,
                                  struct attn_error *error)
{
    const struct attn_config *config = source->config;
    bool single = config->num_layers == 1 || pattern->role == ATTN_ROLE_POSITION_BIAS ||
                  pattern->role == ATTN_ROLE_POSITION_NORM;
    bool shared = source->spec.shares_layer != SIZE_MAX &&
                  (pattern->projections & (ATTN_PROJ_K | ATTN_PROJ_V)) != 0;
    size_t layer = shared ? source->spec.shares_layer : source->layer;
    char name[ATTN_TENSOR_NAME_MAX];
    *out = (struct attn_tensor){.entry = NULL};
    char prefix[ATTN_PREFIX_MAX];
    for (size_t i = 0; attn_config_prefix(prefix, config, i); i++) {
        bool indexed = strchr(prefix, '*') != NULL || strchr(pattern->name, '*') != NULL;
        if (!indexed && !single)
            continue;
        struct attn_tensor found;
        attn_expand_name(name, prefix, pattern->name, attn_name_indices(config, layer, head));
        enum attn_status status = attn_checkpoint_find(&found, checkpoint, name, error);
        if (status == ATTN_OK && pattern->role == ATTN_ROLE_WEIGHT && found.npz == NULL &&
            found.gguf == NULL &&
            (found.entry == NULL || !found.entry->dtype->readable ||
             config->hf.quantization.method == ATTN_QUANT_BITSANDBYTES)) {
            struct attn_matrix_shape shape; /* whatever the family's layout */
            struct attn_tensor quantized;
            attn_fused_shape(&shape, &source->spec, pattern);
            status = attn_quantization_find(&quantized, checkpoint, &config->hf.quantization, name,
                                            shape.out, shape.in, error);
            if (status == ATTN_OK && quantized.entry != NULL)
                found = quantized;
        }
        if (status == ATTN_OK && found.entry != NULL && out->entry != NULL)
            status = fail_twice(out->entry->name, found.entry->name, error);
        if (status != ATTN_OK)
            return status;
        if (found.entry != NULL)
            *out = found;
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

/* Refuses a tensor of one's own layer that is stored head by head, as TransformerLens has it: W_Q,
 * W_K, W_V [H][E][D], W_O [H][D][E], biases [H][D].  The message says by which calls of NumPy or
 * PyTorch the matrix is made of it. */
static enum attn_status check_by_head(const struct attn_checkpoint_layer *source,
                                      const struct attn_family_tensor *pattern,
                                      const struct attn_tensor_entry *entry,
                                      struct attn_error *error)
{
    struct attn_matrix_shape whole;
    char got[64];
    const size_t *shape = entry->shape;
    const bool weight = pattern->role == ATTN_ROLE_WEIGHT, o = pattern->projections == ATTN_PROJ_O;
    const size_t width = entry->ndim == 3 ? shape[o ? 1 : 2] : shape[1];
    attn_fused_shape(&whole, &source->spec, pattern);
    if (source->config->family->either_way == NULL || entry->ndim != (weight ? 3u : 2u) ||
        (!weight && pattern->role != ATTN_ROLE_BIAS) ||
        attn_mul(shape[0], width) != (weight && o ? whole.in : whole.out))
        return ATTN_OK;
    write_shape(got, sizeof got, shape, entry->ndim);
    if (!weight)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, entry->name,
                         "tensor '%.64s' is %s, head by head: store .reshape(%zu) of it",
                         entry->name, got, whole.out);
    return attn_fail(
        error, ATTN_SHAPE_MISMATCH, entry->name,
        "tensor '%.64s' is %s, head by head: store %s.reshape(%zu, %zu) of it, and say "
        "transposed true",
        entry->name, got, o ? "" : ".swapaxes(0, 1)", whole.in, whole.out);
}

static enum attn_status check_tensor(const struct attn_checkpoint_layer *source,
                                     const struct attn_family_tensor *pattern,
                                     const struct attn_tensor_entry *entry,
                                     struct attn_error *error)
{
    const struct attn_tensor_shape shape = tensor_shape(source, pattern);
    if (!entry->dtype->readable)
        return attn_fail(error, ATTN_UNSUPPORTED, entry->name,
                         "tensor '%.96s' is %s, supported are F32, F16 and BF16", entry->name,
                         entry->dtype->name);
    enum attn_status status = check_by_head(source, pattern, entry, error);
    if (status != ATTN_OK)
        return status;
    /* Neither the tensor's name nor the configuration may say how the weight is stored. */
    const char *prefix = source->config->family->either_way;
    if (prefix != NULL && !source->config->says_layout && pattern->role == ATTN_ROLE_WEIGHT &&
        strncmp(pattern->name, prefix, strlen(prefix)) == 0)
        return attn_fail(error, ATTN_MALFORMED, "transposed",
                         "transposed must say how '%.80s' is stored: true for [in, out], as in x @ "
                         "W; false for [out, in], as in x @ W.T",
                         entry->name);
    if (entry->ndim == shape.ndim &&
        memcmp(entry->shape, shape.size, shape.ndim * sizeof *shape.size) == 0)
        return ATTN_OK;
    return fail_shape(source, &shape, entry, error);
}

const struct attn_family_tensor *attn_tensors_of(const struct attn_checkpoint_layer *source)
{
    const struct attn_config *config = source->config;
    bool full = config->types[source->layer] == ATTN_LAYER_FULL;
    return config->hf.keys_as_values && full ? config->family->shared_tensors
                                             : config->family->tensors;
}

/* Whether the specification asks for no such tensor. */
static bool is_denied(const struct attn_checkpoint_layer *source,
                      const struct attn_family_tensor *pattern)
{
    const struct attn_members all = attn_layer_members(&source->spec);
    return (pattern->projections & ~needed_projections(&all, pattern->role)) != 0;
}

/* Checks a tensor that was found against the configuration and what is bound already. */
static enum attn_status check_found(const struct attn_bindings *bound,
                                    const struct attn_checkpoint_layer *source,
                                    const struct attn_family_tensor *pattern,
                                    const struct attn_tensor *tensor, struct attn_error *error)
{
    const struct attn_tensor_entry *entry = tensor->entry;
    if (is_denied(source, pattern))
        return attn_fail(error, ATTN_MALFORMED, entry->name,
                         "tensor '%.96s' is there, but the configuration denies it", entry->name);
    for (size_t i = 0; i < bound->count; i++)
        if (bound->items[i].pattern->role == pattern->role &&
            (bound->items[i].pattern->projections & pattern->projections) != 0)
            return fail_twice(bound->items[i].tensor.entry->name, entry->name, error);
    return tensor->quantized != NULL ? ATTN_OK : check_tensor(source, pattern, entry, error);
}

/* Where each head has a tensor: checks those of all heads but the first. */
static enum attn_status check_other_heads(struct attn_checkpoint *checkpoint,
                                          const struct attn_checkpoint_layer *source,
                                          const struct attn_family_tensor *pattern,
                                          struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    const size_t heads = attn_tensor_heads(source, pattern);
    for (size_t head = 1; head < heads && status == ATTN_OK; head++) {
        struct attn_tensor tensor;
        status = attn_find_tensor(&tensor, checkpoint, source, pattern, head, error);
        if (status == ATTN_OK && tensor.entry == NULL)
            status = attn_fail(error, ATTN_NOT_FOUND, pattern->name,
                               "tensor '%.96s' is missing for head %zu of layer %zu", pattern->name,
                               head, source->layer);
        if (status == ATTN_OK)
            status = check_tensor(source, pattern, tensor.entry, error);
    }
    return status;
}

enum attn_status attn_bind_layer(struct attn_bindings *out, struct attn_checkpoint *checkpoint,
                                 const struct attn_checkpoint_layer *source,
                                 struct attn_error *error)
{
    const struct attn_members all = attn_layer_members(&source->spec);
    const struct attn_family_tensor *pattern = attn_tensors_of(source);
    unsigned bound[ATTN_NUM_ROLES] = {0};
    out->count = 0;
    for (; pattern->name != NULL; pattern++) {
        struct attn_matrix_shape shape;
        struct attn_tensor tensor;
        if (!attn_fused_shape(&shape, &source->spec, pattern))
            continue;
        enum attn_status status = attn_find_tensor(&tensor, checkpoint, source, pattern, 0, error);
        bool needless = status == ATTN_OK && tensor.entry == NULL;
        if (status == ATTN_OK && !needless && pattern->role == ATTN_ROLE_BIAS &&
            is_denied(source, pattern))
            status = attn_quantization_is_zero(&needless, &source->config->hf.quantization, &tensor,
                                               error);
        if (status == ATTN_OK && needless)
            continue;
        if (status == ATTN_OK)
            status = check_found(out, source, pattern, &tensor, error);
        if (status == ATTN_OK)
            status = check_other_heads(checkpoint, source, pattern, error);
        if (status != ATTN_OK)
            return status;
        if (out->count == ATTN_MAX_BINDINGS)
            return attn_fail(error, ATTN_UNSUPPORTED, pattern->name,
                             "'%.96s': a layer has more than %d tensors", pattern->name,
                             ATTN_MAX_BINDINGS);
        bound[pattern->role] |= pattern->projections;
        out->items[out->count++] = (struct attn_binding){pattern, tensor};
    }
    for (enum attn_tensor_role role = 0; role < ATTN_NUM_ROLES; role++) {
        unsigned missing = needed_projections(&all, role) & ~bound[role];
        if (missing != 0)
            return attn_fail_missing(checkpoint, source, role, missing, error);
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
        status = attn_check_module(&bindings, checkpoint, &source, error);
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
        size_t offset, bytes;
        const int file = attn_tensor_extent(&offset, &bytes, tensor);
        if (bindings.items[i].pattern->role == ATTN_ROLE_WEIGHT)
            attn_read_ahead_add(ahead, file, offset, bytes);
    }
    return status;
}
