/* family_rows.h: the rows of the table of families, for family.c. */
#ifndef ATTN_LIB_FAMILY_ROWS_H
#define ATTN_LIB_FAMILY_ROWS_H

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
    attn_family_mpnet, attn_family_distilbert, attn_family_xlm, attn_family_modernbert;

extern const struct attn_family attn_family_vit, attn_family_clip_text, attn_family_clip_vision,
    attn_family_clip_text_model, attn_family_clip_vision_model, attn_family_siglip_text,
    attn_family_siglip_vision, attn_family_siglip_text_model, attn_family_siglip_vision_model;

extern const struct attn_family attn_family_bart_decoder, attn_family_bart_encoder,
    attn_family_bart_cross, attn_family_mbart_decoder, attn_family_mbart_encoder,
    attn_family_mbart_cross, attn_family_whisper_decoder, attn_family_whisper_encoder,
    attn_family_whisper_cross, attn_family_wav2vec2, attn_family_hubert;

#endif
