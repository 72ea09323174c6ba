/* infer.c: from a call of /attend to the bytes of an infer request, and back from its reply. */
#include "infer.h"

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define ALIGNMENT 64

/* ---- Heads ----------------------------------------------------------------------------------- */

void v2_head(struct text *out, enum v2_client client, const char *method, const char *path,
             size_t length, const char *fields)
{
    static const char *const own[V2_CLIENTS] = {
        [V2_SYNC] = "host: localhost:8000\r\nuser-agent: python-geventhttpclient-2.0.2\r\n",
        [V2_ASYNCIO] = "Host: localhost:8000\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
                       "User-Agent: Python/3.11 aiohttp/3.9.1\r\n",
        [V2_CURL] = "Host: localhost:8000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n",
    };
    static const char *const type[V2_CLIENTS] = {
        [V2_SYNC] = "",
        [V2_ASYNCIO] = "Content-Type: application/octet-stream\r\n",
        [V2_CURL] = "Content-Type: application/x-www-form-urlencoded\r\n",
    };
    text_add(out, "%s %s%s HTTP/1.1\r\n%s%s", method, path, client == V2_CURL ? "?x=1&y" : "",
             own[client], fields);
    if (length != SIZE_MAX)
        text_add(out, "%s%s: %zu\r\n", type[client],
                 client == V2_SYNC ? "content-length" : "Content-Length", length);
    text_add(out, "\r\n");
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct parts {
    struct text inputs, parameters, outputs, bytes;
};

static void add_comma(struct text *list) { text_add(list, list->length > 0 ? "," : ""); }

static void add_json(struct text *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    text_add(out, "%s", text);
    free(text);
}

static void add_flat(struct text *out, const json_t *value)
{
    if (!json_is_array(value)) {
        add_json(out, value);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        text_add(out, i > 0 ? "," : "");
        add_flat(out, json_array_get(value, i));
    }
}

/* An infer request in JSON has no null among numbers: minus infinity goes as bytes. */
static bool has_null(const json_t *value)
{
    bool found = json_is_null(value);
    for (size_t i = 0; i < json_array_size(value) && !found; i++)
        found = has_null(json_array_get(value, i));
    return found;
}

static void add_input(struct parts *parts, const char *name, const json_t *value, char kind,
                      const struct v2_form *form)
{
    struct text *out = &parts->inputs, shape = {0}, data = {0};
    const char *type = kind == 'f' ? "FP32" : kind == 'i' ? "INT64" : "BOOL";
    size_t before = parts->bytes.length;
    for (const json_t *at = value; json_is_array(at); at = json_array_get(at, 0))
        text_add(&shape, "%s%zu", shape.length > 0 ? "," : "", json_array_size(at));
    if (form->binary || has_null(value)) {
        binary_elements(&parts->bytes, value, kind, AS_FP32);
        text_add(&data, "\"parameters\":{\"binary_data_size\":%zu}", parts->bytes.length - before);
    } else if (form->client == V2_CURL && json_is_array(value)) {
        text_add(&data, "\"data\":");
        add_json(&data, value);
    } else {
        text_add(&data, "\"data\":[");
        add_flat(&data, value);
        text_add(&data, "]");
    }
    add_comma(out);
    if (form->backwards)
        text_add(out, "{%s,\"datatype\":\"%s\",\"shape\":[%s],\"name\":\"%s\"}", data.data, type,
                 shape.length > 0 ? shape.data : "", name);
    else
        text_add(out, "{\"name\":\"%s\",\"shape\":[%s],\"datatype\":\"%s\",%s}", name,
                 shape.length > 0 ? shape.data : "", type, data.data);
    text_free(&shape);
    text_free(&data);
}

static void add_outputs(struct parts *parts, const json_t *names, enum v2_outputs form)
{
    static const char *const parameters[V2_OUTPUTS] = {
        [V2_BINARY] = ",\"parameters\":{\"binary_data\":true}",
        [V2_JSON] = ",\"parameters\":{\"binary_data\":false}",
        [V2_MIXED] = "",
        [V2_DEFAULT] = "",
    };
    for (size_t i = 0; i < json_array_size(names); i++) {
        add_comma(&parts->outputs);
        text_add(&parts->outputs, "{\"name\":\"%s\"%s}",
                 json_string_value(json_array_get(names, i)),
                 parameters[form == V2_MIXED && i == 0 ? V2_BINARY : form]);
    }
}

static void add_member(struct parts *parts, const char *name, const json_t *value,
                       const struct v2_form *form)
{
    char kind = binary_kind(name);
    bool is_list = kind == 'i' && strcmp(name, "position_ids") != 0;
    if (json_is_null(value) || strcmp(name, "model") == 0)
        return;
    if (strcmp(name, "outputs") == 0) {
        add_outputs(parts, value, form->outputs);
        return;
    }
    if (kind != '\0' && !(is_list && form->client == V2_SYNC)) {
        add_input(parts, name, value, kind, form);
        return;
    }
    if (strcmp(name, "session_id") == 0)
        name = "sequence_id";
    if (strcmp(name, "start") == 0)
        name = "sequence_start";
    add_comma(&parts->parameters);
    text_add(&parts->parameters, "\"%s\":", name);
    add_json(&parts->parameters, value);
}

static void pack(struct text *body, enum v2_coding coding)
{
    z_stream z = {.next_in = (Bytef *)body->data, .avail_in = (uInt)body->length};
    struct text packed = {0};
    Bytef piece[4096];
    int status;
    ck_assert_int_eq(deflateInit2(&z, 1, Z_DEFLATED, coding == V2_GZIP ? MAX_WBITS + 16 : MAX_WBITS,
                                  8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    do {
        z.next_out = piece;
        z.avail_out = sizeof piece;
        status = deflate(&z, Z_FINISH);
        text_bytes(&packed, piece, sizeof piece - z.avail_out);
    } while (status == Z_OK);
    ck_assert_int_eq(status, Z_STREAM_END);
    deflateEnd(&z);
    text_free(body);
    *body = packed;
}

static void add_body(struct text *body, const struct parts *parts, const struct v2_form *form)
{
    bool all_binary = form->outputs == V2_DEFAULT;
    text_add(body, "{");
    if (form->id != NULL)
        text_add(body, "\"id\":\"%s\",", form->id);
    text_add(body, "\"parameters\":{%s%s\"binary_data_output\":%s%s%s},",
             form->extra != NULL ? form->extra : "", "", all_binary ? "true" : "false",
             parts->parameters.length > 0 ? "," : "",
             parts->parameters.length > 0 ? parts->parameters.data : "");
    if (parts->outputs.length > 0)
        text_add(body, "\"outputs\":[%s],", parts->outputs.data);
    text_add(body, "\"inputs\":[%s]}", parts->inputs.data);
}

static void add_head(struct text *out, const json_t *call, const struct v2_form *form,
                     size_t json_length, size_t length)
{
    static const char *const codings[V2_CODINGS] = {
        [V2_PLAIN] = "",
        [V2_GZIP] = "Content-Encoding: gzip\r\n",
        [V2_DEFLATE] = "Content-Encoding: deflate\r\n",
    };
    char path[160], fields[160];
    const char *model = json_string_value(json_object_get(call, "model"));
    snprintf(path, sizeof path, "/v2/models/%s%s/infer", model != NULL ? model : "attention",
             form->version ? "/versions/1" : "");
    snprintf(fields, sizeof fields, "%s", codings[form->coding]);
    if (json_length != SIZE_MAX)
        snprintf(fields, sizeof fields, "%s%s: %zu\r\n", codings[form->coding],
                 form->client == V2_SYNC ? "inference-header-content-length" : JSON_LENGTH,
                 json_length);
    v2_head(out, form->client, "POST", path, length, fields);
}

void v2_request(struct text *out, const char *native, const struct v2_form *form)
{
    struct parts parts = {{0}, {0}, {0}, {0}};
    struct text body = {0};
    const char *name;
    json_t *value, *call = json_loads(native, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_is_object(call), "no JSON: %s", native);
    json_object_foreach(call, name, value)
        add_member(&parts, name, value, form);
    add_body(&body, &parts, form);
    size_t json_length = parts.bytes.length > 0 ? body.length : SIZE_MAX;
    text_bytes(&body, parts.bytes.data, parts.bytes.length);
    if (form->coding != V2_PLAIN)
        pack(&body, form->coding);
    add_head(out, call, form, json_length, body.length);
    text_bytes(out, body.data, body.length);
    text_free(&parts.inputs);
    text_free(&parts.parameters);
    text_free(&parts.outputs);
    text_free(&parts.bytes);
    text_free(&body);
    json_decref(call);
}

/* ---- Replies --------------------------------------------------------------------------------- */

struct reply {
    const char *at; /* bytes that no output has taken */
    size_t left;
    const char *what;
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

/* The numbers of an output as one flat list. */
static json_t *flat_of(struct reply *reply, const json_t *output, size_t count)
{
    json_t *data = json_object_get(output, "data"), *list = json_array();
    json_t *size = json_object_get(json_object_get(output, "parameters"), "binary_data_size");
    bool indices = strcmp(text_of(output, "datatype"), "UINT32") == 0;
    ck_assert_msg((data == NULL) != (size == NULL), "%s: data and bytes", reply->what);
    if (data != NULL) {
        ck_assert_msg(json_array_size(data) == count, "%s: %zu numbers", reply->what, count);
        json_decref(list);
        return json_incref(data);
    }
    ck_assert_uint_eq((size_t)json_integer_value(size), count * sizeof(float));
    ck_assert_uint_ge(reply->left, count * sizeof(float));
    for (size_t i = 0; i < count; i++, reply->at += sizeof(float), reply->left -= sizeof(float)) {
        float x;
        uint32_t index;
        memcpy(&x, reply->at, sizeof x);
        memcpy(&index, reply->at, sizeof index);
        json_array_append_new(list, indices    ? json_integer(index)
                                    : isinf(x) ? json_null()
                                               : json_real((double)x));
    }
    return list;
}

/* Nested arrays of a flat list from *next on. */
static json_t *nest(const json_t *flat, size_t *next, const json_t *shape, size_t dimension)
{
    if (dimension == json_array_size(shape))
        return json_incref(json_array_get(flat, (*next)++));
    json_t *array = json_array();
    for (json_int_t i = 0; i < json_integer_value(json_array_get(shape, dimension)); i++)
        json_array_append_new(array, nest(flat, next, shape, dimension + 1));
    return array;
}

/* Puts an output under its name; the two of top_k as /attend has them. */
static void take_output(struct reply *reply, json_t *out, const json_t *output)
{
    const json_t *shape = json_object_get(output, "shape");
    const char *name = text_of(output, "name");
    size_t count = 1, next = 0;
    for (size_t i = 0; i < json_array_size(shape); i++)
        count *= (size_t)json_integer_value(json_array_get(shape, i));
    json_t *flat = flat_of(reply, output, count), *nested = nest(flat, &next, shape, 0);
    json_t *index = json_object_get(out, "attention_weights");
    if (strcmp(name, "attention_weights_index") == 0)
        json_object_set_new(out, "attention_weights", json_pack("{s:o}", "index", nested));
    else if (strcmp(name, "attention_weights") == 0 && index != NULL)
        json_object_set_new(index, "weight", nested);
    else
        json_object_set_new(out, name, nested);
    json_decref(flat);
}

/* The JSON of a reply; the bytes after it stay in *reply. */
static json_t *split(struct reply *reply, const struct raw_answer *answer)
{
    char length[256], type[256];
    size_t json_length = answer->length;
    bool framed = raw_header(length, answer, JSON_LENGTH);
    ck_assert_msg(answer->status == 200, "%s: %u %.300s", reply->what, answer->status,
                  answer->body);
    ck_assert(raw_header(type, answer, "Content-Type"));
    ck_assert_str_eq(type, framed ? "application/octet-stream" : "application/json");
    if (framed)
        json_length = strtoul(length, NULL, 10);
    ck_assert_msg(!framed || (json_length % ALIGNMENT == 0 && json_length < answer->length),
                  "%s: bytes begin at %zu", reply->what, json_length);
    reply->at = answer->body + json_length;
    reply->left = answer->length - json_length;
    return json_loadb(answer->body, json_length, JSON_REJECT_DUPLICATES, NULL);
}

json_t *v2_reply(const struct raw_answer *answer, const struct v2_form *form, const char *what)
{
    struct reply reply = {.what = what};
    const char *name;
    json_t *value, *json = split(&reply, answer), *out = json_object();
    ck_assert_msg(json_is_object(json), "%s: no JSON: %.300s", what, answer->body);
    ck_assert_str_eq(text_of(json, "model_version"), "1");
    ck_assert_str_eq(text_of(json, "id"), form->id != NULL ? form->id : "");
    json_object_foreach(json_object_get(json, "parameters"), name, value)
        json_object_set(out, strcmp(name, "sequence_id") == 0 ? "session_id" : name, value);
    const json_t *outputs = json_object_get(json, "outputs");
    ck_assert_msg(json_array_size(outputs) > 0, "%s: no outputs", what);
    for (size_t i = 0; i < json_array_size(outputs); i++)
        take_output(&reply, out, json_array_get(outputs, i));
    ck_assert_msg(reply.left == 0, "%s: %zu bytes of no output", what, reply.left);
    json_decref(json);
    return out;
}

void v2_expect_error(const struct raw_answer *answer, unsigned status, const char *code,
                     const char *what)
{
    char type[256];
    json_t *json = json_loadb(answer->body != NULL ? answer->body : "", answer->length, 0, NULL);
    ck_assert_msg(answer->status == status, "%s: %u, expected %u: %.300s", what, answer->status,
                  status, answer->body != NULL ? answer->body : "");
    ck_assert(raw_header(type, answer, "Content-Type"));
    ck_assert_str_eq(type, "application/json");
    ck_assert_msg(text_of(json, "error")[0] != '\0', "%s: no text: %.300s", what, answer->body);
    ck_assert_msg(strcmp(text_of(json, "code"), code) == 0, "%s: expected %s: %.300s", what, code,
                  answer->body);
    json_decref(json);
}
