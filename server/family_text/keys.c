/* keys.c: the keys of configurations: of a family, of RoPE objects, and those that all families
 * share. */
#include <stdio.h>
#include <string.h>

#include "family_text/family_text.h"

#include "basics/mem.h"

/* ---- What is said of each field of a configuration ---- */

#define ROPE_FIELD(field) offsetof(struct attn_hf_rope, field)

/* The meaning of a field, and of 0 or null in it. */
struct field_words {
    size_t offset;
    const char *meaning, *zero;
};

static const struct field_words config_words[] = {
    {HF_FIELD(hidden_size), "width E", "required"},
    {HF_FIELD(num_heads), "query heads H", "required"},
    {HF_FIELD(num_kv_heads), "key/value heads G", "H"},
    {HF_FIELD(head_dim), "head width D", "E / H"},
    {HF_FIELD(value_head_dim), "head width of values", "D"},
    {HF_FIELD(key_size), "width of key inputs", "E"},
    {HF_FIELD(value_size), "width of value inputs", "E"},
    {HF_FIELD(encoder_size), "width of the rows that it attends over", "E"},
    {HF_FIELD(num_layers), "layers", "required"},
    {HF_FIELD(num_cross_layers), "the layers of the stack `cross`", "required"},
    {HF_FIELD(num_layers_fallback), "layers, if the key above is absent", "required"},
    {HF_FIELD(num_predict_layers), "layers for further tokens, which lists by layer may have", "0"},
    {HF_FIELD(num_groups), "groups of layers that share their tensors", "none"},
    {HF_FIELD(max_position), "longest position", "not given"},
    {HF_FIELD(original_max_position), "trained length, for longrope", "by rope_scaling"},
    {HF_FIELD(seed), "seed of the weights", "0"},
    {HF_FIELD(is_causal), "a token sees no later token", NULL},
    {HF_FIELD(is_cross), "keys come from another sequence", NULL},
    {HF_FIELD(transposed), "weights are stored as [in, out]; false: as [out, in]", NULL},
    {HF_FIELD(bias), "biases", NULL},
    {HF_FIELD(bias_kv), "one learned key and value is appended", NULL},
    {HF_FIELD(add_zero_attn), "one key and value of zeros is appended", NULL},
    {HF_FIELD(sinks), "each head has a sink", NULL},
    {HF_FIELD(kv_lora_rank), "width R of the latent of keys and values", "no latents"},
    {HF_FIELD(q_lora_rank), "width of the latent of queries", "none"},
    {HF_FIELD(qk_nope_head_dim), "components of a head that do not rotate", "required"},
    {HF_FIELD(qk_rope_head_dim), "components of a head that rotate, after those", "required"},
    {HF_FIELD(index_heads), "heads of the indexer", "no indexer"},
    {HF_FIELD(index_head_dim), "width of its heads", "required"},
    {HF_FIELD(index_topk), "keys that a query takes part with, at most", "required"},
    {HF_FIELD(index_offset), "the first layers that have an indexer", NULL},
    {HF_FIELD(index_freq), "f: from the last of these on each f-th layer has one; the others share",
     "1"},
    {HF_FIELD(keep_window_size), "keys that a query takes part with, at most", "no dynamic mask"},
    {HF_FIELD(index_interleaved), "the indexer rotates neighbours; false: halves", NULL},
    {HF_FIELD(rope_gathered), "neighbouring components rotate together, and come as halves", NULL},
    {HF_FIELD(qk_norm), "RMSNorm of each query and key head", NULL},
    {HF_FIELD(norm_type), "type of that norm", "`rms_norm`"},
    {HF_FIELD(norm_extent), "over what its mean is taken, its weights having that shape",
     "each head alone, weights [D] for all"},
    {HF_FIELD(norm_weightless), "that norm has no weights", NULL},
    {HF_FIELD(norm_bias), "that norm has a bias", NULL},
    {HF_FIELD(norm_after_rope), "that norm comes after RoPE", NULL},
    {HF_FIELD(v_norm), "RMSNorm without weights of each value head", NULL},
    {HF_FIELD(norm_eps), "epsilon of the norms", "0"},
    {HF_FIELD(output_gate), "rows of heads are multiplied by sigmoid(gate)", NULL},
    {HF_FIELD(gate_softplus), "by softplus(gate) instead", NULL},
    {HF_FIELD(gate_by_head), "the gate has one number for each head", NULL},
    {HF_FIELD(output_norm), "RMSNorm of all heads before the output projection", NULL},
    {HF_FIELD(clip_qkv), "queries, keys and values are clamped to +-this", "not clamped"},
    {HF_FIELD(key_multiplier), "multiplies keys, before norm and RoPE", "1"},
    {HF_FIELD(query_scaling.next), "that scaling counts positions from 1", NULL},
    {HF_FIELD(query_scaling.by_slot), "that scaling counts rows, whatever position_ids say", NULL},
    {HF_FIELD(grouped), "`num_kv_heads` counts", NULL},
    {HF_FIELD(multi_query), "one key/value head; false: H", NULL},
    {HF_FIELD(scale_attn_weights), "scores are divided by sqrt(D)", NULL},
    {HF_FIELD(scale_by_layer), "scores of layer l are divided by l + 1", NULL},
    {HF_FIELD(scale), "scale of scores", "1 / sqrt(D)"},
    {HF_FIELD(query_factor), "multiplies that scale", "1"},
    {HF_FIELD(query_pre_attn_scalar), "q: the scale of scores is 1 / sqrt(q)", "D"},
    {HF_FIELD(differential), "differential attention", NULL},
    {HF_FIELD(value_scale), "multiplies values before they are cached", "nothing"},
    {HF_FIELD(softcap), "soft-capping c: scores become c tanh(score / c)", "none"},
    {HF_FIELD(sliding_window), "window W of sliding layers", "none"},
    {HF_FIELD(use_sliding_window), "any layer has the window", NULL},
    {HF_FIELD(first_sliding), "first layer with the window", "0"},
    {HF_FIELD(num_layer_types), "the type of each layer", "by the rule above"},
    {HF_FIELD(full_period), "every n-th layer has full attention", "none"},
    {HF_FIELD(full_offset), "the first of these layers", "0"},
    {HF_FIELD(listed_layers), "the layers with full attention", "by the rule above"},
    {HF_FIELD(position_type), "positions", "none"},
    {HF_FIELD(num_rope_layers), "the layers that rotate", "by the rule above"},
    {HF_FIELD(num_rope_thetas), "RoPE base of each layer", "by the rule above"},
    {HF_FIELD(num_layer_heads), "query heads of each layer", "H"},
    {HF_FIELD(num_layer_windows), "window, or that of each layer", "512"},
    {HF_FIELD(relative_positions),
     "each distance has a row that queries multiply, or keys too; or ALiBi in both directions",
     "none"},
    {HF_FIELD(num_mlp_types), "the dense layers", "the first ones"},
    {HF_FIELD(num_dense), "number of dense layers, with a period of their own", "0"},
    {HF_FIELD(dense_period), "that period; 1: dense layers rotate", "0"},
    {HF_FIELD(scale_q_lora), "the latent of queries is multiplied by sqrt(E / its width)", NULL},
    {HF_FIELD(scale_kv_lora), "that of keys and values by sqrt(E / R)", NULL},
    {HF_FIELD(no_rope_period), "every n-th layer does not rotate", "none"},
    {HF_FIELD(bidirectional), "not causal, with W / 2 tokens on both sides", NULL},
    {HF_FIELD(o_bias), "bias of o", NULL},
    {HF_FIELD(attention_chunk_size), "tokens of a chunk", "none"},
    {HF_FIELD(query_tuning), "layers that do not rotate scale their queries", NULL},
    {HF_FIELD(query_scaling.beta), "beta of that scaling", "0"},
    {HF_FIELD(query_scaling.period), "its period", "none"},
    {HF_FIELD(global_head_dim), "head width D of full layers", "that of the others"},
    {HF_FIELD(num_global_kv_heads), "key/value heads G of full layers", "that of the others"},
    {HF_FIELD(full_sinks), "each head of a full layer has a sink", NULL},
    {HF_FIELD(sliding_sinks), "each head of a sliding layer has a sink", NULL},
    {HF_FIELD(sliding_kv_heads), "key/value heads G of sliding layers", "that of the others"},
    {HF_FIELD(sliding_heads), "query heads of sliding layers", "H"},
    {HF_FIELD(sliding_head_dim), "head width of sliding layers: as of the others", "D"},
    {HF_FIELD(sliding_value_head_dim), "of their values: as of the others", "Dv"},
    {HF_FIELD(keys_as_values), "full layers: the weights of k serve for v", NULL},
    {HF_FIELD(num_shared_layers), "last layers that read an earlier cache", "0"},
    {HF_FIELD(sliding_rope.theta), "RoPE base of sliding layers", "that of the others"},
    {HF_FIELD(position_type), "how positions enter", "`absolute`: not in attention"},
    {HF_FIELD(relative_key), "each distance has a row that queries multiply", "none"},
    {HF_FIELD(max_after), "longest distance of keys after the query", "0"},
    {HF_FIELD(relative_backward), "their rows are in the opposite order", NULL},
    {HF_FIELD(q_bias), "bias of q", NULL},
    {HF_FIELD(k_bias), "bias of k", NULL},
    {HF_FIELD(v_bias), "bias of v", NULL},
    {HF_FIELD(num_registers), "tokens between the first one and the patches", "0"},
    {HF_FIELD(grid_bias), "a bias by rows and columns, of each layer", NULL},
    {HF_FIELD(shared_grid_bias), "the same, of all layers", NULL},
    {HF_FIELD(image_size), "pixels of an image's side", "required"},
    {HF_FIELD(patch_size), "pixels of a patch's side", "required"},
    {HF_FIELD(attention_type), "`block_sparse`: full attention up to (5 + 2 r) b tokens, no more",
     "`block_sparse`"},
    {HF_FIELD(block_size), "b, tokens of a block", "0"},
    {HF_FIELD(random_blocks), "r, blocks at random", "0"},
    {HF_FIELD(unsaid_bias_1d), "required to be false", NULL},
    {HF_FIELD(unsaid_bias_2d), "required to be false", NULL},
    {HF_FIELD(alibi), "ALiBi", NULL},
    {HF_FIELD(alibi_scaled), "ALiBi is divided by sqrt(D)", NULL},
    {HF_FIELD(alibi_bfloat16), "ALiBi is rounded to bfloat16", NULL},
    {HF_FIELD(alibi_by_slot), "padding counts in the distances of ALiBi", NULL},
    {HF_FIELD(buckets), "buckets of the relative position bias", "none"},
    {HF_FIELD(position_terms), "products of DeBERTa's position bias", "none"},
    {HF_FIELD(position_buckets), "S, half of its rows; -1: none", "`max_relative_positions`"},
    {HF_FIELD(max_relative_positions), "its longest distance", "`max_position_embeddings`"},
    {HF_FIELD(relative_norm), "norm of the rows of its table", "none"},
    {HF_FIELD(relative_norm_eps), "epsilon of that norm", "0"},
    {HF_FIELD(relative_attention), "required to be true beside `pos_att_type`", NULL},
    {HF_FIELD(share_att_key), "the maps of keys and queries make both of the table's rows", NULL},
    {HF_FIELD(max_distance), "distance from which on all share a bucket", "required"},
    {HF_FIELD(rope.dim), "components of a head that rotate", "all"},
    {HF_FIELD(rope.partial_rotary_factor), "share of a head that rotates, rounded down", "all"},
    {HF_FIELD(num_partials), "the same of each layer, one for all layers of a type", "all"},
    {HF_FIELD(rope_by_type), "types of layers that RoPE's scaling is for", "all"},
    {HF_FIELD(rope.interleaved), "pairs are neighbours; false: halves", NULL},
    {HF_FIELD(rope.reversed), "pairs turn the other way", NULL},
    {HF_FIELD(ntk_by_length), "longer calls have another base: they are refused", NULL},
    {HF_FIELD(logn_by_length), "longer calls scale their queries: they are refused", NULL},
    {HF_FIELD(rope.ratio), "multiplies the RoPE base", "1"},
    {HF_FIELD(rope.theta), "RoPE base", "no RoPE"},
};

static const struct field_words rope_words[] = {
    {ROPE_FIELD(type), "type; one of the two keys is required", ""},
    {ROPE_FIELD(theta), "base", "the one beside the object"},
    {ROPE_FIELD(factor), "factor; required by linear, dynamic, yarn, llama3",
     "longrope: ratio of the lengths"},
    {ROPE_FIELD(attention_factor), "yarn, longrope: multiplies cosine and sine",
     "computed from `factor`"},
    {ROPE_FIELD(gain_factor), "yarn: multiplies the attention factor that `factor` gives", "1"},
    {ROPE_FIELD(mscale), "yarn: gives the attention factor, with `mscale_all_dim`", "not used"},
    {ROPE_FIELD(mscale_all_dim), "yarn: gives the attention factor, with `mscale`", "not used"},
    {ROPE_FIELD(low_freq_factor), "llama3: required", ""},
    {ROPE_FIELD(high_freq_factor), "llama3: required", ""},
    {ROPE_FIELD(beta_fast), "yarn: turns where the ramp begins", "32"},
    {ROPE_FIELD(beta_slow), "yarn: turns where the ramp ends", "1"},
    {ROPE_FIELD(original_max_position), "yarn, llama3 (required), longrope: trained length",
     "`max_position_embeddings`"},
    {ROPE_FIELD(partial_rotary_factor), "share of a head that rotates",
     "the one beside the object"},
    {ROPE_FIELD(truncate), "yarn: the ramp's ends are whole numbers", NULL},
    {ROPE_FIELD(short_factor), "longrope: required; factors up to the trained length", ""},
    {ROPE_FIELD(long_factor), "longrope: required; factors beyond the trained length", ""},
};

/* ---- Keys ---- */

static const struct field_words *words_for(const struct field_words *words, size_t count,
                                           size_t offset)
{
    static const struct field_words none = {0, "", ""};
    for (size_t i = 0; i < count; i++)
        if (words[i].offset == offset)
            return &words[i];
    return &none;
}

/* The values of a key by its kind, with the least and the largest. */
static const char *const bounds[] = {
    [ATTN_CONFIG_INTEGER] = "integer, %.0f to %.0f",
    [ATTN_CONFIG_NUMBER] = "number, %g to %g",
    [ATTN_CONFIG_FACTORS] = "list of numbers, %g to %g, one a pair",
    [ATTN_CONFIG_LAYER_HEADS] = "list of integers, %.0f to %.0f, one a layer",
    [ATTN_CONFIG_WINDOWS] = "even integer, %.0f to %.0f, or a list of them, one a layer",
    [ATTN_CONFIG_PERIOD] = "integer, %.0f to %.0f, or letters such as `LLLG`",
    [ATTN_CONFIG_WIDTH] = "object: its `hidden_size`, %.0f to %.0f",
    [ATTN_CONFIG_ROPE] = "object, or one for each layer type",
    [ATTN_CONFIG_ROPE_TYPE] = "name",
    [ATTN_CONFIG_LAYER_BLOCKS] = "list of objects, one a layer, with the key `attention`",
    [ATTN_CONFIG_FULL_LAYERS] = "list of indices",
    [ATTN_CONFIG_ROPE_LAYERS] = "list of 1 (rotates) and 0",
    [ATTN_CONFIG_CROSS_LAYERS] = "list of indices",
    [ATTN_CONFIG_ROPE_THETAS] = "list of numbers, one a layer; 0: does not rotate",
    [ATTN_CONFIG_PARTIALS] = "list of numbers, %g to %g, one a layer",
    [ATTN_CONFIG_SCALED_TYPES] = "`[\"full_attention\"]`, or an empty list: all",
    [ATTN_CONFIG_MLP_TYPES] = "list of `dense`, `sparse`, one a layer",
    [ATTN_CONFIG_GATING] = "true or `per-head`; or `per-element`",
    [ATTN_CONFIG_PER_LAYER] =
        "object: by index, `head_dim` and `num_key_value_heads` of full layers",
    [ATTN_CONFIG_TERMS] = "`c2p`, `p2c` or both: a list, or with \\| between",
    [ATTN_CONFIG_QUANTIZATION] = "object: how weights are stored",
    [ATTN_CONFIG_OBJECT] = "",
    [ATTN_CONFIG_IGNORED] = "",
};

/* Adds which names a list of the types of layers may hold. */
static void add_layer_types(struct text *row, const struct attn_hf_key *key,
                            const struct attn_family *family)
{
    if (key->only != NULL && strchr(key->only, '0') != NULL) {
        add(row, "list of 1 (%s) and 0", key->only[0] == '0' ? "slides" : "attends");
        return;
    }
    add(row, "list of");
    if (key->only != NULL)
        add(row, " the names `%s`, or", key->only);
    for (size_t type = 0, n = 0; type < ATTN_NUM_LAYER_TYPES; type++)
        if (attn_layer_type_find(family, NULL, attn_layer_types[type]) == type)
            add(row, "%s `%s`", n++ > 0 ? "," : "", attn_layer_types[type]);
}

static void add_layer_letters(struct text *row)
{
    add(row, "letters:");
    for (size_t type = 0, n = 0; type < ATTN_NUM_LAYER_TYPES; type++)
        if (attn_layer_letters[type] != ' ')
            add(row, "%s `%c` %s", n++ > 0 ? "," : "", attn_layer_letters[type],
                attn_layer_types[type]);
}

/* Adds which values the key may have. */
static void add_bounds(struct text *row, const struct attn_hf_key *key,
                       const struct attn_family *family)
{
    switch (key->kind) {
    case ATTN_CONFIG_FLAG:
        add(row, key->max > 1 ? "boolean, or an integer to %.0f: 0 is false" : "boolean", key->max);
        break;
    case ATTN_CONFIG_LAYER_TYPES:
        add_layer_types(row, key, family);
        break;
    case ATTN_CONFIG_LAYER_RUNS:
        add(row, "list of lists: of the names `%s`, and how often", key->only);
        break;
    case ATTN_CONFIG_LAYER_LETTERS:
        add_layer_letters(row);
        break;
    case ATTN_CONFIG_NAME:
        add(row, "one of the names `%s`", key->only);
        break;
    case ATTN_CONFIG_FIXED:
        add(row, "only `%s`%s", key->only, key->min > 0 ? ", or a list of it" : "");
        break;
    default:
        add(row, bounds[key->kind], key->min, key->max);
    }
}

/* Adds the default of a key: the field of `defaults` that the key fills. */
static void add_default(struct text *row, const struct attn_hf_key *key, const void *defaults,
                        const char *zero)
{
    const void *field = (const char *)defaults + key->offset;
    bool value = false;
    bool counts = key->kind == ATTN_CONFIG_INTEGER || key->kind == ATTN_CONFIG_PERIOD;
    if (key->kind == ATTN_CONFIG_GATING)
        add(row, "true");
    else if (counts && *(const size_t *)field != 0)
        add(row, "%zu", *(const size_t *)field);
    else if (key->kind == ATTN_CONFIG_NUMBER && *(const double *)field != 0)
        add(row, "%g", *(const double *)field);
    else if (key->kind == ATTN_CONFIG_FLAG) {
        memcpy(&value, field, sizeof value);
        add(row, "%s", value ? "true" : "false");
    } else
        add(row, "%s", zero);
}

bool add_ignored(struct text *text, const struct attn_hf_key *keys, const char *note)
{
    const char *comma = "";
    for (; keys->name != NULL; keys++)
        for (size_t at = 0; keys->kind == ATTN_CONFIG_IGNORED && keys->name[at] != '\0';) {
            const size_t length = strcspn(keys->name + at, " ");
            add(text, "%s `%.*s`%s", comma, (int)length, keys->name + at, note);
            at += length + (keys->name[at + length] == ' ');
            comma = ",";
        }
    return comma[0] != '\0';
}

void print_keys(const struct attn_family *family)
{
    struct text table = {.length = 0};
    add(&table, "| key | meaning | value | if absent |\n");
    for (const struct attn_hf_key *key = family->keys; key->name != NULL; key++) {
        if (key->kind == ATTN_CONFIG_IGNORED || key->kind == ATTN_CONFIG_OBJECT)
            continue;
        const struct field_words *words =
            words_for(config_words, ATTN_COUNT(config_words), key->offset);
        bool plain = key->kind == ATTN_CONFIG_FIXED || key->kind == ATTN_CONFIG_ROPE ||
                     key->kind == ATTN_CONFIG_PER_LAYER || key->kind == ATTN_CONFIG_QUANTIZATION;
        add(&table, "| `%s` | %s | ", key->name,
            key->kind == ATTN_CONFIG_ROPE ? "RoPE scaling"
            : plain                       ? ""
                                          : words->meaning);
        add_bounds(&table, key, family);
        add(&table, " | ");
        if (!plain)
            add_default(&table, key, &family->defaults, words->zero);
        add(&table, " |\n");
    }
    printf("\n");
    print_table(&table);

    struct text ignored = {.length = 0};
    add(&ignored, "Keys that do not touch attention:");
    if (!add_ignored(&ignored, family->keys, ""))
        return;
    add(&ignored, ".");
    printf("\n");
    print_paragraph(&ignored);
}

void print_rope_keys(void)
{
    static const struct attn_hf_rope defaults = {.truncate = true};
    struct text p = {.length = 0};
    printf("\n## RoPE scaling\n\n");
    add(&p, "`rope_scaling` and `rope_parameters` are objects of the keys below. The type is one "
            "of");
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        add(&p, "%s `%s`", known == attn_rope_names ? "" : ",", known->name);
    add(&p,
        " (`su` is an old name of `%s`). Instead of these keys the object may hold one such "
        "object under `full_attention` and one under `sliding_attention`, for the two types of "
        "layers. A session of `%s` stays on its side of the trained length "
        "([why](API.md#longrope)); with `%s` cached keys keep the rotation of the length at which "
        "they were written. `attn_factor` multiplies, as YaRN's authors and vLLM have it; Hugging "
        "Face's class does not read it. The file of DeepSeek-R1-0528-Qwen3-8B has 0.8782, the "
        "inverse of what a factor of 4 gives: the product of 1 is what its authors mean.",
        attn_rope_type_name(ATTN_ROPE_LONGROPE), attn_rope_type_name(ATTN_ROPE_LONGROPE),
        attn_rope_type_name(ATTN_ROPE_DYNAMIC));
    print_paragraph(&p);
    printf("\n");
    add(&p, "| key | meaning | value | if absent |\n");
    for (const struct attn_hf_key *key = attn_rope_keys; key->name != NULL; key++) {
        const struct field_words *words =
            words_for(rope_words, ATTN_COUNT(rope_words), key->offset);
        add(&p, "| `%s` | %s | ", key->name, words->meaning);
        add_bounds(&p, key, NULL);
        add(&p, " | ");
        add_default(&p, key, &defaults, words->zero);
        add(&p, " |\n");
    }
    print_table(&p);
}

void print_common_keys(void)
{
    struct text p = {.length = 0};
    printf("\n## Keys of every family\n\nFor each of these keys only one value is computed; any "
           "other is refused. A family that has a key of that name in its\nown table understands "
           "it as described there.\n\n");
    add(&p, "| key | value |\n");
    for (const struct attn_hf_key *key = attn_common_keys; key->kind == ATTN_CONFIG_FIXED; key++)
        add(&p, "| `%s` | `%s` |\n", key->name, key->only);
    print_table(&p);
    add(&p,
        "Keys that begin with `_`, and the keys that Hugging Face has in every configuration (of "
        "tokens, norms, MLPs, experts, dropout, training and generation), do not touch attention "
        "and may stand.");
    printf("\n");
    print_paragraph(&p);
}
