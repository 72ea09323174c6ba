/* call.c: reads the bodies of /attend and /decode, and makes the checks that need no model.
 *
 * Reading a body is a loop over its members that looks each up in the table of fields
 * (call_fields.def) and sets a bit for it; the rules of fields, which are checked after the loop,
 * are sets of such bits.  The items of `sequences` go through the same loop.
 *
 * A field that is null counts as left out, since callers in dynamic languages write null. */
#include "wire/call.h"

#include <stdio.h>

enum { ATTEND = SRV_CALL_ATTEND, DECODE = SRV_CALL_DECODE, SEQUENCE = SRV_CALL_SEQUENCE };
#define ANY_BODY (ATTEND | DECODE | SEQUENCE)

#define NAME_SIZE 32  /* of a member's name; a longer one is shortened and matches no field */
#define PARAM_SIZE 64 /* "sequences[", an index, "]." and a name */

/* A field's name as errors have it: "position", "sequences[3].position".  Returns `name` or out. */
static const char *full_name(char out[PARAM_SIZE], const struct srv_call_reader *r,
                             const char *name)
{
    if (r->kind != SEQUENCE)
        return name;
    srv_field_path(out, PARAM_SIZE, r->prefix, name);
    return out;
}

/* Fails with "<field> <why>", unless something else is wrong already.  Always false. */
static bool fail(const struct srv_call_reader *r, enum srv_error_code code, const char *name,
                 const char *why)
{
    char text[PARAM_SIZE];
    return srv_json_fail(r->json, code, full_name(text, r, name), "%s", why);
}

/* ---- Values ---------------------------------------------------------------------------------- */

void srv_call_set_id(struct srv_call_reader *r, char *id, const char *param)
{
    r->rows->session_id = id;
    if (!srv_id_valid(id))
        srv_json_fail(r->json, SRV_E_INVALID_VALUE, param,
                      "must be a letter or digit and up to %d letters, digits, '_', '.' or '-'",
                      SRV_ID_MAX - 1);
}

/* A number above 0, or, where `or_none`, 0 itself. */
static void read_scale(double *out, struct srv_call_reader *r, bool or_none, const char *param)
{
    if (srv_json_double(out, r->json, param) && !(*out > 0 || (or_none && *out == 0)))
        srv_json_fail(r->json, SRV_E_INVALID_VALUE, param, "is %g, must be above 0%s", *out,
                      or_none ? ", or 0 for none" : "");
}

void srv_call_add_output(struct srv_call_reader *r, const char *name)
{
    const char *names[SRV_OUTPUT_COUNT];
    char param[PARAM_SIZE];
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++)
        names[i] = srv_output_names[i].name;
    size_t i =
        srv_json_choice(r->json, names, SRV_OUTPUT_COUNT, name, full_name(param, r, "outputs"));
    unsigned bit = i < SRV_OUTPUT_COUNT ? srv_output_names[i].bit : 0;
    if ((r->rows->outputs & bit) != 0)
        fail(r, SRV_E_INVALID_VALUE, "outputs", "names an output twice");
    r->rows->outputs |= bit;
}

static void read_outputs(struct srv_call_reader *r, const char *param)
{
    char *name;
    r->rows->outputs = 0;
    srv_json_begin_array(r->json, "a list of names", param);
    while (srv_json_next_element(r->json))
        if (srv_json_string(&name, r->json, r->source->arena, SRV_ID_MAX, param))
            srv_call_add_output(r, name);
    if (r->rows->outputs == 0)
        fail(r, SRV_E_INVALID_VALUE, "outputs", "is empty");
}

static void read_groups(struct srv_index_lists *out, struct srv_call_reader *r, const char *param)
{
    struct srv_arena *arena = r->source->arena;
    srv_json_begin_array(r->json, "a list of lists of key positions", param);
    out->lists = srv_arena_alloc(arena, ATTN_MAX_TARGET_GROUPS, sizeof *out->lists);
    if (out->lists == NULL)
        srv_json_fail(r->json, SRV_E_OUT_OF_MEMORY, param, "has no memory");
    while (srv_json_next_element(r->json)) {
        struct srv_tensor *list = &out->lists[out->count];
        if (out->count++ == ATTN_MAX_TARGET_GROUPS)
            srv_json_fail(r->json, SRV_E_INVALID_VALUE, param, "holds more than %d groups",
                          ATTN_MAX_TARGET_GROUPS);
        if (!srv_tensor_read_json(list, r->json, arena, SRV_INTEGERS, false, param))
            return;
        if (list->rank != 1)
            srv_json_fail(r->json, SRV_E_SHAPE_MISMATCH, param,
                          "holds a group that is no list of key positions");
        if (list->count == 0)
            srv_json_fail(r->json, SRV_E_INVALID_VALUE, param, "holds an empty group");
    }
    if (out->count == 0)
        srv_json_fail(r->json, SRV_E_INVALID_VALUE, param, "is empty");
}

static void read_sequences(struct srv_call_reader *r);

/* The struct in which the field has its place. */
static char *struct_of(const struct srv_call_reader *r, const struct srv_field *field)
{
    return field->in_call ? (char *)r->call : (char *)r->rows;
}

/* Reads the next value into `to`, the field's place. */
static void read_value(void *to, struct srv_call_reader *r, const struct srv_field *field,
                       const char *param)
{
    const struct srv_field_type *type = &srv_field_types[field->kind];
    const struct srv_choice *choice = field->choice;
    char *text;
    switch (field->kind) {
    case SRV_FIELD_NAME:
        srv_json_string(to, r->json, r->source->arena, SRV_ID_MAX, param);
        break;
    case SRV_FIELD_ID:
        if (srv_json_string(&text, r->json, r->source->arena, SRV_ID_MAX, param))
            srv_call_set_id(r, text, param);
        break;
    case SRV_FIELD_FLAG:
        srv_json_bool(to, r->json, param);
        break;
    case SRV_FIELD_SCALE:
    case SRV_FIELD_SOFTCAP:
        read_scale(to, r, field->kind == SRV_FIELD_SOFTCAP, param);
        break;
    case SRV_FIELD_TENSOR:
        srv_tensor_read(to, r->source, field->tensor, field->scalar, param);
        break;
    case SRV_FIELD_OUTPUTS:
        read_outputs(r, param);
        break;
    case SRV_FIELD_GROUPS:
        read_groups(to, r, param);
        break;
    case SRV_FIELD_CHOICE:
        if (srv_json_string(&text, r->json, r->source->arena, SRV_ID_MAX, param))
            *(unsigned *)to =
                (unsigned)srv_json_choice(r->json, choice->names, choice->count, text, param);
        break;
    case SRV_FIELD_SEQUENCES:
        read_sequences(r);
        break;
    default:
        srv_json_integer_within(to, r->json, type->least, type->most, param);
    }
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Counts a field as seen; false, with the error set, where it was before. */
static bool see(struct srv_call_reader *r, const struct srv_field *field)
{
    const uint64_t bit = UINT64_C(1) << (field - srv_fields), old = r->seen;
    r->seen |= bit;
    return (old & bit) == 0 || fail(r, SRV_E_DUPLICATE_FIELD, field->name, "is given twice");
}

/* Counts a field as given, and returns its place. */
static void *mark_given(struct srv_call_reader *r, const struct srv_field *field)
{
    char *in = struct_of(r, field);
    r->given |= UINT64_C(1) << (field - srv_fields);
    if (field->has_offset != 0)
        *(bool *)(in + field->has_offset) = true;
    return in + field->offset;
}

void *srv_call_accept(struct srv_call_reader *r, const struct srv_field *field)
{
    return see(r, field) ? mark_given(r, field) : NULL;
}

void srv_call_read_field(struct srv_call_reader *r, const struct srv_field *field)
{
    char param[PARAM_SIZE];
    if (see(r, field) && !srv_json_null(r->json))
        read_value(mark_given(r, field), r, field, full_name(param, r, field->name));
}

/* Fails on the name of a field that this kind of body cannot have. */
static void fail_unknown(const struct srv_call_reader *r, const char *name)
{
    static const char *const only_in[ANY_BODY + 1] = {
        [ATTEND] = "is a field of /attend only",
        [DECODE] = "is a field of the body of /decode",
        [ATTEND | DECODE] = "stands beside sequences, not in it"};
    const char *names[SRV_FIELD_COUNT];
    char why[SRV_HINT_MAX];
    const struct srv_field *field = srv_field_find(name, ANY_BODY);
    size_t count = 0;
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if ((srv_fields[i].bodies & r->kind) != 0)
            names[count++] = srv_fields[i].name;
    srv_field_hint(why, "field", name, names, count);
    if (field != NULL && field->bodies == (ATTEND | DECODE) && !field->in_call)
        fail(r, SRV_E_UNKNOWN_FIELD, name, "is for a request of one step");
    else
        fail(r, SRV_E_UNKNOWN_FIELD, name,
             field != NULL && only_in[field->bodies] != NULL ? only_in[field->bodies] : why);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The fields that were given, but flags that are false. */
static uint64_t find_effective(const struct srv_call_reader *r)
{
    uint64_t effective = r->given;
    for (uint64_t left = r->given; left != 0; left &= left - 1) {
        const struct srv_field *field = srv_field_first(left);
        if (field->kind == SRV_FIELD_FLAG && !*(bool *)(struct_of(r, field) + field->offset))
            effective &= ~(left & -left);
    }
    return effective;
}

static void fail_excluded(const struct srv_call_reader *r, const struct srv_call_rule *rule)
{
    char why[PARAM_SIZE];
    snprintf(why, sizeof why, "cannot stand beside %s", srv_field_first(rule->given)->name);
    fail(r, SRV_E_INVALID_VALUE, srv_field_first(rule->excludes & r->given)->name,
         rule->why != NULL ? rule->why : why);
}

/* Fails with "... without the output attention_weights, query or head_output". */
static void fail_without_output(const struct srv_call_reader *r, const struct srv_call_rule *rule)
{
    char why[PARAM_SIZE + 64];
    int left = __builtin_popcount(rule->outputs);
    size_t length = (size_t)snprintf(why, sizeof why, "has no meaning without the output ");
    for (size_t i = 0; i < SRV_OUTPUT_COUNT && length < sizeof why; i++) {
        if ((rule->outputs & srv_output_names[i].bit) == 0)
            continue;
        const char *comma = --left > 1 ? ", " : left == 1 ? " or " : "";
        length += (size_t)snprintf(why + length, sizeof why - length, "%s%s",
                                   srv_output_names[i].name, comma);
    }
    fail(r, SRV_E_INVALID_VALUE, srv_field_first(rule->given)->name, why);
}

/* Positions of time, height and width become one where the three agree, as they do in text. */
static void merge_position_ids(const struct srv_call_reader *r)
{
    struct srv_tensor *ids = &r->rows->position_ids;
    if (!ids->present || ids->rank != 3 || ids->shape[0] != 3 || ids->count == 0)
        return;
    const size_t count = ids->count / 3, bytes = count * sizeof *ids->i64;
    if (memcmp(ids->i64, ids->i64 + count, bytes) != 0 ||
        memcmp(ids->i64, ids->i64 + 2 * count, bytes) != 0)
        fail(r, SRV_E_UNSUPPORTED, "position_ids",
             "holds three positions of a token that differ, which is not supported");
    ids->rank = 2;
    ids->count = count;
    memmove(ids->shape, ids->shape + 1, 2 * sizeof *ids->shape);
}

/* Checks what needs all fields. */
static void check(const struct srv_call_reader *r)
{
    const uint64_t effective = find_effective(r);
    if (srv_json_sound(r->json))
        merge_position_ids(r);
    for (size_t i = 0; i < srv_call_rule_count && srv_json_sound(r->json); i++) {
        const struct srv_call_rule *rule = &srv_call_rules[i];
        const uint64_t given = rule->outputs != 0 ? effective : r->given;
        const uint64_t missing = rule->needs & ~r->given;
        if ((rule->bodies & r->kind) == 0 || (rule->given & ~given) != 0 ||
            (rule->unless & effective) != 0)
            continue;
        if (missing != 0)
            fail(r, SRV_E_MISSING_FIELD, srv_field_first(missing)->name, "is missing");
        else if ((rule->excludes & r->given) != 0)
            fail_excluded(r, rule);
        else if (rule->outputs != 0 && (rule->outputs & r->rows->outputs) == 0)
            fail_without_output(r, rule);
    }
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static const struct srv_rows default_rows = {
    .commit = true, .outputs = SRV_OUT_OUTPUT, .local_radius = SRV_LOCAL_RADIUS};

/* Reads the members of the object that has been entered. */
static void read_fields(struct srv_call_reader *r)
{
    char name[NAME_SIZE];
    while (srv_json_next_member(r->json, name, sizeof name)) {
        const struct srv_field *field = srv_field_find(name, r->kind);
        if (field != NULL)
            srv_call_read_field(r, field);
        else
            fail_unknown(r, name);
    }
}

static void read_sequence(struct srv_call_reader *parent, size_t index)
{
    char prefix[PARAM_SIZE];
    struct srv_call_reader sequence = *parent;
    sequence.rows = &parent->call->sequences[index];
    sequence.kind = SEQUENCE;
    sequence.seen = sequence.given = 0;
    snprintf(prefix, sizeof prefix, "sequences[%zu]", index);
    sequence.prefix = prefix;
    *sequence.rows = default_rows;
    srv_json_begin_object(sequence.json, prefix);
    read_fields(&sequence);
    check(&sequence);
}

/* Makes room for one more item.  The room at least doubles; the items move, but not their strings
 * and tensors. */
static bool reserve_sequence(struct srv_call_reader *r, size_t *capacity)
{
    struct srv_call *call = r->call;
    if (call->num_sequences < *capacity)
        return true;
    size_t doubled = *capacity == 0 ? 8 : *capacity * 2;
    struct srv_rows *grown = srv_arena_alloc(r->source->arena, doubled, sizeof *grown);
    if (grown == NULL)
        return fail(r, SRV_E_OUT_OF_MEMORY, "sequences", "has no memory");
    if (call->num_sequences > 0)
        memcpy(grown, call->sequences, call->num_sequences * sizeof *grown);
    call->sequences = grown;
    *capacity = doubled;
    return true;
}

static void read_sequences(struct srv_call_reader *r)
{
    struct srv_call *call = r->call;
    size_t capacity = 0;
    srv_json_begin_array(r->json, "a list of objects", "sequences");
    while (srv_json_next_element(r->json))
        if (call->num_sequences == r->max_sequences)
            srv_json_fail(r->json, SRV_E_TOO_COMPLEX, "sequences", "has more than %zu items",
                          r->max_sequences);
        else if (reserve_sequence(r, &capacity))
            read_sequence(r, call->num_sequences++);
    if (call->num_sequences == 0)
        fail(r, SRV_E_INVALID_VALUE, "sequences", "is empty");
}

void srv_call_begin(struct srv_call_reader *out, struct srv_call *call, struct srv_source *source,
                    enum srv_call_kind kind, size_t max_sequences)
{
    *out = (struct srv_call_reader){.source = source,
                                    .json = &source->json,
                                    .call = call,
                                    .rows = &call->rows,
                                    .kind = kind,
                                    .max_sequences = max_sequences};
    *call = (struct srv_call){.binary_output = call->binary_output, .rows = default_rows};
}

void srv_call_finish(struct srv_call_reader *r)
{
    if (!srv_json_at_end(r->json))
        srv_json_expected(r->json, "nothing behind the object");
    else
        srv_source_check_bytes(r->source);
    check(r);
}

enum srv_error_code srv_call_read(struct srv_call *out, const struct srv_body *body,
                                  enum srv_call_kind kind, size_t max_sequences,
                                  struct srv_arena *arena, struct srv_error *error)
{
    struct srv_source source;
    struct srv_call_reader reader;
    srv_source_init(&source, body, arena, error);
    srv_call_begin(&reader, out, &source, kind, max_sequences);
    srv_json_enter_object(&source.json);
    read_fields(&reader);
    srv_call_finish(&reader);
    return error->code;
}
