/* encoders.c: rows of BERT and the text encoders after it, of encoders of images and of frames of
 * sound, and of the towers of image and text.  Data only.  Sources: as in llama.c. */
#include "families/rows.h"

/* ---- bert and the families that keep its layer ----------------------------------------------- */

static const struct attn_hf_key bert_keys[] =
    KEY_LIST(SIZES, POSITIONS, FLAG("is_decoder", is_causal),
             FIXED("position_embedding_type", "\"absolute\""),
             IGNORED("embedding_size summary_last_dropout task_type_vocab_size use_task_id"));

#define BERT_LAYER "encoder.layer.*.attention."
static const struct attn_family_tensor bert_tensors[] =
    TENSOR_LIST(MAPS(BERT_LAYER, "self.query", "self.key", "self.value", "output.dense"));

#define BERT(type, prefix)                                                          \
    FAMILY(type), PREFIXES(prefix, ""), .keys = bert_keys, .tensors = bert_tensors, \
                                        DEFAULTS(ENCODER)

ROW(bert, BERT("bert", "bert."));
ROW(roberta, BERT("roberta", "roberta."));
ROW(xlm_roberta, BERT("xlm-roberta", "roberta."));
ROW(camembert, BERT("camembert", "roberta."));
ROW(electra, BERT("electra", "electra."));
ROW(ernie, BERT("ernie", "ernie."));

/* The layers of a group share one set of tensors. */
ROW(albert, FAMILY("albert"), PREFIXES("albert.", ""),
    TENSORS(MAPS("encoder.albert_layer_groups.*.albert_layers.0.attention.", "query", "key",
                 "value", "dense")),
    KEYS(SIZES, SIZE("num_hidden_groups", num_groups, ATTN_MAX_LAYERS), POSITIONS,
         FIXED("inner_group_num", "1"), FIXED("position_embedding_type", "\"absolute\""),
         IGNORED("classifier_dropout_prob down_scale_factor embedding_size gap_size layers_to_keep "
                 "net_structure_type num_memory_blocks")),
    DEFAULTS(ENCODER, .num_groups = 1));

/* The relative position bias of T5's encoder beside scaled scores; the published code has 32
 * buckets in its text. */
ROW(mpnet, FAMILY("mpnet"), PREFIXES("mpnet.", ""),
    TENSORS(MAPS("encoder.layer.*.attention.attn.", "q", "k", "v", "o"),
            TENSOR("encoder.relative_attention_bias.weight", Q, POSITION_BIAS)),
    KEYS(SIZES, POSITIONS, FIXED("relative_attention_num_buckets", "32")),
    DEFAULTS(ENCODER, .buckets = 32, .max_distance = 128));

#define LIN(layer) TENSORS(MAPS(layer, "q_lin", "k_lin", "v_lin", "out_lin"))
#define DIM(key)                                                                           \
    SIZE(key, hidden_size, ATTN_MAX_HIDDEN_SIZE), HIDDEN_SIZE, HEADS_AS("n_heads"), HEADS, \
        LAYERS_AS("n_layers"), LAYERS, POSITIONS

ROW(distilbert, FAMILY("distilbert"), PREFIXES("distilbert.", ""),
    LIN("transformer.layer.*.attention."),
    KEYS(DIM("dim"), IGNORED("activation hidden_dim qa_dropout seq_classif_dropout "
                             "sinusoidal_pos_embds tie_weights_")),
    DEFAULTS(ENCODER));

/* `causal` would make a mask that ignores padding. */
ROW(xlm, FAMILY("xlm"), PREFIXES("transformer.", ""), LIN("attentions.*."),
    KEYS(DIM("emb_dim"), FIXED("causal", "false"), FIXED("is_encoder", "true"),
         IGNORED("asm bos_index embed_init_std end_n_top eos_index gelu_activation id2lang "
                 "init_std lang2id lang_id mask_index max_vocab min_count n_langs n_words "
                 "pad_index same_enc_dec share_inout_emb sinusoidal_embeddings start_n_top "
                 "unk_index use_lang_emb")),
    DEFAULTS(ENCODER));

/* One layer in three sees everything, the others both sides of a window.  Positions rotate,
 * whatever position_embedding_type says. */
ROW(modernbert, DECODER("modernbert"),
    TENSORS(WEIGHT("layers.*.attn.Wqkv", QKV), WEIGHT("layers.*.attn.Wo", O),
            BIAS("layers.*.attn.Wqkv", QKV), BIAS("layers.*.attn.Wo", O)),
    KEYS(SIZES, POSITIONS, ATTENTION_BIAS, SIZE("local_attention", sliding_window, MAX_POSITION),
         FULL_PERIOD("global_attn_every_n_layers"), LAYER_TYPES,
         NUMBER("global_rope_theta", rope.theta, 1, MAX_THETA),
         NUMBER("local_rope_theta", sliding_rope.theta, 1, MAX_THETA), ROPE_OBJECTS,
         IGNORED("classifier_activation classifier_bias classifier_pooling decoder_bias "
                 "deterministic_flash_attn embedding_dropout initializer_cutoff_factor "
                 "mlp_dropout norm_bias norm_eps position_embedding_type reference_compile "
                 "repad_logits_with_grad sparse_pred_ignore_index sparse_prediction")),
    DEFAULTS(.scale_attn_weights = true, SLIDES, .half_window = true, .sliding_window = 128,
             .full_period = 3, .full_first = true, .rope_by_type = true, ROPE(160000),
             .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)}));

/* v3 has this model_type too. */
ROW(deberta_v2, FAMILY("deberta-v2"), PREFIXES("deberta.", ""),
    TENSORS(MAPS(BERT_LAYER, "self.query_proj", "self.key_proj", "self.value_proj", "output.dense"),
            TENSOR("encoder.rel_embeddings.weight", Q, POSITION_BIAS),
            TENSOR("encoder.LayerNorm.weight", Q, POSITION_NORM),
            TENSOR("encoder.LayerNorm.bias", K, POSITION_NORM)),
    KEYS(HIDDEN_SIZE, HEADS, SIZE("attention_head_size", head_dim, ATTN_MAX_HEAD_DIM), LAYERS,
         POSITIONS, FLAG("relative_attention", relative_attention),
         FLAG("share_att_key", share_att_key), POSITION_TABLE,
         NUMBER("layer_norm_eps", relative_norm_eps, 0, 1), FIXED("talking_head", "false"),
         IGNORED("conv_act conv_groups conv_kernel_size embedding_size legacy padding_idx "
                 "pooler_dropout pooler_hidden_act pooler_hidden_size position_biased_input")),
    DEFAULTS(ENCODER, .max_position = 512, .relative_norm_eps = 1e-7));

/* ---- Images ---------------------------------------------------------------------------------- */

ROW(vit, FAMILY("vit"), PREFIXES("vit.", ""),
    TENSORS(MAPS(BERT_LAYER, "attention.query", "attention.key", "attention.value",
                 "output.dense")),
    KEYS(SIZES, FLAG("qkv_bias", bias),
         IGNORED("encoder_stride image_size num_channels patch_size pooler_act "
                 "pooler_output_size")),
    DEFAULTS(ENCODER, .o_bias = true));

/* clip, siglip: a tower of text and a tower of images.  `logit_scale_init_value` and the
 * projections follow the towers. */
static const struct attn_hf_key tower_keys[] = KEY_LIST(
    SIZES, POSITIONS,
    IGNORED("image_size logit_scale_init_value num_channels patch_size projection_dim "
            "projection_size text_config text_config_dict vision_config vision_config_dict "
            "vision_use_head"));

static const struct attn_family_tensor tower_tensors[] =
    TENSOR_LIST(MAPS("encoder.layers.*.self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"));

#define TOWER(type, part, width, heads, ...)          \
    FAMILY(type), PREFIXES(part "_model."),           \
        .keys = tower_keys, .tensors = tower_tensors, \
        DEFAULTS(ENCODER, .hidden_size = width, .num_heads = heads, .num_layers = 12, __VA_ARGS__)
#define CLIP_TEXT(type) TOWER(type, "text", 512, 8, .is_causal = true, .max_position = 77)
#define SIGLIP_TEXT(type) TOWER(type, "text", 768, 12, .max_position = 64)
#define VISION(type) TOWER(type, "vision", 768, 12, )
#define PART(part) .stack = part, .subconfig = part "_config", .subconfig_dict = part "_config_dict"

ROW(clip_text, CLIP_TEXT("clip"), PART("text"));
ROW(clip_vision, VISION("clip"), PART("vision"));
ROW(siglip_text, SIGLIP_TEXT("siglip"), PART("text"));
ROW(siglip_vision, VISION("siglip"), PART("vision"));

/* A tower that is published alone: its settings are at the top of the configuration. */
ROW(clip_text_model, CLIP_TEXT("clip_text_model"));
ROW(clip_vision_model, VISION("clip_vision_model"));
ROW(siglip_text_model, SIGLIP_TEXT("siglip_text_model"));
ROW(siglip_vision_model, VISION("siglip_vision_model"));

/* ---- wav2vec2, hubert: frames in place of tokens --------------------------------------------- */

static const struct attn_hf_key wav2vec2_keys[] = KEY_LIST(
    SIZES,
    IGNORED("adapter_attn_dim adapter_kernel_size adapter_stride add_adapter apply_spec_augment "
            "classifier_proj_size codevector_dim contrastive_logits_temperature conv_bias conv_dim "
            "conv_kernel conv_pos_batch_norm conv_stride ctc_loss_reduction ctc_zero_infinity "
            "diversity_loss_weight do_stable_layer_norm feat_extract_activation "
            "feat_extract_dropout feat_extract_norm feat_proj_dropout feat_proj_layer_norm "
            "feat_quantizer_dropout final_dropout freeze_feat_extract_train mask_channel_length "
            "mask_channel_min_space mask_channel_other mask_channel_prob mask_channel_selection "
            "mask_feature_length mask_feature_min_masks mask_feature_prob mask_time_length "
            "mask_time_min_masks mask_time_min_space mask_time_other mask_time_prob "
            "mask_time_selection no_mask_channel_overlap no_mask_time_overlap num_adapter_layers "
            "num_codevector_groups num_codevectors_per_group num_conv_pos_embedding_groups "
            "num_conv_pos_embeddings num_feat_extract_layers num_negatives output_hidden_size "
            "proj_codevector_dim tdnn_dilation tdnn_dim tdnn_kernel use_weighted_layer_sum "
            "xvector_output_dim"));

#define WAV2VEC2(type)                                                                          \
    FAMILY(type), PREFIXES(type ".", ""),                                                       \
        .keys = wav2vec2_keys,                                                                  \
        TENSORS(MAPS("encoder.layers.*.attention.", "q_proj", "k_proj", "v_proj", "out_proj")), \
        DEFAULTS(ENCODER)

ROW(wav2vec2, WAV2VEC2("wav2vec2"));
ROW(hubert, WAV2VEC2("hubert"));
