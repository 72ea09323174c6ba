/* field_hints.c: names of other frameworks, and what they are called here.
 *
 * A name whose nearest field is the one that is meant (key_state, topk) needs no row. */
#include "wire/call.h"

#include <stdio.h>

#include "base/nearest.h"

/* Names that mean the same are words of one text. */
static const struct {
    const char *names, *instead;
} hints[] = {
    {"attn_mask", "use attention_mask for 1 = may attend, attention_bias for numbers to add"},
    {"mask", "use attention_mask for queries and keys, padding_mask for real tokens"},
    {"key_padding_mask", "use padding_mask, where 1 is a real token and 0 is never attended"},
    {"encoder_attention_mask", "use padding_mask, over the rows of encoder_hidden_states"},
    {"nonpad_kv_seqlen", "use padding_mask, where 1 is a real token"},
    {"attn_bias bias", "use attention_bias"},
    {"position_bias", "use attention_bias; the layer adds its own position bias itself"},
    {"alibi_slopes", "leave it out: the layer knows its position bias; else attention_bias"},
    {"layer_head_mask", "use head_mask"},
    {"need_weights output_attentions return_attention_scores",
     "ask for \"attention_weights\" in outputs"},
    {"average_attn_weights", "use average_heads"},
    {"return_lse return_softmax_lse", "ask for \"lse\" in outputs"},
    {"qk_matmul_output_mode", "ask for \"attention_scores\" in outputs, and stage"},
    {"past_key_values past_key_value layer_past use_cache",
     "a session keeps keys and values: use session_id"},
    {"cache_position", "use position"},
    {"inputs_embeds embeddings inputs input x", "use hidden_states"},
    {"q queries", "use query"},
    {"k", "use key"},
    {"v", "use value"},
    {"input_ids prompt messages", "use hidden_states: attnd has no tokenizer and no embeddings"},
    {"d_model embed_dim hidden_size head_dim",
     "leave it out: sizes are the model's (GET /models), or the tensors'"},
    {"n_heads nhead num_heads num_attention_heads q_num_heads",
     "leave it out: heads are the model's (GET /models), or a dimension of query"},
    {"kv_num_heads num_kv_heads num_key_value_heads",
     "leave it out: heads are the model's (GET /models), or a dimension of key"},
    {"enable_gqa", "leave it out: key may have fewer heads than query"},
    {"batch_first", "leave it out: the batch is the first dimension"},
    {"dropout dropout_p", "leave it out: nothing is dropped"},
    {"is_training training", "leave it out: nothing is trained here"},
    {"return_dict", "leave it out: replies are objects"},
    {"softmax_scale scaling", "use scale"},
    {"window_size", "use sliding_window"},
    {"logits_soft_cap attn_logit_softcapping", "use softcap"},
    {"layer_idx", "use layer"},
    {"model_name", "use model"},
};

/* Whether the name, which is a client's, is a word of the text. */
static bool has_word(const char *text, const char *name)
{
    const size_t length = strlen(name);
    const bool is_word = length > 0 && strchr(name, ' ') == NULL;
    for (const char *at = text; is_word && (at = strstr(at, name)) != NULL; at++)
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

void srv_field_hint(char out[SRV_HINT_MAX], const char *what, const char *name,
                    const char *const *names, size_t count)
{
    const char *nearest = attn_nearest(name, names, count);
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (has_word(hints[i].names, name)) {
            snprintf(out, SRV_HINT_MAX, "is no %s of this request: %s", what, hints[i].instead);
            return;
        }
    snprintf(out, SRV_HINT_MAX, "is no %s of this request%s%s%s", what,
             nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "?" : "");
}
