/* model_random.c: the generator, and the models that it fills. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/hash.h"
#include "basics/random.h"
#include "model_cases.h"
#include "models/model.h"

#define RANDOM_2 "{\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2"
#define LONGROPE(last_long, last_short)                                                    \
    "rope_theta\":100,\"max_position_embeddings\":64,\"partial_rotary_factor\":0.25,"      \
    "\"rope_scaling\":{\"type\":\"longrope\",\"factor\":1,\"short_factor\":[1," last_short \
    "],\"long_factor\":[3," last_long "]}"
#define MSCALES(last)                                                                          \
    "rope_theta\":100,\"max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\"," \
    "\"original_max_position_embeddings\":8,\"short_factor\":[1,1,1,1,1,1,1,1],"               \
    "\"long_factor\":[1,1,1,1,1,1,1,1],\"short_mscale\":1.5,\"long_mscale\":" last "}"
#define RANDOM "{\"hidden_size\":96,\"num_attention_heads\":8"

/* ---- Random models ------------------------------------------------------------------------- */

static struct attn_model *open_random(const char *config)
{
    struct attn_error error = {0};
    struct attn_model *model = NULL;
    enum attn_status status = attn_model_open_random(&model, config, strlen(config), NULL, &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", config, error.message);
    cases_load(model);
    return model;
}

CASE(random, NULL, NULL, 60)

TEST(random_mixer_is_splitmix64)
{
    /* The first outputs of SplitMix64 seeded with 0. */
    ck_assert_uint_eq(attn_hash_mix(UINT64_C(0x9e3779b97f4a7c15)), UINT64_C(0xe220a8397b1dcdaf));
    ck_assert_uint_eq(attn_hash_mix(UINT64_C(0x9e3779b97f4a7c15) * 2),
                      UINT64_C(0x6e789e6aa1b965f4));
}

TEST(random_model_resolves_its_configuration)
{
    struct attn_model_info info;
    struct attn_model *model = open_random(
        "{\"hidden_size\":96,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":16,"
        "\"num_hidden_layers\":3,\"rope_theta\":500000,\"rope_scaling\":" LLAMA3_ROPE ","
        "\"attention_bias\":true,\"is_causal\":false,\"max_position_embeddings\":4096,"
        "\"seed\":9007199254740992}");
    const struct attn_layer_spec *spec = attn_model_layer(model, 2);
    ck_assert_uint_eq(spec->head_dim, 16);
    ck_assert_uint_eq(spec->num_kv_heads, 2);
    ck_assert_int_eq(spec->rope.type, ATTN_ROPE_LLAMA3);
    ck_assert(!spec->is_causal && spec->q_bias && spec->o_bias);
    attn_model_describe(&info, model);
    ck_assert_str_eq(info.family, "random");
    ck_assert_str_eq(info.weights_dtype, "F32");
    ck_assert_uint_eq(info.num_layers, 3);
    ck_assert_uint_eq(info.max_position, 4096);
    attn_model_close(model);

    model = open_random("{\"hidden_size\":96,\"num_attention_heads\":8}");
    spec = attn_model_layer(model, 0);
    ck_assert_int_eq(spec->rope.type, ATTN_ROPE_NONE);
    ck_assert(spec->is_causal && !spec->q_bias);
    ck_assert_uint_eq(spec->num_kv_heads, 8);
    ck_assert_uint_eq(spec->head_dim, 12);
    ck_assert_ptr_null(attn_model_layer(model, 1));
    attn_model_close(model);
}

TEST(model_of_a_dtype_that_does_not_exist_is_refused)
{
    const char *config = "{\"hidden_size\":96,\"num_attention_heads\":8}";
    const struct attn_model_options options[] = {
        {.dtype = (enum attn_dtype)99},
        {.dtype = (enum attn_dtype) - 1},
        {.kv_dtype = (enum attn_dtype)99},
        {.kv_dtype = (enum attn_dtype) - 1},
    };
    struct attn_model *model;
    struct attn_error error;
    for (size_t i = 0; i < COUNT(options); i++) {
        enum attn_status status =
            attn_model_open_random(&model, config, strlen(config), &options[i], &error);
        ck_assert_int_eq(status, ATTN_UNSUPPORTED);
        ck_assert_str_eq(error.param, i < 2 ? "dtype" : "kv_dtype");
    }
}

TEST(random_model_has_any_field_of_a_specification)
{
    struct attn_model *model = open_random(
        "{\"hidden_size\":24,\"num_attention_heads\":4,\"num_hidden_layers\":2,\"head_dim\":10,"
        "\"value_head_dim\":6,\"sliding_window\":5,\"layer_types\":[\"full_attention\","
        "\"sliding_attention\"],\"attn_logit_softcapping\":30,\"scale\":0.5,"
        "\"attention_sinks\":true,\"qk_norm\":true,\"rms_norm_eps\":1e-5,\"add_bias_kv\":true,"
        "\"add_zero_attn\":true,\"alibi\":true,\"alibi_scaled\":true,\"alibi_bfloat16\":true,"
        "\"rope_theta\":1000,\"partial_rotary_factor\":0.6,\"rope_interleaved\":true,"
        "\"max_position_embeddings\":64,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2}}");
    const struct attn_layer_spec *spec = attn_model_layer(model, 1);
    ck_assert_uint_eq(spec->value_head_dim, 6);
    ck_assert_uint_eq(spec->sliding_window, 5);
    ck_assert_uint_eq(attn_model_layer(model, 0)->sliding_window, 0);
    ck_assert_double_eq(spec->softcap, 30);
    ck_assert_double_eq(spec->scale, 0.5);
    ck_assert(spec->sinks && spec->qk_norm.type == ATTN_NORM_RMS && spec->bias_kv &&
              spec->add_zero_attn);
    ck_assert_double_eq(spec->qk_norm.eps, 1e-5);
    ck_assert_int_eq(spec->position_bias.type, ATTN_BIAS_ALIBI);
    ck_assert_double_eq_tol(spec->position_bias.scale, 1 / sqrt(10), 1e-15);
    ck_assert(spec->position_bias.bfloat16 && spec->rope.interleaved);
    ck_assert_int_eq(spec->rope.type, ATTN_ROPE_YARN);
    ck_assert_uint_eq(spec->rope.dim, 6);
    attn_model_close(model);

    model = open_random("{\"hidden_size\":24,\"num_attention_heads\":4,\"is_cross\":true,"
                        "\"is_causal\":false,\"kdim\":7,\"vdim\":9,"
                        "\"query_pre_attn_scalar\":16,\"relative_attention_num_buckets\":8}");
    spec = attn_model_layer(model, 0);
    ck_assert(spec->is_cross && spec->position_bias.bidirectional);
    ck_assert_uint_eq(spec->key_size, 7);
    ck_assert_uint_eq(spec->value_size, 9);
    ck_assert_double_eq(spec->scale, 0.25);
    ck_assert_int_eq(spec->position_bias.type, ATTN_BIAS_T5);
    ck_assert_uint_eq(spec->position_bias.max_distance, 128);
    attn_model_close(model);
}

/* Checks that all of x is in center +-bound, and not all on one side. */
static void check_spread(const float *x, size_t count, float center, float bound)
{
    size_t above = 0;
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < count; i++) {
        ck_assert_float_le(fabsf(x[i] - center), bound);
        above += x[i] > center;
    }
    ck_assert_uint_gt(above, 0);
    ck_assert_uint_lt(above, count);
}

TEST(random_weights_fill_norms_sinks_tables_and_extra_keys)
{
    struct attn_model *model = open_random(
        "{\"hidden_size\":64,\"num_attention_heads\":16,\"head_dim\":32,\"qk_norm\":true,"
        "\"attention_sinks\":true,\"add_bias_kv\":true,\"relative_attention_num_buckets\":8}");
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    check_spread(layer->q_norm, 32, 1, 0.1001f);
    check_spread(layer->k_norm, 32, 1, 0.1001f);
    check_spread(layer->sinks, 16, 0, 1);
    check_spread(layer->bias_table, 8 * 16, 0, 1);
    check_spread(layer->bias_k, 16 * 32, 0, 0.1001f);
    check_spread(layer->bias_v, 16 * 32, 0, 0.1001f);
    ck_assert_mem_ne(layer->q_norm, layer->k_norm, 32 * sizeof(float));
    attn_model_close(model);
}

TEST(random_model_refuses_unknown_and_missing_keys)
{
    const struct {
        const char *text;
        enum attn_status status;
        const char *param;
    } cases[] = {
        {"{\"hidden_size\":96}", ATTN_MALFORMED, "num_attention_heads"},
        {"{\"num_attention_heads\":8}", ATTN_MALFORMED, "hidden_size"},
        {"{\"hidden_size\":96,\"num_attention_heads\":8,\"vocab_size\":1}", ATTN_UNSUPPORTED,
         "vocab_size"},
        {"{\"hidden_size\":96,\"num_attention_heads\":8,\"_note\":1}", ATTN_UNSUPPORTED, "_note"},
        {"{\"hidden_size\":96,\"num_attention_heads\":8,\"seed\":-1}", ATTN_OUT_OF_RANGE, "seed"},
        {"{\"hidden_size\":96,\"num_attention_heads\":8,\"rope_scaling\":" LLAMA3_ROPE "}",
         ATTN_MALFORMED, "rope_theta"},
        {"{\"hidden_size\":96,\"num_attention_heads\":8,\"head_dim\":1025}", ATTN_OUT_OF_RANGE,
         "head_dim"},
        {"{\"hidden_size\":65537,\"num_attention_heads\":1}", ATTN_OUT_OF_RANGE, "hidden_size"},
        {"{\"hidden_size\":65536,\"num_attention_heads\":1}", ATTN_OUT_OF_RANGE, "head_dim"},
        {"null", ATTN_MALFORMED, ""},
        {RANDOM ",\"alibi\":true,\"relative_attention_num_buckets\":8}", ATTN_MALFORMED,
         "relative_attention_num_buckets"},
        {RANDOM ",\"is_causal\":false,\"relative_attention_num_buckets\":6,"
                "\"relative_attention_max_distance\":1}",
         ATTN_OUT_OF_RANGE, "relative_attention_max_distance"},
        {RANDOM ",\"is_causal\":false,\"relative_attention_num_buckets\":5}", ATTN_OUT_OF_RANGE,
         "relative_attention_num_buckets"},
        {RANDOM ",\"relative_attention_num_buckets\":1}", ATTN_OUT_OF_RANGE,
         "relative_attention_num_buckets"},
        {RANDOM ",\"is_cross\":true,\"rope_theta\":10000}", ATTN_UNSUPPORTED, "is_cross"},
        {RANDOM ",\"value_head_dim\":1025}", ATTN_OUT_OF_RANGE, "value_head_dim"},
        {RANDOM ",\"scale\":1e6}", ATTN_OUT_OF_RANGE, "scale"},
        {RANDOM ",\"rms_norm_eps\":2}", ATTN_OUT_OF_RANGE, "rms_norm_eps"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_error error = {0};
        struct attn_model *model = NULL;
        enum attn_status status =
            attn_model_open_random(&model, cases[i].text, strlen(cases[i].text), NULL, &error);
        ck_assert_msg(status == cases[i].status, "%s: got %s", cases[i].text,
                      attn_status_name(status));
        ck_assert_str_eq(error.param, cases[i].param);
        ck_assert_ptr_null(model);
    }
}

TEST(random_weights_are_uniform_with_variance_1_over_in)
{
    struct attn_model *model =
        open_random("{\"hidden_size\":512,\"num_attention_heads\":8,\"attention_bias\":true}");
    const struct attn_linear *q = &attn_model_loaded_layer(model, 0)->q;
    const double bound = sqrt(3.0 / 512);
    double sum = 0, squares = 0, least = 1, most = -1;
    for (size_t i = 0; i < q->in * q->out; i++) {
        double x = (double)((const float *)q->panels)[i]; /* 512 columns fill their panels */
        sum += x;
        squares += x * x;
        least = fmin(least, x);
        most = fmax(most, x);
    }
    size_t count = q->in * q->out; /* 262144: standard errors are 8.6e-5 and 0.2 % */
    ck_assert_double_lt(fabs(sum / (double)count), 5e-4);
    ck_assert_double_eq_tol(squares / (double)count * 512, 1, 0.01);
    ck_assert_double_gt(most, 0.999 * bound);
    ck_assert_double_le(most, bound);
    ck_assert_double_lt(least, -0.999 * bound);
    ck_assert_double_ge(least, -bound);
    for (size_t i = 0; i < q->out; i++)
        ck_assert_double_lt(fabs((double)q->bias[i]), 0.1);
    attn_model_close(model);
}

static void random_fingerprint(char out[17], const char *config)
{
    struct attn_model_info info;
    struct attn_model *model = open_random(config);
    attn_model_describe(&info, model);
    memcpy(out, info.fingerprint, 17);
    attn_model_close(model);
}

TEST(random_weights_follow_seed_layer_and_tensor_only)
{
    char first[17], again[17], other[17];
    const char *config = "{\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2}";
    random_fingerprint(first, config);
    random_fingerprint(again, config);
    ck_assert_str_eq(first, again);
    random_fingerprint(other, "{\"hidden_size\":64,\"num_attention_heads\":4,"
                              "\"num_hidden_layers\":2,\"seed\":1}");
    ck_assert_str_ne(first, other);

    /* Every property of a layer tells two models apart, though their weights are the same. */
    const char *others[] = {"sliding_window\":5",
                            "attn_logit_softcapping\":5",
                            "clip_qkv\":5",
                            "clip_qkv\":5.5",
                            "attn_output_gate\":true",
                            "attn_output_gate\":true,\"gate_softplus\":true",
                            "attn_output_gate\":true,\"gate_by_head\":true",
                            MSCALES("1.5"),
                            MSCALES("2"),
                            "scale\":0.3",
                            "alibi\":true",
                            "is_cross\":true",
                            "attention_sinks\":true",
                            "rope_theta\":100",
                            "rope_theta\":100,\"rope_interleaved\":true",
                            "rope_theta\":100,\"partial_rotary_factor\":0.5",
                            "rope_theta\":100,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
                            LONGROPE("4", "1"),
                            LONGROPE("4.5", "1"),
                            LONGROPE("4", "1.5")};
    char seen[COUNT(others)][17];
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[512];
        snprintf(text, sizeof text, RANDOM_2 ",\"%s}", others[i]);
        random_fingerprint(seen[i], text);
        ck_assert_str_ne(seen[i], first);
        for (size_t j = 0; j < i; j++)
            ck_assert_msg(strcmp(seen[i], seen[j]) != 0, "%s, %s", others[i], others[j]);
    }

    struct attn_model *model = open_random(config);
    const struct attn_layer *a = attn_model_loaded_layer(model, 0),
                            *b = attn_model_loaded_layer(model, 1);
    ck_assert_mem_ne(a->q.panels, b->q.panels, 64 * 64 * sizeof(float));
    ck_assert_mem_ne(a->q.panels, a->k.panels, 64 * 64 * sizeof(float));
    /* Element 0 of seed 0, layer 0, q, which must be the same on every machine. */
    float alone;
    attn_random_uniform(&alone, 1, attn_random_stream(0, 0, 0), (float)sqrt(3.0 / 64));
    ck_assert_mem_eq(&alone, a->q.panels, sizeof alone);
    attn_model_close(model);
}

/* Layer 3 reads the last sliding layer before it, layer 2 the last full one. */
TEST(random_layers_that_read_another_have_its_keys_and_values)
{
    static const size_t sources[] = {SIZE_MAX, SIZE_MAX, 0, 1};
    struct attn_model *model =
        open_random("{\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":4,"
                    "\"sliding_window\":8,"
                    "\"num_kv_shared_layers\":2,\"bias\":true,\"layer_types\":[\"full_attention\","
                    "\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}");
    for (size_t i = 0; i < 4; i++) {
        const struct attn_layer *layer = attn_model_loaded_layer(model, i);
        ck_assert_uint_eq(layer->spec.shares_layer, sources[i]);
        if (sources[i] == SIZE_MAX)
            continue;
        const struct attn_layer *source = attn_model_loaded_layer(model, sources[i]);
        ck_assert_mem_eq(layer->k.panels, source->k.panels, 64 * 64 * sizeof(float));
        ck_assert_mem_eq(layer->v.panels, source->v.panels, 64 * 64 * sizeof(float));
        ck_assert_mem_eq(layer->v.bias, source->v.bias, 64 * sizeof(float));
        ck_assert_mem_ne(layer->q.panels, source->q.panels, 64 * 64 * sizeof(float));
        ck_assert_mem_ne(layer->o.bias, source->o.bias, 64 * sizeof(float));
    }
    attn_model_close(model);
}

TEST(random_layers_refuse_to_read_others_where_no_layer_can)
{
    static const char *const others[] = {
        "is_cross\":true", "add_bias_kv\":true", "add_zero_attn\":true",
        "kv_lora_rank\":4,\"qk_nope_head_dim\":2,\"qk_rope_head_dim\":2,\"value_head_dim\":2"};
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[256];
        struct attn_model *model = NULL;
        struct attn_error error = {0};
        snprintf(text, sizeof text, RANDOM_2 ",\"num_kv_shared_layers\":1,\"%s}", others[i]);
        ck_assert_msg(attn_model_open_random(&model, text, strlen(text), NULL, &error) ==
                          ATTN_UNSUPPORTED,
                      "%s: %s", text, error.message);
    }
}

TEST(random_stream_is_pinned)
{
    const float expected[4] = {7972515 * 0x1p-24f, -7922735 * 0x1p-24f, 8377667 * 0x1p-24f,
                               -8445919 * 0x1p-24f};
    float got[4];
    attn_random_uniform(got, 4, attn_random_stream(7, 3, 2), 1);
    ck_assert_mem_eq(got, expected, sizeof got);
}

CASES_OF(random)
