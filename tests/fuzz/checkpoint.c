/* checkpoint.c: a model directory.  The input is the header of the weights (first byte even) or the
 * index of shards (odd), beside a config.json of gpt2.  A checkpoint that opens is loaded too.
 *
 * Files are in memory where the system has a place for that: writing one anew to a disk costs
 * milliseconds an input. */
#include <fcntl.h>
#include <unistd.h>

#include "attn.h"
#include "fuzz.h"

#define CONFIG "{\"model_type\":\"gpt2\",\"n_embd\":4,\"n_head\":2,\"n_layer\":1,\"n_positions\":8}"
#define HEADER                                                                               \
    "{\"h.0.attn.c_attn.bias\":{\"dtype\":\"F32\",\"shape\":[12],\"data_offsets\":[0,48]},"  \
    "\"h.0.attn.c_attn.weight\":{\"dtype\":\"F32\",\"shape\":[4,12],\"data_offsets\":[48,"   \
    "240]},\"h.0.attn.c_proj.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[240," \
    "256]},\"h.0.attn.c_proj.weight\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[" \
    "256,320]}}"
#define DATA 320

static const char *const files[] = {"config.json", "part.safetensors", "model.safetensors",
                                    "model.safetensors.index.json"};
static char directory[] = "/dev/shm/attnd-fuzz-XXXXXX";

static void path_of(char path[96], size_t file)
{
    snprintf(path, 96, "%s/%s", directory, files[file]);
}

static void write_file(size_t file, const void *bytes, size_t size, size_t zeros)
{
    char path[96];
    path_of(path, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_EXPECT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    FUZZ_EXPECT(ftruncate(fd, (off_t)(size + zeros)) == 0);
    close(fd);
}

static void remove_all(void)
{
    char path[96];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        path_of(path, i);
        unlink(path);
    }
    rmdir(directory);
}

static void set_up(void)
{
    static bool done;
    uint64_t length = strlen(HEADER);
    char part[8 + sizeof HEADER];
    if (done)
        return;
    if (mkdtemp(directory) == NULL) {
        snprintf(directory, sizeof directory, "/tmp/attnd-fuzz-XXXXXX");
        FUZZ_EXPECT(mkdtemp(directory) != NULL);
    }
    FUZZ_EXPECT(atexit(remove_all) == 0);
    memcpy(part, &length, 8);
    memcpy(part + 8, HEADER, length);
    write_file(0, CONFIG, strlen(CONFIG), 0);
    write_file(1, part, 8 + length, DATA);
    done = true;
}

/* Writes the text up to a NUL as the header, its length first; the rest are data. */
static void write_weights(struct fuzz_input *in)
{
    size_t left;
    char *bytes = fuzz_copy(&left, in, in->left);
    const char *nul = memchr(bytes, '\0', left);
    uint64_t header = nul != NULL ? (uint64_t)(nul - bytes) : left;
    char *file = malloc(8 + left);
    FUZZ_EXPECT(file != NULL);
    memcpy(file, &header, 8);
    memcpy(file + 8, bytes, header);
    if (nul != NULL)
        memcpy(file + 8 + header, nul + 1, left - header - 1);
    write_file(2, file, 8 + left - (nul != NULL), nul != NULL ? 0 : DATA);
    free(file);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    char path[96];
    bool indexed = fuzz_byte(&in) & 1;
    set_up();
    path_of(path, indexed ? 2 : 3);
    unlink(path);
    if (indexed)
        write_file(3, in.at, in.left, 0);
    else
        write_weights(&in);
    enum attn_status status = attn_model_open(&model, directory, NULL, &error);
    FUZZ_EXPECT((status == ATTN_OK) == (model != NULL));
    if (status == ATTN_OK)
        status = attn_model_load(model, &error);
    FUZZ_EXPECT(status == ATTN_OK || (status == error.status && error.message[0] != '\0'));
    attn_model_close(model);
    return 0;
}
