/* safetensors.c: the container, from memory.  The input is the header's text up to a NUL and then
 * the data.  The header's length, at which a fuzzer would be stuck, is put before it unless the
 * first byte is odd. */
#include "files/safetensors.h"

#include "fuzz.h"

#define PREFIX 8

static void read_all(const struct attn_safetensors *file)
{
    static const char *const names[] = {"a", "b", "layers.0.key", ""};
    float out[64];
    const struct attn_safetensors_pair *notes = file->metadata;
    for (size_t i = 0; i < file->num_metadata; i++)
        FUZZ_EXPECT(attn_safetensors_value(file, notes[i].name) == notes[i].value);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct attn_error error = {0};
        const void *bytes;
        const struct attn_tensor_entry *entry = attn_safetensors_find(file, names[i]);
        if (entry == NULL)
            continue;
        size_t elements = (entry->end - entry->begin) * 8 / entry->dtype->bits;
        size_t most = elements < 64 ? elements : 64;
        enum attn_status status =
            attn_safetensors_read_f32(out, file, entry, elements - most, most, &error);
        FUZZ_EXPECT(status == ATTN_OK || status == error.status);
        FUZZ_EXPECT(attn_safetensors_read_bytes(&bytes, file, entry, 0, entry->end - entry->begin,
                                                NULL, &error) == ATTN_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct attn_safetensors *file = NULL;
    struct attn_error error = {0};
    bool raw = fuzz_byte(&in) & 1;
    const uint8_t *nul = in.left > 0 ? memchr(in.at, '\0', in.left) : NULL;
    uint64_t header = nul != NULL ? (uint64_t)(nul - in.at) : in.left;
    size_t skipped = raw ? 0 : nul != NULL;
    size_t prefix = raw ? 0 : PREFIX, length = prefix + in.left - skipped;
    char *bytes = malloc(length > 0 ? length : 1);
    FUZZ_EXPECT(bytes != NULL);
    if (raw) {
        memcpy(bytes, in.at, in.left);
    } else {
        memcpy(bytes, &header, PREFIX);
        memcpy(bytes + PREFIX, in.at, header);
        memcpy(bytes + PREFIX + header, in.at + header + skipped, in.left - header - skipped);
    }
    enum attn_status status =
        attn_safetensors_open_bytes(&file, bytes, length, "input", 1 << 20, &error);
    FUZZ_EXPECT((status == ATTN_OK) == (file != NULL) && status == error.status);
    if (status == ATTN_OK)
        read_all(file);
    attn_safetensors_close(file);
    free(bytes);
    return 0;
}
