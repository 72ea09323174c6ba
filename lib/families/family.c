/* family.c: the table of families, and finding a row.
 *
 * Rows are in llama.c, qwen.c, gemma.c and decoders.c (Llama and the decoders after it), gpt.c
 * (GPT-2 to OPT), bert.c, vision.c, speech.c (encoders; stacks of encoder and decoder) and
 * encoders.c (T5, PyTorch).  The row of random models stands there too, but not in the table:
 * models/model.c names it, since no configuration does. */
#include "families/family.h"

#include <string.h>

#include "families/rows.h"

/* Of an architecture with several stacks the first row is the default. */
static const struct attn_family *const families[] = {
    &attn_family_llama,
    &attn_family_mistral,
    &attn_family_qwen2,
    &attn_family_qwen3,
    &attn_family_gemma2,
    &attn_family_gpt_oss,
    &attn_family_phi,
    &attn_family_phi3,
    &attn_family_gpt2,
    &attn_family_gpt_neox,
    &attn_family_gptj,
    &attn_family_falcon,
    &attn_family_bloom,
    &attn_family_opt,
    &attn_family_bert,
    &attn_family_roberta,
    &attn_family_distilbert,
    &attn_family_t5_decoder,
    &attn_family_t5_encoder,
    &attn_family_t5_cross,
    &attn_family_torch,
    &attn_family_attention,

    /* Encoders, and stacks of encoder and decoder. */
    &attn_family_xlm_roberta,
    &attn_family_camembert,
    &attn_family_electra,
    &attn_family_ernie,
    &attn_family_albert,
    &attn_family_mpnet,
    &attn_family_xlm,
    &attn_family_vit,
    &attn_family_mt5_decoder,
    &attn_family_mt5_encoder,
    &attn_family_mt5_cross,
    &attn_family_bart_decoder,
    &attn_family_bart_encoder,
    &attn_family_bart_cross,
    &attn_family_mbart_decoder,
    &attn_family_mbart_encoder,
    &attn_family_mbart_cross,
    &attn_family_whisper_decoder,
    &attn_family_whisper_encoder,
    &attn_family_whisper_cross,
    &attn_family_wav2vec2,
    &attn_family_hubert,
    &attn_family_modernbert,
    &attn_family_deberta_v2,
    &attn_family_clip_text,
    &attn_family_clip_vision,
    &attn_family_clip_text_model,
    &attn_family_clip_vision_model,
    &attn_family_siglip_text,
    &attn_family_siglip_vision,
    &attn_family_siglip_text_model,
    &attn_family_siglip_vision_model,
    &attn_family_mpt,

    /* llama.c, qwen.c, gemma.c, decoders.c */
    &attn_family_mixtral,
    &attn_family_ministral3,
    &attn_family_mistral3_mistral, /* also where the text model has no model_type */
    &attn_family_mistral3,
    &attn_family_llama4,
    &attn_family_llama4_text,
    &attn_family_qwen2_moe,
    &attn_family_qwen3_moe,
    &attn_family_qwen2_vl,
    &attn_family_qwen2_5_vl,
    &attn_family_qwen3_vl,
    &attn_family_qwen3_vl_moe,
    &attn_family_qwen3_next,
    &attn_family_qwen3_5,
    &attn_family_qwen3_5_moe,
    &attn_family_gemma,
    &attn_family_gemma3,
    &attn_family_gemma3_text,
    &attn_family_gemma4,
    &attn_family_gemma4_text,
    &attn_family_granite,
    &attn_family_smollm3,
    &attn_family_starcoder2,
    &attn_family_stablelm,
    &attn_family_glm,
    &attn_family_glm4,
    &attn_family_helium,
    &attn_family_seed_oss,
    &attn_family_mimo,
    &attn_family_hunyuan_v1_dense,
    &attn_family_ernie4_5,
    &attn_family_internlm2,
    &attn_family_olmo2,
    &attn_family_olmo3,
    &attn_family_exaone4,
    &attn_family_cohere,
    &attn_family_cohere2,
    &attn_family_persimmon,
    &attn_family_nemotron,
    &attn_family_deepseek_v2,
    &attn_family_deepseek_v3,
    &attn_family_kimi_k2,
    &attn_family_minicpm3,
};

const struct attn_family *attn_family_at(size_t i)
{
    return i < sizeof families / sizeof families[0] ? families[i] : NULL;
}

static bool equal_or_any(const char *wanted, const char *name)
{
    return wanted == NULL || name == NULL || strcmp(wanted, name) == 0;
}

const struct attn_family *attn_family_find(const char *model_type, const char *submodel_type,
                                           const char *stack)
{
    const struct attn_family *family;
    for (size_t i = 0; (family = attn_family_at(i)) != NULL; i++) {
        bool fits = stack == NULL || (family->stack != NULL && strcmp(family->stack, stack) == 0);
        if (fits && strcmp(family->model_type, model_type) == 0 &&
            equal_or_any(family->submodel_type, submodel_type))
            return family;
    }
    return NULL;
}
