/* models_md.c: prints docs/MODELS.md from the table of families.
 *
 * Everything that stands there is read from the rows and key lists that the library itself reads
 * configurations by, so the document cannot say other than what is done.  Words for fields are
 * here; `make models-md` writes the file, `make models-check` compares it. */
#include <stdio.h>
#include <string.h>

#include "families/family.h"

#define HF_FIELD(field) offsetof(struct attn_hf_config, field)
#define ROPE_FIELD(field) offsetof(struct attn_hf_rope, field)

/* What a field of the settings means, and what 0 or null in it means. */
struct field_words {
    size_t offset;
    const char *meaning, *zero;
};

static const struct field_words config_words[] = {
    {HF_FIELD(hidden_size), "width E", "required"},
    {HF_FIELD(num_heads), "query heads H", "required"},
    {HF_FIELD(num_kv_heads), "key/value heads G", "H"},
    {HF_FIELD(head_dim), "head width D", "E / H"},
    {HF_FIELD(value_head_dim), "head width of values", "D"},
    {HF_FIELD(key_size), "width of key inputs", "E"},
    {HF_FIELD(value_size), "width of value inputs", "E"},
    {HF_FIELD(num_layers), "layers", "required"},
    {HF_FIELD(num_layers_fallback), "layers, where the key for them is absent", "required"},
    {HF_FIELD(max_position), "longest position", "not given"},
    {HF_FIELD(original_max_position), "trained length of longrope", "as rope_scaling says"},
    {HF_FIELD(seed), "seed of the weights", "0"},
    {HF_FIELD(is_causal), "causal", NULL},
    {HF_FIELD(is_cross), "keys come from another sequence", NULL},
    {HF_FIELD(bias), "biases", NULL},
    {HF_FIELD(bias_kv), "a learned key and value at the end", NULL},
    {HF_FIELD(add_zero_attn), "a key and value of zeros at the end", NULL},
    {HF_FIELD(sinks), "a sink for each head", NULL},
    {HF_FIELD(qk_norm), "RMSNorm of queries and keys", NULL},
    {HF_FIELD(norm_eps), "epsilon of that norm", "0"},
    {HF_FIELD(grouped), "num_kv_heads counts", NULL},
    {HF_FIELD(multi_query), "one key/value head, else H", NULL},
    {HF_FIELD(scale_attn_weights), "scores are divided by sqrt(D)", NULL},
    {HF_FIELD(scale_by_layer), "scores of layer l are divided by l + 1", NULL},
    {HF_FIELD(scale), "scale of scores", "1 / sqrt(D)"},
    {HF_FIELD(query_pre_attn_scalar), "scale is 1 / sqrt of this", "D"},
    {HF_FIELD(softcap), "soft-capping of scores", "none"},
    {HF_FIELD(sliding_window), "window W of sliding layers", "none"},
    {HF_FIELD(use_sliding_window), "layers slide at all", NULL},
    {HF_FIELD(first_sliding), "first sliding layer", "0"},
    {HF_FIELD(num_layer_types), "which layers slide", "by rule"},
    {HF_FIELD(alibi), "ALiBi", NULL},
    {HF_FIELD(alibi_scaled), "ALiBi is divided by sqrt(D)", NULL},
    {HF_FIELD(alibi_bfloat16), "ALiBi is rounded to bfloat16", NULL},
    {HF_FIELD(buckets), "buckets of the relative position bias", "none"},
    {HF_FIELD(max_distance), "distances from here on share a bucket", "required"},
    {HF_FIELD(rope.dim), "components of a head that rotate", "by share"},
    {HF_FIELD(rope.partial_rotary_factor), "share of a head that rotates, rounded down", "all"},
    {HF_FIELD(rope.interleaved), "neighbours rotate, not halves", NULL},
    {HF_FIELD(rope.theta), "RoPE base", "no RoPE"},
};

static const struct field_words rope_words[] = {
    {ROPE_FIELD(type), "type", "required"},
    {ROPE_FIELD(theta), "base", "that beside the object"},
    {ROPE_FIELD(factor), "linear, dynamic, yarn, llama3: required; longrope", "by the lengths"},
    {ROPE_FIELD(attention_factor), "yarn, longrope: multiplies cosine and sine", "by factor"},
    {ROPE_FIELD(mscale), "yarn: of the attention factor, with the next", "not used"},
    {ROPE_FIELD(mscale_all_dim), "yarn: of the attention factor, with the last", "not used"},
    {ROPE_FIELD(low_freq_factor), "llama3", "required"},
    {ROPE_FIELD(high_freq_factor), "llama3", "required"},
    {ROPE_FIELD(beta_fast), "yarn: turns where the ramp begins", "32"},
    {ROPE_FIELD(beta_slow), "yarn: turns where the ramp ends", "1"},
    {ROPE_FIELD(original_max_position), "trained length; llama3: required; yarn, longrope",
     "max_position_embeddings"},
    {ROPE_FIELD(partial_rotary_factor), "share of a head that rotates", "that beside the object"},
    {ROPE_FIELD(truncate), "yarn: the ramp's ends are whole numbers", NULL},
    {ROPE_FIELD(short_factor), "longrope: up to the trained length", "required"},
    {ROPE_FIELD(long_factor), "longrope: beyond it", "required"},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct field_words *words_for(const struct field_words *words, size_t count,
                                           size_t offset)
{
    static const struct field_words none = {0, "", ""};
    for (size_t i = 0; i < count; i++)
        if (words[i].offset == offset)
            return &words[i];
    return &none;
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static void print_bounds(const struct attn_hf_key *key)
{
    switch (key->kind) {
    case ATTN_KEY_SIZE:
        printf("integer, %.0f to %.0f", key->min, key->max);
        break;
    case ATTN_KEY_NUMBER:
        printf("number, %g to %g", key->min, key->max);
        break;
    case ATTN_KEY_FLAG:
        printf("boolean");
        break;
    case ATTN_KEY_ROPE:
        printf("object, or one for each layer type");
        break;
    case ATTN_KEY_ROPE_TYPE:
        printf("name");
        break;
    case ATTN_KEY_FACTORS:
        printf("list of numbers, %g to %g, one a pair", key->min, key->max);
        break;
    case ATTN_KEY_LAYER_TYPES:
        printf("list of `full_attention`, `sliding_attention`");
        break;
    case ATTN_KEY_FIXED:
        printf("only `%s`", key->only);
        break;
    case ATTN_KEY_IGNORED:
        break;
    }
}

/* What holds where the key is absent: the field of `defaults` that it fills. */
static void print_default(const struct attn_hf_key *key, const void *defaults, const char *zero)
{
    const void *field = (const char *)defaults + key->offset;
    bool value = false;
    if (key->kind == ATTN_KEY_SIZE && *(const size_t *)field != 0)
        printf("%zu", *(const size_t *)field);
    else if (key->kind == ATTN_KEY_NUMBER && *(const double *)field != 0)
        printf("%g", *(const double *)field);
    else if (key->kind == ATTN_KEY_FLAG) {
        memcpy(&value, field, sizeof value);
        printf("%s", value ? "true" : "false");
    } else
        printf("%s", zero);
}

static void print_keys(const struct attn_family *family)
{
    printf("\n| key | means | value | absent |\n|---|---|---|---|\n");
    for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++) {
        if (key->kind == ATTN_KEY_IGNORED)
            continue;
        const struct field_words *words = words_for(config_words, COUNT(config_words), key->offset);
        bool plain = key->kind == ATTN_KEY_FIXED || key->kind == ATTN_KEY_ROPE;
        printf("| `%s` | %s | ", key->name,
               key->kind == ATTN_KEY_ROPE ? "RoPE scaling"
               : plain                    ? ""
                                          : words->meaning);
        print_bounds(key);
        printf(" | ");
        if (!plain)
            print_default(key, &family->defaults, words->zero);
        printf(" |\n");
    }

    const char *comma = "\nDoes not touch attention: ";
    for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++)
        if (key->kind == ATTN_KEY_IGNORED) {
            printf("%s`%s`", comma, key->name);
            comma = ", ";
        }
    printf("%s", comma[0] == ',' ? ".\n" : "");
}

/* ---- Tensors ------------------------------------------------------------------------------- */

static void print_projections(unsigned projections)
{
    static const char names[] = "qkvo";
    const char *comma = "";
    for (size_t i = 0; i < 4; i++)
        if ((projections & 1u << i) != 0) {
            printf("%s%c", comma, names[i]);
            comma = ", ";
        }
}

static const char *layout_words(const struct attn_family *family,
                                const struct attn_family_tensor *tensor)
{
    bool fused = tensor->projections == ATTN_PROJ_QKV;
    switch (family->layout) {
    case ATTN_LAYOUT_TRANSPOSED:
        if (tensor->role == ATTN_ROLE_WEIGHT)
            return fused ? "[in, out], columns q, then k, then v" : "[in, out]";
        break;
    case ATTN_LAYOUT_GROUPED:
        if (fused)
            return tensor->role == ATTN_ROLE_WEIGHT
                       ? "[out, in], rows by key/value head: its H/G query heads, k, v"
                       : "[out], in the same order";
        break;
    case ATTN_LAYOUT_PLAIN:
        break;
    }
    if (tensor->role == ATTN_ROLE_WEIGHT)
        return fused ? "[out, in], rows q, then k, then v" : "[out, in]";
    return fused ? "[out], q, then k, then v" : "[out]";
}

static void print_tensors(const struct attn_family *family)
{
    static const char *const roles[ATTN_NUM_ROLES] = {
        "weight of ", "bias of ", "appended ", "norm of ", "sinks", "position bias, for all layers",
    };
    static const char *const shapes[ATTN_NUM_ROLES] = {
        [ATTN_ROLE_BIAS_KV] = "[1, 1, out]",
        [ATTN_ROLE_NORM] = "[D]",
        [ATTN_ROLE_SINKS] = "[H]",
        [ATTN_ROLE_POSITION_BIAS] = "[buckets, H]",
    };
    printf("\n| tensor | holds | stored |\n|---|---|---|\n");
    for (const struct attn_family_tensor *t = family->tensors; t->name != NULL; t++) {
        if (t->role == ATTN_ROLE_BIAS && (t->projections & ~family->unbiased) == 0)
            continue;
        printf("| `%s` | %s", t->name, roles[t->role]);
        if (t->role < ATTN_ROLE_SINKS)
            print_projections(t->projections);
        printf(" | %s |\n", shapes[t->role] != NULL ? shapes[t->role] : layout_words(family, t));
    }
    printf("\nPrefixes, tried in order: ");
    for (const char *const *prefix = family->prefixes; *prefix != NULL; prefix++)
        printf("%s%s%s%s", prefix == family->prefixes ? "" : ", ", **prefix != '\0' ? "`" : "",
               **prefix != '\0' ? *prefix : "none", **prefix != '\0' ? "`" : "");
    printf(".\n");
}

/* ---- What layers are like ------------------------------------------------------------------ */

static const char *key_name(const struct attn_family *family, size_t offset)
{
    const struct attn_hf_key *key = attn_hf_key_for_field(family->keys, offset);
    return key != NULL ? key->name : NULL;
}

static void print_sliding(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const char *types = key_name(family, HF_FIELD(num_layer_types));
    const char *flag = key_name(family, HF_FIELD(use_sliding_window));
    const char *first = key_name(family, HF_FIELD(first_sliding));
    if (key_name(family, HF_FIELD(sliding_window)) == NULL)
        return;
    printf("- Sliding layers: ");
    if (types != NULL)
        printf("those that `%s` says, else ", types);
    if (defaults->sliding_period > 1)
        printf("one in %zu, layer 0 first", defaults->sliding_period);
    else if (first != NULL)
        printf("those from `%s` on", first);
    else
        printf("all");
    printf("%s%s%s.\n", flag != NULL ? ", and none unless `" : "", flag != NULL ? flag : "",
           flag != NULL ? "`" : "");
}

static const char *rope_name(size_t type)
{
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        if (known->type == type)
            return known->name;
    return "none";
}

static void print_rope(const struct attn_family *family)
{
    const struct attn_hf_rope *rope = &family->defaults.rope;
    if (rope->type == ATTN_ROPE_NONE) {
        printf("- RoPE: %s.\n",
               key_name(family, HF_FIELD(rope.theta)) != NULL ? "where a base is given" : "none");
        return;
    }
    printf("- RoPE: %s unless the configuration says, base %g, %s rotate", rope_name(rope->type),
           rope->theta, rope->interleaved ? "neighbours" : "halves");
    if (rope->type == ATTN_ROPE_YARN)
        printf(", factor %g, beta_fast %g, beta_slow %g, truncate %s", rope->factor,
               rope->beta_fast, rope->beta_slow, rope->truncate ? "true" : "false");
    printf("%s.\n", family->defaults.alibi_replaces_rope ? "; none with ALiBi" : "");
}

static void print_traits(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    unsigned biased = ATTN_PROJ_ALL & ~family->unbiased;
    bool rescaled = key_name(family, HF_FIELD(scale_attn_weights)) != NULL ||
                    key_name(family, HF_FIELD(scale)) != NULL ||
                    key_name(family, HF_FIELD(query_pre_attn_scalar)) != NULL;
    printf("- %s, %s; scores are %s%s.\n",
           defaults->is_cross ? "Cross-attention" : "Self-attention",
           defaults->is_causal ? "causal" : "not causal",
           defaults->scale_attn_weights ? "divided by sqrt(D)" : "not scaled",
           rescaled ? " unless a key says otherwise" : "");
    printf("- Biases: ");
    if (biased == 0)
        printf("none");
    else
        print_projections(biased);
    if (biased != 0 && key_name(family, HF_FIELD(bias)) != NULL)
        printf(", where `%s`", key_name(family, HF_FIELD(bias)));
    printf(".\n");
    if (defaults->alibi || key_name(family, HF_FIELD(alibi)) != NULL)
        printf("- ALiBi%s%s%s.\n", defaults->alibi ? "" : ", where `alibi`",
               defaults->alibi_scaled ? ", divided by sqrt(D)" : "",
               defaults->alibi_bfloat16 ? ", rounded to bfloat16" : "");
    if (defaults->buckets != 0)
        printf("- T5 position bias, in %s.\n",
               defaults->is_causal ? "one direction" : "both directions");
    if (defaults->sinks)
        printf("- A sink for each head.\n");
    if (defaults->qk_norm)
        printf("- RMSNorm of each query and key head before RoPE.\n");
    if (family->kv_by_flags)
        printf("- Key/value heads: `%s` where `%s`; else 1 where `%s`, and H where not.\n",
               key_name(family, HF_FIELD(num_kv_heads)), key_name(family, HF_FIELD(grouped)),
               key_name(family, HF_FIELD(multi_query)));
    print_sliding(family);
    print_rope(family);
}

static void print_family(const struct attn_family *family)
{
    printf("\n## %s%s%s\n\n", family->name, family->stack != NULL ? ", stack " : "",
           family->stack != NULL ? family->stack : "");
    if (family->model_type != NULL)
        printf("`\"model_type\": \"%s\"`\n\n", family->model_type);
    else
        printf("The configuration of a random model, which has no tensors to read. Nothing but "
               "these keys is understood.\n\n");
    print_traits(family);
    if (family->tensors != NULL)
        print_tensors(family);
    print_keys(family);
}

/* ---- What families share ------------------------------------------------------------------- */

static void print_rope_keys(void)
{
    static const struct attn_hf_rope defaults = {.truncate = true};
    printf("\n## RoPE scaling\n\nKeys inside `rope_scaling` and `rope_parameters`. The type is one "
           "of");
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        printf("%s `%s`", known == attn_rope_names ? "" : ",", known->name);
    printf(" (the last an old name of `%s`).\nThe object may also hold one such object under "
           "`full_attention` and one under `sliding_attention`.\n",
           rope_name(ATTN_ROPE_LONGROPE));
    printf("\n| key | means | value | absent |\n|---|---|---|---|\n");
    for (const struct attn_hf_key *key = attn_rope_keys; key->name != NULL; key++) {
        const struct field_words *words = words_for(rope_words, COUNT(rope_words), key->offset);
        printf("| `%s` | %s | ", key->name, words->meaning);
        print_bounds(key);
        printf(" | ");
        print_default(key, &defaults, words->zero);
        printf(" |\n");
    }
}

static void print_common(void)
{
    printf("\n## Keys of every family\n\nOf these only one value is computed, unless the family "
           "has a key of that name:\n\n| key | value |\n|---|---|\n");
    for (const struct attn_hf_key *key = attn_common_fixed_keys; key->name != NULL; key++)
        printf("| `%s` | `%s` |\n", key->name, key->only);
    printf("\nThese do not touch attention, nor does any that begins with `_`: ");
    for (const char *const *name = attn_common_ignored_keys; *name != NULL; name++)
        printf("%s`%s`", name == attn_common_ignored_keys ? "" : ", ", *name);
    printf(".\n");
}

int main(void)
{
    printf(
        "# Model families\n\n"
        "Which checkpoints attnd reads, and how. This file is printed by `make models-md` from "
        "the table in\n`lib/families/family_*.c`; `make check` compares the two.\n\n"
        "A checkpoint is a directory as Hugging Face publishes models: `config.json`, and "
        "`model.safetensors` or shards with\n`model.safetensors.index.json`. `model_type` chooses "
        "the family. Every key of the configuration is in one of the\ntables below or is refused "
        "by name. `null` means none, or computed from the rest, also where an absent key has\n"
        "another default. Two keys that mean the same must agree. Tensors are found by name, "
        "layer by layer (`*` is the layer's\nindex), and only those of the layers asked for; "
        "others are not looked at. F32, F16 and BF16 are read.\n\n"
        "Letters: E width, H query heads, G key/value heads, D head width, W window.\n");
    const struct attn_family *family;
    for (size_t i = 0; (family = attn_family_at(i)) != NULL; i++)
        print_family(family);
    print_family(&attn_family_random);
    print_rope_keys();
    print_common();
    return ferror(stdout) != 0;
}
