/* values.c: the schemas of texts, numbers and lists of names, which requests and replies
 * share: a row for each. */

#include "openapi/openapi.h"
#include "wire/call.h"

#define ID_PATTERN "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_Static_assert(SRV_ID_MAX == 64, "ID_PATTERN has the length");

static const struct {
    const char *name, *type, *meaning;
    const char *pattern; /* of a text, or NULL */
    const char *bound;   /* of a number: "minimum" or "exclusiveMinimum" */
    double least, most;  /* of a number; most 0: none */
} simple[] = {
    {"Id", "string", "1 to 64 letters, digits, '_', '.' and '-', the first a letter or digit",
     .pattern = ID_PATTERN},
    {"Digest", "string", "a SHA-256", .pattern = "^[0-9a-f]{64}$"},
    {"PageToken", "string", "an id, or ID:OWNER, as next has it",
     .pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9][A-Za-z0-9_.-]{0,63})?$"},
    {"OwnerName", "string", "the name of an API key; empty: made without keys",
     .pattern = "^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?$"},
    {"IdempotencyKey", "string", "1 to 64 of A-Za-z0-9_.-", .pattern = "^[A-Za-z0-9_.-]{1,64}$"},
    {"Count", "integer", "0 or more", .bound = "minimum"},
    {"PositiveCount", "integer", "1 or more", .bound = "minimum", .least = 1},
    {"LayerIndex", "integer", "a layer, counted in the checkpoint", .bound = "minimum",
     .most = ATTN_MAX_LAYERS - 1},
    {"Radius", "integer", "tokens", .bound = "minimum", .most = ATTN_MAX_TOKENS},
    {"Scale", "number", "of scores", .bound = "exclusiveMinimum", .most = ATTN_MAX_SCALE},
    {"Softcap", "number", "0: none; else from 1e-6", .bound = "minimum", .most = ATTN_MAX_SOFTCAP},
    {"PageDetails", "integer", "1: with lengths of all layers and shapes", .bound = "minimum",
     .least = 1, .most = 1},
    {"PageLimit", "integer", "sessions of a page", .bound = "minimum", .least = 1,
     .most = SRV_MAX_PAGE_SESSIONS},
    {"DeadlineMs", "integer", "milliseconds from the head's arrival", .bound = "minimum",
     .least = 1, .most = SRV_MAX_DEADLINE_MS},
};

static json_t *number_json(const char *type, double number)
{
    return strcmp(type, "integer") == 0 ? json_integer((json_int_t)number) : json_real(number);
}

static void add_simple(json_t *schemas)
{
    for (size_t i = 0; i < sizeof simple / sizeof simple[0]; i++) {
        const char *type = simple[i].type;
        json_t *schema = pack("{s:s, s:s}", "type", type, "description", simple[i].meaning);
        if (simple[i].pattern != NULL)
            set(schema, "pattern", json_string(simple[i].pattern));
        if (simple[i].bound != NULL)
            set(schema, simple[i].bound, number_json(type, simple[i].least));
        if (simple[i].most > 0)
            set(schema, "maximum", number_json(type, simple[i].most));
        set(schemas, simple[i].name, schema);
    }
}

static const struct {
    const char *name, *list;
} names[] = {
    {"Phase", "loading ready lame_duck draining"},
    {"RopeType", "default linear dynamic yarn llama3 longrope proportional"},
    {"MaskKind", "causal full sliding_window chunked"},
    {"NormType", "rms layer"},
    {"NormExtent", "head each_head all_heads"},
    {"PositionBiasType", "alibi t5 disentangled relative_key grid"},
    {"ReplyDatatype", "FP32 UINT32 FP16 UINT8"},
    {"RequestCoding", "gzip x-gzip deflate identity"},
};

void add_values(json_t *schemas)
{
    json_t *errors = json_array(), *outputs = json_array(), *patterns = json_array();
    add_simple(schemas);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        set(schemas, names[i].name, one_of(words(names[i].list)));
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++)
        append(errors, json_string(srv_error_word(code)));
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++)
        append(outputs, json_string(srv_output_names[i].name));
    for (int i = 0; i <= ATTN_PATTERN_FOCUSED; i++)
        append(patterns, json_string(attn_pattern_name((enum attn_pattern)i)));
    set(schemas, "ErrorCode", one_of(errors));
    set(schemas, "OutputName", one_of(outputs));
    set(schemas, "HeadPattern", one_of(patterns));
}
