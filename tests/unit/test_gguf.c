/* test_gguf.c: GGUF files: blocks as ggml decodes them, and models that must be refused.
 *
 * tests/ggml/blocks.safetensors has random blocks of each format with the numbers that ggml's
 * to_float (commit d99724f2) gave of them; tests/broken has models and refusals.json. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "files/gguf.h"
#include "suites.h"

#define NUM_TYPES 64 /* numbers of formats that are tried */

/* The bytes of a tensor, for free. */
static void *read_tensor(size_t *size, const struct attn_safetensors *file, const char *name,
                         const char *end)
{
    char whole[64];
    const void *bytes;
    snprintf(whole, sizeof whole, "%s%s", name, end);
    const struct attn_tensor_entry *entry = attn_safetensors_find(file, whole);
    ck_assert_msg(entry != NULL, "%s", whole);
    *size = entry->end - entry->begin;
    void *room = malloc(*size);
    ck_assert_int_eq(attn_safetensors_read_bytes(&bytes, file, entry, 0, *size, room, NULL),
                     ATTN_OK);
    if (bytes != room)
        memcpy(room, bytes, *size);
    return room;
}

START_TEST(test_blocks_are_decoded_as_ggml_decodes_them)
{
    struct attn_safetensors *file;
    struct attn_error error;
    size_t tried = 0;
    ck_assert_int_eq(
        attn_safetensors_open(&file, AT_FDCWD, "tests/ggml/blocks.safetensors", &error), ATTN_OK);
    for (uint32_t number = 0; number < NUM_TYPES; number++) {
        const struct attn_ggml_type *type = attn_ggml_type(number);
        if (type == NULL || type->decode == NULL)
            continue;
        size_t blocks_size, numbers_size;
        uint8_t *blocks = read_tensor(&blocks_size, file, type->dtype.name, ".blocks");
        uint8_t *wanted = read_tensor(&numbers_size, file, type->dtype.name, ".numbers");
        float *got = malloc(numbers_size);
        const size_t count = blocks_size / type->bytes;
        ck_assert_uint_eq(count * type->numbers * sizeof(float), numbers_size);
        type->decode(got, blocks, count);
        ck_assert_msg(memcmp(got, wanted, numbers_size) == 0, "%s", type->dtype.name);
        free(got);
        free(wanted);
        free(blocks);
        tried++;
    }
    ck_assert_uint_eq(2 * tried, attn_safetensors_count(file));
    attn_safetensors_close(file);
}
END_TEST

/* Each directory of refusals.json is refused with a message that has its text; "" is for those
 * that are whole. */
START_TEST(test_broken_models_are_refused_in_plain_words)
{
    const char *name;
    json_t *text, *refusals = json_load_file("tests/broken/refusals.json", 0, NULL);
    ck_assert_uint_gt(json_object_size(refusals), 0);
    json_object_foreach(refusals, name, text) {
        char path[256];
        struct attn_error error = {0};
        struct attn_model *model = NULL;
        snprintf(path, sizeof path, "tests/broken/%s/model", name);
        const enum attn_status status = attn_model_open(&model, path, NULL, &error);
        const char *wanted = json_string_value(text);
        if (wanted[0] == '\0')
            ck_assert_msg(status == ATTN_OK, "%s: %s", name, error.message);
        else
            ck_assert_msg(status != ATTN_OK && strstr(error.message, wanted) != NULL, "%s: %s",
                          name, status == ATTN_OK ? "not refused" : error.message);
        attn_model_close(model);
    }
    json_decref(refusals);
}
END_TEST

START_TEST(test_a_further_part_is_not_a_model)
{
    struct attn_error error = {0};
    struct attn_model *model;
    ck_assert_int_ne(attn_model_open(&model,
                                     "tests/broken/gguf_split_intact/model/m-00002-of-00002.gguf",
                                     NULL, &error),
                     ATTN_OK);
    ck_assert_ptr_nonnull(strstr(error.message, "is not the first part of a split model"));
}
END_TEST

Suite *suite_gguf(void)
{
    Suite *suite = suite_create("gguf");
    TCase *tests = tcase_create("gguf");
    tcase_add_test(tests, test_blocks_are_decoded_as_ggml_decodes_them);
    tcase_add_test(tests, test_broken_models_are_refused_in_plain_words);
    tcase_add_test(tests, test_a_further_part_is_not_a_model);
    suite_add_tcase(suite, tests);
    return suite;
}
