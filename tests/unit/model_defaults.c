/* model_defaults.c: the defaults of absent keys, as Hugging Face's configuration classes have them.
 *
 * The values are those of the classes configuration_*.py of huggingface/transformers v4.55.4
 * (v5.15.0 for what came later: ministral3, olmo3, qwen3_vl, qwen3_5, gemma4, t5gemma, hybrids, and
 * from ministral on those that have no file in v4.55.4), of the code published with the checkpoints
 * of mimo, internlm2, kimi_k2, minicpm3, step3p5 and eurobert (rope_theta), and of PyTorch's
 * documentation; none was taken from the rows of lib/families/.  They were held against stored
 * versions of these classes, but for internlm2, kimi_k2 and PyTorch's.  Other versions differ:
 * rope_theta of qwen3_vl was 5e6 before, that of cohere is 5e5 since, and gpt_oss has been trained
 * on 4,096 tokens since. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/family.h"
#include "model_cases.h"

/* Sizes without which a model cannot be described (hidden_size, ...) have defaults in the classes,
 * but must be given here; so they stand only where published files leave them out. */
#define MISTRAL4                                                                            \
    "kv_lora_rank=256 q_lora_rank=1024 qk_nope_head_dim=64 qk_rope_head_dim=64 "            \
    "v_head_dim=128 max_position_embeddings=1048576 rope_interleave=true rope_theta=10000 " \
    "rope.factor=128 rope.original_max_position_embeddings=8192 rope.beta_fast=32 "         \
    "rope.beta_slow=1 rope.mscale=1 rope.mscale_all_dim=1 rope.llama_4_scaling_beta=0.1"

static const struct {
    const char *type, *submodel, *stack;
    const char *values; /* "key=value"; "rope.key" is a key of the default RoPE object */
} documented[] = {
    {"llama", NULL, NULL, "attention_bias=false rope_theta=10000"},
    {"mistral", NULL, NULL, "num_key_value_heads=8 sliding_window=4096 rope_theta=10000"},
    {"mixtral", NULL, NULL, "num_key_value_heads=8 sliding_window=0 rope_theta=1e6"},
    {"ministral3", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 max_position_embeddings=262144 sliding_window=0 "
     "rope_theta=1e6 rope.factor=16 rope.original_max_position_embeddings=16384 rope.beta_fast=32 "
     "rope.beta_slow=1 rope.mscale=1 rope.mscale_all_dim=1 rope.llama_4_scaling_beta=0.1"},
    {"mistral3", "ministral3", NULL,
     "num_key_value_heads=8 head_dim=128 max_position_embeddings=262144 sliding_window=0 "
     "rope_theta=1e6 rope.factor=16 rope.llama_4_scaling_beta=0.1"},
    {"mistral3", "mistral", NULL, "num_key_value_heads=8 sliding_window=4096 rope_theta=10000"},
    {"mistral3", "mistral4", NULL, MISTRAL4},
    {"mistral4", NULL, NULL, MISTRAL4},
    {"ministral", NULL, NULL, "num_key_value_heads=8 sliding_window=4096 rope_theta=10000"},
    {"eurobert", NULL, NULL, "attention_bias=false rope_theta=250000"},
#define LLAMA4                                                                           \
    "num_key_value_heads=8 head_dim=128 max_position_embeddings=131072 rope_theta=5e5 "  \
    "attention_bias=false rms_norm_eps=1e-5 use_qk_norm=true attention_chunk_size=8192 " \
    "attn_temperature_tuning=true attn_scale=0.1 floor_scale=8192 no_rope_layer_interval=4"
    {"llama4", NULL, NULL, LLAMA4},
    {"llama4_text", NULL, NULL, LLAMA4},
    {"gpt_oss", NULL, NULL,
     "num_key_value_heads=8 head_dim=64 max_position_embeddings=131072 attention_bias=true "
     "sliding_window=128 rope_theta=150000 rope.factor=32 rope.beta_fast=32 rope.beta_slow=1 "
     "rope.truncate=false"},
    {"phi", NULL, NULL, "partial_rotary_factor=0.5 rope_theta=10000"},
    {"phi3", NULL, NULL,
     "max_position_embeddings=4096 original_max_position_embeddings=4096 sliding_window=0 "
     "rope_theta=10000"},
#define QWEN                                                                              \
    "num_key_value_heads=32 sliding_window=4096 use_sliding_window=false rope_theta=1e4 " \
    "max_window_layers=28"
    {"qwen2", NULL, NULL, QWEN " is_causal=true"},
    {"qwen2_5_omni_text", NULL, NULL,
     "num_key_value_heads=4 sliding_window=32768 use_sliding_window=false rope_theta=1e6 "
     "max_window_layers=28 is_causal=true"},
    {"qwen3", NULL, NULL, QWEN " head_dim=128 attention_bias=false rms_norm_eps=1e-6"},
#define MOE_WINDOW " sliding_window=4096 use_sliding_window=false"
    {"qwen2_moe", NULL, NULL, "num_key_value_heads=16 rope_theta=10000 qkv_bias=true" MOE_WINDOW},
    {"qwen3_moe", NULL, NULL,
     "num_key_value_heads=4 rope_theta=10000 attention_bias=false rms_norm_eps=1e-6" MOE_WINDOW},
    {"qwen3_omni_moe_text", NULL, NULL,
     "num_key_value_heads=4 rope_theta=1e6 attention_bias=false rms_norm_eps=1e-6" MOE_WINDOW},
    {"qwen2_vl", NULL, NULL, "num_key_value_heads=8 rope_theta=1e6"},
    {"qwen2_5_vl", NULL, NULL, "num_key_value_heads=8 rope_theta=1e6"},
    {"qwen2_vl_text", NULL, NULL, "num_key_value_heads=8 rope_theta=1e6"},
    {"qwen2_5_vl_text", NULL, NULL, "num_key_value_heads=8 rope_theta=1e6"},
    {"qwen3_vl", NULL, NULL,
     "num_key_value_heads=32 head_dim=128 rope_theta=5e5 attention_bias=false rms_norm_eps=1e-6"},
    {"qwen3_vl_moe", NULL, NULL,
     "num_key_value_heads=16 rope_theta=5e5 attention_bias=false rms_norm_eps=1e-6"},
    {"qwen3_vl_text", NULL, NULL,
     "num_key_value_heads=32 head_dim=128 rope_theta=5e5 attention_bias=false rms_norm_eps=1e-6"},
    {"qwen3_vl_moe_text", NULL, NULL,
     "num_key_value_heads=16 rope_theta=5e5 attention_bias=false rms_norm_eps=1e-6"},
#define QWEN3_NEXT                                                                   \
    "attention_bias=false head_dim=256 rope_theta=10000 partial_rotary_factor=0.25 " \
    "rms_norm_eps=1e-6"
    {"qwen3_next", NULL, NULL, QWEN3_NEXT " num_key_value_heads=2 full_attention_interval=4"},
    {"qwen3_5", NULL, NULL, QWEN3_NEXT " num_key_value_heads=4 full_attention_interval=4"},
    {"qwen3_5_text", NULL, NULL, QWEN3_NEXT " num_key_value_heads=4 full_attention_interval=4"},
    {"qwen3_5_moe_text", NULL, NULL, QWEN3_NEXT " num_key_value_heads=2 full_attention_interval=4"},
    {"qwen3_5_moe", NULL, NULL, QWEN3_NEXT " num_key_value_heads=2 full_attention_interval=4"},
    {"gemma", NULL, NULL,
     "num_key_value_heads=16 head_dim=256 attention_bias=false rope_theta=10000"},
#define GEMMA2                                                                           \
    "num_key_value_heads=4 head_dim=256 attention_bias=false query_pre_attn_scalar=256 " \
    "attn_logit_softcapping=50 sliding_window=4096 rope_theta=10000"
    {"gemma2", NULL, NULL, GEMMA2},
    {"vaultgemma", NULL, NULL, GEMMA2},
#define GEMMA3N                                                                       \
    "hidden_size=2048 num_attention_heads=8 num_key_value_heads=2 head_dim=256 "      \
    "num_hidden_layers=35 max_position_embeddings=32768 attention_bias=false "        \
    "rms_norm_eps=1e-6 sliding_window=512 rope_theta=1e6 rope_local_base_freq=10000 " \
    "num_kv_shared_layers=15"
    {"gemma3n", NULL, NULL, GEMMA3N},
    {"gemma3n_text", NULL, NULL, GEMMA3N},
#define GEMMA                                                                    \
    "hidden_size=2304 num_attention_heads=8 num_key_value_heads=4 head_dim=256 " \
    "max_position_embeddings=131072 rope_theta=1e6 rms_norm_eps=1e-6"
#define GEMMA3                                                                     \
    GEMMA " num_hidden_layers=26 attention_bias=false query_pre_attn_scalar=256 "  \
          "attn_logit_softcapping=0 sliding_window=4096 sliding_window_pattern=6 " \
          "rope_local_base_freq=10000 use_bidirectional_attention=false"
    {"gemma3", NULL, NULL, GEMMA3},
    {"gemma3_text", NULL, NULL, GEMMA3},
#define GEMMA4                                                                                 \
    GEMMA " num_hidden_layers=30 attention_bias=false sliding_window=512 global_head_dim=512 " \
          "num_global_key_value_heads=0 attention_k_eq_v=false num_kv_shared_layers=0 "        \
          "partial_rotary_factor=0.25"
    {"gemma4", NULL, NULL, GEMMA4},
    {"gemma4_text", NULL, NULL, GEMMA4},
    {"gemma4_unified", NULL, NULL, GEMMA4},
    {"gemma4_unified_text", NULL, NULL, GEMMA4},
#define GRANITE "attention_multiplier=1 attention_bias=false rope_theta=10000"
    {"granite", NULL, NULL, GRANITE},
    {"granitemoe", NULL, NULL, GRANITE},
    {"granitemoeshared", NULL, NULL, GRANITE},
    {"granite_swa", NULL, NULL, GRANITE " num_key_value_heads=4 sliding_window=128"},
    {"granitemoe_swa", NULL, NULL, GRANITE " sliding_window=128"},
    {"hyperclovax", NULL, NULL, "attention_multiplier=0 attention_bias=false rope_theta=10000"},
    {"arcee", NULL, NULL, "attention_bias=false rope_theta=10000"},
    {"jais2", NULL, NULL, "attention_bias=true rope_theta=10000"},
    {"solar_open", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 attention_bias=false rope_theta=1e6"},
    {"apertus", NULL, NULL,
     "attention_bias=false rms_norm_eps=1e-5 rope_theta=12e6 rope.factor=8 "
     "rope.original_max_position_embeddings=8192 rope.low_freq_factor=1 rope.high_freq_factor=4"},
    {"cwm", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 max_position_embeddings=131072 sliding_window=8192 "
     "rope_theta=1e6 rope.factor=16 rope.original_max_position_embeddings=8192 "
     "rope.low_freq_factor=1 rope.high_freq_factor=4"},
    {"phimoe", NULL, NULL,
     "num_key_value_heads=8 attention_bias=false max_position_embeddings=131072 sliding_window=0 "
     "rope_theta=1e6"},
    {"dots1", NULL, NULL,
     "num_key_value_heads=32 attention_bias=false rms_norm_eps=1e-6 sliding_window=4096 "
     "max_window_layers=62 rope_theta=10000"},
    {"mellum", NULL, NULL,
     "num_key_value_heads=4 head_dim=128 attention_bias=false rms_norm_eps=1e-6 "
     "sliding_window=1024 rope_theta=5e5"},
    {"chameleon", NULL, NULL, "attention_bias=false rope_theta=10000"},
    {"moshi", NULL, NULL, "sliding_window=3000 rope_theta=10000"},
    {"kyutai_speech_to_text", NULL, NULL, "sliding_window=375 rope_theta=100000"},
    {"mobilebert", NULL, NULL, "intra_bottleneck_size=128"},
    {"bigbird_pegasus", NULL, "encoder", "block_size=64 num_random_blocks=3 use_bias=false"},
#define MIMI "num_key_value_heads=8 attention_bias=false sliding_window=250 rope_theta=10000"
    {"mimi", NULL, "decoder", MIMI},
    {"mimi", NULL, "encoder", MIMI},
#define TOWER_1152 "hidden_size=1152 num_attention_heads=16 num_hidden_layers=12"
    {"idefics3_vision", NULL, NULL, TOWER_1152},
    {"smolvlm_vision", NULL, NULL, TOWER_1152},
    {"internvl_vision", NULL, NULL,
     "hidden_size=1024 num_attention_heads=16 num_hidden_layers=24 attention_bias=false "
     "use_qk_norm=false"},
    {"step3p5", NULL, NULL,
     "num_attention_groups=8 num_key_value_heads=8 head_dim=128 rms_norm_eps=1e-5"},
    {"laguna", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 rms_norm_eps=1e-6 sliding_window=512 rope_theta=5e5 "
     "partial_rotary_factor=0.5"},
    {"afmoe", NULL, NULL,
     "head_dim=128 rms_norm_eps=1e-5 sliding_window=1024 global_attn_every_n_layers=4 "
     "rope_theta=10000"},
#define MUSE                                                                    \
    "num_key_value_heads=2 head_dim=128 rms_norm_eps=1e-5 sliding_window=2048 " \
    "qk_scale_factor=3.87 rope_theta=10000"
    {"muse_glimmer", NULL, NULL, MUSE},
    {"muse_glimmer_text", NULL, NULL, MUSE},
    {"smollm3", NULL, NULL,
     "num_key_value_heads=4 rope_theta=2e6 attention_bias=false no_rope_layer_interval=4 "
     "sliding_window=0 use_sliding_window=false"},
    {"starcoder2", NULL, NULL,
     "num_key_value_heads=2 rope_theta=1e4 sliding_window=0 use_bias=true"},
    {"stablelm", NULL, NULL,
     "num_key_value_heads=32 rope_theta=10000 partial_rotary_factor=0.25 use_qkv_bias=false "
     "qk_layernorm=false layer_norm_eps=1e-5"},
#define GLM                                                                    \
    "num_key_value_heads=2 head_dim=128 rope_theta=10000 attention_bias=true " \
    "partial_rotary_factor=0.5"
    {"glm", NULL, NULL, GLM},
    {"glm4", NULL, NULL, GLM},
#define GLM4V "num_key_value_heads=2 rope_theta=10000 attention_bias=true partial_rotary_factor=0.5"
    {"glm4v", NULL, NULL, GLM4V},
    {"glm4v_text", NULL, NULL, GLM4V},
    {"glm4_moe", NULL, NULL,
     "num_key_value_heads=8 rope_theta=10000 attention_bias=false partial_rotary_factor=0.5 "
     "rms_norm_eps=1e-5 use_qk_norm=false"},
#define GLM4V_MOE \
    "num_key_value_heads=8 rope_theta=10000 attention_bias=true partial_rotary_factor=0.5"
    {"glm4v_moe", NULL, NULL, GLM4V_MOE},
    {"glm4v_moe_text", NULL, NULL, GLM4V_MOE},
    {"minimax_m2", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 rms_norm_eps=1e-6 rotary_dim=0 rope_theta=5e6"},
    {"helium", NULL, NULL,
     "num_key_value_heads=20 head_dim=128 rope_theta=1e5 attention_bias=false"},
    {"seed_oss", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 rope_theta=1e4 attention_bias=true "
     "attention_out_bias=false"},
    {"diffllama", NULL, NULL, "rope_theta=10000 attention_bias=false rms_norm_eps=1e-5"},
    {"doge", NULL, NULL, "rope_theta=10000 keep_window_size=2048 rms_norm_eps=1e-6"},
    {"mimo", NULL, NULL, "num_key_value_heads=32 rope_theta=10000"},
    {"mimo_v2_flash", NULL, NULL, "rope_theta=5e6 swa_rope_theta=10000"},
    {"hunyuan_v1_dense", NULL, NULL, "rope_theta=10000 attention_bias=false rms_norm_eps=1e-5"},
    {"hunyuan_v1_moe", NULL, NULL, "rope_theta=10000 attention_bias=false rms_norm_eps=1e-5"},
    {"ernie4_5_moe", NULL, NULL, "num_key_value_heads=4 rope_theta=5e5 use_bias=false"},
    {"ernie4_5", NULL, NULL, "num_key_value_heads=2 head_dim=128 rope_theta=5e5 use_bias=false"},
    {"internlm2", NULL, NULL, "rope_theta=10000"},
    {"olmo2", NULL, NULL, "rope_theta=10000 attention_bias=false rms_norm_eps=1e-5"},
    {"flex_olmo", NULL, NULL, "rope_theta=5e5 attention_bias=false rms_norm_eps=1e-6"},
    {"olmoe", NULL, NULL, "rope_theta=10000 attention_bias=false rms_norm_eps=1e-5 clip_qkv=0"},
    {"olmo", NULL, NULL, "rope_theta=10000 attention_bias=false clip_qkv=0"},
    {"olmo3", NULL, NULL,
     "rope_theta=5e5 attention_bias=false rms_norm_eps=1e-5 sliding_window=4096"},
#define EXAONE                                                                       \
    "num_key_value_heads=32 rope_theta=10000 rms_norm_eps=1e-5 sliding_window=4096 " \
    "sliding_window_pattern=4"
    {"exaone4", NULL, NULL, EXAONE},
    {"exaone_moe", NULL, NULL, EXAONE},
    {"cohere2_moe", NULL, NULL,
     "head_dim=128 rope_theta=10000 attention_bias=false sliding_window=4096 "
     "sliding_window_pattern=4 first_k_dense_replace=0 prefix_dense_sliding_window_pattern=1"},
    {"cohere", NULL, NULL,
     "rope_theta=10000 attention_bias=false layer_norm_eps=1e-5 use_qk_norm=false"},
    {"cohere2", NULL, NULL,
     "rope_theta=10000 attention_bias=false sliding_window=4096 sliding_window_pattern=4"},
    {"persimmon", NULL, NULL,
     "rope_theta=25000 partial_rotary_factor=0.5 layer_norm_eps=1e-5 qk_layernorm=true"},
    {"nemotron", NULL, NULL, "rope_theta=10000 attention_bias=false partial_rotary_factor=0.5"},
    {"nanochat", NULL, NULL, "rope_theta=10000 attention_bias=false rms_norm_eps=1e-6"},
    {"bitnet", NULL, NULL,
     "num_key_value_heads=5 rope_theta=5e5 attention_bias=false rms_norm_eps=1e-5"},
    {"nemotron-nas", NULL, NULL, "rope_theta=10000"},
    {"nemotron_h", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 attention_head_dim=128 attention_bias=false"},
    {"granitemoehybrid", NULL, NULL,
     "attention_multiplier=1 attention_bias=false rope_theta=10000"},
    {"falcon_h1", NULL, NULL,
     "num_key_value_heads=8 attention_bias=false key_multiplier=1 rope_theta=100000"},
    {"jamba", NULL, NULL, "num_key_value_heads=8 attn_layer_period=8 attn_layer_offset=4"},
    {"bamba", NULL, NULL,
     "num_key_value_heads=8 rope_theta=10000 partial_rotary_factor=0.5 attn_rotary_emb=0"},
#define LFM2 "num_key_value_heads=8 rope_theta=1e6 theta=1e6 norm_eps=1e-5"
    {"lfm2", NULL, NULL, LFM2},
    {"lfm2_moe", NULL, NULL, LFM2},
    {"olmo_hybrid", NULL, NULL, "attention_bias=false rms_norm_eps=1e-6 rope_theta=0"},
    {"phi4_multimodal", NULL, NULL,
     "num_key_value_heads=8 max_position_embeddings=131072 original_max_position_embeddings=4096 "
     "sliding_window=0 rope_theta=10000"},
    {"exaone", NULL, NULL, "rope_theta=10000"},
    {"qwen", NULL, NULL,
     "kv_channels=128 rotary_emb_base=10000 use_dynamic_ntk=true use_logn_attn=true"},
    {"chatglm", NULL, NULL, "kv_channels=128 multi_query_group_num=1 add_qkv_bias=false"},
    {"gpt_neo", NULL, NULL, "window_size=256"},
    {"codegen", NULL, NULL, "rotary_dim=64"},
    {"gpt_bigcode", NULL, NULL, "multi_query=true scale_attn_weights=true"},
    {"dbrx", NULL, NULL,
     "num_key_value_heads=1 attn_config.kv_n_heads=1 attn_config.clip_qkv=0 "
     "attn_config.rope_theta=10000"},
#define DEEPSEEK \
    "kv_lora_rank=512 q_lora_rank=1536 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128"
    {"deepseek_v2", NULL, NULL, DEEPSEEK " rope_theta=10000"},
    {"deepseek_v3", NULL, NULL, DEEPSEEK " rope_theta=10000 rope_interleave=true"},
    {"deepseek_v32", NULL, NULL,
     DEEPSEEK " rope_theta=10000 rope_interleave=true index_n_heads=64 index_head_dim=128 "
              "index_topk=2048"},
    {"glm_moe_dsa", NULL, NULL,
     "kv_lora_rank=512 q_lora_rank=2048 qk_nope_head_dim=192 qk_rope_head_dim=64 v_head_dim=256 "
     "rope_theta=10000 rope_interleave=true indexer_rope_interleave=true index_n_heads=32 "
     "index_head_dim=128 index_topk=2048 index_skip_topk_offset=2"},
    {"kimi_linear", NULL, NULL,
     "kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128"},
    {"phi3_v", NULL, NULL,
     "max_position_embeddings=4096 original_max_position_embeddings=4096 sliding_window=0 "
     "rope_theta=10000"},
    {"kimi_k2", NULL, NULL, DEEPSEEK " rope_theta=50000 rope_interleave=true"},
    {"axk1", NULL, NULL, DEEPSEEK " rope_theta=10000 rope_interleave=true"},
    {"youtu", NULL, NULL, DEEPSEEK " rope_theta=10000 rope_interleave=true"},
    {"glm4_moe_lite", NULL, NULL,
     "kv_lora_rank=512 q_lora_rank=768 qk_nope_head_dim=192 qk_rope_head_dim=64 v_head_dim=256 "
     "rope_theta=10000 rope_interleave=true"},
    {"longcat_flash", NULL, NULL,
     DEEPSEEK " rope_theta=1e7 mla_scale_q_lora=true mla_scale_kv_lora=true"},
    {"minicpm3", NULL, NULL,
     "kv_lora_rank=256 q_lora_rank=768 qk_nope_head_dim=64 qk_rope_head_dim=32 rope_theta=10000"},
#define PLAIN "rope_theta=10000 attention_bias=false"
    {"aria_text", NULL, NULL, PLAIN},
    {"minicpm", NULL, NULL, PLAIN},
    {"xverse", NULL, NULL, PLAIN},
    {"orion", NULL, NULL, PLAIN},
    {"deepseek", NULL, NULL, PLAIN},
    {"emu3_text_model", NULL, NULL, "num_key_value_heads=8 rope_theta=1e6 attention_bias=false"},
    {"csm", NULL, NULL, "num_key_value_heads=8 rope_theta=500000 attention_bias=false"},
#define BAILING "rope_theta=10000 rms_norm_eps=1e-6 use_qkv_bias=false use_qk_norm=false"
    {"bailing_moe", NULL, NULL, BAILING},
    {"bailing_moe_v2", NULL, NULL, BAILING},
    {"minimax", NULL, NULL, "num_key_value_heads=8 rope_theta=10000"},
    {"minimax_text_01", NULL, NULL, "num_key_value_heads=8 rope_theta=10000"},
    {"minimax_m1", NULL, NULL, "num_key_value_heads=8 rope_theta=10000"},
    {"recurrent_gemma", NULL, NULL,
     "attention_window_size=2048 attention_bias=false partial_rotary_factor=0.5 rope_theta=10000"},
    {"hy_v3", NULL, NULL,
     "num_key_value_heads=8 head_dim=128 rope_theta=11158840 rms_norm_eps=1e-5 "
     "attention_bias=false"},
#define ERNIE_VL "num_key_value_heads=4 rope_theta=500000 use_bias=false"
    {"ernie4_5_vl_moe", "ernie4_5_vl_moe_text", NULL, ERNIE_VL},
    {"ernie4_5_vl_moe_text", NULL, NULL, ERNIE_VL},
#define PADDLE_OCR "num_key_value_heads=2 head_dim=128 rope_theta=500000 use_bias=false"
    {"paddleocr_vl", "paddleocr_vl_text", NULL, PADDLE_OCR},
    {"paddleocr_vl_text", NULL, NULL, PADDLE_OCR},
    {"glm_ocr", "glm_ocr_text", NULL, "num_key_value_heads=8 rope_theta=10000"},
    {"glm_ocr_text", NULL, NULL, "num_key_value_heads=8 rope_theta=10000"},
#define GLM_IMAGE "num_key_value_heads=2 rope_theta=10000 attention_bias=true"
    {"glm_image", "glm_image_text", NULL, GLM_IMAGE},
    {"glm_image_text", NULL, NULL, GLM_IMAGE},
    {"modernbert-decoder", NULL, NULL,
     "attention_bias=false local_attention=128 global_attn_every_n_layers=3 "
     "global_rope_theta=160000 local_rope_theta=10000"},
    {"openai_privacy_filter", NULL, NULL,
     "num_key_value_heads=2 head_dim=64 max_position_embeddings=131072 attention_bias=true "
     "sliding_window=128 rope_theta=150000 rope.factor=32 rope.beta_fast=32 rope.beta_slow=1 "
     "rope.truncate=false rope.original_max_position_embeddings=4096"},
    {"vilt", NULL, NULL, "qkv_bias=true"},
    {"videomae", NULL, NULL, "qkv_bias=true"},
    {"vitpose_backbone", NULL, NULL, "qkv_bias=true"},
    {"imagegpt", NULL, NULL, "scale_attn_weights=true scale_attn_by_inverse_layer_idx=false"},
    {"gpt2", NULL, NULL, "scale_attn_weights=true scale_attn_by_inverse_layer_idx=false"},
    {"gpt_neox", NULL, NULL,
     "attention_bias=true rotary_pct=0.25 rotary_emb_base=10000 partial_rotary_factor=0.25 "
     "rope_theta=10000"},
    {"gptj", NULL, NULL, "rotary_dim=64"},
    {"falcon", NULL, NULL,
     "new_decoder_architecture=false multi_query=true bias=false alibi=false rope_theta=10000"},
    {"opt", NULL, NULL, "enable_bias=true"},
    {"bert", NULL, NULL, "is_decoder=false"},
    {"albert", NULL, NULL, "num_hidden_groups=1"},
    {"big_bird", NULL, NULL, "use_bias=true block_size=64 num_random_blocks=3"},
    {"layoutlmv3", NULL, NULL, "has_relative_attention_bias=true has_spatial_attention_bias=true"},
    {"deberta", NULL, NULL, "max_position_embeddings=512"},
    {"beit", NULL, NULL, "image_size=224 patch_size=16"},
    {"data2vec-vision", NULL, NULL, "image_size=224 patch_size=16"},
    {"dinov3_vit", NULL, NULL, "rope_theta=100 query_bias=true value_bias=true proj_bias=true"},
    {"wavlm", NULL, NULL, "num_buckets=320 max_bucket_distance=800"},
    {"wav2vec2-bert", NULL, NULL,
     "left_max_position_embeddings=64 right_max_position_embeddings=8"},
    {"jina_embeddings_v3", NULL, NULL, "rope_theta=20000"},
    {"nomic_bert", NULL, NULL, "scale_attn_weights=true"},
    {"vit", NULL, NULL, "qkv_bias=true"},
    {"audio-spectrogram-transformer", NULL, NULL, "qkv_bias=true"},
    {"deit", NULL, NULL, "qkv_bias=true"},
    {"dinov2", NULL, NULL, "qkv_bias=true"},
    {"dinov2_with_registers", NULL, NULL, "qkv_bias=true"},
    {"dpt", NULL, NULL, "qkv_bias=true"},
    {"ijepa", NULL, NULL, "qkv_bias=true"},
    {"vit_mae", NULL, NULL, "qkv_bias=true"},
    {"vit_msn", NULL, NULL, "qkv_bias=true"},
    {"vivit", NULL, NULL, "qkv_bias=true"},
    {"yolos", NULL, NULL, "qkv_bias=true"},
    {"modernbert", NULL, NULL,
     "attention_bias=false local_attention=128 global_attn_every_n_layers=3 "
     "global_rope_theta=160000 local_rope_theta=10000"},
    {"deberta-v2", NULL, NULL,
     "max_position_embeddings=512 relative_attention=false layer_norm_eps=1e-7"},
#define T5 "d_kv=64 relative_attention_num_buckets=32 relative_attention_max_distance=128"
    {"t5", NULL, "encoder", T5},
    {"t5", NULL, "decoder", T5},
    {"t5", NULL, "cross", "d_kv=64"},
    {"mt5", NULL, "encoder", T5},
    {"mt5", NULL, "decoder", T5},
    {"mt5", NULL, "cross", "d_kv=64"},
    {"umt5", NULL, "encoder", T5},
    {"umt5", NULL, "decoder", T5},
    {"umt5", NULL, "cross", "d_kv=64"},
    {"switch_transformers", NULL, "encoder", T5},
    {"switch_transformers", NULL, "decoder", T5 " num_decoder_layers=12"},
    {"switch_transformers", NULL, "cross", "d_kv=64 num_decoder_layers=12"},
    {"longt5", NULL, "encoder", T5 " local_radius=127"},
    {"longt5", NULL, "decoder", T5},
    {"longt5", NULL, "cross", "d_kv=64"},
    {"speecht5", NULL, "encoder", "encoder_max_relative_position=160"},
#define MOONSHINE "attention_bias=false partial_rotary_factor=0.9 rope_theta=10000"
    {"moonshine", NULL, "encoder", MOONSHINE},
    {"moonshine", NULL, "decoder", MOONSHINE},
    {"moonshine", NULL, "cross", "attention_bias=false"},
#define T5GEMMA                                                                          \
    "num_key_value_heads=4 head_dim=256 attention_bias=false query_pre_attn_scalar=256 " \
    "attn_logit_softcapping=50"
    {"t5gemma", NULL, "encoder", T5GEMMA " sliding_window=4096 rope_theta=10000"},
    {"t5gemma", NULL, "decoder", T5GEMMA " sliding_window=4096 rope_theta=10000"},
    {"t5gemma", NULL, "cross", T5GEMMA},
    {"blip", NULL, "text",
     "hidden_size=768 num_hidden_layers=12 num_attention_heads=8 is_decoder=true"},
    {"blip", NULL, "vision", "hidden_size=768 num_hidden_layers=12 num_attention_heads=12"},
    {"blip", NULL, "cross", "hidden_size=768 num_hidden_layers=12 num_attention_heads=8"},
    {"mllama", NULL, "decoder", "num_key_value_heads=8 rope_theta=5e5"},
    {"mllama", NULL, "cross", "num_key_value_heads=8 rms_norm_eps=1e-5"},
    {"paligemma", "gemma", NULL,
     "num_key_value_heads=16 head_dim=256 attention_bias=false rope_theta=10000"},
#define CLIP_TEXT "hidden_size=512 num_attention_heads=8 num_hidden_layers=12"
#define TOWER "hidden_size=768 num_attention_heads=12 num_hidden_layers=12"
    {"clip", NULL, "text", CLIP_TEXT " max_position_embeddings=77"},
    {"clip", NULL, "vision", TOWER},
    {"clip_text_model", NULL, NULL, CLIP_TEXT " max_position_embeddings=77"},
    {"clip_vision_model", NULL, NULL, TOWER},
    {"chinese_clip", NULL, "vision", TOWER},
    {"altclip", NULL, "vision", TOWER},
    {"clipseg", NULL, "text", CLIP_TEXT " max_position_embeddings=77"},
    {"clipseg", NULL, "vision", TOWER},
    {"metaclip_2", NULL, "text", CLIP_TEXT " max_position_embeddings=77"},
    {"metaclip_2", NULL, "vision", TOWER},
    {"xclip", NULL, "text", CLIP_TEXT " max_position_embeddings=77"},
    {"xclip", NULL, "vision", TOWER},
    {"owlvit", NULL, "text", CLIP_TEXT " max_position_embeddings=16"},
    {"owlvit", NULL, "vision", TOWER},
    {"owlv2", NULL, "text", CLIP_TEXT " max_position_embeddings=16"},
    {"owlv2", NULL, "vision", TOWER},
    {"siglip", NULL, "text", TOWER " max_position_embeddings=64"},
    {"siglip", NULL, "vision", TOWER},
    {"siglip_text_model", NULL, NULL, TOWER " max_position_embeddings=64"},
    {"siglip_vision_model", NULL, NULL, TOWER},
    {"siglip2", NULL, "text", TOWER " max_position_embeddings=64"},
    {"siglip2", NULL, "vision", TOWER},
    {"siglip2_text_model", NULL, NULL, TOWER " max_position_embeddings=64"},
    {"siglip2_vision_model", NULL, NULL, TOWER},
    {"torch_multihead_attention", NULL, NULL,
     "bias=true add_bias_kv=false add_zero_attn=false is_causal=false num_hidden_layers=1"},
    /* a format of ours: docs/MODELS.md */
    {"attention", NULL, NULL, "num_hidden_layers=1 num_layers=1 rms_norm_eps=1e-6"},
};
#define NUM_DOCUMENTED COUNT(documented)

/* The default of a key as a number; -1: a key that has none. */
static double default_of(const struct attn_hf_key *key, const void *defaults)
{
    const void *field = (const char *)defaults + key->offset;
    switch (key->kind) {
    case ATTN_CONFIG_INTEGER:
    case ATTN_CONFIG_PERIOD:
        return (double)*(const size_t *)field;
    case ATTN_CONFIG_NUMBER:
        return *(const double *)field;
    case ATTN_CONFIG_FLAG:
        return *(const bool *)field;
    default:
        return -1;
    }
}

static double number_of(const char *text)
{
    return strncmp(text, "true", 4) == 0    ? 1
           : strncmp(text, "false", 5) == 0 ? 0
                                            : strtod(text, NULL);
}

/* The key of that name, of the family or of its RoPE object; *defaults are those that it fills. */
static const struct attn_hf_key *key_of(const void **defaults, const struct attn_family *family,
                                        const char *name)
{
    const bool rope = strncmp(name, "rope.", 5) == 0;
    const struct attn_hf_key *key =
        attn_hf_key_find(rope ? attn_rope_keys : family->keys, rope ? name + 5 : name);
    *defaults = rope ? (const void *)&family->defaults.rope : &family->defaults;
    return key == NULL && rope ? attn_hf_key_find(family->rope_keys, name + 5) : key;
}

TEST_EACH(model_defaults_are_the_documented_ones, NUM_DOCUMENTED)
{
    const char *type = documented[_i].type;
    const struct attn_family *family =
        attn_family_find(type, documented[_i].submodel, documented[_i].stack);
    ck_assert_msg(family != NULL, "%s", type);
    size_t compared = 0;
    for (const char *at = documented[_i].values; *at != '\0'; compared++) {
        char name[64];
        const void *defaults;
        const size_t length = strcspn(at, "=");
        ck_assert_uint_lt(length, sizeof name);
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        const struct attn_hf_key *key = key_of(&defaults, family, name);
        ck_assert_msg(key != NULL, "%s has no key %s", type, name);
        ck_assert_msg(default_of(key, defaults) == number_of(at + length + 1), "%s: %s is %g", type,
                      name, default_of(key, defaults));
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    ck_assert_uint_gt(compared, 0);
}

/* Whether the table has the key of that row. */
static bool is_documented(const struct attn_family *family, const char *name)
{
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s=", name);
    for (size_t i = 0; i < NUM_DOCUMENTED; i++) {
        const char *values = documented[i].values, *at = values;
        if (attn_family_find(documented[i].type, documented[i].submodel, documented[i].stack) !=
            family)
            continue;
        while ((at = strstr(at, wanted)) != NULL && at != values && at[-1] != ' ')
            at++;
        return at != NULL;
    }
    return false;
}

TEST(model_defaults_of_every_family_are_documented)
{
    const struct attn_family *family;
    size_t keys = 0;
    for (size_t i = 0; (family = attn_family_at(i)) != NULL; i++)
        for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++) {
            if (default_of(key, &family->defaults) <= 0)
                continue;
            ck_assert_msg(is_documented(family, key->name), "%s, %s: %s is %g; where is it from?",
                          family->model_type, family->stack != NULL ? family->stack : "", key->name,
                          default_of(key, &family->defaults));
            keys++;
        }
    ck_assert_uint_ge(keys, 280);
}

CASES_OF(defaults)
