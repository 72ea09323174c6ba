/* state.c: exported sessions.
 *
 * The input is the header's text up to a NUL and then the data.  The header's length is put before
 * it and, unless the first byte is odd, fingerprint and checksum are made right, so that all behind
 * them is reached. */
#include "attn_state.h"

#include "checksum.h"
#include "fuzz.h"
#include "safetensors.h"
#include "state.h"

#define PREFIX 8
#define MODEL                                                                 \
    "{\"hidden_size\":8,\"num_attention_heads\":2,\"num_key_value_heads\":1," \
    "\"num_hidden_layers\":2,\"rope_theta\":10000,\"seed\":1}"

static struct attn_model *model;
static struct attn_cache_pool *pool;
static char fingerprint[17];

static void set_up(void)
{
    struct attn_model_info info;
    if (model != NULL)
        return;
    FUZZ_EXPECT(attn_model_open_random(&model, MODEL, strlen(MODEL), NULL, NULL) == ATTN_OK);
    FUZZ_EXPECT(attn_model_load(model, NULL) == ATTN_OK);
    FUZZ_EXPECT(attn_cache_pool_new(&pool, 1 << 20) == ATTN_OK);
    attn_model_describe(&info, model);
    memcpy(fingerprint, info.fingerprint, sizeof fingerprint);
}

/* Writes `text` over what stands behind `before`, where as many bytes do. */
static void overwrite(char *bytes, size_t size, const char *before, const char *text, size_t length)
{
    char *at = memmem(bytes, size, before, strlen(before));
    if (at != NULL && (size_t)(bytes + size - at) >= strlen(before) + length)
        memcpy(at + strlen(before), text, length);
}

/* The checksum that docs/API.md describes, over tensors that follow each other as they should. */
static void repair_sum(char *bytes, size_t size, size_t header)
{
    struct attn_safetensors *file;
    struct attn_checksum sum;
    char digits[ATTN_CHECKSUM_DIGITS];
    size_t count;
    if (attn_safetensors_open_bytes(&file, bytes, size, "x", 1 << 20, NULL) != ATTN_OK)
        return;
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, bytes + PREFIX + header, size - PREFIX - header);
    const struct attn_tensor_note *notes = attn_safetensors_notes(&count, file);
    for (size_t i = 0; i < count; i++)
        if (strcmp(notes[i].name, "checksum") != 0)
            attn_state_sum_note(&sum, notes[i].name, notes[i].value);
    attn_checksum_print(digits, &sum);
    attn_safetensors_close(file);
    overwrite(bytes + PREFIX, header, "\"checksum\":\"", digits, sizeof digits);
}

static void import(const char *bytes, size_t size)
{
    struct attn_import *state = NULL;
    struct attn_cache *cache = NULL;
    struct attn_error error = {0};
    bool more = true;
    enum attn_status status = attn_import_open(&state, bytes, size, &error);
    FUZZ_EXPECT((status == ATTN_OK) == (state != NULL));
    if (status == ATTN_OK)
        status = attn_cache_new(&cache, pool, model, 256, &error);
    if (status == ATTN_OK)
        status = attn_import_begin(state, cache, &error);
    for (unsigned i = 0; status == ATTN_OK && more; i++) {
        status = attn_import_run(&more, state, 64, &error);
        FUZZ_EXPECT(i < 100000);
    }
    FUZZ_EXPECT(status == error.status);
    if (status == ATTN_OK)
        for (size_t i = 0; i < 2; i++)
            FUZZ_EXPECT(attn_cache_length(cache, i) <= 256);
    attn_import_close(state);
    attn_cache_free(cache);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    bool repaired = !(fuzz_byte(&in) & 1);
    const uint8_t *nul = in.left > 0 ? memchr(in.at, '\0', in.left) : NULL;
    uint64_t header = nul != NULL ? (uint64_t)(nul - in.at) : in.left;
    size_t skipped = nul != NULL, length = PREFIX + in.left - skipped;
    char *bytes = malloc(length);
    FUZZ_EXPECT(bytes != NULL);
    set_up();
    memcpy(bytes, &header, PREFIX);
    memcpy(bytes + PREFIX, in.at, header);
    memcpy(bytes + PREFIX + header, in.at + header + skipped, in.left - header - skipped);
    if (repaired) {
        overwrite(bytes + PREFIX, header, "\"fingerprint\":\"", fingerprint, 16);
        repair_sum(bytes, length, header);
    }
    import(bytes, length);
    free(bytes);
    return 0;
}
