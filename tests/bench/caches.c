/* caches.c: `bench --caches`: caches of sessions, from the sizes of models. */
#include "caches.h"

#include <stdio.h>
#include <string.h>

#include "attn_limits.h"

#define SLIDING_5                                                        \
    "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"," \
    "\"sliding_attention\",\"sliding_attention\""
#define SIX SLIDING_5 ",\"full_attention\""
#define TWO "\"sliding_attention\",\"full_attention\""
#define SIX_TIMES(x) x "," x "," x "," x "," x "," x

/* Sizes of the published configurations; a row's random weights are never made. */
static const struct row {
    const char *name, *config;
    size_t tokens;
} rows[] = {
    {"Mistral 7B",
     "{\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"num_hidden_layers\":32,\"sliding_window\":4096}",
     32768},
    {"Gemma 3 4B",
     "{\"hidden_size\":2560,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,"
     "\"num_hidden_layers\":34,\"sliding_window\":1024,\"layer_types\":[" SIX "," SIX "," SIX
     "," SIX "," SIX ",\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
     "\"sliding_attention\"]}",
     32768},
    {"gpt-oss 20B",
     "{\"hidden_size\":2880,\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,"
     "\"num_hidden_layers\":24,\"sliding_window\":128,\"layer_types\":[" SIX_TIMES(
         TWO) "," SIX_TIMES(TWO) "]}",
     32768},
    {"DeepSeek V3",
     "{\"hidden_size\":7168,\"num_attention_heads\":128,\"num_key_value_heads\":128,"
     "\"head_dim\":192,\"value_head_dim\":128,\"q_lora_rank\":1536,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"num_hidden_layers\":61}",
     4096},
    {"Llama 3 8B",
     "{\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"num_hidden_layers\":32}",
     32768},
};

/* Bytes of a token with the keys and values of all heads, in all layers. */
static size_t whole_token(const struct attn_model *model, size_t layers)
{
    size_t numbers = 0;
    for (size_t i = 0; i < layers; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model, i);
        numbers += spec->num_kv_heads * (spec->head_dim + spec->value_head_dim);
    }
    return numbers * sizeof(uint16_t);
}

static bool print_row(const struct row *row)
{
    const struct attn_model_options options = {.kv_dtype = ATTN_BF16};
    struct attn_model_info info;
    struct attn_model *model;
    struct attn_error error;
    if (attn_model_open_random(&model, row->config, strlen(row->config), &options, &error) !=
        ATTN_OK) {
        fprintf(stderr, "bench: %s: %s\n", row->name, error.message);
        return false;
    }
    attn_model_describe(&info, model);
    size_t whole = whole_token(model, info.num_layers), before = whole * row->tokens;
    size_t after = attn_model_cache_bytes(model, row->tokens);
    printf("| %s | %zu | %zu | %zu | %zu | %.2f |\n", row->name, row->tokens, whole,
           after / row->tokens, after, (double)after / (double)before);
    attn_model_close(model);
    return true;
}

bool bench_caches(void)
{
    bool right = true;
    puts("| model | tokens | bytes a token, all kept | bytes a token | bytes of the session | of "
         "all kept |\n|---|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        right = print_row(&rows[i]) && right;
    return right;
}
