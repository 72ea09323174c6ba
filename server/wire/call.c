/* call.c: reads the bodies of /attend and /decode, and makes the checks that need no model.
 *
 * Reading a body is a loop over its members that looks each up in the table of fields
 * (call_fields.c) and sets a bit for it; the checks after the loop look at those bits.  The items
 * of `sequences` go through the same loop.
 *
 * A field that is null counts as left out, since callers in dynamic languages write null. */
#include "wire/call.h"

#include <stdio.h>
#include <string.h>

#include "wire/call_fields.h"
#include "wire/field_hints.h"
#include "wire/json.h"
#include "wire/tensor_json.h"
#include "wire/tensor_object.h"

enum { ATTEND = SRV_CALL_ATTEND, DECODE = SRV_CALL_DECODE, ITEM = SRV_CALL_ITEM };

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

#define ANY_BODY (ATTEND | DECODE | ITEM)

/* The field's bit in body->seen and body->given. */
static uint64_t bit_of(const struct srv_field *field)
{
    return UINT64_C(1) << (field - srv_fields);
}

static bool is_given(const struct body *body, const char *name)
{
    for (uint64_t left = body->given; left != 0; left &= left - 1)
        if (strcmp(srv_fields[__builtin_ctzll(left)].name, name) == 0)
            return true;
    return false;
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
    const char *names[SRV_OUTPUT_COUNT];
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++)
        names[i] = srv_output_names[i].name;
    size_t i = srv_json_choice(body->json, body->arena, names, SRV_OUTPUT_COUNT, param);
    return i < SRV_OUTPUT_COUNT ? srv_output_names[i].bit : 0;
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

static bool read_choice(unsigned *out, const struct body *body, const struct srv_choice *choice,
                        const char *param)
{
    size_t i = srv_json_choice(body->json, body->arena, choice->names, choice->count, param);
    *out = (unsigned)i;
    return i < choice->count;
}

/* Appends the next value to the lists, which have room for it. */
static bool read_group(struct srv_index_lists *lists, const struct body *body, const char *param)
{
    struct srv_tensor *list = &lists->lists[lists->count];
    if (!srv_tensor_read_json(list, body->json, body->arena, SRV_INTEGERS, false, param))
        return false;
    if (list->rank != 1)
        return fail(body, SRV_E_SHAPE_MISMATCH, "target_groups",
                    "holds a group that is no list of key positions");
    lists->count++;
    return list->count > 0 ||
           fail(body, SRV_E_INVALID_VALUE, "target_groups", "holds an empty group");
}

static bool read_groups(struct srv_index_lists *out, const struct body *body, const char *param)
{
    if (srv_json_peek(body->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(body->json, "a list of lists of key positions", param);
    srv_json_enter_array(body->json);
    out->lists = srv_arena_alloc(body->arena, ATTN_MAX_TARGET_GROUPS, sizeof *out->lists);
    if (out->lists == NULL)
        return fail(body, SRV_E_OUT_OF_MEMORY, "target_groups", "has no memory");
    while (srv_json_next_element(body->json)) {
        if (out->count == ATTN_MAX_TARGET_GROUPS)
            return fail(body, SRV_E_INVALID_VALUE, "target_groups", "holds more than 16 groups");
        if (!read_group(out, body, param))
            return false;
    }
    if (body->json->error->code != SRV_OK)
        return false;
    return out->count > 0 || fail(body, SRV_E_INVALID_VALUE, "target_groups", "is empty");
}
_Static_assert(ATTN_MAX_TARGET_GROUPS == 16, "read_groups says so");

static bool read_sequences(struct body *body);

/* The struct in which the field has its place. */
static char *struct_of(const struct body *body, const struct srv_field *field)
{
    return field->in_call ? (char *)body->call : (char *)body->rows;
}

/* Reads the next value into the field's place. */
static bool read_value(struct body *body, const struct srv_field *field, const char *param)
{
    void *to = struct_of(body, field) + field->offset;
    switch (field->kind) {
    case SRV_FIELD_NAME:
        return srv_json_string(to, body->json, body->arena, SRV_ID_MAX, param);
    case SRV_FIELD_ID:
        return read_id(to, body, param);
    case SRV_FIELD_FLAG:
        return srv_json_bool(to, body->json, param);
    case SRV_FIELD_NON_NEGATIVE:
        return srv_json_integer_within(to, body->json, 0, INT64_MAX, param);
    case SRV_FIELD_LAYER:
        return srv_json_integer_within(to, body->json, 0, ATTN_MAX_LAYERS - 1, param);
    case SRV_FIELD_POSITIVE:
        return srv_json_integer_within(to, body->json, 1, INT64_MAX, param);
    case SRV_FIELD_RADIUS:
        return srv_json_integer_within(to, body->json, 0, ATTN_MAX_TOKENS, param);
    case SRV_FIELD_SCALE:
        return read_scale(to, body, false, param);
    case SRV_FIELD_SOFTCAP:
        return read_scale(to, body, true, param);
    case SRV_FIELD_TENSOR:
        return srv_tensor_read(to, body->json, body->bytes, body->arena, field->tensor,
                               field->scalar, param);
    case SRV_FIELD_OUTPUTS:
        return read_outputs(to, body, param);
    case SRV_FIELD_GROUPS:
        return read_groups(to, body, param);
    case SRV_FIELD_CHOICE:
        return read_choice(to, body, field->choice, param);
    case SRV_FIELD_SEQUENCES:
        return read_sequences(body);
    }
    return false;
}

/* Fails on the name of a field that this kind of body cannot have. */
static bool fail_unknown(const struct body *body, const char *name)
{
    static const char *const owners[ANY_BODY + 1] = {[ATTEND] = "is a field of /attend only",
                                                     [DECODE] = "is a field of the body of /decode",
                                                     [ATTEND | DECODE] =
                                                         "stands beside sequences, not in it"};
    const char *names[SRV_FIELD_COUNT];
    char why[SRV_HINT_MAX];
    const struct srv_field *field = srv_field_find(name, ANY_BODY);
    size_t count = 0;
    if (field != NULL && field->bodies == (ATTEND | DECODE) && !field->in_call)
        return fail(body, SRV_E_UNKNOWN_FIELD, name, "is for a request of one step");
    if (field != NULL && owners[field->bodies] != NULL)
        return fail(body, SRV_E_UNKNOWN_FIELD, name, owners[field->bodies]);
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if ((srv_fields[i].bodies & body->kind) != 0)
            names[count++] = srv_fields[i].name;
    srv_field_hint(why, "field", name, names, count);
    return fail(body, SRV_E_UNKNOWN_FIELD, name, why);
}

/* Reads the value of the member whose name has been read. */
static bool read_member(struct body *body, const char *name)
{
    char param[PARAM_SIZE];
    const struct srv_field *field = srv_field_find(name, body->kind);
    if (field == NULL)
        return fail_unknown(body, name);
    uint64_t bit = bit_of(field);
    if ((body->seen & bit) != 0)
        return fail(body, SRV_E_DUPLICATE_FIELD, name, "is given twice");
    body->seen |= bit;
    if (srv_json_peek(body->json) == SRV_JSON_NULL)
        return srv_json_literal(body->json, "null");
    body->given |= bit;
    if (!read_value(body, field, full_name(param, body, name)))
        return false;
    if (field->has_offset != 0)
        *(bool *)(struct_of(body, field) + field->has_offset) = true;
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

/* Query, key and value are attention without a layer: fields of one cannot stand beside query.  A
 * session without weights has layers too. */
static bool check_weightless(const struct body *body)
{
    static const char *const of_layers[] = {"model",
                                            "layer",
                                            "hidden_states",
                                            "encoder_hidden_states",
                                            "encoder_padding_mask",
                                            "key_hidden_states",
                                            "value_hidden_states"};
    for (size_t i = 0; i < sizeof of_layers / sizeof of_layers[0]; i++)
        if (is_given(body, "query") && is_given(body, of_layers[i]) &&
            (strcmp(of_layers[i], "layer") != 0 || !is_given(body, "session_id")))
            return fail(body, SRV_E_INVALID_VALUE, of_layers[i],
                        "cannot stand beside query: rows for a model's layer are hidden_states, "
                        "query, key and value are used without one");
    return must_have(body, "query") && must_have(body, "key") && must_have(body, "value") &&
           needs_other(body, "past_key", "past_value") &&
           needs_other(body, "past_value", "past_key") && exclude(body, "past_key", "session_id");
}

/* A session has the encoder rows that it starts with. */
static bool check_encoder(const struct body *body)
{
    if (is_given(body, "encoder_hidden_states") && is_given(body, "session_id") &&
        !body->rows->start)
        return fail(
            body, SRV_E_INVALID_VALUE, "encoder_hidden_states",
            "can stand beside session_id only where `start` is true: the session keeps them");
    return needs_other(body, "encoder_padding_mask", "encoder_hidden_states") &&
           needs_other(body, "encoder_padding_mask", "session_id");
}

/* Rows are given as hidden_states, or as query, key and value, which are projected already. */
static bool check_source(const struct body *body)
{
    if (is_given(body, "query") || is_given(body, "key") || is_given(body, "value") ||
        is_given(body, "past_key") || is_given(body, "past_value"))
        return check_weightless(body);
    return must_have(body, "hidden_states") && check_encoder(body) &&
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
           needs_other(body, "epoch", "session_id") &&
           needs_other(body, "revision", "session_id") &&
           needs_other(body, "start", "session_id") && needs_other(body, "commit", "session_id");
}

/* Beside `sequences` a body may have fields of the call only: fields of rows are in the items. */
static bool check_list(const struct body *body)
{
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (!srv_fields[i].in_call && !exclude(body, srv_fields[i].name, "sequences"))
            return false;
    return true;
}

/* Whether a field that was given changes anything: a flag that is false does not. */
static bool has_effect(const struct body *body, const struct srv_field *field)
{
    return field->kind != SRV_FIELD_FLAG ||
           *(const bool *)((const char *)body->rows + field->offset);
}

static bool check_refinements(const struct body *body)
{
    char why[PARAM_SIZE + 64];
    for (uint64_t left = body->given; left != 0; left &= left - 1) {
        const struct srv_field *field = &srv_fields[__builtin_ctzll(left)];
        if (field->refines == 0 || (field->refines & body->rows->outputs) != 0 ||
            !has_effect(body, field))
            continue;
        snprintf(why, sizeof why, "has no meaning without the output %s", field->refined_names);
        return fail(body, SRV_E_INVALID_VALUE, field->name, why);
    }
    return true;
}

/* Fields about outputs need their outputs, and the largest weights of a row are no map. */
static bool check_outputs(const struct body *body)
{
    return check_refinements(body) && exclude(body, "pool", "top_k") &&
           exclude(body, "map_datatype", "top_k") && needs_other(body, "pool_type", "pool");
}

/* Positions of time, height and width become one where the three agree, as they do in text. */
static bool merge_position_ids(const struct body *body)
{
    struct srv_tensor *ids = &body->rows->position_ids;
    if (!ids->present || ids->rank != 3 || ids->shape[0] != 3 || ids->count == 0)
        return true;
    const size_t count = ids->count / 3, bytes = count * sizeof *ids->i64;
    if (memcmp(ids->i64, ids->i64 + count, bytes) != 0 ||
        memcmp(ids->i64, ids->i64 + 2 * count, bytes) != 0)
        return fail(body, SRV_E_UNSUPPORTED, "position_ids",
                    "holds three positions of a token that differ, which is not supported");
    ids->rank = 2;
    ids->count = count;
    memmove(ids->shape, ids->shape + 1, 2 * sizeof *ids->shape);
    return true;
}

static bool check(const struct body *body)
{
    if (!merge_position_ids(body))
        return false;
    if (body->kind == ATTEND)
        return check_source(body) && check_session(body) && check_outputs(body);
    if (is_given(body, "sequences"))
        return check_list(body);
    return must_have(body, "session_id") && check_source(body) && check_outputs(body);
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
        return fail(body, SRV_E_OUT_OF_MEMORY, "sequences", "has no memory");
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
