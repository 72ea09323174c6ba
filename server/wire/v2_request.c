/* v2_request.c: reads the members of an infer request, in any order, into the call that they mean.
 *
 * A parameter that is a field of /attend is read by the call's own reader, and an input becomes the
 * tensor of its field.  The first error of the call waits until the whole request has been read,
 * since errors of the request itself come first. */
#include "wire/v2_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "wire/call_fields.h"
#include "wire/v2_words.h"

#define NAME_SIZE 32 /* of a member's name; a longer one is shortened and matches none */

struct reader {
    struct srv_v2_request *out;
    const struct srv_v2_target *target;
    struct srv_source source;
    struct srv_json *json; /* of the source */
    struct srv_call_reader call;
    struct srv_source call_source; /* in front of a value that the call reads */
    struct srv_error call_error;
    size_t parameter_bytes; /* of parameters that are fields of the call */
    unsigned seen;          /* bits of members */
};

static bool fail(struct reader *r, enum srv_error_code code, const char *param, const char *why)
{
    srv_fail(r->json->error, code, param, "%s %s", param, why);
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

/* ---- The call -------------------------------------------------------------------------------- */

/* The place of a field of the call, which the caller fills; NULL once the call has an error. */
static void *take(struct reader *r, enum srv_field_index field)
{
    return r->call_error.code == SRV_OK ? srv_call_take(&r->call, &srv_fields[field]) : NULL;
}

/* Has the call read what stands at `at`, in the form of /attend. */
static void set_call_source(struct reader *r, const struct srv_json *at)
{
    r->call_source = (struct srv_source){.json = *at, .arena = r->source.arena};
    r->call_source.json.error = &r->call_error;
}

/* Sets the model and the layer that the path names. */
static bool set_target(struct reader *r)
{
    const struct srv_v2_target *target = r->target;
    if (target->has_layer)
        *(int64_t *)take(r, SRV_F_layer) = (int64_t)target->layer;
    if (target->model == NULL)
        return true;
    char *model = srv_arena_copy(r->source.arena, target->model, strlen(target->model));
    *(char **)take(r, SRV_F_model) = model;
    return model != NULL || fail(r, SRV_E_OUT_OF_MEMORY, "model", "finds no memory");
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* An unsigned integer as its digits; `why` follows the name in the error of another number. */
static bool read_digits(char **out, struct reader *r, const char *param, const char *why)
{
    const char *from = r->json->at;
    if (!srv_json_skip(r->json))
        return false;
    size_t length = (size_t)(r->json->at - from);
    *out = srv_arena_copy(r->source.arena, from, length <= SRV_ID_MAX ? length : 0);
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
    if (srv_json_peek(r->json) == SRV_JSON_STRING) {
        if (!srv_json_string(&id, r->json, r->source.arena, SRV_ID_MAX, "sequence_id"))
            return false;
    } else {
        none = "0";
        if (srv_json_peek(r->json) != SRV_JSON_NUMBER)
            return srv_json_wrong_type(r->json, "a string or an integer", "sequence_id");
        if (!read_digits(&id, r, "sequence_id",
                         "is no unsigned integer; a string may be any id of a session"))
            return false;
    }
    r->out->has_sequence = strcmp(id, none) != 0;
    if (r->out->has_sequence && take(r, SRV_F_session_id) != NULL)
        srv_call_set_id(&r->call, id, "sequence_id");
    return true;
}

static bool read_start(struct reader *r)
{
    return srv_json_bool(&r->out->start, r->json, "sequence_start");
}

static bool read_end(struct reader *r)
{
    return srv_json_bool(&r->out->end, r->json, "sequence_end");
}

/* Beyond 64 bits the timeout is the longest there is. */
static bool read_timeout(struct reader *r)
{
    char *digits;
    if (srv_json_peek(r->json) != SRV_JSON_NUMBER)
        return srv_json_wrong_type(r->json, "an integer", "timeout");
    if (!read_digits(&digits, r, "timeout", "is no unsigned integer"))
        return false;
    r->out->timeout_us = strtoull(digits, NULL, 10);
    return true;
}

static bool read_priority(struct reader *r)
{
    if (srv_json_peek(r->json) != SRV_JSON_NUMBER)
        return srv_json_wrong_type(r->json, "a number", "priority");
    return srv_json_skip(r->json);
}

static bool read_binary_output(struct reader *r)
{
    return srv_json_bool(&r->out->outputs.binary, r->json, "binary_data_output");
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
        srv_fail(r->json->error, SRV_E_UNKNOWN_FIELD, name, "%s is no parameter: %s", name,
                 instead);
        return false;
    }
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        names[count++] = parameters[i].name;
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (is_field(&srv_fields[i]))
            names[count++] = srv_fields[i].name;
    return srv_v2_fail_unknown(r->json, "parameter", name, names, count);
}

static bool read_field(struct reader *r, const char *name)
{
    const struct srv_field *field = srv_field_find(name, SRV_CALL_ATTEND);
    if (field == NULL || find_instead(name) != NULL)
        return fail_unknown(r, name);
    if (!is_parameter_kind(field))
        return fail(r, SRV_E_INVALID_VALUE, name, "is an input, not a parameter");
    if (r->target->has_layer && strcmp(name, "layer") == 0)
        return fail(r, SRV_E_DUPLICATE_FIELD, name, "is no parameter where the path names it");
    enum srv_json_type type = srv_json_peek(r->json);
    if (type == SRV_JSON_NULL)
        return srv_json_literal(r->json, "null");
    if (type == SRV_JSON_OBJECT)
        return srv_json_wrong_type(r->json, "a number, a string, a flag or a list", name);
    const struct srv_json value = *r->json;
    if (!srv_json_skip(r->json))
        return false;
    r->parameter_bytes += strlen(name) + (size_t)(r->json->at - value.at);
    if (r->parameter_bytes >
        SRV_V2_MAX_PARAMETER_BYTES) /* a name may be given any number of times */
        return fail(r, SRV_E_TOO_COMPLEX, "parameters", "take too many bytes");
    set_call_source(r, &value);
    if (r->call_error.code == SRV_OK)
        srv_call_read_field(&r->call, field);
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
    if (srv_json_peek(r->json) == SRV_JSON_NULL)
        return srv_json_literal(r->json, "null");
    return parameters[i].read(r);
}

static bool read_parameters(struct reader *r)
{
    char name[NAME_SIZE];
    unsigned seen = 0;
    if (srv_json_peek(r->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(r->json, "an object", "parameters");
    srv_json_enter_object(r->json);
    while (srv_json_next_member(r->json, name, sizeof name))
        if (!read_parameter(r, name, &seen))
            return false;
    return r->json->error->code == SRV_OK;
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
    if (srv_json_peek(r->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(r->json, "a list of inputs", "inputs");
    srv_json_enter_array(r->json);
    for (size_t count = 0; srv_json_next_element(r->json); count++) {
        const struct srv_field *field;
        struct srv_tensor input, *place;
        if (count == SRV_V2_MAX_INPUTS)
            return fail(r, SRV_E_TOO_COMPLEX, "inputs", "are too many");
        if (!srv_tensor_read_input(&input, &field, &r->source) || !check_input(r, field->name))
            return false;
        place = take(r, (enum srv_field_index)(field - srv_fields));
        if (place != NULL)
            *place = input;
    }
    return r->json->error->code == SRV_OK;
}

/* The parameters of an output: binary_data alone has a meaning here. */
static bool read_output_parameters(struct reader *r, size_t index)
{
    char name[NAME_SIZE];
    int64_t classes;
    if (srv_json_peek(r->json) == SRV_JSON_NULL)
        return srv_json_literal(r->json, "null");
    if (srv_json_peek(r->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(r->json, "an object", "outputs.parameters");
    srv_json_enter_object(r->json);
    while (srv_json_next_member(r->json, name, sizeof name)) {
        if (strcmp(name, "binary_data") == 0) {
            r->out->outputs.items[index].says = true;
            if (!srv_json_bool(&r->out->outputs.items[index].binary, r->json, name))
                return false;
        } else if (strcmp(name, "classification") != 0) {
            return fail(r, SRV_E_UNSUPPORTED, name,
                        strncmp(name, "shared_memory", 13) == 0
                            ? "is not to be had: there is no shared memory, take the output's bytes"
                            : "is no parameter of an output");
        } else if (!srv_json_integer(&classes, r->json, name)) {
            return false;
        } else if (classes != 0) {
            return fail(r, SRV_E_UNSUPPORTED, name, "has no meaning for attention");
        }
    }
    return r->json->error->code == SRV_OK;
}

static bool read_output(struct reader *r, size_t index)
{
    char key[NAME_SIZE], *name = NULL;
    if (srv_json_peek(r->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(r->json, "an object", "outputs");
    srv_json_enter_object(r->json);
    while (srv_json_next_member(r->json, key, sizeof key)) {
        bool read = false;
        if (strcmp(key, "parameters") == 0)
            read = read_output_parameters(r, index);
        else if (strcmp(key, "name") != 0)
            fail(r, SRV_E_UNKNOWN_FIELD, key, "is no member of an output");
        else if (name != NULL)
            fail(r, SRV_E_DUPLICATE_FIELD, "name", "of an output is given twice");
        else
            read = srv_json_string(&name, r->json, r->source.arena, SRV_ID_MAX, "outputs.name");
        if (!read)
            return false;
    }
    if (r->json->error->code != SRV_OK)
        return false;
    if (name == NULL)
        return fail(r, SRV_E_MISSING_FIELD, "outputs.name", "is missing");
    if (strcmp(name, "head_stats") == 0)
        return fail(r, SRV_E_UNSUPPORTED, "head_stats", "are no tensor: /attend has them");
    r->out->outputs.items[index].name = name;
    return true;
}

/* The index of top_k's weights comes with the weights. */
static bool take_outputs(struct reader *r)
{
    struct srv_v2_outputs *outputs = &r->out->outputs;
    unsigned *place;
    bool weights = false;
    if (outputs->count == 0)
        return true;
    for (size_t i = 0; i < outputs->count; i++) {
        weights = weights || strcmp(outputs->items[i].name, "attention_weights") == 0;
        outputs->index = outputs->index || strcmp(outputs->items[i].name, SRV_V2_INDEX) == 0;
    }
    if (outputs->index && !weights)
        return fail(r, SRV_E_INVALID_VALUE, SRV_V2_INDEX, "comes with attention_weights only");
    place = take(r, SRV_F_outputs);
    if (place != NULL)
        *place = 0;
    for (size_t i = 0; i < outputs->count && r->call_error.code == SRV_OK; i++)
        if (strcmp(outputs->items[i].name, SRV_V2_INDEX) != 0)
            srv_call_add_output(&r->call, outputs->items[i].name);
    return true;
}

static bool read_outputs(struct reader *r)
{
    struct srv_v2_outputs *outputs = &r->out->outputs;
    if (srv_json_peek(r->json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(r->json, "a list of outputs", "outputs");
    srv_json_enter_array(r->json);
    while (srv_json_next_element(r->json)) {
        if (outputs->count == SRV_V2_MAX_OUTPUTS)
            return fail(r, SRV_E_TOO_COMPLEX, "outputs", "are too many");
        if (!read_output(r, outputs->count))
            return false;
        outputs->count++;
    }
    return r->json->error->code == SRV_OK && take_outputs(r);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static bool read_id(struct reader *r)
{
    char *id;
    if (!srv_json_string(&id, r->json, r->source.arena, SRV_V2_ID_MAX, "id"))
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
    if (srv_json_peek(r->json) == SRV_JSON_NULL)
        return srv_json_literal(r->json, "null");
    return members[i].read(r);
}

/* Checks the call.  Its error, in the request's words, is the request's, which has none so far. */
static bool finish_call(struct reader *r)
{
    set_call_source(r, r->json);
    r->call_source.bytes = r->source.bytes;
    if (r->call_error.code == SRV_OK && srv_call_finish(&r->call))
        return true;
    *r->json->error = r->call_error;
    srv_v2_reword_error(r->json->error);
    return false;
}

/* sequence_start and sequence_end say nothing without a sequence, unless they are true. */
static bool finish(struct reader *r)
{
    const struct srv_v2_request *out = r->out;
    bool *start;
    if (!srv_json_at_end(r->json))
        return srv_json_expected(r->json, "nothing behind the object");
    if ((out->start || out->end) && !out->has_sequence)
        return fail(r, SRV_E_MISSING_FIELD, "sequence_id",
                    "is missing beside sequence_start or sequence_end");
    start = out->start ? take(r, SRV_F_start) : NULL;
    if (start != NULL)
        *start = true;
    if (!finish_call(r))
        return false;
    return !out->outputs.index || r->call.rows->top_k > 0 ||
           fail(r, SRV_E_MISSING_FIELD, "top_k", "is missing beside " SRV_V2_INDEX);
}

static bool read_body(struct reader *r)
{
    char name[NAME_SIZE];
    if (!set_target(r) || !srv_json_enter_object(r->json))
        return false;
    while (srv_json_next_member(r->json, name, sizeof name))
        if (!read_member(r, name))
            return false;
    return r->json->error->code == SRV_OK && finish(r);
}

enum srv_error_code srv_v2_read(struct srv_v2_request *out, struct srv_call *call,
                                const struct srv_v2_target *target, const struct srv_body *body,
                                struct srv_arena *arena, struct srv_error *error)
{
    struct reader r = {.out = out, .target = target, .json = &r.source.json};
    *out = (struct srv_v2_request){.id = NULL};
    srv_source_init(&r.source, body, arena, error);
    set_call_source(&r, r.json);
    srv_call_begin(&r.call, call, &r.call_source, SRV_CALL_ATTEND, 1);
    read_body(&r);
    return error->code;
}
