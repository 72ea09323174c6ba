/* model_families.c: the meaning of each family's configuration: defaults of absent keys, null,
 * sliding layers, heads, biases, position biases; and RoPE of every type. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "families/config.h"
#include "model_cases.h"

/* A configuration of that family and these widths; the closing brace is missing. */
#define CONFIG(type, hidden, heads, layers)                                                  \
    "{\"model_type\":\"" type "\",\"hidden_size\":" hidden ",\"num_attention_heads\":" heads \
    ",\"num_hidden_layers\":" layers
#define ROPE_SCALING(text) ",\"rope_scaling\":{" text "}"
#define T5 "{\"model_type\":\"t5\",\"d_model\":48,\"num_heads\":4,\"num_layers\":3"

static struct attn_config config;

/* The specification of a layer; the configuration must be accepted. */
static struct attn_layer_spec spec_of(const char *text, const char *stack, size_t layer)
{
    struct attn_error error = {0};
    struct attn_layer_spec spec;
    enum attn_status status = attn_config_read(
        &config, &(struct attn_config_options){.stack = stack}, text, strlen(text), &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", text, error.message);
    attn_config_layer_spec(&spec, &config, layer);
    return spec;
}

/* ---- Heads, windows, biases ----------------------------------------------------------------- */

static const struct {
    const char *text;
    size_t layer, kv_heads, head_dim, window;
    double softcap, scale;
    const char *biases; /* of q, k, v, o */
    size_t rotary_dim;
    double theta;
    bool causal;
} meanings[] = {
    /* absent keys have the defaults of Hugging Face's classes; null means none, or computed */
    {CONFIG("mistral", "512", "32", "2") "}", 1, 8, 16, 4096, 0, 0.25, "", 16, 1e4, true},
    {CONFIG("mistral", "512", "32", "2") ",\"sliding_window\":null,\"num_key_value_heads\":null}",
     0, 32, 16, 0, 0, 0.25, "", 16, 1e4, true},
    {CONFIG("mistral", "512", "32", "2") ",\"head_dim\":64,\"rope_theta\":1e6}", 0, 8, 64, 4096, 0,
     0.125, "", 64, 1e6, true},
    {CONFIG("qwen2", "512", "32", "30") "}", 29, 32, 16, 0, 0, 0.25, "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "512", "32", "30") ",\"use_sliding_window\":true}", 27, 32, 16, 0, 0, 0.25,
     "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "512", "32", "30") ",\"use_sliding_window\":true}", 28, 32, 16, 4096, 0, 0.25,
     "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "512", "32", "30") ",\"use_sliding_window\":true,\"sliding_window\":null}", 28,
     32, 16, 0, 0, 0.25, "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "64", "4", "2") ",\"num_key_value_heads\":2,\"use_sliding_window\":true,"
                                     "\"max_window_layers\":0,\"sliding_window\":7}",
     0, 2, 16, 7, 0, 0.25, "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "64", "4", "2") ",\"num_key_value_heads\":2,\"use_sliding_window\":true,"
                                     "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
     0, 2, 16, 4096, 0, 0.25, "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "64", "4", "2") ",\"num_key_value_heads\":2,\"use_sliding_window\":true,"
                                     "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
     1, 2, 16, 0, 0, 0.25, "qkv", 16, 1e4, true},
    {CONFIG("qwen2", "64", "4", "2") ",\"num_key_value_heads\":2,\"use_sliding_window\":false,"
                                     "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
     0, 2, 16, 0, 0, 0.25, "qkv", 16, 1e4, true},
    {CONFIG("qwen3", "512", "32", "2") "}", 0, 32, 128, 0, 0, 0.08838834764831845, "", 128, 1e4,
     true},
    {CONFIG("qwen3", "512", "32", "2") ",\"head_dim\":null,\"attention_bias\":true}", 0, 32, 16, 0,
     0, 0.25, "qkvo", 16, 1e4, true},
    {CONFIG("gemma2", "512", "4", "3") "}", 0, 4, 256, 4096, 50, 0.0625, "", 256, 1e4, true},
    {CONFIG("gemma2", "512", "4", "3") "}", 1, 4, 256, 0, 50, 0.0625, "", 256, 1e4, true},
    {CONFIG("gemma2", "512", "4", "3") "}", 2, 4, 256, 4096, 50, 0.0625, "", 256, 1e4, true},
    {CONFIG("gemma2", "512", "4", "3") ",\"attn_logit_softcapping\":null,\"sliding_window\":null,"
                                       "\"query_pre_attn_scalar\":64,\"layer_types\":null}",
     0, 4, 256, 0, 0, 0.125, "", 256, 1e4, true},
    {CONFIG("gpt_oss", "512", "16", "2") "}", 0, 8, 64, 128, 0, 0.125, "qkvo", 64, 150000, true},
    {CONFIG("gpt_oss", "512", "16", "2") ",\"attention_bias\":false}", 1, 8, 64, 0, 0, 0.125, "",
     64, 150000, true},
    {CONFIG("phi", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 32, 1e4, true},
    {CONFIG("phi", "2560", "32", "2") ",\"partial_rotary_factor\":0.4}", 0, 32, 80, 0, 0,
     0.11180339887498949, "qkvo", 32, 1e4, true},
    {CONFIG("phi3", "512", "8", "2") "}", 1, 8, 64, 0, 0, 0.125, "", 64, 1e4, true},
    {CONFIG("phi3", "512", "8", "2") ",\"sliding_window\":2047,\"partial_rotary_factor\":0.75}", 1,
     8, 64, 2047, 0, 0.125, "", 48, 1e4, true},
    {CONFIG("gpt_neox", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 16, 1e4, true},
    {CONFIG("gpt_neox", "512", "8", "2") ",\"rotary_pct\":1.0,\"rotary_emb_base\":500,"
                                         "\"attention_bias\":false}",
     0, 8, 64, 0, 0, 0.125, "", 64, 500, true},
    {"{\"model_type\":\"gptj\",\"n_embd\":512,\"n_head\":4,\"n_layer\":2}", 0, 4, 128, 0, 0,
     0.08838834764831845, "", 64, 1e4, true},
    {CONFIG("falcon", "512", "8", "2") ",\"num_kv_heads\":8}", 0, 1, 64, 0, 0, 0.125, "", 64, 1e4,
     true},
    {CONFIG("falcon", "512", "8", "2") ",\"multi_query\":false,\"bias\":true}", 0, 8, 64, 0, 0,
     0.125, "qkvo", 64, 1e4, true},
    {CONFIG("falcon", "512", "8", "2") ",\"num_kv_heads\":2,\"new_decoder_architecture\":true}", 0,
     2, 64, 0, 0, 0.125, "", 64, 1e4, true},
    {CONFIG("falcon", "512", "8", "2") ",\"alibi\":true}", 0, 1, 64, 0, 0, 0.125, "", 0, 0, true},
    {CONFIG("bloom", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0, true},
    {CONFIG("opt", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0, true},
    {CONFIG("opt", "512", "8", "2") ",\"enable_bias\":false}", 0, 8, 64, 0, 0, 0.125, "", 0, 0,
     true},
    {CONFIG("roberta", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0, false},
    {"{\"model_type\":\"distilbert\",\"dim\":512,\"n_heads\":8,\"n_layers\":2}", 0, 8, 64, 0, 0,
     0.125, "qkvo", 0, 0, false},
    {"{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4,\"n_layer\":4,"
     "\"scale_attn_by_inverse_layer_idx\":true}",
     3, 4, 16, 0, 0, 0.0625, "qkvo", 0, 0, true},
    {"{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4,\"n_layer\":4,"
     "\"scale_attn_by_inverse_layer_idx\":true,\"scale_attn_weights\":false}",
     1, 4, 16, 0, 0, 0.5, "qkvo", 0, 0, true},
    {CONFIG("aria_text", "512", "32", "2") "}", 0, 32, 16, 0, 0, 0.25, "", 16, 1e4, true},
    {CONFIG("emu3_text_model", "512", "32", "2") "}", 0, 8, 16, 0, 0, 0.25, "", 16, 1e6, true},
    {CONFIG("minicpm", "512", "32", "2") ",\"scale_emb\":12}", 0, 32, 16, 0, 0, 0.25, "", 16, 1e4,
     true},
    {CONFIG("xverse", "512", "32", "2") "}", 0, 32, 16, 0, 0, 0.25, "", 16, 1e4, true},
    {CONFIG("orion", "512", "32", "2") "}", 0, 32, 16, 0, 0, 0.25, "", 16, 1e4, true},
    {CONFIG("deepseek", "512", "32", "2") "}", 0, 32, 16, 0, 0, 0.25, "", 16, 1e4, true},
    {CONFIG("csm", "512", "32", "2") "}", 0, 8, 16, 0, 0, 0.25, "", 16, 5e5, true},
    {CONFIG("bailing_moe", "512", "32",
            "2") ",\"use_qkv_bias\":true,\"partial_rotary_factor\":0.5}",
     0, 32, 16, 0, 0, 0.25, "qkv", 8, 1e4, true},
    {CONFIG("hy_v3", "512", "8", "2") ",\"head_dim\":64}", 0, 8, 64, 0, 0, 0.125, "", 64, 11158840,
     true},
    {CONFIG("ernie4_5_vl_moe_text", "512", "8", "2") ",\"use_bias\":true}", 0, 4, 64, 0, 0, 0.125,
     "qkvo", 64, 5e5, true},
    {CONFIG("paddleocr_vl_text", "512", "8", "2") ",\"head_dim\":64}", 0, 2, 64, 0, 0, 0.125, "",
     64, 5e5, true},
    {CONFIG("glm_ocr_text", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "", 64, 1e4, true},
    {CONFIG("glm_image_text", "512", "8", "2") "}", 0, 2, 64, 0, 0, 0.125, "qkv", 64, 1e4, true},
    {CONFIG("modernbert-decoder", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "", 64, 160000,
     true},
    {CONFIG("modernbert-decoder", "512", "8", "2") "}", 1, 8, 64, 64, 0, 0.125, "", 64, 1e4, true},
    {CONFIG("modernbert", "512", "8", "2") "}", 1, 8, 64, 65, 0, 0.125, "", 64, 1e4, false},
    {CONFIG("openai_privacy_filter", "512", "8", "2") "}", 0, 2, 64, 129, 0, 0.125, "qkvo", 64,
     15e4, false},
    {CONFIG("dpr", "512", "8", "2") ",\"projection_dim\":0}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0,
     false},
    {CONFIG("tapas", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0, false},
    {CONFIG("visual_bert", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0, false},
    {CONFIG("vilt", "512", "8", "2") ",\"qkv_bias\":false}", 0, 8, 64, 0, 0, 0.125, "o", 0, 0,
     false},
    {CONFIG("videomae", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qvo", 0, 0, false},
    {CONFIG("vitpose_backbone", "512", "8", "2") "}", 0, 8, 64, 0, 0, 0.125, "qkvo", 0, 0, false},
    {"{\"model_type\":\"imagegpt\",\"n_embd\":512,\"n_head\":8,\"n_layer\":2}", 0, 8, 64, 0, 0,
     0.125, "qkvo", 0, 0, true},
    {"{\"model_type\":\"depth_anything\",\"backbone_config\":{\"model_type\":\"dinov2\","
     "\"hidden_size\":384,\"num_attention_heads\":6}}",
     11, 6, 64, 0, 0, 0.125, "qkvo", 0, 0, false},
    {"{\"model_type\":\"deepseek_vl_v2\",\"language_config\":{\"architectures\":["
     "\"DeepseekV2ForCausalLM\"]"
     ",\"hidden_size\":1280,\"num_attention_heads\":20,\"num_hidden_layers\":12,\"use_mla\":false,"
     "\"kv_lora_rank\":null,\"qk_nope_head_dim\":0,\"v_head_dim\":0}}",
     0, 20, 64, 0, 0, 0.125, "", 64, 1e4, true},
    {"{\"model_type\":\"colqwen2\",\"vlm_config\":{\"model_type\":\"qwen2_vl\",\"text_config\":{"
     "\"model_type\":\"qwen2_vl_text\",\"hidden_size\":512,\"num_attention_heads\":8,"
     "\"num_key_value_heads\":2,\"num_hidden_layers\":2}}}",
     0, 2, 64, 0, 0, 0.125, "qkv", 64, 1e6, true},
    {CONFIG("recurrent_gemma", "512", "8", "3") ",\"num_key_value_heads\":1}", 2, 1, 64, 2048, 0,
     0.125, "o", 32, 1e4, true},
    {CONFIG("minimax_text_01", "512", "16",
            "2") ",\"head_dim\":64,\"rotary_dim\":32,\"rope_theta\":1e7,"
                 "\"attn_type_list\":[0,1]}",
     1, 8, 64, 0, 0, 0.125, "", 32, 1e7, true},
    {CONFIG("phi3_v", "512", "8", "2") "}", 1, 8, 64, 0, 0, 0.125, "", 64, 1e4, true},
    {T5 "}", 2, 4, 64, 0, 0, 1, "", 0, 0, true},
    {T5 ",\"d_kv\":null}", 2, 4, 12, 0, 0, 1, "", 0, 0, true},
};

CASE(families, NULL, NULL, 60)

TEST_EACH(family_means_what_its_configuration_class_means, COUNT(meanings))
{
    const char *text = meanings[_i].text;
    struct attn_layer_spec spec = spec_of(text, NULL, meanings[_i].layer);
    ck_assert_msg(spec.num_kv_heads == meanings[_i].kv_heads, "%s: G %zu", text, spec.num_kv_heads);
    ck_assert_msg(spec.head_dim == meanings[_i].head_dim, "%s: D %zu", text, spec.head_dim);
    ck_assert_msg(spec.sliding_window == meanings[_i].window, "%s: W %zu", text,
                  spec.sliding_window);
    ck_assert_msg(spec.softcap == meanings[_i].softcap, "%s: softcap %g", text, spec.softcap);
    ck_assert_msg(fabs(spec.scale - meanings[_i].scale) < 1e-15, "%s: scale %.17g", text,
                  spec.scale);
    ck_assert_msg(spec.rope.dim == meanings[_i].rotary_dim, "%s: rotary %zu", text, spec.rope.dim);
    ck_assert_msg(spec.rope.theta == meanings[_i].theta, "%s: theta %g", text, spec.rope.theta);
    ck_assert_int_eq(spec.is_causal, meanings[_i].causal);
    const bool biases[] = {spec.q_bias, spec.k_bias, spec.v_bias, spec.o_bias};
    for (int i = 0; i < 4; i++)
        ck_assert_msg(biases[i] == (strchr(meanings[_i].biases, "qkvo"[i]) != NULL),
                      "%s: bias of %c", text, "qkvo"[i]);
}

TEST(family_fields_that_only_one_has)
{
    struct attn_layer_spec spec = spec_of(CONFIG("qwen3", "512", "32", "2") "}", NULL, 0);
    ck_assert(spec.qk_norm.type == ATTN_NORM_RMS && !spec.sinks);
    ck_assert_double_eq(spec.qk_norm.eps, 1e-6);
    spec = spec_of(CONFIG("qwen3", "512", "32", "2") ",\"rms_norm_eps\":1e-5}", NULL, 0);
    ck_assert_double_eq(spec.qk_norm.eps, 1e-5);
    spec = spec_of(CONFIG("gpt_oss", "512", "16", "2") "}", NULL, 0);
    ck_assert(spec.sinks && spec.qk_norm.type == ATTN_NORM_NONE);
    spec = spec_of("{\"model_type\":\"gptj\",\"n_embd\":512,\"n_head\":4,\"n_layer\":2}", NULL, 0);
    ck_assert(spec.rope.interleaved);
    spec = spec_of(CONFIG("phi", "512", "8", "2") "}", NULL, 0);
    ck_assert(!spec.rope.interleaved);
    spec = spec_of(CONFIG("ernie4_5_vl_moe_text", "512", "8", "2") "}", NULL, 0);
    ck_assert(spec.rope.interleaved);
    spec = spec_of(CONFIG("glm_ocr_text", "512", "8", "2") "}", NULL, 0);
    ck_assert(spec.rope.interleaved);
    spec = spec_of(CONFIG("openai_privacy_filter", "512", "8", "2") "}", NULL, 0);
    ck_assert(spec.rope.interleaved && spec.sinks);
    spec = spec_of(CONFIG("hy_v3", "512", "8", "2") "}", NULL, 0);
    ck_assert(spec.qk_norm.type == ATTN_NORM_RMS && !spec.rope.interleaved);
    spec = spec_of(CONFIG("bailing_moe", "512", "8", "2") ",\"use_qk_norm\":true}", NULL, 0);
    ck_assert(spec.qk_norm.type == ATTN_NORM_RMS);

    spec = spec_of(CONFIG("bloom", "512", "8", "2") "}", NULL, 0);
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_ALIBI);
    ck_assert_double_eq(spec.position_bias.scale, 1);
    ck_assert(!spec.position_bias.bfloat16);
    spec = spec_of(CONFIG("falcon", "512", "8", "2") ",\"alibi\":true}", NULL, 0);
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_ALIBI);
    ck_assert_double_eq(spec.position_bias.scale, 0.125);
    ck_assert(spec.position_bias.bfloat16);
    ck_assert_int_eq(spec.rope.type, ATTN_ROPE_NONE);
    spec = spec_of(CONFIG("falcon", "512", "8", "2") "}", NULL, 0);
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
}

TEST(family_t5_has_three_stacks)
{
    const char *text = T5 ",\"num_decoder_layers\":5}";
    struct attn_layer_spec spec = spec_of(text, "encoder", 2);
    ck_assert_uint_eq(config.num_layers, 3);
    ck_assert(!spec.is_causal && !spec.is_cross);
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_T5);
    ck_assert_uint_eq(spec.position_bias.buckets, 32);
    ck_assert_uint_eq(spec.position_bias.max_distance, 128);
    ck_assert(spec.position_bias.bidirectional);

    spec = spec_of(text, "decoder", 4);
    ck_assert_uint_eq(config.num_layers, 5);
    ck_assert(spec.is_causal && !spec.is_cross);
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_T5);
    ck_assert(!spec.position_bias.bidirectional);

    spec = spec_of(text, "cross", 4);
    ck_assert(!spec.is_causal && spec.is_cross);
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
    ck_assert_double_eq(spec.scale, 1);

    spec_of(T5 ",\"num_decoder_layers\":null,\"relative_attention_num_buckets\":8}", "decoder", 2);
    ck_assert_uint_eq(config.num_layers, 3);
    spec = spec_of(T5 "}", NULL, 2); /* the decoder has as many layers as the encoder */
    ck_assert_uint_eq(config.num_layers, 3);
    ck_assert(spec.is_causal);
}

/* ---- RoPE ----------------------------------------------------------------------------------- */

#define LLAMA_ROPE(text) LLAMA ",\"max_position_embeddings\":4096" ROPE_SCALING(text) "}"
#define YARN "\"rope_type\":\"yarn\",\"factor\":4.0"
#define LISTS "\"short_factor\":[1,1.5,2],\"long_factor\":[3,4.5,6]"
#define PHI3 CONFIG("phi3", "24", "4", "2")

/* attention_factor is worked out by hand: 0.1 ln 4 + 1; (0.15 ln 4 + 1) / (0.08 ln 4 + 1);
 * sqrt(1 + ln 4 / ln 16); sqrt(1 + ln 2 / ln 4096). */
static const struct {
    const char *text;
    enum attn_rope_type type;
    double factor, trained, attention_factor;
} ropes[] = {
    {LLAMA_ROPE("\"type\":\"default\""), ATTN_ROPE_DEFAULT, 0, 0, 1},
    {LLAMA_ROPE("\"type\":\"linear\",\"factor\":2"), ATTN_ROPE_LINEAR, 2, 0, 1},
    {LLAMA_ROPE("\"type\":\"linear\",\"rope_type\":\"linear\",\"factor\":2"), ATTN_ROPE_LINEAR, 2,
     0, 1},
    {LLAMA_ROPE("\"type\":\"dynamic\",\"factor\":2"), ATTN_ROPE_DYNAMIC, 2, 4096, 1},
    /* neither version reads the trained length of dynamic */
    {LLAMA_ROPE("\"type\":\"dynamic\",\"factor\":2,\"original_max_position_embeddings\":1024"),
     ATTN_ROPE_DYNAMIC, 2, 4096, 1},
    {LLAMA_ROPE(YARN), ATTN_ROPE_YARN, 4, 4096, 1.1386294361119891},
    /* the factor of the file counts, not 4096 / 1024 = 4 or 4096 / 2048 */
    {LLAMA_ROPE(YARN ",\"original_max_position_embeddings\":1024"), ATTN_ROPE_YARN, 4, 1024,
     1.1386294361119891},
    {LLAMA_ROPE(YARN ",\"original_max_position_embeddings\":2048"), ATTN_ROPE_YARN, 4, 2048,
     1.1386294361119891},
    {LLAMA_ROPE(YARN ",\"attention_factor\":0.9"), ATTN_ROPE_YARN, 4, 4096, 0.9},
    {LLAMA_ROPE(YARN ",\"attention_factor\":null,\"mscale\":1.5"), ATTN_ROPE_YARN, 4, 4096,
     1.1386294361119891},
    {LLAMA_ROPE(YARN ",\"mscale\":1.5,\"mscale_all_dim\":0.8"), ATTN_ROPE_YARN, 4, 4096,
     1.0873528627893840},
    {LLAMA_ROPE("\"rope_type\":\"yarn\",\"factor\":1.0"), ATTN_ROPE_YARN, 1, 4096, 1},
    /* longrope: the two lengths of the model count, whatever factor says */
    {PHI3 ",\"max_position_embeddings\":64,\"original_max_position_embeddings\":16" ROPE_SCALING(
         "\"type\":\"longrope\"," LISTS) "}",
     ATTN_ROPE_LONGROPE, 0, 16, 1.2247448713915890},
    {PHI3 ",\"max_position_embeddings\":64,\"original_max_position_embeddings\":16" ROPE_SCALING(
         "\"type\":\"su\",\"factor\":9," LISTS) "}",
     ATTN_ROPE_LONGROPE, 0, 16, 1.2247448713915890},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\"," LISTS) "}", ATTN_ROPE_LONGROPE, 0, 4096, 1},
    /* without the second of them, `factor` counts */
    {CONFIG("llama", "24", "4", "2") ",\"max_position_embeddings\":4096" ROPE_SCALING(
         "\"type\":\"longrope\",\"factor\":2," LISTS) "}",
     ATTN_ROPE_LONGROPE, 0, 4096, 1.0408329997330663},
    {CONFIG("llama", "24", "4", "2") ",\"max_position_embeddings\":64" ROPE_SCALING(
         "\"type\":\"longrope\",\"original_max_position_embeddings\":16," LISTS) "}",
     ATTN_ROPE_LONGROPE, 0, 16, 1.2247448713915890},
    {CONFIG("gpt_oss", "512", "16", "2") "}", ATTN_ROPE_YARN, 32, 131072, 1.3465735902799727},
    {CONFIG("gpt_neox", "512", "8", "2") ROPE_SCALING("\"type\":\"linear\",\"factor\":3") "}",
     ATTN_ROPE_LINEAR, 3, 0, 1},
};

TEST_EACH(rope_settings_resolve_as_hugging_face_has_them, COUNT(ropes))
{
    struct attn_rope_spec rope = spec_of(ropes[_i].text, NULL, 0).rope;
    ck_assert_int_eq(rope.type, ropes[_i].type);
    ck_assert_double_eq(rope.factor, ropes[_i].factor);
    ck_assert_double_eq(rope.original_max_position, ropes[_i].trained);
    ck_assert_msg(fabs(rope.attention_factor - ropes[_i].attention_factor) < 1e-12, "%s: %.17g",
                  ropes[_i].text, rope.attention_factor);
}

TEST(rope_yarn_fills_in_its_turns)
{
    struct attn_rope_spec rope = spec_of(LLAMA_ROPE(YARN), NULL, 0).rope;
    ck_assert_double_eq(rope.beta_fast, 32);
    ck_assert_double_eq(rope.beta_slow, 1);
    ck_assert(rope.truncate);
    rope =
        spec_of(LLAMA_ROPE(YARN ",\"beta_fast\":8,\"beta_slow\":0.5,\"truncate\":false"), NULL, 0)
            .rope;
    ck_assert_double_eq(rope.beta_fast, 8);
    ck_assert_double_eq(rope.beta_slow, 0.5);
    ck_assert(!rope.truncate);
    rope = spec_of(LLAMA_ROPE(YARN ",\"beta_fast\":null,\"beta_slow\":0"), NULL, 0).rope;
    ck_assert_double_eq(rope.beta_fast, 32);
    ck_assert_double_eq(rope.beta_slow, 1);
    /* The file's own object replaces gpt_oss's default as a whole, with truncate false in it. */
    ck_assert(!spec_of(CONFIG("gpt_oss", "512", "16", "2") "}", NULL, 0).rope.truncate);
    ck_assert(
        spec_of(CONFIG("gpt_oss", "512", "16", "2") ROPE_SCALING(YARN) "}", NULL, 0).rope.truncate);
}

TEST(rope_longrope_keeps_both_lists)
{
    const double expected[2][3] = {{1, 1.5, 2}, {3, 4.5, 6}};
    struct attn_rope_spec rope =
        spec_of(PHI3 ROPE_SCALING("\"type\":\"longrope\"," LISTS) "}", NULL, 1).rope;
    ck_assert_uint_eq(rope.dim, 6);
    ck_assert_mem_eq(rope.short_factor, expected[0], sizeof expected[0]);
    ck_assert_mem_eq(rope.long_factor, expected[1], sizeof expected[1]);
}

#define BY_TYPE                                                                        \
    CONFIG("gemma2", "512", "4", "2")                                                  \
    ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8," \
    "\"rope_theta\":1e6},\"sliding_attention\":{\"rope_type\":\"default\","            \
    "\"rope_theta\":10000}}"

TEST(rope_parameters_may_differ_by_layer_type)
{
    struct attn_rope_spec sliding = spec_of(BY_TYPE "}", NULL, 0).rope;
    struct attn_rope_spec full = spec_of(BY_TYPE "}", NULL, 1).rope;
    ck_assert_int_eq(sliding.type, ATTN_ROPE_DEFAULT);
    ck_assert_double_eq(sliding.theta, 10000);
    ck_assert_int_eq(full.type, ATTN_ROPE_LINEAR);
    ck_assert_double_eq(full.theta, 1e6);
    ck_assert_double_eq(full.factor, 8);

    /* A type may be missing, or null: the keys beside the object hold then. */
    const char *one =
        CONFIG("gemma2", "512", "4",
               "2") ",\"rope_theta\":777,\"rope_parameters\":{\"sliding_attention\":null,"
                    "\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8}}}";
    ck_assert_int_eq(spec_of(one, NULL, 0).rope.type, ATTN_ROPE_DEFAULT);
    ck_assert_double_eq(spec_of(one, NULL, 0).rope.theta, 777);
    ck_assert_int_eq(spec_of(one, NULL, 1).rope.type, ATTN_ROPE_LINEAR);
    ck_assert_double_eq(spec_of(one, NULL, 1).rope.theta, 777);
}

TEST(rope_settings_do_not_depend_on_the_order_of_keys)
{
    const char *texts[] = {
        "{\"rope_parameters\":{\"rope_theta\":500,\"factor\":2,\"rope_type\":\"linear\"},"
        "\"rope_scaling\":null,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
        "\"hidden_size\":64,\"model_type\":\"llama\"}",
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,"
        "\"num_hidden_layers\":1,\"rope_scaling\":null,"
        "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":500}}",
    };
    for (size_t i = 0; i < 2; i++) {
        struct attn_rope_spec rope = spec_of(texts[i], NULL, 0).rope;
        ck_assert_int_eq(rope.type, ATTN_ROPE_LINEAR);
        ck_assert_double_eq(rope.theta, 500);
        ck_assert_double_eq(rope.factor, 2);
    }
}

/* ---- Configurations that are refused ------------------------------------------------------- */

static const struct {
    const char *text, *stack;
    enum attn_status status;
    const char *param;
} refused[] = {
    /* switches that would change the mathematics */
    {CONFIG("phi", "512", "8", "2") ",\"qk_layernorm\":true}", NULL, ATTN_UNSUPPORTED,
     "qk_layernorm"},
    {CONFIG("phi3", "512", "8", "2") ",\"attention_bias\":true}", NULL, ATTN_UNSUPPORTED,
     "attention_bias"},
    {CONFIG("qwen2", "512", "32", "2") ",\"use_mrope\":true}", NULL, ATTN_UNSUPPORTED, "use_mrope"},
    {CONFIG("roberta", "512", "8", "2") ",\"position_embedding_type\":\"rotary\"}", NULL,
     ATTN_UNSUPPORTED, "position_embedding_type"},
    {"{\"model_type\":\"gptj\",\"n_embd\":512,\"n_head\":4,\"n_layer\":2,"
     "\"scale_attn_weights\":false}",
     NULL, ATTN_UNSUPPORTED, "scale_attn_weights"},
    {CONFIG("opt", "512", "8", "2") ",\"sliding_window\":4}", NULL, ATTN_UNSUPPORTED,
     "sliding_window"},
    {CONFIG("qwen3", "512", "16", "2") ",\"quantization_config\":4}", NULL, ATTN_MALFORMED,
     "quantization_config"},
    {CONFIG("gemma2", "512", "4", "2") ",\"rope_local_base_freq\":10000}", NULL, ATTN_UNSUPPORTED,
     "rope_local_base_freq"},
    {CONFIG("mistral", "512", "32", "2") ",\"attention_multiplier\":2}", NULL, ATTN_UNSUPPORTED,
     "attention_multiplier"},
    {CONFIG("bloom", "512", "8", "2") ",\"rope_theta\":10000}", NULL, ATTN_UNSUPPORTED,
     "rope_theta"},
    /* widths */
    {CONFIG("mistral", "512", "4", "2") "}", NULL, ATTN_MALFORMED, "num_key_value_heads"},
    {CONFIG("falcon", "512", "8", "2") ",\"num_kv_heads\":3,\"new_decoder_architecture\":true}",
     NULL, ATTN_MALFORMED, "num_kv_heads"},
    {"{\"model_type\":\"gptj\",\"n_embd\":64,\"n_head\":4,\"n_layer\":2}", NULL, ATTN_OUT_OF_RANGE,
     "rotary_dim"},
    {CONFIG("phi", "36", "4", "2") ",\"partial_rotary_factor\":0.4}", NULL, ATTN_UNSUPPORTED,
     "head_dim"},
    {CONFIG("bloom", "512", "8", "2") ",\"n_head\":4}", NULL, ATTN_MALFORMED, "n_head"},
    /* layer types */
    {CONFIG("gemma2", "512", "4", "2") ",\"layer_types\":[\"full_attention\"]}", NULL,
     ATTN_MALFORMED, "layer_types"},
    {CONFIG("gemma2", "512", "4", "1") ",\"layer_types\":[\"chunked_attention\"]}", NULL,
     ATTN_UNSUPPORTED, "layer_types"},
    {CONFIG("gemma2", "512", "4", "1") ",\"layer_types\":[1]}", NULL, ATTN_MALFORMED,
     "layer_types"},
    {CONFIG("gemma2", "512", "4", "1") ",\"layer_types\":\"full_attention\"}", NULL, ATTN_MALFORMED,
     "layer_types"},
    {CONFIG("gemma2", "512", "4", "1") ",\"layer_types\":[]}", NULL, ATTN_OUT_OF_RANGE,
     "layer_types"},
    {CONFIG("gemma2", "512", "4", "1") ",\"attn_logit_softcapping\":0}", NULL, ATTN_OUT_OF_RANGE,
     "attn_logit_softcapping"},
    {CONFIG("mistral", "512", "32", "2") ",\"sliding_window\":0}", NULL, ATTN_OUT_OF_RANGE,
     "sliding_window"},
    /* RoPE */
    {CONFIG("llama", "64", "4", "1") ",\"rope_theta\":null}", NULL, ATTN_MALFORMED, "rope_theta"},
    {LLAMA_ROPE("\"type\":\"linear\""), NULL, ATTN_MALFORMED, "rope_scaling"},
    {LLAMA_ROPE("\"type\":\"dynamic\""), NULL, ATTN_MALFORMED, "rope_scaling"},
    {LLAMA_ROPE("\"type\":\"yarn\",\"factor\":null"), NULL, ATTN_MALFORMED, "rope_scaling"},
    {LLAMA_ROPE("\"type\":\"longrope\",\"factor\":2"), NULL, ATTN_MALFORMED, "rope_scaling"},
    {LLAMA ROPE_SCALING("\"type\":\"dynamic\",\"factor\":2") "}", NULL, ATTN_MALFORMED,
     "max_position_embeddings"},
    {LLAMA ROPE_SCALING("\"type\":\"yarn\",\"factor\":2") "}", NULL, ATTN_MALFORMED,
     "max_position_embeddings"},
    {LLAMA_ROPE("\"type\":\"linear\",\"factor\":0.5"), NULL, ATTN_OUT_OF_RANGE, "factor"},
    {LLAMA_ROPE(YARN ",\"partial_rotary_factor\":0.5"), NULL, ATTN_UNSUPPORTED,
     "partial_rotary_factor"},
    {LLAMA_ROPE(YARN ",\"original_max_position_embeddings\":1"), NULL, ATTN_OUT_OF_RANGE,
     "original_max_position_embeddings"},
    {LLAMA_ROPE(YARN ",\"short_factor\":[1]"), NULL, ATTN_UNSUPPORTED, "short_factor"},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1,1,1]") "}",
     NULL, ATTN_MALFORMED, "short_factor"},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\",\"short_factor\":[1,1,1],\"long_factor\":[1]") "}",
     NULL, ATTN_MALFORMED, "long_factor"},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\",\"short_factor\":[1,0,1],\"long_factor\":[1]") "}",
     NULL, ATTN_OUT_OF_RANGE, "short_factor"},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\",\"short_factor\":[1,\"1\"]") "}", NULL,
     ATTN_MALFORMED, "short_factor"},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\",\"short_factor\":1") "}", NULL, ATTN_MALFORMED,
     "short_factor"},
    {PHI3 ROPE_SCALING("\"type\":\"longrope\",\"short_factor\":[]") "}", NULL, ATTN_OUT_OF_RANGE,
     "short_factor"},
    {BY_TYPE ",\"rope_theta\":5}", NULL, ATTN_MALFORMED, "rope_theta"},
    {CONFIG("gemma2", "512", "4", "1") ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
                                       "\"default\"},\"chunked_attention\":{}}}",
     NULL, ATTN_UNSUPPORTED, "chunked_attention"},
    {CONFIG("gemma2", "512", "4", "1") ",\"rope_parameters\":{\"full_attention\":{}}}", NULL,
     ATTN_MALFORMED, "full_attention"},
    {CONFIG("gemma2", "512", "4", "1") ",\"rope_parameters\":{\"full_attention\":7}}", NULL,
     ATTN_MALFORMED, "full_attention"},
    {BY_TYPE ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}}", NULL, ATTN_MALFORMED,
     "rope_scaling"},
    {BY_TYPE ",\"rope_scaling\":{\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":4}}}",
     NULL, ATTN_MALFORMED, "rope_scaling"},
    /* stacks */
    {T5 "}", "middle", ATTN_UNSUPPORTED, "stack"},
    {BERT "}", "encoder", ATTN_UNSUPPORTED, "stack"},
    {"{\"model_type\":\"t5\",\"d_model\":48,\"num_heads\":4,\"num_decoder_layers\":2}", "encoder",
     ATTN_MALFORMED, "num_layers"},
    {"{\"model_type\":\"t5\",\"d_model\":48,\"num_heads\":4}", NULL, ATTN_MALFORMED,
     "num_decoder_layers"},
};

TEST_EACH(family_refuses_by_name, COUNT(refused))
{
    struct attn_error error = {0};
    const char *text = refused[_i].text;
    enum attn_status status =
        attn_config_read(&config, &(struct attn_config_options){.stack = refused[_i].stack}, text,
                         strlen(text), &error);
    ck_assert_msg(status == refused[_i].status, "%s: got %s (%s)", text, attn_status_name(status),
                  error.message);
    ck_assert_msg(strcmp(error.param, refused[_i].param) == 0, "%s: param is '%s' (%s)", text,
                  error.param, error.message);
    ck_assert_msg(strstr(error.message, error.param) != NULL, "%s", error.message);
}

CASES_OF(families)
