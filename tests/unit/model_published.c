/* model_published.c: configurations with all the keys that the published files of each family have;
 * none may be refused for a key that does not touch attention. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/config.h"
#include "layers/layer.h"
#include "model_cases.h"

#define REST                                                                               \
    ",\"bos_token_id\":1,\"eos_token_id\":[2,3],\"initializer_range\":0.02,"               \
    "\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.40.1\",\"use_cache\":true," \
    "\"vocab_size\":32000,\"_name_or_path\":\"x\"}"
#define LISTS "\"long_factor\":[1,2,3,4,5,6,7,8],\"short_factor\":[1,1,1,1,1,1,1,1]"
#define SUMMARY                                                                   \
    "\"summary_activation\":null,\"summary_first_dropout\":0.1,\"summary_type\":" \
    "\"cls_index\",\"summary_proj_to_labels\":true,\"summary_use_proj\":true,"    \
    "\"task_specific_params\":{\"text-generation\":{\"do_sample\":true,\"max_length\":50}}"

#define DEEPSEEK_V3                                                                               \
    "\"architectures\":[\"DeepseekV3ForCausalLM\"],\"attention_bias\":false,"                     \
    "\"attention_dropout\":0.0,\"auto_map\":{},\"bos_token_id\":0,\"eos_token_id\":1,"            \
    "\"ep_size\":1,\"first_k_dense_replace\":3,\"hidden_act\":\"silu\",\"hidden_size\":7168,"     \
    "\"initializer_range\":0.02,\"intermediate_size\":18432,\"kv_lora_rank\":512,"                \
    "\"max_position_embeddings\":163840,\"model_type\":\"deepseek_v3\","                          \
    "\"moe_intermediate_size\":2048,\"moe_layer_freq\":1,\"n_group\":8,\"n_routed_experts\":256," \
    "\"n_shared_experts\":1,\"norm_topk_prob\":true,\"num_attention_heads\":128,"                 \
    "\"num_experts_per_tok\":8,\"num_hidden_layers\":61,\"num_key_value_heads\":128,"             \
    "\"num_nextn_predict_layers\":1,\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,"               \
    "\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"beta_fast\":32,"          \
    "\"beta_slow\":1,\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":1.0,"                        \
    "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":10000,"          \
    "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"tie_word_embeddings\":false,"   \
    "\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"torch_dtype\":\"bfloat16\","                 \
    "\"transformers_version\":\"4.33.1\",\"use_cache\":true,\"v_head_dim\":128,"                  \
    "\"vocab_size\":129280"

static const struct {
    const char *name, *text;
    size_t layers, kv_heads, head_dim;
} published[] = {
    {"Mistral-7B-v0.1",
     "{\"architectures\":[\"MistralForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":4096,"
     "\"intermediate_size\":14336,\"max_position_embeddings\":32768,\"model_type\":\"mistral\","
     "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,"
     "\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"sliding_window\":4096,"
     "\"tie_word_embeddings\":false" REST,
     32, 8, 128},
    {"Qwen2.5-7B",
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,\"hidden_act\":\"silu\","
     "\"hidden_size\":3584,\"intermediate_size\":18944,\"max_position_embeddings\":131072,"
     "\"max_window_layers\":28,\"model_type\":\"qwen2\",\"num_attention_heads\":28,"
     "\"num_hidden_layers\":28,\"num_key_value_heads\":4,\"rms_norm_eps\":1e-06,"
     "\"rope_theta\":1000000.0,\"sliding_window\":131072,\"tie_word_embeddings\":false,"
     "\"use_mrope\":false,\"use_sliding_window\":false" REST,
     28, 4, 128},
    {"Qwen3-8B",
     "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,"
     "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":12288,"
     "\"max_position_embeddings\":40960,\"max_window_layers\":36,\"model_type\":\"qwen3\","
     "\"num_attention_heads\":32,\"num_hidden_layers\":36,\"num_key_value_heads\":8,"
     "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000,"
     "\"sliding_window\":null,\"tie_word_embeddings\":false,\"use_sliding_window\":false" REST,
     36, 8, 128},
    {"gemma-2-9b",
     "{\"architectures\":[\"Gemma2ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0."
     "0,"
     "\"attn_logit_softcapping\":50.0,\"cache_implementation\":\"hybrid\","
     "\"final_logit_softcapping\":30.0,\"head_dim\":256,\"hidden_act\":\"gelu_pytorch_tanh\","
     "\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":3584,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":8192,\"model_type\":\"gemma2\",\"num_attention_heads\":16,"
     "\"num_hidden_layers\":42,\"num_key_value_heads\":8,\"pad_token_id\":0,"
     "\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,"
     "\"sliding_window\":4096,\"sliding_window_size\":4096" REST,
     42, 8, 256},
    {"gpt-oss-20b",
     "{\"architectures\":[\"GptOssForCausalLM\"],\"attention_bias\":true,\"attention_dropout\":0.0,"
     "\"experts_per_token\":4,\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":2880,"
     "\"initial_context_length\":4096,\"intermediate_size\":2880,"
     "\"max_position_embeddings\":131072,\"model_type\":\"gpt_oss\",\"num_attention_heads\":64,"
     "\"num_experts_per_tok\":4,\"num_hidden_layers\":24,\"num_key_value_heads\":8,"
     "\"num_local_experts\":32,\"output_router_logits\":false,\"quantization_config\":"
     "{\"modules_to_not_convert\":[\"model.layers.*.self_attn\"],\"quant_method\":\"mxfp4\"},"
     "\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"beta_fast\":32.0,\"beta_slow\":1.0,"
     "\"factor\":32.0,\"original_max_position_embeddings\":4096,\"rope_type\":\"yarn\","
     "\"truncate\":false},\"rope_theta\":150000,\"router_aux_loss_coef\":0.9,"
     "\"sliding_window\":128,\"swiglu_limit\":7.0,\"tie_word_embeddings\":false" REST,
     24, 8, 64},
    {"phi-2",
     "{\"architectures\":[\"PhiForCausalLM\"],\"attention_dropout\":0.0,\"embd_pdrop\":0.0,"
     "\"hidden_act\":\"gelu_new\",\"hidden_size\":2560,\"intermediate_size\":10240,"
     "\"layer_norm_eps\":1e-05,\"max_position_embeddings\":2048,\"model_type\":\"phi\","
     "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":32,"
     "\"partial_rotary_factor\":0.4,\"qk_layernorm\":false,\"resid_pdrop\":0.1,"
     "\"rope_scaling\":null,\"rope_theta\":10000.0,\"tie_word_embeddings\":false" REST,
     32, 32, 80},
    {"Phi-3-mini-128k, its lists cut to heads of 16",
     "{\"architectures\":[\"Phi3ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,"
     "\"auto_map\":{\"AutoConfig\":\"configuration_phi3.Phi3Config\"},\"embd_pdrop\":0.0,"
     "\"hidden_act\":\"silu\",\"hidden_size\":512,\"intermediate_size\":8192,"
     "\"max_position_embeddings\":131072,\"model_type\":\"phi3\",\"num_attention_heads\":32,"
     "\"num_hidden_layers\":32,\"num_key_value_heads\":32,"
     "\"original_max_position_embeddings\":4096,\"pad_token_id\":32000,\"resid_pdrop\":0.0,"
     "\"rms_norm_eps\":1e-05,\"rope_scaling\":{" LISTS ",\"type\":\"su\"},\"rope_theta\":10000.0,"
     "\"sliding_window\":262144,\"tie_word_embeddings\":false" REST,
     32, 32, 16},
    {"pythia-160m",
     "{\"architectures\":[\"GPTNeoXForCausalLM\"],\"hidden_act\":\"gelu\",\"hidden_size\":768,"
     "\"intermediate_size\":3072,\"layer_norm_eps\":1e-05,\"max_position_embeddings\":2048,"
     "\"model_type\":\"gpt_neox\",\"num_attention_heads\":12,\"num_hidden_layers\":12,"
     "\"rotary_emb_base\":10000,\"rotary_pct\":0.25,\"tie_word_embeddings\":false,"
     "\"use_parallel_residual\":true" REST,
     12, 12, 64},
    {"gpt-j-6b",
     "{\"activation_function\":\"gelu_new\",\"architectures\":[\"GPTJForCausalLM\"],"
     "\"attn_pdrop\":0.0,\"embd_pdrop\":0.0,\"gradient_checkpointing\":false,"
     "\"layer_norm_epsilon\":1e-05,\"model_type\":\"gptj\",\"n_embd\":4096,\"n_head\":16,"
     "\"n_inner\":null,\"n_layer\":28,\"n_positions\":2048,\"resid_pdrop\":0.0,\"rotary\":true,"
     "\"rotary_dim\":64,\"scale_attn_weights\":true," SUMMARY ",\"tie_word_embeddings\":false,"
     "\"tokenizer_class\":\"GPT2Tokenizer\"" REST,
     28, 16, 256},
    {"falcon-7b",
     "{\"alibi\":false,\"apply_residual_connection_post_layernorm\":false,\"architectures\":"
     "[\"FalconForCausalLM\"],\"attention_dropout\":0.0,\"auto_map\":{\"AutoConfig\":"
     "\"configuration_falcon.FalconConfig\"},\"bias\":false,\"hidden_dropout\":0.0,"
     "\"hidden_size\":4544,\"layer_norm_epsilon\":1e-05,\"model_type\":\"falcon\","
     "\"multi_query\":true,\"new_decoder_architecture\":false,\"num_attention_heads\":71,"
     "\"num_hidden_layers\":32,\"parallel_attn\":true" REST,
     32, 1, 64},
    {"falcon-11B",
     "{\"activation\":\"gelu\",\"alibi\":false,\"apply_residual_connection_post_layernorm\":false,"
     "\"architectures\":[\"FalconForCausalLM\"],\"attention_dropout\":0.0,\"bias\":false,"
     "\"ff_factor\":4,\"ffn_hidden_size\":16384,\"hidden_dropout\":0.0,\"hidden_size\":4096,"
     "\"layer_norm_epsilon\":1e-05,\"max_position_embeddings\":8192,\"model_type\":\"falcon\","
     "\"multi_query\":true,\"new_decoder_architecture\":true,\"num_attention_heads\":32,"
     "\"num_hidden_layers\":60,\"num_kv_heads\":8,\"num_ln_in_parallel_attn\":1,"
     "\"parallel_attn\":true,\"rope_scaling\":null,\"rope_theta\":500042.0" REST,
     60, 8, 128},
    {"bloom-560m",
     "{\"apply_residual_connection_post_layernorm\":false,\"architectures\":"
     "[\"BloomForCausalLM\"],\"attention_dropout\":0.0,\"attention_softmax_in_fp32\":true,"
     "\"bias_dropout_fusion\":true,\"hidden_dropout\":0.0,\"hidden_size\":1024,"
     "\"layer_norm_epsilon\":1e-05,\"masked_softmax_fusion\":true,\"model_type\":\"bloom\","
     "\"n_head\":16,\"n_inner\":null,\"n_layer\":24,\"offset_alibi\":100,\"pad_token_id\":3,"
     "\"pretraining_tp\":1,\"seq_length\":2048,\"skip_bias_add\":true,\"skip_bias_add_qkv\":false,"
     "\"slow_but_exact\":false,\"unk_token_id\":0" REST,
     24, 16, 64},
    {"opt-125m",
     "{\"_remove_final_layer_norm\":false,\"activation_dropout\":0.0,\"activation_function\":"
     "\"relu\",\"architectures\":[\"OPTForCausalLM\"],\"attention_dropout\":0.0,"
     "\"do_layer_norm_before\":true,\"dropout\":0.1,\"ffn_dim\":3072,\"hidden_size\":768,"
     "\"init_std\":0.02,\"layerdrop\":0.0,\"max_position_embeddings\":2048,\"model_type\":\"opt\","
     "\"num_attention_heads\":12,\"num_hidden_layers\":12,\"pad_token_id\":1,\"prefix\":\"</s>\","
     "\"word_embed_proj_dim\":768" REST,
     12, 12, 64},
    {"t5-small",
     "{\"architectures\":[\"T5ForConditionalGeneration\"],\"d_ff\":2048,\"d_kv\":64,"
     "\"d_model\":512,\"decoder_start_token_id\":0,\"dropout_rate\":0.1,\"initializer_factor\":1.0,"
     "\"is_encoder_decoder\":true,\"layer_norm_epsilon\":1e-06,\"model_type\":\"t5\","
     "\"n_positions\":512,\"num_heads\":8,\"num_layers\":6,\"output_past\":true,\"pad_token_id\":0,"
     "\"relative_attention_num_buckets\":32,\"task_specific_params\":{\"summarization\":{}}" REST,
     6, 8, 64},
    {"flan-t5-small",
     "{\"architectures\":[\"T5ForConditionalGeneration\"],\"d_ff\":1024,\"d_kv\":64,"
     "\"d_model\":512,\"decoder_start_token_id\":0,\"dropout_rate\":0.1,\"initializer_factor\":1.0,"
     "\"feed_forward_proj\":\"gated-gelu\",\"is_encoder_decoder\":true,\"is_gated_act\":true,"
     "\"dense_act_fn\":\"gelu_new\",\"layer_norm_epsilon\":1e-06,\"model_type\":\"t5\","
     "\"n_positions\":512,\"num_decoder_layers\":8,\"num_heads\":6,\"num_layers\":8,"
     "\"relative_attention_max_distance\":128,\"relative_attention_num_buckets\":32,"
     "\"tie_word_embeddings\":false" REST,
     8, 6, 64},
    {"roberta-base",
     "{\"architectures\":[\"RobertaForMaskedLM\"],\"attention_probs_dropout_prob\":0.1,"
     "\"hidden_act\":\"gelu\",\"hidden_dropout_prob\":0.1,\"hidden_size\":768,"
     "\"intermediate_size\":3072,\"layer_norm_eps\":1e-05,\"max_position_embeddings\":514,"
     "\"model_type\":\"roberta\",\"num_attention_heads\":12,\"num_hidden_layers\":12,"
     "\"pad_token_id\":1,\"type_vocab_size\":1" REST,
     12, 12, 64},
    {"distilbert-base-uncased",
     "{\"activation\":\"gelu\",\"architectures\":[\"DistilBertForMaskedLM\"],"
     "\"attention_dropout\":0.1,\"dim\":768,\"dropout\":0.1,\"hidden_dim\":3072,"
     "\"max_position_embeddings\":512,\"model_type\":\"distilbert\",\"n_heads\":12,\"n_layers\":6,"
     "\"pad_token_id\":0,\"qa_dropout\":0.1,\"seq_classif_dropout\":0.2,"
     "\"sinusoidal_pos_embds\":false,\"tie_weights_\":true" REST,
     6, 12, 64},
    {"DeepSeek-V3 in bf16", "{" DEEPSEEK_V3 "}", 61, 128, 192},
    {"DeepSeek-V2-Lite",
     "{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"attention_bias\":false,"
     "\"attention_dropout\":0.0,\"auto_map\":{},\"aux_loss_alpha\":0.001,"
     "\"first_k_dense_replace\":1,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
     "\"intermediate_size\":10944,\"kv_lora_rank\":512,\"max_position_embeddings\":163840,"
     "\"model_type\":\"deepseek_v2\",\"moe_intermediate_size\":1408,\"moe_layer_freq\":1,"
     "\"n_group\":1,\"n_routed_experts\":64,\"n_shared_experts\":2,\"norm_topk_prob\":false,"
     "\"num_attention_heads\":16,\"num_experts_per_tok\":6,\"num_hidden_layers\":27,"
     "\"num_key_value_heads\":16,\"pretraining_tp\":1,\"q_lora_rank\":null,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"rope_scaling\":{\"beta_fast\":32,"
     "\"beta_slow\":1,\"factor\":40,\"mscale\":0.707,\"mscale_all_dim\":0.707,"
     "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":10000,"
     "\"routed_scaling_factor\":1.0,\"scoring_func\":\"softmax\",\"seq_aux\":true,"
     "\"tie_word_embeddings\":false,\"topk_group\":1,\"topk_method\":\"greedy\","
     "\"v_head_dim\":128" REST,
     27, 16, 192},
};

CASE(published, NULL, NULL, 60)

TEST(config_of_quantised_weights_says_their_blocks)
{
    static const char text[] =
        "{" DEEPSEEK_V3 ",\"quantization_config\":{\"activation_scheme\":\"dynamic\","
        "\"fmt\":\"e4m3\",\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}";
    struct attn_error error = {0};
    struct attn_config config;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    ck_assert_int_eq(config.hf.quantization.method, ATTN_QUANT_FP8);
    ck_assert_uint_eq(config.hf.quantization.block[0], 128);
    ck_assert_uint_eq(config.hf.quantization.block[1], 128);
}

TEST_EACH(config_of_every_family_is_read_with_its_published_keys, COUNT(published))
{
    struct attn_error error = {0};
    struct attn_config config;
    struct attn_layer_spec spec;
    const char *text = published[_i].text;
    enum attn_status status = attn_config_read(&config, NULL, text, strlen(text), &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", published[_i].name, error.message);
    attn_config_layer_spec(&spec, &config, published[_i].layers - 1);
    ck_assert_uint_eq(config.num_layers, published[_i].layers);
    ck_assert_uint_eq(spec.num_kv_heads, published[_i].kv_heads);
    ck_assert_uint_eq(spec.head_dim, published[_i].head_dim);
    ck_assert_int_eq(attn_layer_check(&spec, &error), ATTN_OK);
}

/* ---- The files of tests/published/pinned --------------------------------------------------- */

static const char *rope_name(enum attn_rope_type type)
{
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        if (known->type == type)
            return known->name;
    return "none";
}

/* Returns the member of a specification that a file names; NAN where there is none. */
static double member(const struct attn_layer_spec *s, const char *name)
{
    const struct {
        const char *name;
        double value;
    } members[] = {
        {"num_attention_heads", (double)s->num_heads},
        {"num_key_value_heads", (double)s->num_kv_heads},
        {"head_dim", (double)s->head_dim},
        {"scale", s->scale},
        {"sliding_window", (double)s->sliding_window},
        {"attention_chunk_size", (double)s->attention_chunk_size},
        {"is_causal", s->is_causal},
        {"q_bias", s->q_bias},
        {"o_bias", s->o_bias},
        {"output_gate", s->output_gate},
        {"qk_norm", s->qk_norm.type != ATTN_NORM_NONE},
        {"norm_extent", s->qk_norm.extent},
        {"v_norm", s->v_norm.type != ATTN_NORM_NONE},
        {"shares_layer", s->shares_layer == SIZE_MAX ? -1 : (double)s->shares_layer},
        {"scaling_beta", s->query_scaling.beta},
        {"scaling_period", s->query_scaling.period},
        {"rope_theta", s->rope.theta},
        {"rope_dim", (double)s->rope.dim},
        {"rope_interleaved", s->rope.interleaved},
    };
    for (size_t i = 0; i < COUNT(members); i++)
        if (strcmp(members[i].name, name) == 0)
            return members[i].value;
    return NAN;
}

static void expect_members(const char *file, const struct attn_layer_spec *spec, json_t *wanted)
{
    const char *name;
    json_t *value;
    ck_assert_uint_ge(json_object_size(wanted), 1);
    json_object_foreach(wanted, name, value) {
        if (strcmp(name, "rope_type") == 0) {
            ck_assert_str_eq(rope_name(spec->rope.type), json_string_value(value));
            continue;
        }
        double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        double got = member(spec, name);
        ck_assert_msg(fabs(got - number) <= 1e-12 * fabs(number), "%s: %s is %.17g, expected %.17g",
                      file, name, got, number);
    }
}

static void expect_file(const char *file)
{
    static struct attn_config config;
    struct attn_layer_spec spec;
    struct attn_error error = {0};
    char path[512];
    snprintf(path, sizeof path, "tests/published/pinned/%s", file);
    json_t *whole = json_load_file(path, 0, NULL);
    ck_assert_msg(whole != NULL, "%s", path);
    char *text = json_dumps(json_object_get(whole, "config"), 0);
    enum attn_status status = attn_config_read(&config, NULL, text, strlen(text), &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", file, error.message);
    json_int_t layers = json_integer_value(json_object_get(whole, "num_hidden_layers"));
    json_int_t layer = json_integer_value(json_object_get(whole, "layer"));
    ck_assert_uint_eq(config.num_layers, (size_t)layers);
    ck_assert_msg(attn_config_attends(&config, (size_t)layer), "%s", file);
    attn_config_layer_spec(&spec, &config, (size_t)layer);
    status = attn_layer_check(&spec, &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", file, error.message);
    expect_members(file, &spec, json_object_get(whole, "spec"));
    free(text);
    json_decref(whole);
}

TEST(config_of_pinned_files_means_what_they_say)
{
    struct dirent **names;
    size_t files = 0;
    int n = scandir("tests/published/pinned", &names, NULL, alphasort);
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            expect_file(names[i]->d_name);
            files++;
        }
        free(names[i]);
    }
    free(names);
    ck_assert_uint_ge(files, 51);
}

CASES_OF(published)
