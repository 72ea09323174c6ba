/* models_md.c: prints docs/MODELS.md from the table of families.
 *
 * Keys, values, tensors and defaults are read from the rows by which the library itself reads
 * configurations, so the document cannot say other than what the library does.  The words for
 * fields stand in models_words.h.  `make models-md` writes the file, `make models-check` compares
 * it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "families/family.h"
#include "models_own.h"
#include "models_words.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- Paragraphs ---------------------------------------------------------------------------- */

#define COLUMNS 120 /* of a line, outside tables */

/* Text that is gathered and then printed in lines of at most COLUMNS. */
struct paragraph {
    char text[8192];
    size_t length;
};

static void add(struct paragraph *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct paragraph *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(p->text + p->length, sizeof p->text - p->length, format, args);
    va_end(args);
    p->length += (size_t)length;
}

/* Prints and empties the paragraph.  Further lines of a list item ("- ...") are indented. */
static void print_paragraph(struct paragraph *p)
{
    const size_t indent = p->text[0] == '-' ? 2 : 0;
    const char *word = p->text;
    size_t column = 0;
    while (*word != '\0') {
        size_t length = strcspn(word, " ");
        if (column > 0 && column + 1 + length > COLUMNS)
            column = (size_t)printf("\n%*s", (int)indent, "") - 1;
        else if (column > 0)
            column += (size_t)printf(" ");
        column += (size_t)printf("%.*s", (int)length, word);
        word += length + (word[length] == ' ');
    }
    printf("\n");
    *p = (struct paragraph){.length = 0};
}

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

static void print_bounds(const struct attn_hf_key *key, const struct attn_family *family)
{
    switch (key->kind) {
    case ATTN_CONFIG_INTEGER:
        printf("integer, %.0f to %.0f", key->min, key->max);
        break;
    case ATTN_CONFIG_NUMBER:
        printf("number, %g to %g", key->min, key->max);
        break;
    case ATTN_CONFIG_FLAG:
        printf("boolean");
        break;
    case ATTN_CONFIG_ROPE:
        printf("object, or one for each layer type");
        break;
    case ATTN_CONFIG_ROPE_TYPE:
        printf("name");
        break;
    case ATTN_CONFIG_FACTORS:
        printf("list of numbers, %g to %g, one a pair", key->min, key->max);
        break;
    case ATTN_CONFIG_LAYER_TYPES:
        printf("list of");
        for (size_t type = 0, n = 0; type < ATTN_NUM_LAYER_TYPES; type++)
            if (attn_layer_type_find(family, attn_layer_types[type]) == type)
                printf("%s `%s`", n++ > 0 ? "," : "", attn_layer_types[type]);
        break;
    case ATTN_CONFIG_PERIOD:
        printf("integer, %.0f to %.0f, or letters such as `LLLG`", key->min, key->max);
        break;
    case ATTN_CONFIG_ROPE_LAYERS:
        printf("list of 1 (rotates) and 0");
        break;
    case ATTN_CONFIG_NAME:
        printf("one of the names `%s`", key->only);
        break;
    case ATTN_CONFIG_FIXED:
        printf("only `%s`", key->only);
        break;
    case ATTN_CONFIG_TERMS:
        printf("`c2p`, `p2c` or both: a list, or with \\| between");
        break;
    case ATTN_CONFIG_OBJECT:
    case ATTN_CONFIG_IGNORED:
        break;
    }
}

/* The default of a key: the field of `defaults` that the key fills. */
static void print_default(const struct attn_hf_key *key, const void *defaults, const char *zero)
{
    const void *field = (const char *)defaults + key->offset;
    bool value = false;
    bool counts = key->kind == ATTN_CONFIG_INTEGER || key->kind == ATTN_CONFIG_PERIOD;
    if (counts && *(const size_t *)field != 0)
        printf("%zu", *(const size_t *)field);
    else if (key->kind == ATTN_CONFIG_NUMBER && *(const double *)field != 0)
        printf("%g", *(const double *)field);
    else if (key->kind == ATTN_CONFIG_FLAG) {
        memcpy(&value, field, sizeof value);
        printf("%s", value ? "true" : "false");
    } else
        printf("%s", zero);
}

static void print_keys(const struct attn_family *family)
{
    printf("\n| key | meaning | value | if absent |\n|---|---|---|---|\n");
    for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++) {
        if (key->kind == ATTN_CONFIG_IGNORED || key->kind == ATTN_CONFIG_OBJECT)
            continue;
        const struct field_words *words = words_for(config_words, COUNT(config_words), key->offset);
        bool plain = key->kind == ATTN_CONFIG_FIXED || key->kind == ATTN_CONFIG_ROPE;
        printf("| `%s` | %s | ", key->name,
               key->kind == ATTN_CONFIG_ROPE ? "RoPE scaling"
               : plain                       ? ""
                                             : words->meaning);
        print_bounds(key, family);
        printf(" | ");
        if (!plain)
            print_default(key, &family->defaults, words->zero);
        printf(" |\n");
    }

    struct paragraph ignored = {.length = 0};
    for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++)
        if (key->kind == ATTN_CONFIG_IGNORED)
            add(&ignored, "%s `%s`",
                ignored.length == 0 ? "Keys that do not touch attention:" : ",", key->name);
    if (ignored.length == 0)
        return;
    add(&ignored, ".");
    printf("\n");
    print_paragraph(&ignored);
}

/* ---- Tensors ------------------------------------------------------------------------------- */

static void print_projections(unsigned projections)
{
    static const struct {
        unsigned projection;
        const char *name;
    } names[] = {
        {ATTN_PROJ_Q, "q"},
        {ATTN_PROJ_K, "k"},
        {ATTN_PROJ_V, "v"},
        {ATTN_PROJ_O, "o"},
        {ATTN_PROJ_KV_A, "the latent"},
        {ATTN_PROJ_K_ROPE, "the part that rotates"},
        {ATTN_PROJ_Q_A, "the latent of queries"},
    };
    const char *comma = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((projections & names[i].projection) != 0) {
            printf("%s%s", comma, names[i].name);
            comma = ", ";
        }
}

static const char *layout_words(const struct attn_family *family,
                                const struct attn_family_tensor *tensor)
{
    bool fused = tensor->projections == ATTN_PROJ_QKV;
    if (tensor->projections == (ATTN_PROJ_K | ATTN_PROJ_V))
        return "[out, in], rows by head: k without its part that rotates, v";
    if (tensor->role == ATTN_ROLE_WEIGHT && (tensor->projections & ATTN_PROJ_K_ROPE) != 0)
        return "[out, in], rows of the latent, then of the part";
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

static const char *key_name(const struct attn_family *family, size_t offset)
{
    const struct attn_hf_key *key = attn_hf_key_for_field(family->keys, offset);
    return key != NULL ? key->name : NULL;
}

static void print_prefixes(const struct attn_family *family)
{
    struct paragraph prefixes = {.length = 0};
    for (const char *const *prefix = family->prefixes; *prefix != NULL; prefix++)
        add(&prefixes, "%s %s%s%s",
            prefixes.length == 0 ? "Prefixes of these names, tried in order:" : ",",
            **prefix != '\0' ? "`" : "", **prefix != '\0' ? *prefix : "none",
            **prefix != '\0' ? "`" : "");
    add(&prefixes, ".");
    print_paragraph(&prefixes);
}

static void print_tensors(const struct attn_family *family)
{
    static const char *const roles[ATTN_NUM_ROLES] = {
        [ATTN_ROLE_WEIGHT] = "weight of ",
        [ATTN_ROLE_BIAS] = "bias of ",
        [ATTN_ROLE_BIAS_KV] = "appended ",
        [ATTN_ROLE_NORM] = "norm of ",
        [ATTN_ROLE_NORM_BIAS] = "bias of the norm of ",
        [ATTN_ROLE_SINKS] = "sinks",
        [ATTN_ROLE_POSITION_BIAS] = "position bias, for all layers",
        [ATTN_ROLE_POSITION_NORM] = "norm of its rows, for all layers",
    };
    static const char *const shapes[ATTN_NUM_ROLES] = {
        [ATTN_ROLE_BIAS_KV] = "[1, 1, out]", [ATTN_ROLE_NORM] = "[D]",
        [ATTN_ROLE_SINKS] = "[H]",           [ATTN_ROLE_POSITION_BIAS] = "[buckets, H]",
        [ATTN_ROLE_POSITION_NORM] = "[E]",
    };
    printf("\n| tensor | holds | stored |\n|---|---|---|\n");
    for (const struct attn_family_tensor *t = family->tensors; t->name != NULL; t++) {
        if (t->role == ATTN_ROLE_BIAS && (t->projections & ~family->unbiased) == 0)
            continue;
        printf("| `%s` | %s", t->name, roles[t->role]);
        if (t->role < ATTN_ROLE_SINKS || t->role == ATTN_ROLE_NORM_BIAS)
            print_projections(t->projections);
        const bool rows = t->role == ATTN_ROLE_POSITION_BIAS &&
                          key_name(family, HF_FIELD(position_terms)) != NULL;
        printf(" | %s |\n", rows                      ? "[2S, E]"
                            : shapes[t->role] != NULL ? shapes[t->role]
                                                      : layout_words(family, t));
    }
    printf("\n");
    print_prefixes(family);
}

/* ---- Traits of layers ---------------------------------------------------------------------- */

static void print_sliding(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const char *types = key_name(family, HF_FIELD(num_layer_types));
    const char *flag = key_name(family, HF_FIELD(use_sliding_window));
    const char *first = key_name(family, HF_FIELD(first_sliding));
    struct paragraph p = {.length = 0};
    if (key_name(family, HF_FIELD(sliding_window)) == NULL)
        return;
    add(&p, "- Sliding window: ");
    if (flag != NULL)
        add(&p, "only if `%s` is true, ", flag);
    if (types != NULL)
        add(&p, "in the layers that `%s` calls `sliding_attention`; without that key, ", types);
    if (key_name(family, HF_FIELD(full_period)) != NULL)
        add(&p, "in all but each n-th layer, n being `%s`, the last of n",
            key_name(family, HF_FIELD(full_period)));
    else if (defaults->full_period != 0)
        add(&p, "in all but the last of each %zu layers", defaults->full_period);
    else if (defaults->sliding_period > 1)
        add(&p, "in one layer of %zu, layer 0 first", defaults->sliding_period);
    else if (first != NULL)
        add(&p, "in the layers from `%s` on", first);
    else
        add(&p, "in all layers");
    add(&p, ".");
    print_paragraph(&p);
}

static const char *rope_name(size_t type)
{
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        if (known->type == type)
            return known->name;
    return "none";
}

/* Which layers rotate, and what sliding layers have of their own. */
static void print_rotating(struct paragraph *p, const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const char *list = key_name(family, HF_FIELD(num_rope_layers));
    if (defaults->rope_layers == ATTN_ROPE_SLIDING_ONLY)
        add(p, " Only sliding layers rotate.");
    if (defaults->rope_layers == ATTN_ROPE_IF_WINDOW)
        add(p, " With a window only sliding layers rotate.");
    if (list != NULL)
        add(p, " `%s` has 1 for a layer that rotates; without it, all rotate", list);
    if (list != NULL && key_name(family, HF_FIELD(no_rope_period)) != NULL)
        add(p, " but each n-th, n being `%s`", key_name(family, HF_FIELD(no_rope_period)));
    if (list != NULL)
        add(p, ".");
    if (defaults->rope_by_type && defaults->sliding_rope.theta != 0)
        add(p, " Sliding layers have base %g and no scaling.", defaults->sliding_rope.theta);
    else if (defaults->rope_by_type)
        add(p, " Scaling holds for full layers only.");
    if (family->mrope)
        add(p, " `mrope` is plain RoPE: the positions of its sections are one row.");
}

static void print_rope(const struct attn_family *family)
{
    const struct attn_hf_rope *rope = &family->defaults.rope;
    struct paragraph p = {.length = 0};
    if (rope->type == ATTN_ROPE_NONE)
        add(&p, "- RoPE: %s.",
            key_name(family, HF_FIELD(rope.theta)) != NULL ? "if a base is given" : "none");
    else
        add(&p, "- RoPE: type `%s`, base %g, unless keys say otherwise; pairs are %s",
            rope_name(rope->type), rope->theta, rope->interleaved ? "neighbours" : "halves");
    if (rope->type == ATTN_ROPE_YARN)
        add(&p, "; factor %g, beta_fast %g, beta_slow %g, truncate %s", rope->factor,
            rope->beta_fast, rope->beta_slow, rope->truncate ? "true" : "false");
    if (rope->type != ATTN_ROPE_NONE)
        add(&p, "%s.", family->defaults.alibi_replaces_rope ? "; none with ALiBi" : "");
    print_rotating(&p, family);
    print_paragraph(&p);
}

static void print_biases(const struct attn_family *family)
{
    const bool always = family->defaults.o_bias;
    unsigned biased = ATTN_PROJ_ALL & ~family->unbiased & ~(always ? ATTN_PROJ_O : 0u);
    const char *flag = key_name(family, HF_FIELD(bias));
    printf("- Biases: ");
    if (biased == 0)
        printf("none");
    else
        print_projections(biased);
    if (biased != 0 && flag != NULL)
        printf(", if `%s` is true", flag);
    printf("%s.\n", always ? "; always o" : "");
}

static void print_kv_heads(const struct attn_family *family)
{
    struct paragraph p = {.length = 0};
    add(&p, "- Key/value heads: `%s` if `%s` is true; else 1 if `%s` is true; else H.",
        key_name(family, HF_FIELD(num_kv_heads)), key_name(family, HF_FIELD(grouped)),
        key_name(family, HF_FIELD(multi_query)));
    print_paragraph(&p);
}

/* The norms of queries, keys and values. */
static void print_norms(const struct attn_family *family)
{
    static const char *const extents[] = {
        [ATTN_NORM_HEAD] = "each query and key head",
        [ATTN_NORM_EACH_HEAD] = "each query and key head, with weights of its own",
        [ATTN_NORM_ALL_HEADS] = "all query heads as one vector, and of all key heads",
    };
    const struct attn_hf_config *defaults = &family->defaults;
    const char *flag = key_name(family, HF_FIELD(qk_norm));
    struct paragraph p = {.length = 0};
    if (defaults->kv_lora_rank > 0) {
        add(&p,
            "- Latent attention: k and v are made of RMSNorm(latent), the last components of k, "
            "which rotate, are the same for all heads, q is made of RMSNorm(latent) where there "
            "is one. A session keeps the latent and the shared part of each token.");
        print_paragraph(&p);
    }
    if (!defaults->qk_norm && flag == NULL)
        return;
    add(&p, "- %s%s of %s %s RoPE",
        defaults->norm_type == ATTN_NORM_LAYER ? "LayerNorm" : "RMSNorm",
        defaults->norm_weightless ? " without weights" : "", extents[defaults->norm_extent],
        defaults->norm_after_rope ? "after" : "before");
    if (defaults->norm_bias)
        add(&p, ", with a bias");
    if (family->norm_plus_one)
        add(&p, ", its weights stored as w - 1");
    if (flag != NULL)
        add(&p, ", if `%s` is true", flag);
    add(&p, "%s.%s", defaults->norm_rope_layers ? ", in layers that rotate" : "",
        defaults->v_norm ? " RMSNorm without weights of each value head." : "");
    print_paragraph(&p);
}

/* Keys of RoPE objects that this family alone has. */
static void print_own_rope_keys(const struct attn_family *family)
{
    struct paragraph p = {.length = 0};
    add(&p, "- Further keys inside a RoPE object:");
    for (const struct attn_hf_key *key = family->rope_keys; key->name != NULL; key++)
        add(&p, "%s `%s`%s", key == family->rope_keys ? "" : ",", key->name,
            key->kind == ATTN_CONFIG_IGNORED ? " (ignored)" : "");
    add(&p, ".");
    print_paragraph(&p);
}

/* Layers that are neither full nor sliding, and what full layers have of their own. */
static void print_types(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    struct paragraph p = {.length = 0};
    if (defaults->other_type == ATTN_LAYER_LINEAR)
        add(&p,
            "- `linear_attention` layers (all but the last of each `%s`, where `layer_types` is "
            "absent) are listed, but not computed: they are no part of all layers, and refused by "
            "name.",
            key_name(family, HF_FIELD(full_period)));
    if (defaults->other_type == ATTN_LAYER_CHUNKED)
        add(&p,
            "- `chunked_attention` layers: a query sees the keys of its chunk of `%s`. Where "
            "`layer_types` is absent, the layers that rotate are chunked. The others scale their "
            "queries.",
            key_name(family, HF_FIELD(attention_chunk_size)));
    else if (key_name(family, HF_FIELD(attention_chunk_size)) != NULL)
        add(&p,
            "- A query sees the keys of its chunk of `attention_chunk_size`, counted from the "
            "first "
            "real token, in the layers that `layer_types` calls `chunked_attention`; without that "
            "key, in all layers. The window of a layer that is not causal reaches both ways. With "
            "`floor_scale` queries are multiplied, after RoPE, by 1 + attn_scale ln(1 + floor(p / "
            "floor_scale)), p being their position.");
    if (key_name(family, HF_FIELD(global_head_dim)) != NULL)
        add(&p,
            "- Full layers have heads of `global_head_dim`; with `attention_k_eq_v` also "
            "`num_global_key_value_heads`, and the weights of k serve for v. The last layer is "
            "full. The last `num_kv_shared_layers` layers have no k and v: they read the cache of "
            "the last earlier layer of their type.");
    if (p.length != 0)
        print_paragraph(&p);
}

static void print_traits(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    bool rescaled = key_name(family, HF_FIELD(scale_attn_weights)) != NULL ||
                    key_name(family, HF_FIELD(scale)) != NULL ||
                    key_name(family, HF_FIELD(query_pre_attn_scalar)) != NULL;
    printf(
        "- %s, %s. Scores are %s%s.\n", defaults->is_cross ? "Cross-attention" : "Self-attention",
        defaults->is_causal ? "causal" : "not causal",
        defaults->scale_attn_weights && defaults->scale == 0 ? "divided by sqrt(D)" : "not scaled",
        rescaled ? " unless a key says otherwise" : "");
    print_biases(family);
    if (defaults->num_groups != 0)
        printf("- Layers of a group share tensors, resident once; `*` is the group's index.\n");
    if (defaults->alibi || key_name(family, HF_FIELD(alibi)) != NULL)
        printf("- ALiBi%s%s%s%s.\n", defaults->alibi ? "" : ", if `alibi` is true",
               defaults->alibi_scaled ? ", divided by sqrt(D)" : "",
               defaults->alibi_bfloat16 ? ", rounded to bfloat16" : "",
               defaults->alibi_by_slot ? "; padding counts in its distances" : "");
    if (defaults->buckets != 0)
        printf("- T5 position bias, in %s.\n",
               defaults->is_causal ? "one direction" : "both directions");
    if (key_name(family, HF_FIELD(position_terms)) != NULL)
        printf("- Disentangled position bias: scores are divided by sqrt(D (1 + its terms)).\n");
    if (defaults->sinks)
        printf("- Each head has a sink.\n");
    print_norms(family);
    if (defaults->output_gate)
        printf("- Rows of heads are multiplied by sigmoid(gate) before the output projection.\n");
    if (family->either_way != NULL)
        printf(
            "- A weight's name that begins with `%s` does not say how it is stored: `transposed` "
            "must.\n",
            family->either_way);
    if (family->kv_by_flags)
        print_kv_heads(family);
    print_sliding(family);
    print_types(family);
    print_rope(family);
    if (family->rope_keys != NULL)
        print_own_rope_keys(family);
}

static void print_model_type(const struct attn_family *family)
{
    printf("`\"model_type\": \"%s\"`", family->model_type);
    if (family->subconfig != NULL)
        printf("; settings stand under `%s`", family->subconfig);
    if (family->subconfig != NULL && family->submodel_type != NULL)
        printf(", whose `model_type` is `%s`", family->submodel_type);
    printf("\n\n");
}

/* The first row that differs in its names only; NULL where this is the first. */
static const struct attn_family *alike(const struct attn_family *family)
{
    const struct attn_family *other;
    for (size_t i = 0; (other = attn_family_at(i)) != NULL && other != family; i++)
        if (other->keys == family->keys && other->tensors == family->tensors &&
            other->rope_keys == family->rope_keys && other->stack == family->stack &&
            memcmp(&other->defaults, &family->defaults, sizeof other->defaults) == 0)
            return other;
    return NULL;
}

static void print_family(const struct attn_family *family)
{
    printf("\n## %s%s%s\n\n", family->name, family->stack != NULL ? ", stack " : "",
           family->stack != NULL ? family->stack : "");
    if (family->model_type != NULL)
        print_model_type(family);
    else
        printf("The configuration of a model of random weights, which has no tensors to read. Keys "
               "that are not in this table are\nrefused.\n\n");
    const struct attn_family *like = alike(family);
    if (like != NULL) {
        printf("As [%s](#%s%s%s)", like->name, like->name, like->stack != NULL ? "-stack-" : "",
               like->stack != NULL ? like->stack : "");
        printf(".\n");
        if (like->prefixes != family->prefixes && *family->prefixes != NULL) {
            printf("\n");
            print_prefixes(family);
        }
        return;
    }
    print_traits(family);
    if (family->tensors != NULL)
        print_tensors(family);
    print_keys(family);
}

/* ---- What families share ------------------------------------------------------------------- */

static void print_rope_keys(void)
{
    static const struct attn_hf_rope defaults = {.truncate = true};
    struct paragraph p = {.length = 0};
    printf("\n## RoPE scaling\n\n");
    add(&p, "`rope_scaling` and `rope_parameters` are objects of the keys below. The type is one "
            "of");
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        add(&p, "%s `%s`", known == attn_rope_names ? "" : ",", known->name);
    add(&p,
        " (the last is an old name of `%s`). Instead of these keys the object may hold one such "
        "object under `full_attention` and one under `sliding_attention`, for the two types of "
        "layers. A session of `%s` stays on its side of the trained length "
        "([why](API.md#longrope)); with `%s` cached keys keep the rotation of the length at which "
        "they were written.",
        rope_name(ATTN_ROPE_LONGROPE), rope_name(ATTN_ROPE_LONGROPE), rope_name(ATTN_ROPE_DYNAMIC));
    print_paragraph(&p);
    printf("\n| key | meaning | value | if absent |\n|---|---|---|---|\n");
    for (const struct attn_hf_key *key = attn_rope_keys; key->name != NULL; key++) {
        const struct field_words *words = words_for(rope_words, COUNT(rope_words), key->offset);
        printf("| `%s` | %s | ", key->name, words->meaning);
        print_bounds(key, NULL);
        printf(" | ");
        print_default(key, &defaults, words->zero);
        printf(" |\n");
    }
}

static void print_common(void)
{
    struct paragraph p = {.length = 0};
    printf("\n## Keys of every family\n\nFor each of these keys only one value is computed; any "
           "other is refused. A family that has a key of that name in its\nown table understands "
           "it as described there.\n\n| key | value |\n|---|---|\n");
    for (const struct attn_hf_key *key = attn_common_fixed_keys; key->name != NULL; key++)
        printf("| `%s` | `%s` |\n", key->name, key->only);
    printf("\n");
    add(&p, "Keys that begin with `_` do not touch attention, nor do these:");
    for (const char *const *name = attn_common_ignored_keys; *name != NULL; name++)
        add(&p, "%s `%s`", name == attn_common_ignored_keys ? "" : ",", *name);
    add(&p, ".");
    print_paragraph(&p);
}

int main(void)
{
    printf(
        "# Model families\n\n"
        "The checkpoints that attnd reads, and how it reads them. `make models-md` prints this "
        "file from the table in\n`lib/families/`; `make check` compares the two.\n\n"
        "A checkpoint is a directory as Hugging Face publishes models: `config.json`, and "
        "`model.safetensors` or shards with\n`model.safetensors.index.json`. The key `model_type` "
        "of the configuration selects the family.\n\n"
        "- Every key of the configuration is in one of the tables below, or is refused by name.\n"
        "- `null` means none, or computed from the rest, also where an absent key has another "
        "default.\n"
        "- Two keys of the same meaning must agree.\n"
        "- Tensors are found by name, layer by layer; `*` in a name is the layer's index. Tensors "
        "of layers that are not\n  asked for are not looked at.\n"
        "- Tensors of F32, F16 and BF16 are read.\n"
        "- Every tensor of a layer's own module, which is what its names below "
        "have in common (`model.layers.0.self_attn.`), is\n"
        "  in the family's table, changes nothing, or is refused by name. "
        "These change nothing: `rotary_emb.inv_freq` and its\n"
        "  tables, and GPT-J's `embed_positions`, follow from the "
        "configuration; `bias` [1, 1, T, T] and `masked_bias` are the\n"
        "  causal mask of GPT-2 and GPT-NeoX, `mask` and `IGNORE` that of "
        "TransformerLens; `k_scale`, `v_scale`, `q_scale` and\n"
        "  `prob_scale` are of FP8 caches; `LayerNorm.*` of BERT comes after "
        "the residual; no class reads T5's\n"
        "  `relative_attention_bias` of cross-attention, or the keys and "
        "values of a layer that has an earlier layer's.\n"
        "- One tensor under two names or prefixes is refused.\n"
        "- Adapters (LoRA, DoRA) are not applied: a directory with `adapter_config.json` is "
        "refused, "
        "and so are their tensors.\n  Merge them into the weights first (peft: "
        "`merge_and_unload`).\n"
        "- Names that begin with `module.`, `_orig_mod.`, `base_model.model.` and the like are "
        "refused with the part to take out.\n"
        "- A class in `architectures` that attends otherwise than `model_type` says "
        "(`LlamaBiModel`) "
        "is refused.\n"
        "- Of a family with several stacks the one that stands first is the default; `stack` of a "
        "model names another.\n\n"
        "Letters: E width, H query heads, G key/value heads, D head width, W window.\n");
    fputs(models_own, stdout);
    const struct attn_family *family;
    for (size_t i = 0; (family = attn_family_at(i)) != NULL; i++)
        print_family(family);
    print_family(&attn_family_random);
    print_rope_keys();
    print_common();
    return ferror(stdout) != 0;
}
