/* stacks.c: rows of architectures with an encoder and a decoder, three stacks each: T5 and mT5,
 * BART and mBART, Whisper.  Data only.  Sources: as in llama.c. */
#include "families/rows.h"

/* ---- t5, mt5: scores are not scaled; block 0 holds the position bias of its stack ------------ */

#define T5_SIZES D_MODEL, HEADS_AS("num_heads"), SIZE("d_kv", head_dim, ATTN_MAX_HEAD_DIM)

/* A decoder without num_decoder_layers has as many layers as the encoder. */
#define T5_DECODER_LAYERS \
    LAYERS_AS("num_decoder_layers"), SIZE("num_layers", num_layers_fallback, ATTN_MAX_LAYERS)

#define T5_IGNORED                                                                       \
    IGNORED("dense_act_fn feed_forward_proj is_decoder is_encoder_decoder is_gated_act " \
            "n_positions scale_decoder_outputs")

static const struct attn_hf_key t5_encoder_keys[] =
    KEY_LIST(T5_SIZES, LAYERS_AS("num_layers"), IGNORED("num_decoder_layers"), BUCKETS, T5_IGNORED);
static const struct attn_hf_key t5_decoder_keys[] =
    KEY_LIST(T5_SIZES, T5_DECODER_LAYERS, BUCKETS, T5_IGNORED);
static const struct attn_hf_key t5_cross_keys[] =
    KEY_LIST(T5_SIZES, T5_DECODER_LAYERS,
             IGNORED("relative_attention_num_buckets relative_attention_max_distance"), T5_IGNORED);

#define T5_SELF(stack)                                                                   \
    WEIGHTS(stack ".block.*.layer.0.SelfAttention.", "q", "k", "v", "o"),                \
        TENSOR(stack ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", Q, \
               POSITION_BIAS)
#define T5_STACK(type, part) FAMILY(type), .stack = part, PREFIXES(""), .unbiased = ATTN_PROJ_ALL
#define T5_BIAS .head_dim = 64, .buckets = 32, .max_distance = 128

#define T5_DECODER(type)                                                             \
    T5_STACK(type, "decoder"), .keys = t5_decoder_keys, TENSORS(T5_SELF("decoder")), \
                               DEFAULTS(T5_BIAS, .is_causal = true)
#define T5_ENCODER(type)                                                             \
    T5_STACK(type, "encoder"), .keys = t5_encoder_keys, TENSORS(T5_SELF("encoder")), \
                               DEFAULTS(T5_BIAS)
#define T5_CROSS(type)                                                                    \
    T5_STACK(type, "cross"),                                                              \
        .keys = t5_cross_keys,                                                            \
        TENSORS(WEIGHTS("decoder.block.*.layer.1.EncDecAttention.", "q", "k", "v", "o")), \
        DEFAULTS(.head_dim = 64, .is_cross = true)

ROW(t5_decoder, T5_DECODER("t5"));
ROW(t5_encoder, T5_ENCODER("t5"));
ROW(t5_cross, T5_CROSS("t5"));
ROW(mt5_decoder, T5_DECODER("mt5"));
ROW(mt5_encoder, T5_ENCODER("mt5"));
ROW(mt5_cross, T5_CROSS("mt5"));

/* ---- The stacks of bart, mbart and whisper --------------------------------------------------- */

#define ENCODER_SIZES                                                                              \
    D_MODEL, HIDDEN_SIZE, HEADS_AS("encoder_attention_heads"), HEADS, LAYERS_AS("encoder_layers"), \
        IGNORED("decoder_attention_heads decoder_layers")
#define DECODER_STACK_SIZES                                                                    \
    D_MODEL, HIDDEN_SIZE, HEADS_AS("decoder_attention_heads"), IGNORED("num_attention_heads"), \
        LAYERS_AS("decoder_layers"), IGNORED("encoder_attention_heads encoder_layers")
#define STACKS_IGNORED                                                                      \
    IGNORED("decoder_ffn_dim decoder_layerdrop encoder_ffn_dim encoder_layerdrop init_std " \
            "is_encoder_decoder num_hidden_layers scale_embedding")

#define STACK(type, part, path, ...)                              \
    DECODER(type), .stack = part, DEFAULTS(ENCODER, __VA_ARGS__), \
                   TENSORS(MAPS(path "_attn.", "q_proj", "k_proj", "v_proj", "out_proj"))
#define DECODER_STACK(type) STACK(type, "decoder", "decoder.layers.*.self", .is_causal = true)
#define ENCODER_STACK(type) STACK(type, "encoder", "encoder.layers.*.self", )
#define CROSS_STACK(type) STACK(type, "cross", "decoder.layers.*.encoder", .is_cross = true)

#define BART_KEYS                                                                            \
    POSITIONS, STACKS_IGNORED,                                                               \
        IGNORED("add_bias_logits add_final_layer_norm classif_dropout extra_pos_embeddings " \
                "force_bos_token_to_be_generated normalize_before normalize_embedding "      \
                "static_position_embeddings")
static const struct attn_hf_key bart_encoder_keys[] = KEY_LIST(ENCODER_SIZES, BART_KEYS);
static const struct attn_hf_key bart_decoder_keys[] = KEY_LIST(DECODER_STACK_SIZES, BART_KEYS);

ROW(bart_decoder, DECODER_STACK("bart"), .keys = bart_decoder_keys);
ROW(bart_encoder, ENCODER_STACK("bart"), .keys = bart_encoder_keys);
ROW(bart_cross, CROSS_STACK("bart"), .keys = bart_decoder_keys);
ROW(mbart_decoder, DECODER_STACK("mbart"), .keys = bart_decoder_keys);
ROW(mbart_encoder, ENCODER_STACK("mbart"), .keys = bart_encoder_keys);
ROW(mbart_cross, CROSS_STACK("mbart"), .keys = bart_decoder_keys);

/* Whisper's keys have no bias. */
#define WHISPER_IGNORED                                                                           \
    STACKS_IGNORED,                                                                               \
        IGNORED("apply_spec_augment classifier_proj_size forced_decoder_ids mask_feature_length " \
                "mask_feature_min_masks mask_feature_prob mask_time_length mask_time_min_masks "  \
                "mask_time_prob median_filter_width num_mel_bins use_weighted_layer_sum")
static const struct attn_hf_key whisper_encoder_keys[] =
    KEY_LIST(ENCODER_SIZES, SIZE("max_source_positions", max_position, MAX_POSITION),
             IGNORED("max_target_positions"), WHISPER_IGNORED);
static const struct attn_hf_key whisper_decoder_keys[] =
    KEY_LIST(DECODER_STACK_SIZES, SIZE("max_target_positions", max_position, MAX_POSITION),
             IGNORED("max_source_positions"), WHISPER_IGNORED);

ROW(whisper_decoder, DECODER_STACK("whisper"), .keys = whisper_decoder_keys,
    .unbiased = ATTN_PROJ_K);
ROW(whisper_encoder, ENCODER_STACK("whisper"), .keys = whisper_encoder_keys,
    .unbiased = ATTN_PROJ_K);
ROW(whisper_cross, CROSS_STACK("whisper"), .keys = whisper_decoder_keys, .unbiased = ATTN_PROJ_K);
