/* gguf.c: GGUF files, whole, from memory: header, configuration, names, and the elements of each
 * tensor that has a published name. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files/gguf_model.h"
#include "fuzz.h"

#define MOST 2048 /* elements read at a time */

static bool read_tensor(void *context, const char *name)
{
    static float out[MOST];
    const struct attn_gguf_model *model = context;
    struct attn_error error = {0};
    const struct attn_tensor_entry *entry = attn_gguf_model_find(model, name);
    FUZZ_EXPECT(entry != NULL && entry->begin <= entry->end && entry->ndim <= 8);
    size_t count = 1;
    for (size_t i = 0; i < entry->ndim; i++)
        count *= entry->shape[i];
    FUZZ_EXPECT(count > 0);
    const size_t most = count < MOST ? count : MOST;
    const size_t parts[][2] = {{count - most, most}, {0, most}, {most / 2, most - most / 2}};
    for (size_t i = 0; i < 3; i++) {
        enum attn_status status =
            attn_gguf_model_read_f32(out, model, entry, parts[i][0], parts[i][1], &error);
        FUZZ_EXPECT(status == ATTN_OK || status == error.status);
        for (size_t j = 0; status == ATTN_OK && j < parts[i][1]; j++)
            FUZZ_EXPECT(out[j] - out[j] == 0);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct attn_error error = {0};
    struct attn_gguf_model *model = NULL;
    char name[24];
    int file = memfd_create("gguf", MFD_CLOEXEC), directory = open("/proc/self/fd", O_DIRECTORY);
    FUZZ_EXPECT(file >= 0 && directory >= 0);
    FUZZ_EXPECT(write(file, data, size) == (ssize_t)size);
    snprintf(name, sizeof name, "%d", file);
    enum attn_status status = attn_gguf_model_open(&model, directory, name, &error);
    FUZZ_EXPECT(status == ATTN_OK || (status == error.status && error.message[0] != '\0'));
    if (status == ATTN_OK) {
        const struct attn_gguf_config *config = &model->config;
        FUZZ_EXPECT(strlen(config->text) == config->length && config->text[0] == '{');
        FUZZ_EXPECT(attn_visit_names(model->tensors, model->num_tensors, sizeof *model->tensors, "",
                                     read_tensor, model));
        FUZZ_EXPECT(attn_gguf_model_memory(model) < 64 * size + 65536);
    }
    attn_gguf_model_close(model);
    close(directory);
    close(file);
    return 0;
}
