/* quantized.c: a checkpoint whose weights are quantised.  The input is quantization_config up to a
 * NUL, the header of the weights up to another, and their data; the rest of config.json is that of
 * a small llama.  A checkpoint that opens is loaded too. */
#include <fcntl.h>
#include <unistd.h>

#include "attn.h"
#include "fuzz.h"

#define CONFIG                                                                         \
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_attention_heads\":2,"          \
    "\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"max_position_embeddings\":8," \
    "\"quantization_config\":"

static char directory[] = "/dev/shm/attnd-fuzz-XXXXXX";

static void path_of(char path[96], const char *file)
{
    snprintf(path, 96, "%s/%s", directory, file);
}

static void remove_all(void)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[96];
    for (size_t i = 0; i < 2; i++) {
        path_of(path, files[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* Writes two pieces of bytes, one after the other. */
static void write_file(const char *name, const void *first, size_t first_size, const void *second,
                       size_t second_size)
{
    char path[96];
    path_of(path, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_EXPECT(file >= 0 && write(file, first, first_size) == (ssize_t)first_size);
    FUZZ_EXPECT(write(file, second, second_size) == (ssize_t)second_size);
    close(file);
}

/* The bytes up to a NUL, which is passed too. */
static const uint8_t *take_text(size_t *length, struct fuzz_input *in)
{
    const uint8_t *text = in->at, *nul = in->left > 0 ? memchr(text, '\0', in->left) : NULL;
    *length = nul != NULL ? (size_t)(nul - text) : in->left;
    in->at += *length + (nul != NULL);
    in->left -= *length + (nul != NULL);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    struct fuzz_input in = {data, size};
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    size_t length;
    if (!made) {
        FUZZ_EXPECT(mkdtemp(directory) != NULL && atexit(remove_all) == 0);
        made = true;
    }
    const uint8_t *text = take_text(&length, &in);
    char *config = malloc(sizeof CONFIG + length + 1);
    FUZZ_EXPECT(config != NULL);
    memcpy(config, CONFIG, sizeof CONFIG - 1);
    memcpy(config + sizeof CONFIG - 1, text, length);
    write_file("config.json", config, sizeof CONFIG - 1 + length, "}", 1);
    free(config);
    text = take_text(&length, &in);
    char *weights = malloc(8 + length);
    const uint64_t header = length;
    FUZZ_EXPECT(weights != NULL);
    memcpy(weights, &header, 8);
    memcpy(weights + 8, text, length);
    write_file("model.safetensors", weights, 8 + length, in.at, in.left);
    free(weights);
    enum attn_status status = attn_model_open(&model, directory, NULL, &error);
    FUZZ_EXPECT((status == ATTN_OK) == (model != NULL));
    if (status == ATTN_OK)
        status = attn_model_load(model, &error);
    FUZZ_EXPECT(status == ATTN_OK || (status == error.status && error.message[0] != '\0'));
    attn_model_close(model);
    return 0;
}
