/* test_portions.c: attn_attend computes a batch in portions of some sequences, and each sequence
 * has the results that it has alone. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "basics/mem.h"
#include "machine/workspace.h"
#include "opened.h"
#include "rng.h"
#include "suites.h"

#define BATCH ((size_t)5)
#define TOKENS ((size_t)200) /* two sequences are a portion; the last portion has one */
#define WIDTH ((size_t)64)
#define HEADS ((size_t)4)
#define GROUPS ((size_t)2)
#define HEAD_DIM ((size_t)16)

static struct attn_engine *engine;
static struct attn_model *model;
static struct attn_error error;

static void setup(void)
{
    static const char config[] = "{\"hidden_size\":64,\"num_attention_heads\":4,"
                                 "\"num_key_value_heads\":2,\"rope_theta\":10000,\"seed\":3}";
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    model = opened_random(config, NULL);
}

static void teardown(void)
{
    attn_model_close(model);
    attn_engine_close(engine);
}

/* ---- Sequences of a batch ---- */

/* The results of a call, and how many floats each has for one sequence. */
enum result { OUTPUT, LSE, KEY, VALUE, MEAN, QUERY, HEAD_OUTPUT, CONCAT, RESULTS };

static const size_t floats[RESULTS] = {
    [OUTPUT] = TOKENS * WIDTH,          [LSE] = HEADS * TOKENS,
    [KEY] = GROUPS * TOKENS * HEAD_DIM, [VALUE] = GROUPS * TOKENS * HEAD_DIM,
    [MEAN] = TOKENS * TOKENS,           [QUERY] = HEADS * TOKENS * HEAD_DIM,
    [HEAD_OUTPUT] = TOKENS * WIDTH,     [CONCAT] = TOKENS * WIDTH,
};

struct results {
    float *of[RESULTS];
    double *ablation; /* [batch][HEADS] */
};

static void make_results(struct results *results, size_t batch)
{
    for (size_t i = 0; i < RESULTS; i++)
        ck_assert_ptr_nonnull(results->of[i] = attn_calloc(batch * floats[i], sizeof(float)));
    results->ablation = attn_calloc(batch * HEADS, sizeof(double));
    ck_assert_ptr_nonnull(results->ablation);
}

static void free_results(struct results *results)
{
    for (size_t i = 0; i < RESULTS; i++)
        attn_free(results->of[i]);
    attn_free(results->ablation);
}

/* Computes sequences [first, first + batch). */
static void attend(const struct results *results, const float *x, const int64_t *positions,
                   const uint8_t *padding, size_t first, size_t batch)
{
    const struct attn_attend_args args = {
        .batch = batch,
        .queries = TOKENS,
        .hidden_states = x + first * TOKENS * WIDTH,
        .modifiers = {.position_ids = positions + first * TOKENS,
                      .padding_mask = padding + first * TOKENS},
        .outputs = {.output = results->of[OUTPUT],
                    .lse = results->of[LSE],
                    .key = results->of[KEY],
                    .value = results->of[VALUE],
                    .average_weights = results->of[MEAN],
                    .query = results->of[QUERY],
                    .head_output = results->of[HEAD_OUTPUT],
                    .concat = results->of[CONCAT],
                    .ablation = results->ablation},
    };
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
}

/* At the portable level products of many rows go through OpenBLAS, whose bits depend on the number
 * of rows. */
static void expect_same(const float *a, const float *b, size_t n)
{
    struct attn_engine_info info;
    attn_engine_describe(&info, engine);
    if (info.level != ATTN_CPU_PORTABLE) {
        ck_assert_mem_eq(a, b, n * sizeof *a);
        return;
    }
    for (size_t i = 0; i < n; i++)
        ck_assert_float_eq_tol(a[i], b[i], 1e-5f * fmaxf(1, fabsf(b[i])));
}

CASE(sequences, setup, teardown, 0)

TEST(portions_give_what_each_sequence_gives_alone)
{
    struct rng rng = rng_seeded(17);
    float *x = rng_floats(&rng, BATCH * TOKENS * WIDTH, 1);
    uint8_t *padding = rng_bytes(&rng, BATCH * TOKENS, 90);
    int64_t positions[BATCH * TOKENS];
    struct results all, one;
    for (size_t i = 0; i < BATCH * TOKENS; i++)
        positions[i] = (int64_t)(i % TOKENS + i / TOKENS * 31);
    for (size_t b = 0; b < BATCH; b++)
        padding[b * TOKENS] = 1; /* so that every row sees a key */
    make_results(&all, BATCH);
    make_results(&one, 1);
    attend(&all, x, positions, padding, 0, BATCH);
    for (size_t b = 0; b < BATCH; b++) {
        attend(&one, x, positions, padding, b, 1);
        for (size_t i = 0; i < RESULTS; i++)
            expect_same(all.of[i] + b * floats[i], one.of[i], floats[i]);
        for (size_t h = 0; h < HEADS; h++)
            ck_assert_double_eq_tol(all.ablation[b * HEADS + h], one.ablation[h], 1e-6);
    }
    free_results(&all);
    free_results(&one);
    free(x);
    free(padding);
}

/* ---- Memory ---- */

#define PIECE ((size_t)1 << 20)

/* Takes a piece and fills it with `value`. */
static unsigned char *take(struct attn_workspace *workspace, unsigned char value)
{
    unsigned char *piece = attn_workspace_alloc(workspace, PIECE, 1);
    ck_assert_ptr_nonnull(piece);
    return memset(piece, value, PIECE);
}

CASE(memory, NULL, NULL, 0)

TEST(portions_return_their_memory)
{
    struct attn_workspace workspace = {.limit = 6 * PIECE};
    const unsigned char *before = take(&workspace, 1);
    const struct attn_workspace_mark mark = attn_workspace_get_mark(&workspace);
    for (size_t portion = 0; portion < 100; portion++) {
        for (size_t i = 0; i < 3; i++)
            take(&workspace, 2);
        attn_workspace_rewind(&workspace, mark);
        ck_assert_uint_le(workspace.bytes, 3 * PIECE);
        ck_assert(before[0] == 1 && memcmp(before, before + 1, PIECE - 1) == 0);
    }
    attn_workspace_reset(&workspace);
    ck_assert_uint_le(workspace.bytes, workspace.limit / ATTN_WORKSPACE_SHARE);
    attn_workspace_fini(&workspace);
    ck_assert_uint_eq(workspace.bytes, 0);
}

/* Both pieces are in the first chunk, which stays. */
TEST(portions_return_to_where_they_began)
{
    struct attn_workspace workspace = {0};
    (void)attn_workspace_alloc(&workspace, 100, 1);
    const struct attn_workspace_mark mark = attn_workspace_get_mark(&workspace);
    const void *piece = attn_workspace_alloc(&workspace, 1000, 1);
    attn_workspace_rewind(&workspace, mark);
    ck_assert_ptr_eq(attn_workspace_alloc(&workspace, 1000, 1), piece);
    attn_workspace_fini(&workspace);
}

SUITE(portions)
