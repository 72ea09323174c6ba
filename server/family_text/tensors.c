/* tensors.c: the tensors of a family. */
#include <stdio.h>
#include <string.h>

#include "family_text/family_text.h"

void add_projections(struct text *text, unsigned projections)
{
    static const struct {
        unsigned projection;
        const char *name;
    } names[] = {
        {ATTN_PROJ_Q, "q"},
        {ATTN_PROJ_K, "k"},
        {ATTN_PROJ_V, "v"},
        {ATTN_PROJ_O, "o"},
        {ATTN_PROJ_GATE, "gate"},
        {ATTN_PROJ_KV_A, "the latent"},
        {ATTN_PROJ_K_ROPE, "the part that rotates"},
        {ATTN_PROJ_Q_A, "the latent of queries"},
        {ATTN_PROJ_INDEX_Q, "the indexer's queries"},
        {ATTN_PROJ_INDEX_K, "the indexer's keys"},
        {ATTN_PROJ_INDEX_W, "the weights of the indexer's heads"},
    };
    const char *comma = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((projections & names[i].projection) != 0) {
            add(text, "%s%s", comma, names[i].name);
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
    case ATTN_LAYOUT_QUARTERS:
        if (fused)
            return "[out, in], rows by quarter of the heads: q, v, k";
        break;
    case ATTN_LAYOUT_PLAIN:
        break;
    }
    if (tensor->role == ATTN_ROLE_WEIGHT)
        return fused ? "[out, in], rows q, then k, then v" : "[out, in]";
    return fused ? "[out], q, then k, then v" : "[out]";
}

static const char *const roles[ATTN_NUM_ROLES] = {
    [ATTN_ROLE_WEIGHT] = "weight of ",
    [ATTN_ROLE_BIAS] = "bias of ",
    [ATTN_ROLE_BIAS_KV] = "appended ",
    [ATTN_ROLE_NORM] = "norm of ",
    [ATTN_ROLE_NORM_BIAS] = "bias of the norm of ",
    [ATTN_ROLE_SINKS] = "sinks",
    [ATTN_ROLE_POSITION_BIAS] = "position bias",
    [ATTN_ROLE_POSITION_NORM] = "norm of its rows, for all layers",
    [ATTN_ROLE_POSITION_PROJECTION] = "map of its rows to ",
    [ATTN_ROLE_POSITION_PROJECTION_BIAS] = "bias of its rows as ",
    [ATTN_ROLE_POSITION_GATE] = "gate of the position bias",
    [ATTN_ROLE_LAMBDA] = "part of lambda",
    [ATTN_ROLE_DYNAMIC_MASK] = "dynamic mask",
};
static const char *const shapes[ATTN_NUM_ROLES] = {
    [ATTN_ROLE_BIAS_KV] = "[1, 1, out]",
    [ATTN_ROLE_NORM] = "[D]",
    [ATTN_ROLE_SINKS] = "[H]",
    [ATTN_ROLE_POSITION_BIAS] = "[buckets, H]",
    [ATTN_ROLE_POSITION_NORM] = "[E]",
    [ATTN_ROLE_POSITION_PROJECTION] = "[out, E]",
    [ATTN_ROLE_POSITION_PROJECTION_BIAS] = "[out]",
    [ATTN_ROLE_POSITION_GATE] = "[8]",
    [ATTN_ROLE_LAMBDA] = "[D]",
    [ATTN_ROLE_DYNAMIC_MASK] = "[G]",
};

static void print_prefixes(const struct attn_family *family)
{
    struct text p = {.length = 0};
    for (const char *const *prefix = family->prefixes; *prefix != NULL; prefix++)
        add(&p, "%s %s%s%s", p.length == 0 ? "Prefixes of these names, tried in order:" : ",",
            **prefix != '\0' ? "`" : "", **prefix != '\0' ? *prefix : "none",
            **prefix != '\0' ? "`" : "");
    add(&p, family->submodel_type != NULL
                ? "; before these, that of the text model inside the whole one, such as "
                  "`language_model.`."
                : ".");
    print_paragraph(&p);
}

void print_tensors(const struct attn_family *family)
{
    struct text table = {.length = 0};
    add(&table, "| tensor | holds | stored |\n");
    for (const struct attn_family_tensor *t = family->tensors; t->name != NULL; t++) {
        if (t->role == ATTN_ROLE_BIAS && (t->projections & ~family->unbiased) == 0)
            continue;
        add(&table, "| `%s` | %s", t->name, roles[t->role]);
        if (t->role == ATTN_ROLE_POSITION_BIAS && strchr(t->name, '*') == NULL)
            add(&table, ", for all layers");
        if (t->role < ATTN_ROLE_SINKS || t->role == ATTN_ROLE_NORM_BIAS ||
            t->role == ATTN_ROLE_POSITION_PROJECTION ||
            t->role == ATTN_ROLE_POSITION_PROJECTION_BIAS)
            add_projections(&table, t->projections);
        const bool table_of = t->role == ATTN_ROLE_POSITION_BIAS;
        const bool gate = t->role == ATTN_ROLE_POSITION_GATE;
        add(&table, " | %s |\n",
            table_of && key_name(family, HF_FIELD(position_terms)) != NULL ? "[2S, E]"
            : table_of && key_name(family, HF_FIELD(relative_positions)) != NULL
                ? "[2 max_position_embeddings - 1, D]"
            : table_of && family->defaults.relative_key == 1                     ? "[distances, D]"
            : table_of && key_name(family, HF_FIELD(grid_bias)) != NULL          ? "[distances, H]"
            : gate && t->projections == ATTN_PROJ_Q                              ? "[8, D]"
            : gate && t->projections == ATTN_PROJ_V                              ? "[1, H, 1, 1]"
            : t->role == ATTN_ROLE_DYNAMIC_MASK && t->projections == ATTN_PROJ_Q ? "[G, G*Dv]"
            : shapes[t->role] != NULL                                            ? shapes[t->role]
                                      : layout_words(family, t));
    }
    printf("\n");
    print_table(&table);
    printf("\n");
    print_prefixes(family);
}
