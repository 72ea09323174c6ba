/* model_encoders.c: the encoders' rows of the table of families: configurations with the keys that
 * the published files have, keys that would change the mathematics, tensors that layers share. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "families/config.h"
#include "layers/layer.h"
#include "model_cases.h"
#include "models/model.h"

#define REST                                                                             \
    ",\"bos_token_id\":0,\"eos_token_id\":2,\"pad_token_id\":1,\"torch_dtype\":"         \
    "\"float32\",\"transformers_version\":\"4.40.1\",\"use_cache\":true,\"vocab_size\":" \
    "30522,\"_name_or_path\":\"x\"}"
#define DROPOUTS                                                                            \
    "\"attention_probs_dropout_prob\":0.1,\"hidden_act\":\"gelu\",\"hidden_dropout_prob\":" \
    "0.1,\"initializer_range\":0.02,\"layer_norm_eps\":1e-12,"
#define SIZES                                                                             \
    DROPOUTS "\"hidden_size\":768,\"intermediate_size\":3072,\"num_attention_heads\":12," \
             "\"num_hidden_layers\":12,"
#define BASE SIZES "\"max_position_embeddings\":514,\"type_vocab_size\":1,"
#define STACKS                                                                                   \
    "\"activation_dropout\":0.1,\"activation_function\":\"gelu\",\"attention_dropout\":0.0,"     \
    "\"classifier_dropout\":0.0,\"d_model\":1024,\"decoder_attention_heads\":16,"                \
    "\"decoder_ffn_dim\":4096,\"decoder_layerdrop\":0.0,\"decoder_layers\":6,\"dropout\":0.1,"   \
    "\"encoder_attention_heads\":8,\"encoder_ffn_dim\":4096,\"encoder_layerdrop\":0.0,"          \
    "\"encoder_layers\":12,\"init_std\":0.02,\"is_encoder_decoder\":true,\"num_hidden_layers\":" \
    "12,"                                                                                        \
    "\"scale_embedding\":false,"
#define BART                                                                                      \
    "{\"model_type\":\"bart\"," STACKS                                                            \
    "\"add_bias_logits\":false,\"add_final_layer_norm\":false,\"architectures\":"                 \
    "[\"BartForConditionalGeneration\"],\"classif_dropout\":0.0,\"decoder_start_token_id\":2,"    \
    "\"early_stopping\":true,\"force_bos_token_to_be_generated\":true,\"forced_bos_token_id\":0," \
    "\"gradient_checkpointing\":false,\"id2label\":{\"0\":\"LABEL_0\"},\"label2id\":"             \
    "{\"LABEL_0\":0},\"length_penalty\":2.0,\"max_length\":142,\"max_position_embeddings\":1024," \
    "\"min_length\":56,\"no_repeat_ngram_size\":3,\"normalize_before\":false,"                    \
    "\"normalize_embedding\":true,\"num_beams\":4,\"output_past\":true,\"prefix\":\" \","         \
    "\"static_position_embeddings\":false,\"task_specific_params\":{}"
#define WHISPER                                                                             \
    "{\"model_type\":\"whisper\"," STACKS                                                   \
    "\"apply_spec_augment\":false,\"architectures\":[\"WhisperForConditionalGeneration\"]," \
    "\"begin_suppress_tokens\":[220,50257],\"classifier_proj_size\":256,"                   \
    "\"decoder_start_token_id\":50258,\"forced_decoder_ids\":[[1,50259],[2,50359]],"        \
    "\"mask_feature_length\":10,\"mask_feature_min_masks\":0,\"mask_feature_prob\":0.0,"    \
    "\"mask_time_length\":10,\"mask_time_min_masks\":2,\"mask_time_prob\":0.05,"            \
    "\"max_length\":448,\"max_source_positions\":1500,\"max_target_positions\":448,"        \
    "\"median_filter_width\":7,\"num_mel_bins\":80,\"suppress_tokens\":[1,2,7],"            \
    "\"use_weighted_layer_sum\":false"
#define SPEECH                                                                                \
    SIZES                                                                                     \
    "\"activation_dropout\":0.1,\"apply_spec_augment\":true,\"attention_dropout\":0.1,"       \
    "\"conv_bias\":false,\"conv_dim\":[512,512],\"conv_kernel\":[10,3],\"conv_stride\":"      \
    "[5,2],\"ctc_loss_reduction\":\"sum\",\"ctc_zero_infinity\":false,"                       \
    "\"do_stable_layer_norm\":false,\"feat_extract_activation\":\"gelu\","                    \
    "\"feat_extract_dropout\":0.0,\"feat_extract_norm\":\"group\",\"feat_proj_dropout\":0.1," \
    "\"final_dropout\":0.1,\"hidden_dropout\":0.1,\"layerdrop\":0.1,"                         \
    "\"mask_feature_length\":10,\"mask_feature_prob\":0.0,\"mask_time_length\":10,"           \
    "\"mask_time_prob\":0.05,\"num_conv_pos_embedding_groups\":16,"                           \
    "\"num_conv_pos_embeddings\":128,\"num_feat_extract_layers\":7"

#define TOWERS(type)                                                                         \
    "{\"model_type\":\"" type "\",\"architectures\":[\"Model\"],\"initializer_factor\":1.0," \
    "\"logit_scale_init_value\":2.6592,\"projection_dim\":512,\"torch_dtype\":\"float32\","
#define CLIP_TOWERS                                                                       \
    "\"text_config\":{\"add_cross_attention\":false,\"bos_token_id\":0,\"dropout\":0.0,"  \
    "\"hidden_act\":\"quick_gelu\",\"hidden_size\":768,\"intermediate_size\":3072,"       \
    "\"max_position_embeddings\":77,\"model_type\":\"clip_text_model\","                  \
    "\"num_attention_heads\":12,\"num_hidden_layers\":12,\"projection_dim\":768,"         \
    "\"pruned_heads\":{},\"top_k\":50,\"torchscript\":false,\"vocab_size\":49408},"       \
    "\"vision_config\":{\"hidden_act\":\"quick_gelu\",\"hidden_size\":1024,"              \
    "\"image_size\":224,\"intermediate_size\":4096,\"model_type\":\"clip_vision_model\"," \
    "\"num_attention_heads\":16,\"num_channels\":3,\"num_hidden_layers\":24,"             \
    "\"patch_size\":14,\"projection_dim\":768}"
#define CLIP_DICTS                                                                 \
    ",\"text_config_dict\":{\"hidden_size\":768,\"intermediate_size\":3072,"       \
    "\"num_attention_heads\":12,\"num_hidden_layers\":12,\"projection_dim\":768}," \
    "\"vision_config_dict\":{\"hidden_size\":1024,\"num_hidden_layers\":24}"
#define MODERNBERT                                                                             \
    "{\"model_type\":\"modernbert\",\"architectures\":[\"ModernBertForMaskedLM\"],"            \
    "\"attention_bias\":false,\"attention_dropout\":0.0,\"classifier_activation\":\"gelu\","   \
    "\"classifier_bias\":false,\"classifier_dropout\":0.0,\"classifier_pooling\":\"mean\","    \
    "\"cls_token_id\":50281,\"decoder_bias\":true,\"deterministic_flash_attn\":false,"         \
    "\"embedding_dropout\":0.0,\"global_attn_every_n_layers\":3,\"global_rope_theta\":"        \
    "160000.0,\"gradient_checkpointing\":false,\"hidden_activation\":\"gelu\","                \
    "\"hidden_size\":768,\"initializer_cutoff_factor\":2.0,\"initializer_range\":0.02,"        \
    "\"intermediate_size\":1152,\"layer_norm_eps\":1e-05,\"local_attention\":128,"             \
    "\"local_rope_theta\":10000.0,\"max_position_embeddings\":8192,\"mlp_bias\":false,"        \
    "\"mlp_dropout\":0.0,\"norm_bias\":false,\"norm_eps\":1e-05,\"num_attention_heads\":12,"   \
    "\"num_hidden_layers\":22,\"position_embedding_type\":\"absolute\",\"reference_compile\":" \
    "true,\"repad_logits_with_grad\":false,\"sep_token_id\":50282,"                            \
    "\"sparse_pred_ignore_index\":-100,\"sparse_prediction\":false"
#define MPT                                                                                   \
    "{\"model_type\":\"mpt\",\"architectures\":[\"MPTForCausalLM\"],\"auto_map\":{},"         \
    "\"d_model\":4096,\"emb_pdrop\":0,\"embedding_fraction\":1.0,\"expansion_ratio\":4,"      \
    "\"init_config\":{\"name\":\"kaiming_normal_\"},\"init_device\":\"cpu\","                 \
    "\"learned_pos_emb\":true,\"logit_scale\":null,\"max_seq_len\":2048,\"n_heads\":32,"      \
    "\"n_layers\":32,\"no_bias\":true,\"norm_type\":\"low_precision_layernorm\","             \
    "\"resid_pdrop\":0,\"tokenizer_name\":\"EleutherAI/gpt-neox-20b\",\"verbose\":0,"         \
    "\"attn_config\":{\"alibi\":true,\"alibi_bias_max\":8,\"attn_impl\":\"torch\","           \
    "\"attn_pdrop\":0,\"attn_type\":\"multihead_attention\",\"attn_uses_sequence_id\":false," \
    "\"clip_qkv\":null,\"prefix_lm\":false,\"qk_ln\":false,\"softmax_scale\":null}"

#define DEBERTA(terms)                                                                      \
    "{\"model_type\":\"deberta-v2\"," SIZES "\"max_position_embeddings\":512,"              \
    "\"max_relative_positions\":-1,\"norm_rel_ebd\":\"layer_norm\",\"pad_token_id\":0,"     \
    "\"pooler_dropout\":0,\"pooler_hidden_act\":\"gelu\",\"pooler_hidden_size\":768,"       \
    "\"position_biased_input\":false,\"position_buckets\":256,\"relative_attention\":true," \
    "\"share_att_key\":true,\"type_vocab_size\":0,\"vocab_size\":128100,\"pos_att_type\":" terms

struct published {
    const char *name, *stack, *text;
    size_t layers, heads, head_dim;
    bool causal, cross;
};

static const struct published published[] = {
    {.name = "all-MiniLM-L6-v2",
     .text = "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"]," DROPOUTS
             "\"gradient_checkpointing\":false,\"hidden_size\":384,\"intermediate_size\":1536,"
             "\"max_position_embeddings\":512,\"num_attention_heads\":12,\"num_hidden_layers\":6,"
             "\"position_embedding_type\":\"absolute\",\"type_vocab_size\":2" REST,
     .layers = 6,
     .heads = 12,
     .head_dim = 32},
    {.name = "bge-large-en-v1.5",
     .text = "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"]," DROPOUTS
             "\"classifier_dropout\":null,\"hidden_size\":1024,\"id2label\":{\"0\":\"LABEL_0\"},"
             "\"label2id\":{\"LABEL_0\":0},\"intermediate_size\":4096,"
             "\"max_position_embeddings\":512,\"num_attention_heads\":16,\"num_hidden_layers\":24,"
             "\"position_embedding_type\":\"absolute\",\"type_vocab_size\":2" REST,
     .layers = 24,
     .heads = 16,
     .head_dim = 64},
    {.name = "gte-base",
     .text = "{\"model_type\":\"bert\"," BASE "\"architectures\":[\"BertModel\"],"
             "\"position_embedding_type\":\"absolute\"" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "multilingual-e5-base",
     .text = "{\"model_type\":\"xlm-roberta\"," BASE "\"architectures\":[\"XLMRobertaModel\"],"
             "\"classifier_dropout\":null,\"output_past\":true,"
             "\"position_embedding_type\":\"absolute\"" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "bge-m3",
     .text = "{\"model_type\":\"xlm-roberta\"," DROPOUTS "\"architectures\":"
             "[\"XLMRobertaModel\"],\"classifier_dropout\":null,\"hidden_size\":1024,"
             "\"intermediate_size\":4096,\"max_position_embeddings\":8194,"
             "\"num_attention_heads\":16,\"num_hidden_layers\":24,\"output_past\":true,"
             "\"position_embedding_type\":\"absolute\",\"type_vocab_size\":1" REST,
     .layers = 24,
     .heads = 16,
     .head_dim = 64},
    {.name = "camembert-base",
     .text = "{\"model_type\":\"camembert\"," BASE "\"architectures\":[\"CamembertForMaskedLM\"],"
             "\"output_past\":true" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "electra-small-discriminator",
     .text = "{\"model_type\":\"electra\"," DROPOUTS "\"architectures\":"
             "[\"ElectraForPreTraining\"],\"embedding_size\":128,\"hidden_size\":256,"
             "\"intermediate_size\":1024,\"max_position_embeddings\":512,"
             "\"num_attention_heads\":4,\"num_hidden_layers\":12,\"summary_activation\":\"gelu\","
             "\"summary_last_dropout\":0.1,\"summary_type\":\"first\",\"summary_use_proj\":true,"
             "\"type_vocab_size\":2" REST,
     .layers = 12,
     .heads = 4,
     .head_dim = 64},
    {.name = "ernie-3.0-base-zh",
     .text = "{\"model_type\":\"ernie\"," BASE "\"architectures\":[\"ErnieForMaskedLM\"],"
             "\"position_embedding_type\":\"absolute\",\"task_type_vocab_size\":3,"
             "\"use_task_id\":true" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "albert-base-v2",
     .text = "{\"model_type\":\"albert\"," BASE "\"architectures\":[\"AlbertForMaskedLM\"],"
             "\"classifier_dropout_prob\":0.1,\"down_scale_factor\":1,\"embedding_size\":128,"
             "\"gap_size\":0,\"inner_group_num\":1,\"net_structure_type\":0,"
             "\"num_hidden_groups\":1,\"num_memory_blocks\":0" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "all-mpnet-base-v2",
     .text = "{\"model_type\":\"mpnet\"," BASE "\"architectures\":[\"MPNetForMaskedLM\"],"
             "\"relative_attention_num_buckets\":32" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "xlm-mlm-en-2048",
     .text = "{\"model_type\":\"xlm\",\"architectures\":[\"XLMWithLMHeadModel\"],\"asm\":false,"
             "\"attention_dropout\":0.1,\"bos_index\":0,\"causal\":false,\"dropout\":0.1,"
             "\"emb_dim\":2048,\"embed_init_std\":0.02209708691207961,\"end_n_top\":5,"
             "\"eos_index\":1,\"gelu_activation\":true,\"id2lang\":{\"0\":\"en\"},\"init_std\":"
             "0.02,\"is_encoder\":true,\"lang2id\":{\"en\":0},\"layer_norm_eps\":1e-12,"
             "\"mask_index\":5,\"max_position_embeddings\":512,\"max_vocab\":-1,\"min_count\":0,"
             "\"n_heads\":16,\"n_langs\":1,\"n_layers\":12,\"pad_index\":2,\"same_enc_dec\":true,"
             "\"share_inout_emb\":true,\"sinusoidal_embeddings\":false,\"start_n_top\":5,"
             "\"summary_activation\":null,\"summary_first_dropout\":0.1,"
             "\"summary_proj_to_labels\":true,\"summary_type\":\"first\","
             "\"summary_use_proj\":true,\"unk_index\":3,\"use_lang_emb\":false" REST,
     .layers = 12,
     .heads = 16,
     .head_dim = 128},
    {.name = "vit-base-patch16-224",
     .text = "{\"model_type\":\"vit\"," SIZES "\"architectures\":[\"ViTForImageClassification\"],"
             "\"encoder_stride\":16,\"id2label\":{\"0\":\"tench\"},\"image_size\":224,"
             "\"label2id\":{\"tench\":0},\"num_channels\":3,\"patch_size\":16,\"qkv_bias\":"
             "true" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "mt5-small",
     .stack = "encoder",
     .text = "{\"model_type\":\"mt5\",\"architectures\":[\"MT5ForConditionalGeneration\"],"
             "\"d_ff\":1024,\"d_kv\":64,\"d_model\":512,\"decoder_start_token_id\":0,"
             "\"dropout_rate\":0.1,\"feed_forward_proj\":\"gated-gelu\",\"initializer_factor\":1.0,"
             "\"is_encoder_decoder\":true,\"layer_norm_epsilon\":1e-06,\"num_decoder_layers\":8,"
             "\"num_heads\":6,\"num_layers\":8,\"relative_attention_num_buckets\":32,"
             "\"tie_word_embeddings\":false,\"tokenizer_class\":\"T5Tokenizer\"" REST,
     .layers = 8,
     .heads = 6,
     .head_dim = 64},
    {.name = "bart-large-cnn, by default",
     .text = BART REST,
     .layers = 6,
     .heads = 16,
     .head_dim = 64,
     .causal = true},
    {.name = "bart-large-cnn",
     .stack = "encoder",
     .text = BART REST,
     .layers = 12,
     .heads = 8,
     .head_dim = 128},
    {.name = "bart-large-cnn",
     .stack = "cross",
     .text = BART REST,
     .layers = 6,
     .heads = 16,
     .head_dim = 64,
     .cross = true},
    {.name = "mbart-large-50",
     .stack = "decoder",
     .text = "{\"model_type\":\"mbart\"," STACKS "\"_num_labels\":3,\"add_bias_logits\":false,"
             "\"add_final_layer_norm\":true,\"architectures\":[\"MBartForConditionalGeneration\"],"
             "\"classif_dropout\":0.0,\"decoder_start_token_id\":2,\"early_stopping\":true,"
             "\"forced_eos_token_id\":2,\"gradient_checkpointing\":false,\"max_length\":200,"
             "\"max_position_embeddings\":1024,\"normalize_before\":true,"
             "\"normalize_embedding\":true,\"num_beams\":5,\"output_past\":true,"
             "\"static_position_embeddings\":false,\"tokenizer_class\":\"MBart50Tokenizer\"" REST,
     .layers = 6,
     .heads = 16,
     .head_dim = 64,
     .causal = true},
    {.name = "whisper-small, by default",
     .text = WHISPER REST,
     .layers = 6,
     .heads = 16,
     .head_dim = 64,
     .causal = true},
    {.name = "whisper-small",
     .stack = "encoder",
     .text = WHISPER REST,
     .layers = 12,
     .heads = 8,
     .head_dim = 128},
    {.name = "whisper-small",
     .stack = "cross",
     .text = WHISPER REST,
     .layers = 6,
     .heads = 16,
     .head_dim = 64,
     .cross = true},
    {.name = "wav2vec2-base-960h",
     .text = "{\"model_type\":\"wav2vec2\"," SPEECH ",\"architectures\":[\"Wav2Vec2ForCTC\"],"
             "\"codevector_dim\":256,\"contrastive_logits_temperature\":0.1,"
             "\"diversity_loss_weight\":0.1,\"feat_quantizer_dropout\":0.0,\"num_negatives\":100,"
             "\"num_codevector_groups\":2,\"num_codevectors_per_group\":320,"
             "\"proj_codevector_dim\":256" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "hubert-base-ls960",
     .text = "{\"model_type\":\"hubert\"," SPEECH ",\"architectures\":[\"HubertModel\"],"
             "\"feat_proj_layer_norm\":true,\"tokenizer_class\":\"Wav2Vec2CTCTokenizer\"" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "clip-vit-large-patch14, by default",
     .text = TOWERS("clip") CLIP_TOWERS CLIP_DICTS "}",
     .layers = 12,
     .heads = 12,
     .head_dim = 64,
     .causal = true},
    {.name = "clip-vit-base-patch32",
     .stack = "vision",
     .text = TOWERS("clip") CLIP_TOWERS ",\"text_config_dict\":null,\"vision_config_dict\":null}",
     .layers = 24,
     .heads = 16,
     .head_dim = 64},
    {.name = "siglip-base-patch16-224, sizes by default",
     .stack = "text",
     .text = TOWERS("siglip") "\"text_config\":{\"model_type\":\"siglip_text_model\"},"
                              "\"vision_config\":{\"model_type\":\"siglip_vision_model\"}}",
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "siglip-so400m-patch14-384",
     .stack = "vision",
     .text =
         TOWERS("siglip") "\"text_config\":{\"hidden_size\":1152,\"intermediate_size\":4304,"
                          "\"model_type\":\"siglip_text_model\",\"num_attention_heads\":16,"
                          "\"num_hidden_layers\":27},\"vision_config\":{\"hidden_size\":1152,"
                          "\"image_size\":384,"
                          "\"intermediate_size\":4304,\"model_type\":\"siglip_vision_model\","
                          "\"num_attention_heads\":16,\"num_hidden_layers\":27,\"patch_size\":14}}",
     .layers = 27,
     .heads = 16,
     .head_dim = 72},
    {.name = "the text encoder of stable-diffusion-v1-5",
     .text = "{\"model_type\":\"clip_text_model\",\"architectures\":[\"CLIPTextModel\"],"
             "\"attention_dropout\":0.0,\"dropout\":0.0,\"hidden_act\":\"quick_gelu\","
             "\"hidden_size\":768,\"initializer_factor\":1.0,\"initializer_range\":0.02,"
             "\"intermediate_size\":3072,\"layer_norm_eps\":1e-05,\"max_position_embeddings\":77,"
             "\"num_attention_heads\":12,\"num_hidden_layers\":12,\"projection_dim\":768" REST,
     .layers = 12,
     .heads = 12,
     .head_dim = 64,
     .causal = true},
    {.name = "ModernBERT-base", .text = MODERNBERT REST, .layers = 22, .heads = 12, .head_dim = 64},
    {.name = "mpt-7b",
     .text = MPT REST,
     .layers = 32,
     .heads = 32,
     .head_dim = 128,
     .causal = true},
    {.name = "deberta-v3-base",
     .text = DEBERTA("\"p2c|c2p\"") "}",
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
    {.name = "deberta-v2-xlarge, of base's size",
     .text = DEBERTA("[\"p2c\",\"c2p\"]") ",\"attention_head_size\":64,\"conv_act\":\"gelu\","
                                          "\"conv_kernel_size\":3}",
     .layers = 12,
     .heads = 12,
     .head_dim = 64},
};

CASE(encoders, NULL, NULL, 60)

TEST_EACH(config_of_every_encoder_is_read_with_all_its_published_keys, COUNT(published))
{
    const struct published *p = &published[_i];
    struct attn_error error = {0};
    struct attn_config config;
    struct attn_layer_spec spec;
    enum attn_status status =
        attn_config_read(&config, &(struct attn_config_options){.stack = p->stack}, p->text,
                         strlen(p->text), &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", p->name, error.message);
    attn_config_layer_spec(&spec, &config, p->layers - 1);
    ck_assert_uint_eq(config.num_layers, p->layers);
    ck_assert_uint_eq(spec.num_heads, p->heads);
    ck_assert_uint_eq(spec.num_kv_heads, p->heads);
    ck_assert_uint_eq(spec.head_dim, p->head_dim);
    ck_assert_int_eq(spec.is_causal, p->causal);
    ck_assert_int_eq(spec.is_cross, p->cross);
    ck_assert_int_eq(attn_layer_check(&spec, &error), ATTN_OK);
}

/* ---- Keys that would change the mathematics -------------------------------------------------- */

#define SMALL(type)           \
    "{\"model_type\":\"" type \
    "\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2,"

static const struct {
    const char *text, *key;
    enum attn_status status;
} refused[] = {
    {SMALL("xlm-roberta") "\"position_embedding_type\":\"rotary\"}", "position_embedding_type",
     ATTN_UNSUPPORTED},
    {SMALL("camembert") "\"position_embedding_type\":\"relative_keys\"}", "position_embedding_type",
     ATTN_UNSUPPORTED},
    {SMALL("electra") "\"add_cross_attention\":true}", "add_cross_attention", ATTN_UNSUPPORTED},
    {SMALL("ernie") "\"sliding_window\":8}", "sliding_window", ATTN_UNSUPPORTED},
    {SMALL("albert") "\"inner_group_num\":2}", "inner_group_num", ATTN_UNSUPPORTED},
    {SMALL("albert") "\"num_hidden_groups\":3}", "num_hidden_groups", ATTN_MALFORMED},
    {SMALL("mpnet") "\"relative_attention_num_buckets\":16}", "relative_attention_num_buckets",
     ATTN_UNSUPPORTED},
    {SMALL("xlm") "\"causal\":true}", "causal", ATTN_UNSUPPORTED},
    {SMALL("xlm") "\"is_encoder\":false}", "is_encoder", ATTN_UNSUPPORTED},
    {TOWERS("clip") CLIP_TOWERS ",\"text_config_dict\":{\"num_attention_heads\":8}}",
     "num_attention_heads", ATTN_MALFORMED},
    {TOWERS("clip") CLIP_TOWERS ",\"quantization_config\":4}", "quantization_config",
     ATTN_MALFORMED},
    {TOWERS("clip") "\"text_config\":{\"hidden_size\":64,\"rope_theta\":1e4}}", "rope_theta",
     ATTN_UNSUPPORTED},
    {SMALL("modernbert") "\"local_attention\":0}", "local_attention", ATTN_OUT_OF_RANGE},
    {SMALL("modernbert") "\"use_qk_norm\":true}", "use_qk_norm", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":{\"alibi\":false}}", "attn_config.alibi", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":{\"qk_ln\":true}}", "attn_config.qk_ln", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":{\"kv_n_heads\":2}}", "kv_n_heads", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":7}", "attn_config", ATTN_MALFORMED},
    {SMALL("mpt") "\"no_bias\":false}", "no_bias", ATTN_UNSUPPORTED},
    {SMALL("deberta") "\"pos_att_type\":[\"c2p\"]}", "relative_attention", ATTN_UNSUPPORTED},
    {SMALL("deberta") "\"position_buckets\":32}", "position_buckets", ATTN_UNSUPPORTED},
    {SMALL("beit") "\"use_relative_position_bias\":true,"
                   "\"use_shared_relative_position_bias\":true}",
     "use_shared_relative_position_bias", ATTN_UNSUPPORTED},
    {SMALL("beit") "\"use_relative_position_bias\":true,\"patch_size\":500}", "image_size",
     ATTN_MALFORMED},
    {SMALL("wav2vec2-bert") "\"position_embeddings_type\":\"rotary\"}", "position_embeddings_type",
     ATTN_UNSUPPORTED},
    {SMALL("layoutlmv3") "\"has_spatial_attention_bias\":false}", "has_relative_attention_bias",
     ATTN_UNSUPPORTED},
    {SMALL("layoutlmv3") "\"has_relative_attention_bias\":false}", "has_spatial_attention_bias",
     ATTN_UNSUPPORTED},
    {SMALL("roformer") "\"rotary_value\":true}", "rotary_value", ATTN_UNSUPPORTED},
    {SMALL("nomic_bert") "\"rotary_emb_fraction\":1.0}", "rope_theta", ATTN_MALFORMED},
    {SMALL("nomic_bert") "\"rotary_emb_base\":1000,\"rotary_emb_fraction\":0.0}",
     "rotary_emb_fraction", ATTN_OUT_OF_RANGE},
    {SMALL("nomic_bert") "\"rotary_emb_base\":1000,\"rotary_scaling_factor\":2}",
     "rotary_scaling_factor", ATTN_UNSUPPORTED},
    {SMALL("esm") "\"position_embedding_type\":\"relative_key\"}", "position_embedding_type",
     ATTN_UNSUPPORTED},
    {SMALL("jina_embeddings_v3") "\"position_embedding_type\":\"absolute\"}",
     "position_embedding_type", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"share_att_key\":true,\"pos_att_type\":\"c2p\"}", "relative_attention",
     ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"pos_att_type\":\"c2p|p2p\"}", "pos_att_type", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"pos_att_type\":[7]}", "pos_att_type", ATTN_MALFORMED},
    {SMALL("deberta-v2") "\"norm_rel_ebd\":\"batch_norm\"}", "norm_rel_ebd", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"talking_head\":true}", "talking_head", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"position_buckets\":5000}", "position_buckets", ATTN_OUT_OF_RANGE},
    {SMALL("vit") "\"use_qk_norm\":true}", "use_qk_norm", ATTN_UNSUPPORTED},
    {SMALL("wav2vec2") "\"position_embeddings_type\":\"rotary\"}", "position_embeddings_type",
     ATTN_UNSUPPORTED},
    {SMALL("whisper") "\"d_model\":32}", "d_model", ATTN_MALFORMED},
    {SMALL("bart") "\"decoder_layers\":2,\"decoder_attention_heads\":4,\"rope_theta\":1e4}",
     "rope_theta", ATTN_UNSUPPORTED},
};

TEST_EACH(config_of_encoder_refuses_what_changes_its_mathematics_by_name, COUNT(refused))
{
    struct attn_error error = {0};
    struct attn_config config;
    const char *text = refused[_i].text;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error),
                     refused[_i].status);
    ck_assert_str_eq(error.param, refused[_i].key);
}

/* ---- What keys of newer encoders mean -------------------------------------------------------- */

static struct attn_layer_spec spec_of_text(const char *text)
{
    static struct attn_config config;
    struct attn_error error = {0};
    struct attn_layer_spec spec;
    ck_assert_msg(attn_config_read(&config, NULL, text, strlen(text), &error) == ATTN_OK, "%s",
                  error.message);
    attn_config_layer_spec(&spec, &config, 0);
    ck_assert_int_eq(attn_layer_check(&spec, &error), ATTN_OK);
    return spec;
}

TEST(config_of_encoder_positions_are_where_their_key_says)
{
    struct attn_layer_spec spec = spec_of_text(SMALL("esm") "\"vocab_size\":33}");
    ck_assert_int_eq(spec.rope.type, ATTN_ROPE_NONE);
    spec = spec_of_text(SMALL("esm") "\"position_embedding_type\":\"rotary\"}");
    ck_assert_int_eq(spec.rope.type, ATTN_ROPE_DEFAULT);
    ck_assert(!spec.rope.interleaved);
    spec = spec_of_text(SMALL("roformer") "\"vocab_size\":33}");
    ck_assert(spec.rope.type == ATTN_ROPE_DEFAULT && spec.rope.interleaved);
    spec = spec_of_text(SMALL("wav2vec2-bert") "\"right_max_position_embeddings\":0}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_RELATIVE_KEY);
    ck_assert_uint_eq(spec.position_bias.max_distance, 64);
    ck_assert_uint_eq(spec.position_bias.max_after, 0);
    spec = spec_of_text(SMALL("wav2vec2-bert") "\"position_embeddings_type\":null}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
    spec = spec_of_text(SMALL("dinov3_vit") "\"num_register_tokens\":4}");
    ck_assert_uint_eq(spec.rope.grid_prefix, 5);
    ck_assert(spec.q_bias && !spec.k_bias && spec.v_bias && spec.o_bias);
}

TEST(config_of_encoder_biases_and_lengths_are_what_their_keys_say)
{
    struct attn_layer_spec spec = spec_of_text(SMALL("beit") "\"vocab_size\":33}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
    ck_assert(spec.q_bias && !spec.k_bias && spec.v_bias && spec.o_bias);
    spec = spec_of_text(SMALL("beit") "\"use_shared_relative_position_bias\":true}");
    ck_assert_uint_eq(spec.position_bias.grid, 14);
    ck_assert(!spec.position_bias.own_table);
    spec = spec_of_text(SMALL("wavlm") "\"vocab_size\":33}");
    ck_assert(spec.position_bias.type == ATTN_BIAS_T5 && spec.position_bias.gated);
    spec = spec_of_text(SMALL("big_bird") "\"use_bias\":false}");
    ck_assert_uint_eq(spec.max_tokens, 704);
    ck_assert(!spec.q_bias && spec.o_bias);
    spec = spec_of_text(SMALL("big_bird") "\"attention_type\":\"original_full\"}");
    ck_assert_uint_eq(spec.max_tokens, 0);
    spec = spec_of_text(SMALL("deberta-v2") "\"relative_attention\":true,\"pos_att_type\":"
                                            "\"p2c\",\"position_buckets\":8}");
    ck_assert(spec.position_bias.own_projections && spec.position_bias.own_key_bias);
    spec = spec_of_text(SMALL("deberta") "\"relative_attention\":true,\"pos_att_type\":"
                                         "[\"c2p\",\"p2c\"],\"max_relative_positions\":-1}");
    ck_assert(spec.position_bias.own_projections && !spec.position_bias.own_key_bias);
    ck_assert_uint_eq(spec.position_bias.max_distance, 512);
    ck_assert_double_eq_tol(spec.scale, 1 / sqrt(16.0 * 3), 1e-12);
    spec = spec_of_text(SMALL("layoutlmv3") "\"has_relative_attention_bias\":false,"
                                            "\"has_spatial_attention_bias\":false}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
}

/* ---- Biases, groups -------------------------------------------------------------------------- */

TEST(config_of_vit_and_whisper_denies_single_biases)
{
    const char *vit = SMALL("vit") "\"qkv_bias\":false}";
    const char *whisper = "{\"model_type\":\"whisper\",\"d_model\":64,\"decoder_layers\":2,"
                          "\"decoder_attention_heads\":4}";
    struct attn_error error;
    struct attn_config config;
    ck_assert_int_eq(attn_config_read(&config, NULL, vit, strlen(vit), &error), ATTN_OK);
    ck_assert(!config.specs[0].q_bias && !config.specs[0].k_bias && !config.specs[0].v_bias);
    ck_assert(config.specs[0].o_bias);
    ck_assert_int_eq(attn_config_read(&config, NULL, whisper, strlen(whisper), &error), ATTN_OK);
    ck_assert(config.specs[0].q_bias && !config.specs[0].k_bias && config.specs[0].v_bias);
    ck_assert(config.specs[0].o_bias);
}

TEST(config_of_albert_divides_layers_among_groups)
{
    static const size_t groups[] = {0, 0, 0, 1, 1};
    const char *text = "{\"model_type\":\"albert\",\"hidden_size\":64,\"num_attention_heads\":4,"
                       "\"num_hidden_layers\":5,\"num_hidden_groups\":2}";
    struct attn_error error;
    struct attn_config config;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    for (size_t i = 0; i < 5; i++)
        ck_assert_uint_eq(attn_config_tensor_index(&config, i), groups[i]);
}

TEST(config_of_modernbert_has_a_window_and_a_base_of_its_own_in_two_layers_of_three)
{
    const char *text = MODERNBERT REST;
    struct attn_error error;
    struct attn_config config;
    struct attn_layer_spec spec;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    for (size_t i = 0; i < 22; i++) {
        attn_config_layer_spec(&spec, &config, i);
        ck_assert_uint_eq(spec.sliding_window, i % 3 == 0 ? 0 : 65); /* 64 on both sides */
        ck_assert_double_eq(spec.rope.theta, i % 3 == 0 ? 160000 : 10000);
    }
    text = SMALL("modernbert") "\"local_rope_theta\":null}";
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    attn_config_layer_spec(&spec, &config, 1);
    ck_assert_double_eq(spec.rope.theta, 160000);
    ck_assert_uint_eq(spec.sliding_window, 65);
    text = SMALL("modernbert") "\"local_attention\":128}";
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    attn_config_layer_spec(&spec, &config, 1);
    ck_assert_double_eq(spec.rope.theta, 10000);
}

TEST(config_of_deberta_divides_scores_for_each_product)
{
    const char *both = DEBERTA("\"p2c|c2p\"") "}", *one = DEBERTA("\"c2p\"") "}";
    struct attn_error error;
    struct attn_config config;
    const struct attn_layer_spec *spec = &config.specs[0];
    ck_assert_int_eq(attn_config_read(&config, NULL, both, strlen(both), &error), ATTN_OK);
    ck_assert_double_eq_tol(spec->scale, 1 / sqrt(64.0 * 3), 1e-15);
    ck_assert_int_eq(spec->position_bias.type, ATTN_BIAS_DISENTANGLED);
    ck_assert_uint_eq(attn_relative_rows(spec), 512);
    ck_assert_uint_eq(spec->position_bias.max_distance, 512);
    ck_assert(spec->position_bias.table_norm);
    ck_assert_double_eq(spec->position_bias.table_norm_eps, 1e-12);
    ck_assert_int_eq(attn_config_read(&config, NULL, one, strlen(one), &error), ATTN_OK);
    ck_assert_double_eq_tol(spec->scale, 1 / sqrt(64.0 * 2), 1e-15);
    ck_assert(spec->position_bias.content_to_position && !spec->position_bias.position_to_content);
}

/* The table of a position bias, and its norm's weight and bias, count once. */
TEST(model_counts_a_table_that_layers_share_once)
{
    static const struct {
        const char *path, *stack;
    } cases[] = {
        {"tests/reference/t5/model", "encoder"},
        {"tests/golden/mpnet/model", NULL},
        {"tests/golden/deberta_v2/model", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_model *model =
            cases_open(cases[i].path, &(struct attn_model_options){.stack = cases[i].stack});
        const struct attn_layer_spec *s = attn_model_layer(model, 0);
        const struct attn_position_bias_spec *bias = &s->position_bias;
        const size_t linears =
            s->hidden_size * (2 * s->num_heads * s->head_dim + 2 * s->num_kv_heads * s->head_dim) +
            (size_t)s->q_bias * s->num_heads * s->head_dim +
            (size_t)s->k_bias * s->num_kv_heads * s->head_dim +
            (size_t)s->v_bias * s->num_kv_heads * s->head_dim + (size_t)s->o_bias * s->hidden_size;
        const size_t one = cases_parameters(cases[i].path, cases[i].stack, 1);
        ck_assert(bias->type != ATTN_BIAS_NONE);
        ck_assert_uint_gt(one, linears);
        ck_assert_uint_eq(cases_parameters(cases[i].path, cases[i].stack, 2), one + linears);
        attn_model_close(model);
    }
}

TEST(model_of_shared_layers_keeps_their_weights_once)
{
    char path[SCRATCH_PATH];
    struct attn_model_info all, one;
    const size_t last[] = {2};
    cases_golden(path, "albert");
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_describe(&all, model);
    ck_assert_ptr_eq(attn_model_loaded_layer(model, 0), attn_model_loaded_layer(model, 2));
    ck_assert_uint_eq(attn_model_resident_index(model, 2), 2);
    attn_model_close(model);

    model = cases_open(path, &(struct attn_model_options){.layers = last, .num_layers = 1});
    cases_load(model);
    attn_model_describe(&one, model);
    ck_assert_uint_eq(all.num_resident, 3);
    ck_assert_uint_eq(all.weight_bytes, one.weight_bytes);
    ck_assert_uint_eq(all.cache_bytes_per_token, 3 * one.cache_bytes_per_token);
    ck_assert_str_ne(all.fingerprint, one.fingerprint);
    attn_model_close(model);
}

CASES_OF(encoders)
