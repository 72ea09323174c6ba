/* state.c: exported sessions (state_file.h).  Their fingerprint and checksum are repaired unless
 * the first byte is odd.  Pieces of any size must give the same result. */
#include "state_file.h"

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

/* Imports in pieces of about so many bytes. */
static enum attn_status import(const char *bytes, size_t size, size_t budget)
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
        status = attn_import_run(&more, state, budget, &error);
        FUZZ_EXPECT(i < 100000);
    }
    FUZZ_EXPECT(status == error.status);
    if (status == ATTN_OK)
        for (size_t i = 0; i < 2; i++)
            FUZZ_EXPECT(attn_cache_length(cache, i) <= 256);
    attn_import_close(state);
    attn_cache_free(cache);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    bool repaired = !(fuzz_byte(&in) & 1);
    size_t length;
    set_up();
    char *bytes = state_file(&length, &in, repaired, fingerprint);
    FUZZ_EXPECT(import(bytes, length, 64) == import(bytes, length, 5));
    free(bytes);
    return 0;
}
