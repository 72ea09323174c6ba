/* v2_request.c: reads the members of an infer request, in any order, into the call that they mean.
 *
 * A parameter that is a field of /attend is read by the call's own reader, and an input becomes the
 * tensor of its field.  The first error of the call waits until the whole request has been read,
 * since errors of the request itself come first. */
#include "wire/v2.h"

#include <stdlib.h>

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
};

/* The output of that name; NULL where it is not asked for. */
static const struct srv_v2_output *find_output(const struct srv_v2_outputs *outputs,
                                               const char *name)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (strcmp(outputs->items[i].name, name) == 0)
            return &outputs->items[i];
    return NULL;
}

bool srv_v2_output_is_binary(const struct srv_v2_outputs *outputs, const char *name)
{
    const struct srv_v2_output *output = find_output(outputs, name);
    return output != NULL && output->says ? output->binary : outputs->binary;
}

bool srv_v2_has_binary(const struct srv_v2_outputs *outputs)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (outputs->items[i].says && outputs->items[i].binary)
            return true;
    return outputs->binary;
}

/* ---- The call -------------------------------------------------------------------------------- */

/* The place of a field of the call, which the caller fills; NULL once the call has an error. */
static void *accept_field(struct reader *r, enum srv_field_index field)
{
    return r->call_error.code == SRV_OK ? srv_call_accept(&r->call, &srv_fields[field]) : NULL;
}

/* Has the call read what stands at `at`, in the form of /attend. */
static void set_call_source(struct reader *r, const struct srv_json *at)
{
    r->call_source = (struct srv_source){.json = *at, .arena = r->source.arena};
    r->call_source.json.error = &r->call_error;
}

/* Sets the model and the layer that the path names, before anything else is read. */
static void set_target(struct reader *r)
{
    const struct srv_v2_target *target = r->target;
    if (target->has_layer)
        *(int64_t *)accept_field(r, SRV_F_layer) = (int64_t)target->layer;
    if (target->model == NULL)
        return;
    char **model = accept_field(r, SRV_F_model);
    *model = srv_arena_copy(r->source.arena, target->model, strlen(target->model));
    if (*model == NULL)
        srv_json_fail(r->json, SRV_E_OUT_OF_MEMORY, "model", "finds no memory");
}

/* ---- Members --------------------------------------------------------------------------------- */

/* A member of an object, and what reads its value, unless that is null; NULL: the value is a flag
 * of struct srv_v2_request. */
struct member {
    const char *name;
    void (*read)(struct reader *r);
    size_t flag; /* its place */
};

/* Reads the value of the member of that name; false where there is none in the table.  *seen has
 * bits of those that have occurred. */
static bool read_member(struct reader *r, const struct member members[], size_t count,
                        unsigned *seen, const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(name, members[i].name) != 0)
        i++;
    if (i == count)
        return false;
    if ((*seen >> i & 1) != 0) {
        srv_json_fail(r->json, SRV_E_DUPLICATE_FIELD, name, "is given twice");
    } else if (!srv_json_null(r->json)) {
        if (members[i].read != NULL)
            members[i].read(r);
        else
            srv_json_bool((bool *)((char *)r->out + members[i].flag), r->json, name);
    }
    *seen |= 1u << i;
    return true;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* The digits of an unsigned integer; NULL, with the error set, where another value stands there:
 * `wanted` instead of another type, `why` after the name of another number. */
static char *read_digits(struct reader *r, const char *wanted, const char *param, const char *why)
{
    if (srv_json_peek(r->json) != SRV_JSON_NUMBER)
        srv_json_wrong_type(r->json, wanted, param);
    const char *from = r->json->at;
    if (!srv_json_skip(r->json))
        return NULL;
    size_t length = (size_t)(r->json->at - from);
    char *digits = srv_arena_copy(r->source.arena, from, length <= SRV_ID_MAX ? length : 0);
    if (digits == NULL)
        srv_json_fail(r->json, SRV_E_OUT_OF_MEMORY, param, "finds no memory");
    else if (length > SRV_ID_MAX || strspn(digits, "0123456789") != length)
        srv_json_fail(r->json, SRV_E_INVALID_VALUE, param, "%s", why);
    return srv_json_sound(r->json) ? digits : NULL;
}

/* Digits are taken as they stand, so that any unsigned integer names a sequence.  The integer 0 and
 * "" mean none; the text "0" is an id like others. */
static void read_sequence_id(struct reader *r)
{
    const bool is_text = srv_json_peek(r->json) == SRV_JSON_STRING;
    char *id = NULL;
    if (is_text)
        srv_json_string(&id, r->json, r->source.arena, SRV_ID_MAX, "sequence_id");
    else
        id = read_digits(r, "a string or an integer", "sequence_id",
                         "is no unsigned integer; a string may be any id of a session");
    r->out->has_sequence = id != NULL && strcmp(id, is_text ? "" : "0") != 0;
    if (r->out->has_sequence && accept_field(r, SRV_F_session_id) != NULL)
        srv_call_set_id(&r->call, id, "sequence_id");
}

/* Beyond 64 bits the timeout is the longest there is. */
static void read_timeout(struct reader *r)
{
    const char *digits = read_digits(r, "an integer", "timeout", "is no unsigned integer");
    r->out->timeout_us = digits != NULL ? strtoull(digits, NULL, 10) : 0;
}

static void read_priority(struct reader *r)
{
    if (srv_json_peek(r->json) != SRV_JSON_NUMBER)
        srv_json_wrong_type(r->json, "a number", "priority");
    srv_json_skip(r->json);
}

static const struct member parameters[] = {
    {"sequence_id", read_sequence_id, 0},
    {"sequence_start", NULL, offsetof(struct srv_v2_request, start)},
    {"sequence_end", NULL, offsetof(struct srv_v2_request, end)},
    {"timeout", read_timeout, 0},
    {"priority", read_priority, 0},
    {"binary_data_output", NULL, offsetof(struct srv_v2_request, outputs.binary)},
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

static void fail_unknown(struct reader *r, const char *name)
{
    const char *names[SRV_FIELD_COUNT + PARAMETER_COUNT];
    size_t count = 0;
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        names[count++] = parameters[i].name;
    for (const struct srv_field *field = srv_fields; field < srv_fields + SRV_FIELD_COUNT; field++)
        if (is_parameter_kind(field) && (field->bodies & SRV_CALL_ATTEND) != 0 &&
            find_instead(field->name) == NULL)
            names[count++] = field->name;
    srv_v2_fail_unknown(r->json, "parameter", name, names, count);
}

/* Has the call read the next value.  A name may be given any number of times before one of them
 * counts as an error of the call, so their bytes are bounded. */
static void read_value(struct reader *r, const struct srv_field *field)
{
    const struct srv_json value = *r->json;
    srv_json_skip(r->json);
    r->parameter_bytes += strlen(field->name) + (size_t)(r->json->at - value.at);
    if (r->parameter_bytes > SRV_V2_MAX_PARAMETER_BYTES)
        srv_json_fail(r->json, SRV_E_TOO_COMPLEX, "parameters", "take too many bytes");
    set_call_source(r, &value);
    if (srv_json_sound(r->json) && r->call_error.code == SRV_OK)
        srv_call_read_field(&r->call, field);
}

static void read_field(struct reader *r, const char *name)
{
    const struct srv_field *field = srv_field_find(name, SRV_CALL_ATTEND);
    const char *instead = find_instead(name);
    const enum srv_json_type type = srv_json_peek(r->json);
    if (instead != NULL)
        srv_fail(r->json->error, SRV_E_UNKNOWN_FIELD, name, "%s is no parameter: %s", name,
                 instead);
    else if (field == NULL)
        fail_unknown(r, name);
    else if (!is_parameter_kind(field))
        srv_json_fail(r->json, SRV_E_INVALID_VALUE, name, "is an input, not a parameter");
    else if (r->target->has_layer && strcmp(name, "layer") == 0)
        srv_json_fail(r->json, SRV_E_DUPLICATE_FIELD, name,
                      "is no parameter where the path names it");
    else if (type == SRV_JSON_OBJECT)
        srv_json_wrong_type(r->json, "a number, a string, a flag or a list", name);
    else if (!srv_json_null(r->json))
        read_value(r, field);
}

static void read_parameters(struct reader *r)
{
    char name[NAME_SIZE];
    unsigned seen = 0;
    srv_json_begin_object(r->json, "parameters");
    while (srv_json_next_member(r->json, name, sizeof name))
        if (!read_member(r, parameters, PARAMETER_COUNT, &seen, name))
            read_field(r, name);
}

/* ---- Inputs and outputs ---------------------------------------------------------------------- */

/* Reads the next value as an input.  A model that is configured has weights; without any, query,
 * key and value are used. */
static void read_input(struct reader *r)
{
    static const char *const weightless[] = {"query", "key", "value", "past_key", "past_value"};
    const struct srv_field *field;
    struct srv_tensor input, *to;
    if (!srv_tensor_read_input(&input, &field, &r->source))
        return;
    for (size_t i = 0; i < sizeof weightless / sizeof weightless[0]; i++)
        if (r->target->model != NULL && strcmp(field->name, weightless[i]) == 0)
            srv_json_fail(r->json, SRV_E_INVALID_VALUE, field->name,
                          "is an input of the model attention; this one has hidden_states");
    to = accept_field(r, (enum srv_field_index)(field - srv_fields));
    if (to != NULL)
        *to = input;
}

static void read_inputs(struct reader *r)
{
    srv_json_begin_array(r->json, "a list of inputs", "inputs");
    for (size_t count = 0; srv_json_next_element(r->json); count++)
        if (count == SRV_V2_MAX_INPUTS)
            srv_json_fail(r->json, SRV_E_TOO_COMPLEX, "inputs", "are too many");
        else
            read_input(r);
}

/* The parameters of an output: binary_data alone has a meaning here. */
static void read_output_parameters(struct reader *r, struct srv_v2_output *output)
{
    char name[NAME_SIZE];
    int64_t classes = 0;
    if (srv_json_null(r->json))
        return;
    srv_json_begin_object(r->json, "outputs.parameters");
    while (srv_json_next_member(r->json, name, sizeof name)) {
        if (strcmp(name, "binary_data") == 0) {
            output->says = true;
            srv_json_bool(&output->binary, r->json, name);
        } else if (strcmp(name, "classification") == 0) {
            srv_json_integer(&classes, r->json, name);
            if (classes != 0)
                srv_json_fail(r->json, SRV_E_UNSUPPORTED, name, "has no meaning for attention");
        } else {
            srv_json_fail(
                r->json, SRV_E_UNSUPPORTED, name, "%s",
                strncmp(name, "shared_memory", 13) == 0
                    ? "is not to be had: there is no shared memory, take the output's bytes"
                    : "is no parameter of an output");
        }
    }
}

static void read_output(struct reader *r, struct srv_v2_output *output)
{
    char key[NAME_SIZE], *name = NULL;
    srv_json_begin_object(r->json, "outputs");
    while (srv_json_next_member(r->json, key, sizeof key)) {
        if (strcmp(key, "parameters") == 0)
            read_output_parameters(r, output);
        else if (strcmp(key, "name") != 0)
            srv_json_fail(r->json, SRV_E_UNKNOWN_FIELD, key, "is no member of an output");
        else if (name != NULL)
            srv_json_fail(r->json, SRV_E_DUPLICATE_FIELD, "name", "of an output is given twice");
        else
            srv_json_string(&name, r->json, r->source.arena, SRV_ID_MAX, "outputs.name");
    }
    if (name == NULL)
        srv_json_fail(r->json, SRV_E_MISSING_FIELD, "outputs.name", "is missing");
    else if (strcmp(name, "head_stats") == 0)
        srv_json_fail(r->json, SRV_E_UNSUPPORTED, "head_stats", "are no tensor: /attend has them");
    output->name = name;
}

/* Asks the call for outputs.  The index of top_k's weights comes with the weights. */
static void set_outputs(struct reader *r)
{
    struct srv_v2_outputs *outputs = &r->out->outputs;
    const struct srv_v2_output *end = outputs->items + outputs->count;
    outputs->index = find_output(outputs, SRV_V2_INDEX) != NULL;
    if (outputs->index && find_output(outputs, "attention_weights") == NULL)
        srv_json_fail(r->json, SRV_E_INVALID_VALUE, SRV_V2_INDEX,
                      "comes with attention_weights only");
    unsigned *to = outputs->count > 0 ? accept_field(r, SRV_F_outputs) : NULL;
    if (to != NULL)
        *to = 0;
    for (const struct srv_v2_output *output = outputs->items; output < end; output++)
        if (strcmp(output->name, SRV_V2_INDEX) != 0 && r->call_error.code == SRV_OK)
            srv_call_add_output(&r->call, output->name);
}

static void read_outputs(struct reader *r)
{
    struct srv_v2_outputs *outputs = &r->out->outputs;
    srv_json_begin_array(r->json, "a list of outputs", "outputs");
    while (srv_json_next_element(r->json))
        if (outputs->count == SRV_V2_MAX_OUTPUTS)
            srv_json_fail(r->json, SRV_E_TOO_COMPLEX, "outputs", "are too many");
        else
            read_output(r, &outputs->items[outputs->count++]);
    if (srv_json_sound(r->json))
        set_outputs(r);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static void read_id(struct reader *r)
{
    char *id;
    if (srv_json_string(&id, r->json, r->source.arena, SRV_V2_ID_MAX, "id"))
        r->out->id = id[0] != '\0' ? id : NULL;
}

static void read_body(struct reader *r)
{
    static const struct member members[] = {
        {"id", read_id, 0},
        {"parameters", read_parameters, 0},
        {"inputs", read_inputs, 0},
        {"outputs", read_outputs, 0},
    };
    char name[NAME_SIZE];
    unsigned seen = 0;
    srv_json_enter_object(r->json);
    while (srv_json_next_member(r->json, name, sizeof name))
        if (!read_member(r, members, sizeof members / sizeof members[0], &seen, name))
            srv_json_fail(r->json, SRV_E_UNKNOWN_FIELD, name, "is no member of an infer request");
    if (!srv_json_at_end(r->json))
        srv_json_expected(r->json, "nothing behind the object");
}

/* Checks the call.  Its error, in the request's words, becomes the request's where that has none.
 * sequence_start and sequence_end say nothing without a sequence, unless they are true. */
static void finish(struct reader *r)
{
    const struct srv_v2_request *out = r->out;
    if ((out->start || out->end) && !out->has_sequence)
        srv_json_fail(r->json, SRV_E_MISSING_FIELD, "sequence_id",
                      "is missing beside sequence_start or sequence_end");
    bool *start = out->start ? accept_field(r, SRV_F_start) : NULL;
    if (start != NULL)
        *start = true;
    if (srv_json_sound(r->json)) {
        set_call_source(r, r->json);
        r->call_source.bytes = r->source.bytes;
        if (r->call_error.code == SRV_OK)
            srv_call_finish(&r->call);
        *r->json->error = r->call_error;
        srv_v2_reword_error(r->json->error);
    }
    if (out->outputs.index && r->call.rows->top_k == 0)
        srv_json_fail(r->json, SRV_E_MISSING_FIELD, "top_k", "is missing beside " SRV_V2_INDEX);
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
    set_target(&r);
    read_body(&r);
    finish(&r);
    return error->code;
}
