/* family_rows.h: the rows of the table of families, for family.c. */
#ifndef ATTN_LIB_FAMILY_ROWS_H
#define ATTN_LIB_FAMILY_ROWS_H

#include "families/family.h"

extern const struct attn_family attn_family_llama, attn_family_mistral, attn_family_qwen2,
    attn_family_qwen3, attn_family_gemma2, attn_family_gpt_oss, attn_family_phi, attn_family_phi3;

extern const struct attn_family attn_family_gpt2, attn_family_gpt_neox, attn_family_gptj,
    attn_family_falcon, attn_family_bloom, attn_family_opt;

extern const struct attn_family attn_family_bert, attn_family_roberta, attn_family_distilbert,
    attn_family_t5_decoder, attn_family_t5_encoder, attn_family_t5_cross, attn_family_torch;

extern const struct attn_family attn_family_deepseek_v2, attn_family_deepseek_v3,
    attn_family_kimi_k2, attn_family_minicpm3;

#endif
