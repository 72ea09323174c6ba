/* families.c: the table of docs/MODELS.md: a row for each way of attention, with the model_types
 * that have it. */
#include <stdio.h>
#include <string.h>

#include "family_text/family_text.h"

/* Adds one more of the things that a cell lists, unless it is not there. */
static void list(struct text *cell, bool there, const char *what)
{
    if (there)
        add(cell, "%s%s", cell->length > 0 ? ", " : "", what);
}

static bool has_key(const struct attn_family *family, size_t offset)
{
    return key_name(family, offset) != NULL;
}

static void add_stack(struct text *cell, const struct attn_family *family)
{
    list(cell, family->stack != NULL, family->stack);
}

static void add_attention(struct text *cell, const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const bool latent = defaults->kv_lora_rank > 0, chosen = has_key(family, HF_FIELD(is_causal));
    const bool grouped = has_key(family, HF_FIELD(num_kv_heads));
    list(cell, true,
         chosen                ? "causal or not"
         : defaults->is_cross  ? "cross"
         : defaults->is_causal ? "causal"
                               : "not causal");
    list(cell, true, latent ? "latent" : grouped ? "GQA" : "MHA");
}

static void add_positions(struct text *cell, const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const bool rotates = defaults->rope.type != ATTN_ROPE_NONE;
    list(cell, rotates,
         defaults->rope_by_grid                     ? "RoPE by a grid"
         : has_key(family, HF_FIELD(position_type)) ? "RoPE by key"
                                                    : "RoPE");
    list(cell, !rotates && has_key(family, HF_FIELD(rope.theta)), "RoPE if a base is given");
    list(cell, defaults->alibi, "ALiBi");
    list(cell, !defaults->alibi && has_key(family, HF_FIELD(alibi)), "ALiBi by key");
    list(cell, defaults->buckets != 0, defaults->gated_bias ? "gated T5 bias" : "T5 bias");
    list(cell, defaults->relative_key == 1, "relative keys");
    list(cell, has_key(family, HF_FIELD(grid_bias)), "bias of a grid by key");
    list(cell, has_key(family, HF_FIELD(position_terms)), "disentangled bias");
    list(cell, cell->length == 0, "none");
}

static void add_norms(struct text *cell, const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    const bool by_key = has_key(family, HF_FIELD(qk_norm));
    list(cell, defaults->kv_lora_rank > 0, "of latents");
    list(cell, defaults->qk_norm || by_key,
         defaults->norm_type == ATTN_NORM_LAYER ? "LayerNorm of q, k" : "RMSNorm of q, k");
    add(cell, "%s%s", by_key ? " by key" : "", defaults->v_norm ? ", v" : "");
}

static void add_besides(struct text *cell, const struct attn_family *family)
{
    const struct attn_hf_config *defaults = &family->defaults;
    list(cell, has_key(family, HF_FIELD(sliding_window)), "sliding window");
    list(cell, has_key(family, HF_FIELD(attention_chunk_size)), "chunks");
    if (defaults->other_type >= ATTN_LAYER_LINEAR)
        add(cell, "%s%s layers, not computed", cell->length > 0 ? ", " : "",
            defaults->other_type == ATTN_LAYER_LINEAR ? "linear"
                                                      : attn_layer_types[defaults->other_type]);
    list(cell, has_key(family, HF_FIELD(num_shared_layers)), "layers with another's keys");
    list(cell, defaults->num_groups != 0, "layers that share weights");
    list(cell, has_key(family, HF_FIELD(softcap)), "soft-capping");
    list(cell, defaults->sinks, "sinks");
    list(cell, defaults->output_gate, "output gate");
    list(cell, defaults->output_norm, "norm of heads");
    list(cell, has_key(family, HF_FIELD(clip_qkv)), "clamped q, k, v");
    list(cell, has_key(family, HF_FIELD(key_multiplier)), "key multiplier");
    list(cell, has_key(family, HF_FIELD(num_layer_heads)), "heads by layer");
    list(cell, defaults->attentions != 0, "two attentions a layer");
    list(cell, family->note != NULL, family->note);
}

static const struct {
    const char *title;
    void (*add)(struct text *cell, const struct attn_family *family);
} columns[] = {
    {"stacks", add_stack}, {"attention", add_attention}, {"positions", add_positions},
    {"norms", add_norms},  {"biases", add_biases},       {"besides", add_besides},
};
#define NUM_COLUMNS (sizeof columns / sizeof columns[0])

/* The number of families from `first` on that are the stacks of one model_type. */
static size_t count_stacks(size_t first)
{
    size_t count = 1;
    while (attn_family_at(first + count) != NULL &&
           strcmp(attn_family_at(first + count)->model_type, attn_family_at(first)->model_type) ==
               0)
        count++;
    return count;
}

/* Adds what a column says of a model_type's stacks: once where it says the same of all. */
static void add_cell(struct text *row, size_t column, size_t first)
{
    const size_t count = count_stacks(first);
    struct text all = {.length = 0}, once = {.length = 0};
    bool same = true;
    columns[column].add(&once, attn_family_at(first));
    for (size_t i = 0; i < count; i++) {
        struct text one = {.length = 0};
        columns[column].add(&one, attn_family_at(first + i));
        same = same && strcmp(one.data, once.data) == 0;
        add(&all, "%s%s", i > 0 ? "; " : "", one.data);
    }
    add(row, " %s |", same ? once.data : all.data);
}

static void add_row(struct text *row, size_t first)
{
    row->length = 0;
    add(row, "|");
    for (size_t column = 0; column < NUM_COLUMNS; column++)
        add_cell(row, column, first);
}

/* True if the model_type of the family at `first` has its row's cells from one before it. */
static bool is_listed(size_t first, const struct text *row)
{
    struct text other;
    for (size_t i = 0; i < first; i += count_stacks(i)) {
        add_row(&other, i);
        if (strcmp(other.data, row->data) == 0)
            return true;
    }
    return false;
}

void print_families(void)
{
    struct text table = {.length = 0}, row, other;
    add(&table, "|");
    for (size_t column = 0; column < NUM_COLUMNS; column++)
        add(&table, " %s |", columns[column].title);
    add(&table, " `model_type` |\n");
    for (size_t first = 0; attn_family_at(first) != NULL; first += count_stacks(first)) {
        add_row(&row, first);
        if (is_listed(first, &row))
            continue;
        add(&table, "%s `%s`", row.data, attn_family_at(first)->model_type);
        for (size_t i = first + count_stacks(first); attn_family_at(i) != NULL;
             i += count_stacks(i)) {
            add_row(&other, i);
            if (strcmp(other.data, row.data) == 0)
                add(&table, ", `%s`", attn_family_at(i)->model_type);
        }
        add(&table, " |\n");
    }
    printf("\n");
    print_table(&table);
}
