/* test_quantized.c: quantised checkpoints are the float32 ones that their formulas give.
 *
 * Each folder of tests/quantized has a model in both forms, which make.py there wrote. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "attn_limits.h"
#include "families/quantization.h"
#include "families/weights.h"
#include "suites.h"

#define FOLDER "tests/quantized"
#define MOST_NUMBERS 5120 /* of a weight */

/* The folders' names; how many. */
static size_t list_folders(char names[32][64])
{
    size_t count = 0;
    DIR *list = opendir(FOLDER);
    ck_assert_ptr_nonnull(list);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strchr(entry->d_name, '.') == NULL) {
            ck_assert_uint_lt(count, 32);
            snprintf(names[count++], 64, "%.63s", entry->d_name);
        }
    closedir(list);
    ck_assert_uint_gt(count, 0);
    return count;
}

static struct attn_model *open_form(const char *folder, const char *form)
{
    char path[128];
    struct attn_error error = {0};
    struct attn_model *model;
    snprintf(path, sizeof path, FOLDER "/%s/%s", folder, form);
    const enum attn_status status = attn_model_open(&model, path, NULL, &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", path, error.message);
    return model;
}

TEST(stored_forms_have_the_fingerprint_of_their_numbers)
{
    static const char *const forms[] = {"stored", "plain"};
    char names[32][64];
    const size_t count = list_folders(names);
    for (size_t i = 0; i < count; i++) {
        char fingerprints[2][17];
        for (size_t f = 0; f < 2; f++) {
            struct attn_error error = {0};
            struct attn_model *model = open_form(names[i], forms[f]);
            ck_assert_msg(attn_model_load(model, &error) == ATTN_OK, "%s: %s", names[i],
                          error.message);
            struct attn_model_info info;
            attn_model_describe(&info, model);
            memcpy(fingerprints[f], info.fingerprint, 17);
            attn_model_close(model);
        }
        ck_assert_msg(strcmp(fingerprints[0], fingerprints[1]) == 0, "%s: %s, wanted is %s",
                      names[i], fingerprints[0], fingerprints[1]);
    }
}

/* The tensors of the only layer of a folder's stored form. */
static struct attn_checkpoint *bind(struct attn_bindings *out, struct attn_config *config,
                                    const char *folder)
{
    char path[128];
    struct attn_error error = {0};
    struct attn_checkpoint *checkpoint;
    struct attn_checksum sum;
    size_t length;
    snprintf(path, sizeof path, FOLDER "/%s/stored", folder);
    ck_assert_int_eq(attn_checkpoint_open(&checkpoint, path, false, &error), ATTN_OK);
    const char *text = attn_checkpoint_config(checkpoint, &length);
    ck_assert_int_eq(attn_config_read(config, NULL, text, length, &error), ATTN_OK);
    attn_checksum_init(&sum);
    if (config->hf.quantization.method == ATTN_QUANT_NONE)
        ck_assert_int_eq(
            attn_quantization_read_beside(&config->hf.quantization, &sum, checkpoint, &error),
            ATTN_OK);
    const struct attn_checkpoint_layer source = attn_checkpoint_layer(config, 0);
    ck_assert_msg(attn_bind_layer(out, checkpoint, &source, &error) == ATTN_OK, "%s: %s", folder,
                  error.message);
    return checkpoint;
}

TEST(any_range_is_that_of_the_whole)
{
    static float whole[MOST_NUMBERS], part[MOST_NUMBERS];
    char names[32][64];
    const size_t count = list_folders(names);
    for (size_t i = 0; i < count; i++) {
        struct attn_bindings bindings;
        struct attn_config config;
        struct attn_checkpoint *checkpoint = bind(&bindings, &config, names[i]);
        const struct attn_tensor *tensor = &bindings.items[0].tensor;
        const size_t numbers = tensor->entry->shape[0] * tensor->entry->shape[1];
        ck_assert_ptr_nonnull(tensor->quantized);
        ck_assert_uint_le(numbers, MOST_NUMBERS);
        ck_assert_int_eq(attn_tensor_read_f32(whole, tensor, 0, numbers, NULL), ATTN_OK);
        for (size_t first = 0; first < numbers; first += 37)
            for (size_t n = 1; first + n <= numbers; n += 1 + 2 * n) {
                ck_assert_int_eq(attn_tensor_read_f32(part, tensor, first, n, NULL), ATTN_OK);
                ck_assert_msg(memcmp(part, whole + first, n * sizeof *part) == 0, "%s: %zu of %zu",
                              names[i], n, first);
            }
        attn_checkpoint_close(checkpoint);
    }
}

/* What threads decode in is counted beside the layer and the headers. */
TEST(memory_of_loading_counts_the_decoders)
{
    struct attn_model_memory stored, plain;
    struct attn_model *model = open_form("awq_upper_case", "stored");
    attn_model_memory(&stored, model);
    attn_model_close(model);
    model = open_form("awq_upper_case", "plain");
    attn_model_memory(&plain, model);
    attn_model_close(model);
    /* codes of 32 rows, and three numbers for each of two groups of each row */
    ck_assert_uint_gt(stored.loading_bytes, plain.loading_bytes + 32 * 32 / 2 + 3 * 32 * 2 * 4);
}

SUITE(quantized)
