/* v2_request.c: reads the members of an infer request, in any order, and writes the body of /attend
 * that they mean.
 *
 * Numbers of inputs are read where they stand: the written body refers to the tensors by their
 * index (struct srv_binary_data), so it is as short as the parameters are. */
#include "wire/v2_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/id.h"
#include "wire/call_fields.h"
#include "wire/json.h"
#include "wire/v2_input.h"
#include "wire/v2_words.h"

#define NAME_SIZE 32 /* of a member's name; a longer one is shortened and matches none */

struct reader {
    struct srv_v2_request *out;
    const struct srv_v2_target *target;
    struct srv_json json;
    struct srv_arena *arena;
    struct srv_binary_data bytes; /* with the tensors read so far as its inputs */
    struct srv_buffer native;     /* the body of /attend, without its last brace */
    size_t parameter_bytes;       /* of `native` that the client chose */
    unsigned seen;                /* bits of members */
    struct srv_tensor inputs[SRV_V2_MAX_INPUTS];
};

static bool fail(struct reader *r, enum srv_error_code code, const char *param, const char *why)
{
    srv_fail(r->json.error, code, param, "%s %s", param, why);
    return false;
}

bool srv_v2_output_is_binary(const struct srv_v2_outputs *outputs, const char *name)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (strcmp(outputs->items[i].name, name) == 0 && outputs->items[i].says)
            return outputs->items[i].binary;
    return outputs->binary;
}

bool srv_v2_has_binary(const struct srv_v2_outputs *outputs)
{
    bool found = outputs->binary;
    for (size_t i = 0; i < outputs->count; i++)
        found = found || (outputs->items[i].says && outputs->items[i].binary);
    return found;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Appends a member's name; false where parameters and outputs take too much. */
static bool write_name(struct reader *r, const char *name, size_t bytes)
{
    r->parameter_bytes += bytes;
    if (r->parameter_bytes > SRV_V2_MAX_PARAMETER_BYTES)
        return fail(r, SRV_E_TOO_COMPLEX, "parameters", "take too many bytes");
    srv_buffer_text(&r->native, r->native.length > 1 ? "," : "");
    srv_buffer_json_string(&r->native, name);
    srv_buffer_text(&r->native, ":");
    return true;
}

static bool write_text(struct reader *r, const char *name, const char *value)
{
    if (!write_name(r, name, 0))
        return false;
    srv_buffer_json_string(&r->native, value);
    return true;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* An unsigned integer as its digits; `why` follows the name in the error of another number. */
static bool read_digits(char **out, struct reader *r, const char *param, const char *why)
{
    const char *from = r->json.at;
    if (!srv_json_skip(&r->json))
        return false;
    size_t length = (size_t)(r->json.at - from);
    *out = srv_arena_copy(r->arena, from, length <= SRV_ID_MAX ? length : 0);
    if (*out == NULL)
        return fail(r, SRV_E_OUT_OF_MEMORY, param, "finds no memory");
    return (length <= SRV_ID_MAX && strspn(*out, "0123456789") == length) ||
           fail(r, SRV_E_INVALID_VALUE, param, why);
}

/* Digits are taken as they stand, so that any unsigned integer names a sequence.  The integer 0 and
 * "" mean none; the text "0" is an id like others. */
static bool read_sequence_id(struct reader *r)
{
    char *id;
    const char *none = "";
    if (srv_json_peek(&r->json) == SRV_JSON_STRING) {
        if (!srv_json_string(&id, &r->json, r->arena, SRV_ID_MAX, "sequence_id"))
            return false;
    } else {
        none = "0";
        if (srv_json_peek(&r->json) != SRV_JSON_NUMBER)
            return srv_json_wrong_type(&r->json, "a string or an integer", "sequence_id");
        if (!read_digits(&id, r, "sequence_id",
                         "is no unsigned integer; a string may be any id of a session"))
            return false;
    }
    r->out->has_sequence = strcmp(id, none) != 0;
    return !r->out->has_sequence || write_text(r, "session_id", id);
}

static bool read_start(struct reader *r)
{
    return srv_json_bool(&r->out->start, &r->json, "sequence_start");
}

static bool read_end(struct reader *r)
{
    return srv_json_bool(&r->out->end, &r->json, "sequence_end");
}

/* Beyond 64 bits the timeout is the longest there is. */
static bool read_timeout(struct reader *r)
{
    char *digits;
    if (srv_json_peek(&r->json) != SRV_JSON_NUMBER)
        return srv_json_wrong_type(&r->json, "an integer", "timeout");
    if (!read_digits(&digits, r, "timeout", "is no unsigned integer"))
        return false;
    r->out->timeout_us = strtoull(digits, NULL, 10);
    return true;
}

static bool read_priority(struct reader *r)
{
    if (srv_json_peek(&r->json) != SRV_JSON_NUMBER)
        return srv_json_wrong_type(&r->json, "a number", "priority");
    return srv_json_skip(&r->json);
}

static bool read_binary_output(struct reader *r)
{
    return srv_json_bool(&r->out->outputs.binary, &r->json, "binary_data_output");
}

static const struct {
    const char *name;
    bool (*read)(struct reader *r);
} parameters[] = {
    {"sequence_id", read_sequence_id}, {"sequence_start", read_start},
    {"sequence_end", read_end},        {"timeout", read_timeout},
    {"priority", read_priority},       {"binary_data_output", read_binary_output},
};
#define PARAMETER_COUNT (sizeof parameters / sizeof parameters[0])

/* Fields of a call that an infer request says otherwise. */
static const struct {
    const char *name, *instead;
} said_otherwise[] = {
    {"model", "the path names the model"},
    {"session_id", "use sequence_id"},
    {"start", "use sequence_start"},
    {"outputs", "outputs stand beside the parameters"},
    {"binary_output", "use binary_data_output"},
    {"model_name", "the path names the model"},
};

static const char *find_instead(const char *name)
{
    for (size_t i = 0; i < sizeof said_otherwise / sizeof said_otherwise[0]; i++)
        if (strcmp(name, said_otherwise[i].name) == 0)
            return said_otherwise[i].instead;
    return NULL;
}

/* Tensors are inputs, but for lists of integers. */
static bool is_parameter_kind(const struct srv_field *field)
{
    return field->kind != SRV_FIELD_TENSOR || field->tensor == SRV_INTEGERS;
}

static bool is_field(const struct srv_field *field)
{
    return is_parameter_kind(field) && (field->bodies & SRV_CALL_ATTEND) != 0 &&
           find_instead(field->name) == NULL;
}

static bool fail_unknown(struct reader *r, const char *name)
{
    const char *names[SRV_FIELD_COUNT + PARAMETER_COUNT], *instead = find_instead(name);
    size_t count = 0;
    if (instead != NULL) {
        srv_fail(r->json.error, SRV_E_UNKNOWN_FIELD, name, "%s is no parameter: %s", name, instead);
        return false;
    }
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        names[count++] = parameters[i].name;
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (is_field(&srv_fields[i]))
            names[count++] = srv_fields[i].name;
    return srv_v2_fail_unknown(&r->json, "parameter", name, names, count);
}

/* A field of the call: its value is copied as it stands. */
static bool read_field(struct reader *r, const char *name)
{
    const struct srv_field *field = srv_field_find(name, SRV_CALL_ATTEND);
    if (field == NULL || find_instead(name) != NULL)
        return fail_unknown(r, name);
    if (!is_parameter_kind(field))
        return fail(r, SRV_E_INVALID_VALUE, name, "is an input, not a parameter");
    if (r->target->has_layer && strcmp(name, "layer") == 0)
        return fail(r, SRV_E_DUPLICATE_FIELD, name, "is no parameter where the path names it");
    enum srv_json_type type = srv_json_peek(&r->json);
    if (type == SRV_JSON_NULL)
        return srv_json_literal(&r->json, "null");
    if (type == SRV_JSON_OBJECT)
        return srv_json_wrong_type(&r->json, "a number, a string, a flag or a list", name);
    const char *from = r->json.at;
    if (!srv_json_skip(&r->json))
        return false;
    size_t length = (size_t)(r->json.at - from);
    if (!write_name(r, name, strlen(name) + length)) /* a name may be given any number of times */
        return false;
    srv_buffer_append(&r->native, from, length);
    return true;
}

static bool read_parameter(struct reader *r, const char *name, unsigned *seen)
{
    size_t i = 0;
    while (i < PARAMETER_COUNT && strcmp(name, parameters[i].name) != 0)
        i++;
    if (i < PARAMETER_COUNT && (*seen >> i & 1) != 0)
        return fail(r, SRV_E_DUPLICATE_FIELD, name, "is given twice");
    *seen |= 1u << i;
    if (i == PARAMETER_COUNT)
        return read_field(r, name);
    if (srv_json_peek(&r->json) == SRV_JSON_NULL)
        return srv_json_literal(&r->json, "null");
    return parameters[i].read(r);
}

static bool read_parameters(struct reader *r)
{
    char name[NAME_SIZE];
    unsigned seen = 0;
    if (srv_json_peek(&r->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(&r->json, "an object", "parameters");
    srv_json_enter_object(&r->json);
    while (srv_json_next_member(&r->json, name, sizeof name))
        if (!read_parameter(r, name, &seen))
            return false;
    return r->json.error->code == SRV_OK;
}

/* ---- Inputs and outputs ---------------------------------------------------------------------- */

/* A model that is configured has weights; without any, query, key and value are used. */
static bool check_input(struct reader *r, const char *name)
{
    static const char *const weightless[] = {"query", "key", "value", "past_key", "past_value"};
    for (size_t i = 0; i < sizeof weightless / sizeof weightless[0]; i++)
        if (r->target->model != NULL && strcmp(name, weightless[i]) == 0)
            return fail(r, SRV_E_INVALID_VALUE, name,
                        "is an input of the model attention; this one has hidden_states");
    return true;
}

static bool read_inputs(struct reader *r)
{
    if (srv_json_peek(&r->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(&r->json, "a list of inputs", "inputs");
    srv_json_enter_array(&r->json);
    while (srv_json_next_element(&r->json)) {
        const char *name;
        size_t i = r->bytes.num_inputs;
        if (i == SRV_V2_MAX_INPUTS)
            return fail(r, SRV_E_TOO_COMPLEX, "inputs", "are too many");
        if (!srv_v2_input_read(&r->inputs[i], &name, &r->json, &r->bytes, r->arena) ||
            !check_input(r, name) || !write_name(r, name, 0))
            return false;
        srv_buffer_text(&r->native, "{\"input\":");
        srv_buffer_unsigned(&r->native, i, 1);
        srv_buffer_text(&r->native, "}");
        r->bytes.num_inputs++;
    }
    return r->json.error->code == SRV_OK;
}

/* The parameters of an output: binary_data alone has a meaning here. */
static bool read_output_parameters(struct reader *r, size_t index)
{
    char name[NAME_SIZE];
    int64_t classes;
    if (srv_json_peek(&r->json) == SRV_JSON_NULL)
        return srv_json_literal(&r->json, "null");
    if (srv_json_peek(&r->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(&r->json, "an object", "outputs.parameters");
    srv_json_enter_object(&r->json);
    while (srv_json_next_member(&r->json, name, sizeof name)) {
        if (strcmp(name, "binary_data") == 0) {
            r->out->outputs.items[index].says = true;
            if (!srv_json_bool(&r->out->outputs.items[index].binary, &r->json, name))
                return false;
        } else if (strcmp(name, "classification") != 0) {
            return fail(r, SRV_E_UNSUPPORTED, name,
                        strncmp(name, "shared_memory", 13) == 0
                            ? "is not to be had: there is no shared memory, take the output's bytes"
                            : "is no parameter of an output");
        } else if (!srv_json_integer(&classes, &r->json, name)) {
            return false;
        } else if (classes != 0) {
            return fail(r, SRV_E_UNSUPPORTED, name, "has no meaning for attention");
        }
    }
    return r->json.error->code == SRV_OK;
}

static bool read_output(struct reader *r, size_t index)
{
    char key[NAME_SIZE], *name = NULL;
    if (srv_json_peek(&r->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(&r->json, "an object", "outputs");
    srv_json_enter_object(&r->json);
    while (srv_json_next_member(&r->json, key, sizeof key)) {
        bool read = false;
        if (strcmp(key, "parameters") == 0)
            read = read_output_parameters(r, index);
        else if (strcmp(key, "name") != 0)
            fail(r, SRV_E_UNKNOWN_FIELD, key, "is no member of an output");
        else if (name != NULL)
            fail(r, SRV_E_DUPLICATE_FIELD, "name", "of an output is given twice");
        else
            read = srv_json_string(&name, &r->json, r->arena, SRV_ID_MAX, "outputs.name");
        if (!read)
            return false;
    }
    if (r->json.error->code != SRV_OK)
        return false;
    if (name == NULL)
        return fail(r, SRV_E_MISSING_FIELD, "outputs.name", "is missing");
    if (strcmp(name, "head_stats") == 0)
        return fail(r, SRV_E_UNSUPPORTED, "head_stats", "are no tensor: /attend has them");
    r->out->outputs.items[index].name = name;
    return true;
}

/* The index of top_k's weights comes with the weights. */
static bool write_outputs(struct reader *r)
{
    const struct srv_v2_outputs *outputs = &r->out->outputs;
    size_t written = 0;
    bool weights = false, index = false;
    if (outputs->count == 0)
        return true;
    if (!write_name(r, "outputs", 0))
        return false;
    srv_buffer_text(&r->native, "[");
    for (size_t i = 0; i < outputs->count; i++) {
        const char *name = outputs->items[i].name;
        bool is_index = strcmp(name, SRV_V2_INDEX) == 0;
        weights = weights || strcmp(name, "attention_weights") == 0;
        index = index || is_index;
        if (is_index)
            continue;
        srv_buffer_text(&r->native, written++ > 0 ? "," : "");
        srv_buffer_json_string(&r->native, name);
    }
    srv_buffer_text(&r->native, "]");
    r->out->outputs.index = index;
    return weights || !index ||
           fail(r, SRV_E_INVALID_VALUE, SRV_V2_INDEX, "comes with attention_weights only");
}

static bool read_outputs(struct reader *r)
{
    struct srv_v2_outputs *outputs = &r->out->outputs;
    if (srv_json_peek(&r->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(&r->json, "a list of outputs", "outputs");
    srv_json_enter_array(&r->json);
    while (srv_json_next_element(&r->json)) {
        if (outputs->count == SRV_V2_MAX_OUTPUTS)
            return fail(r, SRV_E_TOO_COMPLEX, "outputs", "are too many");
        if (!read_output(r, outputs->count))
            return false;
        outputs->count++;
    }
    return r->json.error->code == SRV_OK && write_outputs(r);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static bool read_id(struct reader *r)
{
    char *id;
    if (!srv_json_string(&id, &r->json, r->arena, SRV_V2_ID_MAX, "id"))
        return false;
    r->out->id = id[0] != '\0' ? id : NULL;
    return true;
}

static const struct {
    const char *name;
    bool (*read)(struct reader *r);
} members[] = {
    {"id", read_id},
    {"parameters", read_parameters},
    {"inputs", read_inputs},
    {"outputs", read_outputs},
};
#define MEMBER_COUNT (sizeof members / sizeof members[0])

static bool read_member(struct reader *r, const char *name)
{
    size_t i = 0;
    while (i < MEMBER_COUNT && strcmp(name, members[i].name) != 0)
        i++;
    if (i == MEMBER_COUNT)
        return fail(r, SRV_E_UNKNOWN_FIELD, name, "is no member of an infer request");
    if ((r->seen >> i & 1) != 0)
        return fail(r, SRV_E_DUPLICATE_FIELD, name, "is given twice");
    r->seen |= 1u << i;
    if (srv_json_peek(&r->json) == SRV_JSON_NULL)
        return srv_json_literal(&r->json, "null");
    return members[i].read(r);
}

/* sequence_start and sequence_end say nothing without a sequence, unless they are true. */
static bool finish(struct reader *r)
{
    struct srv_v2_request *out = r->out;
    if (!srv_json_at_end(&r->json))
        return srv_json_expected(&r->json, "nothing behind the object");
    if ((out->start || out->end) && !out->has_sequence)
        return fail(r, SRV_E_MISSING_FIELD, "sequence_id",
                    "is missing beside sequence_start or sequence_end");
    if (out->start && !write_name(r, "start", 0))
        return false;
    srv_buffer_text(&r->native, out->start ? "true}" : "}");
    return !r->native.failed || fail(r, SRV_E_OUT_OF_MEMORY, "inputs", "find no memory");
}

static bool read_body(struct reader *r)
{
    const struct srv_v2_target *target = r->target;
    char name[NAME_SIZE];
    srv_buffer_text(&r->native, "{");
    if (target->model != NULL)
        write_text(r, "model", target->model);
    if (target->has_layer && write_name(r, "layer", 0))
        srv_buffer_unsigned(&r->native, target->layer, 1);
    if (!srv_json_enter_object(&r->json))
        return false;
    while (srv_json_next_member(&r->json, name, sizeof name))
        if (!read_member(r, name))
            return false;
    return r->json.error->code == SRV_OK && finish(r);
}

/* Most of what `native` holds beside the parameters: names and values of our own. */
#define NATIVE_BYTES ((size_t)8 * SRV_V2_MAX_PARAMETER_BYTES)

enum srv_error_code srv_v2_read(struct srv_v2_request *out, struct srv_call *call,
                                const struct srv_v2_target *target, const struct srv_body *body,
                                struct srv_arena *arena, struct srv_error *error)
{
    struct reader r = {.out = out, .target = target, .arena = arena, .bytes = body->bytes};
    *out = (struct srv_v2_request){.id = NULL};
    r.bytes.inputs = r.inputs;
    srv_json_init(&r.json, body->json, body->json_length, error);
    r.json.cancel = body->cancel;
    srv_buffer_init(&r.native, NATIVE_BYTES);
    if (read_body(&r)) {
        const struct srv_body native = {
            .json = r.native.data, .json_length = r.native.length, .bytes = r.bytes};
        if (srv_call_read(call, &native, SRV_CALL_ATTEND, 1, arena, error) != SRV_OK)
            srv_v2_reword_error(error);
        if (error->code == SRV_OK && out->outputs.index && call->rows.top_k == 0)
            fail(&r, SRV_E_MISSING_FIELD, "top_k", "is missing beside " SRV_V2_INDEX);
    }
    srv_buffer_fini(&r.native);
    return error->code;
}
