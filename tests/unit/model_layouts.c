/* model_layouts.c: where each family stores the tensors of a layer: fused and grouped tensors,
 * stacks, prefixes, shards.
 *
 * Tiny checkpoints are written whose elements tell their place: element i of tensor number t is
 * 10000 t + i. */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_cases.h"
#include "models/model.h"
#include "oracle_layer.h"

#define REFERENCE "tests/reference/"
#define MAX_TENSORS 24
#define TEXT_SIZE 8192

static char path[SCRATCH_PATH];

static void setup(void) { scratch_make(path); }
static void teardown(void) { scratch_remove(path); }

/* ---- Writing checkpoints -------------------------------------------------------------------- */

struct tensor {
    const char *name;
    size_t rows, columns; /* rows 0: one dimension */
};

static size_t elements(const struct tensor *tensor)
{
    return tensor->columns * (tensor->rows != 0 ? tensor->rows : 1);
}

static float element(size_t number, size_t i) { return (float)(10000 * number + i); }

/* Writes `count` tensors as a file; the first is number `first`. */
static void write_tensors(const char *file, const struct tensor *tensors, size_t count,
                          size_t first)
{
    static char header[TEXT_SIZE];
    size_t at = 0, total = 0;
    for (size_t t = 0; t < count; t++) {
        char rows[32] = "";
        if (tensors[t].rows != 0)
            snprintf(rows, sizeof rows, "%zu,", tensors[t].rows);
        at += (size_t)snprintf(header + at, sizeof header - at,
                               "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s%zu],"
                               "\"data_offsets\":[%zu,%zu]}",
                               t == 0 ? "{" : ",", tensors[t].name, rows, tensors[t].columns,
                               4 * total, 4 * (total + elements(&tensors[t])));
        ck_assert_uint_lt(at, sizeof header - 1);
        total += elements(&tensors[t]);
    }
    snprintf(header + at, sizeof header - at, "}");

    float *data = malloc(total * sizeof *data), *next = data;
    ck_assert_ptr_nonnull(data);
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < elements(&tensors[t]); i++)
            *next++ = element(first + t, i);
    scratch_write_tensors(path, file, header, data, total * sizeof *data);
    free(data);
}

static void write_model(const char *config, const struct tensor *tensors, size_t count)
{
    scratch_write(path, "config.json", config, strlen(config));
    write_tensors(SINGLE, tensors, count, 0);
}

static struct attn_model *open_stack(const char *where, const char *stack)
{
    struct attn_model *model = cases_open(where, &(struct attn_model_options){.stack = stack});
    cases_load(model);
    return model;
}

/* Row `got` of a weight, or element `got` of a bias, is row `want` of tensor `number`. */
static void check_row(const struct attn_linear *linear, size_t got, size_t number, size_t want)
{
    for (size_t c = 0; c < linear->in; c++)
        ck_assert_msg(oracle_weight(linear, got, c) == element(number, want * linear->in + c),
                      "row %zu, column %zu: %g is not of row %zu", got, c,
                      (double)oracle_weight(linear, got, c), want);
}

/* ---- Fused ---------------------------------------------------------------------------------- */

/* Four heads of width 2 in a width of 8, in all layouts that Falcon has. */
static const struct {
    const char *keys;
    size_t groups;
} falcons[] = {
    {"", 1},
    {",\"multi_query\":false", 4},
    {",\"new_decoder_architecture\":true,\"num_kv_heads\":2", 2},
    {",\"new_decoder_architecture\":true", 4},
};

CASE(layouts, setup, teardown, 60)

TEST_EACH(layout_grouped_goes_round_by_kv_head, COUNT(falcons))
{
    const size_t groups = falcons[_i].groups, d = 2, each = 4 / groups;
    const struct tensor tensors[] = {
        {"transformer.h.0.self_attention.query_key_value.weight", (4 + 2 * groups) * d, 8},
        {"transformer.h.0.self_attention.query_key_value.bias", 0, (4 + 2 * groups) * d},
        {"transformer.h.0.self_attention.dense.weight", 8, 8},
        {"transformer.h.0.self_attention.dense.bias", 0, 8},
    };
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_attention_heads\":4,"
             "\"num_hidden_layers\":1,\"bias\":true%s}",
             falcons[_i].keys);
    write_model(text, tensors, 4);
    struct attn_model *model = open_stack(path, NULL);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    ck_assert_uint_eq(layer->spec.num_kv_heads, groups);
    for (size_t g = 0; g < groups; g++)
        for (size_t j = 0; j < (each + 2) * d; j++) {
            size_t row = g * (each + 2) * d + j;
            const struct attn_linear *linear = j < each * d         ? &layer->q
                                               : j < (each + 1) * d ? &layer->k
                                                                    : &layer->v;
            size_t got = j < each * d ? g * each * d + j : g * d + j % d;
            check_row(linear, got, 0, row);
            ck_assert_float_eq(linear->bias[got], element(1, row));
        }
    for (size_t r = 0; r < 8; r++) {
        check_row(&layer->o, r, 2, r);
        ck_assert_float_eq(layer->o.bias[r], element(3, r));
    }
    attn_model_close(model);
}

TEST(layout_plain_has_queries_first_then_keys_then_values)
{
    const struct tensor tensors[] = {
        {"model.layers.0.self_attn.qkv_proj.weight", 16, 8},
        {"model.layers.0.self_attn.o_proj.weight", 8, 8},
    };
    write_model("{\"model_type\":\"phi3\",\"hidden_size\":8,\"num_attention_heads\":4,"
                "\"num_key_value_heads\":2,\"num_hidden_layers\":1}",
                tensors, 2);
    struct attn_model *model = open_stack(path, NULL);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    for (size_t r = 0; r < 8; r++)
        check_row(&layer->q, r, 0, r);
    for (size_t r = 0; r < 4; r++) {
        check_row(&layer->k, r, 0, 8 + r);
        check_row(&layer->v, r, 0, 12 + r);
    }
    attn_model_close(model);
}

TEST(layout_refuses_fused_tensor_of_another_form)
{
    /* The rows of one key/value head where the configuration says four. */
    const struct tensor tensors[] = {
        {"h.0.self_attention.query_key_value.weight", 12, 8},
        {"h.0.self_attention.dense.weight", 8, 8},
    };
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    write_model("{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_attention_heads\":4,"
                "\"num_hidden_layers\":1,\"multi_query\":false}",
                tensors, 2);
    ck_assert_int_eq(attn_model_open(&model, path, NULL, &error), ATTN_SHAPE_MISMATCH);
    ck_assert_str_eq(error.param, tensors[0].name);
    ck_assert_ptr_nonnull(strstr(error.message, "[24, 8]"));
}

/* ---- Prefixes ------------------------------------------------------------------------------- */

static const struct {
    const char *config;
    const char *prefixes[4], *weights[4]; /* of q, k, v, o */
} named[] = {
    {"{\"model_type\":\"opt\",\"hidden_size\":8,\"num_attention_heads\":4,"
     "\"num_hidden_layers\":1,\"enable_bias\":false}",
     {"model.decoder.", "decoder.", "", NULL},
     {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight",
      "layers.0.self_attn.v_proj.weight", "layers.0.self_attn.out_proj.weight"}},
    {"{\"model_type\":\"mistral\",\"hidden_size\":8,\"num_attention_heads\":4,"
     "\"num_hidden_layers\":1,\"num_key_value_heads\":4}",
     {"model.", "", NULL},
     {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight",
      "layers.0.self_attn.v_proj.weight", "layers.0.self_attn.o_proj.weight"}},
    {"{\"model_type\":\"gptj\",\"n_embd\":8,\"n_head\":4,\"n_layer\":1,\"rotary_dim\":2}",
     {"transformer.", "", NULL},
     {"h.0.attn.q_proj.weight", "h.0.attn.k_proj.weight", "h.0.attn.v_proj.weight",
      "h.0.attn.out_proj.weight"}},
    {"{\"model_type\":\"t5\",\"d_model\":8,\"num_heads\":4,\"num_layers\":1,\"d_kv\":2,"
     "\"relative_attention_num_buckets\":4}",
     {"decoder.block.0.layer.0.", NULL},
     {"SelfAttention.q.weight", "SelfAttention.k.weight", "SelfAttention.v.weight",
      "SelfAttention.o.weight"}},
};

TEST_EACH(layout_finds_tensors_under_each_prefix, COUNT(named))
{
    for (const char *const *prefix = named[_i].prefixes; *prefix != NULL; prefix++) {
        char names[4][128];
        struct tensor tensors[5];
        for (size_t i = 0; i < 4; i++) {
            snprintf(names[i], sizeof names[i], "%s%s", *prefix, named[_i].weights[i]);
            tensors[i] = (struct tensor){names[i], 8, 8};
        }
        tensors[4] = (struct tensor){
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 4, 4};
        write_model(named[_i].config, tensors, 5);
        struct attn_model *model = open_stack(path, NULL);
        const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
        const struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v, &layer->o};
        for (size_t i = 0; i < 4; i++)
            check_row(linears[i], 7, i, 7);
        attn_model_close(model);
    }
}

/* ---- T5, shards ----------------------------------------------------------------------------- */

/* Two heads of width 3 in a width of 4: the inner width is independent of E. */
#define T5                                                                              \
    "{\"model_type\":\"t5\",\"d_model\":4,\"d_kv\":3,\"num_heads\":2,\"num_layers\":2," \
    "\"relative_attention_num_buckets\":4,\"relative_attention_max_distance\":9}"
#define BLOCK(stack, n, place)                                 \
    {stack ".block." n ".layer." place ".q.weight", 6, 4},     \
        {stack ".block." n ".layer." place ".k.weight", 6, 4}, \
        {stack ".block." n ".layer." place ".v.weight", 6, 4}, \
    {                                                          \
        stack ".block." n ".layer." place ".o.weight", 4, 6    \
    }
#define TABLE(stack, place)                                                   \
    {                                                                         \
        stack ".block.0.layer." place ".relative_attention_bias.weight", 4, 2 \
    }

static const struct tensor t5_tensors[] = {
    BLOCK("encoder", "0", "0.SelfAttention"),
    BLOCK("encoder", "1", "0.SelfAttention"),
    BLOCK("decoder", "0", "0.SelfAttention"),
    BLOCK("decoder", "1", "0.SelfAttention"),
    BLOCK("decoder", "0", "1.EncDecAttention"),
    TABLE("encoder", "0.SelfAttention"),
    TABLE("decoder", "0.SelfAttention"),
    TABLE("decoder", "1.EncDecAttention"), /* an unused tensor of old checkpoints */
};
#define NUM_T5 COUNT(t5_tensors)

TEST(layout_t5_stacks_share_block_0s_table)
{
    const struct {
        const char *stack;
        size_t first, table;
    } stacks[] = {{"encoder", 0, 20}, {"decoder", 8, 21}};
    write_model(T5, t5_tensors, NUM_T5);
    for (size_t s = 0; s < 2; s++) {
        struct attn_model *model = open_stack(path, stacks[s].stack);
        struct attn_model_info info;
        attn_model_describe(&info, model);
        ck_assert_str_eq(info.family, "t5");
        ck_assert_str_eq(info.stack, stacks[s].stack);
        ck_assert_uint_eq(info.weight_bytes, 2 * ((3 * 4 + 6) * ATTN_PANEL + 8) * sizeof(float));
        for (size_t l = 0; l < 2; l++) {
            const struct attn_layer *layer = attn_model_loaded_layer(model, l);
            check_row(&layer->q, 5, stacks[s].first + 4 * l, 5);
            check_row(&layer->o, 3, stacks[s].first + 4 * l + 3, 3);
            for (size_t i = 0; i < 8; i++)
                ck_assert_float_eq(layer->bias_table[i], element(stacks[s].table, i));
        }
        attn_model_close(model);
    }
}

TEST(layout_t5_cross_stack_has_no_table_and_caches_encoder_rows)
{
    const size_t zeroth[] = {0};
    struct attn_model_info info;
    write_model(T5, t5_tensors, NUM_T5);
    struct attn_model *model = cases_open(
        path, &(struct attn_model_options){.layers = zeroth, .num_layers = 1, .stack = "cross"});
    cases_load(model);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    check_row(&layer->k, 2, 17, 2);
    ck_assert_ptr_null(layer->bias_table);
    ck_assert(layer->spec.is_cross);
    attn_model_describe(&info, model);
    ck_assert_str_eq(info.stack, "cross");
    ck_assert_uint_eq(info.cache_bytes_per_token, attn_layer_token_bytes(&layer->spec));
    attn_model_close(model);

    struct attn_error error = {0};
    ck_assert_int_eq(
        attn_model_open(&model, path, &(struct attn_model_options){.stack = "cross"}, &error),
        ATTN_NOT_FOUND);
    ck_assert_str_eq(error.param, "decoder.block.1.layer.1.EncDecAttention.q.weight");
}

/* Puts each tensor into the file that `place` names, in an index; only the files `there` are
 * written. */
static void write_shards(const char *config, const struct tensor *tensors, size_t count,
                         const char *const *place, const char *there)
{
    static char text[TEXT_SIZE];
    struct tensor kept[MAX_TENSORS];
    size_t at = (size_t)snprintf(text, sizeof text, "{\"weight_map\":{"), n = 0;
    for (size_t t = 0; t < count; t++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\":\"%s\"", t > 0 ? "," : "",
                               tensors[t].name, place[t]);
        if (strcmp(place[t], there) == 0)
            kept[n++] = tensors[t];
    }
    snprintf(text + at, sizeof text - at, "}}");
    scratch_write(path, "config.json", config, strlen(config));
    scratch_write(path, INDEX, text, strlen(text));
    write_tensors(there, kept, n, 0);
}

TEST(layout_opens_no_shard_of_an_unwanted_layer)
{
    /* The encoder's block 1 and the table of biases exist; block 0 and the decoder do not. */
    const char *place[NUM_T5];
    for (size_t t = 0; t < NUM_T5; t++)
        place[t] = (t >= 4 && t < 8) || t == 20 ? "here.safetensors" : "gone.safetensors";
    write_shards(T5, t5_tensors, NUM_T5, place, "here.safetensors");

    const size_t second[] = {1};
    struct attn_model *model = cases_open(
        path, &(struct attn_model_options){.layers = second, .num_layers = 1, .stack = "encoder"});
    cases_load(model);
    ck_assert_float_eq(attn_model_loaded_layer(model, 1)->bias_table[7], element(4, 7));
    check_row(&attn_model_loaded_layer(model, 1)->q, 1, 0, 1);
    attn_model_close(model);

    struct attn_error error = {0};
    ck_assert_int_eq(
        attn_model_open(&model, path, &(struct attn_model_options){.stack = "encoder"}, &error),
        ATTN_NOT_FOUND);
    ck_assert_str_eq(error.param, "gone.safetensors");
}

/* ---- Norms, sinks; every reference ---------------------------------------------------------- */

/* A weight of the reference checkpoint `name`, beside the loaded weight of layer 1. */
static void check_array(const char *name, const char *tensor, const float *got, size_t expected)
{
    char where[SCRATCH_PATH];
    size_t count;
    snprintf(where, sizeof where, REFERENCE "%s/model", name);
    float *raw = scratch_tensor(&count, where, SINGLE, tensor);
    ck_assert_ptr_nonnull(raw);
    ck_assert_uint_eq(count, expected);
    ck_assert_mem_eq(got, raw, count * sizeof *raw);
    free(raw);
}

TEST(layout_reads_norms_and_sinks)
{
    struct attn_model *model = open_stack(REFERENCE "qwen3/model", NULL);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 1);
    check_array("qwen3", "model.layers.1.self_attn.q_norm.weight", layer->q_norm, 8);
    check_array("qwen3", "model.layers.1.self_attn.k_norm.weight", layer->k_norm, 8);
    attn_model_close(model);
    model = open_stack(REFERENCE "gpt_oss/model", NULL);
    layer = attn_model_loaded_layer(model, 1);
    check_array("gpt_oss", "model.layers.1.self_attn.sinks", layer->sinks, 4);
    attn_model_close(model);
}

TEST(layout_refuses_sinks_and_norms_beyond_bounds)
{
    const char *files[] = {"qwen3", "gpt_oss"};
    const char *tensors[] = {"model.layers.1.self_attn.k_norm.weight",
                             "model.layers.1.self_attn.sinks"};
    const char *params[] = {"k_norm", "sinks"};
    for (size_t i = 0; i < 2; i++) {
        char where[SCRATCH_PATH];
        size_t size;
        snprintf(where, sizeof where, REFERENCE "%s/model", files[i]);
        char *config = scratch_read(&size, where, "config.json");
        scratch_write(path, "config.json", config, size);
        free(config);
        char *data = scratch_read(&size, where, SINGLE);
        const char *entry = memmem(data, size, tensors[i], strlen(tensors[i]));
        ck_assert_ptr_nonnull(entry);
        const char *span = strstr(entry, "\"data_offsets\":[");
        ck_assert_ptr_nonnull(span);
        uint64_t header;
        memcpy(&header, data, sizeof header);
        const uint16_t large = 0x7f00; /* 1.7e38 in BF16, and with the half before it in F32 */
        bool bf16 = strstr(entry, "\"BF16\"") != NULL && strstr(entry, "\"BF16\"") < span;
        memcpy(data + 8 + header + strtoul(span + 16, NULL, 10) + (bf16 ? 0 : 2), &large, 2);
        scratch_write(path, SINGLE, data, size);
        free(data);

        struct attn_error error = {0};
        struct attn_model *model = cases_open(path, NULL);
        ck_assert_int_eq(attn_model_load(model, &error), ATTN_OUT_OF_RANGE);
        ck_assert_str_eq(error.param, params[i]);
        attn_model_close(model);
    }
}

TEST(layout_loads_every_reference_checkpoint)
{
    DIR *directory = opendir(REFERENCE);
    size_t loaded = 0;
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *item; (item = readdir(directory)) != NULL;) {
        char where[2 * SCRATCH_PATH];
        snprintf(where, sizeof where, REFERENCE "%s/model", item->d_name);
        DIR *inner = item->d_name[0] != '.' ? opendir(where) : NULL;
        if (inner == NULL)
            continue;
        closedir(inner);
        bool t5 = strncmp(item->d_name, "t5", 2) == 0;
        const char *stacks[] = {NULL, "encoder", "decoder", "cross"};
        for (size_t s = 0; s < (t5 ? 4 : 1); s++)
            attn_model_close(open_stack(where, stacks[s]));
        loaded++;
    }
    closedir(directory);
    ck_assert_uint_ge(loaded, 30);
}

CASES_OF(layouts)
