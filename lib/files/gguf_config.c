/* gguf_config.c: tables of architectures, of names of tensors and of keys: GGUF's, and the
 * published ones. */
#include "files/gguf_config.h"

#include <jansson.h>
#include <math.h>
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
     .plus_one = true, .more = "{\"sliding_window_pattern\": 6}"},
    {"phi3", "phi3", DECODER("original_max_position_embeddings")},
    {"starcoder2", "starcoder2", DECODER("")},
    {"command-r", "cohere", DECODER("layer_norm_eps")},
    {"olmo2", "olmo2", DECODER("")},
    {"glm4", "glm4", DECODER("head_dim attention_bias partial_rotary_factor")},
    {"gpt-oss", "gpt_oss", DECODER("head_dim sliding_window"),
     .more = "{\"rope_scaling\": {\"truncate\": false}}"},
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

/* A configuration that is being made. */
struct maker {
    const struct attn_gguf *file;
    const struct attn_gguf_architecture *architecture;
    json_t *config;
    struct attn_error *error;
    enum attn_status status; /* stays after a fault */
};

/* Whether the list, of words with a space between them, has this one. */
static bool is_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* Whether the configuration of the architecture has the member. */
static bool takes(const struct maker *m, const char *member)
{
    return is_word(m->architecture->takes, member);
}

#define FAIL(m, status_, param, ...)                    \
    ((m)->status = (m)->status != ATTN_OK ? (m)->status \
                                          : attn_fail((m)->error, status_, param, __VA_ARGS__))

static void set(struct maker *m, json_t *object, const char *member, json_t *value)
{
    if (json_object_set_new(object, member, value) != 0 && m->status == ATTN_OK)
        m->status = attn_fail_memory(m->error, sizeof(json_t));
}

/* The value of the architecture's key, NULL where the file has none. */
static const struct attn_gguf_value *find_key(const struct maker *m, const char *key)
{
    char name[ATTN_SAFETENSORS_MAX_NAME];
    snprintf(name, sizeof name, "%s.%s", m->architecture->name, key);
    return attn_gguf_find_value(m->file, name);
}

/* The number of that key, `absent` where the file has none.  Of an array, which has a number for
 * each layer, all must be the same. */
static double read_number(struct maker *m, const char *key, double absent)
{
    const struct attn_gguf_value *value = find_key(m, key);
    if (value == NULL)
        return absent;
    if (value->kind != ATTN_GGUF_NUMBER || value->count == 0) {
        FAIL(m, ATTN_MALFORMED, value->key, "%.96s is %s, wanted is a number", value->key,
             value->kind == ATTN_GGUF_TEXT ? "a string" : "an array");
        return absent;
    }
    for (size_t i = 1; i < value->count; i++)
        if (value->numbers[i] != value->numbers[0]) {
            FAIL(m, ATTN_UNSUPPORTED, value->key, "%.96s differs between layers", value->key);
            return absent;
        }
    if (!isfinite(value->numbers[0]))
        FAIL(m, ATTN_MALFORMED, value->key, "%.96s is not finite", value->key);
    return value->numbers[0];
}

/* The integer of that key, at least 1; 0 where the file has none. */
static json_int_t read_size(struct maker *m, const char *key)
{
    const struct attn_gguf_value *value = find_key(m, key);
    const double number = read_number(m, key, 0);
    if (value != NULL && !(number >= 1 && number <= MAX_SIZE && number == floor(number))) {
        FAIL(m, ATTN_OUT_OF_RANGE, value->key, "%.96s is %.17g, wanted is an integer from 1 to %d",
             value->key, number, MAX_SIZE);
        return 0;
    }
    return (json_int_t)number;
}

static void set_keys(struct maker *m)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct key *key = &keys[i];
        if (!key->is_size_of_all && !takes(m, key->published))
            continue;
        if (find_key(m, key->file) != NULL)
            set(m, m->config, key->published,
                key->kind == SIZE ? json_integer(read_size(m, key->file))
                                  : json_real(read_number(m, key->file, 0)));
        else if (key->is_size_of_all)
            FAIL(m, ATTN_MALFORMED, key->file, "the file has no key %s.%s", m->architecture->name,
                 key->file);
    }
}

/* Sets what follows from the width of a head, which it returns. */
static size_t set_widths(struct maker *m)
{
    const json_int_t width = read_size(m, "embedding_length"), layers = read_size(m, "block_count");
    const json_int_t heads = read_size(m, "attention.head_count");
    if (m->status != ATTN_OK)
        return 0;
    const json_int_t key = read_size(m, "attention.key_length"), own = width / heads;
    const json_int_t value = read_size(m, "attention.value_length"), head = key != 0 ? key : own;
    if (head == 0)
        FAIL(m, ATTN_OUT_OF_RANGE, "attention.head_count",
             "%" JSON_INTEGER_FORMAT " heads are more than embedding_length %" JSON_INTEGER_FORMAT,
             heads, width);
    if (value != 0 && value != head)
        FAIL(m, ATTN_UNSUPPORTED, "attention.value_length",
             "values of width %" JSON_INTEGER_FORMAT " beside keys of width %" JSON_INTEGER_FORMAT
             " are not read from GGUF files",
             value, head);
    if (head != own || takes(m, "head_dim"))
        set(m, m->config, "head_dim", json_integer(head));
    /* Gemma's models of 27 billion weights divide by another width. */
    const bool large = strcmp(m->architecture->name, "gemma2") == 0 ? layers == 46 : layers == 62;
    if (takes(m, "query_pre_attn_scalar"))
        set(m, m->config, "query_pre_attn_scalar", json_integer(large ? own : head));
    const json_int_t rotated = read_size(m, "rope.dimension_count");
    if (takes(m, "partial_rotary_factor") && rotated != 0)
        set(m, m->config, "partial_rotary_factor", json_real((double)rotated / (double)head));
    return (size_t)head;
}

/* The numbers of a vector of the file as a JSON array. */
static json_t *read_factors(struct maker *m, const struct attn_tensor_entry *entry)
{
    float factors[ATTN_MAX_HEAD_DIM];
    json_t *array = json_array();
    const size_t count = entry->ndim == 1 ? entry->shape[0] : 0;
    if (count == 0 || count > ATTN_MAX_HEAD_DIM)
        FAIL(m, ATTN_SHAPE_MISMATCH, entry->name, "%.96s is no vector of up to %d numbers",
             entry->name, ATTN_MAX_HEAD_DIM);
    else if (m->status == ATTN_OK)
        m->status = attn_gguf_read_f32(factors, entry, 0, count, m->error);
    for (size_t i = 0; i < count && m->status == ATTN_OK; i++)
        if (json_array_append_new(array, json_real((double)factors[i])) != 0)
            m->status = attn_fail_memory(m->error, sizeof(json_t));
    return array;
}

/* Sets the factors of frequencies, one list for short sequences and one for long ones. */
static void set_factors(struct maker *m, json_t *scaling, const struct attn_tensor_entry *shorter,
                        const struct attn_tensor_entry *longer)
{
    set(m, scaling, "rope_type", json_string("longrope"));
    set(m, scaling, "short_factor", read_factors(m, shorter));
    set(m, scaling, "long_factor", read_factors(m, longer));
}

/* rope_scaling: by keys; or factors of frequencies, which are longrope's, or Llama 3's, which the
 * conversion has computed: one list for all lengths then. */
static void set_scaling(struct maker *m)
{
    static const char *const types = "none linear yarn longrope";
    const struct attn_gguf_value *type = find_key(m, "rope.scaling.type");
    const char *name = type != NULL && type->text != NULL ? type->text : "none";
    const struct attn_tensor_entry *shorter = attn_gguf_find(m->file, "rope_factors_short.weight");
    const struct attn_tensor_entry *longer = attn_gguf_find(m->file, "rope_factors_long.weight");
    const struct attn_tensor_entry *all = attn_gguf_find(m->file, "rope_freqs.weight");
    const bool factors = all != NULL || (shorter != NULL && longer != NULL);
    const json_int_t length = read_size(m, "context_length");
    const json_int_t original = read_size(m, "rope.scaling.original_context_length");
    const double factor = read_number(m, "rope.scaling.factor", 0);
    const double attention = all != NULL ? 1 : read_number(m, "rope.scaling.attn_factor", 0);
    json_t *scaling = json_object_get(m->config, "rope_scaling"); /* what the row says of it */
    if (length != 0)
        set(m, m->config, "max_position_embeddings", json_integer(length));
    if (!is_word(types, name))
        FAIL(m, ATTN_UNSUPPORTED, type->key, "%.96s is \"%.64s\", wanted is one of %s", type->key,
             name, types);
    if (!takes(m, "rope_scaling") || (strcmp(name, "none") == 0 && !factors)) {
        json_object_del(m->config, "rope_scaling");
        return;
    }
    if (scaling == NULL)
        set(m, m->config, "rope_scaling", scaling = json_object());
    set(m, scaling, "rope_type", json_string(name));
    if (factor != 0 && !factors)
        set(m, scaling, "factor", json_real(factor));
    if (attention != 0)
        set(m, scaling, "attention_factor", json_real(attention));
    if (original != 0 || factors)
        set(m, takes(m, "original_max_position_embeddings") ? m->config : scaling,
            "original_max_position_embeddings", json_integer(original != 0 ? original : length));
    if (factors)
        set_factors(m, scaling, all != NULL ? all : shorter, all != NULL ? all : longer);
}

/* Prints the configuration. */
static void print(struct attn_gguf_config *out, struct maker *m)
{
    const size_t size = json_dumpb(m->config, NULL, 0, 0);
    if (m->status == ATTN_OK && (out->text = attn_alloc(size + 1, 1)) == NULL)
        m->status = attn_fail_memory(m->error, size + 1);
    if (m->status != ATTN_OK)
        return;
    out->length = json_dumpb(m->config, out->text, size, 0);
    out->text[out->length] = '\0';
}

enum attn_status attn_gguf_config(struct attn_gguf_config *out, const struct attn_gguf *file,
                                  struct attn_error *error)
{
    const struct attn_gguf_value *name = attn_gguf_find_value(file, "general.architecture");
    struct maker m = {.file = file, .error = error};
    if (name == NULL || name->text == NULL)
        return attn_fail(error, ATTN_MALFORMED, "general.architecture",
                         "the file has no key general.architecture");
    for (size_t i = 0; i < NUM_ARCHITECTURES; i++)
        if (strcmp(name->text, architectures[i].name) == 0)
            m.architecture = &architectures[i];
    if (m.architecture == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, name->key,
                         "%.96s is \"%.64s\", which is not read from GGUF files", name->key,
                         name->text);
    m.config = json_loads(m.architecture->more != NULL ? m.architecture->more : "{}", 0, NULL);
    set(&m, m.config, "model_type", json_string(m.architecture->model_type));
    set_keys(&m);
    *out = (struct attn_gguf_config){.architecture = m.architecture, .head_dim = set_widths(&m)};
    set_scaling(&m);
    if (takes(&m, "attention_bias"))
        set(&m, m.config, "attention_bias",
            json_boolean(attn_gguf_find(file, "blk.0.attn_q.bias") != NULL));
    print(out, &m);
    json_decref(m.config);
    return m.status;
}
