/* stacks.c: rows of architectures with an encoder and a decoder, three stacks each: T5, BART,
 * Whisper and those after them; decoders over another model's encoder.  Data only.  Sources: as in
 * llama.c, and v5.15.0 of it for what came after mBART and Whisper. */
#include "families/rows.h"

/* ---- t5 and its kin: scores are not scaled; block 0 holds the position bias of its stack ---- */

#define T5_SIZES D_MODEL, HEADS_AS("num_heads"), SIZE("d_kv", head_dim, ATTN_MAX_HEAD_DIM)

/* A decoder without num_decoder_layers has as many layers as the encoder. */
#define T5_DECODER_LAYERS \
    LAYERS_AS("num_decoder_layers"), SIZE("num_layers", num_layers_fallback, ATTN_MAX_LAYERS)

#define T5_IGNORED                                                                             \
    IGNORED("add_router_probs batch_prioritized_routing dense_act_fn encoder_sparse_step "     \
            "expert_capacity feed_forward_proj is_decoder is_encoder_decoder is_gated_act "    \
            "n_positions num_selected_experts num_sparse_decoder_layers "                      \
            "num_sparse_encoder_layers router_bias router_dtype router_ignore_padding_tokens " \
            "router_type router_z_loss_coef scalable_attention scale_decoder_outputs")

#define T5_ENCODER_KEYS \
    T5_SIZES, LAYERS_AS("num_layers"), IGNORED("num_decoder_layers"), BUCKETS, T5_IGNORED
#define T5_DECODER_KEYS T5_SIZES, T5_DECODER_LAYERS, BUCKETS, T5_IGNORED
#define T5_CROSS_KEYS            \
    T5_SIZES, T5_DECODER_LAYERS, \
        IGNORED("relative_attention_num_buckets relative_attention_max_distance"), T5_IGNORED

static const struct attn_hf_key t5_encoder_keys[] = KEY_LIST(T5_ENCODER_KEYS);
static const struct attn_hf_key t5_decoder_keys[] = KEY_LIST(T5_DECODER_KEYS);
static const struct attn_hf_key t5_cross_keys[] = KEY_LIST(T5_CROSS_KEYS);

/* `block` is that of the position bias: 0, or each one's own. */
#define T5_TENSORS(stack, module, block)                                                        \
    TENSORS(WEIGHTS(stack ".block.*.layer." module ".", "q", "k", "v", "o"),                    \
            TENSOR(stack ".block." block ".layer." module ".relative_attention_bias.weight", Q, \
                   POSITION_BIAS))
#define T5_STACK(type, part) FAMILY(type), .stack = part, PREFIXES(""), .unbiased = ATTN_PROJ_ALL
#define T5_BIAS .head_dim = 64, .buckets = 32, .max_distance = 128

#define T5_DECODER(type, block, ...)                                            \
    T5_STACK(type, "decoder"), T5_TENSORS("decoder", "0.SelfAttention", block), \
        DEFAULTS(T5_BIAS, .is_causal = true, __VA_ARGS__)
#define T5_ENCODER(type, block, ...)                                            \
    T5_STACK(type, "encoder"), T5_TENSORS("encoder", "0.SelfAttention", block), \
        DEFAULTS(T5_BIAS, __VA_ARGS__)
#define T5_CROSS(type, ...)                                                               \
    T5_STACK(type, "cross"),                                                              \
        TENSORS(WEIGHTS("decoder.block.*.layer.1.EncDecAttention.", "q", "k", "v", "o")), \
        DEFAULTS(.head_dim = 64, .is_cross = true, __VA_ARGS__)

/* The rows of a family with T5's keys; last, what a decoder has by default. */
#define T5(row, type, ...)                                                           \
    ROW(row##_decoder, T5_DECODER(type, "0", __VA_ARGS__), .keys = t5_decoder_keys); \
    ROW(row##_encoder, T5_ENCODER(type, "0", ), .keys = t5_encoder_keys);            \
    ROW(row##_cross, T5_CROSS(type, __VA_ARGS__), .keys = t5_cross_keys)

T5(t5, "t5", );
T5(mt5, "mt5", );
T5(switch_transformers, "switch_transformers", .num_layers = 12);

/* Every layer has a position bias. */
ROW(umt5_decoder, T5_DECODER("umt5", "*", .own_tables = true), KEYS(T5_DECODER_KEYS));
ROW(umt5_encoder, T5_ENCODER("umt5", "*", .own_tables = true), KEYS(T5_ENCODER_KEYS));
ROW(umt5_cross, T5_CROSS("umt5", ), KEYS(T5_CROSS_KEYS));

/* The encoder sees local_radius tokens on both sides. */
#define LONGT5_IGNORED IGNORED("encoder_attention_type global_block_size local_radius")
ROW(longt5_decoder, T5_DECODER("longt5", "0", ), KEYS(T5_DECODER_KEYS, LONGT5_IGNORED));
ROW(longt5_encoder, T5_STACK("longt5", "encoder"),
    T5_TENSORS("encoder", "0.LocalSelfAttention", "0"),
    KEYS(T5_ENCODER_KEYS, SIZE("local_radius", sliding_window, MAX_POSITION),
         FIXED("encoder_attention_type", "\"local\""), IGNORED("global_block_size")),
    DEFAULTS(T5_BIAS, SLIDES, .sliding_window = 127, .closed_window = true));
ROW(longt5_cross, T5_CROSS("longt5", ), KEYS(T5_CROSS_KEYS, LONGT5_IGNORED));

/* ---- bart and its kin, whisper --------------------------------------------------------------- */

#define ENCODER_SIZES                                                                              \
    D_MODEL, HIDDEN_SIZE, HEADS_AS("encoder_attention_heads"), HEADS, LAYERS_AS("encoder_layers"), \
        IGNORED("decoder_attention_heads decoder_layers")
#define DECODER_STACK_SIZES                                                                    \
    D_MODEL, HIDDEN_SIZE, HEADS_AS("decoder_attention_heads"), IGNORED("num_attention_heads"), \
        LAYERS_AS("decoder_layers"), IGNORED("encoder_attention_heads encoder_layers")
#define STACKS_IGNORED                                                                      \
    IGNORED("decoder_ffn_dim decoder_layerdrop encoder_ffn_dim encoder_layerdrop init_std " \
            "is_encoder_decoder num_hidden_layers scale_embedding")

/* A stack by the path of its modules. */
#define STACK(part, path, ...)                     \
    .stack = part, DEFAULTS(ENCODER, __VA_ARGS__), \
    TENSORS(MAPS(path "_attn.", "q_proj", "k_proj", "v_proj", "out_proj"))
#define SELF_STACK STACK("decoder", "decoder.layers.*.self", .is_causal = true)
#define ENCODER_STACK STACK("encoder", "encoder.layers.*.self", )
#define CROSS_STACK STACK("cross", "decoder.layers.*.encoder", .is_cross = true)

/* The rows of a family whose keys are class_decoder_keys and class_encoder_keys. */
#define STACKS(row, type, class, without)                                          \
    ROW(row##_decoder, DECODER(type), SELF_STACK, .keys = class##_decoder_keys,    \
        .unbiased = without);                                                      \
    ROW(row##_encoder, DECODER(type), ENCODER_STACK, .keys = class##_encoder_keys, \
        .unbiased = without);                                                      \
    ROW(row##_cross, DECODER(type), CROSS_STACK, .keys = class##_decoder_keys, .unbiased = without)

/* A prompt of mvp would put keys of its own before those of tokens. */
#define BART_KEYS                                                                                 \
    POSITIONS, STACKS_IGNORED, FIXED("use_prompt", "false"),                                      \
        IGNORED("add_bias_logits add_final_layer_norm batch_prioritized_routing classif_dropout " \
                "decoder_vocab_size do_blenderbot_90_layernorm early_stopping "                   \
                "encoder_sparse_step expert_capacity extra_layer_norm extra_pos_embeddings "      \
                "force_bos_token_to_be_generated langs layernorm_embedding layernorm_variant "    \
                "length_penalty max_length moe_eval_capacity_token_fraction moe_token_dropout "   \
                "normalize_before normalize_embedding normalize_router_prob_before_dropping "     \
                "num_beams prompt_length prompt_mid_dim router_bias router_dtype "                \
                "router_ignore_padding_tokens router_z_loss_coef second_expert_policy "           \
                "share_encoder_decoder_embeddings src_vocab_size static_position_embeddings "     \
                "tgt_vocab_size")
static const struct attn_hf_key bart_encoder_keys[] = KEY_LIST(ENCODER_SIZES, BART_KEYS);
static const struct attn_hf_key bart_decoder_keys[] = KEY_LIST(DECODER_STACK_SIZES, BART_KEYS);

STACKS(bart, "bart", bart, 0);
STACKS(mbart, "mbart", bart, 0);
STACKS(m2m_100, "m2m_100", bart, 0);
STACKS(nllb_moe, "nllb-moe", bart, 0);
STACKS(fsmt, "fsmt", bart, 0);
STACKS(marian, "marian", bart, 0);
STACKS(pegasus, "pegasus", bart, 0);
STACKS(blenderbot, "blenderbot", bart, 0);
STACKS(blenderbot_small, "blenderbot-small", bart, 0);
STACKS(mvp, "mvp", bart, 0);
STACKS(plbart, "plbart", bart, 0);

#define WHISPER_IGNORED                                                                          \
    STACKS_IGNORED,                                                                              \
        IGNORED("apply_spec_augment classifier_proj_size conv_channels conv_kernel_sizes "       \
                "forced_decoder_ids input_channels input_feat_per_channel mask_feature_length "  \
                "mask_feature_min_masks mask_feature_prob mask_time_length mask_time_min_masks " \
                "mask_time_prob median_filter_width num_conv_layers num_mel_bins "               \
                "use_weighted_layer_sum")
static const struct attn_hf_key whisper_encoder_keys[] =
    KEY_LIST(ENCODER_SIZES, SIZE("max_source_positions", max_position, MAX_POSITION),
             IGNORED("max_target_positions"), WHISPER_IGNORED);
static const struct attn_hf_key whisper_decoder_keys[] =
    KEY_LIST(DECODER_STACK_SIZES, SIZE("max_target_positions", max_position, MAX_POSITION),
             IGNORED("max_source_positions"), WHISPER_IGNORED);

STACKS(whisper, "whisper", whisper, ATTN_PROJ_K);
STACKS(speech_to_text, "speech_to_text", whisper, 0);

/* The text model of Florence-2. */
STACKS(florence2_language, "florence2_language", bart, 0);

/* ---- led: bart with the encoder of longformer ------------------------------------------------ */

#define LED(part, ...) \
    FAMILY("led"), .stack = part, PREFIXES("led.", ""), DEFAULTS(ENCODER, __VA_ARGS__)
#define LED_DECODER(path) TENSORS(MAPS(path, "q_proj", "k_proj", "v_proj", "out_proj"))
#define LED_ENCODER(maps)                                                 \
    TENSORS(MAPS("encoder." SELF_ATTN, "longformer_self_attn.query" maps, \
                 "longformer_self_attn.key" maps, "longformer_self_attn.value" maps, "output"))
#define LED_IGNORED                                                                          \
    STACKS_IGNORED,                                                                          \
        IGNORED("add_bias_logits add_final_layer_norm classif_dropout extra_pos_embeddings " \
                "normalize_before normalize_embedding static_position_embeddings")
static const struct attn_hf_key led_decoder_keys[] = KEY_LIST(
    DECODER_STACK_SIZES, SIZE("max_decoder_position_embeddings", max_position, MAX_POSITION),
    LED_IGNORED, IGNORED("attention_window max_encoder_position_embeddings"));
static const struct attn_hf_key led_encoder_keys[] =
    KEY_LIST(ENCODER_SIZES, SIZE("max_encoder_position_embeddings", max_position, MAX_POSITION),
             FIELD("attention_window", WINDOWS, num_layer_windows, 2, MAX_POSITION), LED_IGNORED,
             IGNORED("max_decoder_position_embeddings"));

ROW(led_decoder, LED("decoder", .is_causal = true), LED_DECODER("decoder." SELF_ATTN),
    .keys = led_decoder_keys);
ROW(led_encoder, LED("encoder", SLIDES, .half_window = true, .sliding_window = 512),
    LED_ENCODER(""), .keys = led_encoder_keys);
ROW(led_cross, LED("cross", .is_cross = true), LED_DECODER("decoder.layers.*.encoder_attn."),
    .keys = led_decoder_keys);
ROW(led_global, LED("global", ), LED_ENCODER("_global"), .keys = led_encoder_keys);

/* ---- bigbird_pegasus: pegasus with the encoder of big_bird ----------------------------------- */

#define BIG_BIRD_PEGASUS(part, ...) \
    DECODER("bigbird_pegasus"), .stack = part, DEFAULTS(.scale_attn_weights = true, __VA_ARGS__)
#define BIG_BIRD_DECODER(path) TENSORS(MAPS(path, "q_proj", "k_proj", "v_proj", "out_proj"))
#define BIG_BIRD_KEYS STACKS_IGNORED, POSITIONS, FLAG("use_bias", bias)
static const struct attn_hf_key big_bird_decoder_keys[] = KEY_LIST(
    DECODER_STACK_SIZES, BIG_BIRD_KEYS, IGNORED("attention_type block_size num_random_blocks"));

ROW(bigbird_pegasus_decoder, BIG_BIRD_PEGASUS("decoder", .is_causal = true),
    BIG_BIRD_DECODER("decoder." SELF_ATTN), .keys = big_bird_decoder_keys);
ROW(bigbird_pegasus_encoder,
    BIG_BIRD_PEGASUS("encoder", .attention_type = 2, .block_size = 64, .random_blocks = 3),
    TENSORS(MAPS("encoder." SELF_ATTN, "self.query", "self.key", "self.value", "output")),
    KEYS(ENCODER_SIZES, BIG_BIRD_KEYS,
         NAME("attention_type", attention_type, "original_full block_sparse"),
         SIZE("block_size", block_size, MAX_POSITION / 4096),
         SIZE("num_random_blocks", random_blocks, 1024)));
ROW(bigbird_pegasus_cross, BIG_BIRD_PEGASUS("cross", .is_cross = true),
    BIG_BIRD_DECODER("decoder.layers.*.encoder_attn."), .keys = big_bird_decoder_keys);

/* ---- mimi: frames of sound before and after they are codes ----------------------------------- */

#define MIMI(part)                                                                             \
    FAMILY("mimi"),                                                                            \
        .stack = part, PREFIXES(""), .keys = mimi_keys,                                        \
        TENSORS(MAPS(part "_transformer." SELF_ATTN, "q_proj", "k_proj", "v_proj", "o_proj")), \
        DEFAULTS(CAUSAL, .num_kv_heads = 8, SLIDES, .sliding_window = 250, ROPE(10000))
static const struct attn_hf_key mimi_keys[] = KEY_LIST(
    DECODER_SIZES, ATTENTION_BIAS, WINDOW, THETA, ROPE_OBJECTS,
    IGNORED("_frame_rate audio_channels codebook_dim codebook_size compress dilation_growth_rate "
            "frame_rate kernel_size last_kernel_size layer_scale_initial_scale norm_eps "
            "normalize num_filters num_quantizers num_residual_layers num_semantic_quantizers "
            "pad_mode residual_kernel_size sampling_rate trim_right_ratio upsample_groups "
            "upsampling_ratios use_causal_conv use_conv_shortcut use_streaming "
            "vector_quantization_hidden_dimension"));

ROW(mimi_decoder, MIMI("decoder"));
ROW(mimi_encoder, MIMI("encoder"));

/* ---- seamless_m4t: the text encoder and the text decoder ------------------------------------- */

#define SEAMLESS(type, part, path, ...)                                        \
    FAMILY(type), .stack = part, PREFIXES(""), DEFAULTS(ENCODER, __VA_ARGS__), \
                  TENSORS(MAPS(path ".", "q_proj", "k_proj", "v_proj", "out_proj"))
#define SEAMLESS_IGNORED                                                                           \
    STACKS_IGNORED, POSITIONS,                                                                     \
        IGNORED("adaptor_dropout adaptor_kernel_size adaptor_stride add_adapter "                  \
                "char_vocab_size conv_depthwise_kernel_size feature_projection_input_dim "         \
                "lang_embed_dim leaky_relu_slope left_max_position_embeddings "                    \
                "max_source_positions num_adapter_layers num_conv_pos_embedding_groups "           \
                "num_conv_pos_embeddings position_embeddings_type resblock_dilation_sizes "        \
                "resblock_kernel_sizes right_max_position_embeddings rotary_embedding_base "       \
                "sampling_rate speech_encoder_attention_heads speech_encoder_chunk_size "          \
                "speech_encoder_dropout speech_encoder_hidden_act "                                \
                "speech_encoder_intermediate_size speech_encoder_layerdrop "                       \
                "speech_encoder_layers speech_encoder_left_chunk_num spkr_embed_dim "              \
                "t2u_bos_token_id t2u_decoder_attention_heads t2u_decoder_ffn_dim "                \
                "t2u_decoder_layers t2u_decoder_start_token_id t2u_encoder_attention_heads "       \
                "t2u_encoder_ffn_dim t2u_encoder_layers t2u_eos_token_id "                         \
                "t2u_max_new_tokens t2u_max_position_embeddings t2u_pad_token_id "                 \
                "t2u_variance_pred_dropout t2u_variance_predictor_embed_dim "                      \
                "t2u_variance_predictor_hidden_dim t2u_variance_predictor_kernel_size "            \
                "t2u_vocab_size unit_embed_dim unit_hifi_gan_vocab_size upsample_initial_channel " \
                "upsample_kernel_sizes upsample_rates var_pred_dropout "                           \
                "variance_predictor_kernel_size vocoder_num_langs vocoder_num_spkrs "              \
                "vocoder_offset")
static const struct attn_hf_key seamless_encoder_keys[] = KEY_LIST(ENCODER_SIZES, SEAMLESS_IGNORED);
static const struct attn_hf_key seamless_decoder_keys[] =
    KEY_LIST(DECODER_STACK_SIZES, SEAMLESS_IGNORED);

#define SEAMLESS_STACKS(row, type)                                                          \
    ROW(row##_decoder,                                                                      \
        SEAMLESS(type, "decoder", "text_decoder.layers.*.self_attn", .is_causal = true),    \
        .keys = seamless_decoder_keys);                                                     \
    ROW(row##_encoder, SEAMLESS(type, "encoder", "text_encoder.layers.*.self_attn", ),      \
        .keys = seamless_encoder_keys);                                                     \
    ROW(row##_cross,                                                                        \
        SEAMLESS(type, "cross", "text_decoder.layers.*.cross_attention", .is_cross = true), \
        .keys = seamless_decoder_keys)

SEAMLESS_STACKS(seamless_m4t, "seamless_m4t");
SEAMLESS_STACKS(seamless_m4t_v2, "seamless_m4t_v2");

/* ---- detr: an encoder of patches, a decoder of objects, both of which see all ---------------- */

/* Positions are added to the rows that queries and keys are made of, not to those of values. */
#define DETR_IGNORED                                                                      \
    STACKS_IGNORED,                                                                       \
        IGNORED("auxiliary_loss backbone backbone_config backbone_kwargs bbox_cost "      \
                "bbox_loss_coefficient class_cost dice_loss_coefficient dilation "        \
                "eos_coefficient giou_cost giou_loss_coefficient init_xavier_std "        \
                "mask_loss_coefficient max_position_embeddings num_channels num_queries " \
                "position_embedding_type use_pretrained_backbone use_timm_backbone")
static const struct attn_hf_key detr_encoder_keys[] = KEY_LIST(ENCODER_SIZES, DETR_IGNORED);
static const struct attn_hf_key detr_decoder_keys[] = KEY_LIST(DECODER_STACK_SIZES, DETR_IGNORED);

#define DETR(row, type)                                                            \
    ROW(row##_decoder, DECODER(type), STACK("decoder", "decoder.layers.*.self", ), \
        .keys = detr_decoder_keys);                                                \
    ROW(row##_encoder, DECODER(type), ENCODER_STACK, .keys = detr_encoder_keys);   \
    ROW(row##_cross, DECODER(type), CROSS_STACK, .keys = detr_decoder_keys)

DETR(detr, "detr");
DETR(table_transformer, "table-transformer");

/* ---- speecht5: relative keys in the encoder, one table for all layers ------------------------ */

#define SPEECHT5(path) FAMILY("speecht5"), PREFIXES("speecht5." path, path)
#define SPEECHT5_IGNORED                                                                           \
    STACKS_IGNORED,                                                                                \
        IGNORED("apply_spec_augment conv_bias conv_dim conv_kernel conv_stride "                   \
                "feat_extract_activation feat_extract_norm feat_proj_dropout "                     \
                "guided_attention_loss_num_heads guided_attention_loss_scale "                     \
                "guided_attention_loss_sigma mask_feature_length mask_feature_min_masks "          \
                "mask_feature_prob mask_time_length mask_time_min_masks mask_time_prob "           \
                "max_speech_positions max_text_positions num_conv_pos_embedding_groups "           \
                "num_conv_pos_embeddings num_feat_extract_layers num_mel_bins positional_dropout " \
                "reduction_factor speaker_embedding_dim speech_decoder_postnet_dropout "           \
                "speech_decoder_postnet_kernel speech_decoder_postnet_layers "                     \
                "speech_decoder_postnet_units speech_decoder_prenet_dropout "                      \
                "speech_decoder_prenet_layers speech_decoder_prenet_units "                        \
                "use_guided_attention_loss")
static const struct attn_hf_key speecht5_encoder_keys[] =
    KEY_LIST(ENCODER_SIZES, SIZE("encoder_max_relative_position", max_after, ATTN_MAX_BUCKETS),
             SPEECHT5_IGNORED);
static const struct attn_hf_key speecht5_decoder_keys[] =
    KEY_LIST(DECODER_STACK_SIZES, IGNORED("encoder_max_relative_position"), SPEECHT5_IGNORED);

ROW(speecht5_decoder, SPEECHT5("decoder.wrapped_decoder."), .stack = "decoder",
    .keys = speecht5_decoder_keys, DEFAULTS(ENCODER, .is_causal = true),
    TENSORS(MAPS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "out_proj")));
ROW(speecht5_encoder, SPEECHT5("encoder.wrapped_encoder."), .stack = "encoder",
    .keys = speecht5_encoder_keys,
    DEFAULTS(ENCODER, .relative_key = 1, .max_after = 160, .relative_backward = true),
    TENSORS(MAPS("layers.*.attention.", "q_proj", "k_proj", "v_proj", "out_proj"),
            TENSOR("embed_positions.pe_k.weight", Q, POSITION_BIAS)));
ROW(speecht5_cross, SPEECHT5("decoder.wrapped_decoder."), .stack = "cross",
    .keys = speecht5_decoder_keys, DEFAULTS(ENCODER, .is_cross = true),
    TENSORS(MAPS("layers.*.encoder_attn.", "q_proj", "k_proj", "v_proj", "out_proj")));

/* ---- moonshine: neighbouring pairs of nearly the whole head rotate --------------------------- */

#define MOONSHINE_HEADS(part)                                                                     \
    HIDDEN_SIZE, HEADS_AS(part "_num_attention_heads"), KV_HEADS_AS(part "_num_key_value_heads"), \
        LAYERS_AS(part "_num_hidden_layers")
#define MOONSHINE_KEYS(part, other)                                                 \
    MOONSHINE_HEADS(part), ATTENTION_BIAS,                                          \
        IGNORED(other "_num_attention_heads " other "_num_hidden_layers " other     \
                      "_num_key_value_heads decoder_hidden_act encoder_hidden_act " \
                      "is_encoder_decoder pad_head_dim_to_multiple_of")
#define MOONSHINE_ROPE PARTIAL, THETA, ROPE_OBJECTS
#define MOONSHINE(part, path, ...)                                                              \
    DECODER("moonshine"), .stack = part, .unbiased = ATTN_PROJ_O,                               \
                          TENSORS(MAPS(path "_attn.", "q_proj", "k_proj", "v_proj", "o_proj")), \
                          DEFAULTS(.scale_attn_weights = true, __VA_ARGS__)
#define MOONSHINE_ROTATES ROPE(10000, .interleaved = true, .partial_rotary_factor = 0.9)

ROW(moonshine_decoder,
    MOONSHINE("decoder", "decoder.layers.*.self", .is_causal = true, MOONSHINE_ROTATES),
    KEYS(MOONSHINE_KEYS("decoder", "encoder"), POSITIONS, MOONSHINE_ROPE));
ROW(moonshine_encoder, MOONSHINE("encoder", "encoder.layers.*.self", MOONSHINE_ROTATES),
    KEYS(MOONSHINE_KEYS("encoder", "decoder"), IGNORED("max_position_embeddings"), MOONSHINE_ROPE));
ROW(moonshine_cross, MOONSHINE("cross", "decoder.layers.*.encoder", .is_cross = true),
    KEYS(MOONSHINE_KEYS("decoder", "encoder"), IGNORED("max_position_embeddings"), NO_ROPE));

/* ---- t5gemma: gemma2 in three attentions ----------------------------------------------------- */

/* The window of the encoder holds sliding_window tokens on each side, as in Hugging Face v5.15.0;
 * v4.57.6 had one less. */
#define T5GEMMA_KEYS                                                                       \
    HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, ATTENTION_BIAS, SCALE_OF, SOFTCAP,     \
        IGNORED("dropout_rate classifier_dropout_rate final_logit_softcapping is_decoder " \
                "is_encoder_decoder")
#define T5GEMMA_ROPE POSITIONS, WINDOW, LAYER_TYPES, THETA, ROPE_OBJECTS
#define T5GEMMA(part, object, path, ...)                                                  \
    FAMILY("t5gemma"),                                                                    \
        .stack = part, .subconfig = object, .submodel_type = "t5_gemma_module",           \
        PREFIXES("model." object ".", object "."),                                        \
        TENSORS(MAPS("layers.*." path "_attn.", "q_proj", "k_proj", "v_proj", "o_proj")), \
        DEFAULTS(.scale_attn_weights = true, .num_kv_heads = 4, .head_dim = 256,          \
                 .query_pre_attn_scalar = 256, .softcap = 50, __VA_ARGS__)
#define T5GEMMA_SLIDES SLIDES, .sliding_window = 4096, .sliding_period = 2, ROPE(10000)

ROW(t5gemma_decoder, T5GEMMA("decoder", "decoder", "self", .is_causal = true, T5GEMMA_SLIDES),
    KEYS(T5GEMMA_KEYS, T5GEMMA_ROPE));
ROW(t5gemma_encoder, T5GEMMA("encoder", "encoder", "self", T5GEMMA_SLIDES, .closed_window = true),
    KEYS(T5GEMMA_KEYS, T5GEMMA_ROPE));
ROW(t5gemma_cross, T5GEMMA("cross", "decoder", "cross", .is_cross = true),
    KEYS(T5GEMMA_KEYS, WIDTH_OF("encoder"),
         IGNORED("layer_types max_position_embeddings sliding_window"), NO_ROPE));

/* ---- Decoders over another model's encoder --------------------------------------------------- */

/* TrOCR and Donut, whose decoder is mBART's; the encoder is a model of its own. */
#define VISION_DECODER                                                                        \
    FAMILY("vision-encoder-decoder"), .subconfig = "decoder", .submodel_type = "trocr mbart", \
                                      PREFIXES("decoder.model.")
static const struct attn_hf_key vision_decoder_keys[] =
    KEY_LIST(DECODER_STACK_SIZES, BART_KEYS,
             SIZE("cross_attention_hidden_size", encoder_size, ATTN_MAX_HIDDEN_SIZE),
             IGNORED("add_cross_attention is_decoder use_learned_position_embeddings"));

ROW(vision_decoder, VISION_DECODER, SELF_STACK, .keys = vision_decoder_keys);
ROW(vision_cross, VISION_DECODER, CROSS_STACK, .keys = vision_decoder_keys);

/* MusicGen's decoders; that of musicgen_melody has the text before its tokens, and no
 * cross-attention. */
static const struct attn_hf_key musicgen_keys[] =
    KEY_LIST(SIZES, POSITIONS,
             IGNORED("audio_channels ffn_dim is_decoder is_encoder_decoder num_codebooks "
                     "scale_embedding"));
#define MUSICGEN(type)                                                      \
    FAMILY(type), .subconfig = "decoder", .submodel_type = type "_decoder", \
                  PREFIXES("decoder.model.")

ROW(musicgen_decoder, MUSICGEN("musicgen"), SELF_STACK, .keys = musicgen_keys,
    .unbiased = ATTN_PROJ_ALL);
ROW(musicgen_cross, MUSICGEN("musicgen"), CROSS_STACK, .keys = musicgen_keys,
    .unbiased = ATTN_PROJ_ALL);
ROW(musicgen_melody, MUSICGEN("musicgen_melody"), SELF_STACK, .keys = musicgen_keys,
    .unbiased = ATTN_PROJ_ALL);

/* blip: BERT's layers over those of an image.  Hugging Face's class takes the width of its vision
 * model in place of encoder_hidden_size. */
#define BLIP(part, object)                                        \
    FAMILY("blip"), .stack = part, .subconfig = object "_config", \
                    .subconfig_dict = object "_config_dict",      \
                    .submodel_type = "blip_" object "_model"
#define BLIP_TEXT(part, module)                                                             \
    BLIP(part, "text"), PREFIXES("text_decoder.bert."),                                     \
        TENSORS(MAPS("encoder.layer.*." module ".", "self.query", "self.key", "self.value", \
                     "output.dense"))
#define BLIP_SIZES(heads) .hidden_size = 768, .num_layers = 12, .num_heads = heads
#define BLIP_IGNORED IGNORED("add_cross_attention encoder_hidden_size projection_dim")

ROW(blip_text, BLIP_TEXT("text", "attention"),
    KEYS(SIZES, POSITIONS, FLAG("is_decoder", is_causal), BLIP_IGNORED),
    DEFAULTS(ENCODER, BLIP_SIZES(8), .is_causal = true));
ROW(blip_vision, BLIP("vision", "vision"), PREFIXES("vision_model."),
    TENSORS(FUSED("encoder.layers.*.self_attn.", "qkv", "projection")),
    KEYS(SIZES, IGNORED("image_size num_channels patch_size projection_dim")),
    DEFAULTS(ENCODER, BLIP_SIZES(12)));
ROW(blip_cross, BLIP_TEXT("cross", "crossattention"),
    KEYS(SIZES, WIDTH_OF("vision_config"), BLIP_IGNORED,
         IGNORED("is_decoder max_position_embeddings")),
    DEFAULTS(ENCODER, BLIP_SIZES(8), .encoder_size = 768, .is_cross = true));

/* mllama: some layers of Llama attend over an image in place of the tokens. */
#define MLLAMA(part) NESTED("mllama", "mllama_text_model"), .stack = part, .unbiased = ATTN_PROJ_ALL

ROW(mllama_decoder, MLLAMA("decoder"), .tensors = attn_llama_tensors,
    KEYS(DECODER_KEYS, CROSS_LAYERS), DEFAULTS(CAUSAL, .num_kv_heads = 8, ROPE(500000)));
ROW(mllama_cross, MLLAMA("cross"),
    TENSORS(WEIGHTS("layers.*.cross_attn.", "q_proj", "k_proj", "v_proj", "o_proj"),
            NORM("layers.*.cross_attn.q_norm", Q), NORM("layers.*.cross_attn.k_norm", K)),
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, NORM_EPS, CROSS_LAYERS,
         IGNORED("max_position_embeddings"), NO_ROPE),
    DEFAULTS(.is_cross = true, .scale_attn_weights = true, .num_kv_heads = 8, .qk_norm = true,
             .norm_eps = 1e-5));
