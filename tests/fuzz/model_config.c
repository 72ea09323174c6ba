/* model_config.c: fuzzes config.json of every family, by its model_type, and of a random model. */
#include "families/config.h"
#include "fuzz.h"

static void resolve(const struct attn_family *family, const char *stack, const char *text,
                    size_t length)
{
    struct attn_config *config = malloc(sizeof *config);
    struct attn_error error = {0};
    FUZZ_EXPECT(config != NULL);
    enum attn_status status = attn_config_read(
        config, &(struct attn_config_options){family, stack, NULL}, text, length, &error);
    FUZZ_EXPECT(status == error.status && (status == ATTN_OK) == (error.message[0] == '\0'));
    for (size_t i = 0; status == ATTN_OK && i < config->num_layers && i < 4; i++) {
        struct attn_layer_spec spec;
        if (!attn_config_attends(config, i))
            continue;
        attn_config_layer_spec(&spec, config, i);
        FUZZ_EXPECT(spec.num_heads > 0 && spec.num_kv_heads > 0);
        FUZZ_EXPECT(spec.num_heads % spec.num_kv_heads == 0);
        FUZZ_EXPECT(spec.head_dim > 0 && spec.head_dim <= ATTN_MAX_HEAD_DIM);
    }
    free(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const stacks[] = {NULL, "encoder", "decoder", "cross", "text", "vision"};
    struct fuzz_input in = {data, size};
    unsigned way = fuzz_byte(&in);
    size_t length;
    char *text = fuzz_text(&length, &in, in.left);
    resolve(NULL, stacks[way % 6], text, length);
    resolve(&attn_family_random, NULL, text, length);
    free(text);
    return 0;
}
