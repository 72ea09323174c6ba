/* rows.h: what the rows of the table of families are written with.
 *
 *     ROW(granite, LLAMA("granite"), KEYS(...), DEFAULTS(...))
 *
 * defines the row attn_family_granite of the members of struct attn_family that follow.
 *
 * KEYS(...): in the order in which attnd inspect --family lists them:
 *
 *     SIZE("hidden_size", hidden_size, most)    integer in [1, most], into that field
 *     NUMBER("rope_theta", rope.theta, 1, 1e12) number in a range
 *     FLAG("bias", bias)                        true or false
 *     NAME("norm", norm_type, "rms layer")      one of these names, into a size_t: 1, 2, ...
 *     FIELD("seed", INTEGER, seed, least, most) any kind of enum attn_hf_key_kind
 *     FIXED("sliding_window", "null")           only this JSON value is computed
 *     EVERY("attn_type_list", "1")              only a list of this JSON value, or the value
 *     OBJECT("attn_config")                     object, with its keys as "attn_config.alibi"
 *     WIDTH_OF("encoder")                       object beside the settings: the width of the rows
 *                                               that cross-attention is over
 *     IGNORED("n_ctx is_decoder")               keys that do not touch attention
 *
 * TENSORS(...): in the order of projections that are fused, Q to O:
 *
 *     TENSOR("sinks", Q, SINKS)                 that name, projections and role
 *     WEIGHT("attn.c_attn", QKV)                attn.c_attn.weight; BIAS, NORM likewise
 *     WEIGHTS("attn.", "q", "k", "v", "o")      attn.q.weight, ...; BIASES likewise
 *     MAPS("attn.", "q", "k", "v", "o")         these weights, then these biases
 *     FUSED("attn.", "qkv", "o")                weight and bias of qkv, then of o
 *
 * PREFIXES("bert.", "")  DEFAULTS(CAUSAL, .num_kv_heads = 8, ROPE(10000)) */
#ifndef ATTN_LIB_FAMILIES_ROWS_H
#define ATTN_LIB_FAMILIES_ROWS_H

#include "families/family.h"

/* The stacks of an encoder-decoder; encoder-decoders after T5, BART and
 * Whisper, and decoders over images. */
#define ATTN_STACKS(row, name) row(name##_decoder), row(name##_encoder), row(name##_cross)
#define ATTN_ENCODER_DECODERS(row)                                                                 \
    ATTN_STACKS(row, umt5), ATTN_STACKS(row, switch_transformers), ATTN_STACKS(row, longt5),       \
        ATTN_STACKS(row, m2m_100), ATTN_STACKS(row, nllb_moe), ATTN_STACKS(row, fsmt),             \
        ATTN_STACKS(row, marian), ATTN_STACKS(row, pegasus), ATTN_STACKS(row, blenderbot),         \
        ATTN_STACKS(row, blenderbot_small), ATTN_STACKS(row, mvp), ATTN_STACKS(row, plbart),       \
        ATTN_STACKS(row, speech_to_text), ATTN_STACKS(row, moonshine), ATTN_STACKS(row, speecht5), \
        ATTN_STACKS(row, t5gemma), row(vision_decoder), row(vision_cross), row(musicgen_decoder),  \
        row(musicgen_cross), row(musicgen_melody), row(blip_text), row(blip_vision),               \
        row(blip_cross), row(mllama_decoder), row(mllama_cross), row(paligemma),                   \
        ATTN_STACKS(row, led), row(led_global), ATTN_STACKS(row, seamless_m4t),                    \
        ATTN_STACKS(row, seamless_m4t_v2), ATTN_STACKS(row, detr),                                 \
        ATTN_STACKS(row, table_transformer), ATTN_STACKS(row, florence2_language),                 \
        ATTN_STACKS(row, bigbird_pegasus), row(mimi_decoder), row(mimi_encoder)

/* Every row, in the order of the table.  Of an architecture with several stacks the first row is
 * the default; mistral3_mistral comes before mistral3, since it is also meant where the text model
 * has no model_type. */
#define ATTN_FAMILIES(row)                                                                         \
    row(llama), row(mistral), row(qwen2), row(qwen3), row(gemma2), row(gpt_oss), row(phi),         \
        row(phi3), row(gpt2), row(imagegpt), row(openai_gpt), row(ctrl), row(gpt_neox), row(gptj), \
        row(falcon), row(bloom), row(opt), row(bert), row(roberta), row(distilbert),               \
        row(t5_decoder), row(t5_encoder), row(t5_cross), row(torch), row(attention),               \
        row(xlm_roberta), row(camembert), row(electra), row(ernie), row(bert_generation),          \
        row(data2vec_text), row(layoutlm), row(markuplm), row(megatron_bert),                      \
        row(roberta_prelayernorm), row(roc_bert), row(splinter), row(xlm_roberta_xl),              \
        row(big_bird), row(rembert), row(xmod), row(dpr), row(mobilebert), row(tapas),             \
        row(visual_bert), row(longformer), row(longformer_global), row(layoutlmv3), row(esm),      \
        row(roformer), row(jina_embeddings_v3), row(nomic_bert), row(albert), row(mpnet),          \
        row(xlm), row(flaubert), row(vit), row(ast), row(deit), row(dinov2),                       \
        row(dinov2_with_registers), row(dpt), row(ijepa), row(vit_mae), row(vit_msn), row(vivit),  \
        row(yolos), row(vitpose_backbone), row(vilt), row(videomae), row(beit),                    \
        row(data2vec_vision), row(dinov3_vit), row(mt5_decoder), row(mt5_encoder), row(mt5_cross), \
        row(bart_decoder), row(bart_encoder), row(bart_cross), row(mbart_decoder),                 \
        row(mbart_encoder), row(mbart_cross), row(whisper_decoder), row(whisper_encoder),          \
        row(whisper_cross), ATTN_ENCODER_DECODERS(row), row(wav2vec2), row(data2vec_audio),        \
        row(hubert), row(sew), row(unispeech), row(unispeech_sat), row(wavlm), row(wav2vec2_bert), \
        row(modernbert), row(modernbert_decoder), row(openai_privacy_filter), row(deberta),        \
        row(deberta_v2), row(clip_text), row(clip_vision), row(clip_text_model),                   \
        row(clip_vision_model), row(chinese_clip_text), row(chinese_clip_vision),                  \
        row(altclip_text), row(altclip_vision), row(clipseg_text), row(clipseg_vision),            \
        row(metaclip_2_text), row(metaclip_2_vision), row(xclip_text), row(xclip_vision),          \
        row(clap_text), row(align_text), row(owlvit_text), row(owlvit_vision), row(owlv2_text),    \
        row(owlv2_vision), row(siglip_text), row(siglip_vision), row(siglip_text_model),           \
        row(siglip_vision_model), row(siglip2_text), row(siglip2_vision), row(siglip2_text_model), \
        row(siglip2_vision_model), row(idefics3_vision), row(smolvlm_vision),                      \
        row(internvl_vision), row(mpt), row(gpt_neo), row(codegen), row(gpt_bigcode), row(biogpt), \
        row(xglm), row(dbrx), row(mixtral), row(ministral3), row(ministral),                       \
        row(mistral3_mistral), row(mistral3), row(mistral3_mistral4), row(mistral4),               \
        row(chameleon), row(moshi), row(kyutai_speech_to_text), row(llama4), row(llama4_text),     \
        row(eurobert), row(qwen2_moe), row(qwen3_moe), row(phi3_v), row(phi4_multimodal),          \
        row(qwen2_vl), row(qwen2_vl_text), row(qwen2_5_vl), row(qwen2_5_vl_text),                  \
        row(qwen2_5_omni_text), row(qwen3_omni_moe_text), row(qwen3_vl), row(qwen3_vl_text),       \
        row(qwen3_vl_moe), row(qwen3_vl_moe_text), row(qwen3_next), row(qwen3_5),                  \
        row(qwen3_5_text), row(qwen3_5_moe), row(qwen3_5_moe_text), row(gemma), row(vaultgemma),   \
        row(gemma3), row(gemma3_text), row(gemma3n), row(gemma3n_text), row(gemma4),               \
        row(gemma4_text), row(gemma4_unified), row(gemma4_unified_text), row(granite),             \
        row(granitemoe), row(granitemoeshared), row(granite_swa), row(granitemoe_swa),             \
        row(hyperclovax), row(arcee), row(jais2), row(aria_text), row(emu3_text_model),            \
        row(minicpm), row(xverse), row(orion), row(deepseek), row(csm), row(bailing_moe),          \
        row(bailing_moe_v2), row(hy_v3), row(solar_open), row(apertus), row(cwm), row(phimoe),     \
        row(dots1), row(mellum), row(laguna), row(step3p5), row(afmoe), row(muse_glimmer),         \
        row(muse_glimmer_text), row(smollm3), row(starcoder2), row(stablelm), row(glm), row(glm4), \
        row(glm4v), row(glm4v_text), row(glm4_moe), row(glm4v_moe), row(glm4v_moe_text),           \
        row(glm_ocr), row(glm_ocr_text), row(glm_image), row(glm_image_text), row(minimax_m2),     \
        row(helium), row(seed_oss), row(diffllama), row(doge), row(mimo), row(mimo_v2_flash),      \
        row(hunyuan_v1_dense), row(hunyuan_v1_moe), row(ernie4_5), row(ernie4_5_moe),              \
        row(ernie4_5_vl_moe), row(ernie4_5_vl_moe_text), row(paddleocr_vl),                        \
        row(paddleocr_vl_text), row(internlm2), row(olmo2), row(flex_olmo), row(olmoe), row(olmo), \
        row(olmo3), row(exaone4), row(exaone_moe), row(cohere), row(cohere2), row(cohere2_moe),    \
        row(persimmon), row(nemotron), row(nanochat), row(bitnet), row(exaone), row(baichuan),     \
        row(qwen), row(chatglm), row(nemotron_h), row(nemotron_nas), row(recurrent_gemma),         \
        row(minimax), row(minimax_text_01), row(minimax_m1), row(granitemoehybrid),                \
        row(falcon_h1), row(jamba), row(bamba), row(lfm2), row(lfm2_moe), row(olmo_hybrid),        \
        row(deepseek_v2), row(deepseek_v3), row(kimi_k2), row(kimi_linear), row(axk1), row(youtu), \
        row(glm4_moe_lite), row(deepseek_v32), row(glm_moe_dsa), row(minicpm3), row(longcat_flash)

#define ATTN_ROW(name) attn_family_##name
extern const struct attn_family ATTN_FAMILIES(ATTN_ROW);

/* ---- Keys ---------------------------------------------------------------------------------- */

#define MAX_POSITION 2147483647
#define MAX_THETA 1e12
#define MAX_SEED 9007199254740992 /* 2^53: what JSON numbers carry everywhere */

/* A list, its end included; rows that share one are rows of one class (choice.c). */
#define KEY_LIST(...)                 \
    {                                 \
        __VA_ARGS__, { .name = NULL } \
    }
#define KEYS(...) .keys = (const struct attn_hf_key[])KEY_LIST(__VA_ARGS__)
#define ROPE_KEYS(...) .rope_keys = (const struct attn_hf_key[])KEY_LIST(__VA_ARGS__)

#define KEY(key, what, at, least, most, words)                                            \
    {                                                                                     \
        .name = key, .kind = ATTN_CONFIG_##what, .offset = at, .min = least, .max = most, \
        .only = words                                                                     \
    }
#define FIELD(key, what, field, least, most) KEY(key, what, HF_FIELD(field), least, most, NULL)
#define SIZE(key, field, most) FIELD(key, INTEGER, field, 1, most)
#define NUMBER(key, field, least, most) FIELD(key, NUMBER, field, least, most)
#define FLAG(key, field) FIELD(key, FLAG, field, 0, 1)
#define NAME(key, field, names) KEY(key, NAME, HF_FIELD(field), 0, 0, names)
#define FULL_PERIOD(key) FIELD(key, PERIOD, full_period, 1, ATTN_MAX_LAYERS)
#define FIXED(key, value) KEY(key, FIXED, 0, 0, 0, value)
#define EVERY(key, value) KEY(key, FIXED, 0, 1, 0, value)
#define OBJECT(key) KEY(key, OBJECT, 0, 0, 0, NULL)
#define WIDTH_OF(key) \
    KEY(key, WIDTH, HF_FIELD(encoder_size), 1, ATTN_MAX_HIDDEN_SIZE, key ".hidden_size")
#define CROSS_LAYERS FIELD("cross_attention_layers", CROSS_LAYERS, num_cross_layers, 0, 0)
#define IGNORED(keys) KEY(keys, IGNORED, 0, 0, 0, NULL)

/* Inside RoPE objects. */
#define ROPE_KEY(key, what, field, least, most) \
    KEY(key, what, offsetof(struct attn_hf_rope, field), least, most, NULL)
#define ROPE_NUMBER(key, field, least, most) ROPE_KEY(key, NUMBER, field, least, most)

/* The keys that most families have. */
#define HIDDEN_SIZE SIZE("hidden_size", hidden_size, ATTN_MAX_HIDDEN_SIZE)
#define D_MODEL SIZE("d_model", hidden_size, ATTN_MAX_HIDDEN_SIZE)
#define HEADS SIZE("num_attention_heads", num_heads, ATTN_MAX_HEADS)
#define HEADS_AS(key) SIZE(key, num_heads, ATTN_MAX_HEADS)
#define KV_HEADS_AS(key) SIZE(key, num_kv_heads, ATTN_MAX_HEADS)
#define KV_HEADS KV_HEADS_AS("num_key_value_heads")
#define HEAD_DIM SIZE("head_dim", head_dim, ATTN_MAX_HEAD_DIM)
#define LAYERS SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS)
#define LAYERS_AS(key) SIZE(key, num_layers, ATTN_MAX_LAYERS)
#define SIZES HIDDEN_SIZE, HEADS, LAYERS
#define POSITIONS SIZE("max_position_embeddings", max_position, MAX_POSITION)
#define THETA NUMBER("rope_theta", rope.theta, 1, MAX_THETA)
#define ROPE_OBJECTS \
    FIELD("rope_scaling", ROPE, rope, 0, 0), FIELD("rope_parameters", ROPE, rope, 0, 0)
#define NO_ROPE IGNORED("partial_rotary_factor rope_parameters rope_scaling rope_theta")
#define PARTIAL NUMBER("partial_rotary_factor", rope.partial_rotary_factor, 1e-6, 1)
#define ATTENTION_BIAS FLAG("attention_bias", bias)
#define NORM_EPS NUMBER("rms_norm_eps", norm_eps, 0, 1)
#define SCALE(key) NUMBER(key, scale, 1e-9, ATTN_MAX_SCALE)
#define SCALE_OF NUMBER("query_pre_attn_scalar", query_pre_attn_scalar, 1e-9, 1e9)
#define MSCALES                                           \
    ROPE_NUMBER("short_mscale", short_mscale, 1e-6, 1e6), \
        ROPE_NUMBER("long_mscale", long_mscale, 1e-6, 1e6)
#define SOFTCAP NUMBER("attn_logit_softcapping", softcap, ATTN_MIN_SOFTCAP, ATTN_MAX_SOFTCAP)
#define CLIP(key) NUMBER(key, clip_qkv, 1e-6, 1e15)
#define KEY_MULTIPLIER NUMBER("key_multiplier", key_multiplier, 1e-9, ATTN_MAX_SCALE)
#define WINDOW SIZE("sliding_window", sliding_window, MAX_POSITION)
#define LAYER_TYPES FIELD("layer_types", LAYER_TYPES, num_layer_types, 0, 0)
#define LAYER_TYPES_AS(key, names) KEY(key, LAYER_TYPES, HF_FIELD(num_layer_types), 0, 0, names)
#define FULL_LAYERS(key) FIELD(key, FULL_LAYERS, listed_layers, 0, 0)
#define ROPE_LAYERS FIELD("no_rope_layers", ROPE_LAYERS, num_rope_layers, 0, 0)
#define ROPE_THETAS FIELD("layer_rope_theta", ROPE_THETAS, num_rope_thetas, 0, MAX_THETA)
#define NO_ROPE_PERIOD FIELD("no_rope_layer_interval", INTEGER, no_rope_period, 1, ATTN_MAX_LAYERS)
#define SHARED_LAYERS FIELD("num_kv_shared_layers", INTEGER, num_shared_layers, 0, ATTN_MAX_LAYERS)
#define CHUNK_SIZE SIZE("attention_chunk_size", attention_chunk_size, MAX_POSITION)

/* Hugging Face's versions disagree on which layers slide where use_sliding_window is true. */
#define NO_WINDOW FIXED("use_sliding_window", "false"), IGNORED("sliding_window max_window_layers")

/* The keys of nearly every decoder: with the head's width among the sizes, and without. */
#define DECODER_SIZES HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, POSITIONS
#define DECODER_KEYS HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, POSITIONS, THETA, ROPE_OBJECTS

#define LATENT_SIZES                                                   \
    SIZE("kv_lora_rank", kv_lora_rank, ATTN_MAX_HEAD_DIM),             \
        SIZE("q_lora_rank", q_lora_rank, ATTN_MAX_HIDDEN_SIZE),        \
        SIZE("qk_nope_head_dim", qk_nope_head_dim, ATTN_MAX_HEAD_DIM), \
        SIZE("qk_rope_head_dim", qk_rope_head_dim, ATTN_MAX_HEAD_DIM)

#define INDEXER_SIZES                                              \
    SIZE("index_n_heads", index_heads, ATTN_MAX_HEADS),            \
        SIZE("index_head_dim", index_head_dim, ATTN_MAX_HEAD_DIM), \
        SIZE("index_topk", index_topk, ATTN_MAX_TOKENS)

#define KEEP_WINDOW SIZE("keep_window_size", keep_window_size, ATTN_MAX_TOKENS)

/* The position biases of T5 and of DeBERTa. */
#define BUCKETS                                                        \
    SIZE("relative_attention_num_buckets", buckets, ATTN_MAX_BUCKETS), \
        SIZE("relative_attention_max_distance", max_distance, ATTN_MAX_BUCKETS)
#define POSITION_TABLE                                                                          \
    FIELD("pos_att_type", TERMS, position_terms, 0, 0),                                         \
        FIELD("position_buckets", INTEGER, position_buckets, -1, ATTN_MAX_BUCKETS),             \
        FIELD("max_relative_positions", INTEGER, max_relative_positions, -1, ATTN_MAX_BUCKETS), \
        NAME("norm_rel_ebd", relative_norm, "layer_norm none")

/* ---- Tensors ------------------------------------------------------------------------------- */

#define TENSOR_LIST(...)              \
    {                                 \
        __VA_ARGS__, { .name = NULL } \
    }
#define TENSORS(...) .tensors = (const struct attn_family_tensor[])TENSOR_LIST(__VA_ARGS__)
#define TENSOR(title, holds, as)                                                \
    {                                                                           \
        .name = title, .projections = ATTN_PROJ_##holds, .role = ATTN_ROLE_##as \
    }
#define EACH(q, k, v, o, as) TENSOR(q, Q, as), TENSOR(k, K, as), TENSOR(v, V, as), TENSOR(o, O, as)
#define WEIGHT(path, holds) TENSOR(path ".weight", holds, WEIGHT)
#define BIAS(path, holds) TENSOR(path ".bias", holds, BIAS)
#define WEIGHTS(path, q, k, v, o) \
    EACH(path q ".weight", path k ".weight", path v ".weight", path o ".weight", WEIGHT)
#define BIASES(path, q, k, v, o) \
    EACH(path q ".bias", path k ".bias", path v ".bias", path o ".bias", BIAS)
#define MAPS(path, q, k, v, o) WEIGHTS(path, q, k, v, o), BIASES(path, q, k, v, o)
#define FUSED(path, qkv, o) \
    WEIGHT(path qkv, QKV), BIAS(path qkv, QKV), WEIGHT(path o, O), BIAS(path o, O)
#define NORM(path, holds) TENSOR(path ".weight", holds, NORM)

/* The tensors of Llama, and these with q_norm and k_norm. */
#define SELF_ATTN "layers.*.self_attn."
#define LLAMA_MAPS MAPS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "o_proj")
#define NORMS NORM(SELF_ATTN "q_norm", Q), NORM(SELF_ATTN "k_norm", K)
extern const struct attn_family_tensor attn_llama_tensors[], attn_normed_tensors[];

/* ---- Rows ---------------------------------------------------------------------------------- */

#define ROW(name, ...) const struct attn_family ATTN_ROW(name) = {__VA_ARGS__}

#define PREFIXES(...) \
    .prefixes = (const char *const[]) { __VA_ARGS__, NULL }

extern const char *const attn_model_prefixes[]; /* "model." and none */

#define FAMILY(type) .model_type = type, .name = type
#define DECODER(type) FAMILY(type), .prefixes = attn_model_prefixes
#define LLAMA(type) DECODER(type), .tensors = attn_llama_tensors
#define NORMED(type) DECODER(type), .tensors = attn_normed_tensors

/* Settings are nested under text_config, whose model_type is `subtype`. */
#define NESTED(type, subtype)                                           \
    FAMILY(type), .subconfig = "text_config", .submodel_type = subtype, \
                  .prefixes = attn_model_prefixes, .wrapped = true

/* Sizes of the class, for a nested object that leaves them out. */
#define INNER(width, heads, layers, positions) .inner = {width, heads, layers, positions}

/* Defaults: those of every decoder, of nearly every encoder, and plain RoPE: its base, then other
 * members. */
#define DEFAULTS(...) .defaults = {__VA_ARGS__}
#define CAUSAL .is_causal = true, .scale_attn_weights = true
#define ENCODER .bias = true, .scale_attn_weights = true
#define ROPE_OF(what, ...) .type = ATTN_ROPE_##what, .theta = __VA_ARGS__
#define ROPE(...) .rope = {ROPE_OF(DEFAULT, __VA_ARGS__, .truncate = true)}
#define SLIDES .use_sliding_window = true

/* "mrope" is plain RoPE: the positions of its sections are one row. */
#define MROPE .mrope = true, ROPE_KEYS(IGNORED("interleaved mrope_interleaved mrope_section"))

/* Mistral's queries grow with the log of their position; max_position_embeddings inside a RoPE
 * object is that of the model. */
#define SCALING_BETA                                                     \
    ROPE_KEYS(ROPE_NUMBER("llama_4_scaling_beta", scaling_beta, 0, 1e6), \
              IGNORED("max_position_embeddings"))

#endif
