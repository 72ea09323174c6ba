/* gguf_config.c: tables of architectures, of names of tensors and of keys: GGUF's, and
 * Hugging Face's; and the config.json that is written by them. */
#include "files/gguf_config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/status.h"
#include "basics/text.h"

#define MAX_SIZE 2147483647

/* ---- Names of tensors ------------------------------------------------------------------------ */

static const struct attn_gguf_name decoder_names[] = {
    {"attn_q", "q_proj"},
    {"attn_k", "k_proj"},
    {"attn_v", "v_proj"},
    {"attn_output", "o_proj"},
    {"attn_qkv", "qkv_proj"},
    {"attn_q_norm", "q_norm"},
    {"attn_k_norm", "k_norm"},
    {"attn_q_a", "q_a_proj"},
    {"attn_q_b", "q_b_proj"},
    {"attn_q_a_norm", "q_a_layernorm"},
    {"attn_kv_b", "kv_b_proj"},
    {"attn_k_b", "kv_b_proj"}, /* with attn_v_b */
    {"attn_kv_a_mqa", "kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "kv_a_layernorm"},
    {"attn_sinks.weight", "sinks"},
    {NULL, NULL},
};

static const struct attn_gguf_name gpt2_names[] = {
    {"attn_qkv", "c_attn"}, {"attn_output", "c_proj"}, {NULL, NULL}};

static const struct attn_gguf_name bert_names[] = {
    {"attn_q", "self.query"},        {"attn_k", "self.key"}, {"attn_v", "self.value"},
    {"attn_output", "output.dense"}, {NULL, NULL},
};

/* ---- Architectures --------------------------------------------------------------------------- */

#define LAYERS .module = "model.layers.", .member = ".self_attn.", .names = decoder_names
#define DECODER(more_members) LAYERS, .members = "num_key_value_heads rope_theta " more_members

static const struct attn_gguf_architecture architectures[] = {
    {"llama", "llama", DECODER("head_dim attention_bias"), .permuted = true,
     .more_types = "mistral mistral3 mixtral"},
    {"mistral3", "ministral3", DECODER("head_dim llama_4_scaling_beta"), .permuted = true,
     .more_types = "mistral3"},
    {"granite", "granite", DECODER("attention_bias attention_multiplier"), .permuted = true,
     .rope_if_finetuned = true},
    {"qwen2", "qwen2", DECODER("")},
    {"qwen2moe", "qwen2_moe", DECODER("")},
    {"qwen3", "qwen3", DECODER("head_dim attention_bias rms_norm_eps")},
    {"qwen3moe", "qwen3_moe", DECODER("head_dim attention_bias rms_norm_eps")},
    {"gemma", "gemma", DECODER("head_dim")},
    {"gemma2", "gemma2", DECODER("head_dim attn_logit_softcapping query_pre_attn_scalar"),
     .other_type = "gemma2", .period = 2, .window = 4096},
    {"gemma3", "gemma3_text",
     DECODER("head_dim query_pre_attn_scalar rope_local_base_freq rms_norm_eps"),
     .other_type = "gemma3_text", .period = 6, .plus_one = true,
     .full = "\"sliding_window_pattern\": 1", .more_types = "gemma3"},
    {"phi3", "phi3", DECODER("original_max_position_embeddings partial_rotary_factor")},
    {"starcoder2", "starcoder2", DECODER("")},
    {"command-r", "cohere", DECODER("head_dim layer_norm_eps use_qk_norm")},
    {"olmo2", "olmo2", DECODER("rms_norm_eps"), .other_type = "olmo3", .period = 4},
    {"glm4", "glm4", DECODER("head_dim attention_bias partial_rotary_factor")},
    {"gpt-oss", "gpt_oss", DECODER("head_dim"), .other_type = "gpt_oss", .period = 2,
     .window = ATTN_GGUF_WINDOW_NEEDED, .yarn = "\"truncate\": false"},
    {"deepseek2", "deepseek_v2", LAYERS, .members = "kv_lora_rank rope_theta",
     .other_type = "deepseek_v3", .more_types = "kimi_k2 glm4_moe_lite"},
    {"gpt2", "gpt2", .module = "h.", .member = ".attn.", .names = gpt2_names, .members = ""},
    {"bert", "bert", .module = "encoder.layer.", .member = ".attention.", .names = bert_names,
     .members = "", .encoder = true, .more_types = "roberta xlm-roberta camembert"},
};

/* ---- Keys ------------------------------------------------------------------------------------ */

#define SIGMOID 2 /* of expert_gating_func */

enum kind { SIZE, NUMBER };

/* Keys, less the architecture's name before them, and what they are in a config.json.  A file has
 * those that are needed, as llama.cpp asks for them; of every architecture, or of those that take
 * the member.  Of the others an absent key means in both what the class has as its default. */
static const struct key {
    const char *file, *hf;
    enum kind kind;
    enum { OF_ALL, NEEDED, OPTIONAL } presence;
} keys[] = {
    {"embedding_length", "hidden_size", SIZE, OF_ALL},
    {"attention.head_count", "num_attention_heads", SIZE, OF_ALL},
    {"block_count", "num_hidden_layers", SIZE, OF_ALL},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", NUMBER, NEEDED},
    {"attention.layer_norm_epsilon", "layer_norm_eps", NUMBER, NEEDED},
    {"attention.kv_lora_rank", "kv_lora_rank", SIZE, NEEDED},
    {"attn_logit_softcapping", "attn_logit_softcapping", NUMBER, OPTIONAL},
    {"rope.freq_base_swa", "rope_local_base_freq", NUMBER, OPTIONAL},
};

#define ANY NAN

/* Keys of attention that change nothing where the configuration does not take them: whatever their
 * value, or if it is this one. */
static const struct {
    const char *key, *architecture; /* NULL: of all */
    double value;
} neutral[] = {
    /* Norms before and after attention. */
    {"attention.layer_norm_epsilon", NULL, ANY},
    {"attention.layer_norm_rms_epsilon", NULL, ANY},
    /* Of the logits of words and of experts. */
    {"final_logit_softcapping", NULL, ANY},
    {"router_logit_softcapping", NULL, ANY},
    /* llama.cpp lets no layer of phi3 slide. */
    {"attention.sliding_window", "phi3", ANY},
    /* Says how the weights were made. */
    {"rope.scaling.finetuned", NULL, ANY},
    /* 0 is none of it. */
    {"attention.sliding_window", NULL, 0},
    {"attention.scale", NULL, 0},
    {"attention.max_alibi_bias", NULL, 0},
    {"attention.clamp_kqv", NULL, 0},
    {"attention.shared_kv_layers", NULL, 0},
    {"attention.temperature_scale", NULL, 0},
    {"attn_logit_softcapping", NULL, 0},
};

/* ---- Reading keys, writing members ---- */

/* The configuration that is being written.  After a fault its status stays, and what is written
 * counts no longer. */
struct writer {
    const struct attn_gguf *file;    /* the first split, which has the keys */
    struct attn_gguf *const *splits; /* [num_splits] */
    size_t num_splits;
    const struct attn_gguf_architecture *architecture;
    bool *read; /* [attn_gguf_num_values] keys that were looked up */
    char *text; /* [ATTN_GGUF_MAX_CONFIG] */
    size_t length;
    struct attn_error *error;
    enum attn_status status;
};

/* Notes a fault at `param`. */
#define FAIL(w, code, param, ...) \
    ((w)->status =                \
         (w)->status != ATTN_OK ? (w)->status : attn_fail((w)->error, code, param, __VA_ARGS__))

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int count =
        vsnprintf(w->text + w->length, ATTN_GGUF_MAX_CONFIG - w->length, format, arguments);
    va_end(arguments);
    if (count < 0 || (size_t)count >= ATTN_GGUF_MAX_CONFIG - w->length)
        FAIL(w, ATTN_OUT_OF_RANGE, "", "the configuration is longer than %d bytes",
             ATTN_GGUF_MAX_CONFIG);
    else
        w->length += (size_t)count;
}

/* Writes a member, the number with the fewest digits that round to the float32 of the file. */
static void put_number(struct writer *w, const char *member, double number)
{
    char digits[32];
    int count = 6;
    do
        snprintf(digits, sizeof digits, "%.*g", count, number);
    while (strtof(digits, NULL) != (float)number && ++count <= 9);
    put(w, ", \"%s\": %s", member, digits);
}

/* Whether the configuration of the architecture has the member. */
static bool has_member(const struct writer *w, const char *member)
{
    return attn_text_word_number(w->architecture->members, member) != 0;
}

/* Of keys the architecture's name before them is left out.  The value, NULL where the file has
 * none. */
static const struct attn_gguf_value *find_key(struct writer *w, const char *key)
{
    char name[ATTN_SAFETENSORS_MAX_NAME];
    snprintf(name, sizeof name, "%s.%s", w->architecture->name, key);
    const struct attn_gguf_value *value = attn_gguf_find_value(w->file, name);
    if (value != NULL)
        w->read[value - w->file->values] = true;
    return value;
}

/* Refuses a file without that key. */
static void need_key(struct writer *w, const char *key)
{
    if (find_key(w, key) == NULL)
        FAIL(w, ATTN_MALFORMED, key, "the file has no key %s.%s", w->architecture->name, key);
}

/* The number of that key, `absent` where the file has none.  Of an array, which has a number for
 * each layer, all must be the same. */
static double read_number(struct writer *w, const char *key, double absent)
{
    const struct attn_gguf_value *value = find_key(w, key);
    if (value == NULL)
        return absent;
    if (value->kind != ATTN_GGUF_NUMBER || value->count == 0) {
        FAIL(w, ATTN_MALFORMED, value->key, "%.96s is %s, wanted is a number", value->key,
             value->kind == ATTN_GGUF_TEXT ? "a string" : "an array");
        return absent;
    }
    for (size_t i = 1; i < value->count; i++)
        if (value->numbers[i] != value->numbers[0])
            FAIL(w, ATTN_UNSUPPORTED, value->key, "%.96s differs between layers", value->key);
    if (!isfinite(value->numbers[0]))
        FAIL(w, ATTN_MALFORMED, value->key, "%.96s is not finite", value->key);
    return value->numbers[0];
}

/* The same of an integer, which must be at least 1. */
static size_t read_size(struct writer *w, const char *key, size_t absent)
{
    const struct attn_gguf_value *value = find_key(w, key);
    const double number = read_number(w, key, (double)absent);
    if (value == NULL || (number >= 1 && number <= MAX_SIZE && number == floor(number)))
        return (size_t)number;
    FAIL(w, ATTN_OUT_OF_RANGE, value->key, "%.96s is %.17g, wanted is an integer from 1 to %d",
         value->key, number, MAX_SIZE);
    return absent;
}

/* Refuses a file that has another integer there. */
static void want_size(struct writer *w, const char *key, size_t wanted, const char *why)
{
    const size_t size = read_size(w, key, wanted);
    if (size != wanted)
        FAIL(w, ATTN_UNSUPPORTED, key, "%s.%s is %zu, wanted is %zu, %s", w->architecture->name,
             key, size, wanted, why);
}

/* ---- RoPE ---- */

/* Writes the numbers of a vector of the file. */
static void put_factors(struct writer *w, const char *member, const struct attn_tensor_entry *entry)
{
    float factors[ATTN_MAX_HEAD_DIM];
    const size_t count = entry->ndim == 1 ? entry->shape[0] : 0;
    if (count == 0 || count > ATTN_MAX_HEAD_DIM)
        FAIL(w, ATTN_SHAPE_MISMATCH, entry->name, "%.96s is no vector of up to %d numbers",
             entry->name, ATTN_MAX_HEAD_DIM);
    if (w->status == ATTN_OK)
        w->status = attn_gguf_read_f32(factors, entry, 0, count, w->error);
    put(w, ", \"%s\": [", member);
    for (size_t i = 0; i < count && w->status == ATTN_OK; i++)
        put(w, "%s%.9g", i > 0 ? ", " : "", (double)factors[i]);
    put(w, "]");
}

/* YaRN's gain of a factor: 0.1 m ln factor + 1. */
static double yarn_gain(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* llama.cpp multiplies by attn_factor what config.json replaces by attention_factor.  The key of
 * mscale_all_dim has a tenth of it where attention is latent; mscale is the same then, else 1. */
static void put_yarn(struct writer *w, double factor, double attention)
{
    static const struct {
        const char *file, *hf;
    } betas[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                 {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    const double all = read_number(w, "rope.scaling.yarn_log_multiplier", 0);
    const double given = read_number(w, "rope.scaling.yarn_attn_factor", 0);
    const double extrapolation = read_number(w, "rope.scaling.yarn_ext_factor", 1);
    for (size_t i = 0; i < 2; i++)
        if (find_key(w, betas[i].file) != NULL)
            put_number(w, betas[i].hf, read_number(w, betas[i].file, 0));
    if (extrapolation != 1)
        FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.yarn_ext_factor",
             "%s.rope.scaling.yarn_ext_factor is %g, wanted is 1", w->architecture->name,
             extrapolation);
    if (has_member(w, "kv_lora_rank")) {
        if (attention != 1 || given != 0)
            FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.attn_factor",
                 "an attn_factor of YaRN is not read for %s", w->architecture->name);
        put(w, ", \"mscale\": %.6g, \"mscale_all_dim\": %.6g", 10 * all, 10 * all);
    } else if (attention != 1 || given != 0 || all != 0) {
        const double gain = yarn_gain(factor, 1) / yarn_gain(factor, all);
        put(w, ", \"attention_factor\": %.17g", attention * (given != 0 ? given : gain));
    }
    if (w->architecture->yarn != NULL)
        put(w, ", %s", w->architecture->yarn);
}

/* Lists of factors of frequencies: longrope's, or Llama 3's, which the conversion has computed, one
 * list for all lengths then. */
struct factors {
    const struct attn_tensor_entry *shorter, *longer, *all;
};

/* The type of the scaling in config.json, and its factor.  As in llama.cpp a factor alone is
 * linear; rope.scale_linear is what its key was once. */
static const char *scaling_type(double *factor, struct writer *w, const struct factors *lists)
{
    static const char types[] = "none linear yarn longrope";
    enum { UNKNOWN, NONE, LINEAR, YARN, LONGROPE };
    const struct attn_gguf_value *type = find_key(w, "rope.scaling.type");
    const char *name = type == NULL ? "linear" : type->kind == ATTN_GGUF_TEXT ? type->text : "";
    const bool any = lists->shorter != NULL || lists->longer != NULL || lists->all != NULL;
    const double old = read_number(w, "rope.scale_linear", 0);
    const size_t number = attn_text_word_number(types, name);
    *factor = read_number(w, "rope.scaling.factor", old);
    if (number == UNKNOWN)
        FAIL(w, ATTN_UNSUPPORTED, type->key, "%.96s is \"%.64s\", wanted is one of %s", type->key,
             name, types);
    if (number == NONE || *factor == 0)
        *factor = 1;
    if (lists->all != NULL ? lists->shorter != NULL || lists->longer != NULL
                           : (lists->shorter == NULL) != (lists->longer == NULL))
        FAIL(w, ATTN_UNSUPPORTED, "rope_factors_long.weight",
             "wanted are rope_freqs, or both of rope_factors_short and rope_factors_long");
    if (any && (number == YARN || *factor != 1))
        FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.type",
             "factors of frequencies beside scaling \"%s\" by %g are not read", name, *factor);
    return any || number == LONGROPE ? "longrope"
           : number == YARN          ? "yarn"
           : *factor != 1            ? "linear"
                                     : "default";
}

/* Writes the members of RoPE. */
static void put_rope(struct writer *w)
{
    const struct factors lists = {
        attn_gguf_find_in(w->splits, w->num_splits, "rope_factors_short.weight"),
        attn_gguf_find_in(w->splits, w->num_splits, "rope_factors_long.weight"),
        attn_gguf_find_in(w->splits, w->num_splits, "rope_freqs.weight")};
    double factor;
    const char *type = scaling_type(&factor, w, &lists);
    const double theta = read_number(w, "rope.freq_base", 10000);
    const double attention = read_number(w, "rope.scaling.attn_factor", 1);
    const double beta = has_member(w, "llama_4_scaling_beta")
                            ? read_number(w, "attention.temperature_scale", 0)
                            : 0;
    const size_t length = read_size(w, "context_length", 0);
    const size_t original = read_size(w, "rope.scaling.original_context_length", length);
    const bool longrope = strcmp(type, "longrope") == 0, yarn = strcmp(type, "yarn") == 0;
    if (w->status != ATTN_OK)
        return;
    put_number(w, "rope_theta", theta);
    if (!has_member(w, "rope_local_base_freq") &&
        read_number(w, "rope.freq_base_swa", theta) != theta)
        FAIL(w, ATTN_UNSUPPORTED, "rope.freq_base_swa",
             "%s.rope.freq_base_swa differs from rope.freq_base, which is not read for it",
             w->architecture->name);
    if (w->architecture->rope_if_finetuned && read_number(w, "rope.scaling.finetuned", 1) == 0)
        FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.finetuned",
             "%s.rope.scaling.finetuned is false: the model has no RoPE, and is not read from GGUF "
             "files",
             w->architecture->name);
    if (original != 0 && longrope && has_member(w, "original_max_position_embeddings"))
        put(w, ", \"original_max_position_embeddings\": %zu", original);
    put(w, ", \"rope_scaling\": {\"rope_type\": \"%s\"", type);
    if (original != 0)
        put(w, ", \"original_max_position_embeddings\": %zu", original);
    if (factor != 1 || yarn)
        put_number(w, "factor", factor);
    if (beta != 0)
        put_number(w, "llama_4_scaling_beta", beta);
    if (yarn)
        put_yarn(w, factor, attention);
    else if (longrope)
        put_number(w, "attention_factor", attention);
    else if (attention != 1)
        FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.attn_factor",
             "%s.rope.scaling.attn_factor is %g, which is read for yarn and longrope only",
             w->architecture->name, attention);
    if (longrope && (lists.all != NULL || lists.longer != NULL)) {
        put_factors(w, "short_factor", lists.all != NULL ? lists.all : lists.shorter);
        put_factors(w, "long_factor", lists.all != NULL ? lists.all : lists.longer);
    }
    put(w, "}");
}

/* ---- Members of a class ---- */

/* Writes a member that says whether the file has a tensor, where the architecture has it. */
static void put_presence(struct writer *w, const char *member, const char *tensor)
{
    const bool there = attn_gguf_find_in(w->splits, w->num_splits, tensor) != NULL;
    if (has_member(w, member))
        put(w, ", \"%s\": %s", member, there ? "true" : "false");
}

static void put_keys(struct writer *w)
{
    for (size_t i = 0; i < ATTN_COUNT(keys); i++) {
        const struct key *key = &keys[i];
        if (key->presence != OF_ALL && !has_member(w, key->hf))
            continue;
        if (key->presence != OPTIONAL)
            need_key(w, key->file);
        if (find_key(w, key->file) != NULL && key->kind == SIZE)
            put(w, ", \"%s\": %zu", key->hf, read_size(w, key->file, 0));
        else if (find_key(w, key->file) != NULL)
            put_number(w, key->hf, read_number(w, key->file, 0));
    }
    const size_t heads = read_size(w, "attention.head_count", 0);
    if (has_member(w, "num_key_value_heads"))
        put(w, ", \"num_key_value_heads\": %zu", read_size(w, "attention.head_count_kv", heads));
    else if (!has_member(w, "kv_lora_rank"))
        want_size(w, "attention.head_count_kv", heads, "attention.head_count");
    put_presence(w, "use_qk_norm", "blk.0.attn_q_norm.weight");
    put_presence(w, "attention_bias", "blk.0.attn_q.bias");
}

/* Writes the part of a head that rotates; of other architectures all of it does. */
static void put_rotated(struct writer *w, size_t head)
{
    const size_t rotated = read_size(w, "rope.dimension_count", head);
    double part = (double)rotated / (double)head;
    if (!has_member(w, "partial_rotary_factor")) {
        want_size(w, "rope.dimension_count", head, "the width of a head");
        return;
    }
    if ((size_t)((double)head * part) < rotated)
        part = nextafter(part, INFINITY);
    put(w, ", \"partial_rotary_factor\": %.17g", part);
}

/* Writes what follows from the width of a head, which it returns. */
static size_t put_widths(struct writer *w)
{
    const size_t width = read_size(w, "embedding_length", 0),
                 layers = read_size(w, "block_count", 0);
    const size_t heads = read_size(w, "attention.head_count", 0),
                 own = heads > 0 ? width / heads : 0;
    const size_t head = read_size(w, "attention.key_length", own);
    if (head == 0)
        FAIL(w, ATTN_OUT_OF_RANGE, "attention.head_count",
             "%zu heads are more than embedding_length %zu", heads, width);
    if (w->status != ATTN_OK)
        return 0;
    want_size(w, "attention.value_length", head, "the width of keys");
    if (head != own || has_member(w, "head_dim"))
        put(w, ", \"head_dim\": %zu", head);
    /* Gemma's models of 27 billion weights divide by another width. */
    const bool large = strcmp(w->architecture->name, "gemma2") == 0 ? layers == 46 : layers == 62;
    if (has_member(w, "query_pre_attn_scalar"))
        put(w, ", \"query_pre_attn_scalar\": %zu", large ? own : head);
    if (has_member(w, "attention_multiplier")) {
        const double scale = read_number(w, "attention.scale", 0);
        put_number(w, "attention_multiplier", scale != 0 ? scale : 1 / sqrt((double)head));
    }
    if (has_member(w, "rope_theta"))
        put_rotated(w, head);
    return head;
}

/* The same of latent attention.  Newer files tell of the widths of latents, as which llama.cpp
 * caches them, and of those of heads beside them. */
static void put_latents(struct attn_gguf_config *out, struct writer *w)
{
    const bool split = find_key(w, "attention.key_length_mla") != NULL;
    const char *const of_key = split ? "attention.key_length_mla" : "attention.key_length";
    const char *const of_value = split ? "attention.value_length_mla" : "attention.value_length";
    need_key(w, "rope.dimension_count");
    need_key(w, of_key);
    need_key(w, of_value);
    const size_t heads = read_size(w, "attention.head_count", 0);
    const size_t latent = read_size(w, "attention.kv_lora_rank", 0);
    const size_t query = read_size(w, "attention.q_lora_rank", 0);
    const size_t rotated = read_size(w, "rope.dimension_count", 0);
    const size_t key = read_size(w, of_key, 0);
    const size_t value = read_size(w, of_value, 0);
    if (w->status == ATTN_OK && key <= rotated)
        FAIL(w, ATTN_OUT_OF_RANGE, "rope.dimension_count",
             "%zu components of a key of %zu rotate, wanted are fewer", rotated, key);
    if (split) {
        want_size(w, "attention.key_length", latent + rotated,
                  "kv_lora_rank + rope.dimension_count");
        want_size(w, "attention.value_length", latent, "kv_lora_rank");
    }
    want_size(w, "attention.head_count_kv", split ? 1 : heads,
              split ? "the latent that all heads share" : "attention.head_count");
    put(w, ", \"num_key_value_heads\": %zu, \"qk_nope_head_dim\": %zu", heads, key - rotated);
    put(w, ", \"qk_rope_head_dim\": %zu, \"v_head_dim\": %zu", rotated, value);
    if (query != 0)
        put(w, ", \"q_lora_rank\": %zu", query);
    else
        put(w, ", \"q_lora_rank\": null");
    out->head_dim = key;
    out->latent_heads = heads;
    out->latent_key = key - rotated;
    out->latent_value = value;
}

/* Whether layers of the model slide. */
static bool slides(struct writer *w)
{
    const struct attn_gguf_architecture *architecture = w->architecture;
    if (architecture->period == 0)
        return false;
    if (architecture->window == ATTN_GGUF_WINDOW_NEEDED)
        need_key(w, "attention.sliding_window");
    return architecture->window != 0 || read_number(w, "attention.sliding_window", 0) != 0;
}

/* Writes which layers slide: by a list, or all but every n-th. */
static void put_window(struct writer *w)
{
    static const char pattern[] = "attention.sliding_window_pattern";
    const struct attn_gguf_architecture *architecture = w->architecture;
    const size_t layers = read_size(w, "block_count", 0);
    const size_t window = read_size(w, "attention.sliding_window", architecture->window);
    const struct attn_gguf_value *each = find_key(w, pattern);
    const bool listed = each != NULL && each->kind == ATTN_GGUF_NUMBER && each->is_array;
    const size_t period = listed ? 0 : read_size(w, pattern, architecture->period);
    if (listed && each->count != layers)
        FAIL(w, ATTN_MALFORMED, each->key, "%.96s has %zu entries, there are %zu layers", each->key,
             each->count, layers);
    put(w, ", \"sliding_window\": %zu, \"layer_types\": [", window);
    for (size_t i = 0; i < layers && w->status == ATTN_OK; i++) {
        const bool slid = listed ? each->numbers[i] != 0 : i % period + 1 < period;
        put(w, "%s\"%s_attention\"", i > 0 ? ", " : "", slid ? "sliding" : "full");
    }
    put(w, "]");
}

/* ---- The whole ---- */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_neutral(const struct writer *w, const char *key, const struct attn_gguf_value *value)
{
    for (size_t i = 0; i < ATTN_COUNT(neutral); i++)
        if (strcmp(neutral[i].key, key) == 0 &&
            (neutral[i].architecture == NULL ||
             strcmp(neutral[i].architecture, w->architecture->name) == 0) &&
            (isnan(neutral[i].value) || (value->kind == ATTN_GGUF_NUMBER && value->count == 1 &&
                                         value->numbers[0] == neutral[i].value)))
            return true;
    return false;
}

/* Refuses a key of attention that was not read and is not known to change nothing. */
static void check_keys(struct writer *w)
{
    const size_t length = strlen(w->architecture->name);
    for (size_t i = 0; i < w->file->num_values; i++) {
        const struct attn_gguf_value *value = &w->file->values[i];
        if (w->read[i] || strncmp(value->key, w->architecture->name, length) != 0 ||
            value->key[length] != '.')
            continue;
        const char *key = value->key + length + 1;
        if ((begins_with(key, "attention.") || begins_with(key, "rope.") ||
             strstr(key, "softcap") != NULL) &&
            !is_neutral(w, key, value))
            FAIL(w, ATTN_UNSUPPORTED, value->key,
                 "%.96s is not read from GGUF files: take the checkpoint that the file was made "
                 "from",
                 value->key);
    }
}

/* Writes the whole configuration; *out gets the widths of heads. */
static void put_config(struct attn_gguf_config *out, struct writer *w)
{
    const struct attn_gguf_architecture *architecture = w->architecture;
    const bool latent = has_member(w, "kv_lora_rank"), causal = !architecture->encoder;
    const bool sliding = slides(w);
    const bool other = sliding || (latent && read_number(w, "expert_gating_func", 0) == SIGMOID);
    put(w, "{\"model_type\": \"%s\"", other ? architecture->other_type : architecture->model_type);
    put_keys(w);
    if (latent)
        put_latents(out, w);
    else
        out->head_dim = put_widths(w);
    if (find_key(w, "context_length") != NULL)
        put(w, ", \"max_position_embeddings\": %zu", read_size(w, "context_length", 0));
    if (sliding)
        put_window(w);
    else if (architecture->full != NULL)
        put(w, ", %s", architecture->full);
    if (has_member(w, "rope_theta"))
        put_rope(w);
    if ((read_number(w, "attention.causal", causal) != 0) != causal)
        FAIL(w, ATTN_UNSUPPORTED, "attention.causal",
             "%s.attention.causal is %s, which is not read from GGUF files", architecture->name,
             causal ? "false" : "true");
    check_keys(w);
    put(w, "}");
}

enum attn_status attn_gguf_config(struct attn_gguf_config *out, struct attn_gguf *const *splits,
                                  size_t num_splits, struct attn_error *error)
{
    const struct attn_gguf *file = splits[0];
    const struct attn_gguf_value *name = attn_gguf_find_value(file, "general.architecture");
    struct writer w = {.file = file, .splits = splits, .num_splits = num_splits, .error = error};
    if (name == NULL || name->kind != ATTN_GGUF_TEXT)
        return attn_fail(error, ATTN_MALFORMED, "general.architecture",
                         "the file has no key general.architecture");
    for (size_t i = 0; i < ATTN_COUNT(architectures); i++)
        if (strcmp(name->text, architectures[i].name) == 0)
            w.architecture = &architectures[i];
    if (w.architecture == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, name->key,
                         "%.96s is \"%.64s\", which is not read from GGUF files", name->key,
                         name->text);
    w.text = attn_alloc(ATTN_GGUF_MAX_CONFIG, 1);
    w.read = attn_calloc(file->num_values, sizeof *w.read);
    if (w.text == NULL || w.read == NULL)
        w.status = attn_fail_memory(error, ATTN_GGUF_MAX_CONFIG);
    *out = (struct attn_gguf_config){.architecture = w.architecture};
    if (w.status == ATTN_OK)
        put_config(out, &w);
    attn_free(w.read);
    if (w.status != ATTN_OK)
        attn_free(w.text);
    else
        out->text = w.text, out->length = w.length;
    return w.status;
}
