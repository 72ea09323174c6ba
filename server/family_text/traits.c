/* traits.c: how the layers of a family attend. */
#include <stdio.h>

#include "family_text/family_text.h"

static void print_sliding(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const char *types = key_name(family, HF_FIELD(num_layer_types));
    const char *flag = key_name(family, HF_FIELD(use_sliding_window));
    const char *first = key_name(family, HF_FIELD(first_sliding));
    struct text p = {.length = 0};
    if (key_name(family, HF_FIELD(sliding_window)) == NULL)
        return;
    add(&p, "- Sliding window: ");
    if (flag != NULL)
        add(&p, "only if `%s` is true, ", flag);
    if (types != NULL && key_name(family, HF_FIELD(sliding_sinks)) != NULL)
        add(&p, "in the layers for which `%s` has 1; without that key, ", types);
    else if (types != NULL)
        add(&p, "in the layers that `%s` calls `sliding_attention`; without that key, ", types);
    if (defaults->other_type >= ATTN_LAYER_LINEAR)
        add(&p, "in all layers that attend, the last of each %zu", defaults->full_period);
    else if (key_name(family, HF_FIELD(full_period)) != NULL)
        add(&p, "in all but each n-th layer, n being `%s`, the %s of n",
            key_name(family, HF_FIELD(full_period)), defaults->full_first ? "first" : "last");
    else if (defaults->window_needs_list)
        add(&p, "the configuration is refused, as versions of its class disagree");
    else if (defaults->slides_without_rope)
        add(&p, "in the layers that do not rotate");
    else if (defaults->full_period != 0)
        add(&p, "in all but the %s of each %zu layers%s", defaults->full_first ? "first" : "last",
            defaults->full_period, defaults->from_last ? ", counted from the last layer" : "");
    else if (defaults->first_sliding == ATTN_MAX_LAYERS)
        add(&p, "in none");
    else if (defaults->sliding_period > 1)
        add(&p, "in one layer of %zu, layer 0 first", defaults->sliding_period);
    else if (first != NULL)
        add(&p, "in the layers from `%s` on", first);
    else
        add(&p, "in all layers");
    add(&p, ".");
    print_paragraph(&p);
}

/* Which layers rotate, and what sliding layers have of their own. */
static void print_rotating(struct text *p, const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const char *list = key_name(family, HF_FIELD(num_rope_layers));
    const char *bases = key_name(family, HF_FIELD(num_rope_thetas));
    if (defaults->rope_layers == ATTN_ROPE_SLIDING_ONLY)
        add(p, " Only sliding layers rotate.");
    if (defaults->rope_layers == ATTN_ROPE_IF_WINDOW)
        add(p, " With a window only sliding layers rotate.");
    if (bases != NULL)
        add(p, " `%s` has the base of each layer, 0 where it does not rotate.", bases);
    if (bases != NULL && defaults->no_rope_period != 0)
        add(p, " Without it, all rotate but the last of each %zu layers, counted from the last.",
            defaults->no_rope_period);
    if (key_name(family, HF_FIELD(dense_period)) != NULL)
        add(p, " Dense layers rotate too, where `%s` is 1.",
            key_name(family, HF_FIELD(dense_period)));
    if (list != NULL)
        add(p, " `%s` has 1 for a layer that rotates; without it, all rotate", list);
    if (list != NULL && key_name(family, HF_FIELD(no_rope_period)) != NULL)
        add(p, " but each n-th, n being `%s`", key_name(family, HF_FIELD(no_rope_period)));
    if (list != NULL)
        add(p, ".");
    if (defaults->rope_by_type && defaults->sliding_rope.theta != 0)
        add(p, " Sliding layers have base %g and no scaling.", defaults->sliding_rope.theta);
    else if (defaults->rope_by_type && key_name(family, HF_FIELD(rope)) != NULL)
        add(p, " Scaling holds for full layers only.");
    if (family->mrope)
        add(p, " `mrope` is plain RoPE: the positions of its sections are one row.");
}

static void print_rope(const struct attn_family *family)
{
    const struct attn_hf_rope *rope = &family->defaults.rope;
    struct text p = {.length = 0};
    if (rope->type == ATTN_ROPE_NONE)
        add(&p, "- RoPE: %s.",
            key_name(family, HF_FIELD(rope.theta)) != NULL ? "if a base is given" : "none");
    else
        add(&p, "- RoPE: type `%s`, base %g, unless keys say otherwise; pairs are %s",
            attn_rope_type_name(rope->type), rope->theta,
            rope->interleaved ? "neighbours" : "halves");
    if (rope->reversed)
        add(&p, ", which turn the other way");
    if (rope->type == ATTN_ROPE_YARN)
        add(&p, "; factor %g, beta_fast %g, beta_slow %g, truncate %s", rope->factor,
            rope->beta_fast, rope->beta_slow, rope->truncate ? "true" : "false");
    if (rope->type != ATTN_ROPE_NONE)
        add(&p, "%s%s%s.", family->defaults.alibi_replaces_rope ? "; none with ALiBi" : "",
            key_name(family, HF_FIELD(position_type)) != NULL ? "; only where the key says rotary"
                                                              : "",
            family->defaults.rope_by_grid
                ? "; positions are rows and columns of the call's grid of patches"
                : "");
    print_rotating(&p, family);
    print_paragraph(&p);
    if (family->rope_keys == NULL)
        return;
    add(&p, "- Further keys inside a RoPE object:");
    for (const struct attn_hf_key *key = family->rope_keys; key->kind == ATTN_CONFIG_NUMBER; key++)
        add(&p, " `%s`%s", key->name, key[1].name != NULL ? "," : "");
    add_ignored(&p, family->rope_keys, " (ignored)");
    add(&p, ".");
    print_paragraph(&p);
}

void add_biases(struct text *text, const struct attn_family *family)
{
    const bool always = family->defaults.o_bias;
    unsigned biased = ATTN_PROJ_ALL & ~family->unbiased & ~(always ? ATTN_PROJ_O : 0u);
    const char *flag = key_name(family, HF_FIELD(bias));
    if (key_name(family, HF_FIELD(q_bias)) != NULL) {
        add(text, "q, k, v, o, each by a key of its own");
        return;
    }
    if (biased == 0)
        add(text, "none");
    else
        add_projections(text, biased);
    if (biased != 0 && flag != NULL)
        add(text, ", if `%s` is true", flag);
    add(text, "%s", always ? "; always o" : "");
}

/* The norms of queries, keys and values. */
static void print_norms(const struct attn_family *family)
{
    static const char *const extents[] = {
        [ATTN_NORM_HEAD] = "each query and key head",
        [ATTN_NORM_EACH_HEAD] = "each query and key head, with weights of its own",
        [ATTN_NORM_ALL_HEADS] = "all query heads as one vector, and of all key heads",
    };
    const struct attn_hf_config *defaults = &family->defaults;
    const char *flag = key_name(family, HF_FIELD(qk_norm));
    struct text p = {.length = 0};
    if (defaults->kv_lora_rank > 0) {
        add(&p,
            "- Latent attention: k and v are made of RMSNorm(latent), the last components of k, "
            "which rotate, are the same for all heads, q is made of RMSNorm(latent) where there "
            "is one. A session keeps the latent and the shared part of each token.");
        print_paragraph(&p);
    }
    if (!defaults->qk_norm && flag == NULL)
        return;
    add(&p, "- %s%s of %s %s RoPE",
        defaults->norm_type == ATTN_NORM_LAYER ? "LayerNorm" : "RMSNorm",
        defaults->norm_weightless ? " without weights" : "", extents[defaults->norm_extent],
        defaults->norm_after_rope ? "after" : "before");
    if (defaults->norm_bias)
        add(&p, ", with a bias");
    if (family->norm_plus_one)
        add(&p, ", its weights stored as w - 1");
    if (flag != NULL)
        add(&p, ", if `%s` is true", flag);
    add(&p, "%s.%s", defaults->norm_rope_layers ? ", in layers that rotate" : "",
        defaults->v_norm ? " RMSNorm without weights of each value head." : "");
    print_paragraph(&p);
}

/* Layers that are neither full nor sliding, and what full layers have of their own. */
static void print_types(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    struct text p = {.length = 0};
    const char *period = key_name(family, HF_FIELD(full_period));
    if (defaults->other_type >= ATTN_LAYER_LINEAR)
        add(&p, "- `%s` layers", attn_layer_types[defaults->other_type]);
    if (defaults->other_type >= ATTN_LAYER_LINEAR && period != NULL && !defaults->full_first)
        add(&p, " (all but the last of each `%s`, where `layer_types` is absent)", period);
    if (defaults->other_type >= ATTN_LAYER_LINEAR)
        add(&p, " are listed, but not computed: they are no part of all layers, and refused by "
                "name.");
    if (defaults->other_type == ATTN_LAYER_CHUNKED)
        add(&p,
            "- `chunked_attention` layers: a query sees the keys of its chunk of `%s`. Where "
            "`layer_types` is absent, the layers that rotate are chunked. The others scale their "
            "queries.",
            key_name(family, HF_FIELD(attention_chunk_size)));
    else if (key_name(family, HF_FIELD(attention_chunk_size)) != NULL)
        add(&p,
            "- A query sees the keys of its chunk of `attention_chunk_size`, counted from the "
            "first "
            "real token, in the layers that `layer_types` calls `chunked_attention`; without that "
            "key, in all layers. The window of a layer that is not causal reaches both ways. With "
            "`floor_scale` queries are multiplied, after RoPE, by 1 + attn_scale ln(1 + floor(p / "
            "floor_scale)), p being their position.");
    if (key_name(family, HF_FIELD(global_head_dim)) != NULL)
        add(&p,
            "- Full layers have heads of `global_head_dim`; with `attention_k_eq_v` also "
            "`num_global_key_value_heads`, and the weights of k serve for v. The last layer is "
            "full. The last `num_kv_shared_layers` layers have no k and v: they read the cache of "
            "the last earlier layer of their type.");
    if (p.length != 0)
        print_paragraph(&p);
}

/* An indexer, a dynamic mask, and differential attention. */
static void print_choice(const struct attn_hf_config *defaults)
{
    if (defaults->index_heads > 0)
        printf("- An indexer chooses the `index_topk` visible keys with the best index score, and "
               "the softmax is over these alone. Its key of each token is cached too.\n");
    if (defaults->keep_window_size > 0)
        printf("- A dynamic mask adds a bias, which a key's values make, to the scores of each "
               "key/value head; of more than `keep_window_size` keys the softmax is over so many "
               "visible ones alone, those of the largest bias.\n");
    if (defaults->differential)
        printf("- Differential attention, lambda_init of layer l being 0.8 - 0.6 exp(-0.3 l).\n");
}

/* The position bias of a family, in lines of its own. */
static void print_position_bias(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    if (defaults->alibi || key_name(family, HF_FIELD(alibi)) != NULL)
        printf("- ALiBi%s%s%s%s.\n", defaults->alibi ? "" : ", if `alibi` is true",
               defaults->alibi_scaled ? ", divided by sqrt(D)" : "",
               defaults->alibi_bfloat16 ? ", rounded to bfloat16" : "",
               defaults->alibi_by_slot ? "; padding counts in its distances" : "");
    if (defaults->buckets != 0)
        printf("- T5 position bias, in %s%s.\n",
               defaults->is_causal ? "one direction" : "both directions",
               defaults->gated_bias ? ", times a gate of each query and head" : "");
    if (defaults->relative_key == 1)
        printf("- Relative keys: queries are multiplied by a learned row for the distance too.\n");
    if (key_name(family, HF_FIELD(grid_bias)) != NULL)
        printf("- A position bias by rows and columns of patches, by key, for one resolution.\n");
    if (key_name(family, HF_FIELD(attention_type)) != NULL)
        printf("- Full attention; sequences beyond the length of `block_sparse` are refused.\n");
    if (key_name(family, HF_FIELD(position_terms)) != NULL)
        printf("- Disentangled position bias: scores are divided by sqrt(D (1 + its terms)).\n");
}

void print_traits(const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    struct text biases = {.length = 0};
    bool rescaled = key_name(family, HF_FIELD(scale_attn_weights)) != NULL ||
                    key_name(family, HF_FIELD(scale)) != NULL ||
                    key_name(family, HF_FIELD(query_pre_attn_scalar)) != NULL;
    printf(
        "- %s, %s. Scores are %s%s.\n", defaults->is_cross ? "Cross-attention" : "Self-attention",
        defaults->is_causal ? "causal" : "not causal",
        defaults->scale_attn_weights && defaults->scale == 0 ? "divided by sqrt(D)" : "not scaled",
        rescaled ? " unless a key says otherwise" : "");
    add(&biases, "- Biases: ");
    add_biases(&biases, family);
    add(&biases, ".");
    print_paragraph(&biases);
    if (defaults->attentions != 0)
        printf("- Each layer has %zu attentions, which count as layers: `*` is the layer's index, "
               "`%%` that of\n  the attention in it.\n",
               defaults->attentions);
    if (defaults->num_groups != 0)
        printf("- Layers of a group share tensors, resident once; `*` is the group's index.\n");
    print_position_bias(family);
    if (defaults->sinks)
        printf("- Each head has a sink.\n");
    print_norms(family);
    if (defaults->output_gate)
        printf("- Rows of heads are multiplied by %s(gate) before the output projection.\n",
               defaults->gate_softplus ? "softplus" : "sigmoid");
    if (key_name(family, HF_FIELD(clip_qkv)) != NULL)
        printf("- q, k and v may be clamped, after norms and before RoPE.\n");
    print_choice(defaults);
    if (family->either_way != NULL)
        printf(
            "- A weight's name that begins with `%s` does not say how it is stored: `transposed` "
            "must.\n",
            family->either_way);
    if (defaults->output_norm)
        printf("- RMSNorm of all heads of a row as one vector before the output projection.\n");
    if (family->note != NULL)
        printf("- %s.\n", family->note);
    if (family->kv_by_flags && key_name(family, HF_FIELD(grouped)) == NULL)
        printf("- Key/value heads: 1 if `%s` is true; else H.\n",
               key_name(family, HF_FIELD(multi_query)));
    else if (family->kv_by_flags)
        printf("- Key/value heads: `%s` if `%s` is true; else 1 if `%s` is true; else H.\n",
               key_name(family, HF_FIELD(num_kv_heads)), key_name(family, HF_FIELD(grouped)),
               key_name(family, HF_FIELD(multi_query)));
    print_sliding(family);
    print_types(family);
    print_rope(family);
}
