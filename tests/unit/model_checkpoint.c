/* model_checkpoint.c: checkpoints with wrong tensors, types, files or indices. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model_cases.h"

static char path[SCRATCH_PATH];

static void setup(void) { scratch_make(path); }
static void teardown(void) { scratch_remove(path); }

/* Opens and loads a checkpoint; one of the two must fail with this status and this key or
 * tensor. */
static void check_refused(enum attn_status expected, const char *param, const char *what)
{
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    enum attn_status status = attn_model_open(&model, path, NULL, &error);
    if (status == ATTN_OK)
        status = attn_model_load(model, &error);
    ck_assert_msg(status == expected, "%s: got %s (%s), wanted %s", what, attn_status_name(status),
                  error.message, attn_status_name(expected));
    ck_assert_int_eq(error.status, expected);
    if (param != NULL)
        ck_assert_msg(strcmp(error.param, param) == 0, "%s: param is '%s' (%s)", what, error.param,
                      error.message);
    ck_assert_msg(strstr(error.message, path) == NULL, "%s", error.message);
    attn_model_close(model);
}

/* ---- Checkpoints that must be refused ------------------------------------------------------ */

static const struct {
    const char *model, *config; /* NULL: the model's own */
    enum attn_status status;
    const char *param;
} disagreeing[] = {
    {"llama_gqa", LLAMA ",\"num_key_value_heads\":4}", ATTN_SHAPE_MISMATCH,
     "model.layers.1.self_attn.k_proj.weight"},
    {"llama_gqa", LLAMA ",\"num_key_value_heads\":2,\"head_dim\":32}", ATTN_SHAPE_MISMATCH,
     "model.layers.1.self_attn.q_proj.weight"},
    {"llama_gqa", LLAMA ",\"num_key_value_heads\":2,\"attention_bias\":true}", ATTN_NOT_FOUND,
     "model.layers.1.self_attn.q_proj.bias"},
    {"llama_gqa", BERT "}", ATTN_NOT_FOUND, "bert.encoder.layer.1.attention.self.query.weight"},
    {"llama_gqa",
     "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"num_hidden_layers\":3}",
     ATTN_NOT_FOUND, "model.layers.2.self_attn.q_proj.weight"},
    {"gpt2", "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":2}",
     ATTN_SHAPE_MISMATCH, "h.1.attn.c_attn.weight"},
    {"torch_mha_self", TORCH ",\"bias\":false}", ATTN_MALFORMED, "in_proj_bias"},
    {"torch_mha_bias_kv", TORCH "}", ATTN_MALFORMED, "bias_k"},
    {"torch_mha_self", TORCH ",\"add_bias_kv\":true}", ATTN_NOT_FOUND, "layers.0.self_attn.bias_k"},
    {"torch_mha_self", TORCH ",\"kdim\":48}", ATTN_NOT_FOUND, "layers.0.self_attn.q_proj_weight"},
    {"torch_mha_self", TORCH ",\"num_hidden_layers\":2}", ATTN_NOT_FOUND,
     "layers.1.self_attn.in_proj_weight"},
};

CASE(checkpoint, setup, teardown, 60)

TEST_EACH(model_refuses_tensors_that_disagree_with_the_configuration, COUNT(disagreeing))
{
    cases_copy(path, disagreeing[_i].model, disagreeing[_i].config, NULL, 0, NULL, 0);
    check_refused(disagreeing[_i].status, disagreeing[_i].param, disagreeing[_i].config);
}

TEST(model_shape_mismatch_names_both_shapes)
{
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    cases_copy(path, "llama_gqa", LLAMA ",\"num_key_value_heads\":4}", NULL, 0, NULL, 0);
    ck_assert_int_eq(attn_model_open(&model, path, NULL, &error), ATTN_SHAPE_MISMATCH);
    ck_assert_ptr_nonnull(strstr(error.message, "[32, 64]"));
    ck_assert_ptr_nonnull(strstr(error.message, "[64, 64]"));
}

/* A torch model of width 2: [6,2], [2,2] without biases. */
#define TINY                                                                         \
    "{\"model_type\":\"torch_multihead_attention\",\"embed_dim\":2,\"num_heads\":1," \
    "\"bias\":false}"

static void write_tiny(const char *dtype, size_t bytes)
{
    char header[256];
    snprintf(header, sizeof header,
             "{\"in_proj_weight\":{\"dtype\":\"%s\",\"shape\":[6,2],\"data_offsets\":[0,%zu]},"
             "\"out_proj.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[%zu,%zu]}}",
             dtype, 12 * bytes, 12 * bytes, 12 * bytes + 16);
    scratch_write(path, "config.json", TINY, strlen(TINY));
    scratch_write_tensors(path, SINGLE, header, NULL, 12 * bytes + 16);
}

TEST(model_refuses_weights_of_other_types)
{
    write_tiny("F32", 4);
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_close(model);
    write_tiny("F64", 8);
    check_refused(ATTN_UNSUPPORTED, "in_proj_weight", "F64");
    write_tiny("I8", 1);
    check_refused(ATTN_UNSUPPORTED, "in_proj_weight", "I8");
    write_tiny("F8_E4M3", 1);
    check_refused(ATTN_UNSUPPORTED, "in_proj_weight", "F8_E4M3");
}

/* A norm for each head: none may be missing, and there is none of a head that does not exist. */
TEST(model_refuses_norms_of_other_heads_than_it_has)
{
    static const struct {
        const char *part, *config, *says;
    } cases[] = {
        {"q_layernorm.norms.1", NULL, "is missing for head 1 of layer 0"},
        {"k_layernorm.norms.0", NULL, "is missing"},
        {NULL,
         "{\"model_type\":\"stablelm\",\"hidden_size\":36,\"num_attention_heads\":3,"
         "\"num_hidden_layers\":2,\"num_key_value_heads\":3,\"partial_rotary_factor\":0.5}",
         "denies it"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_error error = {0};
        struct attn_model *model = NULL;
        cases_copy(path, "stablelm_qk_norm", cases[i].config, NULL, 0, NULL, 0);
        if (cases[i].part != NULL) { /* another name of the same length */
            size_t size;
            char *data = scratch_read(&size, path, SINGLE);
            char *at = memmem(data, size, cases[i].part, strlen(cases[i].part));
            ck_assert_ptr_nonnull(at);
            at[strlen(cases[i].part) - 1] = '7';
            scratch_write(path, SINGLE, data, size);
            free(data);
        }
        ck_assert_int_ne(attn_model_open(&model, path, NULL, &error), ATTN_OK);
        ck_assert_msg(strstr(error.message, cases[i].says) != NULL, "%s", error.message);
    }
}

TEST(model_refuses_missing_files_and_directories)
{
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    ck_assert_int_eq(attn_model_open(&model, "/tmp/attn-there-is-no-such", NULL, &error),
                     ATTN_NOT_FOUND);
    ck_assert_ptr_null(strstr(error.message, "/tmp"));
    check_refused(ATTN_NOT_FOUND, "config.json", "an empty directory");
    scratch_write(path, "config.json", TINY, strlen(TINY));
    check_refused(ATTN_NOT_FOUND, SINGLE, "no tensors");
    scratch_write(path, SINGLE, "", 0);
    check_refused(ATTN_MALFORMED, SINGLE, "an empty file");
}

#define MAP(text) "{\"weight_map\":{" text "}}"
#define OF "\"layers.0.self_attn."
#define PLACE(file) OF "in_proj_weight\":\"" file "\"," OF "out_proj.weight\":\"a.safetensors\""
#define HEADER                                                                                \
    "{" OF "in_proj_weight\":{\"dtype\":\"F32\",\"shape\":[6,2],\"data_offsets\":[0,48]}," OF \
    "out_proj.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[48,64]}}"

static const struct {
    const char *text;
    enum attn_status status;
    const char *param;
} indices[] = {
    {"", ATTN_MALFORMED, INDEX},
    {"[]", ATTN_MALFORMED, INDEX},
    {"{}", ATTN_MALFORMED, "weight_map"},
    {"{\"weight_map\":[]}", ATTN_MALFORMED, INDEX},
    {"{\"weight_map\":{}", ATTN_MALFORMED, INDEX},
    {"{\"weight_map\":{},\"weight_map\":{}}", ATTN_MALFORMED, INDEX},
    {MAP("\"x\":1"), ATTN_MALFORMED, INDEX},
    {MAP("\"x\":{}"), ATTN_MALFORMED, INDEX},
    {MAP("") " x", ATTN_MALFORMED, INDEX},
    {MAP(PLACE("")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE(".")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE("..")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE("../a.safetensors")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE("/etc/passwd")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE("b/a.safetensors")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE("b\\/a.safetensors")), ATTN_MALFORMED, INDEX},
    {MAP(PLACE("a.safetensors\\u0000")), ATTN_MALFORMED, INDEX},
    {MAP("\"x\":\"a.safetensors\",\"x\":\"a.safetensors\""), ATTN_MALFORMED, "x"},
    {MAP(""), ATTN_NOT_FOUND, "layers.0.self_attn.in_proj_weight"},
    {MAP(PLACE("gone.safetensors")), ATTN_NOT_FOUND, "gone.safetensors"},
    {MAP(PLACE("config.json")), ATTN_MALFORMED, "config.json"},
    {MAP(PLACE("a.safetensors") ",\"bias_k\":\"a.safetensors\""), ATTN_MALFORMED, "bias_k"},
};

TEST_EACH(checkpoint_refuses_every_malformed_index, COUNT(indices))
{
    scratch_write(path, "config.json", TINY, strlen(TINY));
    scratch_write_tensors(path, "a.safetensors", HEADER, NULL, 64);
    scratch_write(path, INDEX, indices[_i].text, strlen(indices[_i].text));
    check_refused(indices[_i].status, indices[_i].param, indices[_i].text);
}

TEST(checkpoint_opens_only_the_shards_it_needs)
{
    const char *text = "{\"metadata\":{\"total_size\":64,\"more\":[{}]},\"weight_map\":{"
                       "\"unwanted\":\"gone.safetensors\"," PLACE("a.safetensors") "}}\n";
    scratch_write(path, "config.json", TINY, strlen(TINY));
    scratch_write_tensors(path, "a.safetensors", HEADER, NULL, 64);
    scratch_write(path, INDEX, text, strlen(text));
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_close(model);
}

/* Editors write it; the reader of JSON takes it for an error. */
TEST(checkpoint_passes_over_a_byte_order_mark)
{
    static const char config[] = "\xEF\xBB\xBF" TINY;
    static const char text[] = "\xEF\xBB\xBF" MAP(PLACE("a.safetensors"));
    scratch_write_tensors(path, "a.safetensors", HEADER, NULL, 64);
    scratch_write(path, INDEX, text, strlen(text));
    scratch_write(path, "config.json", config, strlen(config));
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_close(model);
    scratch_write(path, "config.json", config, 3);
    check_refused(ATTN_MALFORMED, "", "a byte order mark alone");
}

#define MANY_TENSORS 100000
#define MANY_SHARDS 1000

/* Writes an index of many tensors that lie in `shards` files in turn, the last name first, and of
 * the two tensors that are wanted. */
static void write_large_index(unsigned shards)
{
    size_t size = (size_t)MANY_TENSORS * 64 + 256;
    char *text = malloc(size);
    int at = snprintf(text, size, "{\"weight_map\":{");
    for (unsigned i = 0; i < MANY_TENSORS; i++)
        at += snprintf(text + at, size - (size_t)at, "\"%u\":\"%u\",", i, MANY_SHARDS - i % shards);
    at += snprintf(text + at, size - (size_t)at, PLACE("a.safetensors") "}}");
    scratch_write(path, INDEX, text, (size_t)at);
    free(text);
}

/* Processor time of opening such a checkpoint, the least of three runs. */
static double time_large_index(unsigned shards)
{
    double least = 1e9;
    write_large_index(shards);
    for (unsigned i = 0; i < 3; i++) {
        clock_t begin = clock();
        attn_model_close(cases_open(path, NULL));
        double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
        least = took < least ? took : least;
    }
    return least;
}

TEST(checkpoint_of_many_shards_is_opened_as_fast_as_one_of_few)
{
    scratch_write(path, "config.json", TINY, strlen(TINY));
    scratch_write_tensors(path, "a.safetensors", HEADER, NULL, 64);
    double few = time_large_index(1), many = time_large_index(MANY_SHARDS);
    ck_assert_msg(many < 2 * few, "%.3f s, with few shards %.3f", many, few);
}

/* ---- Tensors beside those of the layer ------------------------------------------------------- */

#define MODULE "model.layers.0.self_attn."
#define ONE_LAYER                                                            \
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_attention_heads\":2," \
    "\"num_hidden_layers\":1}"
#define FOUR_BYTES 256 /* of four matrices [4][4] */

/* Writes a header of the four weights below `module` and of one more tensor of that shape, "" for
 * none; 64 bytes of data are enough for it. */
static void write_with(const char *module, const char *more, const char *shape, size_t bytes)
{
    char header[1200];
    int at = snprintf(header, sizeof header, "{");
    for (int i = 0; i < 4; i++)
        at += snprintf(header + at, sizeof header - (size_t)at,
                       "%s\"%s%c_proj.weight\":{\"dtype\":\"F32\",\"shape\":[4,4],"
                       "\"data_offsets\":[%d,%d]}",
                       i > 0 ? "," : "", module, "qkvo"[i], 64 * i, 64 * i + 64);
    if (more[0] != '\0')
        at += snprintf(header + at, sizeof header - (size_t)at,
                       ",\"%s%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%d,%zu]}",
                       module, more, shape, FOUR_BYTES, FOUR_BYTES + bytes);
    snprintf(header + at, sizeof header - (size_t)at, "}");
    scratch_write_tensors(path, SINGLE, header, NULL, FOUR_BYTES + bytes);
}

static const struct {
    const char *name, *shape;
    size_t bytes;
} harmless[] = {
    {"rotary_emb.inv_freq", "[1]", 4},
    {"rotary_emb.cos_cached", "[1,1,4,2]", 32},
    {"bias", "[1,1,2,2]", 16},
    {"masked_bias", "[]", 4},
    {"masked_bias", "[1]", 4},
    {"k_scale", "[]", 4},
    {"v_scale", "[1]", 4},
    {"k_proj.k_scale", "[]", 4},
    {"v_proj.v_scale", "[]", 4},
};

TEST_EACH(checkpoint_loads_beside_tensors_that_change_nothing, COUNT(harmless))
{
    struct attn_model_info plain, more;
    scratch_write(path, "config.json", ONE_LAYER, strlen(ONE_LAYER));
    write_with(MODULE, "", "", 0);
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_describe(&plain, model);
    attn_model_close(model);
    write_with(MODULE, harmless[_i].name, harmless[_i].shape, harmless[_i].bytes);
    model = cases_open(path, NULL);
    cases_load(model);
    attn_model_describe(&more, model);
    attn_model_close(model);
    ck_assert_str_eq(plain.fingerprint, more.fingerprint);
}

/* The same names in other shapes, or elsewhere below the module, are something else. */
static const struct {
    const char *name, *shape;
    size_t bytes;
    enum attn_status status;
} harmful[] = {
    {"bias", "[4]", 16, ATTN_UNSUPPORTED},
    {"masked_bias", "[1,1,2,2]", 16, ATTN_UNSUPPORTED},
    {"q_proj.k_scale", "[]", 4, ATTN_UNSUPPORTED},
    {"inner.rotary_emb.inv_freq", "[1]", 4, ATTN_UNSUPPORTED},
    {"relative_attention_bias.weight", "[4]", 16, ATTN_UNSUPPORTED},
    {"q_proj.bias", "[4]", 16, ATTN_MALFORMED},
    {"q_norm.weight", "[2]", 8, ATTN_UNSUPPORTED},
    {"q_proj.lora_A", "[1,4]", 16, ATTN_UNSUPPORTED},
};

TEST_EACH(checkpoint_refuses_tensors_of_the_layer_that_would_be_left_out, COUNT(harmful))
{
    char name[64];
    scratch_write(path, "config.json", ONE_LAYER, strlen(ONE_LAYER));
    write_with(MODULE, harmful[_i].name, harmful[_i].shape, harmful[_i].bytes);
    snprintf(name, sizeof name, MODULE "%s", harmful[_i].name);
    check_refused(harmful[_i].status, name, harmful[_i].name);
}

/* ---- Names of one's own ---------------------------------------------------------------------- */

#define OWN_FLOATS (4 * 16 + 4 * 4) /* weights [4][4], biases [4] */

/* The fingerprint of a layer with these names of four weights and four biases. */
static void own_fingerprint(char out[17], const char *const names[8], const float *numbers)
{
    static const char config[] = "{\"model_type\":\"attention\",\"hidden_size\":4,\"num_heads\":2,"
                                 "\"transposed\":true,\"bias\":true}";
    char header[1024];
    struct attn_model_info info;
    int at = snprintf(header, sizeof header, "{");
    size_t begin = 0;
    for (size_t i = 0; i < 8; i++) {
        const size_t end = begin + (i < 4 ? 64 : 16);
        at += snprintf(header + at, sizeof header - (size_t)at,
                       "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                       i > 0 ? "," : "", names[i], i < 4 ? "4,4" : "4", begin, end);
        begin = end;
    }
    snprintf(header + at, sizeof header - (size_t)at, "}");
    scratch_write(path, "config.json", config, strlen(config));
    scratch_write_tensors(path, SINGLE, header, numbers, OWN_FLOATS * sizeof *numbers);
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_describe(&info, model);
    memcpy(out, info.fingerprint, sizeof info.fingerprint);
    attn_model_close(model);
}

TEST(checkpoint_reads_names_in_capitals_as_those_in_small_letters)
{
    static const char *const small[] = {"W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o"};
    static const char *const large[] = {"W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"};
    float numbers[OWN_FLOATS];
    char a[17], b[17];
    for (size_t i = 0; i < OWN_FLOATS; i++)
        numbers[i] = (float)i / 8;
    own_fingerprint(a, small, numbers);
    own_fingerprint(b, large, numbers);
    ck_assert_str_eq(a, b);
    for (size_t i = 64; i < OWN_FLOATS; i += 4) { /* each bias counts */
        numbers[i] += 1;
        own_fingerprint(b, large, numbers);
        ck_assert_str_ne(a, b);
        numbers[i] -= 1;
    }
}

/* ---- Files that change ----------------------------------------------------------------------- */

TEST(checkpoint_that_is_cut_short_while_it_loads_is_an_error)
{
    struct attn_error error = {0};
    char file[SCRATCH_PATH + 32];
    size_t length;
    scratch_write(path, "config.json", ONE_LAYER, strlen(ONE_LAYER));
    snprintf(file, sizeof file, "%s/" SINGLE, path);
    for (size_t cut = 1; cut <= FOUR_BYTES; cut++) {
        write_with(MODULE, "", "", 0);
        free(scratch_read(&length, path, SINGLE));
        struct attn_model *model = cases_open(path, NULL);
        ck_assert_int_eq(truncate(file, (off_t)(length - cut)), 0);
        ck_assert_int_eq(attn_model_load(model, &error), ATTN_IO);
        ck_assert_ptr_nonnull(strstr(error.message, SINGLE ": ends "));
        attn_model_close(model);
    }
}

CASES_OF(checkpoint)
