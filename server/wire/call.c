/* call.c: the field table of /attend and /decode, and the checks that need no model.
 *
 * A field is one row of the table: its name, its kind, the bodies that may hold it, its place.
 * Reading a body is a loop over its members that sets a bit for each field given; the checks after
 * the loop look at those bits.  The items of `sequences` go through the same loop.
 *
 * A field that is null counts as left out, since callers in dynamic languages write null. */
#include "wire/call.h"

#include <stdio.h>
#include <string.h>

#include "wire/json.h"
#include "wire/tensor_object.h"

/* Kinds of body: those of the two endpoints, and an item of `sequences`. */
enum { ATTEND = SRV_CALL_ATTEND, DECODE = SRV_CALL_DECODE, ITEM = 1 << 2 };
#define ALL (ATTEND | DECODE | ITEM)

enum field_kind {
    NAME,
    ID,
    FLAG,
    NON_NEGATIVE,
    LAYER,
    POSITIVE,
    RADIUS,
    SCALE,
    SOFTCAP,
    TENSOR,
    OUTPUTS,
    STAGE,
    SEQUENCES
};

struct field {
    const char *name;
    enum field_kind kind;
    unsigned bodies;   /* kinds of body that may hold it */
    bool in_call;      /* its place is in struct srv_call, else in struct srv_rows */
    size_t offset;     /* of its place */
    size_t has_offset; /* of the flag in struct srv_rows that it was given; 0: no flag */
    enum srv_tensor_kind tensor;
    bool scalar;      /* a tensor that may be a bare number */
    unsigned refines; /* outputs of which one at least must be asked for; 0: none */
    const char *refined_names;
};

#define IN_CALL(member) .in_call = true, .offset = offsetof(struct srv_call, member)
#define IN_ROWS(member) .offset = offsetof(struct srv_rows, member)
#define HAS(member) .has_offset = offsetof(struct srv_rows, has_##member)
#define REFINES(outputs, names) .refines = (outputs), .refined_names = (names)

static const struct field fields[] = {
    {"model", NAME, ATTEND | DECODE, IN_CALL(model)},
    {"layer", LAYER, ATTEND | DECODE, IN_CALL(layer)},
    {"sequences", SEQUENCES, DECODE, IN_CALL(sequences)},
    {"binary_output", FLAG, ATTEND | DECODE, IN_CALL(binary_output)},
    {"session_id", ID, ALL, IN_ROWS(session_id)},
    {"position", NON_NEGATIVE, ALL, IN_ROWS(position), HAS(position)},
    {"epoch", NON_NEGATIVE, ALL, IN_ROWS(epoch), HAS(epoch)},
    {"start", FLAG, ALL, IN_ROWS(start), HAS(start)},
    {"commit", FLAG, ALL, IN_ROWS(commit), HAS(commit)},
    {"hidden_states", TENSOR, ALL, IN_ROWS(hidden_states), .tensor = SRV_FLOATS},
    {"encoder_hidden_states", TENSOR, ATTEND, IN_ROWS(encoder_hidden_states), .tensor = SRV_FLOATS},
    {"key_hidden_states", TENSOR, ATTEND, IN_ROWS(key_hidden_states), .tensor = SRV_FLOATS},
    {"value_hidden_states", TENSOR, ATTEND, IN_ROWS(value_hidden_states), .tensor = SRV_FLOATS},
    {"query", TENSOR, ATTEND, IN_ROWS(query), .tensor = SRV_FLOATS},
    {"key", TENSOR, ATTEND, IN_ROWS(key), .tensor = SRV_FLOATS},
    {"value", TENSOR, ATTEND, IN_ROWS(value), .tensor = SRV_FLOATS},
    {"is_causal", FLAG, ALL, IN_ROWS(is_causal), HAS(is_causal)},
    {"query_offset", TENSOR, ALL, IN_ROWS(query_offset), .tensor = SRV_INTEGERS, .scalar = true},
    {"padding_mask", TENSOR, ALL, IN_ROWS(padding_mask), .tensor = SRV_BOOLS},
    {"attention_mask", TENSOR, ALL, IN_ROWS(attention_mask), .tensor = SRV_BOOLS},
    {"attention_bias", TENSOR, ALL, IN_ROWS(attention_bias), .tensor = SRV_FLOATS_OR_NULL},
    {"head_mask", TENSOR, ALL, IN_ROWS(head_mask), .tensor = SRV_FLOATS},
    {"position_ids", TENSOR, ALL, IN_ROWS(position_ids), .tensor = SRV_INTEGERS},
    {"scale", SCALE, ALL, IN_ROWS(scale), HAS(scale)},
    {"softcap", SOFTCAP, ALL, IN_ROWS(softcap), HAS(softcap)},
    {"sliding_window", TENSOR, ALL, IN_ROWS(sliding_window), .tensor = SRV_INTEGERS,
     .scalar = true},
    {"outputs", OUTPUTS, ALL, IN_ROWS(outputs)},
    {"heads", TENSOR, ALL, IN_ROWS(heads), .tensor = SRV_INTEGERS,
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES | SRV_OUT_STATS,
             "attention_weights, attention_scores or head_stats")},
    {"rows", TENSOR, ALL, IN_ROWS(query_rows), .tensor = SRV_INTEGERS,
     REFINES(SRV_OUT_WEIGHTS | SRV_OUT_SCORES, "attention_weights or attention_scores")},
    {"top_k", POSITIVE, ALL, IN_ROWS(top_k), REFINES(SRV_OUT_WEIGHTS, "attention_weights")},
    {"average_heads", FLAG, ALL, IN_ROWS(average_heads),
     REFINES(SRV_OUT_WEIGHTS, "attention_weights")},
    {"stage", STAGE, ALL, IN_ROWS(stage), REFINES(SRV_OUT_SCORES, "attention_scores")},
    {"local_radius", RADIUS, ALL, IN_ROWS(local_radius), REFINES(SRV_OUT_STATS, "head_stats")},
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])
_Static_assert(FIELD_COUNT <= 64, "body->given has a bit for each field");

static const struct {
    const char *name;
    enum srv_output bit;
} outputs[] = {
    {"output", SRV_OUT_OUTPUT},    {"attention_weights", SRV_OUT_WEIGHTS},
    {"lse", SRV_OUT_LSE},          {"key", SRV_OUT_KEY},
    {"value", SRV_OUT_VALUE},      {"attention_scores", SRV_OUT_SCORES},
    {"head_stats", SRV_OUT_STATS},
};

/* A body or an item while it is read. */
struct body {
    struct srv_call *call;
    struct srv_rows *rows; /* of this body or item */
    unsigned kind;         /* one of ATTEND, DECODE, ITEM */
    const char *prefix;    /* of an ITEM: "sequences[3]" */
    size_t max_sequences;
    struct srv_json *json;
    struct srv_binary_data *bytes;
    struct srv_arena *arena;
    uint64_t seen, given; /* bits of fields: all that have occurred; those with a value */
};

#define NAME_SIZE 32  /* of a member's name; a longer one is shortened and matches no field */
#define PARAM_SIZE 64 /* "sequences[", an index, "]." and a name */

/* A field's name as errors have it: "position", "sequences[3].position".  Returns `name` or out. */
static const char *full_name(char out[PARAM_SIZE], const struct body *body, const char *name)
{
    if (body->kind != ITEM)
        return name;
    srv_field_path(out, PARAM_SIZE, body->prefix, name);
    return out;
}

/* Fails with "<field> <why>". */
static bool fail(const struct body *body, enum srv_error_code code, const char *name,
                 const char *why)
{
    char text[PARAM_SIZE];
    const char *param = full_name(text, body, name);
    srv_fail(body->json->error, code, param, "%s %s", param, why);
    return false;
}

/* The index of a field in the table, FIELD_COUNT for none. */
static size_t find_field(const char *name)
{
    size_t i = 0;
    while (i < FIELD_COUNT && (fields[i].name[0] != name[0] || strcmp(fields[i].name, name) != 0))
        i++;
    return i;
}

bool srv_call_find_field(struct srv_field_form *out, const char *name)
{
    size_t i = find_field(name);
    if (i == FIELD_COUNT || (fields[i].bodies & ATTEND) == 0)
        return false;
    *out = (struct srv_field_form){fields[i].kind == TENSOR, fields[i].tensor, fields[i].scalar};
    return true;
}

static bool is_given(const struct body *body, const char *name)
{
    return (body->given >> find_field(name) & 1) != 0;
}

/* ---- Reading fields -------------------------------------------------------------------------- */

static bool read_id(char **out, const struct body *body, const char *param)
{
    if (!srv_json_string(out, body->json, body->arena, SRV_ID_MAX, param))
        return false;
    if (srv_id_valid(*out))
        return true;
    srv_fail(body->json->error, SRV_E_INVALID_VALUE, param,
             "%s must be a letter or digit and up to %d letters, digits, '_', '.' or '-'", param,
             SRV_ID_MAX - 1);
    return false;
}

/* An integer from `least` to `most`. */
static bool read_integer(int64_t *out, const struct body *body, int64_t least, int64_t most,
                         const char *param)
{
    if (!srv_json_integer(out, body->json, param))
        return false;
    if (*out >= least && *out <= most)
        return true;
    srv_fail(body->json->error, SRV_E_INVALID_VALUE, param, "%s is %lld, must be from %lld to %lld",
             param, (long long)*out, (long long)least, (long long)most);
    return false;
}

/* A number above 0, or, where `or_none`, 0 itself. */
static bool read_scale(double *out, const struct body *body, bool or_none, const char *param)
{
    if (!srv_json_double(out, body->json, param))
        return false;
    if (*out > 0 || (or_none && *out == 0))
        return true;
    srv_fail(body->json->error, SRV_E_INVALID_VALUE, param, "%s is %g, must be above 0%s", param,
             *out, or_none ? ", or 0 for none" : "");
    return false;
}

/* The bit of the output whose name is the next value; 0 after an error. */
static unsigned read_output(const struct body *body, const char *param)
{
    char *name;
    if (!srv_json_string(&name, body->json, body->arena, SRV_ID_MAX, param))
        return 0;
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        if (strcmp(name, outputs[i].name) == 0)
            return outputs[i].bit;
    srv_fail(body->json->error, SRV_E_INVALID_VALUE, param, "%s cannot be \"%s\"", param, name);
    return 0;
}

static bool read_outputs(unsigned *out, const struct body *body, const char *param)
{
    if (srv_json_peek(body->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(body->json, "a list of names", param);
    srv_json_enter_array(body->json);
    *out = 0;
    while (srv_json_next_element(body->json)) {
        unsigned bit = read_output(body, param);
        if (bit == 0)
            return false;
        if ((*out & bit) != 0)
            return fail(body, SRV_E_INVALID_VALUE, "outputs", "names an output twice");
        *out |= bit;
    }
    if (body->json->error->code != SRV_OK)
        return false;
    return *out != 0 || fail(body, SRV_E_INVALID_VALUE, "outputs", "is empty");
}

static bool read_stage(enum attn_stage *out, const struct body *body, const char *param)
{
    static const char *const names[] = {"raw", "softcap", "masked"}; /* by enum attn_stage */
    char *name;
    if (!srv_json_string(&name, body->json, body->arena, SRV_ID_MAX, param))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum attn_stage)i;
            return true;
        }
    srv_fail(body->json->error, SRV_E_INVALID_VALUE, param, "%s cannot be \"%s\"", param, name);
    return false;
}

static bool read_sequences(struct body *body);

/* Reads the next value into the field's place. */
static bool read_value(struct body *body, const struct field *field, const char *param)
{
    void *to = (field->in_call ? (char *)body->call : (char *)body->rows) + field->offset;
    switch (field->kind) {
    case NAME:
        return srv_json_string(to, body->json, body->arena, SRV_ID_MAX, param);
    case ID:
        return read_id(to, body, param);
    case FLAG:
        return srv_json_bool(to, body->json, param);
    case NON_NEGATIVE:
        return read_integer(to, body, 0, INT64_MAX, param);
    case LAYER:
        return read_integer(to, body, 0, ATTN_MAX_LAYERS - 1, param);
    case POSITIVE:
        return read_integer(to, body, 1, INT64_MAX, param);
    case RADIUS:
        return read_integer(to, body, 0, ATTN_MAX_TOKENS, param);
    case SCALE:
        return read_scale(to, body, false, param);
    case SOFTCAP:
        return read_scale(to, body, true, param);
    case TENSOR:
        return srv_tensor_read(to, body->json, body->bytes, body->arena, field->tensor,
                               field->scalar, param);
    case OUTPUTS:
        return read_outputs(to, body, param);
    case STAGE:
        return read_stage(to, body, param);
    case SEQUENCES:
        return read_sequences(body);
    }
    return false;
}

/* Reads the value of the member whose name has been read. */
static bool read_member(struct body *body, const char *name)
{
    char param[PARAM_SIZE];
    size_t i = find_field(name);
    if (i == FIELD_COUNT || (fields[i].bodies & body->kind) == 0)
        return fail(body, SRV_E_UNKNOWN_FIELD, name, "is no field of this request");
    uint64_t bit = UINT64_C(1) << i;
    if ((body->seen & bit) != 0)
        return fail(body, SRV_E_DUPLICATE_FIELD, name, "is given twice");
    body->seen |= bit;
    if (srv_json_peek(body->json) == SRV_JSON_NULL)
        return srv_json_literal(body->json, "null");
    body->given |= bit;
    if (!read_value(body, &fields[i], full_name(param, body, name)))
        return false;
    if (fields[i].has_offset != 0)
        *(bool *)((char *)body->rows + fields[i].has_offset) = true;
    return true;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Fails where the field is not given. */
static bool must_have(const struct body *body, const char *name)
{
    return is_given(body, name) || fail(body, SRV_E_MISSING_FIELD, name, "is missing");
}

/* Fails where both fields are given. */
static bool exclude(const struct body *body, const char *name, const char *other)
{
    char why[PARAM_SIZE];
    if (!is_given(body, name) || !is_given(body, other))
        return true;
    snprintf(why, sizeof why, "cannot stand beside %s", other);
    return fail(body, SRV_E_INVALID_VALUE, name, why);
}

/* Fails where `name` is given without `other`. */
static bool needs_other(const struct body *body, const char *name, const char *other)
{
    return !is_given(body, name) || must_have(body, other);
}

/* Rows are given as hidden_states, or as query, key and value, which are projected already. */
static bool check_source(const struct body *body)
{
    if (is_given(body, "query") || is_given(body, "key") || is_given(body, "value"))
        return must_have(body, "query") && must_have(body, "key") && must_have(body, "value") &&
               exclude(body, "hidden_states", "query") &&
               exclude(body, "encoder_hidden_states", "query") &&
               exclude(body, "key_hidden_states", "query") &&
               exclude(body, "value_hidden_states", "query") &&
               exclude(body, "session_id", "query") && exclude(body, "model", "query") &&
               exclude(body, "layer", "query");
    return must_have(body, "hidden_states") &&
           exclude(body, "encoder_hidden_states", "session_id") &&
           exclude(body, "key_hidden_states", "session_id") &&
           exclude(body, "key_hidden_states", "encoder_hidden_states") &&
           exclude(body, "value_hidden_states", "encoder_hidden_states") &&
           needs_other(body, "key_hidden_states", "value_hidden_states") &&
           needs_other(body, "value_hidden_states", "key_hidden_states");
}

/* Fields about a session need its id. */
static bool check_session(const struct body *body)
{
    return needs_other(body, "position", "session_id") &&
           needs_other(body, "epoch", "session_id") && needs_other(body, "start", "session_id") &&
           needs_other(body, "commit", "session_id");
}

/* Beside `sequences` a body may have fields of the call only: fields of rows are in the items. */
static bool check_list(const struct body *body)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (!fields[i].in_call && !exclude(body, fields[i].name, "sequences"))
            return false;
    return true;
}

/* Whether a field that was given changes anything: a flag that is false does not. */
static bool has_effect(const struct body *body, const struct field *field)
{
    return field->kind != FLAG || *(const bool *)((const char *)body->rows + field->offset);
}

static bool check_refinements(const struct body *body)
{
    char why[PARAM_SIZE + 64];
    for (uint64_t left = body->given; left != 0; left &= left - 1) {
        const struct field *field = &fields[__builtin_ctzll(left)];
        if (field->refines == 0 || (field->refines & body->rows->outputs) != 0 ||
            !has_effect(body, field))
            continue;
        snprintf(why, sizeof why, "has no meaning without the output %s", field->refined_names);
        return fail(body, SRV_E_INVALID_VALUE, field->name, why);
    }
    return true;
}

static bool check(const struct body *body)
{
    if (body->kind == ATTEND)
        return check_source(body) && check_session(body) && check_refinements(body);
    if (is_given(body, "sequences"))
        return check_list(body);
    return must_have(body, "session_id") && must_have(body, "hidden_states") &&
           check_refinements(body);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static bool read_body(struct body *body)
{
    char key[NAME_SIZE];
    *body->rows = (struct srv_rows){
        .commit = true, .outputs = SRV_OUT_OUTPUT, .local_radius = SRV_LOCAL_RADIUS};
    if (!srv_json_enter_object(body->json))
        return false;
    while (srv_json_next_member(body->json, key, sizeof key))
        if (!read_member(body, key))
            return false;
    return body->json->error->code == SRV_OK;
}

static bool read_item(struct body *parent, size_t index)
{
    char prefix[PARAM_SIZE];
    struct body body = *parent;
    body.rows = &parent->call->sequences[index];
    body.kind = ITEM;
    body.seen = body.given = 0;
    snprintf(prefix, sizeof prefix, "sequences[%zu]", index);
    body.prefix = prefix;
    if (srv_json_peek(body.json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(body.json, "an object", prefix);
    return read_body(&body) && check(&body);
}

/* Makes room for one more item.  The room at least doubles; the items move, but not their strings
 * and tensors. */
static bool reserve_item(struct body *body, size_t *capacity)
{
    struct srv_call *call = body->call;
    if (call->num_sequences < *capacity)
        return true;
    size_t doubled = *capacity == 0 ? 8 : *capacity * 2;
    struct srv_rows *grown = srv_arena_alloc(body->arena, doubled, sizeof *grown);
    if (grown == NULL)
        return fail(body, SRV_E_OUT_OF_MEMORY, "sequences", "find no memory");
    if (call->num_sequences > 0)
        memcpy(grown, call->sequences, call->num_sequences * sizeof *grown);
    call->sequences = grown;
    *capacity = doubled;
    return true;
}

static bool read_sequences(struct body *body)
{
    struct srv_call *call = body->call;
    size_t capacity = 0;
    if (srv_json_peek(body->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(body->json, "a list of objects", "sequences");
    srv_json_enter_array(body->json);
    while (srv_json_next_element(body->json)) {
        if (call->num_sequences == body->max_sequences) {
            srv_fail(body->json->error, SRV_E_TOO_COMPLEX, "sequences",
                     "sequences has more than %zu items", body->max_sequences);
            return false;
        }
        if (!reserve_item(body, &capacity) || !read_item(body, call->num_sequences))
            return false;
        call->num_sequences++;
    }
    if (body->json->error->code != SRV_OK)
        return false;
    return call->num_sequences > 0 || fail(body, SRV_E_INVALID_VALUE, "sequences", "is empty");
}

enum srv_error_code srv_call_read(struct srv_call *out, const struct srv_body *source,
                                  enum srv_call_kind kind, size_t max_sequences,
                                  struct srv_arena *arena, struct srv_error *error)
{
    struct srv_json json;
    struct srv_binary_data bytes = source->bytes;
    struct body whole = {.call = out,
                         .rows = &out->rows,
                         .kind = kind,
                         .max_sequences = max_sequences,
                         .json = &json,
                         .bytes = &bytes,
                         .arena = arena};
    *out = (struct srv_call){.binary_output = out->binary_output};
    srv_json_init(&json, source->json, source->json_length, error);
    json.cancel = source->cancel;
    if (!read_body(&whole))
        return error->code;
    if (!srv_json_at_end(&json))
        srv_json_expected(&json, "nothing behind the object");
    else if (bytes.left > 0)
        srv_fail(error, SRV_E_BAD_REQUEST, NULL, "%zu bytes behind the JSON belong to no tensor",
                 bytes.left);
    else
        check(&whole);
    return error->code;
}
