/* test_footprint.c: the memory that is promised for models, caches and calls is enough, and calls
 * keep to it. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn.h"
#include "attn_limits.h"
#include "basics/mem.h"
#include "kernels/stats.h"
#include "machine/cgroup.h"
#include "opened.h"
#include "rng.h"
#include "scratch.h"
#include "suites.h"

#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif

/* ---- Control groups -------------------------------------------------------------------------- */

static char root[SCRATCH_PATH];

/* Writes a file below root, and makes the directories on the way to it. */
static void put(const char *path, const char *text)
{
    char whole[2 * SCRATCH_PATH];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void make_root(void) { scratch_make(root); }

static void remove_root(void)
{
    char command[SCRATCH_PATH + 16];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

CASE(groups, make_root, remove_root, 0)

TEST(footprint_the_smallest_limit_above_a_group_of_version_2_counts)
{
    put("proc/self/cgroup", "0::/outer/middle/inner\n");
    put("sys/fs/cgroup/outer/memory.max", "3000000\n");
    put("sys/fs/cgroup/outer/middle/memory.max", "2000000\n");
    put("sys/fs/cgroup/outer/middle/inner/memory.max", "max\n");
    ck_assert_uint_eq(attn_cgroup_memory(root), 2000000);
    put("sys/fs/cgroup/outer/memory.max", "1000000\n");
    ck_assert_uint_eq(attn_cgroup_memory(root), 1000000);
}

TEST(footprint_a_group_of_version_1_is_found_by_its_controller)
{
    put("proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700\n");
    put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "800\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/memory.limit_in_bytes", "5\n");
    ck_assert_uint_eq(attn_cgroup_memory(root), 700);
}

static size_t read_shares(const char *directory)
{
    char line[64];
    return attn_cgroup_line(line, sizeof line, directory, "cpu.shares") ? strtoull(line, NULL, 10)
                                                                        : SIZE_MAX;
}

TEST(footprint_a_controller_is_found_by_its_whole_name)
{
    put("proc/self/cgroup", "7:cpuset:/a\n5:cpuacct,cpu:/a\n");
    put("sys/fs/cgroup/cpuset/a/cpu.shares", "5\n");
    put("sys/fs/cgroup/cpuacct,cpu/a/cpu.shares", "900\n");
    ck_assert_uint_eq(attn_cgroup_least(root, "cpu", read_shares), 900);
}

TEST(footprint_a_path_that_is_not_visible_leaves_the_limit_at_the_top)
{
    put("proc/self/cgroup", "0::/docker/0123456789\n");
    put("sys/fs/cgroup/memory.max", "4096\n");
    ck_assert_uint_eq(attn_cgroup_memory(root), 4096);
}

TEST(footprint_without_groups_or_with_rubbish_there_is_no_limit)
{
    ck_assert_uint_eq(attn_cgroup_memory(root), SIZE_MAX);
    put("proc/self/cgroup", "rubbish\n0:\n\n0::/\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    ck_assert_uint_eq(attn_cgroup_memory(root), SIZE_MAX);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static const char *const configs[] = {
    "{\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"rope_theta\":1e4}",
    "{\"hidden_size\":16,\"num_attention_heads\":16,\"head_dim\":64,\"attention_bias\":true}",
};
static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};
#define CASES 8
#define THREADS 2

static struct attn_model *open_model(int i)
{
    struct attn_model *model;
    const struct attn_model_options options = {.dtype = dtypes[i / 2]};
    const char *config = configs[i % 2];
    model = opened_random(config, &options);
    return model;
}

/* Runs an attend of `batch` sequences of `tokens` each, with statistics of as many groups of keys
 * as there may be, the mean of weights and the change without each head, on an engine that grants a
 * call so many bytes. */
static enum attn_status attend(const struct attn_model *model, size_t batch, size_t tokens,
                               size_t call_bytes)
{
    const struct attn_layer_spec *spec = attn_model_layer(model, 0);
    const struct attn_engine_options options = {.threads = THREADS, .call_bytes = call_bytes};
    struct attn_engine *engine;
    struct rng random = rng_seeded(3);
    size_t numbers = batch * tokens * spec->hidden_size;
    float *x = malloc(2 * numbers * sizeof *x);
    float *mean = malloc(batch * tokens * tokens * sizeof *mean);
    const size_t heads = batch * spec->num_heads, groups = ATTN_MAX_TARGET_GROUPS;
    struct attn_head_stats *stats = malloc(heads * sizeof *stats);
    struct attn_group_stats *group_stats = malloc(heads * groups * sizeof *group_stats);
    double *ablation = malloc(heads * sizeof *ablation);
    uint16_t *target_groups = calloc(tokens, sizeof *target_groups);
    ck_assert(attn_engine_open(&engine, &options, NULL) == ATTN_OK);
    for (size_t i = 0; i < numbers; i++)
        x[i] = rng_float(&random, 1);
    const struct attn_attend_args args = {
        .hidden_states = x,
        .batch = batch,
        .queries = tokens,
        .outputs = {.output = x + numbers,
                    .average_weights = mean,
                    .head_stats = stats,
                    .target_groups = target_groups,
                    .num_target_groups = groups,
                    .group_stats = group_stats,
                    .ablation = ablation},
    };
    enum attn_status status = attn_attend(engine, model, 0, &args, NULL);
    attn_engine_close(engine);
    free(x);
    free(mean);
    free(stats);
    free(group_stats);
    free(target_groups);
    free(ablation);
    return status;
}

CASE(calls, NULL, NULL, 0)

TEST_EACH(footprint_a_call_gets_by_with_what_it_is_said_to_take, CASES)
{
    static const size_t shapes[][2] = {{1, 1000}, {10, 100}, {3, 333}, {125, 8}};
    struct attn_model *model = open_model(_i);
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const struct attn_call_size size = {shapes[i][0] * shapes[i][1], shapes[i][1], 0, 0};
        size_t bytes = attn_call_bytes(model, &size, THREADS);
        ck_assert_int_eq(attend(model, shapes[i][0], shapes[i][1], bytes), ATTN_OK);
    }
    attn_model_close(model);
}

/* What the fixed parts of a bound would hide: each row adds what its heads keep of it. */
TEST(footprint_a_row_counts_statistics_of_all_heads_and_groups)
{
    static const char config[] = "{\"hidden_size\":16,\"num_attention_heads\":16}";
    const struct attn_call_size few = {.rows = 1000, .tokens = 10},
                                more = {.rows = 2000, .tokens = 10};
    const size_t group = sizeof(float) * ATTN_MAX_TARGET_GROUPS;
    struct attn_model *model;
    ck_assert(attn_model_open_random(&model, config, strlen(config), NULL, NULL) == ATTN_OK);
    size_t bytes = attn_call_bytes(model, &more, THREADS) - attn_call_bytes(model, &few, THREADS);
    ck_assert_uint_ge(bytes,
                      1000 * 16 * (4 * sizeof(float) + sizeof(struct attn_row_stats) + group));
    attn_model_close(model);
}

/* Bytes of a call of 1,000 rows by a layer of 16 heads of 8, and the work of a step of 10 rows over
 * 50 keys. */
static size_t bytes_of_call(size_t *work, const char *more)
{
    static const struct attn_call_size size = {.rows = 1000, .tokens = 10};
    char config[160];
    struct attn_model *model;
    snprintf(config, sizeof config,
             "{\"hidden_size\":16,\"num_attention_heads\":16,"
             "\"head_dim\":8%s}",
             more);
    ck_assert(attn_model_open_random(&model, config, strlen(config), NULL, NULL) == ATTN_OK);
    size_t bytes = attn_call_bytes(model, &size, THREADS);
    *work = attn_step_work(attn_model_layer(model, 0), 10, 50);
    attn_model_close(model);
    return bytes;
}

TEST(footprint_gates_count_as_memory_and_as_work)
{
    size_t with_gate, without;
    ck_assert_uint_ge(bytes_of_call(&with_gate, ",\"attn_output_gate\":true"),
                      bytes_of_call(&without, "") + 1000 * 16 * 8 * sizeof(float));
    ck_assert_uint_eq(with_gate, without + 10 * 16 * 16 * 8);
    bytes_of_call(&with_gate, ",\"attn_output_gate\":true,\"gate_by_head\":true");
    ck_assert_uint_eq(with_gate, without + 10 * 16 * 16);
}

/* Rows of queries become integers once for the queries and their gates. */
TEST(footprint_gates_share_the_integers_of_queries)
{
    enum { QUERIES = 6000, KEYS = 8, WIDE = 16384 };
    static const char config[] =
        "{\"hidden_size\":16384,\"num_attention_heads\":1,\"head_dim\":8,\"kdim\":16,\"vdim\":16,"
        "\"is_cross\":true,\"attn_output_gate\":true}";
    static float lse[QUERIES], key[KEYS * 16];
    const struct attn_call_size size = {.rows = QUERIES, .tokens = QUERIES};
    struct attn_model *model;
    struct attn_engine *engine;
    struct attn_error error = {0};
    float *x = calloc((size_t)QUERIES * WIDE, sizeof *x);
    ck_assert(attn_model_open_random(&model, config, strlen(config),
                                     &(struct attn_model_options){.dtype = ATTN_W8A16},
                                     NULL) == ATTN_OK);
    ck_assert(attn_model_load(model, NULL) == ATTN_OK);
    const struct attn_engine_options options = {
        .threads = THREADS, .call_bytes = attn_call_bytes(model, &size, THREADS)};
    ck_assert(attn_engine_open(&engine, &options, NULL) == ATTN_OK);
    const struct attn_attend_args args = {.batch = 1,
                                          .queries = QUERIES,
                                          .keys = KEYS,
                                          .hidden_states = x,
                                          .key_hidden_states = key,
                                          .outputs.lse = lse};
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
    attn_engine_close(engine);
    attn_model_close(model);
    free(x);
}

TEST(footprint_a_call_that_would_pass_its_bound_fails_and_the_next_does_not)
{
    const struct attn_engine_options options = {.threads = THREADS, .call_bytes = 1 << 20};
    struct attn_engine *engine;
    struct attn_model *model = open_model(0);
    float *x = calloc(2 * 2000 * 64, sizeof *x);
    struct attn_attend_args args = {
        .hidden_states = x, .batch = 1, .queries = 2000, .outputs = {.output = x + 2000 * 64}};
    ck_assert(attn_engine_open(&engine, &options, NULL) == ATTN_OK);
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, NULL), ATTN_NO_MEMORY);
    args.queries = 20;
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, NULL), ATTN_OK);
    attn_engine_close(engine);
    attn_model_close(model);
    free(x);
}

#define LONG ((size_t)64 * 2048) /* tokens, whose positions alone pass the bound */

/* A cache of so many tokens, filled by an engine without a bound. */
static struct attn_cache *long_cache(struct attn_cache_pool *pool, const struct attn_model *model,
                                     size_t tokens)
{
    struct attn_engine *engine;
    struct attn_cache *cache;
    float *x = calloc(tokens, 4 * sizeof *x);
    struct attn_step step = {.rows = tokens,
                             .hidden_states = x,
                             .commit = true,
                             .modifiers = {.has_window = true, .window_right = 0}};
    struct attn_step *steps[] = {&step};
    ck_assert_ptr_nonnull(x);
    ck_assert(attn_engine_open(&engine, NULL, NULL) == ATTN_OK);
    ck_assert(attn_cache_new(&cache, pool, model, tokens + 1, NULL) == ATTN_OK);
    step.cache = cache;
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    attn_engine_close(engine);
    free(x);
    return cache;
}

TEST(footprint_a_tree_step_that_would_pass_the_bound_fails_alone)
{
    static const char config[] = "{\"hidden_size\":4,\"num_attention_heads\":1}";
    static const uint8_t self[] = {1};
    static const int64_t position[] = {LONG};
    const struct attn_engine_options options = {.threads = 1, .call_bytes = LONG * 8};
    const float x[4] = {1, 2, 3, 4};
    float out[2][4], alone[4];
    struct attn_engine *engine;
    struct attn_model *model;
    struct attn_cache_pool *pool;
    model = opened_random(config, NULL);
    ck_assert(attn_cache_pool_new(&pool, (size_t)64 << 20) == ATTN_OK);
    ck_assert(attn_engine_open(&engine, &options, NULL) == ATTN_OK);
    struct attn_step tree = {
        .cache = long_cache(pool, model, LONG),
        .position = LONG,
        .rows = 1,
        .hidden_states = x,
        .modifiers = {.tree = true, .attention_mask = self, .position_ids = position},
        .outputs = {.output = out[0]}};
    struct attn_step plain = {.cache = long_cache(pool, model, 10),
                              .position = 10,
                              .rows = 1,
                              .hidden_states = x,
                              .outputs = {.output = alone}};
    struct attn_step *steps[] = {&plain, &tree};
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    plain.outputs.output = out[1];
    for (int order = 0; order < 2; order++) {
        steps[order] = &tree;
        steps[1 - order] = &plain;
        ck_assert_int_eq(attn_decode(engine, model, 0, steps, 2), ATTN_OK);
        ck_assert_int_eq(tree.error.status, ATTN_NO_MEMORY);
        ck_assert_int_eq(plain.error.status, ATTN_OK);
        ck_assert_int_eq(memcmp(out[1], alone, sizeof alone), 0);
    }
    attn_cache_free(tree.cache);
    attn_cache_free(plain.cache);
    attn_engine_close(engine);
    attn_cache_pool_free(pool);
    attn_model_close(model);
}

TEST(footprint_loading_takes_a_layer_in_float32_and_caches_whole_blocks)
{
    static const char config[] = "{\"hidden_size\":64,\"num_attention_heads\":4,"
                                 "\"num_key_value_heads\":2,\"num_hidden_layers\":3}";
    const struct attn_model_options options = {.dtype = ATTN_INT8, .kv_dtype = ATTN_INT8};
    struct attn_model_memory memory;
    struct attn_model *model;
    ck_assert(attn_model_open_random(&model, config, strlen(config), &options, NULL) == ATTN_OK);
    attn_model_memory(&memory, model);
    ck_assert_uint_eq(memory.loading_bytes, 4 * 64 * (64 + 32 + 32 + 64));
    ck_assert_uint_eq(memory.block_bytes, 64 * 2 * (16 + 16 + 8));
    ck_assert_uint_ge(memory.cache_bytes, 3 * sizeof(void *));
    attn_model_close(model);
}

/* The second layer reads the keys and values of the first. */
TEST(footprint_a_layer_that_reads_another_caches_nothing)
{
    static const char *const configs_of_two[] = {
        "{\"hidden_size\":16,\"num_attention_heads\":2,\"num_hidden_layers\":2}",
        "{\"hidden_size\":16,\"num_attention_heads\":2,\"num_hidden_layers\":2,"
        "\"num_kv_shared_layers\":1}"};
    struct attn_model_info info[2];
    for (size_t i = 0; i < 2; i++) {
        const char *config = configs_of_two[i];
        struct attn_model *model;
        ck_assert(attn_model_open_random(&model, config, strlen(config), NULL, NULL) == ATTN_OK);
        attn_model_describe(&info[i], model);
        attn_model_close(model);
    }
    ck_assert_uint_eq(info[0].cache_bytes_per_token, 2 * 2 * 16 * sizeof(float));
    ck_assert_uint_eq(info[1].cache_bytes_per_token, 2 * 16 * sizeof(float));
}

TEST(footprint_sums_that_do_not_fit_are_the_largest_number)
{
    struct attn_model *model = open_model(0);
    const struct attn_call_size huge = {SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2};
    ck_assert_uint_eq(attn_call_bytes(model, &huge, 128), SIZE_MAX);
    ck_assert_uint_eq(attn_call_bytes(NULL, &huge, 128), SIZE_MAX);
    attn_model_close(model);
}

/* ---- Huge pages ------------------------------------------------------------------------------ */

static size_t resident_bytes(void)
{
    size_t whole, resident;
    FILE *file = fopen("/proc/self/statm", "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%zu %zu", &whole, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Sanitizers manage pages in their own way. */
TEST_EACH(footprint_what_lies_in_huge_pages_takes_what_was_asked_for, !INSTRUMENTED)
{
    enum { PIECES = 32 };
    const size_t bytes = ATTN_HUGE_PAGE + ATTN_HUGE_PAGE / 16;
    char *pieces[PIECES];
    size_t before = resident_bytes();
    for (size_t i = 0; i < PIECES; i++) {
        ck_assert_ptr_nonnull(pieces[i] = attn_alloc_huge(1, bytes));
        memset(pieces[i], 1, bytes);
    }
    ck_assert_uint_le(resident_bytes(), before + PIECES * bytes + PIECES * ATTN_HUGE_PAGE / 4);
    for (size_t i = 0; i < PIECES; i++)
        attn_free(pieces[i]);
}

SUITE(footprint)
