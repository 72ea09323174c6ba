/* model_config.c: published configurations resolve; wrong ones are refused, with the key named. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/config.h"
#include "layers/checkpoint.h"
#include "model_cases.h"

/* ---- Configurations that were published ---------------------------------------------------- */

static enum attn_status read_config(struct attn_config *out, const char *text,
                                    struct attn_error *error)
{
    return attn_config_read(out, NULL, text, strlen(text), error);
}

static void read_good(struct attn_config *out, const char *text)
{
    struct attn_error error = {0};
    enum attn_status status = read_config(out, text, &error);
    ck_assert_msg(status == ATTN_OK, "%s", error.message);
}

#define LLAMA_REST                                                                       \
    "\"architectures\":[\"LlamaForCausalLM\"],\"bos_token_id\":1,\"eos_token_id\":2,"    \
    "\"hidden_act\":\"silu\",\"initializer_range\":0.02,\"model_type\":\"llama\","       \
    "\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"," \
    "\"transformers_version\":\"4.42.3\",\"use_cache\":true,\"vocab_size\":32000,"
#define GPT2_REST                                                                            \
    "\"activation_function\":\"gelu_new\",\"architectures\":[\"GPT2LMHeadModel\"],"          \
    "\"attn_pdrop\":0.1,\"bos_token_id\":50256,\"embd_pdrop\":0.1,\"eos_token_id\":50256,"   \
    "\"initializer_range\":0.02,\"layer_norm_epsilon\":1e-05,\"model_type\":\"gpt2\","       \
    "\"n_ctx\":1024,\"resid_pdrop\":0.1,\"summary_activation\":null,"                        \
    "\"summary_first_dropout\":0.1,\"summary_proj_to_labels\":true,"                         \
    "\"summary_type\":\"cls_index\",\"summary_use_proj\":true,"                              \
    "\"task_specific_params\":{\"text-generation\":{\"do_sample\":true,\"max_length\":50}}," \
    "\"vocab_size\":50257,"
#define BERT_REST                                                                       \
    "\"architectures\":[\"BertForMaskedLM\"],\"attention_probs_dropout_prob\":0.1,"     \
    "\"hidden_act\":\"gelu\",\"hidden_dropout_prob\":0.1,\"initializer_range\":0.02,"   \
    "\"layer_norm_eps\":1e-12,\"max_position_embeddings\":512,\"model_type\":\"bert\"," \
    "\"pad_token_id\":0,\"type_vocab_size\":2,\"vocab_size\":30522,"

static const struct {
    const char *name, *text;
    size_t layers, hidden, heads, kv_heads, head_dim, max_position;
    enum attn_rope_type rope;
    double theta;
    bool causal, bias;
} published[] = {
    {"Llama-2-7b",
     "{" LLAMA_REST "\"hidden_size\":4096,\"intermediate_size\":11008,\"num_attention_heads\":32,"
     "\"max_position_embeddings\":4096,\"num_hidden_layers\":32,\"num_key_value_heads\":32,"
     "\"_name_or_path\":\"x\",\"pretraining_tp\":1,\"rope_scaling\":null}",
     32, 4096, 32, 32, 128, 4096, ATTN_ROPE_DEFAULT, 10000, true, false},
    {"Llama-1, without key/value heads",
     "{" LLAMA_REST "\"hidden_size\":4096,\"intermediate_size\":11008,\"num_attention_heads\":32,"
     "\"max_sequence_length\":2048,\"num_hidden_layers\":32,\"pad_token_id\":-1}",
     32, 4096, 32, 32, 128, 0, ATTN_ROPE_DEFAULT, 10000, true, false},
    {"Llama-2-70b",
     "{" LLAMA_REST "\"hidden_size\":8192,\"intermediate_size\":28672,\"num_attention_heads\":64,"
     "\"max_position_embeddings\":4096,\"num_hidden_layers\":80,\"num_key_value_heads\":8,"
     "\"pretraining_tp\":1,\"rope_scaling\":null}",
     80, 8192, 64, 8, 128, 4096, ATTN_ROPE_DEFAULT, 10000, true, false},
    {"Llama-3.2-1B",
     "{" LLAMA_REST "\"attention_bias\":false,\"attention_dropout\":0.0,\"head_dim\":64,"
     "\"hidden_size\":2048,\"intermediate_size\":8192,\"max_position_embeddings\":131072,"
     "\"mlp_bias\":false,\"num_attention_heads\":32,\"num_hidden_layers\":16,"
     "\"num_key_value_heads\":8,\"pretraining_tp\":1,\"rope_scaling\":" LLAMA3_ROPE
     ",\"rope_theta\":500000.0}",
     16, 2048, 32, 8, 64, 131072, ATTN_ROPE_LLAMA3, 500000, true, false},
    {"the same in the newer form",
     "{" LLAMA_REST "\"attention_bias\":false,\"attention_dropout\":0.0,\"head_dim\":64,"
     "\"dtype\":\"bfloat16\",\"hidden_size\":2048,\"intermediate_size\":8192,"
     "\"max_position_embeddings\":131072,\"mlp_bias\":false,\"num_attention_heads\":32,"
     "\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"pad_token_id\":null,"
     "\"rope_parameters\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
     "\"original_max_position_embeddings\":8192,\"rope_theta\":500000.0,"
     "\"rope_type\":\"llama3\"}}",
     16, 2048, 32, 8, 64, 131072, ATTN_ROPE_LLAMA3, 500000, true, false},
    {"SmolLM2-135M",
     "{" LLAMA_REST "\"attention_bias\":false,\"attention_dropout\":0.0,\"hidden_size\":576,"
     "\"intermediate_size\":1536,\"is_llama_config\":true,\"max_position_embeddings\":8192,"
     "\"num_attention_heads\":9,\"num_hidden_layers\":30,\"num_key_value_heads\":3,"
     "\"pretraining_tp\":1,\"rope_interleaved\":false,\"rope_scaling\":null,"
     "\"rope_theta\":100000}",
     30, 576, 9, 3, 64, 8192, ATTN_ROPE_DEFAULT, 100000, true, false},
    {"head_dim null and biases",
     "{" LLAMA_REST "\"hidden_size\":64,\"head_dim\":null,\"num_attention_heads\":4,"
     "\"attention_bias\":true,\"num_hidden_layers\":2,\"sliding_window\":null,"
     "\"rope_scaling\":{\"type\":\"default\"}}",
     2, 64, 4, 4, 16, 0, ATTN_ROPE_DEFAULT, 10000, true, true},
    {"GPT-2", "{" GPT2_REST "\"n_embd\":768,\"n_head\":12,\"n_layer\":12,\"n_positions\":1024}", 12,
     768, 12, 12, 64, 1024, ATTN_ROPE_NONE, 0, true, true},
    {"GPT-2 XL",
     "{" GPT2_REST "\"n_embd\":1600,\"n_head\":25,\"n_layer\":48,\"n_positions\":1024,"
     "\"output_past\":true,\"n_inner\":null,\"scale_attn_weights\":true,"
     "\"scale_attn_by_inverse_layer_idx\":false,\"reorder_and_upcast_attn\":false}",
     48, 1600, 25, 25, 64, 1024, ATTN_ROPE_NONE, 0, true, true},
    {"DistilGPT-2",
     "{" GPT2_REST "\"_num_labels\":1,\"id2label\":{\"0\":\"LABEL_0\"},"
     "\"label2id\":{\"LABEL_0\":0},\"n_embd\":768,\"n_head\":12,\"n_layer\":6,"
     "\"n_positions\":1024}",
     6, 768, 12, 12, 64, 1024, ATTN_ROPE_NONE, 0, true, true},
    {"GPT-2 by its other names",
     "{" GPT2_REST "\"hidden_size\":768,\"num_attention_heads\":12,\"num_hidden_layers\":12,"
     "\"n_embd\":768,\"max_position_embeddings\":1024}",
     12, 768, 12, 12, 64, 1024, ATTN_ROPE_NONE, 0, true, true},
    {"BERT-base-uncased",
     "{" BERT_REST "\"gradient_checkpointing\":false,\"hidden_size\":768,"
     "\"intermediate_size\":3072,\"num_attention_heads\":12,\"num_hidden_layers\":12,"
     "\"position_embedding_type\":\"absolute\",\"transformers_version\":\"4.6.0.dev0\","
     "\"use_cache\":true,\"classifier_dropout\":null}",
     12, 768, 12, 12, 64, 512, ATTN_ROPE_NONE, 0, false, true},
    {"BERT-large, multilingual",
     "{" BERT_REST "\"directionality\":\"bidi\",\"hidden_size\":1024,\"intermediate_size\":4096,"
     "\"num_attention_heads\":16,\"num_hidden_layers\":24,\"pooler_fc_size\":768,"
     "\"pooler_num_attention_heads\":12,\"pooler_num_fc_layers\":3,\"pooler_size_per_head\":128,"
     "\"pooler_type\":\"first_token_transform\"}",
     24, 1024, 16, 16, 64, 512, ATTN_ROPE_NONE, 0, false, true},
    {"BERT as a decoder",
     "{" BERT_REST "\"is_decoder\":true,\"hidden_size\":768,\"num_attention_heads\":12,"
     "\"num_hidden_layers\":12}",
     12, 768, 12, 12, 64, 512, ATTN_ROPE_NONE, 0, true, true},
};

CASE(config, NULL, NULL, 60)

TEST_EACH(config_of_published_models_resolves, COUNT(published))
{
    struct attn_config config;
    read_good(&config, published[_i].text);
    struct attn_layer_spec layer, *spec = &layer;
    attn_config_layer_spec(spec, &config, published[_i].layers - 1);
    ck_assert_uint_eq(config.num_layers, published[_i].layers);
    ck_assert_uint_eq(config.max_position, published[_i].max_position);
    ck_assert_uint_eq(spec->hidden_size, published[_i].hidden);
    ck_assert_uint_eq(spec->key_size, published[_i].hidden);
    ck_assert_uint_eq(spec->value_size, published[_i].hidden);
    ck_assert_uint_eq(spec->num_heads, published[_i].heads);
    ck_assert_uint_eq(spec->num_kv_heads, published[_i].kv_heads);
    ck_assert_uint_eq(spec->head_dim, published[_i].head_dim);
    ck_assert_uint_eq(spec->value_head_dim, published[_i].head_dim);
    ck_assert_double_eq_tol(spec->scale, 1 / sqrt((double)published[_i].head_dim), 1e-15);
    ck_assert_int_eq(spec->is_causal, published[_i].causal);
    ck_assert_int_eq(spec->q_bias, published[_i].bias);
    ck_assert_int_eq(spec->o_bias, published[_i].bias);
    ck_assert_int_eq(spec->rope.type, published[_i].rope);
    ck_assert_double_eq(spec->rope.theta, published[_i].theta);
    ck_assert_uint_eq(spec->rope.dim, published[_i].theta > 0 ? published[_i].head_dim : 0);
}

TEST(config_reads_llama3_scaling)
{
    struct attn_config config;
    read_good(&config, published[3].text);
    struct attn_layer_spec spec;
    attn_config_layer_spec(&spec, &config, 15);
    ck_assert_double_eq(spec.rope.factor, 32);
    ck_assert_double_eq(spec.rope.low_freq_factor, 1);
    ck_assert_double_eq(spec.rope.high_freq_factor, 4);
    ck_assert_double_eq(spec.rope.original_max_position, 8192);
    ck_assert_double_eq(spec.rope.attention_factor, 1);
}

TEST(config_gpt2_without_scaling_has_scale_1)
{
    struct attn_config config;
    read_good(&config, "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4,\"n_layer\":1,"
                       "\"scale_attn_weights\":false}");
    struct attn_layer_spec spec;
    attn_config_layer_spec(&spec, &config, 0);
    ck_assert_double_eq(spec.scale, 1);
}

/* ---- Configurations that must be refused --------------------------------------------------- */

/* Configurations of two layers; the closing braces are missing. */
#define SIZES "\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2"
#define DECODER(type) "{\"model_type\":\"" type "\"," SIZES
#define STEP DECODER("step3p5") ",\"num_attention_groups\":2"
#define NESTED(type, subtype) \
    "{\"model_type\":\"" type "\",\"text_config\":{\"model_type\":\"" subtype "\"," SIZES

static const struct {
    const char *text;
    enum attn_status status;
    const char *param;
} refused[] = {
    {"", ATTN_MALFORMED, ""},
    {"{", ATTN_MALFORMED, ""},
    {"[]", ATTN_MALFORMED, ""},
    {"{}x", ATTN_MALFORMED, ""},
    {LLAMA ",\"hidden_size\":64}", ATTN_MALFORMED, ""},
    {"{}", ATTN_MALFORMED, "model_type"},
    {"{\"model_type\":7}", ATTN_MALFORMED, "model_type"},
    {"{\"model_type\":\"mamba\"}", ATTN_UNSUPPORTED, "model_type"},
    {"{\"model_type\":\"random\"}", ATTN_UNSUPPORTED, "model_type"},
    /* keys that are not understood, or whose values are not computed */
    {LLAMA ",\"attention_frobnication\":1}", ATTN_UNSUPPORTED, "attention_frobnication"},
    {LLAMA ",\"n_embd\":64}", ATTN_UNSUPPORTED, "n_embd"},
    /* text models inside one of an unknown type */
    {NESTED("llava", "mamba") "}}", ATTN_UNSUPPORTED, "text_config"},
    {NESTED("llava", "gemma3") "}}", ATTN_UNSUPPORTED, "text_config"},
    {NESTED("paligemma", "gemma2") "}}", ATTN_UNSUPPORTED, "text_config"},
    {NESTED("llava", "llama") ",\"n_embd\":64}}", ATTN_UNSUPPORTED, "n_embd"},
    {"{\"model_type\":\"llava\",\"text_config\":{" SIZES "}}", ATTN_UNSUPPORTED, "model_type"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"attn_factor\":2}}",
     ATTN_UNSUPPORTED, "attn_factor"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"attn_factor\":2,"
           "\"attention_factor\":1},\"max_position_embeddings\":64}",
     ATTN_MALFORMED, "attn_factor"},
    {NESTED("llama4", "llama4_text") ",\"attn_temperature_tuning\":5}}", ATTN_OUT_OF_RANGE,
     "attn_temperature_tuning"},
    {LLAMA ",\"quantization_config\":4}", ATTN_MALFORMED, "quantization_config"},
    {"{\"model_type\":\"qwen\",\"hidden_size\":256,\"num_attention_heads\":2,"
     "\"num_hidden_layers\":1,\"seq_length\":null}",
     ATTN_MALFORMED, "seq_length"},
    {"{\"model_type\":\"big_bird\",\"hidden_size\":64,\"num_attention_heads\":2,"
     "\"num_hidden_layers\":1,\"block_size\":null}",
     ATTN_MALFORMED, "block_size"},
    {"{\"model_type\":\"ministral3\",\"hidden_size\":64,\"num_attention_heads\":8,"
     "\"num_hidden_layers\":1,\"max_position_embeddings\":null,\"rope_parameters\":{"
     "\"rope_type\":\"default\",\"rope_theta\":10000,\"llama_4_scaling_beta\":0.1}}",
     ATTN_MALFORMED, "max_position_embeddings"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
           "\"transform_config\":{\"config_groups\":{}}}}",
     ATTN_UNSUPPORTED, "quantization_config"},
    {LLAMA ",\"architectures\":[\"LlamaEncoderModel\"]}", ATTN_UNSUPPORTED, "architectures"},
    {LLAMA ",\"architectures\":[\"ColLlama\"]}", ATTN_UNSUPPORTED, "architectures"},
    {"{\"model_type\":\"wrapper\",\"llm_config\":" LLAMA
     ",\"architectures\":[\"LlamaBidirectionalModel\"]}}",
     ATTN_UNSUPPORTED, "architectures"},
    {"{\"model_type\":\"wrapper\",\"is_causal\":false,\"llm_config\":" LLAMA "}}", ATTN_UNSUPPORTED,
     "is_causal"},
    {"{\"model_type\":\"chatglm\",\"hidden_size\":64,\"num_attention_heads\":2,"
     "\"num_layers\":1,\"padded_vocab_size\":65024,\"rope_ratio\":16}",
     ATTN_UNSUPPORTED, "rope_ratio"},
    {LLAMA ",\"quantization_config\":{\"quant_method\":\"bitnet\"}}", ATTN_UNSUPPORTED,
     "quantization_config"},
    {LLAMA ",\"sliding_window\":4096}", ATTN_UNSUPPORTED, "sliding_window"},
    {LLAMA ",\"partial_rotary_factor\":0.5}", ATTN_UNSUPPORTED, "partial_rotary_factor"},
    {LLAMA ",\"rope_interleaved\":true}", ATTN_UNSUPPORTED, "rope_interleaved"},
    {LLAMA ",\"pruned_heads\":{\"0\":[1]}}", ATTN_UNSUPPORTED, "pruned_heads"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"mrope\",\"factor\":2.0}}", ATTN_UNSUPPORTED, "type"},
    {LLAMA ",\"rope_scaling\":{\"factor\":2.0,\"rope_type\":\"ntk\"}}", ATTN_UNSUPPORTED,
     "rope_type"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\",\"msscale\":1}}", ATTN_UNSUPPORTED,
     "msscale"},
    {GPT2 ",\"scale_attn_by_inverse_layer_idx\":1}", ATTN_MALFORMED,
     "scale_attn_by_inverse_layer_idx"},
    {GPT2 ",\"add_cross_attention\":true}", ATTN_UNSUPPORTED, "add_cross_attention"},
    {GPT2 ",\"rope_theta\":10000}", ATTN_UNSUPPORTED, "rope_theta"},
    {BERT ",\"position_embedding_type\":\"rotary\"}", ATTN_UNSUPPORTED, "position_embedding_type"},
    {BERT ",\"position_embedding_type\":\"relative_keys\"}", ATTN_UNSUPPORTED,
     "position_embedding_type"},
    {BERT ",\"is_encoder_decoder\":true}", ATTN_UNSUPPORTED, "is_encoder_decoder"},
    {LLAMA ",\"head_dim\":15}", ATTN_UNSUPPORTED, "head_dim"},
    /* nested settings: own keys, own model_type, and what beside them changes the mathematics */
    {NESTED("gemma3", "gemma3_text") ",\"frobnication\":1}}", ATTN_UNSUPPORTED, "frobnication"},
    {NESTED("gemma3", "llama") "}}", ATTN_UNSUPPORTED, "text_config"},
    {NESTED("mistral3", "mixtral") "}}", ATTN_UNSUPPORTED, "text_config"},
    {NESTED("gemma3", "gemma3_text") "},\"quantization_config\":4}", ATTN_MALFORMED,
     "quantization_config"},
    {NESTED("gemma3", "gemma3_text") ",\"rope_scaling\":{\"rope_type\":\"linear\"}}}",
     ATTN_MALFORMED, "rope_scaling"},
    {NESTED("gemma4", "gemma4_text") ",\"use_bidirectional_attention\":\"all\"}}", ATTN_UNSUPPORTED,
     "use_bidirectional_attention"},
    {NESTED("gemma4", "gemma4_text") ",\"num_kv_shared_layers\":3}}", ATTN_OUT_OF_RANGE,
     "num_kv_shared_layers"},
    {NESTED("gemma4", "gemma4_text") ",\"num_kv_shared_layers\":1}}", ATTN_MALFORMED,
     "num_kv_shared_layers"},
    {NESTED("gemma4", "gemma4_text") ",\"attention_k_eq_v\":true,"
                                     "\"num_global_key_value_heads\":3}}",
     ATTN_MALFORMED, "num_global_key_value_heads"},
    {NESTED("gemma4", "gemma4_text") ",\"per_layer_config\":{\"0\":{\"head_dim\":8}}}}",
     ATTN_UNSUPPORTED, "per_layer_config"},
    {NESTED("gemma4", "gemma4_text") ",\"per_layer_config\":{\"1\":{\"sliding_window\":8}}}}",
     ATTN_UNSUPPORTED, "per_layer_config"},
    {NESTED("llama4", "llama4_text") ",\"num_key_value_heads\":4,\"no_rope_layers\":[1,0,1]}}",
     ATTN_MALFORMED, "no_rope_layers"},
    {NESTED("llama4", "llama4_text") ",\"no_rope_layers\":[1,2]}}", ATTN_MALFORMED,
     "no_rope_layers"},
    {NESTED("llama4", "llama4_text") ",\"layer_types\":[\"sliding_attention\","
                                     "\"full_attention\"]}}",
     ATTN_UNSUPPORTED, "layer_types"},
    {NESTED("qwen3_5", "qwen3_5_text") ",\"attn_output_gate\":false}}", ATTN_UNSUPPORTED,
     "attn_output_gate"},
    {DECODER("minimax_m2") ",\"attn_type_list\":[1,0]}", ATTN_UNSUPPORTED, "attn_type_list"},
    {DECODER("minimax_m2") ",\"qk_norm_type\":\"per_head\"}", ATTN_UNSUPPORTED, "qk_norm_type"},
    {DECODER("minimax_m2") ",\"num_key_value_heads\":4,\"rotary_dim\":8,\"head_dim\":16,\"partial_"
                           "rotary_factor\":0.75}",
     ATTN_MALFORMED, "rotary_dim"},
    {DECODER("laguna") ",\"gating\":\"per-row\"}", ATTN_UNSUPPORTED, "gating"},
    {DECODER("laguna") ",\"gating\":false}", ATTN_UNSUPPORTED, "gating"},
    {DECODER("laguna") ",\"num_key_value_heads\":2,\"num_attention_heads_per_layer\":[4,3]}",
     ATTN_MALFORMED, "num_attention_heads_per_layer"},
    {DECODER("laguna") ",\"num_key_value_heads\":2,\"num_attention_heads_per_layer\":[4]}",
     ATTN_MALFORMED, "num_attention_heads_per_layer"},
    {DECODER("laguna") ",\"num_attention_heads_per_layer\":[4,1025]}", ATTN_OUT_OF_RANGE,
     "num_attention_heads_per_layer"},
    {DECODER("laguna") ",\"num_attention_heads_per_layer\":[4,\"8\"]}", ATTN_MALFORMED,
     "num_attention_heads_per_layer"},
    {DECODER("granite_swa") ",\"layer_rope_theta\":[0]}", ATTN_MALFORMED, "layer_rope_theta"},
    {DECODER("granite_swa") ",\"layer_rope_theta\":[0,-1]}", ATTN_OUT_OF_RANGE, "layer_rope_theta"},
    {DECODER("granite_swa") ",\"layer_rope_theta\":1e4}", ATTN_MALFORMED, "layer_rope_theta"},
    {DECODER("cohere2_moe") ",\"mlp_layer_types\":[\"dense\",\"moe\"]}", ATTN_UNSUPPORTED,
     "mlp_layer_types"},
    {DECODER("cohere2_moe") ",\"mlp_layer_types\":[\"dense\"]}", ATTN_MALFORMED, "mlp_layer_types"},
    {DECODER("olmo") ",\"clip_qkv\":0}", ATTN_OUT_OF_RANGE, "clip_qkv"},
    {DECODER("afmoe") ",\"attention_bias\":true}", ATTN_UNSUPPORTED, "attention_bias"},
    {DECODER("longcat_flash") ",\"num_layers\":513}", ATTN_OUT_OF_RANGE, "num_layers"},
    {DECODER("longcat_flash") "}", ATTN_MALFORMED, "num_layers"},
    {DECODER("phimoe") ",\"num_key_value_heads\":4,\"max_position_embeddings\":64,\"rope_scaling\":"
                       "{\"type\":\"longrope\","
                       "\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,1],"
                       "\"original_max_position_embeddings\":8,\"short_mscale\":1.5}}",
     ATTN_MALFORMED, "rope_scaling"},
    {DECODER("exaone4") ",\"sliding_window_pattern\":\"LGL\"}", ATTN_UNSUPPORTED,
     "sliding_window_pattern"},
    {DECODER("qwen2_moe") ",\"num_key_value_heads\":2,\"use_sliding_window\":true}",
     ATTN_UNSUPPORTED, "use_sliding_window"},
    {DECODER("qwen2") ",\"num_key_value_heads\":2,\"use_sliding_window\":true,\"is_causal\":false}",
     ATTN_UNSUPPORTED, "is_causal"},
    {DECODER("qwen3_moe") ",\"qkv_bias\":true}", ATTN_UNSUPPORTED, "qkv_bias"},
    {DECODER("roberta") ",\"position_embedding_type\":\"alibi\"}", ATTN_UNSUPPORTED,
     "position_embedding_type"},
    {DECODER("qwen3_moe") ",\"use_sliding_window\":true,\"sliding_window\":8,\"layer_types\":"
                          "[\"full_attention\",\"sliding_attention\"]}",
     ATTN_UNSUPPORTED, "layer_types"},
    {DECODER("gpt_oss") ",\"num_key_value_heads\":2,\"rope_scaling\":null}", ATTN_UNSUPPORTED,
     "rope_scaling"},
    {DECODER("gpt_oss") ",\"num_key_value_heads\":2,\"rope_parameters\":null}", ATTN_UNSUPPORTED,
     "rope_parameters"},
    {STEP ",\"yarn_only_types\":[\"sliding_attention\"]}", ATTN_UNSUPPORTED, "yarn_only_types"},
    {STEP ",\"partial_rotary_factors\":[0.5,1]}", ATTN_UNSUPPORTED, "partial_rotary_factors"},
    {STEP ",\"partial_rotary_factors\":[0.5]}", ATTN_MALFORMED, "partial_rotary_factors"},
    {STEP ",\"num_nextn_predict_layers\":2,\"rope_theta\":[1e4,1e4,1e4]}", ATTN_MALFORMED,
     "rope_theta"},
    {STEP ",\"attention_other_setting\":{\"head_dim\":64}}", ATTN_UNSUPPORTED,
     "attention_other_setting.head_dim"},
    {STEP ",\"attention_other_setting\":{\"num_attention_heads\":7}}", ATTN_MALFORMED,
     "attention_other_setting.num_attention_groups"},
    {STEP ",\"attention_other_setting\":{\"window\":4}}", ATTN_UNSUPPORTED, "window"},
    {STEP ",\"use_head_wise_attn_gate\":false}", ATTN_UNSUPPORTED, "use_head_wise_attn_gate"},
    {DECODER("longformer") ",\"attention_window\":[4]}", ATTN_MALFORMED, "attention_window"},
    {DECODER("longformer") ",\"attention_window\":[4,0]}", ATTN_OUT_OF_RANGE, "attention_window"},
    {DECODER("longformer") ",\"attention_window\":[4,7]}", ATTN_OUT_OF_RANGE, "attention_window"},
    {DECODER("longformer") ",\"attention_window\":7}", ATTN_OUT_OF_RANGE, "attention_window"},
    {DECODER("longformer") ",\"attention_window\":\"4\"}", ATTN_MALFORMED, "attention_window"},
    {DECODER("bert") ",\"position_embedding_type\":\"relative_key\"}", ATTN_OUT_OF_RANGE,
     "max_position_embeddings"},
    {DECODER("bert") ",\"position_embedding_type\":\"relative_key\",\"max_position_embeddings\":"
                     "4097}",
     ATTN_OUT_OF_RANGE, "max_position_embeddings"},
    {DECODER("doge") ",\"num_key_value_heads\":2,\"sliding_window\":8}", ATTN_UNSUPPORTED,
     "sliding_window"},
    {DECODER("doge") ",\"num_key_value_heads\":2,\"keep_window_size\":0}", ATTN_OUT_OF_RANGE,
     "keep_window_size"},
    {DECODER("hunyuan_v1_dense") ",\"use_cla\":true}", ATTN_UNSUPPORTED, "use_cla"},
    {DECODER("cohere2") ",\"position_embedding_type\":\"alibi\"}", ATTN_UNSUPPORTED,
     "position_embedding_type"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0,\"alpha\":1000.0}}",
     ATTN_UNSUPPORTED, "alpha"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[2,3,3]}}", ATTN_UNSUPPORTED,
     "mrope_section"},
    /* wrong types */
    {LLAMA ",\"head_dim\":\"16\"}", ATTN_MALFORMED, "head_dim"},
    {LLAMA ",\"head_dim\":16.0}", ATTN_MALFORMED, "head_dim"},
    {LLAMA ",\"attention_bias\":1}", ATTN_MALFORMED, "attention_bias"},
    {LLAMA ",\"rope_theta\":\"1e4\"}", ATTN_MALFORMED, "rope_theta"},
    {LLAMA ",\"rope_scaling\":2.0}", ATTN_MALFORMED, "rope_scaling"},
    {LLAMA ",\"rope_scaling\":{}}", ATTN_MALFORMED, "rope_scaling"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":3}}", ATTN_MALFORMED, "rope_type"},
    /* values out of bounds */
    {LLAMA ",\"head_dim\":0}", ATTN_OUT_OF_RANGE, "head_dim"},
    {LLAMA ",\"head_dim\":-16}", ATTN_OUT_OF_RANGE, "head_dim"},
    {LLAMA ",\"head_dim\":1025}", ATTN_OUT_OF_RANGE, "head_dim"},
    {"{\"model_type\":\"bert\",\"hidden_size\":2050,\"num_attention_heads\":2,"
     "\"num_hidden_layers\":2}",
     ATTN_OUT_OF_RANGE, "head_dim"},
    {LLAMA ",\"num_key_value_heads\":0}", ATTN_OUT_OF_RANGE, "num_key_value_heads"},
    {LLAMA ",\"max_position_embeddings\":9223372036854775807}", ATTN_OUT_OF_RANGE,
     "max_position_embeddings"},
    {LLAMA ",\"rope_theta\":0}", ATTN_OUT_OF_RANGE, "rope_theta"},
    {LLAMA ",\"rope_theta\":1e300}", ATTN_OUT_OF_RANGE, "rope_theta"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":5,"
           "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}",
     ATTN_OUT_OF_RANGE, "low_freq_factor"},
    {TORCH ",\"num_hidden_layers\":1025}", ATTN_OUT_OF_RANGE, "num_hidden_layers"},
    {TORCH ",\"kdim\":65537}", ATTN_OUT_OF_RANGE, "kdim"},
    /* missing, contradictory, not fitting */
    {"{\"model_type\":\"llama\",\"num_attention_heads\":4,\"num_hidden_layers\":2}", ATTN_MALFORMED,
     "hidden_size"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4}", ATTN_MALFORMED, "n_layer"},
    {"{\"model_type\":\"bert\",\"hidden_size\":64,\"num_hidden_layers\":2}", ATTN_MALFORMED,
     "num_attention_heads"},
    {GPT2 ",\"hidden_size\":128}", ATTN_MALFORMED, "hidden_size"},
    {LLAMA ",\"rope_theta\":10000,\"rope_parameters\":{\"rope_type\":\"default\","
           "\"rope_theta\":500000}}",
     ATTN_MALFORMED, "rope_theta"},
    {LLAMA ",\"rope_scaling\":" LLAMA3_ROPE ",\"rope_parameters\":{\"rope_type\":\"default\"}}",
     ATTN_MALFORMED, "rope_type"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"default\",\"rope_type\":\"llama3\"}}", ATTN_MALFORMED,
     "type"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", ATTN_MALFORMED,
     "rope_scaling"},
    {LLAMA ",\"num_key_value_heads\":3}", ATTN_MALFORMED, "num_key_value_heads"},
    {"{\"model_type\":\"bert\",\"hidden_size\":64,\"num_attention_heads\":5,"
     "\"num_hidden_layers\":2}",
     ATTN_MALFORMED, "num_attention_heads"},
};

TEST_EACH(config_refuses_by_name, COUNT(refused))
{
    struct attn_error error = {0};
    struct attn_config config;
    enum attn_status status = read_config(&config, refused[_i].text, &error);
    ck_assert_msg(status == refused[_i].status, "%s: got %s (%s)", refused[_i].text,
                  attn_status_name(status), error.message);
    ck_assert_msg(strcmp(error.param, refused[_i].param) == 0, "%s: param is '%s' (%s)",
                  refused[_i].text, error.param, error.message);
    ck_assert_msg(strstr(error.message, error.param) != NULL, "%s", error.message);
}

/* The model of images inside another is read by a row of its own, if there is one. */
TEST(config_of_a_model_of_images_inside_is_that_of_its_own_type)
{
#define IMAGES(type, own)                                                                      \
    "{\"model_type\":\"" type "\",\"architectures\":[\"Gemma3ForConditionalGeneration\"],"     \
    "\"is_causal\":false,\"text_config\":{\"model_type\":\"gemma3_text\"},\"vision_config\":{" \
    "\"num_attention_heads\":4,\"hidden_size\":32,\"num_hidden_layers\":3" own "}}"
    static const char *const texts[] = {
        IMAGES("gemma3", ",\"model_type\":\"siglip_vision_model\""),
        IMAGES("paligemma", ",\"model_type\":\"siglip_vision_model\""),
        IMAGES("idefics3", ",\"model_type\":\"idefics3_vision\""),
        IMAGES("qwen2_vl", ""),
        IMAGES("llava", ",\"model_type\":\"pixtral\""),
        IMAGES("llava", ",\"model_type\":\"clip\""),
    };
    const struct attn_config_options options = {.stack = "vision"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct attn_error error = {0};
        struct attn_config config;
        const enum attn_status status =
            attn_config_read(&config, &options, texts[i], strlen(texts[i]), &error);
        ck_assert_msg(status == (i < 3 ? ATTN_OK : ATTN_UNSUPPORTED), "%s: %s", texts[i],
                      error.message);
        if (i >= 3) {
            ck_assert_str_eq(error.param, "stack");
            continue;
        }
        struct attn_layer_spec spec;
        char prefix[ATTN_PREFIX_MAX];
        attn_config_layer_spec(&spec, &config, 2);
        ck_assert_uint_eq(config.num_layers, 3);
        ck_assert_uint_eq(spec.num_heads, 4);
        ck_assert(!spec.is_causal && attn_config_prefix(prefix, &config, 1));
        ck_assert_str_eq(prefix, "vision_tower.vision_model.");
    }
}

/* MiniCPM-V: its version says which class the text model has, which the operator writes down. */
TEST(config_of_minicpm_v_says_where_its_keys_go)
{
    struct attn_error error = {0};
    struct attn_config config;
    char prefix[ATTN_PREFIX_MAX] = "";
    ck_assert_int_eq(read_config(&config, "{\"model_type\":\"minicpmv\",\"version\":2.6}", &error),
                     ATTN_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "put its keys into an llm_config"));
    ck_assert_int_eq(read_config(&config,
                                 "{\"model_type\":\"minicpmv\",\"llm_config\":{\"model_type\":"
                                 "\"qwen2\",\"hidden_size\":64,\"num_attention_heads\":4,"
                                 "\"num_key_value_heads\":2,\"num_hidden_layers\":2}}",
                                 &error),
                     ATTN_OK);
    for (size_t i = 0; strcmp(prefix, "llm.model.") != 0; i++)
        ck_assert(attn_config_prefix(prefix, &config, i));
}

TEST(config_refuses_more_than_16_mebibytes)
{
    struct attn_error error = {0};
    struct attn_config config;
    char *text = malloc(ATTN_CHECKPOINT_MAX_CONFIG + 2);
    ck_assert_ptr_nonnull(text);
    memset(text, ' ', ATTN_CHECKPOINT_MAX_CONFIG + 1);
    text[ATTN_CHECKPOINT_MAX_CONFIG + 1] = '\0';
    memcpy(text, LLAMA "}", strlen(LLAMA "}"));
    ck_assert_int_eq(read_config(&config, text, &error), ATTN_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "16777217"));
    text[ATTN_CHECKPOINT_MAX_CONFIG] = '\0';
    read_good(&config, text);
    free(text);
}

TEST(config_reads_constants_of_python)
{
    struct attn_config config;
    struct attn_error error;
    read_good(&config, LLAMA ",\"task_specific_params\":[NaN,-Infinity,Infinity,\"NaN\\\"\"],"
                             "\"initializer_range\":NaN}");
    ck_assert_int_eq(read_config(&config, LLAMA ",\"rope_theta\":Infinity}", &error),
                     ATTN_MALFORMED);
    ck_assert_str_eq(error.param, "rope_theta");
    ck_assert_int_eq(read_config(&config, LLAMA ",\"vocab_size\":NaNa}", &error), ATTN_MALFORMED);
    ck_assert_str_eq(error.param, "");
    ck_assert_int_eq(read_config(&config, LLAMA ",\"vocab_size\":NaN", &error), ATTN_MALFORMED);
}

TEST(config_takes_the_stack_that_its_class_names)
{
    static const struct {
        const char *text, *stack;
    } named[] = {
#define T5 "{\"model_type\":\"t5\",\"d_model\":64,\"num_heads\":4,\"num_layers\":2,\"d_kv\":16"
        {T5 "}", "decoder"},
        {T5 ",\"architectures\":[\"T5ForConditionalGeneration\"]}", "decoder"},
        {T5 ",\"architectures\":[\"T5EncoderModel\"]}", "encoder"},
        {"{\"model_type\":\"clip\",\"architectures\":[\"CLIPVisionModelWithProjection\"]}",
         "vision"},
        {"{\"model_type\":\"clip\",\"architectures\":[\"CLIPModel\"]}", "text"},
    };
    for (size_t i = 0; i < COUNT(named); i++) {
        struct attn_config config;
        read_good(&config, named[i].text);
        ck_assert_str_eq(config.family->stack, named[i].stack);
    }
}

TEST(config_of_a_part_is_read_as_if_it_were_alone)
{
    struct attn_config config;
    struct attn_layer_spec spec;
    char prefix[ATTN_PREFIX_MAX];
#define PART "{\"model_type\":\"llama\",\"num_key_value_heads\":2"
    static const char *const texts[] = {
        "{\"model_type\":\"x\",\"text_config\":" PART "}}",
        "{\"model_type\":\"x\",\"llm_config\":" PART "}}",
        "{\"model_type\":\"x\",\"language_config\":" PART "}}",
        "{\"model_type\":\"x\",\"language_model\":" PART "},\"hidden_size\":64}",
        "{\"model_type\":\"x\",\"thinker_config\":{\"text_config\":" PART "}}}",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        read_good(&config, texts[i]);
        attn_config_layer_spec(&spec, &config, 31);
        ck_assert_uint_eq(config.num_layers, 32); /* of the class, as the other sizes */
        ck_assert_uint_eq(spec.hidden_size, 4096);
        ck_assert_uint_eq(spec.num_kv_heads, 2);
        ck_assert(attn_config_prefix(prefix, &config, 0));
        ck_assert_str_eq(prefix, "model.language_model.");
    }
    read_good(&config, LLAMA "}");
    ck_assert(attn_config_prefix(prefix, &config, 0));
    ck_assert_str_eq(prefix, "model.");
    ck_assert(!attn_config_prefix(prefix, &config, 2));
}

TEST(config_passes_over_the_keys_that_the_caller_names)
{
    static const struct {
        const char *keys, *text, *param; /* param NULL: read */
    } cases[] = {
        {"frobs", LLAMA ",\"frobs\":1}", NULL},
        {"other frobs", LLAMA ",\"frobs\":1}", NULL},
        {"frob", LLAMA ",\"frobs\":1}", "frobs"},
        {"frobs", LLAMA ",\"rope_scaling\":{\"type\":\"default\",\"frobs\":1}}", NULL},
        {"frobs", "{\"model_type\":\"mpt\",\"attn_config\":{\"frobs\":1}," SIZES "}", NULL},
        {"n_ctx", LLAMA ",\"n_ctx\":1}", NULL}, /* gpt2 has it and passes it over */
        {"sliding_window", LLAMA "}", "ignore_keys"},
        {"x rope_theta", LLAMA "}", "ignore_keys"},
        {"attn_logit_softcapping", LLAMA ",\"attn_logit_softcapping\":50}", "ignore_keys"},
        {"alibi_bias_max", LLAMA ",\"alibi_bias_max\":9}", "ignore_keys"}, /* inside attn_config */
        {"llama_4_scaling_beta", LLAMA "}", "ignore_keys"},
        {"factor", LLAMA "}", "ignore_keys"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_config config;
        struct attn_error error = {0};
        const struct attn_config_options options = {.ignore_keys = cases[i].keys};
        const enum attn_status status =
            attn_config_read(&config, &options, cases[i].text, strlen(cases[i].text), &error);
        ck_assert_msg((status == ATTN_OK) == (cases[i].param == NULL), "%s: %s", cases[i].text,
                      error.message);
        if (cases[i].param != NULL)
            ck_assert_str_eq(error.param, cases[i].param);
    }
}

TEST(config_multiplies_yarns_gain)
{
    struct attn_config config;
    read_good(&config, LLAMA ",\"max_position_embeddings\":64,\"rope_scaling\":{\"factor\":4,"
                             "\"rope_type\":\"yarn\",\"attn_factor\":0.8782488562869419}}");
    ck_assert_double_eq_tol(config.specs[ATTN_LAYER_FULL].rope.attention_factor, 1, 1e-12);
}

TEST(config_reads_full_layers_by_index)
{
    struct attn_config config;
    struct attn_layer_spec spec;
    read_good(&config, "{\"model_type\":\"gemma4_text\"," SIZES ",\"num_key_value_heads\":4,"
                       "\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
                       "\"attention_k_eq_v\":true,\"per_layer_config\":{\"1\":{\"head_dim\":24,"
                       "\"num_key_value_heads\":2}}}");
    attn_config_layer_spec(&spec, &config, 1);
    ck_assert_uint_eq(spec.head_dim, 24);
    ck_assert_uint_eq(spec.num_kv_heads, 2);
    attn_config_layer_spec(&spec, &config, 0);
    ck_assert_uint_eq(spec.head_dim, 256);
}

TEST(config_slides_where_its_family_says)
{
#define SLIDING ",\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":8"
    static const struct {
        const char *text;
        bool slides[2];
    } windows[] = {
        {"{\"model_type\":\"qwen3_moe\"," SIZES SLIDING "}", {true, true}},
        {"{\"model_type\":\"qwen3_moe\"," SIZES SLIDING
         ",\"layer_types\":[\"full_attention\",\"full_attention\"]}",
         {true, true}},
        {"{\"model_type\":\"qwen3_moe\"," SIZES ",\"num_key_value_heads\":2}", {false, false}},
        {"{\"model_type\":\"qwen2_moe\"," SIZES SLIDING
         ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
         {false, true}},
        {"{\"model_type\":\"smollm3\"," SIZES SLIDING ",\"no_rope_layers\":[0,1]}", {true, false}},
        {"{\"model_type\":\"smollm3\"," SIZES SLIDING ",\"no_rope_layer_interval\":2}",
         {false, true}},
    };
    for (size_t i = 0; i < COUNT(windows); i++)
        for (size_t layer = 0; layer < 2; layer++) {
            struct attn_config config;
            struct attn_layer_spec spec;
            read_good(&config, windows[i].text);
            attn_config_layer_spec(&spec, &config, layer);
            ck_assert_uint_eq(spec.sliding_window, windows[i].slides[layer] ? 8 : 0);
        }
}

CASES_OF(config)
