/* test_safetensors.c: containers that must be refused, and exact reading of the others. */
#include <check.h>
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basics/mem.h"
#include "basics/widen.h"
#include "files/safetensors.h"
#include "half.h"
#include "scratch.h"
#include "suites.h"

#define FILE_NAME "model.safetensors"

static char path[SCRATCH_PATH];
static int directory;

static void setup(void)
{
    scratch_make(path);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(directory, 0);
}

static void teardown(void)
{
    close(directory);
    scratch_remove(path);
}

static struct attn_safetensors *open_good(void)
{
    struct attn_error error = {0};
    struct attn_safetensors *file = NULL;
    enum attn_status status = attn_safetensors_open(&file, directory, FILE_NAME, &error);
    ck_assert_msg(status == ATTN_OK, "%s", error.message);
    return file;
}

/* Opens a container that must be refused; the message names the file or a tensor, never the path,
 * and has no control character of a name. */
static void check_refused(enum attn_status expected, const char *what)
{
    struct attn_error error = {0};
    struct attn_safetensors *file = NULL;
    enum attn_status status = attn_safetensors_open(&file, directory, FILE_NAME, &error);
    ck_assert_msg(status == expected, "%s: got %s, wanted %s", what, attn_status_name(status),
                  attn_status_name(expected));
    ck_assert_int_eq(error.status, expected);
    ck_assert_ptr_null(file);
    ck_assert_msg(strstr(error.message, FILE_NAME) != NULL, "%s", error.message);
    ck_assert_msg(strstr(error.message, path) == NULL, "%s", error.message);
    for (const char *at = error.message; *at != '\0'; at++)
        ck_assert_msg(!iscntrl((unsigned char)*at), "%s", error.message);
}

/* ---- Containers that must be refused -------------------------------------------------------- */

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct {
    const char *what, *header;
    size_t data_length;
} malformed[] = {
    {"no object", "[]", 0},
    {"space before the object", " {}", 0},
    {"an unfinished object", "{\"a\":" T("F32", "[1]", "0", "4"), 4},
    {"an unfinished key", "{\"a", 0},
    {"text after the object", "{}x", 0},
    {"a second object", "{}{}", 0},
    {"a comma before the first member", "{,\"a\":" T("F32", "[1]", "0", "4") "}", 4},
    {"a comma after the last member", "{\"a\":" T("F32", "[1]", "0", "4") ",}", 4},
    {"no comma between members",
     "{\"a\":" T("F32", "[1]", "0", "4") "\"b\":" T("F32", "[1]", "4", "8") "}", 8},
    {"no colon", "{\"a\"" T("F32", "[1]", "0", "4") "}", 4},
    {"a key that is no string", "{1:" T("F32", "[1]", "0", "4") "}", 4},
    {"a NUL in a key", "{\"a\\u0000\":" T("F32", "[1]", "0", "4") "}", 4},
    {"a key that is not UTF-8", "{\"a\xff\":" T("F32", "[1]", "0", "4") "}", 4},
    {"a tensor that is a number", "{\"a\":1}", 0},
    {"a tensor that is a list", "{\"a\":[]}", 0},
    {"a tensor without dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"a tensor without shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4},
    {"a tensor without data_offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
    {"a tensor with a key too many",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", 4},
    {"a tensor with a key twice",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"an unknown dtype", "{\"a\":" T("F31", "[1]", "0", "4") "}", 4},
    {"a dtype in lower case", "{\"a\":" T("f32", "[1]", "0", "4") "}", 4},
    {"a dtype that is no string", "{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"a shape that is a number", "{\"a\":" T("F32", "1", "0", "4") "}", 4},
    {"a negative size", "{\"a\":" T("F32", "[-1]", "0", "4") "}", 4},
    {"two negative sizes", "{\"a\":" T("F32", "[-1,-1]", "0", "4") "}", 4},
    {"a size with a fraction", "{\"a\":" T("F32", "[1.0]", "0", "4") "}", 4},
    {"a size that is text", "{\"a\":" T("F32", "[\"1\"]", "0", "4") "}", 4},
    {"nine dimensions", "{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4},
    {"a shape whose product wraps to the span",
     "{\"a\":" T("F32", "[4611686018427387905,4]", "0", "16") "}", 16},
    {"a size beyond 64 bits", "{\"a\":" T("F32", "[99999999999999999999]", "0", "4") "}", 4},
    {"a span shorter than the shape", "{\"a\":" T("F32", "[2]", "0", "4") "}", 4},
    {"a span longer than the shape", "{\"a\":" T("F32", "[1]", "0", "8") "}", 8},
    {"half a byte", "{\"a\":" T("F4", "[3]", "0", "1") "}", 1},
    {"a name of control characters", "{\"a\\u0001\\u007f\":" T("F4", "[3]", "0", "1") "}", 1},
    {"offsets that run backwards", "{\"a\":" T("F32", "[0]", "4", "0") "}", 4},
    {"a negative offset", "{\"a\":" T("F32", "[1]", "-4", "0") "}", 4},
    {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 4},
    {"three offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4},
    {"offsets beyond the file", "{\"a\":" T("F32", "[1000]", "0", "4000") "}", 4},
    {"offsets near 2^63",
     "{\"a\":" T("U8", "[4]", "9223372036854775803", "9223372036854775807") "}", 4},
    {"a gap before the first tensor", "{\"a\":" T("F32", "[1]", "4", "8") "}", 8},
    {"a gap between tensors",
     "{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8", "12") "}", 12},
    {"tensors that overlap",
     "{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", 12},
    {"two tensors in one place",
     "{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0", "4") "}", 4},
    {"bytes after the last tensor", "{\"a\":" T("F32", "[1]", "0", "4") "}", 5},
    {"bytes and no tensor", "{}", 1},
    {"one byte too few", "{\"a\":" T("F32", "[1]", "0", "4") "}", 3},
    {"a name twice", "{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "4", "8") "}",
     8},
    {"a name twice, once escaped",
     "{\"a\":" T("F32", "[1]", "0", "4") ",\"\\u0061\":" T("F32", "[1]", "4", "8") "}", 8},
    {"metadata that is no object", "{\"__metadata__\":\"pt\"}", 0},
    {"metadata with a number", "{\"__metadata__\":{\"format\":1}}", 0},
    {"metadata with an object", "{\"__metadata__\":{\"format\":{}}}", 0},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0},
};

CASE(safetensors, setup, teardown, 60)

TEST_EACH(safetensors_refuses_every_malformed_header, COUNT(malformed))
{
    scratch_write_tensors(path, FILE_NAME, malformed[_i].header, NULL, malformed[_i].data_length);
    check_refused(ATTN_MALFORMED, malformed[_i].what);
}

TEST(safetensors_refuses_header_lengths_beyond_file_or_format)
{
    const uint64_t lengths[] = {0, 1, 3, 4, 100000001, UINT32_MAX, INT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        char bytes[10];
        memcpy(bytes, &lengths[i], 8);
        memcpy(bytes + 8, "{}", 2);
        scratch_write(path, FILE_NAME, bytes, sizeof bytes);
        check_refused(ATTN_MALFORMED, "a header's length");
    }
}

TEST(safetensors_refuses_header_above_limit_inside_a_sparse_file)
{
    const uint64_t length = ATTN_SAFETENSORS_MAX_HEADER + 1;
    char file[2 * SCRATCH_PATH];
    scratch_write(path, FILE_NAME, &length, sizeof length);
    snprintf(file, sizeof file, "%s/" FILE_NAME, path);
    ck_assert_int_eq(truncate(file, 300000000), 0);
    check_refused(ATTN_MALFORMED, "a header above the limit");
}

TEST(safetensors_refuses_files_shorter_than_a_length)
{
    for (size_t size = 0; size < 8; size++) {
        scratch_write(path, FILE_NAME, "\2\0\0\0\0\0\0\0", size);
        check_refused(ATTN_MALFORMED, "a short file");
    }
}

TEST(safetensors_refuses_what_is_no_regular_file)
{
    check_refused(ATTN_NOT_FOUND, "no file");
    ck_assert_int_eq(mkdirat(directory, FILE_NAME, 0700), 0);
    check_refused(ATTN_IO, "a directory");
    ck_assert_int_eq(unlinkat(directory, FILE_NAME, AT_REMOVEDIR), 0);
    ck_assert_int_eq(mkfifoat(directory, FILE_NAME, 0600), 0);
    check_refused(ATTN_IO, "a FIFO, without waiting for a writer");
    ck_assert_int_eq(unlinkat(directory, FILE_NAME, 0), 0);
    ck_assert_int_eq(symlinkat("/dev/zero", directory, FILE_NAME), 0);
    check_refused(ATTN_IO, "a device behind a link");
}

TEST(safetensors_refuses_long_names_and_large_or_deep_entries)
{
    size_t size = 300000;
    char *header = malloc(size);
    ck_assert_ptr_nonnull(header);

    memset(header, 'a', 600);
    memcpy(header, "{\"", 2);
    snprintf(header + 515, size - 515, "\":%s}", T("F32", "[1]", "0", "4")); /* 513 letters */
    scratch_write_tensors(path, FILE_NAME, header, NULL, 4);
    check_refused(ATTN_MALFORMED, "a name of 513 bytes");

    memset(header, '[', size);
    memcpy(header, "{\"a\":", 5);
    header[size - 1] = '\0';
    scratch_write_tensors(path, FILE_NAME, header, NULL, 0);
    check_refused(ATTN_MALFORMED, "deep nesting");

    for (size_t i = 5; i + 3 < size; i += 3)
        memcpy(header + i, "{},", 3);
    header[5] = '[';
    scratch_write_tensors(path, FILE_NAME, header, NULL, 0);
    check_refused(ATTN_MALFORMED, "a wide list");
    free(header);
}

/* ---- Containers that must be read ------------------------------------------------------------ */

TEST(safetensors_finds_tensors_and_reports_their_shape)
{
    scratch_write_tensors(
        path, FILE_NAME,
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"z\":" T("I64", "[]", "0",
                   "8") ",\n"
                        " \"\\u00e4\" : " T("BF16", "[2,3]", "8",
                                            "20") ","
                                                  "\"empty\":" T("F32", "[0,5]", "20",
                                                                 "20") ","
                                                                       "\"four\":" T("F4", "[4]",
                                                                                     "20",
                                                                                     "22") "}   ",
        NULL, 22);
    struct attn_safetensors *file = open_good();
    ck_assert_uint_eq(file->count, 4);
    ck_assert_ptr_null(attn_safetensors_find(file, "a"));
    ck_assert_ptr_null(attn_safetensors_find(file, "__metadata__"));

    const struct attn_tensor_entry *entry = attn_safetensors_find(file, "\xc3\xa4");
    ck_assert_ptr_nonnull(entry);
    ck_assert_str_eq(entry->dtype->name, "BF16");
    ck_assert_uint_eq(entry->ndim, 2);
    ck_assert_uint_eq(entry->shape[0], 2);
    ck_assert_uint_eq(entry->shape[1], 3);
    ck_assert_uint_eq(entry->begin, 8);
    ck_assert_uint_eq(entry->end, 20);
    ck_assert_uint_eq(attn_safetensors_find(file, "z")->ndim, 0);
    ck_assert_uint_eq(attn_safetensors_find(file, "empty")->shape[0], 0);
    attn_safetensors_close(file);
}

TEST(safetensors_reads_unaligned_ranges_of_every_float_type)
{
    /* One byte before the data and an odd header make every address odd. */
    const float f32[3] = {1.5f, -2.25f, 0x1p-149f};
    const uint16_t f16[3] = {0x3c00, 0x8001, 0x7bff}, bf16[3] = {0x3f80, 0xc040, 0x0001};
    const float expected[3][3] = {
        {1.5f, -2.25f, 0x1p-149f}, {1, -0x1p-24f, 65504}, {1, -3, 0x1p-133f}};
    char data[25] = {0};
    memcpy(data + 1, f32, 12);
    memcpy(data + 13, f16, 6);
    memcpy(data + 19, bf16, 6);
    scratch_write_tensors(
        path, FILE_NAME,
        "{\"0\":" T("F32", "[3]", "1", "13") ",\"1\":" T("F16", "[3]", "13", "19") ",\"2\":" T(
            "BF16", "[3]", "19", "25") ",\"b\":" T("U8", "[1]", "0", "1") "}",
        data, sizeof data);

    struct attn_safetensors *file = open_good();
    const char *names[] = {"0", "1", "2"};
    for (size_t t = 0; t < 3; t++)
        for (size_t first = 0; first < 3; first++) {
            float got[3];
            const struct attn_tensor_entry *entry = attn_safetensors_find(file, names[t]);
            ck_assert_int_eq(attn_safetensors_read_f32(got, file, entry, first, 3 - first, NULL),
                             ATTN_OK);
            ck_assert_mem_eq(got, &expected[t][first], (3 - first) * sizeof *got);
        }
    attn_safetensors_close(file);
}

TEST(widen_f16_is_exact_for_all_65536_halves)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half[65];
        float got[65];
        for (size_t i = 0; i < 65; i++)
            half[i] = (uint16_t)bits;
        double expected = half_value((uint16_t)bits);
        bool finite = attn_widen_f16(got, half, 65); /* a block and a remainder */
        ck_assert_int_eq(finite, isfinite(expected) != 0);
        for (size_t i = 0; i < 65; i += 64) {
            if (isnan(expected))
                ck_assert(isnan(got[i]));
            else
                ck_assert_msg((double)got[i] == expected, "%04x gives %a", bits, (double)got[i]);
            ck_assert_int_eq(signbit(got[i]) != 0, (bits & 0x8000) != 0);
        }
    }
}

TEST(widen_bf16_is_the_upper_half_of_a_float)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half[65];
        float got[65];
        for (size_t i = 0; i < 65; i++)
            half[i] = (uint16_t)bits;
        bool finite = attn_widen_bf16(got, half, 65);
        uint32_t expected = bits << 16;
        ck_assert_mem_eq(&got[0], &expected, 4);
        ck_assert_mem_eq(&got[64], &expected, 4);
        ck_assert_int_eq(finite, (bits & 0x7f80) != 0x7f80);
    }
}

/* A tensor "w" of 300,000 elements, more than two chunks, with one element that is not finite. */
static void check_non_finite(const char *dtype, size_t size, uint32_t bits, size_t index)
{
    const size_t count = 300000;
    char header[128], want[64];
    char *data = calloc(count, size);
    float *out = malloc(count * sizeof *out);
    ck_assert(data != NULL && out != NULL);
    memcpy(data + index * size, &bits, size);
    snprintf(header, sizeof header,
             "{\"w\":{\"dtype\":\"%s\",\"shape\":[300,1000],\"data_offsets\":[0,%zu]}}", dtype,
             count * size);
    scratch_write_tensors(path, FILE_NAME, header, data, count * size);

    struct attn_error error = {0};
    struct attn_safetensors *file = open_good();
    const struct attn_tensor_entry *entry = attn_safetensors_find(file, "w");
    ck_assert_int_eq(attn_safetensors_read_f32(out, file, entry, 0, count, &error),
                     ATTN_NON_FINITE);
    ck_assert_str_eq(error.param, "w");
    snprintf(want, sizeof want, "element %zu is", index);
    ck_assert_msg(strstr(error.message, want) != NULL, "%s", error.message);
    ck_assert_int_eq(attn_safetensors_read_f32(out, file, entry, 0, index, &error), ATTN_OK);
    attn_safetensors_close(file);
    free(data);
    free(out);
}

TEST(safetensors_refuses_nan_and_infinity_with_tensor_and_index)
{
    const size_t indices[] = {0, 63, 64, 131071, 131072, 299999};
    for (size_t i = 0; i < COUNT(indices); i++) {
        check_non_finite("F32", 4, 0x7f800000, indices[i]);
        check_non_finite("F32", 4, 0xffc00001, indices[i]);
        check_non_finite("F16", 2, 0xfc00, indices[i]);
        check_non_finite("F16", 2, 0x7c01, indices[i]);
        check_non_finite("BF16", 2, 0x7f80, indices[i]);
        check_non_finite("BF16", 2, 0xffff, indices[i]);
    }
}

TEST(safetensors_refuses_to_widen_other_types)
{
    scratch_write_tensors(path, FILE_NAME, "{\"w\":" T("F64", "[1]", "0", "8") "}", NULL, 8);
    struct attn_safetensors *file = open_good();
    struct attn_error error = {0};
    float out;
    ck_assert_int_eq(
        attn_safetensors_read_f32(&out, file, attn_safetensors_find(file, "w"), 0, 1, &error),
        ATTN_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "F64"));
    attn_safetensors_close(file);
}

TEST(safetensors_reports_a_file_that_has_shrunk_since_it_was_opened)
{
    char name[2 * SCRATCH_PATH];
    float out[256];
    scratch_write_tensors(path, FILE_NAME, "{\"w\":" T("F32", "[256]", "0", "1024") "}", NULL,
                          1024);
    struct attn_safetensors *file = open_good();
    snprintf(name, sizeof name, "%s/" FILE_NAME, path);
    ck_assert_int_eq(truncate(name, 500), 0);
    ck_assert_int_eq(
        attn_safetensors_read_f32(out, file, attn_safetensors_find(file, "w"), 0, 256, NULL),
        ATTN_IO);
    attn_safetensors_close(file);
}

TEST(safetensors_opens_a_header_of_50000_tensors)
{
    const size_t count = 50000;
    size_t size = count * 100, at = 1;
    char *header = malloc(size), name[32];
    ck_assert_ptr_nonnull(header);
    header[0] = '{';
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(header + at, size - at,
                               "%s\"t.%zu\":{\"dtype\":\"U8\",\"shape\":[1],"
                               "\"data_offsets\":[%zu,%zu]}",
                               i > 0 ? "," : "", i, i, i + 1);
    snprintf(header + at, size - at, "}");
    scratch_write_tensors(path, FILE_NAME, header, NULL, count);
    free(header);
    struct attn_safetensors *file = open_good();
    ck_assert_uint_eq(file->count, count);
    for (size_t i = 0; i < count; i += 977) {
        snprintf(name, sizeof name, "t.%zu", i);
        ck_assert_uint_eq(attn_safetensors_find(file, name)->begin, i);
    }
    attn_safetensors_close(file);
}

SUITE(safetensors)
