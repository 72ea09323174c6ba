/* model_stacks.c: configurations of encoder-decoders, and of decoders over another model's encoder:
 * which keys count in which stack. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "families/config.h"
#include "layers/layer.h"
#include "model_cases.h"

#define NLLB                                                                                   \
    "{\"_name_or_path\":\"facebook/nllb-200-distilled-600M\",\"activation_dropout\":0.0,"      \
    "\"activation_function\":\"relu\",\"architectures\":[\"M2M100ForConditionalGeneration\"]," \
    "\"attention_dropout\":0.1,\"bos_token_id\":0,\"d_model\":1024,"                           \
    "\"decoder_attention_heads\":16,\"decoder_ffn_dim\":4096,\"decoder_layerdrop\":0,"         \
    "\"decoder_layers\":12,\"decoder_start_token_id\":2,\"dropout\":0.1,"                      \
    "\"encoder_attention_heads\":16,\"encoder_ffn_dim\":4096,\"encoder_layerdrop\":0,"         \
    "\"encoder_layers\":12,\"eos_token_id\":2,\"init_std\":0.02,\"is_encoder_decoder\":true,"  \
    "\"max_length\":200,\"max_position_embeddings\":1024,\"model_type\":\"m2m_100\","          \
    "\"num_hidden_layers\":12,\"pad_token_id\":1,\"scale_embedding\":true,"                    \
    "\"tokenizer_class\":\"NllbTokenizer\",\"torch_dtype\":\"float16\","                       \
    "\"transformers_version\":\"4.44.2\",\"use_cache\":true,\"vocab_size\":256206}"
#define MLLAMA                                                                                   \
    "{\"architectures\":[\"MllamaForConditionalGeneration\"],\"image_token_index\":128256,"      \
    "\"model_type\":\"mllama\",\"text_config\":{\"add_cross_attention\":false,"                  \
    "\"architectures\":null,\"cross_attention_hidden_size\":null,\"cross_attention_layers\":"    \
    "[3,8,13,18,23,28,33,38,43,48,53,58,63,68,73,78,83,88,93,98],\"dropout\":0,"                 \
    "\"hidden_act\":\"silu\",\"hidden_size\":8192,\"initializer_range\":0.02,"                   \
    "\"intermediate_size\":28672,\"is_decoder\":false,\"is_encoder_decoder\":false,"             \
    "\"max_position_embeddings\":131072,\"model_type\":\"mllama_text_model\","                   \
    "\"num_attention_heads\":64,\"num_hidden_layers\":100,\"num_key_value_heads\":8,"            \
    "\"pruned_heads\":{},\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":8.0,"               \
    "\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,\"original_max_position_embeddings\":"     \
    "8192,\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,\"torchscript\":false,"              \
    "\"use_cache\":true,\"vocab_size\":128256},\"torch_dtype\":\"bfloat16\",\"vision_config\":{" \
    "\"hidden_size\":1280}}"

#define SIZES "\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":4"
#define T5_SIZES "\"num_heads\":4,\"d_model\":16,\"d_kv\":4,\"num_layers\":2"
#define BART_SIZES "\"d_model\":64,\"decoder_attention_heads\":4,\"decoder_layers\":2"
#define T5GEMMA "{\"model_type\":\"t5_gemma_module\"," SIZES ",\"sliding_window\":8}"
#define BLIP(text, vision) \
    "{\"model_type\":\"blip\",\"text_config\":{" SIZES text "},\"vision_config\":" vision "}"
#define OF_MLLAMA(list)                                  \
    "{\"model_type\":\"mllama\",\"text_config\":{" SIZES \
    ",\"num_key_value_heads\":2,\"cross_attention_layers\":" list "}}"
#define VISION_DECODER(settings) \
    "{\"model_type\":\"vision-encoder-decoder\",\"decoder\":{" settings "}}"

static void read_stack(struct attn_config *config, const char *text, const char *stack)
{
    struct attn_error error = {0};
    ck_assert_msg(attn_config_read(config, &(struct attn_config_options){.stack = stack}, text,
                                   strlen(text), &error) == ATTN_OK,
                  "%s", error.message);
}

/* ---- Refused --------------------------------------------------------------------------------- */

static const struct {
    const char *text, *stack, *key;
    enum attn_status status;
} refused[] = {
    {"{\"model_type\":\"mvp\"," BART_SIZES ",\"use_prompt\":true}", NULL, "use_prompt",
     ATTN_UNSUPPORTED},
    {"{\"model_type\":\"longt5\"," T5_SIZES ",\"encoder_attention_type\":\"transient-global\"}",
     "encoder", "encoder_attention_type", ATTN_UNSUPPORTED},
    {VISION_DECODER("\"model_type\":\"gpt2\""), NULL, "decoder", ATTN_UNSUPPORTED},
    {BLIP("", "7"), "cross", "vision_config", ATTN_MALFORMED},
    {BLIP("", "{\"hidden_size\":\"48\"}"), "cross", "vision_config.hidden_size", ATTN_MALFORMED},
    {BLIP("", "{\"hidden_size\":0}"), "cross", "vision_config.hidden_size", ATTN_OUT_OF_RANGE},
    {"{\"model_type\":\"mllama\",\"text_config\":{" SIZES ",\"num_key_value_heads\":2}}", NULL,
     "cross_attention_layers", ATTN_MALFORMED},
    {OF_MLLAMA("[]"), NULL, "cross_attention_layers", ATTN_MALFORMED},
    {OF_MLLAMA("[0,1,2,3]"), NULL, "cross_attention_layers", ATTN_MALFORMED},
    {OF_MLLAMA("[4]"), NULL, "cross_attention_layers", ATTN_OUT_OF_RANGE},
    {OF_MLLAMA("[1024]"), NULL, "cross_attention_layers", ATTN_OUT_OF_RANGE},
    {OF_MLLAMA("[-1]"), NULL, "cross_attention_layers", ATTN_OUT_OF_RANGE},
    {OF_MLLAMA("[\"1\"]"), NULL, "cross_attention_layers", ATTN_MALFORMED},
    {OF_MLLAMA("1"), NULL, "cross_attention_layers", ATTN_MALFORMED},
    {"{\"model_type\":\"speecht5\",\"hidden_size\":64,\"encoder_attention_heads\":4,"
     "\"encoder_layers\":2,\"encoder_max_relative_position\":5000}",
     "encoder", "encoder_max_relative_position", ATTN_OUT_OF_RANGE},
    {"{\"model_type\":\"musicgen_melody\",\"decoder\":{" SIZES "}}", "cross", "stack",
     ATTN_UNSUPPORTED},
};

TEST_EACH(config_of_stacks_refuses_what_is_not_computed_by_name, COUNT(refused))
{
    struct attn_error error = {0};
    struct attn_config config;
    const char *text = refused[_i].text;
    ck_assert_int_eq(attn_config_read(&config,
                                      &(struct attn_config_options){.stack = refused[_i].stack},
                                      text, strlen(text), &error),
                     refused[_i].status);
    ck_assert_str_eq(error.param, refused[_i].key);
}

/* ---- Read ------------------------------------------------------------------------------------ */

TEST(config_of_nllb_has_three_stacks)
{
    static const char *const stacks[] = {NULL, "encoder", "cross"};
    struct attn_error error;
    struct attn_config config;
    struct attn_layer_spec spec;
    for (size_t i = 0; i < 3; i++) {
        read_stack(&config, NLLB, stacks[i]);
        attn_config_layer_spec(&spec, &config, 11);
        ck_assert(config.num_layers == 12 && spec.num_heads == 16 && spec.head_dim == 64);
        ck_assert(spec.is_causal == (i == 0) && spec.is_cross == (i == 2));
        ck_assert(spec.q_bias && spec.k_bias && spec.v_bias && spec.o_bias);
        ck_assert_int_eq(attn_layer_check(&spec, &error), ATTN_OK);
    }
}

TEST(config_of_encoders_with_windows_counts_both_ends)
{
    const char *t5gemma =
        "{\"model_type\":\"t5gemma\",\"encoder\":" T5GEMMA ",\"decoder\":" T5GEMMA "}";
    const char *longt5 = "{\"model_type\":\"longt5\"," T5_SIZES ",\"local_radius\":7}";
    struct attn_config config;
    struct attn_layer_spec spec;
    for (size_t i = 0; i < 4; i++) {
        read_stack(&config, t5gemma, "encoder");
        attn_config_layer_spec(&spec, &config, i);
        ck_assert_uint_eq(spec.sliding_window, i % 2 == 0 ? 9 : 0);
        ck_assert(!spec.is_causal && spec.rope.type == ATTN_ROPE_DEFAULT);
        read_stack(&config, t5gemma, "decoder");
        attn_config_layer_spec(&spec, &config, i);
        ck_assert_uint_eq(spec.sliding_window, i % 2 == 0 ? 8 : 0);
        ck_assert(spec.is_causal);
        read_stack(&config, t5gemma, "cross");
        attn_config_layer_spec(&spec, &config, i);
        ck_assert(spec.sliding_window == 0 && spec.rope.type == ATTN_ROPE_NONE);
    }
    read_stack(&config, longt5, "encoder");
    attn_config_layer_spec(&spec, &config, 1);
    ck_assert_uint_eq(spec.sliding_window, 8);
}

/* The width of the rows comes from the other model's settings, whatever stands beside it. */
TEST(config_of_cross_stacks_has_the_width_of_the_encoder)
{
    static const struct {
        const char *text;
        size_t width;
    } cases[] = {
        {BLIP(",\"encoder_hidden_size\":24", "{\"hidden_size\":48}"), 48},
        {BLIP(",\"encoder_hidden_size\":24", "{}"), 768},
        {"{\"model_type\":\"t5gemma\",\"encoder\":{\"hidden_size\":40},\"decoder\":" T5GEMMA "}",
         40},
        {VISION_DECODER("\"model_type\":\"trocr\"," BART_SIZES
                        ",\"cross_attention_hidden_size\":24"),
         24},
        {VISION_DECODER("\"model_type\":\"mbart\"," BART_SIZES
                        ",\"cross_attention_hidden_size\":null"),
         64},
    };
    struct attn_config config;
    struct attn_layer_spec spec;
    for (size_t i = 0; i < COUNT(cases); i++) {
        read_stack(&config, cases[i].text, "cross");
        attn_config_layer_spec(&spec, &config, 0);
        ck_assert_uint_eq(spec.key_size, cases[i].width);
        ck_assert_uint_eq(spec.value_size, cases[i].width);
        ck_assert(spec.is_cross && spec.hidden_size == 64);
    }
}

TEST(config_of_speecht5_has_one_key_less_before_a_query)
{
    const char *text = "{\"model_type\":\"speecht5\",\"hidden_size\":64,"
                       "\"encoder_attention_heads\":4,\"encoder_layers\":2}";
    struct attn_config config;
    read_stack(&config, text, "encoder");
    const struct attn_layer_spec *spec = &config.specs[0];
    ck_assert_int_eq(spec->position_bias.type, ATTN_BIAS_RELATIVE_KEY);
    ck_assert(spec->position_bias.max_distance == 159 && spec->position_bias.max_after == 160);
    ck_assert_uint_eq(attn_relative_rows(spec), 320);
    ck_assert_double_eq_tol(spec->scale, 0.25, 1e-15);
}

/* ---- Layers divided between stacks ----------------------------------------------------------- */

TEST(config_of_mllama_divides_its_layers)
{
    struct attn_config decoder, cross;
    struct attn_layer_spec spec;
    read_stack(&decoder, MLLAMA, NULL);
    read_stack(&cross, MLLAMA, "cross");
    for (size_t i = 0; i < 100; i++) {
        ck_assert(attn_config_attends(&decoder, i) == (i % 5 != 3));
        ck_assert(attn_config_attends(&cross, i) == (i % 5 == 3));
    }
    attn_config_layer_spec(&spec, &decoder, 99);
    ck_assert(spec.rope.type == ATTN_ROPE_LLAMA3 && spec.qk_norm.type == ATTN_NORM_NONE);
    ck_assert(spec.is_causal && !spec.is_cross && spec.num_kv_heads == 8);
    attn_config_layer_spec(&spec, &cross, 98);
    ck_assert(spec.rope.type == ATTN_ROPE_NONE && spec.qk_norm.type == ATTN_NORM_RMS);
    ck_assert(!spec.is_causal && spec.is_cross && spec.num_kv_heads == 8);
}

TEST(model_of_divided_layers_has_each_in_one_stack)
{
    static const size_t layers[] = {1};
    static const char *const stacks[] = {"decoder", "cross"};
    const char *path = "tests/golden/mllama/model";
    struct attn_model_info info;
    struct attn_model *model;
    struct attn_error error;
    for (size_t s = 0; s < 2; s++) {
        model = cases_open(path, &(struct attn_model_options){.stack = stacks[s]});
        attn_model_describe(&info, model);
        ck_assert_uint_eq(info.num_layers, 3);
        ck_assert_uint_eq(info.num_resident, s == 0 ? 2 : 1);
        ck_assert_uint_eq(info.num_linear_layers, 0);
        for (size_t i = 0; i < 3; i++)
            ck_assert((attn_model_layer(model, i) != NULL) == ((i == 1) == (s == 1)));
        attn_model_close(model);
    }
    const struct attn_model_options chosen = {.layers = layers, .num_layers = 1};
    ck_assert_int_eq(attn_model_open(&model, path, &chosen, &error), ATTN_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "layers has 1, which is a layer of another stack"));
}

/* ---- Tables of layers ------------------------------------------------------------------------ */

TEST(model_counts_a_table_of_each_layer_for_each)
{
    const char *umt5 = "tests/golden/umt5/model", *speecht5 = "tests/golden/speecht5/model";
    const size_t one = cases_parameters(speecht5, "encoder", 1);
    ck_assert_uint_eq(cases_parameters(umt5, "decoder", 2),
                      2 * cases_parameters(umt5, "decoder", 1));
    ck_assert_uint_eq(cases_parameters(speecht5, "encoder", 2), 2 * one - 10 * 6); /* [2M][D] */
}

/* The same rows for other distances are another layer. */
TEST(model_fingerprint_tells_the_distances_of_relative_keys)
{
    static const char *const sides[] = {
        "\"relative_attention_max_distance\":2,\"max_relative_after\":3}",
        "\"relative_attention_max_distance\":3,\"max_relative_after\":2}",
    };
    struct attn_model_info info[2];
    struct attn_error error;
    for (size_t i = 0; i < 2; i++) {
        char text[200];
        struct attn_model *model;
        snprintf(text, sizeof text,
                 "{\"hidden_size\":8,\"num_attention_heads\":2,"
                 "\"position_embeddings_type\":\"relative_key\",%s",
                 sides[i]);
        ck_assert_int_eq(attn_model_open_random(&model, text, strlen(text), NULL, &error), ATTN_OK);
        cases_load(model);
        attn_model_describe(&info[i], model);
        attn_model_close(model);
    }
    ck_assert_uint_eq(info[0].num_parameters, info[1].num_parameters);
    ck_assert_str_ne(info[0].fingerprint, info[1].fingerprint);
}

CASES_OF(stacks)
