/* speech.c: rows of BART, mBART and Whisper, three stacks each, and of the audio encoders.
 * Data only.
 *
 * Sources: as in llama.c. */
#include "families/keys.h"
#include "families/rows.h"

/* ---- The stacks of an encoder and a decoder under one name for both sizes -------------------- */

#define D_MODEL SIZE("d_model", hidden_size, ATTN_MAX_HIDDEN_SIZE), HIDDEN_SIZE

#define ENCODER_SIZES                                                                            \
    D_MODEL, SIZE("encoder_attention_heads", num_heads, ATTN_MAX_HEADS), HEADS,                  \
        SIZE("encoder_layers", num_layers, ATTN_MAX_LAYERS), IGNORED("decoder_attention_heads"), \
        IGNORED("decoder_layers")

#define DECODER_SIZES                                                                        \
    D_MODEL, SIZE("decoder_attention_heads", num_heads, ATTN_MAX_HEADS),                     \
        IGNORED("num_attention_heads"), SIZE("decoder_layers", num_layers, ATTN_MAX_LAYERS), \
        IGNORED("encoder_attention_heads"), IGNORED("encoder_layers")

#define STACKS_HARMLESS                                                                   \
    IGNORED("decoder_ffn_dim"), IGNORED("decoder_layerdrop"), IGNORED("encoder_ffn_dim"), \
        IGNORED("encoder_layerdrop"), IGNORED("init_std"), IGNORED("is_encoder_decoder"), \
        IGNORED("num_hidden_layers"), IGNORED("scale_embedding")

static const char *const model_prefixes[] = {"model.", "", NULL};

#define STACK_TENSORS(path)                                                       \
    {                                                                             \
        {path ".q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},                   \
            {path ".k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},               \
            {path ".v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},               \
            {path ".out_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},             \
            {path ".q_proj.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},                   \
            {path ".k_proj.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},                   \
            {path ".v_proj.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},                   \
            {path ".out_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS}, {.name = NULL}, \
    }

static const struct attn_family_tensor encoder_tensors[] =
    STACK_TENSORS("encoder.layers.*.self_attn");
static const struct attn_family_tensor decoder_tensors[] =
    STACK_TENSORS("decoder.layers.*.self_attn");
static const struct attn_family_tensor cross_tensors[] =
    STACK_TENSORS("decoder.layers.*.encoder_attn");

#define STACK(type, part, its_keys, its_tensors, without_bias, ...)                             \
    {                                                                                           \
        .model_type = type, .stack = part, .name = type, .keys = its_keys, .common_keys = true, \
        .prefixes = model_prefixes, .tensors = its_tensors, .unbiased = without_bias,           \
        .defaults = {.bias = true, .scale_attn_weights = true, __VA_ARGS__},                    \
    }

/* ---- bart, mbart ----------------------------------------------------------------------------- */

#define BART_HARMLESS                                                                        \
    POSITIONS, STACKS_HARMLESS, IGNORED("add_bias_logits"), IGNORED("add_final_layer_norm"), \
        IGNORED("classif_dropout"), IGNORED("extra_pos_embeddings"),                         \
        IGNORED("force_bos_token_to_be_generated"), IGNORED("normalize_before"),             \
        IGNORED("normalize_embedding"), IGNORED("static_position_embeddings")

static const struct attn_hf_key bart_encoder_keys[] = {ENCODER_SIZES, BART_HARMLESS, END};
static const struct attn_hf_key bart_decoder_keys[] = {DECODER_SIZES, BART_HARMLESS, END};

#define BART_DECODER(type) \
    STACK(type, "decoder", bart_decoder_keys, decoder_tensors, 0, .is_causal = true)
#define BART_ENCODER(type) STACK(type, "encoder", bart_encoder_keys, encoder_tensors, 0, )
#define BART_CROSS(type) STACK(type, "cross", bart_decoder_keys, cross_tensors, 0, .is_cross = true)

const struct attn_family attn_family_bart_decoder = BART_DECODER("bart");
const struct attn_family attn_family_bart_encoder = BART_ENCODER("bart");
const struct attn_family attn_family_bart_cross = BART_CROSS("bart");
const struct attn_family attn_family_mbart_decoder = BART_DECODER("mbart");
const struct attn_family attn_family_mbart_encoder = BART_ENCODER("mbart");
const struct attn_family attn_family_mbart_cross = BART_CROSS("mbart");

/* ---- whisper: keys have no bias -------------------------------------------------------------- */

#define WHISPER_HARMLESS                                                                        \
    STACKS_HARMLESS, IGNORED("apply_spec_augment"), IGNORED("classifier_proj_size"),            \
        IGNORED("forced_decoder_ids"), IGNORED("mask_feature_length"),                          \
        IGNORED("mask_feature_min_masks"), IGNORED("mask_feature_prob"),                        \
        IGNORED("mask_time_length"), IGNORED("mask_time_min_masks"), IGNORED("mask_time_prob"), \
        IGNORED("median_filter_width"), IGNORED("num_mel_bins"), IGNORED("use_weighted_layer_sum")

static const struct attn_hf_key whisper_encoder_keys[] = {
    ENCODER_SIZES,
    SIZE("max_source_positions", max_position, MAX_POSITION),
    IGNORED("max_target_positions"),
    WHISPER_HARMLESS,
    END,
};

static const struct attn_hf_key whisper_decoder_keys[] = {
    DECODER_SIZES,
    SIZE("max_target_positions", max_position, MAX_POSITION),
    IGNORED("max_source_positions"),
    WHISPER_HARMLESS,
    END,
};

const struct attn_family attn_family_whisper_decoder = STACK(
    "whisper", "decoder", whisper_decoder_keys, decoder_tensors, ATTN_PROJ_K, .is_causal = true);
const struct attn_family attn_family_whisper_encoder =
    STACK("whisper", "encoder", whisper_encoder_keys, encoder_tensors, ATTN_PROJ_K, );
const struct attn_family attn_family_whisper_cross =
    STACK("whisper", "cross", whisper_decoder_keys, cross_tensors, ATTN_PROJ_K, .is_cross = true);

/* ---- wav2vec2, hubert: frames in place of tokens --------------------------------------------- */

static const struct attn_hf_key wav2vec2_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    IGNORED("adapter_attn_dim"),
    IGNORED("adapter_kernel_size"),
    IGNORED("adapter_stride"),
    IGNORED("add_adapter"),
    IGNORED("apply_spec_augment"),
    IGNORED("classifier_proj_size"),
    IGNORED("codevector_dim"),
    IGNORED("contrastive_logits_temperature"),
    IGNORED("conv_bias"),
    IGNORED("conv_dim"),
    IGNORED("conv_kernel"),
    IGNORED("conv_pos_batch_norm"),
    IGNORED("conv_stride"),
    IGNORED("ctc_loss_reduction"),
    IGNORED("ctc_zero_infinity"),
    IGNORED("diversity_loss_weight"),
    IGNORED("do_stable_layer_norm"),
    IGNORED("feat_extract_activation"),
    IGNORED("feat_extract_dropout"),
    IGNORED("feat_extract_norm"),
    IGNORED("feat_proj_dropout"),
    IGNORED("feat_proj_layer_norm"),
    IGNORED("feat_quantizer_dropout"),
    IGNORED("final_dropout"),
    IGNORED("freeze_feat_extract_train"),
    IGNORED("mask_channel_length"),
    IGNORED("mask_channel_min_space"),
    IGNORED("mask_channel_other"),
    IGNORED("mask_channel_prob"),
    IGNORED("mask_channel_selection"),
    IGNORED("mask_feature_length"),
    IGNORED("mask_feature_min_masks"),
    IGNORED("mask_feature_prob"),
    IGNORED("mask_time_length"),
    IGNORED("mask_time_min_masks"),
    IGNORED("mask_time_min_space"),
    IGNORED("mask_time_other"),
    IGNORED("mask_time_prob"),
    IGNORED("mask_time_selection"),
    IGNORED("no_mask_channel_overlap"),
    IGNORED("no_mask_time_overlap"),
    IGNORED("num_adapter_layers"),
    IGNORED("num_codevector_groups"),
    IGNORED("num_codevectors_per_group"),
    IGNORED("num_conv_pos_embedding_groups"),
    IGNORED("num_conv_pos_embeddings"),
    IGNORED("num_feat_extract_layers"),
    IGNORED("num_negatives"),
    IGNORED("output_hidden_size"),
    IGNORED("proj_codevector_dim"),
    IGNORED("tdnn_dilation"),
    IGNORED("tdnn_dim"),
    IGNORED("tdnn_kernel"),
    IGNORED("use_weighted_layer_sum"),
    IGNORED("xvector_output_dim"),
    END,
};

static const char *const wav2vec2_prefixes[] = {"wav2vec2.", "", NULL};
static const char *const hubert_prefixes[] = {"hubert.", "", NULL};

static const struct attn_family_tensor wav2vec2_tensors[] =
    STACK_TENSORS("encoder.layers.*.attention");

const struct attn_family attn_family_wav2vec2 = {
    .model_type = "wav2vec2",
    .name = "wav2vec2",
    .keys = wav2vec2_keys,
    .common_keys = true,
    .prefixes = wav2vec2_prefixes,
    .tensors = wav2vec2_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true},
};

const struct attn_family attn_family_hubert = {
    .model_type = "hubert",
    .name = "hubert",
    .keys = wav2vec2_keys,
    .common_keys = true,
    .prefixes = hubert_prefixes,
    .tensors = wav2vec2_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true},
};
