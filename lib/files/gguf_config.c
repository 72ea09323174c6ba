/* gguf_config.c: tables of architectures, of names of tensors and of keys: GGUF's, and the
 * published ones. */
#include "files/gguf_config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"

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
    {"attn_kv_a_mqa", "kv_a_proj_with_mqa"},
    {"attn_k_b", "k_b_proj"},
    {"attn_kv_a_norm", "kv_a_layernorm"},
    {"attn_v_b", "v_b_proj"},
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

#define DECODER(takes_too)                                                      \
    .module = "model.layers.", .member = ".self_attn.", .names = decoder_names, \
    .takes = "num_key_value_heads rope_theta rope_scaling rms_norm_eps " takes_too

static const struct attn_gguf_architecture architectures[] = {
    {"llama", "llama", DECODER("head_dim attention_bias"), .permuted = true},
    {"mistral3", "ministral3", DECODER("head_dim"), .permuted = true},
    {"granite", "granite", DECODER("attention_bias attention_multiplier"), .permuted = true},
    {"qwen2", "qwen2", DECODER("")},
    {"qwen2moe", "qwen2_moe", DECODER("")},
    {"qwen3", "qwen3", DECODER("head_dim attention_bias")},
    {"qwen3moe", "qwen3_moe", DECODER("head_dim attention_bias")},
    {"gemma", "gemma", DECODER("head_dim")},
    {"gemma2", "gemma2",
     DECODER("head_dim sliding_window attn_logit_softcapping query_pre_attn_scalar")},
    {"gemma3", "gemma3_text",
     DECODER("head_dim sliding_window query_pre_attn_scalar rope_local_base_freq"),
     .plus_one = true, .more = "\"sliding_window_pattern\": 6"},
    {"phi3", "phi3", DECODER("original_max_position_embeddings")},
    {"starcoder2", "starcoder2", DECODER("")},
    {"command-r", "cohere", DECODER("layer_norm_eps")},
    {"olmo2", "olmo2", DECODER("")},
    {"glm4", "glm4", DECODER("head_dim attention_bias partial_rotary_factor")},
    {"gpt-oss", "gpt_oss", DECODER("head_dim sliding_window"), .scaling = "\"truncate\": false"},
    {"gpt2", "gpt2", .module = "h.", .member = ".attn.", .names = gpt2_names, .takes = ""},
    {"bert", "bert", .module = "encoder.layer.", .member = ".attention.", .names = bert_names,
     .takes = ""},
};
#define NUM_ARCHITECTURES (sizeof architectures / sizeof architectures[0])

/* ---- The configuration ----------------------------------------------------------------------- */

enum kind { SIZE, NUMBER };

/* Keys, less the architecture's name before them, and what they are in a config.json. */
static const struct key {
    const char *file, *published;
    enum kind kind;
    bool is_size_of_all; /* every file has it, and every configuration */
} keys[] = {
    {"embedding_length", "hidden_size", SIZE, true},
    {"attention.head_count", "num_attention_heads", SIZE, true},
    {"block_count", "num_hidden_layers", SIZE, true},
    {"attention.head_count_kv", "num_key_value_heads", SIZE, false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", NUMBER, false},
    {"attention.layer_norm_epsilon", "layer_norm_eps", NUMBER, false},
    {"attention.sliding_window", "sliding_window", SIZE, false},
    {"attention.scale", "attention_multiplier", NUMBER, false},
    {"attn_logit_softcapping", "attn_logit_softcapping", NUMBER, false},
    {"rope.freq_base", "rope_theta", NUMBER, false},
    {"rope.freq_base_swa", "rope_local_base_freq", NUMBER, false},
};

/* A configuration that is being written.  After a fault `status` stays. */
struct text {
    const struct attn_gguf *file;
    const struct attn_gguf_architecture *architecture;
    char *text; /* [ATTN_GGUF_MAX_CONFIG] */
    size_t length;
    struct attn_error *error;
    enum attn_status status;
};

/* Notes a fault at `param`. */
#define FAIL(w, code, param, ...) \
    ((w)->status =                \
         (w)->status != ATTN_OK ? (w)->status : attn_fail((w)->error, code, param, __VA_ARGS__))

static void put(struct text *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *w, const char *format, ...)
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

/* Whether the list, of words with a space between them, has this one. */
static bool is_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; length > 0 && (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* Whether the configuration of the architecture has the member. */
static bool takes(const struct text *w, const char *member)
{
    return is_word(w->architecture->takes, member);
}

/* ---- Reading keys ---- */

/* The value of the architecture's key, NULL where the file has none. */
static const struct attn_gguf_value *find_key(const struct text *w, const char *key)
{
    char name[ATTN_SAFETENSORS_MAX_NAME];
    snprintf(name, sizeof name, "%s.%s", w->architecture->name, key);
    return attn_gguf_find_value(w->file, name);
}

/* The number of that key, 0 where the file has none.  Of an array, which has a number for each
 * layer, all must be the same. */
static double read_number(struct text *w, const char *key)
{
    const struct attn_gguf_value *value = find_key(w, key);
    if (value == NULL)
        return 0;
    if (value->kind != ATTN_GGUF_NUMBER || value->count == 0) {
        FAIL(w, ATTN_MALFORMED, value->key, "%.96s is %s, wanted is a number", value->key,
             value->kind == ATTN_GGUF_TEXT ? "a string" : "an array");
        return 0;
    }
    for (size_t i = 1; i < value->count; i++)
        if (value->numbers[i] != value->numbers[0])
            FAIL(w, ATTN_UNSUPPORTED, value->key, "%.96s differs between layers", value->key);
    if (!isfinite(value->numbers[0]))
        FAIL(w, ATTN_MALFORMED, value->key, "%.96s is not finite", value->key);
    return value->numbers[0];
}

/* The integer of that key, at least 1; 0 where the file has none. */
static size_t read_size(struct text *w, const char *key)
{
    const struct attn_gguf_value *value = find_key(w, key);
    const double number = read_number(w, key);
    if (value == NULL || (number >= 1 && number <= MAX_SIZE && number == floor(number)))
        return (size_t)number;
    FAIL(w, ATTN_OUT_OF_RANGE, value->key, "%.96s is %.17g, wanted is an integer from 1 to %d",
         value->key, number, MAX_SIZE);
    return 0;
}

/* ---- Writing members ---- */

static void put_keys(struct text *w)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct key *key = &keys[i];
        if (!key->is_size_of_all && !takes(w, key->published))
            continue;
        if (find_key(w, key->file) == NULL && key->is_size_of_all)
            FAIL(w, ATTN_MALFORMED, key->file, "the file has no key %s.%s", w->architecture->name,
                 key->file);
        else if (find_key(w, key->file) != NULL && key->kind == SIZE)
            put(w, ", \"%s\": %zu", key->published, read_size(w, key->file));
        else if (find_key(w, key->file) != NULL)
            put(w, ", \"%s\": %.9g", key->published, read_number(w, key->file));
    }
}

/* Writes what follows from the width of a head, which it returns. */
static size_t put_widths(struct text *w)
{
    const size_t width = read_size(w, "embedding_length"), layers = read_size(w, "block_count");
    const size_t heads = read_size(w, "attention.head_count");
    const size_t key = read_size(w, "attention.key_length"), own = heads > 0 ? width / heads : 0;
    const size_t value = read_size(w, "attention.value_length"), head = key != 0 ? key : own;
    const size_t rotated = read_size(w, "rope.dimension_count");
    if (head == 0)
        FAIL(w, ATTN_OUT_OF_RANGE, "attention.head_count",
             "%zu heads are more than embedding_length %zu", heads, width);
    if (value != 0 && value != head)
        FAIL(w, ATTN_UNSUPPORTED, "attention.value_length",
             "values of width %zu beside keys of width %zu are not read from GGUF files", value,
             head);
    if (head != own || takes(w, "head_dim"))
        put(w, ", \"head_dim\": %zu", head);
    /* Gemma's models of 27 billion weights divide by another width. */
    const bool large = strcmp(w->architecture->name, "gemma2") == 0 ? layers == 46 : layers == 62;
    if (takes(w, "query_pre_attn_scalar"))
        put(w, ", \"query_pre_attn_scalar\": %zu", large ? own : head);
    if (takes(w, "partial_rotary_factor") && rotated != 0 && head != 0)
        put(w, ", \"partial_rotary_factor\": %.9g", (double)rotated / (double)head);
    return head;
}

/* Writes the numbers of a vector of the file. */
static void put_factors(struct text *w, const char *member, const struct attn_tensor_entry *entry)
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

/* rope_scaling: by keys; or factors of frequencies, which are longrope's, or Llama 3's, which the
 * conversion has computed: one list for all lengths then. */
static void put_scaling(struct text *w)
{
    static const char *const types = "none linear yarn longrope";
    const struct attn_gguf_value *type = find_key(w, "rope.scaling.type");
    const char *name = type != NULL && type->text != NULL ? type->text : "none";
    const struct attn_tensor_entry *shorter = attn_gguf_find(w->file, "rope_factors_short.weight");
    const struct attn_tensor_entry *longer = attn_gguf_find(w->file, "rope_factors_long.weight");
    const struct attn_tensor_entry *all = attn_gguf_find(w->file, "rope_freqs.weight");
    const bool factors = all != NULL || (shorter != NULL && longer != NULL);
    const size_t length = read_size(w, "context_length");
    const size_t given = read_size(w, "rope.scaling.original_context_length");
    const size_t original = given == 0 && factors ? length : given;
    const double factor = read_number(w, "rope.scaling.factor");
    const double attention = all != NULL ? 1 : read_number(w, "rope.scaling.attn_factor");
    const bool outside = takes(w, "original_max_position_embeddings");
    if (!is_word(types, name))
        FAIL(w, ATTN_UNSUPPORTED, type->key, "%.96s is \"%.64s\", wanted is one of %s", type->key,
             name, types);
    if (length != 0)
        put(w, ", \"max_position_embeddings\": %zu", length);
    if (!takes(w, "rope_scaling") || (strcmp(name, "none") == 0 && !factors))
        return;
    if (original != 0 && outside)
        put(w, ", \"original_max_position_embeddings\": %zu", original);
    put(w, ", \"rope_scaling\": {\"rope_type\": \"%s\"", factors ? "longrope" : name);
    if (original != 0 && !outside)
        put(w, ", \"original_max_position_embeddings\": %zu", original);
    if (factor != 0 && !factors)
        put(w, ", \"factor\": %.9g", factor);
    if (attention != 0)
        put(w, ", \"attention_factor\": %.9g", attention);
    if (factors) {
        put_factors(w, "short_factor", all != NULL ? all : shorter);
        put_factors(w, "long_factor", all != NULL ? all : longer);
    }
    if (w->architecture->scaling != NULL)
        put(w, ", %s", w->architecture->scaling);
    put(w, "}");
}

enum attn_status attn_gguf_config(struct attn_gguf_config *out, const struct attn_gguf *file,
                                  struct attn_error *error)
{
    const struct attn_gguf_value *name = attn_gguf_find_value(file, "general.architecture");
    struct text w = {.file = file, .error = error};
    if (name == NULL || name->kind != ATTN_GGUF_TEXT)
        return attn_fail(error, ATTN_MALFORMED, "general.architecture",
                         "the file has no key general.architecture");
    for (size_t i = 0; i < NUM_ARCHITECTURES; i++)
        if (strcmp(name->text, architectures[i].name) == 0)
            w.architecture = &architectures[i];
    if (w.architecture == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, name->key,
                         "%.96s is \"%.64s\", which is not read from GGUF files", name->key,
                         name->text);
    w.text = attn_alloc(ATTN_GGUF_MAX_CONFIG, 1);
    if (w.text == NULL)
        return attn_fail_memory(error, ATTN_GGUF_MAX_CONFIG);
    put(&w, "{\"model_type\": \"%s\"", w.architecture->model_type);
    put_keys(&w);
    const size_t head_dim = put_widths(&w);
    put_scaling(&w);
    if (takes(&w, "attention_bias"))
        put(&w, ", \"attention_bias\": %s",
            attn_gguf_find(file, "blk.0.attn_q.bias") != NULL ? "true" : "false");
    if (w.architecture->more != NULL)
        put(&w, ", %s", w.architecture->more);
    put(&w, "}");
    if (w.status != ATTN_OK)
        attn_free(w.text);
    else
        *out = (struct attn_gguf_config){w.architecture, w.text, w.length, head_dim};
    return w.status;
}
