/* test_model.c: golden checkpoints: resident weights are what the files hold, in the right place.
 * The rest of the suite is in the files model_*.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_cases.h"
#include "models/model.h"
#include "oracle_layer.h"
#include "suites.h"

static char path[SCRATCH_PATH];

static void setup(void) { scratch_make(path); }
static void teardown(void) { scratch_remove(path); }

/* ---- Golden checkpoints -------------------------------------------------------------------- */

static const struct {
    const char *name, *family, *dtype;
    size_t layers;
    /* The tensor that holds the query rows; '*' is the layer. */
    const char *query, *file;
} golden[] = {
    {"bert", "bert", "F32", 2, "bert.encoder.layer.*.attention.self.query.weight", SINGLE},
    {"gpt2", "gpt2", "F32", 2, "h.*.attn.c_attn.weight", SINGLE},
    {"gpt2_f16", "gpt2", "F16", 2, "transformer.h.*.attn.c_attn.weight", SINGLE},
    {"llama3_rope_sharded", "llama", "F32", 2, "model.layers.*.self_attn.q_proj.weight", NULL},
    {"llama_gqa", "llama", "F32", 2, "model.layers.*.self_attn.q_proj.weight", SINGLE},
    {"llama_mha", "llama", "F32", 2, "model.layers.*.self_attn.q_proj.weight", SINGLE},
    {"llama_mqa_bf16", "llama", "BF16", 2, "model.layers.*.self_attn.q_proj.weight", SINGLE},
    {"torch_encoder_stack", "torch_mha", "F32", 2, "layers.*.self_attn.in_proj_weight", SINGLE},
    {"torch_mha_bias_kv", "torch_mha", "F32", 1, "in_proj_weight", SINGLE},
    {"torch_mha_cross", "torch_mha", "F32", 1, "q_proj_weight", SINGLE},
    {"torch_mha_nobias", "torch_mha", "F32", 1, "in_proj_weight", SINGLE},
    {"torch_mha_self", "torch_mha", "F32", 1, "in_proj_weight", SINGLE},
    {"torch_mha_zero_attn", "torch_mha", "F32", 1, "in_proj_weight", SINGLE},
};

/* The tensor `pattern` of layer `layer` in a golden folder; NULL if there is none. */
static float *golden_tensor(size_t *count, const char *name, const char *file, const char *pattern,
                            size_t layer)
{
    char where[SCRATCH_PATH], tensor[SCRATCH_PATH], shard[SCRATCH_PATH];
    const char *star = strchr(pattern, '*');
    if (star == NULL)
        snprintf(tensor, sizeof tensor, "%s", pattern);
    else
        snprintf(tensor, sizeof tensor, "%.*s%zu%s", (int)(star - pattern), pattern, layer,
                 star + 1);
    snprintf(shard, sizeof shard, "model-%05zu-of-00002.safetensors", layer + 1);
    cases_golden(where, name);
    return scratch_tensor(count, where, file != NULL ? file : shard, tensor);
}

/* Compares got[o][i] with raw, which holds it as rows from `row` on, or as columns where
 * transposed. */
static void check_weight(const struct attn_linear *got, const float *raw, size_t row,
                         bool transposed, size_t stride)
{
    for (size_t o = 0; o < got->out; o++)
        for (size_t i = 0; i < got->in; i++) {
            size_t at = transposed ? i * stride + row + o : (row + o) * got->in + i;
            ck_assert_msg(oracle_weight(got, o, i) == raw[at], "row %zu, column %zu: %a, %a", o, i,
                          (double)oracle_weight(got, o, i), (double)raw[at]);
        }
}

CASE(golden, setup, teardown, 60)

TEST_EACH(model_loads_golden_checkpoint_with_its_query_weights, COUNT(golden))
{
    char where[SCRATCH_PATH];
    cases_golden(where, golden[_i].name);
    struct attn_model *model = cases_open(where, NULL);
    ck_assert_ptr_null(attn_model_loaded_layer(model, 0));
    cases_load(model);
    cases_load(model); /* a second load does nothing */

    struct attn_model_info info;
    attn_model_describe(&info, model);
    ck_assert_str_eq(info.family, golden[_i].family);
    ck_assert_str_eq(info.weights_dtype, golden[_i].dtype);
    ck_assert_uint_eq(info.num_layers, golden[_i].layers);
    ck_assert_uint_eq(info.num_resident, golden[_i].layers);
    ck_assert_uint_eq(strlen(info.fingerprint), 16);

    bool transposed = strcmp(golden[_i].family, "gpt2") == 0;
    for (size_t l = 0; l < golden[_i].layers; l++) {
        size_t count;
        float *raw = golden_tensor(&count, golden[_i].name, golden[_i].file, golden[_i].query, l);
        ck_assert_ptr_nonnull(raw);
        const struct attn_layer *layer = attn_model_loaded_layer(model, l);
        ck_assert_ptr_nonnull(layer);
        check_weight(&layer->q, raw, 0, transposed, count / layer->q.in);
        free(raw);
    }
    attn_model_close(model);
}

TEST(model_splits_fused_weights_and_biases)
{
    const struct {
        const char *name, *weight, *bias, *o_weight, *o_bias;
    } fused[] = {
        {"gpt2", "h.*.attn.c_attn.weight", "h.*.attn.c_attn.bias", "h.*.attn.c_proj.weight",
         "h.*.attn.c_proj.bias"},
        {"torch_encoder_stack", "layers.*.self_attn.in_proj_weight",
         "layers.*.self_attn.in_proj_bias", "layers.*.self_attn.out_proj.weight",
         "layers.*.self_attn.out_proj.bias"},
    };
    for (size_t f = 0; f < 2; f++) {
        char where[SCRATCH_PATH];
        size_t count;
        cases_golden(where, fused[f].name);
        struct attn_model *model = cases_open(where, NULL);
        cases_load(model);
        const struct attn_layer *layer = attn_model_loaded_layer(model, 1);
        const struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v};
        float *weight = golden_tensor(&count, fused[f].name, SINGLE, fused[f].weight, 1);
        float *bias = golden_tensor(&count, fused[f].name, SINGLE, fused[f].bias, 1);
        for (size_t i = 0; i < 3; i++) {
            check_weight(linears[i], weight, i * 64, f == 0, 192);
            ck_assert_mem_eq(linears[i]->bias, bias + i * 64, 64 * sizeof *bias);
        }
        free(weight);
        free(bias);
        weight = golden_tensor(&count, fused[f].name, SINGLE, fused[f].o_weight, 1);
        bias = golden_tensor(&count, fused[f].name, SINGLE, fused[f].o_bias, 1);
        check_weight(&layer->o, weight, 0, f == 0, 64);
        ck_assert_mem_eq(layer->o.bias, bias, 64 * sizeof *bias);
        free(weight);
        free(bias);
        attn_model_close(model);
    }
}

TEST(model_reads_torch_widths_and_extra_keys)
{
    char where[SCRATCH_PATH];
    size_t count;
    cases_golden(where, "torch_mha_cross");
    struct attn_model *model = cases_open(where, NULL);
    cases_load(model);
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    ck_assert_uint_eq(layer->spec.key_size, 48);
    ck_assert_uint_eq(layer->spec.value_size, 80);
    float *raw = golden_tensor(&count, "torch_mha_cross", SINGLE, "v_proj_weight", 0);
    check_weight(&layer->v, raw, 0, false, 0);
    free(raw);
    attn_model_close(model);

    cases_golden(where, "torch_mha_bias_kv");
    model = cases_open(where, NULL);
    cases_load(model);
    layer = attn_model_loaded_layer(model, 0);
    ck_assert(layer->spec.bias_kv && !layer->spec.add_zero_attn);
    raw = golden_tensor(&count, "torch_mha_bias_kv", SINGLE, "bias_v", 0);
    ck_assert_mem_eq(layer->bias_v, raw, 64 * sizeof *raw);
    free(raw);
    attn_model_close(model);

    cases_golden(where, "torch_mha_zero_attn");
    model = cases_open(where, NULL);
    ck_assert(attn_model_layer(model, 0)->add_zero_attn);
    attn_model_close(model);
    cases_golden(where, "torch_mha_nobias");
    model = cases_open(where, NULL);
    cases_load(model);
    ck_assert_ptr_null(attn_model_loaded_layer(model, 0)->q.bias);
    attn_model_close(model);
}

TEST(model_keeps_only_the_chosen_layers)
{
    char where[SCRATCH_PATH];
    const size_t second[] = {1};
    const struct attn_model_options options = {.layers = second, .num_layers = 1};
    struct attn_model_info all, one;
    cases_golden(where, "llama_gqa");
    struct attn_model *model = cases_open(where, NULL);
    attn_model_describe(&all, model);
    attn_model_close(model);

    model = cases_open(where, &options);
    ck_assert_ptr_null(attn_model_layer(model, 0));
    ck_assert_ptr_null(attn_model_layer(model, 2));
    ck_assert_uint_eq(attn_model_layer(model, 1)->num_kv_heads, 2);
    ck_assert_uint_eq(attn_model_resident_index(model, 0), SIZE_MAX);
    ck_assert_uint_eq(attn_model_resident_index(model, 1), 0);
    ck_assert_uint_eq(attn_model_resident_index(model, SIZE_MAX), SIZE_MAX);
    ck_assert_uint_eq(attn_model_num_resident(model), 1);
    attn_model_describe(&one, model);
    ck_assert_uint_eq(one.num_layers, 2);
    ck_assert_uint_eq(one.num_resident, 1);
    ck_assert_uint_eq(one.weight_bytes * 2, all.weight_bytes);
    ck_assert_uint_eq(one.weight_bytes, (2 * 64 * 64 + 2 * 32 * 64) * sizeof(float));
    ck_assert_uint_eq(one.cache_bytes_per_token, 2 * 2 * 16 * sizeof(float));
    ck_assert_str_eq(one.fingerprint, "");
    cases_load(model);
    ck_assert_ptr_null(attn_model_loaded_layer(model, 0));
    size_t count;
    float *raw =
        golden_tensor(&count, "llama_gqa", SINGLE, "model.layers.*.self_attn.k_proj.weight", 1);
    check_weight(&attn_model_loaded_layer(model, 1)->k, raw, 0, false, 0);
    free(raw);
    attn_model_close(model);
}

TEST(model_refuses_layers_that_do_not_ascend_or_exist)
{
    const size_t layers[][2] = {{1, 0}, {0, 0}, {0, 2}, {0, SIZE_MAX}};
    char where[SCRATCH_PATH];
    cases_golden(where, "llama_gqa");
    for (size_t i = 0; i < 5; i++) {
        const struct attn_model_options options = {.layers = layers[i % 4],
                                                   .num_layers = i < 4 ? 2 : 0};
        struct attn_error error = {0};
        struct attn_model *model = NULL;
        ck_assert_int_eq(attn_model_open(&model, where, &options, &error), ATTN_OUT_OF_RANGE);
        ck_assert_str_eq(error.param, "layers");
        ck_assert_ptr_null(model);
    }
}

static void fingerprint(char out[17], const char *where)
{
    struct attn_model_info info;
    struct attn_model *model = cases_open(where, NULL);
    cases_load(model);
    attn_model_describe(&info, model);
    memcpy(out, info.fingerprint, 17);
    attn_model_close(model);
}

TEST(model_fingerprint_follows_weights_and_specification)
{
    char where[SCRATCH_PATH], first[17], again[17], other[17];
    cases_golden(where, "llama_mha");
    fingerprint(first, where);
    cases_copy(path, "llama_mha", NULL, NULL, 0, NULL, 0);
    fingerprint(again, path);
    ck_assert_str_eq(first, again);

    /* One weight becomes 1e-45, the smallest float. */
    const uint32_t tiny = 1;
    cases_copy(path, "llama_mha", NULL, "model.layers.1.self_attn.o_proj.weight", 40, &tiny, 4);
    fingerprint(other, path);
    ck_assert_str_ne(first, other);

    cases_copy(path, "llama_mha", LLAMA ",\"rope_theta\":10001,\"max_position_embeddings\":2048}",
               NULL, 0, NULL, 0);
    fingerprint(other, path);
    ck_assert_str_ne(first, other);
}

TEST(model_refuses_nan_weight_with_tensor_and_index)
{
    const uint32_t nan = 0x7fc00000;
    struct attn_error error = {0};
    cases_copy(path, "gpt2", NULL, "h.1.attn.c_attn.weight", 4 * 777, &nan, 4);
    struct attn_model *model = cases_open(path, NULL);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_NON_FINITE);
    ck_assert_str_eq(error.param, "h.1.attn.c_attn.weight");
    ck_assert_ptr_nonnull(strstr(error.message, "777"));
    ck_assert_ptr_null(attn_model_loaded_layer(model, 0));
    ck_assert_int_eq(attn_model_load(model, NULL), ATTN_NON_FINITE); /* and again */
    attn_model_close(model);

    /* A NaN outside attention, or in a layer that is not wanted, is not looked at. */
    cases_copy(path, "gpt2", NULL, "wte.weight", 0, &nan, 4);
    model = cases_open(path, NULL);
    cases_load(model);
    attn_model_close(model);
    const size_t zeroth[] = {0};
    cases_copy(path, "gpt2", NULL, "h.1.attn.c_attn.weight", 0, &nan, 4);
    model = cases_open(path, &(struct attn_model_options){.layers = zeroth, .num_layers = 1});
    cases_load(model);
    attn_model_close(model);
}

CASES_OF(golden)

Suite *suite_model(void)
{
    Suite *suite = suite_create("model");
    cases_of_config(suite);
    cases_of_defaults(suite);
    cases_of_hybrids(suite);
    cases_of_families(suite);
    cases_of_published(suite);
    cases_of_encoders(suite);
    cases_of_stacks(suite);
    cases_of_layouts(suite);
    cases_of_golden(suite);
    cases_of_checkpoint(suite);
    cases_of_random(suite);
    return suite;
}
