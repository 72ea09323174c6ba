/* weight_module.c: the tensors beside those that a layer binds, and in the place of missing ones.
 *
 * A layer's own module is what all names of its tensors have in common, up to a dot:
 * "model.layers.0.self_attn.".  Whatever is below it takes part in the layer's computation, so each
 * tensor there is bound, on the list of harmless names, or refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/status.h"
#include "families/quantization.h"
#include "families/weights.h"

#define MERGE "merge the adapter into the weights first (peft: merge_and_unload)"
#define CONVERT "the weights are quantised: convert them to bf16 first"
#define ANY SIZE_MAX /* number of dimensions */
#define UNNORM "fold weight_norm into the weight first (remove_weight_norm)"

/* Tensors below the module that change nothing in what is computed here, and why. */
static const struct {
    const char *name; /* below the module, or with a part of the module's own name */
    size_t ndim;      /* that it must have; ANY: of any shape */
} harmless[] = {
    /* RoPE's frequencies and tables follow from the configuration. */
    {"rotary_emb.inv_freq", ANY},
    {"rotary_emb.cos_cached", ANY},
    {"rotary_emb.sin_cached", ANY},
    {"self.rotary_embeddings.inv_freq", ANY}, /* of ESM */
    /* Which row of its table each pair of patches has, of BEiT. */
    {"attention.relative_position_bias.relative_position_index", 2},
    {"embed_positions", 2}, /* of GPT-J */
    /* The causal mask [1][1][T][T], as a buffer of GPT-2 and GPT-NeoX, and what it puts in. */
    {"bias", 4},
    {"masked_bias", 0},
    {"masked_bias", 1},
    {"causal_mask", 4}, /* of CodeGen */
    /* The same of TransformerLens. */
    {"mask", ANY},
    {"IGNORE", ANY},
    /* Scales of caches and scores in FP8, which there are none of. */
    {"k_scale", ANY},
    {"v_scale", ANY},
    {"q_scale", ANY},
    {"prob_scale", ANY},
    {"k_proj.k_scale", ANY},
    {"v_proj.v_scale", ANY},
    /* The norm of BERT and its kin, which comes after the residual or before the layer. */
    {"output.LayerNorm.weight", ANY},
    {"output.LayerNorm.bias", ANY},
    {"output.LayerNorm.gamma", ANY},
    {"output.LayerNorm.beta", ANY},
    {"LayerNorm.weight", ANY},
    {"LayerNorm.bias", ANY},
    {"ln.weight", ANY},
    {"ln.bias", ANY},
    {"self_attn_layer_norm.weight", ANY},
    {"self_attn_layer_norm.bias", ANY},
    /* No class reads this one, which early checkpoints of T5 have. */
    {"EncDecAttention.relative_attention_bias.weight", ANY},
};

/* The remedy for a tensor whose name below the module has `part` in it; the first that fits. */
static const struct cure {
    const char *part, *remedy;
} remedies[] = {
    {"lora_", MERGE},
    {"base_layer", MERGE},
    {"adapter", MERGE},
    {"modules_to_save", MERGE},
    {"original_module", MERGE},
    {"weight_g", UNNORM},
    {"weight_v", UNNORM},
    {"parametrizations",
     "fold the parametrisation into the weight first (remove_parametrizations)"},
    {"scale", CONVERT},
    {"zero", CONVERT},
    {"packed", CONVERT},
    {"absmax", CONVERT},
    {"quant", CONVERT},
    {"SCB", CONVERT},
    {"g_idx", CONVERT},
};

/* Parts of names that programs put around a model, or a module inside it. */
static const struct cure wrappings[] = {
    {"_fsdp_wrapped_module.", "take '_fsdp_wrapped_module.' (FSDP) out of the names"},
    {"_orig_mod.", "take '_orig_mod.' (torch.compile) out of the names"},
    {"base_layer.", MERGE},
    {"base_model.model.", "take 'base_model.model.' (PEFT) out of the names"},
    {"language_model.", "take 'language_model.' out of the names"},
    {"module.", "take 'module.' (DataParallel) out of the names"},
};

/* Whether the name is `end`, or ends in it after a dot. */
static bool ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), count = strlen(end);
    return length >= count && strcmp(name + length - count, end) == 0 &&
           (length == count || name[length - count - 1] == '.');
}

/* ---- The module ---- */

static bool is_of_stack(const struct attn_family_tensor *pattern)
{
    return pattern->role == ATTN_ROLE_POSITION_BIAS || pattern->role == ATTN_ROLE_POSITION_NORM;
}

/* The first characters, up to a dot, that the names of a layer's tensors have in common. */
static size_t common_length(const struct attn_family_tensor *patterns)
{
    const char *first = patterns[0].name;
    size_t length = strlen(first);
    for (const struct attn_family_tensor *p = patterns; p->name != NULL; p++) {
        size_t same = 0;
        while (!is_of_stack(p) && same < length && p->name[same] == first[same])
            same++;
        length = is_of_stack(p) ? length : same;
    }
    while (length > 0 && first[length - 1] != '.')
        length--;
    return length;
}

/* Writes what the names of a layer's module begin with. */
static void write_root(char out[ATTN_TENSOR_NAME_MAX], const struct attn_checkpoint_layer *source,
                       const char *prefix)
{
    char common[ATTN_TENSOR_NAME_MAX];
    const struct attn_family_tensor *patterns = attn_tensors_of(source);
    snprintf(common, sizeof common, "%.*s", (int)common_length(patterns), patterns[0].name);
    attn_expand_name(out, prefix, common, attn_name_indices(source->config, source->layer, 0));
}

struct module {
    const struct attn_bindings *bindings;
    struct attn_checkpoint *checkpoint;
    const struct attn_checkpoint_layer *source;
    char root[ATTN_TENSOR_NAME_MAX]; /* of all names in the module */
    size_t common;                   /* characters of a pattern that are in the root */
    enum attn_status status;
    struct attn_error *error;
};

/* The binding of the tensor that has the name in the checkpoint, whatever its file calls it. */
static const struct attn_binding *find_binding(struct module *module, const char *name)
{
    const struct attn_bindings *bindings = module->bindings;
    struct attn_tensor tensor = {.entry = NULL};
    if (module->status == ATTN_OK)
        module->status = attn_checkpoint_find(&tensor, module->checkpoint, name, module->error);
    for (size_t i = 0; tensor.entry != NULL && i < bindings->count; i++)
        if (bindings->items[i].tensor.entry == tensor.entry)
            return &bindings->items[i];
    return NULL;
}

/* Whether a tensor of this name is one that a quantised weight is in. */
static bool is_of_quantized(const struct module *module, const char *name)
{
    const struct attn_bindings *bindings = module->bindings;
    for (size_t i = 0; i < bindings->count; i++) {
        const struct attn_quantized *weight = bindings->items[i].tensor.quantized;
        if (weight != NULL && attn_quantization_has(weight, name))
            return true;
    }
    return false;
}

/* Whether a tensor without a place is a bias of zeros beside quantised weights. */
static bool is_zero_bias(struct module *module, const char *name)
{
    struct attn_tensor tensor = {.entry = NULL};
    bool zero = false;
    if (module->status == ATTN_OK && ends_in(name, "bias"))
        module->status = attn_checkpoint_find(&tensor, module->checkpoint, name, module->error);
    if (module->status == ATTN_OK && tensor.entry != NULL)
        module->status = attn_quantization_is_zero(&zero, &module->source->config->hf.quantization,
                                                   &tensor, module->error);
    return zero;
}

/* Whether a layer that reads another's keys and values has a tensor for making its own, which its
 * class leaves unused. */
static bool is_unused(const struct module *module, const char *tail)
{
    const struct attn_family_tensor *p = attn_tensors_of(module->source);
    if (module->source->spec.shares_layer == SIZE_MAX)
        return false;
    while (p->name != NULL && ((p->projections & (ATTN_PROJ_K | ATTN_PROJ_V)) == 0 ||
                               strcmp(p->name + module->common, tail) != 0))
        p++;
    return p->name != NULL;
}

/* Whether the tensor is that of another stack of the family, whose layers have the same module. */
static bool is_of_other_stack(const struct module *module, const char *tail)
{
    const struct attn_family *own = module->source->config->family, *other;
    const char *root = attn_tensors_of(module->source)->name;
    for (size_t i = 0; own->stack != NULL && (other = attn_family_at(i)) != NULL; i++) {
        if (other == own || strcmp(other->model_type, own->model_type) != 0)
            continue;
        for (const struct attn_family_tensor *p = other->tensors; p->name != NULL; p++)
            if (strncmp(p->name, root, module->common) == 0 &&
                strcmp(p->name + module->common, tail) == 0)
                return true;
    }
    return false;
}

/* Whether the tensor is that of a head, beside the first one's, which is bound. */
static bool is_of_head(const struct module *module, const char *tail)
{
    for (size_t i = 0; i < module->bindings->count; i++) {
        const struct attn_family_tensor *p = module->bindings->items[i].pattern;
        const char *mark = strchr(p->name, '#');
        const size_t before = mark != NULL ? (size_t)(mark - p->name) - module->common : 0;
        char *end;
        if (mark == NULL || strncmp(tail, p->name + module->common, before) != 0)
            continue;
        const unsigned long head = strtoul(tail + before, &end, 10);
        if (end != tail + before && head < attn_tensor_heads(module->source, p) &&
            strcmp(end, mark + 1) == 0)
            return true;
    }
    return false;
}

static bool is_harmless(struct module *module, const char *name, const char *tail)
{
    for (size_t i = 0; i < ATTN_COUNT(harmless); i++) {
        struct attn_tensor tensor;
        if (strlen(harmless[i].name) < strlen(tail) || !ends_in(name, harmless[i].name))
            continue;
        if (harmless[i].ndim == ANY)
            return true;
        module->status = attn_checkpoint_find(&tensor, module->checkpoint, name, module->error);
        if (module->status != ATTN_OK ||
            (tensor.entry != NULL && tensor.entry->ndim == harmless[i].ndim))
            return true;
    }
    return false;
}

static void refuse(struct module *module, const char *name, const char *tail)
{
    char own[ATTN_SAFETENSORS_MAX_NAME];
    size_t i = 0;
    attn_checkpoint_name(own, module->checkpoint, name);
    while (i < ATTN_COUNT(remedies) && strstr(tail, remedies[i].part) == NULL)
        i++;
    if (i < ATTN_COUNT(remedies))
        module->status = attn_fail(module->error, ATTN_UNSUPPORTED, own,
                                   "tensor '%.96s' would be left out: %s", own, remedies[i].remedy);
    else
        module->status = attn_fail(module->error, ATTN_UNSUPPORTED, own,
                                   "tensor '%.96s' is no part of a layer of %.32s: is model_type "
                                   "another? If it is not needed, leave it out of the file",
                                   own, module->source->config->family->name);
}

static bool check_name(void *context, const char *name)
{
    struct module *module = context;
    const char *tail = name + strlen(module->root);
    if (find_binding(module, name) == NULL && !is_of_quantized(module, name) &&
        module->status == ATTN_OK && !is_of_head(module, tail) && !is_unused(module, tail) &&
        !is_of_other_stack(module, tail) && !is_harmless(module, name, tail) &&
        !is_zero_bias(module, name) && module->status == ATTN_OK)
        refuse(module, name, tail);
    return module->status == ATTN_OK;
}

/* Whether tensors of the layer are bound by names with this prefix. */
static bool is_used(struct module *module, const char *prefix)
{
    const struct attn_checkpoint_layer *source = module->source;
    char name[ATTN_TENSOR_NAME_MAX];
    for (size_t i = 0; i < module->bindings->count; i++) {
        const struct attn_binding *binding = &module->bindings->items[i];
        attn_expand_name(name, prefix, binding->pattern->name,
                         attn_name_indices(source->config, source->layer, 0));
        const bool quantized =
            binding->tensor.quantized != NULL && strcmp(binding->tensor.entry->name, name) == 0;
        if (!is_of_stack(binding->pattern) && (quantized || find_binding(module, name) == binding))
            return true;
    }
    return false;
}

enum attn_status attn_check_module(const struct attn_bindings *bindings,
                                   struct attn_checkpoint *checkpoint,
                                   const struct attn_checkpoint_layer *source,
                                   struct attn_error *error)
{
    const struct attn_config *config = source->config;
    struct module module = {.bindings = bindings,
                            .checkpoint = checkpoint,
                            .source = source,
                            .common = common_length(attn_tensors_of(source)),
                            .error = error};
    char prefix[ATTN_PREFIX_MAX];
    for (size_t i = 0; module.status == ATTN_OK && attn_config_prefix(prefix, config, i); i++) {
        if (!is_used(&module, prefix))
            continue;
        write_root(module.root, source, prefix);
        attn_checkpoint_visit(checkpoint, module.root, check_name, &module);
    }
    return module.status;
}

/* ---- What is missing ---- */

struct search {
    const char *wanted; /* the end of a name */
    bool indexed; /* it has the layer's index; else the name alone is of a model of one layer */
    char found[ATTN_TENSOR_NAME_MAX];
    const char *remedy;
};

/* Whether `part` stands at the name's beginning or after a dot. */
static char *find_part(char *name, const char *part)
{
    char *at = strstr(name, part);
    while (at != NULL && at != name && at[-1] != '.')
        at = strstr(at + 1, part);
    return at;
}

/* Takes a name that is the wanted one but for what stands before it, or is wrapped around its
 * modules. */
static bool compare_name(void *context, const char *name)
{
    struct search *search = context;
    char plain[ATTN_TENSOR_NAME_MAX];
    if (strlen(name) >= sizeof plain)
        return true;
    memcpy(plain, name, strlen(name) + 1);
    for (size_t i = 0; i < ATTN_COUNT(wrappings); i++)
        for (char *at; (at = find_part(plain, wrappings[i].part)) != NULL;) {
            const char *rest = at + strlen(wrappings[i].part);
            search->remedy = search->remedy == NULL ? wrappings[i].remedy : search->remedy;
            memmove(at, rest, strlen(rest) + 1);
        }
    if (ends_in(plain, search->wanted) && (search->indexed || strcmp(plain, search->wanted) != 0)) {
        memcpy(search->found, name, strlen(name) + 1);
        return false;
    }
    search->remedy = NULL;
    return true;
}

static bool find_adapter(void *context, const char *name)
{
    struct search *search = context;
    if (strstr(name, "lora_") == NULL)
        return true;
    snprintf(search->found, sizeof search->found, "%.150s", name);
    search->remedy = MERGE;
    return false;
}

enum attn_status attn_fail_missing(const struct attn_checkpoint *checkpoint,
                                   const struct attn_checkpoint_layer *source,
                                   enum attn_tensor_role role, unsigned missing,
                                   struct attn_error *error)
{
    char there[96], name[ATTN_TENSOR_NAME_MAX] = "", wanted[ATTN_TENSOR_NAME_MAX];
    char own[ATTN_SAFETENSORS_MAX_NAME];
    struct search search = {.wanted = wanted};
    char prefix[ATTN_PREFIX_MAX];
    const struct attn_family_tensor *pattern = attn_tensors_of(source);
    attn_config_prefix(prefix, source->config, 0);
    const struct attn_name_indices indices = attn_name_indices(source->config, source->layer, 0);
    for (; pattern->name != NULL && search.found[0] == '\0'; pattern++) {
        struct attn_matrix_shape shape;
        if (pattern->role != role || (pattern->projections & missing) == 0 ||
            !attn_fused_shape(&shape, &source->spec, pattern))
            continue;
        attn_expand_name(wanted, "", pattern->name, indices);
        search.indexed = strchr(pattern->name, '*') != NULL;
        attn_checkpoint_visit(checkpoint, "", compare_name, &search);
        if (name[0] == '\0' || search.found[0] != '\0')
            attn_expand_name(name, prefix, pattern->name, indices);
    }
    if (search.found[0] == '\0')
        attn_checkpoint_visit(checkpoint, "", find_adapter, &search);
    if (search.found[0] != '\0')
        return attn_fail(error, ATTN_NOT_FOUND, name,
                         "tensor '%.72s' is missing; there is '%.72s': %s", name, search.found,
                         search.remedy != NULL ? search.remedy : "rename the tensors");
    write_root(wanted, source, prefix);
    attn_checkpoint_list(there, sizeof there, checkpoint, wanted);
    if (there[0] == '\0')
        attn_checkpoint_list(there, sizeof there, checkpoint, "");
    attn_checkpoint_name(own, checkpoint, name);
    return attn_fail(error, ATTN_NOT_FOUND, own, "tensor '%s' is missing%s%s", own,
                     there[0] != '\0' ? "; the file has " : "", there);
}
