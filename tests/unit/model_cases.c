/* model_cases.c: opens and alters checkpoints for the model suite. */
#include "model_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attn_model *cases_open(const char *where, const struct attn_model_options *options)
{
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    enum attn_status status = attn_model_open(&model, where, options, &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", where, error.message);
    return model;
}

void cases_load(struct attn_model *model)
{
    struct attn_error error = {0};
    enum attn_status status = attn_model_load(model, &error);
    ck_assert_msg(status == ATTN_OK, "%s", error.message);
}

size_t cases_parameters(const char *path, const char *stack, size_t count)
{
    static const size_t layers[] = {0, 1};
    struct attn_model_info info;
    struct attn_model *model = cases_open(
        path, &(struct attn_model_options){.layers = layers, .num_layers = count, .stack = stack});
    attn_model_describe(&info, model);
    attn_model_close(model);
    return info.num_parameters;
}

void cases_golden(char out[SCRATCH_PATH], const char *name)
{
    snprintf(out, SCRATCH_PATH, GOLDEN "%s/model", name);
}

void cases_copy(const char *path, const char *name, const char *config, const char *tensor,
                size_t offset, const void *bytes, size_t length)
{
    char where[SCRATCH_PATH];
    size_t size, begin = 0;
    cases_golden(where, name);
    char *text = scratch_read(&size, where, "config.json");
    scratch_write(path, "config.json", config != NULL ? config : text,
                  config != NULL ? strlen(config) : size);
    free(text);

    char *data = scratch_read(&size, where, SINGLE);
    if (tensor != NULL) {
        const char *entry = memmem(data, size, tensor, strlen(tensor));
        ck_assert_ptr_nonnull(entry);
        const char *span = strstr(entry, "\"data_offsets\":[");
        ck_assert_ptr_nonnull(span);
        uint64_t header;
        memcpy(&header, data, sizeof header);
        begin = 8 + (size_t)header + strtoul(span + strlen("\"data_offsets\":["), NULL, 10);
        memcpy(data + begin + offset, bytes, length);
    }
    scratch_write(path, SINGLE, data, size);
    free(data);
}
