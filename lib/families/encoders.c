/* encoders.c: rows of BERT and the text encoders after it, of encoders of images and of frames of
 * sound, and of the towers of image and text.  Data only.  Sources: as in llama.c. */
#include "families/rows.h"

/* ---- bert and the families that keep its layer ----------------------------------------------- */

static const struct attn_hf_key bert_keys[] = KEY_LIST(
    SIZES, POSITIONS, FLAG("is_decoder", is_causal),
    NAME("position_embedding_type", relative_positions,
         "relative_key relative_key_query absolute alibi"),
    IGNORED("concat_input emb_pooler embedding_size enable_cls enable_pronunciation enable_shape "
            "feed_forward_type fusion_hidden_size fusion_num_hidden_layers learn_encoder "
            "max_2d_position_embeddings max_depth max_xpath_subs_unit_embeddings "
            "max_xpath_tag_unit_embeddings model_max_length pooler_fn project_dim projection_dim "
            "projection_hidden_act pronunciation_embed_dim pronunciation_vocab_size "
            "shape_embed_dim shape_vocab_size subs_pad_id summary_last_dropout tag_pad_id "
            "task_type_vocab_size use_task_id xpath_unit_hidden_size"));

#define BERT_LAYER "encoder.layer.*.attention."
static const struct attn_family_tensor bert_tensors[] =
    TENSOR_LIST(MAPS(BERT_LAYER, "self.query", "self.key", "self.value", "output.dense"),
                TENSOR(BERT_LAYER "self.distance_embedding.weight", Q, POSITION_BIAS));

/* With the names of bert's tensors; with its keys too. */
#define NAMED_AS_BERT(type, prefix) FAMILY(type), PREFIXES(prefix, ""), .tensors = bert_tensors
#define BERT(type, prefix) NAMED_AS_BERT(type, prefix), .keys = bert_keys, DEFAULTS(ENCODER)

ROW(bert, BERT("bert", "bert."), .note = "ALiBi by key: Jina v2");
ROW(roberta, BERT("roberta", "roberta."));
ROW(xlm_roberta, BERT("xlm-roberta", "roberta."));
ROW(camembert, BERT("camembert", "roberta."));
ROW(electra, BERT("electra", "electra."));
ROW(ernie, BERT("ernie", "ernie."));
ROW(bert_generation, BERT("bert-generation", "bert."));
ROW(data2vec_text, BERT("data2vec-text", "data2vec_text."));
ROW(layoutlm, BERT("layoutlm", "layoutlm."));
ROW(markuplm, BERT("markuplm", "markuplm."));
ROW(megatron_bert, BERT("megatron-bert", "bert."));
ROW(roberta_prelayernorm, BERT("roberta-prelayernorm", "roberta_prelayernorm."));
ROW(roc_bert, BERT("roc_bert", "roc_bert."));
ROW(splinter, BERT("splinter", "splinter."));
ROW(xlm_roberta_xl, BERT("xlm-roberta-xl", "roberta."));

ROW(dpr, FAMILY("dpr"), .tensors = bert_tensors, .keys = bert_keys, DEFAULTS(ENCODER),
    PREFIXES("question_encoder.bert_model.", "ctx_encoder.bert_model.",
             "span_predictor.encoder.bert_model."));

/* Queries and keys are made of a bottleneck's rows, values of the whole ones. */
ROW(mobilebert, NAMED_AS_BERT("mobilebert", "mobilebert."),
    KEYS(SIZE("intra_bottleneck_size", hidden_size, ATTN_MAX_HIDDEN_SIZE),
         SIZE("hidden_size", value_size, ATTN_MAX_HIDDEN_SIZE), HEADS, LAYERS, POSITIONS,
         FIXED("use_bottleneck", "true"), FIXED("use_bottleneck_attention", "false"),
         FIXED("key_query_shared_bottleneck", "true"),
         IGNORED("classifier_activation embedding_size normalization_type "
                 "num_feedforward_networks trigram_input true_hidden_size")),
    DEFAULTS(ENCODER, .hidden_size = 128));

/* Tables, and regions of images, are embedded before the layers. */
#define EMBEDS(type, prefix, keys)                                             \
    NAMED_AS_BERT(type, prefix),                                               \
        KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal),                  \
             FIXED("position_embedding_type", "\"absolute\""), IGNORED(keys)), \
        DEFAULTS(ENCODER)

ROW(tapas, EMBEDS("tapas", "tapas.",
                  "aggregation_labels aggregation_loss_weight aggregation_temperature "
                  "allow_empty_column_selection answer_loss_cutoff answer_loss_importance "
                  "average_approximation_function average_logits_per_cell "
                  "cell_selection_preference disable_per_token_loss huber_loss_delta "
                  "init_cell_selection_weights_to_zero max_num_columns max_num_rows "
                  "no_aggregation_label_index num_aggregation_labels positive_label_weight "
                  "positive_weight reset_position_index_per_cell select_one_column "
                  "softmax_temperature temperature type_vocab_sizes use_answer_as_supervision "
                  "use_gumbel_for_aggregation use_gumbel_for_cells use_normalized_answer_loss"));
ROW(visual_bert, EMBEDS("visual_bert", "visual_bert.",
                        "bypass_transformer special_visual_initialize visual_embedding_dim"));

ROW(rembert, NAMED_AS_BERT("rembert", "rembert."),
    KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal),
         FIXED("position_embedding_type", "\"absolute\""),
         IGNORED("input_embedding_size output_embedding_size")),
    DEFAULTS(ENCODER));

/* Its adapters for languages come after the layer. */
ROW(xmod, NAMED_AS_BERT("xmod", "roberta."),
    KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal),
         FIXED("position_embedding_type", "\"absolute\""),
         IGNORED("adapter_layer_norm adapter_reduction_factor adapter_reuse_layer_norm "
                 "default_language languages ln_before_adapter pre_norm")),
    DEFAULTS(ENCODER));

/* Local tokens have windows, and the keys of global ones, which calls say.  Global tokens have maps
 * of their own, and all keys. */
#define LONGFORMER(part, maps, ...)                                                     \
    FAMILY("longformer"),                                                               \
        .stack = part, PREFIXES("longformer.", ""),                                     \
        TENSORS(MAPS(BERT_LAYER, "self.query" maps, "self.key" maps, "self.value" maps, \
                     "output.dense")),                                                  \
        KEYS(SIZES, POSITIONS,                                                          \
             FIELD("attention_window", WINDOWS, num_layer_windows, 2, MAX_POSITION),    \
             FIXED("position_embedding_type", "\"absolute\""),                          \
             IGNORED("attention_mode ignore_attention_mask onnx_export")),              \
        DEFAULTS(ENCODER, __VA_ARGS__)

ROW(longformer, LONGFORMER("encoder", "", SLIDES, .half_window = true, .sliding_window = 512));
ROW(longformer_global, LONGFORMER("global", "_global", ));

/* Full attention, as far as the published class has it. */
ROW(big_bird, NAMED_AS_BERT("big_bird", "bert."),
    KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal), FLAG("use_bias", bias),
         NAME("attention_type", attention_type, "original_full block_sparse"),
         SIZE("block_size", block_size, MAX_POSITION / 4096),
         SIZE("num_random_blocks", random_blocks, 1024),
         FIXED("position_embedding_type", "\"absolute\""), IGNORED("rescale_embeddings")),
    DEFAULTS(ENCODER, .o_bias = true, .attention_type = 2, .block_size = 64, .random_blocks = 3));

/* Its biases are of the boxes of tokens on a page. */
ROW(layoutlmv3, NAMED_AS_BERT("layoutlmv3", "layoutlmv3."),
    KEYS(SIZES, POSITIONS, FLAG("has_relative_attention_bias", unsaid_bias_1d),
         FLAG("has_spatial_attention_bias", unsaid_bias_2d),
         IGNORED("coordinate_size input_size max_2d_position_embeddings max_rel_2d_pos "
                 "max_rel_pos num_channels patch_size rel_2d_pos_bins rel_pos_bins "
                 "second_input_size shape_size text_embed visual_embed")),
    DEFAULTS(ENCODER, .unsaid_bias_1d = true, .unsaid_bias_2d = true));

/* esm, roformer: bert with RoPE.  Buffers of angles beside the weights hold what the formula gives.
 */
ROW(esm, NAMED_AS_BERT("esm", "esm."),
    KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal),
         NAME("position_embedding_type", position_type, "rotary absolute"),
         IGNORED("emb_layer_norm_before esmfold_config is_folding_model token_dropout "
                 "vocab_list")),
    DEFAULTS(ENCODER, .position_type = ATTN_POSITION_ABSOLUTE, ROPE(10000)));

ROW(roformer, NAMED_AS_BERT("roformer", "roformer."),
    KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal), FIXED("rotary_value", "false"),
         IGNORED("embedding_size")),
    DEFAULTS(ENCODER, ROPE(10000, .interleaved = true)));

ROW(jina_embeddings_v3, FAMILY("jina_embeddings_v3"), PREFIXES("", "roberta."),
    .tensors = attn_llama_tensors,
    KEYS(SIZES, POSITIONS, THETA, ROPE_OBJECTS, FIXED("position_embedding_type", "\"rotary\""),
         IGNORED("lora_adaptations lora_alpha lora_dropout_p lora_rank matryoshka_dimensions "
                 "task_instructions truncate_dim")),
    DEFAULTS(ENCODER, ROPE(20000)));

/* The keys of GPT-2, as published, or those of later versions.  The two kinds disagree on the base
 * where none is given, so one must be. */
ROW(nomic_bert, FAMILY("nomic_bert"), PREFIXES("", "bert.", "nomic_bert."),
    TENSORS(FUSED("encoder.layers.*.attn.", "Wqkv", "out_proj")),
    KEYS(SIZE("n_embd", hidden_size, ATTN_MAX_HIDDEN_SIZE), HIDDEN_SIZE, HEADS_AS("n_head"), HEADS,
         HEAD_DIM, LAYERS_AS("n_layer"), LAYERS, SIZE("n_positions", max_position, MAX_POSITION),
         POSITIONS, FLAG("qkv_proj_bias", bias),
         NUMBER("rotary_emb_base", rope.theta, 1, MAX_THETA), THETA,
         NUMBER("rotary_emb_fraction", rope.partial_rotary_factor, 1e-6, 1),
         FLAG("rotary_emb_interleaved", rope.interleaved), ROPE_OBJECTS,
         FLAG("scale_attn_weights", scale_attn_weights), FIXED("causal", "false"),
         FIXED("rotary_emb_scale_base", "null"), FIXED("rotary_scaling_factor", "null"),
         FIXED("scale_attn_by_inverse_layer_idx", "false"),
         IGNORED("add_pooling_layer dense_seq_output expert_choice_router ffn_div fused_bias_fc "
                 "fused_dropout_add_ln max_trained_positions mlp_fc1_bias mlp_fc2_bias "
                 "moe_every_n_layers moe_impl moe_normalize_expert_weights moe_resid_pdrop "
                 "moe_top_k num_shared_experts pad_vocab_size_multiple parallel_block prenorm "
                 "reorder_and_upcast_attn use_flash_attn use_rms_norm use_xentropy")),
    DEFAULTS(.scale_attn_weights = true, .rope = {.type = ATTN_ROPE_DEFAULT, .truncate = true}));

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
static const struct attn_hf_key xlm_keys[] =
    KEY_LIST(DIM("emb_dim"), FIXED("causal", "false"), FIXED("is_encoder", "true"),
             IGNORED("asm bos_index embed_init_std end_n_top eos_index gelu_activation id2lang "
                     "init_std lang2id lang_id layerdrop mask_index max_vocab min_count n_langs "
                     "n_words pad_index pre_norm same_enc_dec share_inout_emb "
                     "sinusoidal_embeddings start_n_top unk_index use_lang_emb"));

#define XLM(type)                                                                       \
    FAMILY(type), PREFIXES("transformer.", ""), LIN("attentions.*."), .keys = xlm_keys, \
                                                                      DEFAULTS(ENCODER)

ROW(xlm, XLM("xlm"));
ROW(flaubert, XLM("flaubert"));

/* One layer in three sees everything, the others both sides of a window.  Positions rotate,
 * whatever position_embedding_type says. */
#define MODERNBERT_IGNORED                                                              \
    IGNORED("classifier_activation classifier_bias classifier_pooling decoder_bias "    \
            "deterministic_flash_attn embedding_dropout initializer_cutoff_factor "     \
            "mlp_dropout norm_bias norm_eps position_embedding_type reference_compile " \
            "repad_logits_with_grad sparse_pred_ignore_index sparse_prediction")
#define MODERNBERT_KEYS                                                                      \
    SIZES, POSITIONS, ATTENTION_BIAS, SIZE("local_attention", sliding_window, MAX_POSITION), \
        FULL_PERIOD("global_attn_every_n_layers"), LAYER_TYPES,                              \
        NUMBER("global_rope_theta", rope.theta, 1, MAX_THETA),                               \
        NUMBER("local_rope_theta", sliding_rope.theta, 1, MAX_THETA), ROPE_OBJECTS,          \
        MODERNBERT_IGNORED
#define MODERNBERT                                                                            \
    SLIDES, .half_window = true, .sliding_window = 128, .full_period = 3, .full_first = true, \
            .rope_by_type = true, ROPE(160000),                                               \
            .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)}

/* sliding_window follows from local_attention. */
ROW(modernbert_decoder, DECODER("modernbert-decoder"),
    TENSORS(MAPS("layers.*.attn.", "q_proj", "k_proj", "v_proj", "Wo")),
    KEYS(MODERNBERT_KEYS, IGNORED("sliding_window")), DEFAULTS(CAUSAL, MODERNBERT));

ROW(modernbert, DECODER("modernbert"),
    TENSORS(WEIGHT("layers.*.attn.Wqkv", QKV), WEIGHT("layers.*.attn.Wo", O),
            BIAS("layers.*.attn.Wqkv", QKV), BIAS("layers.*.attn.Wo", O)),
    KEYS(MODERNBERT_KEYS), DEFAULTS(.scale_attn_weights = true, MODERNBERT));

/* gpt-oss in both directions, every layer with a window, of sliding_window tokens on each side. */
ROW(openai_privacy_filter, DECODER("openai_privacy_filter"),
    TENSORS(LLAMA_MAPS, TENSOR(SELF_ATTN "sinks", Q, SINKS)),
    KEYS(DECODER_SIZES, ATTENTION_BIAS, WINDOW, THETA, ROPE_OBJECTS,
         IGNORED("initial_context_length swiglu_limit")),
    DEFAULTS(.scale_attn_weights = true, .num_kv_heads = 2, .head_dim = 64, .bias = true,
             .sinks = true, .max_position = 131072, SLIDES, .sliding_window = 128,
             .closed_window = true,
             .rope = {ROPE_OF(YARN, 150000, .factor = 32, .original_max_position = 4096,
                              .beta_fast = 32, .beta_slow = 1, .interleaved = true)}));

/* deberta: q, k and v of each head in one tensor, biases of q and v beside it. */
#define POSITION_MAP(path, of)                                  \
    TENSOR(BERT_LAYER path ".weight", of, POSITION_PROJECTION), \
        TENSOR(BERT_LAYER path ".bias", of, POSITION_PROJECTION_BIAS)

ROW(deberta, FAMILY("deberta"), PREFIXES("deberta.", ""),
    TENSORS(WEIGHT(BERT_LAYER "self.in_proj", QKV), WEIGHT(BERT_LAYER "output.dense", O),
            TENSOR(BERT_LAYER "self.q_bias", Q, BIAS), TENSOR(BERT_LAYER "self.v_bias", V, BIAS),
            BIAS(BERT_LAYER "output.dense", O),
            TENSOR("encoder.rel_embeddings.weight", Q, POSITION_BIAS),
            TENSOR(BERT_LAYER "self.pos_proj.weight", K, POSITION_PROJECTION),
            POSITION_MAP("self.pos_q_proj", Q)),
    .layout = ATTN_LAYOUT_GROUPED, .unbiased = ATTN_PROJ_K,
    KEYS(SIZES, POSITIONS, FLAG("relative_attention", relative_attention),
         FIELD("pos_att_type", TERMS, position_terms, 0, 0),
         FIELD("max_relative_positions", INTEGER, max_relative_positions, -1, ATTN_MAX_BUCKETS),
         FIXED("talking_head", "false"),
         IGNORED("embedding_size legacy padding_idx pooler_dropout pooler_hidden_act "
                 "pooler_hidden_size position_biased_input")),
    DEFAULTS(ENCODER, .max_position = 512, .plain_pos_key = true));

/* v3 has this model_type too. */
ROW(deberta_v2, FAMILY("deberta-v2"), PREFIXES("deberta.", ""),
    TENSORS(MAPS(BERT_LAYER, "self.query_proj", "self.key_proj", "self.value_proj", "output.dense"),
            TENSOR("encoder.rel_embeddings.weight", Q, POSITION_BIAS),
            TENSOR("encoder.LayerNorm.weight", Q, POSITION_NORM),
            TENSOR("encoder.LayerNorm.bias", K, POSITION_NORM),
            POSITION_MAP("self.pos_key_proj", K), POSITION_MAP("self.pos_query_proj", Q)),
    KEYS(HIDDEN_SIZE, HEADS, SIZE("attention_head_size", head_dim, ATTN_MAX_HEAD_DIM), LAYERS,
         POSITIONS, FLAG("relative_attention", relative_attention),
         FLAG("share_att_key", share_att_key), POSITION_TABLE,
         NUMBER("layer_norm_eps", relative_norm_eps, 0, 1), FIXED("talking_head", "false"),
         IGNORED("conv_act conv_groups conv_kernel_size embedding_size legacy padding_idx "
                 "pooler_dropout pooler_hidden_act pooler_hidden_size position_biased_input")),
    DEFAULTS(ENCODER, .max_position = 512, .relative_norm_eps = 1e-7));

/* ---- Images ---------------------------------------------------------------------------------- */

static const struct attn_hf_key vit_keys[] = KEY_LIST(
    SIZES, FLAG("qkv_bias", bias),
    IGNORED("add_projection apply_layernorm auxiliary_loss auxiliary_loss_weight "
            "backbone_featmap_shape backbone_out_indices bbox_cost bbox_loss_coefficient "
            "class_cost decoder_hidden_size decoder_intermediate_size decoder_num_attention_heads "
            "decoder_num_hidden_layers drop_path_rate encoder_stride eos_coefficient "
            "frequency_stride fusion_hidden_size giou_cost giou_loss_coefficient head_in_index "
            "image_size is_hybrid layerscale_value mask_ratio mlp_ratio neck_hidden_sizes "
            "neck_ignore_stages norm_pix_loss num_channels num_detection_tokens num_experts "
            "num_frames num_mel_bins num_register_tokens out_features out_indices part_features "
            "patch_size pooler_act pooler_output_size readout_type reassemble_factors "
            "reshape_hidden_states semantic_classifier_dropout semantic_loss_ignore_index "
            "stage_names time_stride tubelet_size use_auxiliary_head "
            "use_batch_norm_in_fusion_residual use_bias_in_fusion_residual use_mask_token "
            "use_mean_pooling use_mid_position_embeddings use_swiglu_ffn"));

static const struct attn_family_tensor vit_tensors[] = TENSOR_LIST(
    MAPS(BERT_LAYER, "attention.query", "attention.key", "attention.value", "output.dense"));

#define VIT(type, prefix)                                                         \
    FAMILY(type), PREFIXES(prefix, ""), .keys = vit_keys, .tensors = vit_tensors, \
                                        DEFAULTS(ENCODER, .o_bias = true)

ROW(vit, VIT("vit", "vit."));
ROW(ast, VIT("audio-spectrogram-transformer", "audio_spectrogram_transformer."));
ROW(deit, VIT("deit", "deit."));
ROW(dinov2, VIT("dinov2", "dinov2."), INNER(768, 12, 12, 0));
ROW(dinov2_with_registers, VIT("dinov2_with_registers", "dinov2_with_registers."));
ROW(dpt, VIT("dpt", "dpt."));
ROW(ijepa, VIT("ijepa", "ijepa."));
ROW(vit_mae, VIT("vit_mae", "vit."));
ROW(vit_msn, VIT("vit_msn", "vit."));
ROW(vivit, VIT("vivit", "vivit."));
ROW(yolos, VIT("yolos", "vit."));
ROW(vitpose_backbone, VIT("vitpose_backbone", "backbone."));

ROW(vilt, FAMILY("vilt"), PREFIXES("vilt.", ""), .tensors = vit_tensors,
    KEYS(SIZES, POSITIONS, FLAG("qkv_bias", bias),
         IGNORED("image_size max_image_length modality_type_vocab_size num_channels num_images "
                 "patch_size")),
    DEFAULTS(ENCODER, .o_bias = true));

/* The biases of queries and values have names of their own; keys have none. */
ROW(videomae, FAMILY("videomae"), PREFIXES("videomae.", ""), .keys = vit_keys,
    TENSORS(WEIGHTS(BERT_LAYER, "attention.query", "attention.key", "attention.value",
                    "output.dense"),
            TENSOR(BERT_LAYER "attention.q_bias", Q, BIAS),
            TENSOR(BERT_LAYER "attention.v_bias", V, BIAS), BIAS(BERT_LAYER "output.dense", O)),
    .unbiased = ATTN_PROJ_K, DEFAULTS(ENCODER, .o_bias = true));

/* A bias by rows and columns of patches. */
#define BEIT(type, prefix)                                                                    \
    FAMILY(type), PREFIXES(prefix, ""),                                                       \
        .keys = beit_keys, .unbiased = ATTN_PROJ_K,                                           \
        TENSORS(WEIGHTS(BERT_LAYER, "attention.query", "attention.key", "attention.value",    \
                        "output.dense"),                                                      \
                BIAS(BERT_LAYER "attention.query", Q), BIAS(BERT_LAYER "attention.value", V), \
                BIAS(BERT_LAYER "output.dense", O),                                           \
                TENSOR(BERT_LAYER "attention." GRID_TABLE, Q, POSITION_BIAS),                 \
                TENSOR("encoder." GRID_TABLE, Q, POSITION_BIAS)),                             \
        DEFAULTS(ENCODER, .image_size = 224, .patch_size = 16)
#define GRID_TABLE "relative_position_bias.relative_position_bias_table"

static const struct attn_hf_key beit_keys[] = KEY_LIST(
    SIZES, FLAG("use_relative_position_bias", grid_bias),
    FLAG("use_shared_relative_position_bias", shared_grid_bias),
    SIZE("image_size", image_size, 65536), SIZE("patch_size", patch_size, 65536),
    IGNORED("add_fpn auxiliary_channels auxiliary_concat_input auxiliary_loss_weight "
            "auxiliary_num_convs drop_path_rate layer_scale_init_value num_channels out_features "
            "out_indices pool_scales reshape_hidden_states semantic_loss_ignore_index "
            "semantic_out_indices stage_names use_absolute_position_embeddings "
            "use_auxiliary_head use_mask_token use_mean_pooling"));

ROW(beit, BEIT("beit", "beit."));
ROW(data2vec_vision, BEIT("data2vec-vision", "data2vec_vision."));

/* Patches rotate by their rows and columns, which the call gives. */
ROW(dinov3_vit, FAMILY("dinov3_vit"), PREFIXES("", "model."),
    TENSORS(MAPS("layer.*.attention.", "q_proj", "k_proj", "v_proj", "o_proj")),
    KEYS(SIZES, THETA, FLAG("query_bias", q_bias), FLAG("key_bias", k_bias),
         FLAG("value_bias", v_bias), FLAG("proj_bias", o_bias),
         FIELD("num_register_tokens", INTEGER, num_registers, 0, 65536),
         IGNORED("apply_layernorm drop_path_rate image_size layerscale_value num_channels "
                 "out_features out_indices patch_size pos_embed_jitter pos_embed_rescale "
                 "pos_embed_shift reshape_hidden_states return_class_token stage_names "
                 "use_gated_mlp use_swiglu_ffn")),
    DEFAULTS(.scale_attn_weights = true, .q_bias = true, .v_bias = true, .o_bias = true,
             .rope_by_grid = true, ROPE(100)));

/* clip, owlvit, siglip: a tower of text and a tower of images.  `logit_scale_init_value` and the
 * projections follow the towers. */
static const struct attn_hf_key tower_keys[] = KEY_LIST(
    SIZES, POSITIONS,
    IGNORED("drop_path_rate image_size logit_scale_init_value max_image_size mit_hidden_size "
            "mit_intermediate_size mit_num_attention_heads mit_num_hidden_layers num_channels "
            "num_frames num_image_tokens num_patches patch_size projection_dim "
            "projection_size projector_hidden_act size text_config text_config_dict "
            "use_base_siglip vision_config vision_config_dict vision_use_head"));

static const struct attn_family_tensor tower_tensors[] =
    TENSOR_LIST(MAPS("encoder.layers.*.self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"));

#define TOWER(type, part, width, heads, ...)          \
    FAMILY(type), PREFIXES(part "_model."),           \
        .keys = tower_keys, .tensors = tower_tensors, \
        DEFAULTS(ENCODER, .hidden_size = width, .num_heads = heads, .num_layers = 12, __VA_ARGS__)
#define CAUSAL_TEXT(type, part, positions) \
    TOWER(type, part, 512, 8, .is_causal = true, .max_position = positions)
#define CLIP_TEXT(type) CAUSAL_TEXT(type, "text", 77)
#define SIGLIP_TEXT(type) TOWER(type, "text", 768, 12, .max_position = 64)
#define VISION(type) TOWER(type, "vision", 768, 12, )
#define PART(part) .stack = part, .subconfig = part "_config", .subconfig_dict = part "_config_dict"

ROW(clip_text, CLIP_TEXT("clip"), PART("text"));
ROW(clip_vision, VISION("clip"), PART("vision"));
ROW(chinese_clip_text, BERT("chinese_clip", "text_model."), PART("text"));
ROW(chinese_clip_vision, VISION("chinese_clip"), PART("vision"));
ROW(altclip_text, BERT("altclip", "text_model.roberta."), PART("text"));
ROW(altclip_vision, VISION("altclip"), PART("vision"));
ROW(clipseg_text, CAUSAL_TEXT("clipseg", "clip.text", 77), PART("text"));
ROW(clipseg_vision, TOWER("clipseg", "clip.vision", 768, 12, ), PART("vision"));
ROW(metaclip_2_text, CLIP_TEXT("metaclip_2"), PART("text"));
ROW(metaclip_2_vision, VISION("metaclip_2"), PART("vision"));
ROW(xclip_text, CLIP_TEXT("xclip"), PART("text"));
ROW(xclip_vision, VISION("xclip"), PART("vision"));
ROW(clap_text, BERT("clap", "text_model."), PART("text"));
ROW(align_text, BERT("align", "text_model."), PART("text"));
ROW(owlvit_text, CAUSAL_TEXT("owlvit", "owlvit.text", 16), PART("text"));
ROW(owlvit_vision, TOWER("owlvit", "owlvit.vision", 768, 12, ), PART("vision"));
ROW(owlv2_text, CAUSAL_TEXT("owlv2", "owlv2.text", 16), PART("text"));
ROW(owlv2_vision, TOWER("owlv2", "owlv2.vision", 768, 12, ), PART("vision"));
ROW(siglip_text, SIGLIP_TEXT("siglip"), PART("text"));
ROW(siglip_vision, VISION("siglip"), PART("vision"));
ROW(siglip2_text, SIGLIP_TEXT("siglip2"), PART("text"));
ROW(siglip2_vision, VISION("siglip2"), PART("vision"));

/* A tower that is published alone: its settings are at the top of the configuration. */
ROW(clip_text_model, CLIP_TEXT("clip_text_model"));
ROW(clip_vision_model, VISION("clip_vision_model"));
ROW(siglip_text_model, SIGLIP_TEXT("siglip_text_model"));
ROW(siglip_vision_model, VISION("siglip_vision_model"));
ROW(siglip2_text_model, SIGLIP_TEXT("siglip2_text_model"));
ROW(siglip2_vision_model, VISION("siglip2_vision_model"));

/* Towers that are published inside larger models alone. */
ROW(idefics3_vision, TOWER("idefics3_vision", "vision", 1152, 16, ));
ROW(smolvlm_vision, TOWER("smolvlm_vision", "vision", 1152, 16, ));

ROW(internvl_vision, FAMILY("internvl_vision"), PREFIXES(""),
    TENSORS(MAPS("encoder.layer.*.attention.", "q_proj", "k_proj", "v_proj", "projection_layer"),
            NORM("encoder.layer.*.attention.q_norm", Q),
            NORM("encoder.layer.*.attention.k_norm", K)),
    KEYS(SIZES, ATTENTION_BIAS, FLAG("use_qk_norm", qk_norm),
         IGNORED("image_size "
                 "layer_scale_init_value norm_type num_channels patch_size projection_dropout "
                 "use_absolute_position_embeddings use_mask_token use_mean_pooling")),
    DEFAULTS(.scale_attn_weights = true, .o_bias = true, .norm_extent = ATTN_NORM_ALL_HEADS,
             .norm_eps = 1e-6, .hidden_size = 1024, .num_heads = 16, .num_layers = 24));

/* ---- wav2vec2 and its kin: frames in place of tokens ----------------------------------------- */

#define SPEECH_IGNORED                                                                           \
    IGNORED(                                                                                     \
        "adapter_attn_dim adapter_kernel_size adapter_stride add_adapter apply_spec_augment "    \
        "classifier_proj_size codevector_dim contrastive_logits_temperature conv_bias conv_dim " \
        "conv_kernel conv_pos_batch_norm conv_pos_kernel_size conv_stride ctc_loss_reduction "   \
        "ctc_zero_infinity "                                                                     \
        "diversity_loss_weight do_stable_layer_norm feat_extract_activation "                    \
        "feat_extract_dropout feat_extract_norm feat_proj_dropout feat_proj_layer_norm "         \
        "feat_quantizer_dropout final_dropout freeze_feat_extract_train mask_channel_length "    \
        "mask_channel_min_space mask_channel_other mask_channel_prob mask_channel_selection "    \
        "mask_feature_length mask_feature_min_masks mask_feature_prob mask_time_length "         \
        "mask_time_min_masks mask_time_min_space mask_time_other mask_time_prob "                \
        "mask_time_selection no_mask_channel_overlap no_mask_time_overlap num_adapter_layers "   \
        "num_codevector_groups num_codevectors_per_group num_conv_pos_embedding_groups "         \
        "num_clusters num_conv_pos_embeddings num_ctc_classes num_feat_extract_layers "          \
        "num_negatives output_hidden_size proj_codevector_dim replace_prob squeeze_factor "      \
        "tdnn_dilation tdnn_dim tdnn_kernel use_weighted_layer_sum "                             \
        "xvector_output_dim")

static const struct attn_hf_key wav2vec2_keys[] = KEY_LIST(SIZES, SPEECH_IGNORED);

#define WAV2VEC2(type, prefix)                                                                  \
    FAMILY(type), PREFIXES(prefix, ""),                                                         \
        .keys = wav2vec2_keys,                                                                  \
        TENSORS(MAPS("encoder.layers.*.attention.", "q_proj", "k_proj", "v_proj", "out_proj")), \
        DEFAULTS(ENCODER)

ROW(wav2vec2, WAV2VEC2("wav2vec2", "wav2vec2."));
ROW(data2vec_audio, WAV2VEC2("data2vec-audio", "data2vec_audio."));
ROW(hubert, WAV2VEC2("hubert", "hubert."));
ROW(sew, WAV2VEC2("sew", "sew."));
ROW(unispeech, WAV2VEC2("unispeech", "unispeech."));
ROW(unispeech_sat, WAV2VEC2("unispeech-sat", "unispeech_sat."));

/* The gated bias has one table for all layers, which the first one keeps. */
#define GATE "encoder.layers.*.attention.gru_rel_pos_"
ROW(wavlm, FAMILY("wavlm"), PREFIXES("wavlm.", ""),
    TENSORS(MAPS("encoder.layers.*.attention.", "q_proj", "k_proj", "v_proj", "out_proj"),
            TENSOR("encoder.layers.0.attention.rel_attn_embed.weight", Q, POSITION_BIAS),
            TENSOR(GATE "linear.weight", Q, POSITION_GATE),
            TENSOR(GATE "linear.bias", K, POSITION_GATE), TENSOR(GATE "const", V, POSITION_GATE)),
    KEYS(SIZES, SIZE("num_buckets", buckets, ATTN_MAX_BUCKETS),
         SIZE("max_bucket_distance", max_distance, ATTN_MAX_BUCKETS), SPEECH_IGNORED),
    DEFAULTS(ENCODER, .buckets = 320, .max_distance = 800, .gated_bias = true));

ROW(wav2vec2_bert, FAMILY("wav2vec2-bert"), PREFIXES("wav2vec2_bert.", ""),
    TENSORS(MAPS("encoder.layers.*.self_attn.", "linear_q", "linear_k", "linear_v", "linear_out"),
            TENSOR("encoder.layers.*.self_attn."
                   "distance_embedding.weight",
                   Q, POSITION_BIAS)),
    KEYS(SIZES, NAME("position_embeddings_type", relative_key, "relative_key"),
         FIELD("left_max_position_embeddings", INTEGER, max_distance, 0, ATTN_MAX_BUCKETS),
         FIELD("right_max_position_embeddings", INTEGER, max_after, 0, ATTN_MAX_BUCKETS),
         IGNORED("adapter_act conformer_conv_dropout conv_depthwise_kernel_size "
                 "feature_projection_input_dim max_source_positions rotary_embedding_base "
                 "use_intermediate_ffn_before_adapter"),
         SPEECH_IGNORED),
    DEFAULTS(ENCODER, .relative_key = 1, .max_distance = 64, .max_after = 8));
