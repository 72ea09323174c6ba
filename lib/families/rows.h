/* rows.h: the rows of the table of families, for family.c. */
#ifndef ATTN_LIB_FAMILIES_ROWS_H
#define ATTN_LIB_FAMILIES_ROWS_H

#include "families/family.h"

extern const struct attn_family attn_family_llama, attn_family_mistral, attn_family_qwen2,
    attn_family_qwen3, attn_family_gemma2, attn_family_gpt_oss, attn_family_phi, attn_family_phi3;

extern const struct attn_family attn_family_gpt2, attn_family_gpt_neox, attn_family_gptj,
    attn_family_falcon, attn_family_bloom, attn_family_opt, attn_family_mpt;

extern const struct attn_family attn_family_t5_decoder, attn_family_t5_encoder,
    attn_family_t5_cross, attn_family_mt5_decoder, attn_family_mt5_encoder, attn_family_mt5_cross,
    attn_family_torch;

extern const struct attn_family attn_family_bert, attn_family_roberta, attn_family_xlm_roberta,
    attn_family_camembert, attn_family_electra, attn_family_ernie, attn_family_albert,
    attn_family_mpnet, attn_family_distilbert, attn_family_xlm, attn_family_modernbert,
    attn_family_deberta_v2;

extern const struct attn_family attn_family_vit, attn_family_clip_text, attn_family_clip_vision,
    attn_family_clip_text_model, attn_family_clip_vision_model, attn_family_siglip_text,
    attn_family_siglip_vision, attn_family_siglip_text_model, attn_family_siglip_vision_model;

extern const struct attn_family attn_family_bart_decoder, attn_family_bart_encoder,
    attn_family_bart_cross, attn_family_mbart_decoder, attn_family_mbart_encoder,
    attn_family_mbart_cross, attn_family_whisper_decoder, attn_family_whisper_encoder,
    attn_family_whisper_cross, attn_family_wav2vec2, attn_family_hubert;

extern const struct attn_family attn_family_mixtral, attn_family_ministral3, attn_family_mistral3,
    attn_family_mistral3_mistral, attn_family_llama4, attn_family_llama4_text;

extern const struct attn_family attn_family_qwen2_moe, attn_family_qwen3_moe, attn_family_qwen2_vl,
    attn_family_qwen2_5_vl, attn_family_qwen3_vl, attn_family_qwen3_vl_moe, attn_family_qwen3_next,
    attn_family_qwen3_5, attn_family_qwen3_5_moe;

extern const struct attn_family attn_family_gemma, attn_family_gemma3, attn_family_gemma3_text,
    attn_family_gemma4, attn_family_gemma4_text;

extern const struct attn_family attn_family_granite, attn_family_smollm3, attn_family_starcoder2,
    attn_family_stablelm, attn_family_glm, attn_family_glm4, attn_family_helium,
    attn_family_seed_oss, attn_family_mimo, attn_family_hunyuan_v1_dense, attn_family_ernie4_5,
    attn_family_internlm2, attn_family_olmo2, attn_family_olmo3, attn_family_exaone4,
    attn_family_cohere, attn_family_cohere2, attn_family_persimmon, attn_family_nemotron;

extern const struct attn_family attn_family_deepseek_v2, attn_family_deepseek_v3,
    attn_family_kimi_k2, attn_family_minicpm3;
extern const struct attn_family attn_family_attention;

#endif
