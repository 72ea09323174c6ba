/* model_hybrids.c: which layers of a hybrid are attention, by each way in which configurations say
 * it; and keys by which one class computes two models. */
#include <check.h>
#include <string.h>

#include "families/config.h"
#include "model_cases.h"

#define SIZES "\"hidden_size\":64,\"num_attention_heads\":8"
#define OF(type) "{\"model_type\":\"" type "\"," SIZES
#define LAYERS(n) ",\"num_hidden_layers\":" #n

#define BLOCK(members) "{\"attention\":{" members "},\"ffn\":{\"no_op\":false}}"
#define BLOCKS(list) OF("nemotron-nas") LAYERS(3) ",\"block_configs\":[" list "]}"
#define ATTENDS(heads, more) BLOCK("\"n_heads_in_group\":" heads ",\"no_op\":false" more)
#define NO_BLOCK(key) BLOCK("\"n_heads_in_group\":null,\"" key "\":true")

/* A letter for each layer: A attention, L linear, M Mamba, - MLP, E experts, C convolution,
 * R recurrent, S sliding. */
static const struct {
    const char *text, *layers;
} hybrids[] = {
    {BLOCKS(NO_BLOCK("no_op") "," ATTENDS(
         "2", ",\"window_length\":null,\"sparsify\":null") "," NO_BLOCK("replace_with_linear")),
     "-A-"},
    {OF("kimi_linear") LAYERS(4) ",\"mla_use_nope\":true,\"linear_attn_config\":{\"kda_layers\":"
                                 "[1,3],\"full_attn_layers\":[2,4]}}",
     "LALA"},
    {OF("nemotron_h") LAYERS(5) ",\"hybrid_override_pattern\":\"M*-*E\"}", "MA-AE"},
    {OF("nemotron_h") ",\"layers_block_type\":[\"mamba\",\"moe\",\"attention\",\"mlp\"]}", "MEA-"},
    {OF("nemotron_h") ",\"layers_block_type\":[\"linear_attention\",\"moe\",\"full_attention\"]}",
     "LEA"},
    {OF("granitemoehybrid") LAYERS(3) ",\"layer_types\":[\"mamba\",\"attention\",\"mamba\"]}",
     "MAM"},
    {OF("recurrent_gemma")
         LAYERS(5) ",\"block_types\":[\"recurrent\",\"recurrent\",\"attention\"]}",
     "RRARR"},
    {OF("minimax") LAYERS(3) "}", "ALA"},
    {OF("minimax_m1") LAYERS(4) ",\"attn_type_list\":[0,0,0,1],\"postnorm\":true}", "LLLA"},
    {OF("jamba") LAYERS(9) "}", "MMMMAMMMM"},
    {OF("jamba") LAYERS(4) ",\"attn_layer_period\":2,\"attn_layer_offset\":1}", "MAMA"},
    {OF("bamba") LAYERS(4) ",\"attn_layer_indices\":[1,3]}", "MAMA"},
    {OF("bamba") LAYERS(2) "}", "MM"},
    {OF("lfm2") LAYERS(3) ",\"full_attn_idxs\":[2]}", "CCA"},
    {OF("lfm2") LAYERS(2) "}", "AA"},
    {OF("lfm2") LAYERS(3) ",\"layer_types\":[\"conv\",\"full_attention\",\"conv\"]}", "CAC"},
    {OF("olmo_hybrid") LAYERS(4) "}", "LLLA"},
    {OF("gpt_neo") LAYERS(4) ",\"attention_types\":[[[\"global\",\"local\"],2]]}", "ASAS"},
    {OF("gpt_neo") LAYERS(3) ",\"attention_types\":[[[\"local\"],1],[[\"global\"],2]]}", "SAA"},
    {OF("gpt_neo") LAYERS(4) "}", "ASAS"},
    {OF("falcon_h1") LAYERS(2) "}", "AA"},
};

static char letter_of(const struct attn_config *config, size_t layer)
{
    return "AS??LM-ECR"[config->types[layer]];
}

TEST_EACH(hybrid_layers_are_those_that_the_configuration_says, COUNT(hybrids))
{
    struct attn_error error = {0};
    struct attn_config config;
    const char *text = hybrids[_i].text, *want = hybrids[_i].layers;
    ck_assert_msg(attn_config_read(&config, NULL, text, strlen(text), &error) == ATTN_OK, "%s: %s",
                  text, error.message);
    ck_assert_uint_eq(config.num_layers, strlen(want));
    for (size_t i = 0; i < config.num_layers; i++) {
        ck_assert_msg(letter_of(&config, i) == want[i], "%s: layer %zu", text, i);
        ck_assert(attn_config_attends(&config, i) == (want[i] == 'A' || want[i] == 'S'));
    }
}

static const struct {
    const char *text, *key;
} refused[] = {
    {BLOCKS(ATTENDS("2", "") "," ATTENDS("0", "") "," ATTENDS("2", "")), "n_heads_in_group"},
    {BLOCKS(ATTENDS("2", "") "," ATTENDS("3", "") "," ATTENDS("2", "")), "whole groups of 3"},
    {BLOCKS(ATTENDS("2", "") "," ATTENDS("4", "")), "block_configs has 2 entries"},
    {BLOCKS(ATTENDS("2", ",\"window_length\":64")), "window_length of layer 0"},
    {BLOCKS(ATTENDS("2", ",\"unshifted_sink\":true")), "unshifted_sink of layer 0"},
    {OF("nemotron-nas") LAYERS(1) ",\"block_configs\":{}}", "a list of an object for each layer"},
    {OF("nemotron_h") LAYERS(3) ",\"hybrid_override_pattern\":\"M*\"}", "hybrid_override_pattern"},
    {OF("nemotron_h") LAYERS(1) ",\"hybrid_override_pattern\":\"X\"}", "hybrid_override_pattern"},
    {OF("nemotron_h") LAYERS(1) ",\"hybrid_override_pattern\":\"\"}", "hybrid_override_pattern"},
    {OF("nemotron_h") ",\"hybrid_override_pattern\":\"M\",\"layer_types\":[\"moe\"]}",
     "layer_types"},
    {OF("recurrent_gemma") LAYERS(2) ",\"block_types\":[\"recurrent\",\"attention\"]}",
     "block_types"},
    {OF("minimax_text_01") LAYERS(2) ",\"attn_type_list\":[0,2]}", "attn_type_list"},
    {OF("jamba") LAYERS(4) ",\"attn_layer_period\":2}", "attn_layer_offset"},
    {OF("bamba") LAYERS(2) ",\"attn_layer_indices\":[2]}", "attn_layer_indices"},
    {OF("bamba") LAYERS(2) ",\"attn_layer_indices\":[-1]}", "attn_layer_indices"},
    {OF("kimi_linear") LAYERS(2) ",\"linear_attn_config\":{\"full_attn_layers\":[0]}}",
     "full_attn_layers"},
    {OF("kimi_linear") LAYERS(2) ",\"linear_attn_config\":{\"full_attn_layers\":[3]}}",
     "full_attn_layers"},
    {OF("kimi_linear") LAYERS(2) ",\"mla_use_output_gate\":true}", "mla_use_output_gate"},
    {OF("lfm2") LAYERS(1) ",\"full_attn_idxs\":[0],\"layer_types\":[\"conv\"]}", "full_attn_idxs"},
    {OF("lfm2") LAYERS(1) ",\"layer_types\":[\"mamba\"]}", "layer_types"},
    {OF("gpt_neo") LAYERS(1) ",\"attention_types\":[[[\"global\"],0]]}", "attention_types"},
    {OF("gpt_neo") LAYERS(1) ",\"attention_types\":[[[\"near\"],1]]}", "attention_types"},
    {"{\"model_type\":\"codegen\",\"n_embd\":48,\"n_head\":6,\"n_layer\":1}", "n_head"},
    {OF("chatglm") LAYERS(1) ",\"position_encoding_2d\":true}", "position_encoding_2d"},
};

TEST_EACH(hybrid_configurations_that_contradict_themselves_are_refused, COUNT(refused))
{
    struct attn_error error = {0};
    struct attn_config config;
    const char *text = refused[_i].text;
    ck_assert_msg(attn_config_read(&config, NULL, text, strlen(text), &error) != ATTN_OK, "%s",
                  text);
    ck_assert_msg(strstr(error.message, refused[_i].key) != NULL, "%s: %s", text, error.message);
}

static struct attn_layer_spec spec_of(const char *text)
{
    struct attn_error error = {0};
    struct attn_config config;
    struct attn_layer_spec spec;
    ck_assert_msg(attn_config_read(&config, NULL, text, strlen(text), &error) == ATTN_OK, "%s: %s",
                  text, error.message);
    attn_config_layer_spec(&spec, &config, config.num_layers - 1);
    return spec;
}

TEST(hybrid_keys_say_which_of_two_models_it_is)
{
    struct attn_layer_spec s = spec_of(OF("baichuan") LAYERS(1) "}");
    ck_assert(s.position_bias.type == ATTN_BIAS_ALIBI && s.rope.type == ATTN_ROPE_NONE);
    s = spec_of(OF("baichuan") LAYERS(1) ",\"max_position_embeddings\":64}");
    ck_assert(s.position_bias.type == ATTN_BIAS_NONE && s.rope.type == ATTN_ROPE_DEFAULT);
    s = spec_of(OF("qwen") LAYERS(1) ",\"seq_length\":64,\"use_dynamic_ntk\":false}");
    ck_assert_uint_eq(s.max_tokens, 64);
    s = spec_of(OF("qwen") LAYERS(1) ",\"seq_length\":64,\"use_dynamic_ntk\":false,"
                                     "\"use_logn_attn\":false}");
    ck_assert_uint_eq(s.max_tokens, 0);
    s = spec_of(OF("chatglm") LAYERS(1) ",\"rope_ratio\":500}");
    ck_assert(s.rope.theta == 5e6 && s.rope.dim == 64 && s.rope.interleaved);
    s = spec_of(OF("granitemoehybrid") ",\"layer_types\":[\"attention\"]}");
    ck_assert(s.rope.type == ATTN_ROPE_NONE);
    s = spec_of(OF("granitemoehybrid") ",\"layer_types\":[\"attention\"],"
                                       "\"position_embedding_type\":\"rope\"}");
    ck_assert(s.rope.type == ATTN_ROPE_DEFAULT);
    s = spec_of(OF("olmo_hybrid") LAYERS(4) ",\"rope_parameters\":{\"rope_type\":\"default\","
                                            "\"rope_theta\":null}}");
    ck_assert(s.rope.type == ATTN_ROPE_NONE);
    s = spec_of(OF("olmo_hybrid") LAYERS(4) ",\"rope_parameters\":null}");
    ck_assert(s.rope.type == ATTN_ROPE_NONE);
    s = spec_of(OF("falcon_h1") LAYERS(1) "}");
    ck_assert(s.key_multiplier == 0);
    s = spec_of(BLOCKS(ATTENDS("8", "") "," ATTENDS("4", "") "," ATTENDS("2", "")));
    ck_assert_uint_eq(s.num_kv_heads, 4);
}

CASES_OF(hybrids)
