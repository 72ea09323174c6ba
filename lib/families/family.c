/* family.c: the table of families, the keys that all Hugging Face configurations share, and finding
 * either.
 *
 * The rows are in llama.c, decoders.c, hybrids.c, gpt.c, encoders.c, stacks.c and own.c; rows.h has
 * their order.  The row of random models is not in the table: models/model.c names it, since no
 * configuration does.
 *
 * A key is of one of three kinds: a family uses it (its own list, or the rope list below); it would
 * change the mathematics if it had another value than the one given here; or it does not touch
 * attention: training, vocabulary, other layers, generation, bookkeeping.  Any other key is refused
 * by name, since it may mean anything. */
#include "families/family.h"

#include <string.h>

#include "basics/text.h"

#include "families/rows.h"

/* ---- Keys and names ---- */

const struct attn_hf_key attn_rope_keys[] = KEY_LIST(
    ROPE_KEY("rope_type", ROPE_TYPE, type, 0, 0), ROPE_KEY("type", ROPE_TYPE, type, 0, 0),
    ROPE_NUMBER("rope_theta", theta, 1, MAX_THETA), ROPE_NUMBER("factor", factor, 1, 1e6),
    ROPE_NUMBER("attention_factor", attention_factor, 1e-6, 1e6),
    ROPE_NUMBER("attn_factor", gain_factor, 1e-6, 1e6), ROPE_NUMBER("mscale", mscale, 0, 1e6),
    ROPE_NUMBER("mscale_all_dim", mscale_all_dim, 0, 1e6),
    ROPE_NUMBER("low_freq_factor", low_freq_factor, 1e-6, 1e6),
    ROPE_NUMBER("high_freq_factor", high_freq_factor, 1e-6, 1e6),
    ROPE_NUMBER("beta_fast", beta_fast, 0, 1e6), ROPE_NUMBER("beta_slow", beta_slow, 0, 1e6),
    ROPE_NUMBER("original_max_position_embeddings", original_max_position, 1, MAX_POSITION),
    ROPE_NUMBER("partial_rotary_factor", partial_rotary_factor, 1e-6, 1),
    ROPE_KEY("truncate", FLAG, truncate, 0, 1),
    ROPE_KEY("short_factor", FACTORS, short_factor, 1e-6, 1e6),
    ROPE_KEY("long_factor", FACTORS, long_factor, 1e-6, 1e6));

const char *const attn_layer_types[ATTN_NUM_LAYER_TYPES] = {
    [ATTN_LAYER_FULL] = "full_attention",
    [ATTN_LAYER_SLIDING] = "sliding_attention",
    [ATTN_LAYER_CHUNKED] = "chunked_attention",
    [ATTN_LAYER_SHARED] = "shared",
    [ATTN_LAYER_LINEAR] = "linear_attention",
    [ATTN_LAYER_MAMBA] = "mamba",
    [ATTN_LAYER_MLP] = "mlp",
    [ATTN_LAYER_MOE] = "moe",
    [ATTN_LAYER_CONV] = "conv",
    [ATTN_LAYER_RECURRENT] = "recurrent",
};

const char attn_layer_letters[ATTN_NUM_LAYER_TYPES + 1] = "*    M-E  ";

const struct attn_rope_name attn_rope_names[] = {
    {"default", ATTN_ROPE_DEFAULT},
    {"linear", ATTN_ROPE_LINEAR},
    {"dynamic", ATTN_ROPE_DYNAMIC},
    {"yarn", ATTN_ROPE_YARN},
    {"llama3", ATTN_ROPE_LLAMA3},
    {"longrope", ATTN_ROPE_LONGROPE},
    {"su", ATTN_ROPE_LONGROPE}, /* what Phi-3 first called it */
    {"proportional", ATTN_ROPE_PROPORTIONAL},
    {.name = NULL},
};

const struct attn_hf_key attn_common_keys[] = {
    FIXED("add_cross_attention", "false"),
    FIXED("is_decoder", "false"),
    FIXED("is_encoder_decoder", "false"),
    FIXED("partial_rotary_factor", "1.0"),
    FIXED("pruned_heads", "{}"),
    FIXED("rope_interleaved", "false"),
    FIXED("sliding_window", "null"),
    FIELD("quantization", QUANTIZATION, quantization, 0, 0),
    FIELD("quantization_config", QUANTIZATION, quantization, 0, 0),
    /* what the file is and who wrote it */
    IGNORED(
        "architectures attn_implementation auto_map dtype finetuning_task internal_version "
        "is_llama_config model_type name_or_path sentence_transformers tf_legacy_loss torch_dtype "
        "torchscript transformers.js_config transformers_version unsloth_fixed unsloth_version "
        "use_bfloat16 xla_device"),
    /* vocabulary and tokens */
    IGNORED("begin_suppress_tokens bos_token_id cls_token_id decoder_start_token_id eos_token_id "
            "forced_bos_token_id forced_eos_token_id mask_token_id pad_token_id prefix "
            "reward_token_id sep_token_id suppress_tokens tie_word_embeddings tokenizer_class "
            "type_vocab_size "
            "unk_token_id vocab_size"),
    /* other layers: feed-forward, norms, pooling, heads for tasks, prediction of further tokens */
    IGNORED(
        "activation_function apply_residual_connection_post_layernorm d_ff directionality "
        "hidden_act hidden_activation id2label intermediate_size label2id layer_norm_eps "
        "layer_norm_epsilon mlp_bias n_inner num_labels num_mtp_layers "
        "num_nextn_predict_layers pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type pooling_mode problem_type rms_norm_eps "
        "summary_activation summary_first_dropout "
        "summary_proj_to_labels summary_type summary_use_proj task_specific_params"),
    /* experts */
    IGNORED("decoder_sparse_step ep_size first_k_dense_replace mlp_layer_types mlp_only_layers "
            "moe_intermediate_size moe_layer_freq moe_layers n_group n_routed_experts "
            "n_shared_experts norm_topk_prob num_experts num_experts_per_tok num_local_experts "
            "num_shared_experts output_router_logits "
            "routed_scaling_factor router_aux_loss_coef router_jitter_noise scoring_func "
            "shared_expert_intermediate_size top_k_experts topk_group topk_method"),
    /* training: dropout, initialisation */
    IGNORED("activation_dropout attention_dropout attention_probs_dropout_prob attn_pdrop "
            "classifier_dropout dropout dropout_rate embd_pdrop gradient_checkpointing "
            "hidden_dropout hidden_dropout_prob initializer_factor initializer_range layerdrop "
            "neftune_noise_alpha resid_pdrop"),
    /* how a computation is arranged, not what it computes */
    IGNORED("chunk_size_feed_forward cross_attention_hidden_size max_sequence_length "
            "output_attentions output_hidden_states output_past pretraining_tp return_dict "
            "tie_encoder_decoder use_cache use_return_dict"),
    /* defaults of text generation */
    IGNORED("bad_words_ids cache_implementation diversity_penalty do_sample early_stopping "
            "encoder_no_repeat_ngram_size exponential_decay_length_penalty length_penalty "
            "max_length max_new_tokens min_length no_repeat_ngram_size num_beam_groups num_beams "
            "num_return_sequences output_scores remove_invalid_values repetition_penalty "
            "return_dict_in_generate temperature top_k top_p typical_p"),
    {.name = NULL},
};

bool attn_hf_names_have(const char *names, const char *name)
{
    return names != NULL && attn_text_word_number(names, name) != 0;
}

const struct attn_hf_key *attn_hf_key_find(const struct attn_hf_key *keys, const char *name)
{
    for (; keys != NULL && keys->name != NULL; keys++)
        if (attn_text_word_number(keys->name, name) != 0)
            return keys;
    return NULL;
}

const char *attn_rope_type_name(size_t type)
{
    const struct attn_rope_name *known = attn_rope_names;
    while (known->name != NULL && known->type != type)
        known++;
    return known->name != NULL ? known->name : "none";
}

size_t attn_layer_type_find(const struct attn_family *family, const struct attn_hf_key *key,
                            const char *name)
{
    const size_t chunk = HF_FIELD(attention_chunk_size), none = ATTN_NUM_LAYER_TYPES;
    const size_t own = family->defaults.other_type;
    const size_t other = own != 0 ? own : ATTN_LAYER_SLIDING;
    const size_t place =
        key != NULL && key->only != NULL ? attn_text_word_number(key->only, name) : 0;
    size_t type = 0;
    if (place != 0)
        return place == 1 ? ATTN_LAYER_FULL : other;
    while (type < none && strcmp(name, attn_layer_types[type]) != 0)
        type++;
    const bool known =
        type == ATTN_LAYER_FULL || type == other ||
        (type == ATTN_LAYER_CHUNKED && attn_hf_key_for_field(family->keys, chunk) != NULL) ||
        (other == ATTN_LAYER_MAMBA && type >= ATTN_LAYER_LINEAR && type < ATTN_LAYER_CONV);
    return known ? type : none;
}

size_t attn_hf_name_number(const struct attn_hf_key *key, const char *name)
{
    const struct attn_rope_name *known = attn_rope_names;
    if (key->kind != ATTN_CONFIG_ROPE_TYPE)
        return attn_text_word_number(key->only, name);
    while (known->name != NULL && strcmp(known->name, name) != 0)
        known++;
    return known->type;
}

const struct attn_hf_key *attn_hf_key_for_field(const struct attn_hf_key *keys, size_t offset)
{
    for (; keys->name != NULL; keys++)
        if (keys->kind < ATTN_CONFIG_FIXED && keys->offset == offset)
            return keys;
    return NULL;
}

const struct attn_hf_key *attn_family_key(const struct attn_family *family, const char *key)
{
    static const struct attn_hf_key note = IGNORED("_"); /* such as _name_or_path */
    const struct attn_hf_key *known = attn_hf_key_find(family->keys, key);
    if (known == NULL && family->model_type != NULL)
        known = key[0] == '_' ? &note : attn_hf_key_find(attn_common_keys, key);
    return known;
}

/* ---- Families ---- */

#define POINT(name) &ATTN_ROW(name)
static const struct attn_family *const families[] = {ATTN_FAMILIES(POINT)};

const struct attn_family *attn_family_at(size_t i)
{
    return i < sizeof families / sizeof families[0] ? families[i] : NULL;
}

const struct attn_family *attn_family_find(const char *model_type, const char *submodel_type,
                                           const char *stack)
{
    const struct attn_family *family;
    for (size_t i = 0; (family = attn_family_at(i)) != NULL; i++) {
        const char *sub = family->submodel_type;
        if ((stack == NULL || (family->stack != NULL && strcmp(family->stack, stack) == 0)) &&
            strcmp(family->model_type, model_type) == 0 &&
            (sub == NULL || submodel_type == NULL ||
             attn_text_word_number(sub, submodel_type) != 0))
            return family;
    }
    return NULL;
}
