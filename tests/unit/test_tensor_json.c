/* test_tensor_json.c: tensors as JSON text: shapes, kinds, errors with their index, memory. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "suites.h"
#include "wire/tensor.h"

static struct srv_arena arena;
static struct srv_error error;
static struct srv_tensor tensor;

static void setup(void) { srv_arena_init(&arena, 1 << 20, NULL, NULL); }
static void teardown(void) { srv_arena_fini(&arena); }

/* Reads `text` as the field "x", in memory of the text's exact length, for sanitizers. */
static enum srv_error_code read_kind(const char *text, enum srv_tensor_kind kind, bool allow_scalar)
{
    struct srv_source source;
    size_t length = strlen(text);
    char *copy = malloc(length + (length == 0));
    memcpy(copy, text, length);
    const struct srv_body body = {.json = copy, .json_length = length};
    srv_source_init(&source, &body, &arena, &error);
    memset(&tensor, 0, sizeof tensor);
    bool read = srv_tensor_read(&tensor, &source, kind, allow_scalar, "x");
    ck_assert_int_eq(read, error.code == SRV_OK);
    ck_assert_int_eq(read, tensor.present);
    if (read && !srv_json_at_end(&source.json))
        srv_json_expected(&source.json, "the end");
    free(copy);
    return error.code;
}

static enum srv_error_code read_floats(const char *text)
{
    return read_kind(text, SRV_FLOATS, false);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

CASE(reading, setup, teardown, 0)

TEST(tensor_takes_its_shape_from_the_nesting)
{
    static const struct {
        const char *text;
        unsigned rank;
        size_t shape[SRV_TENSOR_RANK];
    } cases[] = {
        {"[]", 1, {0}},
        {"[1]", 1, {1}},
        {" [ 1 , 2,\n3 ] ", 1, {3}},
        {"[[1,2,3],[4,5,6]]", 2, {2, 3}},
        {"[[],[]]", 2, {2, 0}},
        {"[[[]]]", 3, {1, 1, 0}},
        {"[[[1],[2]],[[3],[4]],[[5],[6]]]", 3, {3, 2, 1}},
        {"[ [ [ [ 1 , 2 ] ] ] , [ [ [ 3 , 4 ] ] ] ]", 4, {2, 1, 1, 2}},
        {"{\"shape\":[2,3],\"datatype\":\"FP32\",\"data\":[1,2,3,4,5,6]}", 2, {2, 3}},
        {"{\"data\":[1,2,3,4,5,6],\"shape\":[1,6,1]}", 3, {1, 6, 1}},
        {"{\"datatype\":\"BF16\",\"data\":[],\"shape\":[0,7]}", 2, {0, 7}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t count = 1;
        ck_assert_msg(read_floats(cases[i].text) == SRV_OK, "%s: %s", cases[i].text, error.message);
        ck_assert_uint_eq(tensor.rank, cases[i].rank);
        for (unsigned d = 0; d < tensor.rank; d++) {
            ck_assert_uint_eq(tensor.shape[d], cases[i].shape[d]);
            count *= tensor.shape[d];
        }
        ck_assert_uint_eq(tensor.count, count);
        for (size_t n = 0; n < count; n++)
            ck_assert(tensor.f32[n] == (float)(n + 1));
    }
}

TEST(tensor_errors_have_code_and_index)
{
    static const struct {
        const char *text;
        enum srv_error_code code;
        const char *message; /* its beginning */
    } cases[] = {
        {"[[1,2],[3]]", SRV_E_SHAPE_MISMATCH, "x[1] has 1 elements where others have 2"},
        {"[[1,2],[3,4,5]]", SRV_E_SHAPE_MISMATCH, "x[1] has 3 elements where others have 2"},
        {"[[],[1]]", SRV_E_SHAPE_MISMATCH, "x[1] has 1"},
        {"[[[1],[2]],[[3]]]", SRV_E_SHAPE_MISMATCH, "x[1] has 1"},
        {"[[[1],[2]],[[3],[4,5]]]", SRV_E_SHAPE_MISMATCH, "x[1][1] has 2"},
        {"[[1,2],3]", SRV_E_SHAPE_MISMATCH, "x[1] is not an array"},
        {"[1,[2]]", SRV_E_SHAPE_MISMATCH, "x[1] is an array"},
        {"[[1],[[2]]]", SRV_E_SHAPE_MISMATCH, "x[1][0] is an array"},
        {"[[],[[]]]", SRV_E_SHAPE_MISMATCH, "x[1][0] is an array"},
        {"[[[[[1]]]]]", SRV_E_SHAPE_MISMATCH, "x has 5 dimensions"},
        {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", SRV_E_TOO_COMPLEX, "x is nested too deeply"},
        {"[1,\"2\"]", SRV_E_INVALID_TYPE, "x[1] is not a number"},
        {"[[1,2],[3,\"NaN\"]]", SRV_E_INVALID_TYPE, "x[1][1] is not a number"},
        {"[1,null]", SRV_E_INVALID_TYPE, "x[1] is not a number"},
        {"[true]", SRV_E_INVALID_TYPE, "x[0] is not a number"},
        {"[{}]", SRV_E_INVALID_TYPE, "x[0] is not a number"},
        {"[0,[[", SRV_E_SHAPE_MISMATCH, "x[1] is an array"},
        {"[[1,1e39]]", SRV_E_NUMBER_OUT_OF_RANGE, "x[0][1] does not fit float32"},
        {"[-3.4028235677973367e38]", SRV_E_NUMBER_OUT_OF_RANGE, "x[0] does not fit float32"},
        {"5", SRV_E_INVALID_TYPE, "x must be an array, not a number"},
        {"\"abc\"", SRV_E_INVALID_TYPE, "x must be an array, not a string"},
        {"null", SRV_E_INVALID_TYPE, "x must be an array, not null"},
        {"[NaN]", SRV_E_MALFORMED_JSON,
         "malformed JSON at byte 1: expected a value, found 'N'; JSON has no NaN and no Infinity: "
         "write null for minus infinity, in attention_bias"},
        {"[-Infinity]", SRV_E_MALFORMED_JSON,
         "malformed JSON at byte 2: expected a digit, found 'I'; JSON has no NaN and no Infinity"},
        {"[1, Infinity]", SRV_E_MALFORMED_JSON,
         "malformed JSON at byte 4: expected a value, found 'I'; JSON has no NaN"},
        {"[1,In]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 3: expected a value, found 'I'"},
        {"[1.]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 3: expected a digit"},
        {"[01]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 2: expected ',' or ']'"},
        {"[1,]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 3: expected a value, found ']'"},
        {"[,1]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 1"},
        {"[1 2]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 3"},
        {"[[1][2]]", SRV_E_MALFORMED_JSON, "malformed JSON at byte 4"},
        {"[1", SRV_E_MALFORMED_JSON, "malformed JSON at byte 2"},
        {"[1,", SRV_E_MALFORMED_JSON, "malformed JSON at byte 3"},
        {"[", SRV_E_MALFORMED_JSON, "malformed JSON at byte 1"},
        {"[[1],", SRV_E_MALFORMED_JSON, "malformed JSON at byte 5"},
        {"", SRV_E_MALFORMED_JSON, "malformed JSON at byte 0"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = cases[i].text, *want = cases[i].message;
        ck_assert_msg(read_floats(text) == cases[i].code, "%s: %s", text, error.message);
        ck_assert_msg(strncmp(error.message, want, strlen(want)) == 0, "%s: %s", text,
                      error.message);
    }
}

TEST(tensor_object_form_is_checked)
{
    static const struct {
        const char *text;
        enum srv_error_code code;
    } cases[] = {
        {"{\"shape\":[2],\"data\":[1]}", SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[4294967296,4294967296],\"data\":[1]}", SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[4611686018427387904,4],\"data\":[]}", SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[],\"data\":[1]}", SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[1,1,1,1,1],\"data\":[1]}", SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[-1],\"data\":[1]}", SRV_E_INVALID_VALUE},
        {"{\"shape\":[1.0],\"data\":[1]}", SRV_E_INVALID_TYPE},
        {"{\"shape\":[99999999999999999999],\"data\":[1]}", SRV_E_NUMBER_OUT_OF_RANGE},
        {"{\"shape\":1,\"data\":[1]}", SRV_E_INVALID_TYPE},
        {"{\"shape\":[\"1\"],\"data\":[1]}", SRV_E_INVALID_TYPE},
        {"{\"data\":[1]}", SRV_E_MISSING_FIELD},
        {"{\"shape\":[1]}", SRV_E_MISSING_FIELD},
        {"{}", SRV_E_MISSING_FIELD},
        {"{\"shape\":[1],\"data\":[[1]]}", SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[1],\"data\":1}", SRV_E_INVALID_TYPE},
        {"{\"shape\":[1],\"data\":[\"1\"]}", SRV_E_INVALID_TYPE},
        {"{\"shape\":[1],\"data\":[1],\"datatype\":\"FP31\"}", SRV_E_INVALID_VALUE},
        {"{\"shape\":[1],\"data\":[1],\"datatype\":\"INT64\"}", SRV_E_INVALID_VALUE},
        {"{\"shape\":[1],\"data\":[1],\"datatype\":1}", SRV_E_INVALID_TYPE},
        {"{\"shape\":[1],\"data\":[1],\"datatype\":\"FP32FP32FP32FP32FP32\"}", SRV_E_INVALID_VALUE},
        {"{\"shape\":[1],\"data\":[1],\"offset\":4}", SRV_E_UNKNOWN_FIELD},
        {"{\"shape\":[1],\"data\":[1],\"binary_data_size\":4}", SRV_E_INVALID_VALUE},
        {"{\"shape\":[1],\"shape\":[1],\"data\":[1]}", SRV_E_DUPLICATE_FIELD},
        {"{\"shape\":[1],\"data\":[1],\"data\":[1]}", SRV_E_DUPLICATE_FIELD},
        {"{\"shape\":[1],\"data\":[1]", SRV_E_MALFORMED_JSON},
        {"{\"shape\":[1],\"data\":[1],}", SRV_E_MALFORMED_JSON},
        {"{\"shape\":[1,],\"data\":[1]}", SRV_E_MALFORMED_JSON},
        {"{\"shape\"[1],\"data\":[1]}", SRV_E_MALFORMED_JSON},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        ck_assert_msg(read_floats(cases[i].text) == cases[i].code, "%s: %s", cases[i].text,
                      error.message);
    ck_assert_int_eq(read_floats("{\"shape\":[3],\"data\":[1,2,true]}"), SRV_E_INVALID_TYPE);
    ck_assert_str_eq(error.message, "x.data[2] is not a number");
    ck_assert_str_eq(error.param, "x");
}

/* ---- Kinds ----------------------------------------------------------------------------------- */

TEST(tensor_null_is_minus_infinity_where_it_may_be)
{
    ck_assert_int_eq(read_kind("[[null,1],[0,null]]", SRV_FLOATS_OR_NULL, false), SRV_OK);
    ck_assert(tensor.f32[0] == -INFINITY && tensor.f32[1] == 1 && tensor.f32[3] == -INFINITY);
    ck_assert_int_eq(read_kind("[nul]", SRV_FLOATS_OR_NULL, false), SRV_E_MALFORMED_JSON);
    ck_assert_int_eq(read_kind("[\"-inf\"]", SRV_FLOATS_OR_NULL, false), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_kind("[-1e39]", SRV_FLOATS_OR_NULL, false), SRV_E_NUMBER_OUT_OF_RANGE);
}

TEST(tensor_booleans_are_true_false_one_and_zero)
{
    ck_assert_int_eq(read_kind("[[true,false],[1,0]]", SRV_BOOLS, false), SRV_OK);
    ck_assert(memcmp(tensor.u8, (const uint8_t[]){1, 0, 1, 0}, 4) == 0);
    ck_assert_int_eq(
        read_kind("{\"shape\":[2],\"datatype\":\"BOOL\",\"data\":[1,false]}", SRV_BOOLS, false),
        SRV_OK);
    ck_assert_int_eq(read_kind("[2]", SRV_BOOLS, false), SRV_E_INVALID_VALUE);
    ck_assert_int_eq(read_kind("[-1]", SRV_BOOLS, false), SRV_E_INVALID_VALUE);
    ck_assert_int_eq(read_kind("[1,1.0]", SRV_BOOLS, false), SRV_E_INVALID_TYPE);
    ck_assert_str_eq(
        error.message,
        "x[1] is not true, false, 1 or 0; numbers to add to scores are attention_bias");
    ck_assert_int_eq(read_kind("[null]", SRV_BOOLS, false), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_kind("[trux]", SRV_BOOLS, false), SRV_E_MALFORMED_JSON);
}

TEST(tensor_integers_are_exact_and_may_be_bare)
{
    ck_assert_int_eq(read_kind("[9223372036854775807,-9007199254740993]", SRV_INTEGERS, true),
                     SRV_OK);
    ck_assert(tensor.i64[0] == INT64_MAX && tensor.i64[1] == -9007199254740993);
    ck_assert_int_eq(read_kind("42", SRV_INTEGERS, true), SRV_OK);
    ck_assert(tensor.rank == 0 && tensor.count == 1 && tensor.i64[0] == 42);
    ck_assert_int_eq(read_kind("{\"shape\":[],\"data\":[7]}", SRV_INTEGERS, true), SRV_OK);
    ck_assert(tensor.rank == 0 && tensor.count == 1 && tensor.i64[0] == 7);
    ck_assert_int_eq(read_kind("[1,9223372036854775808]", SRV_INTEGERS, true),
                     SRV_E_NUMBER_OUT_OF_RANGE);
    ck_assert_str_eq(error.message, "x[1] does not fit 64 bits");
    ck_assert_int_eq(read_kind("[1.5]", SRV_INTEGERS, true), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_kind("1.5", SRV_INTEGERS, true), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_kind("true", SRV_INTEGERS, true), SRV_E_INVALID_TYPE);
    ck_assert_int_eq(read_kind("42", SRV_INTEGERS, false), SRV_E_INVALID_TYPE);
}

TEST(tensor_finds_no_memory_beyond_the_ceiling)
{
    struct srv_arena small;
    struct srv_json json;
    char text[2001];
    for (size_t i = 0; i < 1000; i++)
        memcpy(text + 2 * i, i == 0 ? "[1" : ",1", 2);
    text[2000] = ']';
    srv_arena_init(&small, 4032, NULL, NULL); /* the 4000 bytes needed, rounded up to 64 */
    srv_json_init(&json, text, sizeof text, &error);
    ck_assert(srv_tensor_read_json(&tensor, &json, &small, SRV_FLOATS, false, "x"));
    ck_assert_uint_eq(small.used, 4032);
    srv_arena_fini(&small);
    srv_arena_init(&small, 3968, NULL, NULL);
    srv_json_init(&json, text, sizeof text, &error);
    ck_assert(!srv_tensor_read_json(&tensor, &json, &small, SRV_FLOATS, false, "x"));
    ck_assert_int_eq(error.code, SRV_E_OUT_OF_MEMORY);
    srv_arena_fini(&small);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static const char *written(const float *data, const size_t *shape, unsigned rank)
{
    static char text[256];
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 1 << 16);
    srv_tensor_write_json(&buffer, data, shape, rank);
    ck_assert(!buffer.failed && buffer.length < sizeof text);
    memcpy(text, buffer.data, buffer.length);
    text[buffer.length] = '\0';
    srv_buffer_fini(&buffer);
    return text;
}

TEST(tensor_is_written_as_nested_arrays)
{
    static const float data[] = {1,         -0.5f, 0.1f, -0.0f, 1e-7f, 3.4028234663852886e38f,
                                 -INFINITY, NAN};
    ck_assert_str_eq(written(data, (const size_t[]){8}, 1),
                     "[1,-0.5,0.1,-0.0,1e-7,3.4028235e38,null,null]");
    ck_assert_str_eq(written(data, (const size_t[]){2, 2}, 2), "[[1,-0.5],[0.1,-0.0]]");
    ck_assert_str_eq(written(data, (const size_t[]){2, 1, 1, 2}, 4),
                     "[[[[1,-0.5]]],[[[0.1,-0.0]]]]");
    ck_assert_str_eq(written(data, (const size_t[]){0}, 1), "[]");
    ck_assert_str_eq(written(data, (const size_t[]){2, 0}, 2), "[[],[]]");
    ck_assert_str_eq(written(data, (const size_t[]){0, 2}, 2), "[]");
    ck_assert_str_eq(written(data, NULL, 0), "1");
}

TEST(tensor_written_and_read_is_the_same_bits)
{
    enum { ROWS = 37, COLUMNS = 529 };
    static float data[ROWS * COLUMNS];
    uint32_t state = 1;
    for (size_t i = 0; i < ROWS * COLUMNS;) {
        state = state * 1664525 + 1013904223;
        memcpy(&data[i], &state, sizeof state);
        i += isfinite(data[i]) ? 1 : 0;
    }
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 1 << 20);
    srv_tensor_write_json(&buffer, data, (const size_t[]){ROWS, COLUMNS}, 2);
    srv_buffer_append(&buffer, "", 1);
    ck_assert(!buffer.failed);
    ck_assert_msg(read_floats(buffer.data) == SRV_OK, "%s", error.message);
    ck_assert(tensor.rank == 2 && tensor.shape[0] == ROWS && tensor.shape[1] == COLUMNS);
    ck_assert(memcmp(tensor.f32, data, sizeof data) == 0);
    srv_buffer_fini(&buffer);
}

TEST(tensor_writing_stops_at_the_limit_of_the_buffer)
{
    static const float data[1000];
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 100);
    srv_tensor_write_json(&buffer, data, (const size_t[]){10, 100}, 2);
    ck_assert(buffer.failed && buffer.length <= 100);
    srv_buffer_fini(&buffer);
}

SUITE(tensor_json)
