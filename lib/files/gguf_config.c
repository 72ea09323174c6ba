/* gguf_config.c: tables of architectures, of names of tensors and of keys: GGUF's, and the
 * published ones. */
#include "files/gguf_config.h"

#include <math.h>
#include <string.h>

#include "basics/mem.h"
#include "files/gguf_keys.h"

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
#define DECODER(takes_too) LAYERS, .takes = "num_key_value_heads rope_theta " takes_too

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
    {"deepseek2", "deepseek_v2", LAYERS, .takes = "kv_lora_rank rope_theta",
     .other_type = "deepseek_v3", .more_types = "kimi_k2 glm4_moe_lite"},
    {"gpt2", "gpt2", .module = "h.", .member = ".attn.", .names = gpt2_names, .takes = ""},
    {"bert", "bert", .module = "encoder.layer.", .member = ".attention.", .names = bert_names,
     .takes = "", .encoder = true, .more_types = "roberta xlm-roberta camembert"},
};
#define NUM_ARCHITECTURES (sizeof architectures / sizeof architectures[0])

/* ---- Keys ------------------------------------------------------------------------------------ */

#define SIGMOID 2 /* of expert_gating_func */

enum kind { SIZE, NUMBER };

/* Keys, less the architecture's name before them, and what they are in a config.json.  A file has
 * those that are needed, as llama.cpp asks for them; of every architecture, or of those that take
 * the member.  Of the others an absent key means in both what the class has as its default. */
static const struct key {
    const char *file, *published;
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

/* ---- Writing members ---- */

/* Writes a member that says whether the file has a tensor, where the architecture takes it. */
static void put_presence(struct attn_gguf_text *w, const char *member, const char *tensor)
{
    const bool there = attn_gguf_find_in(w->parts, w->num_parts, tensor) != NULL;
    if (attn_gguf_takes(w, member))
        attn_gguf_put(w, ", \"%s\": %s", member, there ? "true" : "false");
}

static void put_keys(struct attn_gguf_text *w)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct key *key = &keys[i];
        if (key->presence != OF_ALL && !attn_gguf_takes(w, key->published))
            continue;
        if (key->presence != OPTIONAL)
            attn_gguf_need_key(w, key->file);
        if (attn_gguf_find_key(w, key->file) != NULL && key->kind == SIZE)
            attn_gguf_put(w, ", \"%s\": %zu", key->published, attn_gguf_read_size(w, key->file, 0));
        else if (attn_gguf_find_key(w, key->file) != NULL)
            attn_gguf_put_number(w, key->published, attn_gguf_read_number(w, key->file, 0));
    }
    const size_t heads = attn_gguf_read_size(w, "attention.head_count", 0);
    if (attn_gguf_takes(w, "num_key_value_heads"))
        attn_gguf_put(w, ", \"num_key_value_heads\": %zu",
                      attn_gguf_read_size(w, "attention.head_count_kv", heads));
    else if (!attn_gguf_takes(w, "kv_lora_rank"))
        attn_gguf_want_size(w, "attention.head_count_kv", heads, "attention.head_count");
    put_presence(w, "use_qk_norm", "blk.0.attn_q_norm.weight");
    put_presence(w, "attention_bias", "blk.0.attn_q.bias");
}

/* Writes the part of a head that rotates; of other architectures all of it does. */
static void put_rotated(struct attn_gguf_text *w, size_t head)
{
    const size_t rotated = attn_gguf_read_size(w, "rope.dimension_count", head);
    double part = (double)rotated / (double)head;
    if (!attn_gguf_takes(w, "partial_rotary_factor")) {
        attn_gguf_want_size(w, "rope.dimension_count", head, "the width of a head");
        return;
    }
    if ((size_t)((double)head * part) < rotated)
        part = nextafter(part, INFINITY);
    attn_gguf_put(w, ", \"partial_rotary_factor\": %.17g", part);
}

/* Writes what follows from the width of a head, which it returns. */
static size_t put_widths(struct attn_gguf_text *w)
{
    const size_t width = attn_gguf_read_size(w, "embedding_length", 0),
                 layers = attn_gguf_read_size(w, "block_count", 0);
    const size_t heads = attn_gguf_read_size(w, "attention.head_count", 0),
                 own = heads > 0 ? width / heads : 0;
    const size_t head = attn_gguf_read_size(w, "attention.key_length", own);
    if (head == 0)
        ATTN_GGUF_FAIL(w, ATTN_OUT_OF_RANGE, "attention.head_count",
                       "%zu heads are more than embedding_length %zu", heads, width);
    if (w->status != ATTN_OK)
        return 0;
    attn_gguf_want_size(w, "attention.value_length", head, "the width of keys");
    if (head != own || attn_gguf_takes(w, "head_dim"))
        attn_gguf_put(w, ", \"head_dim\": %zu", head);
    /* Gemma's models of 27 billion weights divide by another width. */
    const bool large = strcmp(w->architecture->name, "gemma2") == 0 ? layers == 46 : layers == 62;
    if (attn_gguf_takes(w, "query_pre_attn_scalar"))
        attn_gguf_put(w, ", \"query_pre_attn_scalar\": %zu", large ? own : head);
    if (attn_gguf_takes(w, "attention_multiplier")) {
        const double scale = attn_gguf_read_number(w, "attention.scale", 0);
        attn_gguf_put_number(w, "attention_multiplier",
                             scale != 0 ? scale : 1 / sqrt((double)head));
    }
    if (attn_gguf_takes(w, "rope_theta"))
        put_rotated(w, head);
    return head;
}

/* The same of latent attention.  Newer files tell of the widths of latents, as which llama.cpp
 * caches them, and of those of heads beside them. */
static void put_latents(struct attn_gguf_config *out, struct attn_gguf_text *w)
{
    const bool split = attn_gguf_find_key(w, "attention.key_length_mla") != NULL;
    const char *const of_key = split ? "attention.key_length_mla" : "attention.key_length";
    const char *const of_value = split ? "attention.value_length_mla" : "attention.value_length";
    attn_gguf_need_key(w, "rope.dimension_count");
    attn_gguf_need_key(w, of_key);
    attn_gguf_need_key(w, of_value);
    const size_t heads = attn_gguf_read_size(w, "attention.head_count", 0);
    const size_t latent = attn_gguf_read_size(w, "attention.kv_lora_rank", 0);
    const size_t query = attn_gguf_read_size(w, "attention.q_lora_rank", 0);
    const size_t rotated = attn_gguf_read_size(w, "rope.dimension_count", 0);
    const size_t key = attn_gguf_read_size(w, of_key, 0);
    const size_t value = attn_gguf_read_size(w, of_value, 0);
    if (w->status == ATTN_OK && key <= rotated)
        ATTN_GGUF_FAIL(w, ATTN_OUT_OF_RANGE, "rope.dimension_count",
                       "%zu components of a key of %zu rotate, wanted are fewer", rotated, key);
    if (split) {
        attn_gguf_want_size(w, "attention.key_length", latent + rotated,
                            "kv_lora_rank + rope.dimension_count");
        attn_gguf_want_size(w, "attention.value_length", latent, "kv_lora_rank");
    }
    attn_gguf_want_size(w, "attention.head_count_kv", split ? 1 : heads,
                        split ? "the latent that all heads share" : "attention.head_count");
    attn_gguf_put(w, ", \"num_key_value_heads\": %zu, \"qk_nope_head_dim\": %zu", heads,
                  key - rotated);
    attn_gguf_put(w, ", \"qk_rope_head_dim\": %zu, \"v_head_dim\": %zu", rotated, value);
    if (query != 0)
        attn_gguf_put(w, ", \"q_lora_rank\": %zu", query);
    else
        attn_gguf_put(w, ", \"q_lora_rank\": null");
    out->head_dim = key;
    out->latent_heads = heads;
    out->latent_key = key - rotated;
    out->latent_value = value;
}

/* Whether layers of the model slide. */
static bool slides(struct attn_gguf_text *w)
{
    const struct attn_gguf_architecture *architecture = w->architecture;
    if (architecture->period == 0)
        return false;
    if (architecture->window == ATTN_GGUF_WINDOW_NEEDED)
        attn_gguf_need_key(w, "attention.sliding_window");
    return architecture->window != 0 ||
           attn_gguf_read_number(w, "attention.sliding_window", 0) != 0;
}

/* Writes which layers slide: by a list, or all but every n-th. */
static void put_window(struct attn_gguf_text *w)
{
    static const char pattern[] = "attention.sliding_window_pattern";
    const struct attn_gguf_architecture *architecture = w->architecture;
    const size_t layers = attn_gguf_read_size(w, "block_count", 0);
    const size_t window = attn_gguf_read_size(w, "attention.sliding_window", architecture->window);
    const struct attn_gguf_value *each = attn_gguf_find_key(w, pattern);
    const bool listed = each != NULL && each->kind == ATTN_GGUF_NUMBER && each->is_array;
    const size_t period = listed ? 0 : attn_gguf_read_size(w, pattern, architecture->period);
    if (listed && each->count != layers)
        ATTN_GGUF_FAIL(w, ATTN_MALFORMED, each->key, "%.96s has %zu entries, there are %zu layers",
                       each->key, each->count, layers);
    attn_gguf_put(w, ", \"sliding_window\": %zu, \"layer_types\": [", window);
    for (size_t i = 0; i < layers && w->status == ATTN_OK; i++) {
        const bool slid = listed ? each->numbers[i] != 0 : i % period + 1 < period;
        attn_gguf_put(w, "%s\"%s_attention\"", i > 0 ? ", " : "", slid ? "sliding" : "full");
    }
    attn_gguf_put(w, "]");
}

/* ---- The whole ---- */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_neutral(const struct attn_gguf_text *w, const char *key,
                       const struct attn_gguf_value *value)
{
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++)
        if (strcmp(neutral[i].key, key) == 0 &&
            (neutral[i].architecture == NULL ||
             strcmp(neutral[i].architecture, w->architecture->name) == 0) &&
            (isnan(neutral[i].value) || (value->kind == ATTN_GGUF_NUMBER && value->count == 1 &&
                                         value->numbers[0] == neutral[i].value)))
            return true;
    return false;
}

/* Refuses a key of attention that was not read and is not known to change nothing. */
static void check_keys(struct attn_gguf_text *w)
{
    const size_t length = strlen(w->architecture->name);
    for (size_t i = 0; i < attn_gguf_num_values(w->file); i++) {
        const struct attn_gguf_value *value = attn_gguf_value(w->file, i);
        if (w->read[i] || strncmp(value->key, w->architecture->name, length) != 0 ||
            value->key[length] != '.')
            continue;
        const char *key = value->key + length + 1;
        if ((begins_with(key, "attention.") || begins_with(key, "rope.") ||
             strstr(key, "softcap") != NULL) &&
            !is_neutral(w, key, value))
            ATTN_GGUF_FAIL(
                w, ATTN_UNSUPPORTED, value->key,
                "%.96s is not read from GGUF files: take the checkpoint that the file was made "
                "from",
                value->key);
    }
}

/* Writes the whole configuration; *out gets the widths of heads. */
static void put_config(struct attn_gguf_config *out, struct attn_gguf_text *w)
{
    const struct attn_gguf_architecture *architecture = w->architecture;
    const bool latent = attn_gguf_takes(w, "kv_lora_rank"), causal = !architecture->encoder;
    const bool sliding = slides(w);
    const bool other =
        sliding || (latent && attn_gguf_read_number(w, "expert_gating_func", 0) == SIGMOID);
    attn_gguf_put(w, "{\"model_type\": \"%s\"",
                  other ? architecture->other_type : architecture->model_type);
    put_keys(w);
    if (latent)
        put_latents(out, w);
    else
        out->head_dim = put_widths(w);
    if (attn_gguf_find_key(w, "context_length") != NULL)
        attn_gguf_put(w, ", \"max_position_embeddings\": %zu",
                      attn_gguf_read_size(w, "context_length", 0));
    if (sliding)
        put_window(w);
    else if (architecture->full != NULL)
        attn_gguf_put(w, ", %s", architecture->full);
    if (attn_gguf_takes(w, "rope_theta"))
        attn_gguf_put_rope(w);
    if ((attn_gguf_read_number(w, "attention.causal", causal) != 0) != causal)
        ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, "attention.causal",
                       "%s.attention.causal is %s, which is not read from GGUF files",
                       architecture->name, causal ? "false" : "true");
    check_keys(w);
    attn_gguf_put(w, "}");
}

enum attn_status attn_gguf_config(struct attn_gguf_config *out, struct attn_gguf *const *parts,
                                  size_t num_parts, struct attn_error *error)
{
    const struct attn_gguf *file = parts[0];
    const struct attn_gguf_value *name = attn_gguf_find_value(file, "general.architecture");
    struct attn_gguf_text w = {
        .file = file, .parts = parts, .num_parts = num_parts, .error = error};
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
    w.read = attn_calloc(attn_gguf_num_values(file), sizeof *w.read);
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
