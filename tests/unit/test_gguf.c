/* test_gguf.c: GGUF files: blocks as ggml decodes them, keys as the configuration that they were
 * made from, and models that must be refused.
 *
 * tests/ggml/blocks.safetensors has random blocks of each format with the numbers that ggml's
 * to_float (commit d99724f2) gave of them; tests/broken has models and refusals.json. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn.h"
#include "engine/rope.h"
#include "families/config.h"
#include "files/gguf_model.h"
#include "gguf_writer.h"
#include "layers/checkpoint.h"
#include "scratch.h"
#include "suites.h"

#define NUM_TYPES 64 /* numbers of formats that are tried */

/* The bytes of a tensor, for free. */
static void *read_tensor(size_t *size, const struct attn_safetensors *file, const char *name,
                         const char *end)
{
    char whole[64];
    const void *bytes;
    snprintf(whole, sizeof whole, "%s%s", name, end);
    const struct attn_tensor_entry *entry = attn_safetensors_find(file, whole);
    ck_assert_msg(entry != NULL, "%s", whole);
    *size = entry->end - entry->begin;
    void *room = malloc(*size);
    ck_assert_int_eq(attn_safetensors_read_bytes(&bytes, file, entry, 0, *size, room, NULL),
                     ATTN_OK);
    if (bytes != room)
        memcpy(room, bytes, *size);
    return room;
}

TEST(blocks_are_decoded_as_ggml_decodes_them)
{
    struct attn_safetensors *file;
    struct attn_error error;
    size_t tried = 0;
    ck_assert_int_eq(
        attn_safetensors_open(&file, AT_FDCWD, "tests/ggml/blocks.safetensors", &error), ATTN_OK);
    for (uint32_t number = 0; number < NUM_TYPES; number++) {
        const struct attn_ggml_type *type = attn_ggml_type(number);
        if (type == NULL || type->decode == NULL)
            continue;
        size_t blocks_size, numbers_size;
        uint8_t *blocks = read_tensor(&blocks_size, file, type->dtype.name, ".blocks");
        uint8_t *wanted = read_tensor(&numbers_size, file, type->dtype.name, ".numbers");
        float *got = malloc(numbers_size);
        const size_t count = blocks_size / type->bytes;
        ck_assert_uint_eq(count * type->numbers * sizeof(float), numbers_size);
        type->decode(got, blocks, count);
        ck_assert_msg(memcmp(got, wanted, numbers_size) == 0, "%s", type->dtype.name);
        free(got);
        free(wanted);
        free(blocks);
        tried++;
    }
    ck_assert_uint_eq(2 * tried, file->count);
    attn_safetensors_close(file);
}

/* Each directory of refusals.json is refused with a message that has its text; "" is for those
 * that are whole. */
TEST(broken_models_are_refused_in_plain_words)
{
    const char *name;
    json_t *text, *refusals = json_load_file("tests/broken/refusals.json", 0, NULL);
    ck_assert_uint_gt(json_object_size(refusals), 0);
    json_object_foreach(refusals, name, text) {
        char path[256];
        struct attn_error error = {0};
        struct attn_model *model = NULL;
        snprintf(path, sizeof path, "tests/broken/%s/model", name);
        const enum attn_status status = attn_model_open(&model, path, NULL, &error);
        const char *wanted = json_string_value(text);
        if (wanted[0] == '\0')
            ck_assert_msg(status == ATTN_OK, "%s: %s", name, error.message);
        else
            ck_assert_msg(status != ATTN_OK && strstr(error.message, wanted) != NULL, "%s: %s",
                          name, status == ATTN_OK ? "not refused" : error.message);
        attn_model_close(model);
    }
    json_decref(refusals);
}

TEST(a_further_part_is_not_a_model)
{
    struct attn_error error = {0};
    struct attn_model *model;
    ck_assert_int_ne(attn_model_open(&model,
                                     "tests/broken/gguf_split_intact/model/m-00002-of-00002.gguf",
                                     NULL, &error),
                     ATTN_OK);
    ck_assert_ptr_nonnull(strstr(error.message, "is not the first part of a split model"));
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* Writes a file of those keys and tensors and opens it as a model. */
static enum attn_status open_written(struct attn_gguf_model **model, const char *keys,
                                     const char *tensors, struct attn_error *error)
{
    char directory[SCRATCH_PATH];
    size_t size;
    void *bytes = gguf_write(&size, keys, tensors);
    scratch_make(directory);
    scratch_write(directory, "m.gguf", bytes, size);
    free(bytes);
    const int at = open(directory, O_RDONLY | O_DIRECTORY);
    *model = NULL;
    const enum attn_status status = attn_gguf_model_open(model, at, "m.gguf", error);
    close(at);
    scratch_remove(directory);
    return status;
}

/* Writes a model of two parts, with the tensors in the second, and opens it. */
static enum attn_status open_split(struct attn_gguf_model **model, const char *keys,
                                   const char *tensors, struct attn_error *error)
{
    char directory[SCRATCH_PATH], first[1024];
    size_t sizes[2];
    snprintf(first, sizeof first, "%s split.no=0 split.count=2", keys);
    void *const parts[] = {gguf_write(&sizes[0], first, ""),
                           gguf_write(&sizes[1], "split.no=1 split.count=2", tensors)};
    scratch_make(directory);
    scratch_write(directory, "m-00001-of-00002.gguf", parts[0], sizes[0]);
    scratch_write(directory, "m-00002-of-00002.gguf", parts[1], sizes[1]);
    free(parts[0]);
    free(parts[1]);
    const int at = open(directory, O_RDONLY | O_DIRECTORY);
    *model = NULL;
    const enum attn_status status = attn_gguf_model_open(model, at, "m-00001-of-00002.gguf", error);
    close(at);
    scratch_remove(directory);
    return status;
}

#define EPS "attention.layer_norm_rms_epsilon=0.00001 "
#define YARN \
    "rope.scaling.type=yarn rope.scaling.factor=8.0 rope.scaling.original_context_length=16 "
#define LATENT                                                                         \
    "attention.kv_lora_rank=16 rope.dimension_count=4 attention.key_length_mla=12 "    \
    "attention.value_length_mla=10 attention.head_count_kv=1 attention.key_length=20 " \
    "attention.value_length=16 "
#define SLIDING "\"sliding_attention\""
#define FULL "\"full_attention\""

/* Keys beside the sizes, less the architecture's name; what the configuration has, or, after '!',
 * what the refusal says. */
static const struct {
    const char *architecture, *keys, *tensors, *wanted;
} configurations[] = {
    /* How much of a head rotates. */
    {"phi3", "rope.dimension_count=6", "", "\"partial_rotary_factor\": 0.75"},
    {"phi3", "", "", "\"partial_rotary_factor\": 1,"},
    {"glm4", "", "", "\"partial_rotary_factor\": 1,"},
    {"llama", "rope.dimension_count=8", "", "\"model_type\": \"llama\""},
    {"llama", "rope.dimension_count=6", "", "!llama.rope.dimension_count is 6, wanted is 8"},
    {"llama", "attention.value_length=4", "", "!llama.attention.value_length is 4, wanted is 8"},
    /* Which layers slide. */
    {"olmo2", EPS, "", "\"model_type\": \"olmo2\""},
    {"olmo2", EPS "attention.sliding_window=6", "", "\"model_type\": \"olmo3\""},
    {"olmo2", EPS "attention.sliding_window=6", "",
     "\"sliding_window\": 6, \"layer_types\": [" SLIDING ", " SLIDING ", " SLIDING ", " FULL "]"},
    {"olmo2", EPS "attention.sliding_window=6 attention.sliding_window_pattern=[1001]", "",
     "[" SLIDING ", " FULL ", " FULL ", " SLIDING "]"},
    {"olmo2", EPS "attention.sliding_window=6 attention.sliding_window_pattern=[100]", "",
     "!attention.sliding_window_pattern has 3 entries, there are 4 layers"},
    {"gemma2", "", "",
     "\"sliding_window\": 4096, \"layer_types\": [" SLIDING ", " FULL ", " SLIDING ", " FULL "]"},
    {"gemma3", EPS, "", "\"sliding_window_pattern\": 1"},
    {"gemma3", EPS "attention.sliding_window=6 attention.sliding_window_pattern=3", "",
     "[" SLIDING ", " SLIDING ", " FULL ", " SLIDING "]"},
    {"gpt-oss", "", "", "!has no key gpt-oss.attention.sliding_window"},
    {"qwen2", "attention.sliding_window=6", "", "!qwen2.attention.sliding_window is not read"},
    {"qwen2", "attention.sliding_window=0", "", "\"model_type\": \"qwen2\""},
    {"phi3", "attention.sliding_window=6", "", "\"model_type\": \"phi3\""},
    /* RoPE: classes with a scaling of their own; factors without a type; YaRN. */
    {"mistral3", "", "", "\"rope_scaling\": {\"rope_type\": \"default\", "},
    {"gpt-oss", "attention.sliding_window=6", "",
     "\"rope_scaling\": {\"rope_type\": \"default\", "},
    {"mistral3", YARN "rope.scaling.yarn_log_multiplier=1.0 attention.temperature_scale=0.1", "",
     "\"factor\": 8, \"llama_4_scaling_beta\": 0.1, \"attention_factor\": 1}"},
    {"llama", "rope.scaling.factor=4.0", "", "{\"rope_type\": \"linear\""},
    {"llama", "rope.scale_linear=4.0", "", "\"factor\": 4}"},
    {"llama", "rope.scaling.type=none rope.scaling.factor=4.0", "", "{\"rope_type\": \"default\""},
    {"llama", "rope.scaling.type=5", "", "!llama.rope.scaling.type is \"\", wanted is one of"},
    {"llama", "rope.scaling.attn_factor=2.0", "", "!llama.rope.scaling.attn_factor is 2"},
    {"llama", YARN, "", "\"original_max_position_embeddings\": 16, \"factor\": 8}"},
    {"llama", YARN "rope.scaling.yarn_beta_fast=16.0 rope.scaling.yarn_beta_slow=2.0", "",
     "\"beta_fast\": 16, \"beta_slow\": 2}"},
    {"llama", YARN "rope.scaling.yarn_attn_factor=1.5", "", "\"attention_factor\": 1.5}"},
    {"llama", YARN "rope.scaling.yarn_attn_factor=1.5 rope.scaling.attn_factor=2.0", "",
     "\"attention_factor\": 3}"},
    {"llama", YARN "rope.scaling.attn_factor=2.0", "", "\"attention_factor\": 2.41588"},
    {"llama", YARN "rope.scaling.yarn_ext_factor=0.5", "", "!yarn_ext_factor is 0.5, wanted is 1"},
    {"llama", "rope.freq_base_swa=5000.0", "", "!llama.rope.freq_base_swa differs"},
    {"llama", "rope.freq_base_swa=10000.0", "", "\"rope_theta\": 10000,"},
    /* Factors of frequencies. */
    {"llama", "", "rope_freqs.weight:4", "\"short_factor\": [1, 1, 1, 1]"},
    {"llama", YARN, "rope_freqs.weight:4", "!beside scaling \"yarn\" by 8"},
    {"llama", "rope.scaling.factor=2.0", "rope_freqs.weight:4", "!beside scaling \"linear\" by 2"},
    {"phi3", "", "rope_factors_long.weight:4", "!both of rope_factors_short and rope_factors_long"},
    {"phi3", "rope.scaling.attn_factor=1.5",
     "rope_factors_long.weight:4 rope_factors_short.weight:4", "\"attention_factor\": 1.5"},
    {"phi3", "", "rope_freqs.weight:4 rope_factors_long.weight:4 rope_factors_short.weight:4",
     "!wanted are rope_freqs, or both"},
    /* Absent keys mean what llama.cpp takes for them. */
    {"qwen2", "", "", "\"num_key_value_heads\": 4"},
    {"qwen2", "", "", "\"rope_theta\": 10000,"},
    {"granite", "", "", "\"attention_multiplier\": 0.353553"},
    {"qwen3", "", "", "!has no key qwen3.attention.layer_norm_rms_epsilon"},
    /* Each key of attention is read, known to change nothing, or refused. */
    {"llama", "attention.causal=true", "", "\"model_type\": \"llama\""},
    {"llama", "attention.causal=false", "", "!llama.attention.causal is false"},
    {"bert", "attention.causal=false", "", "\"model_type\": \"bert\""},
    {"bert", "attention.causal=true", "", "!bert.attention.causal is true"},
    {"llama", "attention.scale=0.5", "", "!llama.attention.scale is not read"},
    {"llama", "attn_logit_softcapping=50.0", "", "!llama.attn_logit_softcapping is not read"},
    {"llama", "final_logit_softcapping=30.0", "", "\"model_type\": \"llama\""},
    {"granite", "rope.scaling.finetuned=false", "", "!granite.rope.scaling.finetuned is false"},
    {"llama", "rope.scaling.finetuned=false", "", "\"model_type\": \"llama\""},
    {"glm4", "rope.dimension_sections=[11]", "", "!glm4.rope.dimension_sections is not read"},
    {"llama", "attention.indexer.top_k=4", "", "!llama.attention.indexer.top_k is not read"},
    {"gpt2", "rope.freq_base=5000.0", "", "!gpt2.rope.freq_base is not read"},
    {"llama", "rope.freq_base_swallow=1.0 expert_count=4", "",
     "!rope.freq_base_swallow is not read"},
    {"llama", "expert_count=4", "", "\"model_type\": \"llama\""},
    /* Latent attention. */
    {"deepseek2", LATENT "expert_gating_func=2", "", "\"model_type\": \"deepseek_v3\""},
    {"deepseek2", LATENT, "", "\"model_type\": \"deepseek_v2\""},
    {"deepseek2", LATENT, "",
     "\"num_key_value_heads\": 4, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, "
     "\"v_head_dim\": "
     "10, \"q_lora_rank\": null"},
    {"deepseek2", LATENT YARN "rope.scaling.yarn_log_multiplier=0.0707", "",
     "\"mscale\": 0.707, \"mscale_all_dim\": 0.707"},
    {"deepseek2", LATENT "attention.temperature_scale=0.1", "", "!temperature_scale is not read"},
    {"deepseek2", "attention.kv_lora_rank=16 rope.dimension_count=4 attention.key_length=12", "",
     "!has no key deepseek2.attention.value_length"},
    {"deepseek2", LATENT, "blk.0.attn_k_b.weight:8,64 blk.0.attn_v_b.weight:16,10,4",
     "!blk.0.attn_k_b.weight and attn_v_b are not [heads, latent, key]"},
    {"deepseek2", LATENT, "blk.0.attn_k_b.weight:8,16,4 blk.0.attn_v_b.weight:16,10,4",
     "\"qk_nope_head_dim\": 8"},
    {"deepseek2", LATENT, "blk.0.attn_k_b.weight:10,16,4 blk.0.attn_v_b.weight:16,8,4",
     "!of 4 heads, keys of 8 and values of 10"},
    {"deepseek2", LATENT, "blk.0.attn_k_b.weight:10,16,4 blk.0.attn_v_b.weight:16,10,4",
     "!of 4 heads, keys of 8 and values of 10"},
    {"deepseek2", LATENT, "blk.0.attn_k_b.weight:8,16,4 blk.0.attn_v_b.weight:16,8,4",
     "!of 4 heads, keys of 8 and values of 10"},
    {"deepseek2", LATENT, "blk.0.attn_k_b.weight:8,16,2 blk.0.attn_v_b.weight:16,10,2",
     "!of 4 heads, keys of 8 and values of 10"},
};

TEST_EACH(keys_are_the_published_configuration_or_refused, COUNT(configurations))
{
    const char *architecture = configurations[_i].architecture, *wanted = configurations[_i].wanted;
    char keys[2048], *at = keys, *end = keys + sizeof keys;
    const char *const sizes = "block_count=4 embedding_length=32 attention.head_count=4 "
                              "context_length=64";
    const char *const lists[] = {sizes, configurations[_i].keys};
    struct attn_gguf_model *model;
    struct attn_error error = {0};
    at += snprintf(at, (size_t)(end - at), "general.architecture=%s ", architecture);
    for (size_t i = 0; i < 2; i++)
        for (const char *key = lists[i]; *key != '\0'; key += strspn(key, " ")) {
            const size_t count = strcspn(key, " ");
            at += snprintf(at, (size_t)(end - at), "%s.%.*s ", architecture, (int)count, key);
            key += count;
        }
    const enum attn_status status = open_written(&model, keys, configurations[_i].tensors, &error);
    const char *got = status == ATTN_OK ? model->config.text : error.message;
    ck_assert_msg((status == ATTN_OK) == (wanted[0] != '!'), "%s: %s", keys, got);
    ck_assert_msg(strstr(got, wanted + (wanted[0] == '!')) != NULL, "%s: %s", keys, got);
    attn_gguf_model_close(model);
}

/* A model may be split so that its first part has no tensor. */
TEST(tensors_that_tell_of_the_configuration_may_be_in_any_part)
{
    static const struct {
        const char *architecture, *tensors, *wanted;
    } splits[] = {
        {"llama", "rope_freqs.weight:4", "\"short_factor\": [1, 1, 1, 1]"},
        {"llama", "blk.0.attn_q.bias:32", "\"attention_bias\": true"},
        {"llama", "blk.0.attn_q.weight:32,32", "\"attention_bias\": false"},
        {"phi3", "rope_factors_long.weight:4 rope_factors_short.weight:4",
         "\"long_factor\": [1, 1, 1, 1]"},
    };
    for (size_t i = 0; i < COUNT(splits); i++) {
        const char *const name = splits[i].architecture;
        char keys[512];
        struct attn_gguf_model *model;
        struct attn_error error = {0};
        snprintf(keys, sizeof keys,
                 "general.architecture=%s %s.block_count=4 %s.embedding_length=32 "
                 "%s.attention.head_count=4 %s.context_length=64",
                 name, name, name, name, name);
        ck_assert_msg(open_split(&model, keys, splits[i].tensors, &error) == ATTN_OK, "%s",
                      error.message);
        const char *config = model->config.text;
        ck_assert_msg(strstr(config, splits[i].wanted) != NULL, "%s: %s", splits[i].wanted, config);
        attn_gguf_model_close(model);
    }
}

/* Llama 3's factors are those of longrope, of one list for all lengths: no session is refused for
 * its length.  The factors of Phi-3 differ. */
TEST(one_list_of_factors_has_no_trained_length)
{
    static const char *const folders[] = {"gguf_f32_llama3", "gguf_f32_phi3_longrope"};
    for (size_t i = 0; i < 2; i++) {
        static struct attn_config config;
        char path[128];
        struct attn_checkpoint *checkpoint;
        struct attn_error error = {0};
        struct attn_layer_spec spec;
        size_t length;
        snprintf(path, sizeof path, "tests/golden/%s/model", folders[i]);
        ck_assert_int_eq(attn_checkpoint_open(&checkpoint, path, false, &error), ATTN_OK);
        const char *text = attn_checkpoint_config(checkpoint, &length);
        ck_assert_int_eq(attn_config_read(&config, NULL, text, length, &error), ATTN_OK);
        attn_config_layer_spec(&spec, &config, 0);
        ck_assert_int_eq(spec.rope.type, ATTN_ROPE_LONGROPE);
        ck_assert_uint_eq(attn_rope_short_length(&spec.rope) > 0, i);
        attn_checkpoint_close(checkpoint);
    }
}

TEST(an_architecture_is_a_text)
{
    struct attn_gguf_model *model;
    struct attn_error error = {0};
    ck_assert_int_eq(open_written(&model, "general.architecture=5", "", &error), ATTN_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "no key general.architecture"));
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* attn_k_b and attn_v_b are the published kv_b_proj, by whatever pieces it is read. */
TEST(latents_maps_are_joined)
{
    static const char name[] = "model.layers.1.self_attn.kv_b_proj.weight";
    static const size_t pieces[] = {100000, 1, 7, 16, 33, 100};
    struct attn_gguf_model *model;
    struct attn_error error;
    size_t count;
    float *wanted =
        scratch_tensor(&count, "tests/golden/deepseek_v3_yarn/model", "model.safetensors", name);
    float *got = malloc(count * sizeof *got);
    const int at = open("tests/golden/gguf_f32_deepseek_v3_yarn/model", O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(attn_gguf_model_open(&model, at, "model.gguf", &error), ATTN_OK);
    const struct attn_tensor_entry *entry = attn_gguf_model_find(model, name);
    ck_assert_ptr_nonnull(entry);
    ck_assert_uint_eq(entry->shape[0] * entry->shape[1], count);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        memset(got, 0, count * sizeof *got);
        for (size_t first = 0; first < count; first += pieces[i]) {
            const size_t part = count - first < pieces[i] ? count - first : pieces[i];
            ck_assert_int_eq(
                attn_gguf_model_read_f32(got + first, model, entry, first, part, &error), ATTN_OK);
        }
        ck_assert_int_eq(memcmp(got, wanted, count * sizeof *got), 0);
    }
    attn_gguf_model_close(model);
    close(at);
    free(got);
    free(wanted);
}

/* Formats that ggml has and attnd does not read refuse the tensor, and not the file. */
TEST(formats_that_are_not_read_are_known)
{
    static const struct {
        const char *name;
        unsigned number, numbers, bytes;
    } formats[] = {
        {"MXFP4", 39, 32, 17}, {"NVFP4", 40, 64, 36}, {"Q1_0", 41, 128, 18}, {"Q2_0", 42, 64, 18}};
    for (size_t i = 0; i < COUNT(formats); i++) {
        const struct attn_ggml_type *type = attn_ggml_type(formats[i].number);
        ck_assert_ptr_nonnull(type);
        ck_assert_str_eq(type->dtype.name, formats[i].name);
        ck_assert_uint_eq(type->numbers, formats[i].numbers);
        ck_assert_uint_eq(type->bytes, formats[i].bytes);
        ck_assert(type->decode == NULL && !type->dtype.readable);
    }
}

/* ---- What a header may take ------------------------------------------------------------------ */

static enum attn_status open_file(struct attn_gguf **file, const char *directory,
                                  struct attn_error *error)
{
    const int at = open(directory, O_RDONLY | O_DIRECTORY);
    const enum attn_status status = attn_gguf_open(file, at, "m.gguf", error);
    close(at);
    return status;
}

/* A vocabulary of 64 million words of no letters ends at the most that a header may have. */
TEST(headers_are_bounded)
{
    static const unsigned char start[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                                         "\x10\0\0\0\0\0\0\0tokenizer.tokens\t\0\0\0\x08\0\0\0"
                                         "\0\0\0\4\0\0\0\0";
    char directory[SCRATCH_PATH], path[SCRATCH_PATH + 8];
    struct attn_gguf *file;
    struct attn_error error = {0};
    scratch_make(directory);
    scratch_write(directory, "m.gguf", start, sizeof start - 1);
    snprintf(path, sizeof path, "%s/m.gguf", directory);
    ck_assert_int_eq(truncate(path, 8 * (1L << 26) + 4096), 0);
    ck_assert_int_eq(open_file(&file, directory, &error), ATTN_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "has a header of more than 100000000 bytes"));
    scratch_remove(directory);
}

/* Writes `keys` arrays of 4096 bytes, whose names begin with `name`, and opens the file. */
static enum attn_status open_arrays(struct attn_gguf **file, const char *name, size_t keys,
                                    struct attn_error *error)
{
    char directory[SCRATCH_PATH], path[SCRATCH_PATH + 8];
    scratch_make(directory);
    snprintf(path, sizeof path, "%s/m.gguf", directory);
    FILE *stream = fopen(path, "wb");
    fwrite("GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 1, 16, stream);
    fwrite(&keys, 1, 8, stream);
    for (size_t i = 0; i < keys; i++) {
        char key[64];
        static const char values[4096];
        const size_t length = (size_t)snprintf(key, sizeof key, "%s.%zu", name, i);
        const uint64_t count = sizeof values;
        fwrite(&length, 1, 8, stream);
        fwrite(key, 1, length, stream);
        fwrite("\t\0\0\0\0\0\0\0", 1, 8, stream);
        fwrite(&count, 1, 8, stream);
        fwrite(values, 1, sizeof values, stream);
    }
    ck_assert_int_eq(fclose(stream), 0);
    const enum attn_status status = open_file(file, directory, error);
    scratch_remove(directory);
    return status;
}

/* Memory of a model of that many tensors of one number. */
static size_t memory_of(size_t tensors)
{
    char list[4096];
    struct attn_gguf_model *model;
    struct attn_error error = {0};
    size_t at = 0;
    for (size_t i = 0; i < tensors; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "t%02zu:1 ", i);
    ck_assert_int_eq(open_written(&model,
                                  "general.architecture=bert bert.block_count=4 "
                                  "bert.embedding_length=32 bert.attention.head_count=4",
                                  list, &error),
                     ATTN_OK);
    const size_t bytes = attn_gguf_model_memory(model);
    attn_gguf_model_close(model);
    return bytes;
}

/* A name is an allocation in the file's table and in the model's; the tables have room for 64. */
TEST(memory_counts_each_allocation)
{
    ck_assert_uint_ge(memory_of(60) - memory_of(10), (size_t)50 * 2 * (sizeof "t00" + 64 + 16));
}

/* A model may have as many parts as a checkpoint has shards. */
TEST(parts_are_bounded)
{
    static const struct {
        const char *keys, *wanted;
    } counts[] = {
        {"general.architecture=bert split.no=0 split.count=1024", "whose name ends in -00001-of-"},
        {"general.architecture=bert split.no=0 split.count=1025", "is a part of more than 1024"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct attn_gguf_model *model;
        struct attn_error error = {0};
        ck_assert_int_eq(open_written(&model, counts[i].keys, "", &error), ATTN_MALFORMED);
        ck_assert_msg(strstr(error.message, counts[i].wanted) != NULL, "%s", error.message);
    }
}

TEST(values_take_bounded_memory_and_vocabularies_none)
{
    struct attn_gguf *file;
    struct attn_error error = {0};
    ck_assert_int_eq(open_arrays(&file, "general", 600, &error), ATTN_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "has keys and values of more than 16777216 bytes"));
    ck_assert_int_eq(open_arrays(&file, "tokenizer", 600, &error), ATTN_OK);
    ck_assert_uint_lt(attn_gguf_memory(file), 128 * 1024);
    attn_gguf_close(file);
}

/* ---- Directories ----------------------------------------------------------------------------- */

/* Opens the directory; *is_gguf tells which of its files counts. */
static enum attn_status open_directory(bool *is_gguf, const char *directory, bool configured,
                                       struct attn_error *error)
{
    struct attn_checkpoint *checkpoint = NULL;
    const enum attn_status status = attn_checkpoint_open(&checkpoint, directory, configured, error);
    *is_gguf = status == ATTN_OK && attn_checkpoint_is_gguf(checkpoint);
    attn_checkpoint_close(checkpoint);
    return status;
}

TEST(a_directory_has_one_model)
{
    static const char *const beside[] = {"mmproj-f16.gguf", "a-mmproj-f16.gguf", "imatrix.gguf",
                                         "a-00002-of-00003.gguf"};
    char directory[SCRATCH_PATH];
    struct attn_error error = {0};
    bool is_gguf;
    size_t size;
    char *bytes = scratch_read(&size, "tests/broken/gguf_intact/model", "model.gguf");
    scratch_make(directory);
    scratch_write(directory, "Best-of-3.gguf", bytes, size);
    for (size_t i = 0; i < COUNT(beside); i++)
        scratch_write(directory, beside[i], "GGUF", 4);
    ck_assert_int_eq(open_directory(&is_gguf, directory, false, &error), ATTN_OK);
    ck_assert(is_gguf);
    scratch_write_tensors(directory, "model.safetensors", "{}", NULL, 0);
    ck_assert_int_eq(open_directory(&is_gguf, directory, true, &error), ATTN_OK);
    ck_assert(!is_gguf);
    ck_assert_int_eq(open_directory(&is_gguf, directory, false, &error), ATTN_OK);
    ck_assert(is_gguf);
    free(bytes);
    scratch_remove(directory);
}

/* Rows and norms are those of the file's architecture: a configuration of another is refused. */
TEST(a_configuration_beside_is_of_the_architecture)
{
    static const struct {
        const char *folder, *from, *to, *wanted; /* model_type from -> to; "" is opened */
    } cases[] = {
        {"gguf_f32_llama3", "llama", "llama", ""},
        {"gguf_f32_llama3", "llama", "mixtral", ""},
        {"gguf_f32_llama3", "llama", "qwen2",
         "model_type is 'qwen2', and the GGUF file is of the "},
        {"gguf_f32_olmo3", "olmo3", "olmo3", ""},
        {"gguf_gemma3_q4_0", "gemma3_text", "gemma3_text", ""},
        {"gguf_gemma3_q4_0", "gemma3_text", "qwen3", "architecture gemma3: give the configuration"},
    };
    static const char *const own[] = {"attention_bias", "layer_types", "query_pre_attn_scalar",
                                      "rope_local_base_freq", "sliding_window_pattern"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char path[128];
        struct attn_checkpoint *checkpoint;
        struct attn_error error = {0};
        struct attn_model *model = NULL;
        size_t length;
        snprintf(path, sizeof path, "tests/golden/%s/model", cases[i].folder);
        ck_assert_int_eq(attn_checkpoint_open(&checkpoint, path, false, &error), ATTN_OK);
        json_t *config = json_loads(attn_checkpoint_config(checkpoint, &length), 0, NULL);
        attn_checkpoint_close(checkpoint);
        ck_assert_str_eq(json_string_value(json_object_get(config, "model_type")), cases[i].from);
        json_object_set_new(config, "model_type", json_string(cases[i].to));
        for (size_t k = 0; k < COUNT(own) && strcmp(cases[i].from, cases[i].to) != 0; k++)
            json_object_del(config, own[k]);
        char *text = json_dumps(config, 0);
        const struct attn_model_options options = {.config = text};
        const enum attn_status status = attn_model_open(&model, path, &options, &error);
        ck_assert_msg((status == ATTN_OK) == (cases[i].wanted[0] == '\0') &&
                          strstr(error.message, cases[i].wanted) != NULL,
                      "%s as %s: %s", cases[i].folder, cases[i].to, error.message);
        attn_model_close(model);
        free(text);
        json_decref(config);
    }
}

SUITE(gguf)
