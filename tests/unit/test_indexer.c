/* test_indexer.c: which keys an indexer and a dynamic mask choose, that choosing all of them
 * changes no bit, also where another layer chose, and what is refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/forward.h"
#include "attn.h"
#include "attn_state.h"
#include "basics/random.h"
#include "families/config.h"
#include "golden.h"
#include "opened.h"
#include "scratch.h"
#include "suites.h"

enum { WIDTH = 16, HEADS = 4, ROWS = 150, PREFILL = 100, TOPK = 5 };

#define LATENT                                                                               \
    "\"hidden_size\":16,\"num_attention_heads\":4,\"kv_lora_rank\":10,\"q_lora_rank\":12,"   \
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"value_head_dim\":5,\"is_causal\":true," \
    "\"seed\":9"
#define INDEXER "\"index_n_heads\":3,\"index_head_dim\":6"

static struct attn_engine *engine;
static struct attn_error error;
static float x[ROWS * WIDTH];

static void set_up(void)
{
    const struct attn_engine_options options = {.gemm = ATTN_GEMM_PACKED};
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    attn_random_uniform(x, ROWS * WIDTH, attn_random_stream(5, 1, 1), 1);
}

static void tear_down(void) { attn_engine_close(engine); }

static struct attn_model *open_text(const char *text, enum attn_dtype kv_dtype)
{
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    return opened_random(text, &options);
}

static struct attn_model *open_model(const char *members, enum attn_dtype kv_dtype)
{
    char text[512];
    snprintf(text, sizeof text, "{" LATENT "%s}", members);
    return open_text(text, kv_dtype);
}

static void attend(float *output, const struct attn_model *model)
{
    const struct attn_attend_args args = {
        .batch = 1, .queries = ROWS, .hidden_states = x, .outputs.output = output};
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
}

/* A prefill and then single rows. */
static void decode(float *output, const struct attn_model *model)
{
    struct attn_cache_pool *pool;
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)1 << 20), ATTN_OK);
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, ROWS, &error), ATTN_OK);
    for (size_t at = 0, rows; at < ROWS; at += rows) {
        rows = at == 0 ? PREFILL : 1;
        struct attn_step step = {.cache = cache,
                                 .rows = rows,
                                 .position = at,
                                 .hidden_states = x + at * WIDTH,
                                 .commit = true,
                                 .outputs.output = output + at * WIDTH};
        ck_assert_msg(one_step(engine, model, 0, &step) == ATTN_OK, "%s", step.error.message);
    }
    attn_cache_free(cache);
    attn_cache_pool_free(pool);
}

#define ROTATES ",\"rope_theta\":10000"

CASE(choice, set_up, tear_down, 0)

/* The loop index is the dtype of the cache. */
TEST_EACH(indexer_that_chooses_all_keys_changes_no_bit, ATTN_NUM_NUMBER_FORMATS)
{
    static const char *const all[] = {ROTATES, ROTATES "," INDEXER ",\"index_topk\":150",
                                      ROTATES "," INDEXER ",\"index_topk\":149"};
    static float whole[3][ROWS * WIDTH], steps[3][ROWS * WIDTH];
    if (_i == ATTN_W8A16)
        return;
    for (size_t i = 0; i < 3; i++) {
        struct attn_model *model = open_model(all[i], (enum attn_dtype)_i);
        attend(whole[i], model);
        decode(steps[i], model);
        attn_model_close(model);
    }
    ck_assert_mem_eq(whole[0], whole[1], sizeof whole[0]);
    ck_assert_mem_eq(steps[0], steps[1], sizeof steps[0]);
    /* Where one key of 150 is left out, rows that see no more than 149 stay as they are. */
    ck_assert_mem_eq(whole[0], whole[2], (ROWS - 1) * WIDTH * sizeof(float));
    ck_assert_mem_eq(steps[0], steps[2], (ROWS - 1) * WIDTH * sizeof(float));
    ck_assert_mem_ne(whole[0] + (ROWS - 1) * WIDTH, whole[2] + (ROWS - 1) * WIDTH,
                     WIDTH * sizeof(float));
    ck_assert_mem_ne(steps[0] + (ROWS - 1) * WIDTH, steps[2] + (ROWS - 1) * WIDTH,
                     WIDTH * sizeof(float));
}

/* Appends the rows of each step of a batch to another cache. */
static bool copy_rows(void *context, const struct attn_appended list[], size_t count,
                      struct attn_error *cause)
{
    struct attn_cache **copies = context;
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(
            attn_cache_write(copies[i], 0, list[i].step->rows, list[i].key, list[i].value, cause),
            ATTN_OK);
    return true;
}

/* The rows of a token have the indexer's key behind the shared part: those of the second session of
 * a batch begin after both of the first. */
TEST(indexer_rows_that_are_recorded_make_the_caches_of_a_batch_again)
{
    enum { SESSIONS = 3, TOKENS = 70, MOST = 32 };
    struct attn_model *model = open_model("," INDEXER ",\"index_topk\":5", ATTN_F32);
    struct attn_cache_pool *pool;
    struct attn_cache *caches[SESSIONS], *copies[SESSIONS];
    const struct attn_recorder recorder = {copy_rows, copies};
    float output[SESSIONS][WIDTH], read[2][2][TOKENS * MOST] = {0};
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    for (size_t i = 0; i < SESSIONS; i++) {
        ck_assert_int_eq(attn_cache_new(&caches[i], pool, model, 256, &error), ATTN_OK);
        ck_assert_int_eq(attn_cache_new(&copies[i], pool, model, 256, &error), ATTN_OK);
    }
    for (size_t t = 0; t < TOKENS; t++) {
        struct attn_step steps[SESSIONS], *list[SESSIONS];
        for (size_t i = 0; i < SESSIONS; i++) {
            steps[i] = (struct attn_step){.cache = caches[i],
                                          .position = t,
                                          .rows = 1,
                                          .hidden_states = x + (t + i) * WIDTH,
                                          .outputs = {.output = output[i]},
                                          .commit = true};
            list[i] = &steps[i];
        }
        ck_assert_int_eq(attn_decode_recorded(engine, model, 0, list, SESSIONS, &recorder),
                         ATTN_OK);
    }
    for (size_t i = 0; i < SESSIONS; i++) {
        attn_cache_read(read[0][0], read[0][1], caches[i], 0, TOKENS);
        attn_cache_read(read[1][0], read[1][1], copies[i], 0, TOKENS);
        ck_assert_mem_eq(read[0], read[1], sizeof read[0]);
        attn_cache_free(caches[i]);
        attn_cache_free(copies[i]);
    }
    attn_cache_pool_free(pool);
    attn_model_close(model);
}

/* Tokens that are all alike have the same score: each query takes part with the earliest that it
 * sees. */
TEST(indexer_takes_the_earlier_of_equal_keys)
{
    static float weights[HEADS * ROWS * ROWS];
    uint8_t padding[ROWS];
    struct attn_model *model = open_model("," INDEXER ",\"index_topk\":5", ATTN_F32);
    for (size_t t = 1; t < ROWS; t++)
        memcpy(x + t * WIDTH, x, WIDTH * sizeof *x);
    for (size_t s = 0; s < ROWS; s++)
        padding[s] = s >= 3;
    const struct attn_attend_args args = {.batch = 1,
                                          .queries = ROWS,
                                          .hidden_states = x,
                                          .modifiers.padding_mask = padding,
                                          .outputs.attention_weights = weights};
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
    for (size_t row = 0; row < HEADS * ROWS; row++) {
        const size_t t = row % ROWS, seen = t < 3 ? 0 : t - 2, taken = seen < TOPK ? seen : TOPK;
        for (size_t s = 0; s < ROWS; s++) {
            const float want = s >= 3 && s < 3 + taken ? 1.0f / (float)taken : 0;
            ck_assert_msg(weights[row * ROWS + s] >= want - 1e-6f &&
                              weights[row * ROWS + s] <= want + 1e-6f,
                          "row %zu, key %zu: %g, expected %g", row, s,
                          (double)weights[row * ROWS + s], (double)want);
        }
    }
    attn_model_close(model);
}

/* Steps over a cache whose first block is forgotten; the loop index is which of the two forgets. */
TEST_EACH(indexer_passes_over_what_a_window_has_forgotten, 2)
{
    static const char *const all[] = {",\"sliding_window\":64", ",\"attention_chunk_size\":64"};
    static float whole[ROWS * WIDTH], steps[ROWS * WIDTH];
    char members[160];
    snprintf(members, sizeof members, "," INDEXER ",\"index_topk\":5%s", all[_i]);
    struct attn_model *model = open_model(members, ATTN_F32);
    attend(whole, model);
    decode(steps, model);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        ck_assert_float_eq_tol(whole[i], steps[i], 1e-5f);
    attn_model_close(model);
}

/* Whether an attend, and a step, are refused for this field. */
static void expect_refused(const struct attn_model *model, const struct attn_modifiers *modifiers,
                           const char *param)
{
    const struct attn_attend_args args = {
        .batch = 1, .queries = ROWS, .hidden_states = x, .modifiers = *modifiers};
    struct attn_step step = {.rows = ROWS, .hidden_states = x, .modifiers = *modifiers};
    struct attn_step *const steps[] = {&step};
    struct attn_cache_pool *pool;
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)1 << 20), ATTN_OK);
    ck_assert_int_eq(attn_cache_new(&step.cache, pool, model, ROWS, &error), ATTN_OK);
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_UNSUPPORTED);
    ck_assert_str_eq(error.param, param);
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    ck_assert_int_eq(step.error.status, ATTN_UNSUPPORTED);
    ck_assert_str_eq(step.error.param, param);
    attn_cache_free(step.cache);
    attn_cache_pool_free(pool);
}

TEST(indexer_refuses_masks_and_biases_that_differ_by_head)
{
    static uint8_t mask[HEADS * ROWS * ROWS];
    static float bias[HEADS * ROWS * ROWS], output[ROWS * WIDTH];
    struct attn_model *model = open_model("," INDEXER ",\"index_topk\":5", ATTN_F32);
    struct attn_modifiers modifiers = {.attention_mask = mask,
                                       .attention_mask_head_stride = ROWS * ROWS};
    memset(mask, 1, sizeof mask);
    expect_refused(model, &modifiers, "attention_mask");
    modifiers =
        (struct attn_modifiers){.attention_bias = bias, .attention_bias_head_stride = ROWS * ROWS};
    expect_refused(model, &modifiers, "attention_bias");
    modifiers = (struct attn_modifiers){.attention_mask = mask, .attention_bias = bias};
    const struct attn_attend_args one_for_all = {.batch = 1,
                                                 .queries = ROWS,
                                                 .hidden_states = x,
                                                 .modifiers = modifiers,
                                                 .outputs.output = output};
    ck_assert_msg(attn_attend(engine, model, 0, &one_for_all, &error) == ATTN_OK, "%s",
                  error.message);
    attn_model_close(model);
}

TEST(indexer_without_latents_is_refused_by_name)
{
    static const char *const keys[] = {"index_n_heads", "index_head_dim", "index_topk"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        char text[128];
        struct attn_model *model = NULL;
        snprintf(text, sizeof text, "{\"hidden_size\":16,\"num_attention_heads\":4,\"%s\":8}",
                 keys[i]);
        ck_assert_int_eq(attn_model_open_random(&model, text, strlen(text), NULL, &error),
                         ATTN_UNSUPPORTED);
        ck_assert_msg(strstr(error.message, keys[i]) != NULL &&
                          strstr(error.message, "kv_lora_rank") != NULL,
                      "%s", error.message);
    }
}

/* A call with fewer keys than it is counted with takes no more. */
TEST(indexer_memory_is_enough_for_fewer_keys)
{
    struct attn_layer_spec spec = {.num_heads = HEADS, .head_dim = 10, .value_head_dim = 5};
    spec.mla = (struct attn_mla_spec){.kv_lora_rank = 10, .rope_head_dim = 4};
    const size_t without = attn_mla_call_bytes(&spec);
    spec.mla.index = (struct attn_indexer_spec){.num_heads = 3, .head_dim = 6, .topk = TOPK};
    ck_assert_uint_ge(attn_mla_call_bytes(&spec), without + ATTN_TILE * 6 * sizeof(float));
    for (size_t rows = 1; rows < 20; rows++) {
        size_t fewer = 0;
        for (size_t keys = 1; keys < (size_t)3 << 20; keys += keys / 7 + 1) {
            const size_t bytes = attn_choice_bytes(&spec, rows, keys);
            ck_assert_msg(bytes >= fewer, "%zu rows, %zu keys: %zu bytes, fewer keys %zu", rows,
                          keys, bytes, fewer);
            fewer = bytes;
        }
    }
}

/* ---- Layers that share the choice of an earlier one ------------------------------------------ */

#define DSA_FOLDER "tests/golden/glm_moe_dsa/model"
#define DSA(layers, members) DSA_OF(layers, "12", members)
#define DSA_OF(layers, topk, members)                                                      \
    "{\"model_type\":\"glm_moe_dsa\",\"hidden_size\":32,\"num_attention_heads\":4,"        \
    "\"num_key_value_heads\":4,\"num_hidden_layers\":" layers                              \
    ",\"kv_lora_rank\":12,\"q_lora_rank\":16,"                                             \
    "\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":8,\"v_head_dim\":10,\"index_n_heads\":6," \
    "\"index_head_dim\":12,\"index_topk\":" topk                                           \
    ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000000}" members "}"

/* The model of that folder; the indexer of layer 1 is given to a layer 9, which there is not. */
static void write_shared(const char *path)
{
    static const char name[] = "layers.1.self_attn.indexer.";
    size_t length, moved = 0;
    char *data = scratch_read(&length, DSA_FOLDER, "model.safetensors");
    for (size_t i = 0; i + sizeof name <= length; i++)
        if (memcmp(data + i, name, sizeof name - 1) == 0) {
            data[i + strlen("layers.")] = '9';
            moved++;
        }
    ck_assert_uint_eq(moved, 5);
    scratch_write(path, "model.safetensors", data, length);
    free(data);
}

static struct attn_model *open_shared(const char *path, const char *config)
{
    struct attn_model *model;
    ck_assert_msg(attn_model_open(&model, path, &(struct attn_model_options){.config = config},
                                  &error) == ATTN_OK &&
                      attn_model_load(model, &error) == ATTN_OK,
                  "%s", error.message);
    return model;
}

/* Of no more keys than an indexer chooses it would have chosen all, whichever layer has it. */
TEST(indexer_of_an_earlier_layer_chooses_all_of_so_many_keys)
{
    enum { WIDE = 32, MOST = 12 };
    static const char *const configs[] = {
        DSA("2", ""), DSA("2", ",\"indexer_types\":[\"full\",\"shared\"]"),
        DSA("2", ",\"index_topk_freq\":2,\"index_skip_topk_offset\":1")};
    static float output[3][2][(MOST + 1) * WIDE];
    char path[SCRATCH_PATH];
    scratch_make(path);
    write_shared(path);
    for (size_t i = 0; i < 3; i++) {
        struct attn_model *model = open_shared(i == 0 ? DSA_FOLDER : path, configs[i]);
        for (size_t rows = MOST; rows <= MOST + 1; rows++)
            for (size_t layer = 0; layer < 2; layer++) {
                const struct attn_attend_args args = {.batch = 1,
                                                      .queries = rows,
                                                      .hidden_states = x,
                                                      .outputs.output = output[i][layer]};
                const bool refused = i > 0 && layer == 1 && rows > MOST;
                ck_assert_int_eq(attn_attend(engine, model, layer, &args, &error),
                                 refused ? ATTN_UNSUPPORTED : ATTN_OK);
                if (refused)
                    ck_assert_msg(strstr(error.message, "attention_mask") != NULL, "%s",
                                  error.message);
                else
                    ck_assert_mem_eq(output[i][layer], output[0][layer],
                                     MOST * WIDE * sizeof(float));
            }
        attn_model_close(model);
    }
    scratch_remove(path);
}

/* The keys of a call that an indexer chose, as its masked scores say. */
static void read_choice(uint8_t *mask, const struct golden_case *c)
{
    static const size_t first_head[] = {0};
    float scores[16 * 16];
    struct attn_model *model = open_shared(DSA_FOLDER, DSA_OF("2", "5", ""));
    const struct attn_attend_args args = {
        .batch = 1,
        .queries = c->queries,
        .hidden_states = c->hidden_states,
        .outputs = {.attention_scores = scores,
                    .stage = ATTN_STAGE_MASKED,
                    .selection = {.heads = first_head, .num_heads = 1}}};
    ck_assert_uint_le(c->queries, 16);
    ck_assert_msg(attn_attend(engine, model, c->layer, &args, &error) == ATTN_OK, "%s",
                  error.message);
    for (size_t i = 0; i < c->queries * c->queries; i++)
        mask[i] = isinf(scores[i]) ? 0 : 1;
    attn_model_close(model);
}

/* Computes a case step by step, each with its row of the mask. */
static void step_by_mask(float *output, const struct golden_case *c, const struct attn_model *model,
                         const uint8_t *mask)
{
    struct attn_step step = {.rows = 1, .commit = true};
    struct attn_step *const steps[] = {&step};
    struct attn_cache_pool *pool;
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)1 << 20), ATTN_OK);
    ck_assert_int_eq(attn_cache_new(&step.cache, pool, model, c->queries, &error), ATTN_OK);
    for (; step.position < c->queries; step.position++) {
        step.hidden_states = c->hidden_states + step.position * c->hidden;
        step.modifiers.attention_mask = mask + step.position * c->queries;
        step.outputs.output = output + step.position * c->hidden;
        ck_assert_msg(attn_decode(engine, model, c->layer, steps, 1) == ATTN_OK &&
                          step.error.status == ATTN_OK,
                      "%s", step.error.message);
    }
    step.modifiers = (struct attn_modifiers){.attention_mask = mask, .tree = true};
    step.position--; /* which keys of a cache were chosen, a tree does not say */
    ck_assert_int_eq(attn_decode(engine, model, c->layer, steps, 1), ATTN_OK);
    ck_assert_int_eq(step.error.status, ATTN_UNSUPPORTED);
    attn_cache_free(step.cache);
    attn_cache_pool_free(pool);
}

/* A layer without an indexer that is told which keys were chosen gives what Hugging Face's class
 * gave of this layer with one; and the layer with one says which they are. */
TEST(indexer_of_an_earlier_layer_says_its_keys_and_a_mask_brings_them)
{
    struct golden_set set;
    uint8_t mask[16 * 16];
    float output[2][16 * 32];
    char path[SCRATCH_PATH];
    const struct golden_case *c;
    golden_load(&set);
    for (c = set.cases; strcmp(c->name, "glm_moe_dsa/layer1") != 0; c++)
        ck_assert_ptr_ne(c, set.cases + set.count - 1);
    scratch_make(path);
    write_shared(path);
    read_choice(mask, c);
    for (size_t i = 0; i < c->queries * c->queries; i++)
        ck_assert_int_eq(mask[i], c->weights[i] > 0);
    struct attn_model *model =
        open_shared(path, DSA_OF("2", "5", ",\"indexer_types\":[\"full\",\"shared\"]"));
    const struct attn_attend_args args = {.batch = 1,
                                          .queries = c->queries,
                                          .hidden_states = c->hidden_states,
                                          .modifiers.attention_mask = mask,
                                          .outputs.output = output[0]};
    ck_assert_msg(attn_attend(engine, model, 1, &args, &error) == ATTN_OK, "%s", error.message);
    step_by_mask(output[1], c, model, mask);
    for (size_t way = 0; way < 2; way++)
        for (size_t i = 0; i < c->queries * c->hidden; i++)
            ck_assert_float_eq_tol(output[way][i], c->output[i], 1e-5f);
    attn_model_close(model);
    scratch_remove(path);
    golden_free(&set);
}

TEST(indexer_of_a_layer_that_shares_is_refused_by_name)
{
    struct attn_model *model = NULL;
    const struct attn_model_options options = {
        .config = DSA("2", ",\"indexer_types\":[\"full\",\"shared\"]")};
    ck_assert_int_eq(attn_model_open(&model, DSA_FOLDER, &options, &error), ATTN_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "layers.1.self_attn.indexer."));
}

TEST(indexer_layers_follow_from_a_schedule)
{
    static const char text[] = DSA("10", ",\"index_topk_freq\":4,\"index_skip_topk_offset\":3");
    static const char layers[] = "FFFSSSFSSS";
    struct attn_config config;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    for (size_t i = 0; i < sizeof layers - 1; i++) {
        struct attn_layer_spec spec;
        attn_config_layer_spec(&spec, &config, i);
        ck_assert_uint_eq(spec.mla.index.num_heads, layers[i] == 'F' ? 6 : 0);
        ck_assert_uint_eq(spec.max_tokens, layers[i] == 'F' ? 0 : 12);
    }
}

/* ---- Latents without positions --------------------------------------------------------------- */

#define LATENTS(type, members)                                                               \
    "{\"model_type\":\"" type "\",\"hidden_size\":32,\"num_attention_heads\":4,"             \
    "\"num_key_value_heads\":4,\"num_hidden_layers\":2,\"kv_lora_rank\":16,\"q_lora_rank\":" \
    "null,\"qk_nope_head_dim\":12,\"qk_rope_head_dim\":8,\"v_head_dim\":10," members "}"

/* Where all rows stand at position 0, RoPE turns nothing. */
TEST(latents_of_kimi_linear_do_not_turn)
{
    enum { WIDE = 32, MOST = 20 };
    static const char *const configs[] = {LATENTS("deepseek_v2", "\"rope_theta\":10000"),
                                          LATENTS("kimi_linear",
                                                  "\"mla_use_nope\":true,\"linear_attn_config\":{"
                                                  "\"full_attn_layers\":[1,2],\"kda_layers\":[]}")};
    static const int64_t positions[MOST];
    static float output[2][MOST * WIDE];
    for (size_t i = 0; i < 2; i++) {
        struct attn_model *model = open_shared("tests/golden/deepseek_v2/model", configs[i]);
        const struct attn_attend_args args = {.batch = 1,
                                              .queries = MOST,
                                              .hidden_states = x,
                                              .modifiers.position_ids = i == 0 ? positions : NULL,
                                              .outputs.output = output[i]};
        ck_assert_msg(attn_attend(engine, model, 1, &args, &error) == ATTN_OK, "%s", error.message);
        attn_model_close(model);
    }
    for (size_t i = 0; i < MOST * WIDE; i++)
        ck_assert_float_eq_tol(output[0][i], output[1][i], 1e-6f);
}

#define DYNAMIC                                                                                    \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"is_causal\":true,"  \
    "\"head_dim\":6,\"value_head_dim\":5,\"attention_bias\":true,\"rope_theta\":10000,\"seed\":9," \
    "\"keep_window_size\":5%s}"

/* A row sees the last of its keys alone, up to five; the loop index is whether a window forgets the
 * first block of the cache. */
TEST_EACH(dynamic_mask_leaves_so_many_keys_to_each_head_in_a_call_and_in_steps, 2)
{
    static float output[2][ROWS * WIDTH], weights[HEADS * ROWS * ROWS];
    char text[512];
    size_t groups_differ = 0;
    snprintf(text, sizeof text, DYNAMIC, _i == 1 ? ",\"sliding_window\":64" : "");
    struct attn_model *model = open_text(text, ATTN_F32);
    const struct attn_attend_args args = {.batch = 1,
                                          .queries = ROWS,
                                          .hidden_states = x,
                                          .outputs.output = output[0],
                                          .outputs.attention_weights = weights};
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
    decode(output[1], model);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        ck_assert_float_eq_tol(output[0][i], output[1][i], 1e-5f);
    for (size_t t = 0; t < ROWS; t++) {
        size_t taken[HEADS] = {0};
        for (size_t s = 0; s < ROWS; s++)
            for (size_t h = 0; h < HEADS; h++) {
                const bool takes = weights[(h * ROWS + t) * ROWS + s] > 0;
                taken[h] += takes;
                ck_assert_int_eq(takes, weights[(h / 2 * 2 * ROWS + t) * ROWS + s] > 0);
                groups_differ += h == 2 && takes != (weights[t * ROWS + s] > 0);
            }
        for (size_t h = 0; h < HEADS; h++)
            ck_assert_uint_eq(taken[h], t + 1 < TOPK ? t + 1 : TOPK);
    }
    ck_assert_uint_gt(groups_differ, ROWS);
    attn_model_close(model);
}

/* So many caches that their biases are made for some of them at a time: each step has the bits that
 * it has alone. */
TEST(dynamic_mask_of_a_batch_has_the_bits_of_single_steps)
{
    enum { SESSIONS = 5, TOKENS = 20000, KEY = 2 * 6, VALUE = 2 * 5 };
    static float key[TOKENS * KEY], value[TOKENS * VALUE];
    float together[SESSIONS][WIDTH], alone[SESSIONS][WIDTH];
    struct attn_step steps[SESSIONS], *list[SESSIONS];
    struct attn_cache *caches[SESSIONS];
    struct attn_cache_pool *pool;
    char text[512];
    snprintf(text, sizeof text, DYNAMIC, "");
    struct attn_model *model = open_text(text, ATTN_F32);
    attn_random_uniform(key, TOKENS * KEY, attn_random_stream(7, 1, 1), 1);
    attn_random_uniform(value, TOKENS * VALUE, attn_random_stream(7, 1, 2), 1);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    for (size_t i = 0; i < SESSIONS; i++) {
        ck_assert_int_eq(attn_cache_new(&caches[i], pool, model, TOKENS, &error), ATTN_OK);
        ck_assert_int_eq(attn_cache_write(caches[i], 0, TOKENS - i - 1, key, value, &error),
                         ATTN_OK);
    }
    for (size_t run = 0; run < 2; run++) {
        for (size_t i = 0; i < SESSIONS; i++) {
            steps[i] = (struct attn_step){.cache = caches[i],
                                          .rows = 1,
                                          .position = TOKENS - i - 1,
                                          .hidden_states = x + i * WIDTH,
                                          .outputs.output = (run == 0 ? alone : together)[i]};
            list[i] = &steps[i];
            if (run == 0)
                ck_assert_int_eq(attn_decode(engine, model, 0, &list[i], 1), ATTN_OK);
        }
        if (run == 1)
            ck_assert_int_eq(attn_decode(engine, model, 0, list, SESSIONS), ATTN_OK);
        for (size_t i = 0; i < SESSIONS; i++)
            ck_assert_msg(steps[i].error.status == ATTN_OK, "%s", steps[i].error.message);
    }
    ck_assert_mem_eq(alone, together, sizeof alone);
    for (size_t i = 0; i < SESSIONS; i++)
        attn_cache_free(caches[i]);
    attn_cache_pool_free(pool);
    attn_model_close(model);
}

TEST(dynamic_mask_refuses_masks_that_differ_by_head_and_latents)
{
    static uint8_t mask[HEADS * ROWS * ROWS];
    struct attn_model *model = NULL;
    char text[512];
    snprintf(text, sizeof text, DYNAMIC, "");
    model = open_text(text, ATTN_F32);
    expect_refused(
        model,
        &(struct attn_modifiers){.attention_mask = mask, .attention_mask_head_stride = ROWS * ROWS},
        "attention_mask");
    attn_model_close(model);
    snprintf(text, sizeof text, "{" LATENT ",\"keep_window_size\":5}");
    ck_assert_int_eq(attn_model_open_random(&model, text, strlen(text), NULL, &error),
                     ATTN_UNSUPPORTED);
    ck_assert_str_eq(error.param, "keep_window_size");
}

SUITE(indexer)
