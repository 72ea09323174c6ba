/* binary.c: converts JSON arrays to bytes and back.
 *
 * A table says which members are tensors, and of which type: what docs/API.md says of fields. */
#include "binary.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

#define MAX_RANK 4

static const struct {
    const char *name;
    char kind; /* 'f' floats, 'b' flags, 'i' integers */
} tensors[] = {
    {"hidden_states", 'f'},
    {"encoder_hidden_states", 'f'},
    {"key_hidden_states", 'f'},
    {"value_hidden_states", 'f'},
    {"query", 'f'},
    {"key", 'f'},
    {"value", 'f'},
    {"attention_bias", 'f'},
    {"head_mask", 'f'},
    {"padding_mask", 'b'},
    {"attention_mask", 'b'},
    {"query_offset", 'i'},
    {"position_ids", 'i'},
    {"sliding_window", 'i'},
    {"heads", 'i'},
    {"rows", 'i'},
    {"targets", 'i'},
};

char binary_kind(const char *name)
{
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (strcmp(name, tensors[i].name) == 0)
            return tensors[i].kind;
    return '\0';
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Returns a number with few digits as a half, which must hold it exactly and be normal or zero. */
static uint16_t to_half(float x)
{
    int exponent;
    double fraction = frexp(fabs((double)x), &exponent) * 2048; /* 11 bits, the first of them 1 */
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isinf(x))
        return sign | 0x7c00;
    if (x == 0)
        return sign;
    ck_assert_msg(fraction == floor(fraction) && exponent > -14 && exponent < 16, "no half: %g",
                  (double)x);
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)fraction & 1023));
}

static void add_float(struct text *bytes, float x, enum binary_type type)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t upper = (uint16_t)(bits >> 16), half = type == AS_FP16 ? to_half(x) : 0;
    if (type == AS_BF16)
        ck_assert_msg((bits & 0xffff) == 0, "no bfloat16: %g", (double)x);
    if (type == AS_FP32)
        text_bytes(bytes, &bits, sizeof bits);
    else
        text_bytes(bytes, type == AS_FP16 ? &half : &upper, sizeof half);
}

static void add_element(struct text *bytes, const json_t *value, char kind, enum binary_type type)
{
    int64_t number = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
    uint8_t flag = (uint8_t)number;
    int32_t narrow = (int32_t)number;
    if (kind == 'f')
        add_float(bytes, json_is_null(value) ? -INFINITY : (float)json_number_value(value), type);
    else if (kind == 'b')
        text_bytes(bytes, &flag, sizeof flag);
    else if (type == AS_FP32)
        text_bytes(bytes, &number, sizeof number);
    else
        text_bytes(bytes, &narrow, sizeof narrow);
}

void binary_elements(struct text *bytes, const json_t *value, char kind, enum binary_type type)
{
    if (!json_is_array(value)) {
        add_element(bytes, value, kind, type);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        binary_elements(bytes, json_array_get(value, i), kind, type);
}

/* Adds the array's bytes, and returns the object that replaces the array. */
static json_t *describe(struct text *bytes, const json_t *value, char kind, enum binary_type type)
{
    static const char *const floats[] = {"FP32", "FP16", "BF16"};
    const char *name = kind == 'f' ? floats[type] : kind == 'b' ? "BOOL" : "INT64";
    if (kind == 'i' && type != AS_FP32)
        name = "INT32";
    size_t before = bytes->length;
    json_t *shape = json_array();
    binary_elements(bytes, value, kind, type);
    for (; json_is_array(value); value = json_array_get(value, 0))
        json_array_append_new(shape, json_integer((json_int_t)json_array_size(value)));
    return json_pack("{s:o, s:s, s:i}", "shape", shape, "datatype", name, "binary_data_size",
                     (int)(bytes->length - before));
}

static void describe_members(struct text *bytes, json_t *object, enum binary_type type)
{
    const char *name;
    json_t *value, *item;
    size_t i;
    json_object_foreach(object, name, value) {
        char kind = binary_kind(name);
        if (kind != '\0' && !json_is_null(value) && !json_is_object(value))
            json_object_set_new(object, name, describe(bytes, value, kind, type));
        else if (strcmp(name, "sequences") == 0)
            json_array_foreach(value, i, item)
                describe_members(bytes, item, type);
    }
}

size_t binary_body(struct text *out, const char *json, enum binary_type type, size_t padding)
{
    struct text bytes = {0};
    json_t *call = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_is_object(call), "no JSON: %s", json);
    describe_members(&bytes, call, type);
    char *text = json_dumps(call, JSON_COMPACT);
    text_add(out, "%s%*s", text, (int)padding, "");
    size_t length = out->length;
    text_bytes(out, bytes.data, bytes.length);
    free(text);
    json_decref(call);
    text_free(&bytes);
    return length;
}

struct answer binary_send(struct client *client, const char *path, const struct text *body,
                          size_t json_length, const char *header)
{
    char length[80];
    const char *const headers[] = {"Content-Type: application/octet-stream", length, header, NULL};
    snprintf(length, sizeof length, JSON_LENGTH ": %zu", json_length);
    struct request request = {.method = "POST",
                              .path = path,
                              .body = body->data,
                              .length = body->length,
                              .headers = headers};
    return client_send(client, &request);
}

struct answer binary_post(struct client *client, const char *path, const char *json,
                          enum binary_type type, size_t padding, const char *header)
{
    struct text body = {0};
    size_t length = binary_body(&body, json, type, padding);
    struct answer answer = binary_send(client, path, &body, length, header);
    text_free(&body);
    return answer;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* The bytes of an answer that no tensor has taken yet. */
struct rest {
    const char *at;
    size_t left, taken;
};

static json_t *real_or_null(double x)
{
    ck_assert_msg(x < INFINITY, "NaN or infinity in an answer");
    return isinf(x) ? json_null() : json_real(x);
}

static json_t *json_of_float(const char *from)
{
    float x;
    memcpy(&x, from, sizeof x);
    return real_or_null((double)x);
}

static json_t *json_of_half(const char *from)
{
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return real_or_null(half_value(bits));
}

static json_t *json_of_index(const char *from)
{
    uint32_t index;
    memcpy(&index, from, sizeof index);
    return json_integer(index);
}

static json_t *json_of_byte(const char *from) { return json_integer((uint8_t)*from); }

static const struct element {
    const char *type;
    size_t size;
    json_t *(*read)(const char *from);
} reply_elements[] = {
    {"FP32", 4, json_of_float},
    {"UINT32", 4, json_of_index},
    {"FP16", 2, json_of_half},
    {"UINT8", 1, json_of_byte},
};

static const struct element *element_of(const char *type)
{
    size_t i = 0;
    while (i < sizeof reply_elements / sizeof reply_elements[0] &&
           strcmp(type, reply_elements[i].type) != 0)
        i++;
    ck_assert_msg(i < sizeof reply_elements / sizeof reply_elements[0], "datatype %s", type);
    return &reply_elements[i];
}

static void skip_bytes(struct rest *rest, size_t count)
{
    ck_assert_uint_ge(rest->left, count);
    rest->at += count;
    rest->left -= count;
    rest->taken += count;
}

/* Builds nested arrays from the next bytes. */
static json_t *take_array(struct rest *rest, const size_t *shape, size_t rank,
                          const struct element *element)
{
    if (rank == 0) {
        const char *from = rest->at;
        skip_bytes(rest, element->size);
        return element->read(from);
    }
    json_t *array = json_array();
    for (size_t i = 0; i < shape[0]; i++)
        json_array_append_new(array, take_array(rest, shape + 1, rank - 1, element));
    return array;
}

static json_t *take_tensor(struct rest *rest, const json_t *object)
{
    size_t shape[MAX_RANK];
    const json_t *dimensions = json_object_get(object, "shape");
    const char *type = json_string_value(json_object_get(object, "datatype"));
    size_t rank = json_array_size(dimensions);
    ck_assert_uint_le(rank, MAX_RANK);
    ck_assert_ptr_nonnull(type);
    const struct element *element = element_of(type);
    skip_bytes(rest, -rest->taken % element->size);
    size_t before = rest->left;
    for (size_t i = 0; i < rank; i++)
        shape[i] = (size_t)json_integer_value(json_array_get(dimensions, i));
    json_t *tensor = take_array(rest, shape, rank, element);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "binary_data_size")),
                     (json_int_t)(before - rest->left));
    if (element->size == 1) /* bytes say little without their range */
        return json_pack("{s:o, s:O, s:O}", "bytes", tensor, "minimum",
                         json_object_get(object, "minimum"), "maximum",
                         json_object_get(object, "maximum"));
    return tensor;
}

static void take_tensors(struct rest *rest, json_t *object)
{
    const char *name;
    json_t *value, *item;
    size_t i;
    json_object_foreach(object, name, value) {
        if (json_object_get(value, "binary_data_size") != NULL)
            json_object_set_new(object, name, take_tensor(rest, value));
        else if (json_is_object(value))
            take_tensors(rest, value);
        else if (strcmp(name, "sequences") == 0)
            json_array_foreach(value, i, item)
                take_tensors(rest, item);
    }
}

void binary_decode(struct answer *answer, const char *what)
{
    char type[256], length[256];
    ck_assert_msg(answer->status == 200, "%s: %ld %.300s", what, answer->status, answer->text);
    ck_assert_msg(answer_header(type, answer, "Content-Type") &&
                      strcmp(type, "application/octet-stream") == 0,
                  "%s: %.300s", what, answer->text);
    ck_assert_msg(answer_header(length, answer, JSON_LENGTH), "%s: no " JSON_LENGTH, what);
    size_t json_length = strtoul(length, NULL, 10);
    ck_assert_uint_le(json_length, answer->length);
    ck_assert_msg(json_length % 64 == 0, "%s: bytes begin at %zu", what, json_length);
    json_decref(answer->json);
    answer->json = json_loadb(answer->text, json_length, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_is_object(answer->json), "%s: %.300s", what, answer->text);
    struct rest rest = {.at = answer->text + json_length, .left = answer->length - json_length};
    take_tensors(&rest, answer->json);
    ck_assert_msg(rest.left == 0, "%s: %zu bytes of no tensor", what, rest.left);
}

/* Returns a copy in which all numbers within arrays are float32. */
static json_t *rounded(const json_t *value, bool inside)
{
    const char *name;
    json_t *member, *copy;
    if (json_is_number(value) && inside)
        return json_real((double)(float)json_number_value(value));
    if (json_is_array(value)) {
        copy = json_array();
        for (size_t i = 0; i < json_array_size(value); i++)
            json_array_append_new(copy, rounded(json_array_get(value, i), true));
        return copy;
    }
    if (!json_is_object(value))
        return json_deep_copy(value);
    copy = json_object();
    json_object_foreach((json_t *)value, name, member)
        json_object_set_new(copy, name, rounded(member, inside));
    return copy;
}

void expect_same_answers(const struct answer *got, const struct answer *want, const char *what)
{
    json_t *a = rounded(got->json, false), *b = rounded(want->json, false);
    char *x = json_dumps(a, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *y = json_dumps(b, JSON_COMPACT | JSON_REAL_PRECISION(17));
    size_t i = 0;
    while (x[i] == y[i] && x[i] != '\0')
        i++;
    ck_assert_msg(strcmp(x, y) == 0, "%s: at %zu ...%.80s, expected ...%.80s", what, i, x + i,
                  y + i);
    free(x);
    free(y);
    json_decref(a);
    json_decref(b);
}
