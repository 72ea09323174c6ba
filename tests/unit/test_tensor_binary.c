/* test_tensor_binary.c: tensors as bytes: every half and bfloat, alignment, sizes, refusals, order
 * of appearance, and descriptions. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "suites.h"
#include "wire/tensor.h"

static struct srv_arena arena;
static struct srv_error error;
static struct srv_tensor tensor;
static struct srv_source source;

static void setup(void) { srv_arena_init(&arena, 1 << 20, NULL, NULL); }
static void teardown(void) { srv_arena_fini(&arena); }

/* Reads `count` elements of the datatype from the `size` bytes at `at`. */
static enum srv_error_code read_bytes(char *at, size_t size, const char *type, size_t count,
                                      enum srv_tensor_kind kind)
{
    const struct srv_datatype *datatype = srv_datatype_find(type, kind);
    ck_assert_msg(datatype != NULL, "%s", type);
    const struct srv_body body = {.bytes = {.at = at, .left = size, .framed = true}};
    srv_source_init(&source, &body, &arena, &error);
    tensor = (struct srv_tensor){.kind = kind, .rank = 1, .shape = {count}, .count = count};
    bool read = srv_tensor_read_binary(&tensor, &source, size, datatype, "x");
    ck_assert_int_eq(read, error.code == SRV_OK);
    ck_assert(!read || (source.bytes.left == 0 && source.bytes.at == at + size));
    return error.code;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Reads one element of two bytes; *out is the float that it becomes. */
static enum srv_error_code read_short(float *out, unsigned pattern, const char *type)
{
    uint16_t element = (uint16_t)pattern;
    enum srv_error_code code = read_bytes((char *)&element, 2, type, 1, SRV_FLOATS);
    *out = tensor.f32 != NULL ? tensor.f32[0] : 0;
    return code;
}

CASE(tensor_binary, setup, teardown, 0)

TEST(every_half_and_bfloat_widens_exactly_or_is_not_finite)
{
    for (unsigned pattern = 0; pattern <= 0xffff; pattern++) {
        float got, want = (float)half_value((uint16_t)pattern);
        if (pattern % 1024 == 0) {
            teardown();
            setup();
        }
        enum srv_error_code code = read_short(&got, pattern, "FP16");
        ck_assert_int_eq(code, isfinite(want) ? SRV_OK : SRV_E_NON_FINITE_INPUT);
        ck_assert_msg(!isfinite(want) || memcmp(&got, &want, sizeof got) == 0, "half %04x: %g",
                      pattern, (double)got);
        uint32_t bits = pattern << 16;
        memcpy(&want, &bits, sizeof want);
        code = read_short(&got, pattern, "BF16");
        ck_assert_int_eq(code, isfinite(want) ? SRV_OK : SRV_E_NON_FINITE_INPUT);
        ck_assert(!isfinite(want) || memcmp(&got, &want, sizeof got) == 0);
    }
}

TEST(what_is_not_finite_is_named_by_its_element)
{
    float x[300] = {0};
    for (size_t i = 0; i < 300; i += 13) {
        for (int k = 0; k < 3; k++) {
            char element[32];
            x[i] = k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY;
            snprintf(element, sizeof element, "at element %zu", i);
            ck_assert_int_eq(read_bytes((char *)x, sizeof x, "FP32", 300, SRV_FLOATS),
                             SRV_E_NON_FINITE_INPUT);
            ck_assert_msg(strstr(error.message, element) != NULL, "%s", error.message);
            ck_assert_int_eq(read_bytes((char *)x, sizeof x, "FP32", 300, SRV_FLOATS_OR_NULL),
                             k == 2 ? SRV_OK : SRV_E_NON_FINITE_INPUT);
        }
        x[i] = 1;
    }
}

TEST(minus_infinities_are_taken_where_null_is)
{
    float x[6] = {-INFINITY, 1, -INFINITY, -INFINITY, 0, -INFINITY};
    ck_assert_int_eq(read_bytes((char *)x, sizeof x, "FP32", 6, SRV_FLOATS_OR_NULL), SRV_OK);
    ck_assert_ptr_eq(tensor.f32, x);
    x[5] = NAN;
    ck_assert_int_eq(read_bytes((char *)x, sizeof x, "FP32", 6, SRV_FLOATS_OR_NULL),
                     SRV_E_NON_FINITE_INPUT);
    uint16_t halves[2] = {0xfc00, 0x3c00};
    ck_assert_int_eq(read_bytes((char *)halves, 4, "FP16", 2, SRV_FLOATS_OR_NULL), SRV_OK);
    ck_assert(tensor.f32[0] == -INFINITY && tensor.f32[1] == 1);
}

TEST(integers_keep_their_signs_and_flags_are_flags)
{
    int32_t narrow[3] = {INT32_MIN, -1, INT32_MAX};
    int64_t wide[3] = {INT64_MIN, -1, INT64_MAX};
    uint8_t flags[4] = {0, 1, 1, 0};
    ck_assert_int_eq(read_bytes((char *)narrow, sizeof narrow, "INT32", 3, SRV_INTEGERS), SRV_OK);
    for (size_t i = 0; i < 3; i++)
        ck_assert(tensor.i64[i] == narrow[i]);
    ck_assert_int_eq(read_bytes((char *)wide, sizeof wide, "INT64", 3, SRV_INTEGERS), SRV_OK);
    ck_assert_mem_eq(tensor.i64, wide, sizeof wide);
    ck_assert_int_eq(read_bytes((char *)flags, 4, "BOOL", 4, SRV_BOOLS), SRV_OK);
    ck_assert_mem_eq(tensor.u8, flags, sizeof flags);
    flags[2] = 2;
    ck_assert_int_eq(read_bytes((char *)flags, 4, "BOOL", 4, SRV_BOOLS), SRV_E_INVALID_VALUE);
    ck_assert_ptr_nonnull(strstr(error.message, "at element 2"));
}

TEST(flags_may_be_integers_of_any_width)
{
    uint8_t flags[3] = {1, 0, 1};
    int32_t narrow[3] = {1, 0, 1};
    int64_t wide[3] = {1, 0, 1};
    const struct {
        const char *type;
        void *bytes;
        size_t size;
    } forms[] = {
        {"UINT8", flags, 3}, {"INT8", flags, 3}, {"INT32", narrow, 12}, {"INT64", wide, 24}};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(read_bytes(forms[i].bytes, forms[i].size, forms[i].type, 3, SRV_BOOLS),
                         SRV_OK);
        ck_assert_mem_eq(tensor.u8, flags, 3);
    }
    static const int64_t wrong[] = {2, -1, 255, 256, (int64_t)1 << 32, INT64_MIN};
    for (size_t i = 0; i < 6; i++) {
        wide[1] = wrong[i];
        narrow[1] = (int32_t)wrong[i]; /* 0 of the last two */
        ck_assert_int_eq(read_bytes((char *)wide, 24, "INT64", 3, SRV_BOOLS), SRV_E_INVALID_VALUE);
        ck_assert_ptr_nonnull(strstr(error.message, "at element 1"));
        ck_assert_int_eq(read_bytes((char *)narrow, 12, "INT32", 3, SRV_BOOLS),
                         i < 4 ? SRV_E_INVALID_VALUE : SRV_OK);
    }
}

/* ---- Places ---------------------------------------------------------------------------------- */

TEST(aligned_bytes_are_used_where_they_are_and_others_copied)
{
    float x[9], *at = NULL;
    char *room = malloc(sizeof x + 8);
    for (size_t i = 0; i < 9; i++)
        x[i] = (float)i - 3.5f;
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(room + shift, x, sizeof x);
        ck_assert_int_eq(read_bytes(room + shift, sizeof x, "FP32", 9, SRV_FLOATS), SRV_OK);
        at = tensor.f32;
        ck_assert_int_eq((char *)at == room + shift, shift % sizeof(float) == 0);
        ck_assert_uint_eq((uintptr_t)at % sizeof(float), 0);
        ck_assert_mem_eq(at, x, sizeof x);
    }
    free(room);
}

TEST(no_element_is_read_where_there_is_none)
{
    char *nothing = malloc(1);
    ck_assert_int_eq(read_bytes(nothing + 1, 0, "FP32", 0, SRV_FLOATS), SRV_OK);
    ck_assert_int_eq(read_bytes(nothing + 1, 0, "BF16", 0, SRV_FLOATS_OR_NULL), SRV_OK);
    ck_assert_int_eq(read_bytes(nothing + 1, 0, "INT32", 0, SRV_INTEGERS), SRV_OK);
    free(nothing);
}

TEST(memory_that_is_short_is_an_error)
{
    struct srv_arena small;
    char x[256] = {0};
    srv_arena_init(&small, 128, NULL, NULL);
    const struct srv_body body = {.bytes = {.at = x + 1, .left = 128, .framed = true}};
    srv_source_init(&source, &body, &small, &error);
    tensor = (struct srv_tensor){.kind = SRV_FLOATS, .rank = 1, .shape = {64}, .count = 64};
    ck_assert(
        !srv_tensor_read_binary(&tensor, &source, 128, srv_datatype_find("FP16", SRV_FLOATS), "x"));
    ck_assert_int_eq(error.code, SRV_E_OUT_OF_MEMORY);
    srv_arena_fini(&small);
}

/* ---- Objects --------------------------------------------------------------------------------- */

/* Reads the value `text`, followed by `left` zero bytes, in memory of that exact size. */
static enum srv_error_code read_object(const char *text, size_t left, enum srv_tensor_kind kind)
{
    char *zeros = calloc(1, left + (left == 0));
    const struct srv_body body = {.json = text,
                                  .json_length = strlen(text),
                                  .bytes = {.at = zeros, .left = left, .framed = true}};
    srv_source_init(&source, &body, &arena, &error);
    bool read = srv_tensor_read(&tensor, &source, kind, true, "x");
    ck_assert_int_eq(read, error.code == SRV_OK);
    free(zeros);
    return error.code;
}

TEST(objects_take_their_bytes_or_say_what_is_wrong)
{
    static const struct {
        const char *text;
        enum srv_tensor_kind kind;
        size_t left, rest; /* bytes after the JSON: before and after the tensor is read */
        enum srv_error_code code;
    } cases[] = {
#define B(type, size) "\"datatype\":\"" type "\",\"binary_data_size\":" size "}"
        {"{\"shape\":[2,3]," B("FP32", "24"), SRV_FLOATS, 24, 0, SRV_OK},
        {"{\"binary_data_size\":12,\"datatype\":\"BF16\",\"shape\":[6]}", SRV_FLOATS, 20, 8,
         SRV_OK},
        {"{\"shape\":[]," B("INT64", "8"), SRV_INTEGERS, 8, 0, SRV_OK},
        {"{\"shape\":[0,4]," B("FP16", "0"), SRV_FLOATS, 4, 4, SRV_OK},
        {"{\"shape\":[4]," B("BOOL", "4"), SRV_BOOLS, 4, 0, SRV_OK},
        {"{\"shape\":[2]," B("FP32", "8"), SRV_FLOATS, 7, 7, SRV_E_BAD_REQUEST},
        {"{\"shape\":[2]," B("FP32", "4"), SRV_FLOATS, 8, 8, SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[2]," B("FP32", "9"), SRV_FLOATS, 9, 9, SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[4611686018427387904]," B("FP32", "0"), SRV_FLOATS, 9, 9,
         SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[4294967296,4294967296]," B("FP32", "0"), SRV_FLOATS, 9, 9,
         SRV_E_SHAPE_MISMATCH},
        {"{\"shape\":[2]," B("FP32", "-8"), SRV_FLOATS, 8, 8, SRV_E_INVALID_VALUE},
        {"{\"shape\":[2]," B("FP32", "8.0"), SRV_FLOATS, 8, 8, SRV_E_INVALID_TYPE},
        {"{\"shape\":[2]," B("FP32", "null"), SRV_FLOATS, 8, 8, SRV_E_INVALID_TYPE},
        {"{\"shape\":[1]," B("FP64", "8"), SRV_FLOATS, 8, 8, SRV_E_INVALID_VALUE},
        {"{\"shape\":[1]," B("UINT16", "2"), SRV_BOOLS, 8, 8, SRV_E_INVALID_VALUE},
        {"{\"shape\":[1]," B("INT32", "4"), SRV_FLOATS, 8, 8, SRV_E_INVALID_VALUE},
        {"{\"shape\":[1]," B("FP32", "4"), SRV_INTEGERS, 8, 8, SRV_E_INVALID_VALUE},
        {"{\"shape\":[1]," B("fp32", "4"), SRV_FLOATS, 8, 8, SRV_E_INVALID_VALUE},
        {"{\"shape\":[1],\"binary_data_size\":4}", SRV_FLOATS, 4, 4, SRV_E_MISSING_FIELD},
        {"{" B("FP32", "4"), SRV_FLOATS, 4, 4, SRV_E_MISSING_FIELD},
        {"{\"shape\":[1],\"datatype\":\"FP32\"}", SRV_FLOATS, 4, 4, SRV_E_MISSING_FIELD},
        {"{\"shape\":[1],\"data\":[1]," B("FP32", "4"), SRV_FLOATS, 4, 4, SRV_E_INVALID_VALUE},
        {"{\"shape\":[1],\"binary_data_size\":4," B("FP32", "4"), SRV_FLOATS, 4, 4,
         SRV_E_DUPLICATE_FIELD},
        {"{\"shape\":[1,1,1,1,1]," B("FP32", "4"), SRV_FLOATS, 4, 4, SRV_E_SHAPE_MISMATCH},
#undef B
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        enum srv_error_code code = read_object(cases[i].text, cases[i].left, cases[i].kind);
        ck_assert_msg(code == cases[i].code, "%s: %s %s", cases[i].text, srv_error_word(code),
                      error.message);
        ck_assert_uint_eq(source.bytes.left, cases[i].rest);
    }
}

TEST(without_framing_there_are_no_bytes)
{
    static const char text[] = "{\"shape\":[0],\"datatype\":\"FP32\",\"binary_data_size\":0}";
    const struct srv_body body = {.json = text, .json_length = strlen(text)};
    srv_source_init(&source, &body, &arena, &error);
    ck_assert(!srv_tensor_read(&tensor, &source, SRV_FLOATS, false, "x"));
    ck_assert_int_eq(error.code, SRV_E_INVALID_VALUE);
}

/* ---- Writing --------------------------------------------------------------------------------- */

TEST(descriptions_say_shape_type_and_size_within_their_bound)
{
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 1 << 16);
    srv_tensor_describe(&buffer, "FP32", 4, (const size_t[]){2, 3}, 2);
    srv_buffer_append(&buffer, "", 1);
    ck_assert_str_eq(buffer.data, "{\"shape\":[2,3],\"datatype\":\"FP32\",\"binary_data_size\":24");
    buffer.length = 0;
    srv_tensor_describe(&buffer, "UINT32", 4,
                        (const size_t[]){SIZE_MAX, SIZE_MAX, SIZE_MAX, 1 << 20}, 4);
    ck_assert_uint_lt(buffer.length, SRV_TENSOR_DESCRIPTION_MAX);
    buffer.length = 0;
    const float x[2] = {-INFINITY, 1};
    const struct srv_output_tensor floats = {.element_bytes = 4, .data = x, .count = 2};
    srv_output_write_bytes(&buffer, &floats);
    ck_assert_uint_eq(buffer.length, sizeof x);
    ck_assert_mem_eq(buffer.data, x, sizeof x);
    srv_buffer_fini(&buffer);
}

TEST(bytes_after_text_of_any_length_begin_aligned)
{
    struct srv_buffer buffer;
    srv_buffer_init(&buffer, 1 << 16);
    for (size_t length = 0; length <= 3 * 64; length++) {
        buffer.length = 0;
        for (size_t i = 0; i < length; i++)
            srv_buffer_text(&buffer, "x");
        srv_tensor_align(&buffer);
        ck_assert_uint_eq(buffer.length, (length + 63) / 64 * 64);
        for (size_t i = 0; i < buffer.length; i++)
            ck_assert_int_eq(buffer.data[i], i < length ? 'x' : ' ');
    }
    srv_buffer_fini(&buffer);
}

SUITE(tensor_binary)
