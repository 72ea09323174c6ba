/* keys.c: the keys of configurations: of a family, of RoPE objects, and those that all families
 * share. */
#include <stdio.h>
#include <string.h>

#include "family_text/family_text.h"
#include "family_text/words.h"

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

/* Adds which values the key may have. */
static void add_bounds(struct text *row, const struct attn_hf_key *key,
                       const struct attn_family *family)
{
    switch (key->kind) {
    case ATTN_CONFIG_INTEGER:
        add(row, "integer, %.0f to %.0f", key->min, key->max);
        break;
    case ATTN_CONFIG_NUMBER:
        add(row, "number, %g to %g", key->min, key->max);
        break;
    case ATTN_CONFIG_FLAG:
        add(row, "boolean");
        break;
    case ATTN_CONFIG_ROPE:
        add(row, "object, or one for each layer type");
        break;
    case ATTN_CONFIG_ROPE_TYPE:
        add(row, "name");
        break;
    case ATTN_CONFIG_FACTORS:
        add(row, "list of numbers, %g to %g, one a pair", key->min, key->max);
        break;
    case ATTN_CONFIG_LAYER_TYPES:
        add(row, "list of");
        for (size_t type = 0, n = 0; type < ATTN_NUM_LAYER_TYPES; type++)
            if (attn_layer_type_find(family, attn_layer_types[type]) == type)
                add(row, "%s `%s`", n++ > 0 ? "," : "", attn_layer_types[type]);
        break;
    case ATTN_CONFIG_PERIOD:
        add(row, "integer, %.0f to %.0f, or letters such as `LLLG`", key->min, key->max);
        break;
    case ATTN_CONFIG_ROPE_LAYERS:
        add(row, "list of 1 (rotates) and 0");
        break;
    case ATTN_CONFIG_NAME:
        add(row, "one of the names `%s`", key->only);
        break;
    case ATTN_CONFIG_FIXED:
        add(row, "only `%s`", key->only);
        break;
    case ATTN_CONFIG_TERMS:
        add(row, "`c2p`, `p2c` or both: a list, or with \\| between");
        break;
    case ATTN_CONFIG_OBJECT:
    case ATTN_CONFIG_IGNORED:
        break;
    }
}

/* Adds the default of a key: the field of `defaults` that the key fills. */
static void add_default(struct text *row, const struct attn_hf_key *key, const void *defaults,
                        const char *zero)
{
    const void *field = (const char *)defaults + key->offset;
    bool value = false;
    bool counts = key->kind == ATTN_CONFIG_INTEGER || key->kind == ATTN_CONFIG_PERIOD;
    if (counts && *(const size_t *)field != 0)
        add(row, "%zu", *(const size_t *)field);
    else if (key->kind == ATTN_CONFIG_NUMBER && *(const double *)field != 0)
        add(row, "%g", *(const double *)field);
    else if (key->kind == ATTN_CONFIG_FLAG) {
        memcpy(&value, field, sizeof value);
        add(row, "%s", value ? "true" : "false");
    } else
        add(row, "%s", zero);
}

bool add_ignored(struct text *text, const struct attn_hf_key *keys, const char *note)
{
    const char *comma = "";
    for (; keys->name != NULL; keys++)
        for (size_t at = 0; keys->kind == ATTN_CONFIG_IGNORED && keys->name[at] != '\0';) {
            const size_t length = strcspn(keys->name + at, " ");
            add(text, "%s `%.*s`%s", comma, (int)length, keys->name + at, note);
            at += length + (keys->name[at + length] == ' ');
            comma = ",";
        }
    return comma[0] != '\0';
}

void print_keys(const struct attn_family *family)
{
    struct text table = {.length = 0};
    add(&table, "| key | meaning | value | if absent |\n");
    for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++) {
        if (key->kind == ATTN_CONFIG_IGNORED || key->kind == ATTN_CONFIG_OBJECT)
            continue;
        const struct field_words *words = words_for(config_words, COUNT(config_words), key->offset);
        bool plain = key->kind == ATTN_CONFIG_FIXED || key->kind == ATTN_CONFIG_ROPE;
        add(&table, "| `%s` | %s | ", key->name,
            key->kind == ATTN_CONFIG_ROPE ? "RoPE scaling"
            : plain                       ? ""
                                          : words->meaning);
        add_bounds(&table, key, family);
        add(&table, " | ");
        if (!plain)
            add_default(&table, key, &family->defaults, words->zero);
        add(&table, " |\n");
    }
    printf("\n");
    print_table(&table);

    struct text ignored = {.length = 0};
    add(&ignored, "Keys that do not touch attention:");
    if (!add_ignored(&ignored, family->keys, ""))
        return;
    add(&ignored, ".");
    printf("\n");
    print_paragraph(&ignored);
}

void print_rope_keys(void)
{
    static const struct attn_hf_rope defaults = {.truncate = true};
    struct text p = {.length = 0};
    printf("\n## RoPE scaling\n\n");
    add(&p, "`rope_scaling` and `rope_parameters` are objects of the keys below. The type is one "
            "of");
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        add(&p, "%s `%s`", known == attn_rope_names ? "" : ",", known->name);
    add(&p,
        " (`su` is an old name of `%s`). Instead of these keys the object may hold one such "
        "object under `full_attention` and one under `sliding_attention`, for the two types of "
        "layers. A session of `%s` stays on its side of the trained length "
        "([why](API.md#longrope)); with `%s` cached keys keep the rotation of the length at which "
        "they were written.",
        rope_name(ATTN_ROPE_LONGROPE), rope_name(ATTN_ROPE_LONGROPE), rope_name(ATTN_ROPE_DYNAMIC));
    print_paragraph(&p);
    printf("\n");
    add(&p, "| key | meaning | value | if absent |\n");
    for (const struct attn_hf_key *key = attn_rope_keys; key->name != NULL; key++) {
        const struct field_words *words = words_for(rope_words, COUNT(rope_words), key->offset);
        add(&p, "| `%s` | %s | ", key->name, words->meaning);
        add_bounds(&p, key, NULL);
        add(&p, " | ");
        add_default(&p, key, &defaults, words->zero);
        add(&p, " |\n");
    }
    print_table(&p);
}

void print_common_keys(void)
{
    struct text p = {.length = 0};
    printf("\n## Keys of every family\n\nFor each of these keys only one value is computed; any "
           "other is refused. A family that has a key of that name in its\nown table understands "
           "it as described there.\n\n");
    add(&p, "| key | value |\n");
    for (const struct attn_hf_key *key = attn_common_keys; key->kind == ATTN_CONFIG_FIXED; key++)
        add(&p, "| `%s` | `%s` |\n", key->name, key->only);
    print_table(&p);
    add(&p,
        "Keys that begin with `_`, and the keys that Hugging Face has in every configuration (of "
        "tokens, norms, MLPs, experts, dropout, training and generation), do not touch attention "
        "and may stand.");
    printf("\n");
    print_paragraph(&p);
}
