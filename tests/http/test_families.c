/* test_families.c: what GET /models says of layers, stacks that attend over another sequence, and
 * calls that replace a layer's window or cap. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "suites.h"
#include "tensors.h"
#include "text.h"

enum { WIDTH = 24, T5_WIDTH = 20 };

static const struct {
    const char *name, *folder, *more;
} models[] = {
    {"gemma2", "gemma2", ""},
    {"gpt_oss", "gpt_oss", ""},
    {"mistral", "mistral", ""},
    {"bloom", "bloom", ""},
    {"qwen3", "qwen3", ""},
    {"gptj", "gptj", ""},
    {"longrope", "phi3_longrope", ""},
    {"dynamic", "llama_dynamic", ""},
    {"last", "qwen2_sliding", ",\"layers\":[2]"},
    {"t5", "t5", ""},
    {"t5.encoder", "t5", ",\"stack\":\"encoder\""},
    {"t5.cross", "t5", ",\"stack\":\"cross\""},
    {"gemma4", "../golden/gemma4_kv_shared", ""},
    {"dinov3", "../golden/dinov3_vit", ""},
    {"beit", "../golden/beit", ""},
    {"wavlm", "../golden/wavlm", ""},
    {"wav2vec2_bert", "../golden/wav2vec2_bert", ""},
    {"deberta", "../golden/deberta", ""},
    {"big_bird", "../golden/big_bird", ""},
};

/* A random model with what no folder here has. */
static const char drawn[] =
    "{\"hidden_size\":12,\"num_attention_heads\":3,\"num_hidden_layers\":4,\"qk_norm\":true,"
    "\"qk_norm_type\":\"layer_norm\",\"qk_norm_extent\":\"all_heads\",\"qk_norm_bias\":true,"
    "\"qk_norm_after_rope\":true,\"v_norm\":true,\"attn_output_gate\":true,\"attn_scale\":0.5,"
    "\"output_norm\":true,\"clip_qkv\":0.75,\"key_multiplier\":0.5,\"rope_reversed\":true,"
    "\"floor_scale\":8,\"attn_scale_by_slot\":true,\"attention_chunk_size\":6,"
    "\"sliding_window\":4,\"is_causal\":false,\"rope_theta\":10000,\"no_rope_layers\":[1,0,1,1],"
    "\"layer_types\":[\"chunked_attention\",\"chunked_attention\",\"sliding_attention\","
    "\"full_attention\"],\"partial_rotary_factor\":0.5,"
    "\"rope_scaling\":{\"rope_type\":\"proportional\"}}";

static void set_up(void)
{
    struct text config = {0};
    char whole[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("tests/reference", whole));
    text_add(&config, "{\"host\":\"127.0.0.1\",\"port\":0,\"models\":[");
    for (size_t i = 0; i < COUNT(models); i++)
        text_add(&config, "%s{\"name\":\"%s\",\"path\":\"%s/%s/model\"%s}", i > 0 ? "," : "",
                 models[i].name, whole, models[i].folder, models[i].more);
    text_add(&config, ",{\"name\":\"drawn\",\"random\":%s}]}", drawn);
    serve(config.data);
    text_free(&config);
}

/* ---- /models --------------------------------------------------------------------------------- */

/* Members of GET /models/{name}, and their values as JSON. */
static const struct {
    const char *model, *member, *value;
} said[] = {
    {"gemma2", "family", "\"gemma2\""},
    {"gemma2", "stack", "null"},
    {"gemma2", "softcap", "2.0"},
    {"gemma2", "sliding_window", "5"},
    {"gemma2", "mask", "\"sliding_window\""},
    {"gemma2", "differing_layers", "[{\"layer\":1,\"mask\":\"causal\",\"sliding_window\":null}]"},
    {"gpt_oss", "sinks", "true"},
    {"gpt_oss", "weights_dtype", "\"BF16\""},
    {"gpt_oss", "biases", "{\"query\":true,\"key\":true,\"value\":true,\"output\":true}"},
    {"mistral", "differing_layers", "[]"},
    {"mistral", "softcap", "null"},
    {"mistral", "qk_norm", "null"},
    {"mistral", "position_bias", "null"},
    {"bloom", "rope", "null"},
    {"bloom", "position_bias",
     "{\"type\":\"alibi\",\"scale\":1.0,\"bfloat16\":false,\"by_slot\":false}"},
    {"qwen3", "qk_norm",
     "{\"type\":\"rms\",\"eps\":1e-06,\"extent\":\"head\",\"weightless\":false,"
     "\"bias\":false,\"after_rope\":false}"},
    {"qwen3", "v_norm", "null"},
    {"qwen3", "query_scaling", "null"},
    {"qwen3", "output_gate", "false"},
    {"drawn", "qk_norm",
     "{\"type\":\"layer\",\"eps\":1e-06,\"extent\":\"all_heads\",\"weightless\":false,"
     "\"bias\":true,\"after_rope\":true}"},
    {"drawn", "v_norm",
     "{\"type\":\"rms\",\"eps\":1e-06,\"extent\":\"head\",\"weightless\":true,"
     "\"bias\":false,\"after_rope\":false}"},
    {"drawn", "output_gate", "true"},
    {"drawn", "output_norm",
     "{\"type\":\"rms\",\"eps\":1e-06,\"extent\":\"all_heads\",\"weightless\":false,"
     "\"bias\":false,\"after_rope\":false}"},
    {"drawn", "clip_qkv", "0.75"},
    {"drawn", "key_multiplier", "0.5"},
    {"qwen3", "clip_qkv", "null"},
    {"drawn", "mask", "\"chunked\""},
    {"drawn", "attention_chunk_size", "6"},
    {"drawn", "query_scaling", "{\"beta\":0.5,\"period\":8.0,\"next\":false,\"by_slot\":true}"},
    {"drawn", "rope",
     "{\"type\":\"proportional\",\"theta\":10000.0,\"dim\":4,\"interleaved\":false,"
     "\"reversed\":true,\"proportional_dim\":2}"},
    {"drawn", "differing_layers",
     "[{\"layer\":1,\"rope\":null},{\"layer\":2,\"mask\":\"sliding_window\","
     "\"sliding_window\":4,\"attention_chunk_size\":null},"
     "{\"layer\":3,\"mask\":\"full\",\"attention_chunk_size\":null}]"},
    {"gptj", "rope", "{\"type\":\"default\",\"theta\":10000.0,\"dim\":8,\"interleaved\":true}"},
    {"dinov3", "rope",
     "{\"type\":\"default\",\"theta\":100.0,\"dim\":8,\"interleaved\":false,\"grid_prefix\":5}"},
    {"beit", "position_bias", "{\"type\":\"grid\",\"grid\":4}"},
    {"wavlm", "position_bias",
     "{\"type\":\"t5\",\"buckets\":16,\"max_distance\":24,\"bidirectional\":true,\"gated\":true}"},
    {"wav2vec2_bert", "position_bias",
     "{\"type\":\"relative_key\",\"max_distance\":6,\"max_after\":3}"},
    {"deberta", "position_bias",
     "{\"type\":\"disentangled\",\"buckets\":0,\"max_distance\":24,\"content_to_position\":true,"
     "\"position_to_content\":true,\"own_projections\":true}"},
    {"deberta", "max_tokens", "null"},
    {"big_bird", "max_tokens", "704"},
    {"big_bird", "max_length", "40"},
    {"longrope", "max_length", "64"},
    {"dynamic", "max_position", "16"},
    {"dynamic", "max_length", "64"}, /* fourfold, by RoPE's scaling */
    {"dynamic", "rope",
     "{\"type\":\"dynamic\",\"theta\":10000.0,\"dim\":12,\"interleaved\":false,\"factor\":4.0,"
     "\"original_max_position_embeddings\":16.0}"},
    {"last", "num_layers", "3"},
    {"last", "resident_layers", "[2]"},
    {"last", "sliding_window", "4"},
    {"t5", "stack", "\"decoder\""},
    {"t5", "is_causal", "true"},
    {"t5.encoder", "stack", "\"encoder\""},
    {"t5.encoder", "mask", "\"full\""},
    {"t5.encoder", "position_bias",
     "{\"type\":\"t5\",\"buckets\":8,\"max_distance\":20,\"bidirectional\":true}"},
    {"t5.cross", "stack", "\"cross\""},
    {"t5.cross", "is_cross", "true"},
    {"t5.cross", "position_bias", "null"},
};

CASE(families, set_up, serve_end, 0)

TEST(models_report_their_layers)
{
    for (size_t i = 0; i < COUNT(said); i++) {
        char path[64];
        snprintf(path, sizeof path, "/models/%s", said[i].model);
        struct answer answer = client_get(&client, path);
        expect_answer(&answer, 200, NULL, path);
        json_t *want = json_loads(said[i].value, JSON_DECODE_ANY, NULL);
        char *got = exact_text(answer.json, said[i].member);
        ck_assert_msg(
            want != NULL && json_equal(json_object_get(answer.json, said[i].member), want),
            "%s: %s is %s, expected %s", said[i].model, said[i].member, got, said[i].value);
        free(got);
        json_decref(want);
        answer_free(&answer);
    }
}

/* Of four layers the third reads the first, the fourth the second. */
TEST(models_say_whose_keys_and_values_a_layer_reads)
{
    struct answer answer = client_get(&client, "/models/gemma4");
    expect_answer(&answer, 200, NULL, "/models/gemma4");
    const json_t *differing = json_object_get(answer.json, "differing_layers");
    ck_assert(json_is_null(json_object_get(answer.json, "shares_layer")));
    ck_assert_uint_eq(json_array_size(differing), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *layer = json_array_get(differing, i);
        const json_t *shares = json_object_get(layer, "shares_layer");
        ck_assert_int_eq(json_integer_value(json_object_get(layer, "layer")), (json_int_t)i + 1);
        ck_assert(i == 0 ? shares == NULL
                         : json_is_integer(shares) && json_integer_value(shares) + 1 == (int)i);
    }
    answer_free(&answer);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void add_rows(struct text *body, const char *name, unsigned seed, size_t rows, size_t width)
{
    float numbers[24 * WIDTH];
    ck_assert_uint_le(rows * width, 24 * WIDTH);
    make_numbers(numbers, rows * width, seed);
    text_add(body, ",\"%s\":", name);
    text_floats(body, numbers, 9, SHAPE(rows, width));
}

/* POSTs `rows` rows for the model's layer 0, with further members. */
static struct answer post(const char *path, const char *model, size_t rows, size_t width,
                          const char *extra)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"%s\"", model);
    add_rows(&body, "hidden_states", 1, rows, width);
    text_add(&body, "%s}", extra);
    struct answer answer = client_post(&client, path, body.data);
    text_free(&body);
    return answer;
}

static void refuse(const char *path, const char *model, size_t width, const char *extra,
                   const char *param)
{
    struct answer answer = post(path, model, 2, width, extra);
    expect_answer(&answer, 422, "unsupported", extra);
    const json_t *error = json_object_get(answer.json, "error");
    ck_assert_str_eq(json_string_value(json_object_get(error, "param")), param);
    answer_free(&answer);
}

TEST(a_cross_stack_needs_other_rows_also_for_a_session)
{
    struct text encoder = {0};
    add_rows(&encoder, "encoder_hidden_states", 2, 5, T5_WIDTH);
    struct answer answer = post("/attend", "t5.cross", 2, T5_WIDTH, encoder.data);
    expect_answer(&answer, 200, NULL, "cross");
    answer_free(&answer);
    refuse("/attend", "t5.cross", T5_WIDTH, "", "hidden_states");
    answer = post("/decode", "t5.cross", 2, T5_WIDTH, ",\"session_id\":\"x\",\"start\":true");
    expect_answer(&answer, 422, "unsupported", "a step that starts without encoder rows");
    answer_free(&answer);
    expect_posted(&client, "/sessions", "{\"model\":\"t5.cross\"}", 422, "unsupported");
    answer = client_get(&client, "/sessions");
    ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "sessions")), 0);
    answer_free(&answer);
    text_free(&encoder);
}

TEST(rotary_layers_refuse_other_rows)
{
    struct text encoder = {0}, keys = {0};
    add_rows(&encoder, "encoder_hidden_states", 2, 5, WIDTH);
    add_rows(&keys, "key_hidden_states", 2, 5, WIDTH);
    add_rows(&keys, "value_hidden_states", 3, 5, WIDTH);
    refuse("/attend", "mistral", WIDTH, encoder.data, "encoder_hidden_states");
    refuse("/attend", "mistral", WIDTH, keys.data, "key_hidden_states");
    text_free(&encoder);
    text_free(&keys);
}

/* Fails unless two calls give the same output, or different ones. */
static void compare(const char *model, const char *a, const char *b, bool same)
{
    struct answer x = post("/attend", model, 9, WIDTH, a), y = post("/attend", model, 9, WIDTH, b);
    expect_answer(&x, 200, NULL, a);
    expect_answer(&y, 200, NULL, b);
    ck_assert_msg(
        json_equal(json_object_get(x.json, "output"), json_object_get(y.json, "output")) == same,
        "%s: \"%s\" and \"%s\" %s", model, a, b, same ? "differ" : "do not differ");
    answer_free(&x);
    answer_free(&y);
}

TEST(a_layers_window_and_cap_can_be_replaced_and_removed)
{
    compare("mistral", "", ",\"sliding_window\":5", true);
    compare("mistral", "", ",\"sliding_window\":null", true);
    compare("mistral", "", ",\"sliding_window\":[-1,-1]", false);
    compare("mistral", ",\"sliding_window\":[-1,-1]", ",\"sliding_window\":9", true);
    compare("gemma2", "", ",\"softcap\":2", true);
    compare("gemma2", "", ",\"softcap\":null", true);
    compare("gemma2", "", ",\"softcap\":0", false);
    compare("gemma2", "", ",\"softcap\":1.5", false);
    compare("gemma2", ",\"softcap\":0", ",\"softcap\":0,\"scale\":0.5", false);
}

static void expect_grid(const char *path, const char *model, size_t rows, const char *more,
                        long status, const char *code, const char *param)
{
    struct answer answer = post(path, model, rows, 32, more);
    expect_answer(&answer, status, code, more);
    if (param != NULL)
        ck_assert_str_eq(
            json_string_value(json_object_get(json_object_get(answer.json, "error"), "param")),
            param);
    answer_free(&answer);
}

TEST(a_grid_is_needed_by_layers_that_rotate_by_it_and_by_no_other)
{
    expect_grid("/attend", "dinov3", 15, ",\"grid\":[2,5]", 200, NULL, NULL);
    expect_grid("/attend", "dinov3", 15, "", 422, "unsupported", "grid");
    expect_grid("/attend", "dinov3", 15, ",\"grid\":[2,4]", 422, "shape_mismatch", "grid");
    expect_grid("/attend", "dinov3", 15, ",\"grid\":[0,4]", 422, "number_out_of_range", "grid");
    expect_grid("/attend", "dinov3", 15, ",\"grid\":[10]", 422, "shape_mismatch", "grid");
    expect_grid("/attend", "wavlm", 15, ",\"grid\":[2,5]", 422, "unsupported", "grid");
    expect_grid("/attend", "beit", 17, "", 200, NULL, NULL);
    expect_grid("/attend", "beit", 16, "", 422, "shape_mismatch", "hidden_states");
    expect_grid("/attend", "beit", 17, ",\"session_id\":\"s\",\"start\":true", 422, "unsupported",
                "session_id");
    expect_grid("/decode", "dinov3", 15, ",\"session_id\":\"s\",\"start\":true", 422, "unsupported",
                "session_id");
}

SUITE(families)
