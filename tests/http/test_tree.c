/* test_tree.c: tree decoding: several continuations of a sequence in one step.  Rows with an
 * attention_mask among themselves get the outputs that each path of the tree gets alone.
 *
 *     0 --- 1 --- 3        rows and their depths: 0: 0   1, 2: 1   3, 4, 5: 2
 *      \     \--- 4
 *       \-- 2 --- 5
 */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

enum { NODES = 6, DEPTHS = 3, CACHED = 7, WIDTH = 24 };

static const int parents[NODES] = {-1, 0, 0, 1, 1, 2};
static const size_t paths[][DEPTHS] = {{0, 1, 3}, {0, 1, 4}, {0, 2, 5}};

/* Models of tests/reference, all of this width: windows, position bias, sinks, soft caps, norms,
 * fused weights. */
static const char *const models[] = {"mistral", "bloom", "bloom_6", "gpt_oss",   "gemma2",
                                     "qwen3",   "phi3",  "opt",     "llama_yarn"};
#define MODELS COUNT(models)

static void set_up(void)
{
    struct text config = {0};
    char whole[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("tests/reference", whole));
    text_add(&config, "{\"host\":\"127.0.0.1\",\"port\":0,\"models\":[");
    for (size_t i = 0; i < MODELS; i++)
        text_add(&config, "%s{\"name\":\"%s\",\"path\":\"%s/%s/model\"}", i > 0 ? "," : "",
                 models[i], whole, models[i]);
    text_add(&config, "]}");
    serve(config.data);
    text_free(&config);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* POSTs the rows that `list` names (NULL: all), with further members `extra`. */
static struct answer post_rows(const char *path, const char *model, const size_t *list, size_t n,
                               const char *extra)
{
    struct text body = {0};
    float nodes[NODES * WIDTH], rows[NODES * WIDTH];
    make_numbers(nodes, NODES * WIDTH, 77);
    for (size_t i = 0; i < n; i++)
        memcpy(rows + i * WIDTH, nodes + (list != NULL ? list[i] : i) * WIDTH,
               WIDTH * sizeof *rows);
    text_add(&body, "{\"model\":\"%s\",\"hidden_states\":", model);
    text_floats(&body, rows, 9, SHAPE(n, WIDTH));
    text_add(&body, "%s}", extra);
    struct answer answer = client_post(&client, path, body.data);
    expect_answer(&answer, 200, NULL, model);
    text_free(&body);
    return answer;
}

/* Likewise, as a step of the session that has the name of its model. */
static struct answer post_step(const char *path, const char *model, const size_t *list, size_t n,
                               const char *extra)
{
    struct text more = {0};
    text_add(&more, "%s,\"session_id\":\"%s\"", extra, model);
    struct answer answer = post_rows(path, model, list, n, more.data);
    text_free(&more);
    return answer;
}

/* Begins the session with its first CACHED tokens. */
static void begin(const char *model)
{
    float rows[CACHED * WIDTH];
    struct text body = {0};
    make_numbers(rows, CACHED * WIDTH, 33);
    text_add(&body,
             "{\"model\":\"%s\",\"session_id\":\"%s\",\"start\":true,\"hidden_states\":", model,
             model);
    text_floats(&body, rows, 9, SHAPE(CACHED, WIDTH));
    text_add(&body, "}");
    expect_posted(&client, "/attend", body.data, 200, NULL);
    text_free(&body);
}

/* Adds the members of a tree over `cached` tokens, with a mask of 2 to 4 dimensions. */
static void add_tree(struct text *extra, size_t cached, size_t rank, const char *more)
{
    uint8_t mask[NODES * NODES] = {0};
    int64_t positions[NODES];
    for (int i = 0; i < NODES; i++) {
        positions[i] = (int64_t)cached - 1;
        for (int j = i; j >= 0; j = parents[j]) {
            mask[i * NODES + j] = 1;
            positions[i]++;
        }
    }
    const size_t shape[] = {1, 1, NODES, NODES};
    text_add(extra, "%s,\"attention_mask\":", more);
    text_flags(extra, mask, false, rank, shape + 4 - rank);
    text_add(extra, ",\"position_ids\":");
    text_integers(extra, positions, SHAPE(NODES));
}

/* Fails unless each path, decoded alone and without commit, has the rows that the tree had. */
static void expect_paths(const char *model, const struct answer *tree, const char *more)
{
    char extra[128];
    snprintf(extra, sizeof extra, ",\"commit\":false%s", more);
    float *whole = tensor_of(tree->json, "output", SHAPE(NODES, WIDTH));
    for (size_t p = 0; p < 3; p++) {
        struct answer path = post_step("/decode", model, paths[p], DEPTHS, extra);
        float *rows = tensor_of(path.json, "output", SHAPE(DEPTHS, WIDTH));
        for (size_t d = 0; d < DEPTHS; d++)
            expect_close(model, whole + paths[p][d] * WIDTH, rows + d * WIDTH, WIDTH, 1e-5);
        free(rows);
        answer_free(&path);
    }
    free(whole);
}

static size_t length_of(const char *model) { return call_length(&client, model, 0); }

/* ---- Tests ----------------------------------------------------------------------------------- */

CASE(tree, set_up, serve_end, 0)

TEST_EACH(a_tree_gets_what_its_paths_get_and_keeps_nothing, (int)MODELS)
{
    static const char *const modifiers[] = {"", ",\"sliding_window\":3", ",\"sliding_window\":1",
                                            ",\"sliding_window\":[-1,-1],\"softcap\":0",
                                            ",\"softcap\":1.5,\"scale\":0.7"};
    const char *model = models[_i];
    begin(model);
    for (size_t i = 0; i < COUNT(modifiers); i++) {
        struct text extra = {0};
        add_tree(&extra, CACHED, 2, ",\"commit\":false");
        text_add(&extra, "%s", modifiers[i]);
        struct answer tree = post_step("/decode", model, NULL, NODES, extra.data);
        expect_paths(model, &tree, modifiers[i]);
        ck_assert_int_eq(answer_integer(&tree, "length"), CACHED);
        ck_assert_uint_eq(length_of(model), CACHED);
        answer_free(&tree);
        text_free(&extra);
    }
}

TEST_EACH(the_accepted_path_is_kept_as_if_nothing_had_been_tried, (int)MODELS)
{
    const char *model = models[_i];
    struct text extra = {0};
    begin(model);
    add_tree(&extra, CACHED, 2, ",\"commit\":false");
    struct answer tree = post_step("/decode", model, NULL, NODES, extra.data);
    struct answer kept = post_step("/decode", model, paths[1], DEPTHS, "");
    float *whole = tensor_of(tree.json, "output", SHAPE(NODES, WIDTH));
    float *rows = tensor_of(kept.json, "output", SHAPE(DEPTHS, WIDTH));
    for (size_t d = 0; d < DEPTHS; d++)
        expect_close(model, whole + paths[1][d] * WIDTH, rows + d * WIDTH, WIDTH, 1e-5);
    ck_assert_uint_eq(length_of(model), CACHED + DEPTHS);
    free(whole);
    free(rows);
    answer_free(&tree);
    answer_free(&kept);
    text_free(&extra);
}

TEST(a_tree_is_the_same_through_prefill_and_item_and_in_more_dimensions)
{
    const char *model = models[0];
    struct text two = {0}, three = {0}, four = {0};
    begin(model);
    add_tree(&two, CACHED, 2, ",\"commit\":false");
    add_tree(&three, CACHED, 3, ",\"commit\":false");
    add_tree(&four, CACHED, 4, ",\"commit\":false");
    struct answer tree = post_step("/decode", model, NULL, NODES, two.data);
    struct answer prefill = post_step("/attend", model, NULL, NODES, two.data);
    struct answer third = post_step("/decode", model, NULL, NODES, three.data);
    struct answer fourth = post_step("/decode", model, NULL, NODES, four.data);
    expect_same("prefill", prefill.json, tree.json, "output");
    expect_same("three dimensions", third.json, tree.json, "output");
    expect_same("four dimensions", fourth.json, tree.json, "output");
    answer_free(&tree);
    answer_free(&prefill);
    answer_free(&third);
    answer_free(&fourth);
    text_free(&two);
    text_free(&three);
    text_free(&four);
}

/* Adds the tree's mask over all keys: every row attends to every cached key, and to the tree's as
 * in the mask among the new rows. */
static void add_whole_mask(struct text *extra)
{
    uint8_t mask[NODES * (CACHED + NODES)] = {0};
    int64_t positions[NODES];
    for (int i = 0; i < NODES; i++) {
        memset(mask + i * (CACHED + NODES), 1, CACHED);
        positions[i] = CACHED - 1;
        for (int j = i; j >= 0; j = parents[j], positions[i]++)
            mask[i * (CACHED + NODES) + CACHED + j] = 1;
    }
    text_add(extra, ",\"commit\":false,\"attention_mask\":");
    text_flags(extra, mask, false, SHAPE(NODES, CACHED + NODES));
    text_add(extra, ",\"position_ids\":");
    text_integers(extra, positions, SHAPE(NODES));
}

TEST(a_tree_can_be_kept_and_said_over_all_keys)
{
    const char *model = "qwen3"; /* no window and no position bias */
    struct text whole = {0}, tree = {0};
    begin(model);
    add_whole_mask(&whole);
    add_tree(&tree, CACHED, 2, "");
    struct answer said = post_step("/decode", model, NULL, NODES, whole.data);
    struct answer kept = post_step("/decode", model, NULL, NODES, tree.data);
    text_add(&tree, ",\"position\":%d", CACHED);
    struct answer again = post_step("/decode", model, NULL, NODES, tree.data);
    expect_same("over all keys", said.json, kept.json, "output");
    expect_same("a repeat", again.json, kept.json, "output");
    ck_assert(json_is_true(json_object_get(again.json, "replayed")));
    ck_assert_uint_eq(length_of(model), CACHED + NODES);
    answer_free(&again);
    answer_free(&said);
    answer_free(&kept);
    text_free(&whole);
    text_free(&tree);
}

/* With nothing cached, a mask among the new rows is as wide as all keys and an ordinary one, as
 * without a session: windows and position biases go by slots. */
TEST_EACH(the_mask_of_a_first_step_is_an_ordinary_one, (int)MODELS)
{
    const char *model = models[_i];
    struct text first = {0}, alone = {0};
    add_tree(&first, 0, 2, ",\"start\":true,\"commit\":false");
    add_tree(&alone, 0, 2, "");
    struct answer step = post_step("/decode", model, NULL, NODES, first.data);
    struct answer rows = post_rows("/attend", model, NULL, NODES, alone.data);
    float *got = tensor_of(step.json, "output", SHAPE(NODES, WIDTH));
    float *want = tensor_of(rows.json, "output", SHAPE(NODES, WIDTH));
    expect_close(model, got, want, NODES * WIDTH, 1e-5);
    ck_assert_uint_eq(length_of(model), 0);
    free(want);
    free(got);
    answer_free(&rows);
    answer_free(&step);
    text_free(&alone);
    text_free(&first);
}

/* ---- Many at a time -------------------------------------------------------------------------- */

#define FORKS 255
#define TOKENS 65536 /* of each session: the positions of 32 sessions take 16 MB */
#define PIECE 16384
#define MANY_CONFIG                                                                                \
    "{\"port\":0,\"threads\":1,\"max_session_length\":65600,\"max_tokens\":16384,"                 \
    "\"max_body_bytes\":262144,\"max_reply_bytes\":8388608,\"cache_bytes\":16777216,\"models\":[{" \
    "\"name\":\"tiny\",\"random\":{\"hidden_size\":4,\"num_attention_heads\":1,\"is_causal\":"     \
    "true,"                                                                                        \
    "\"seed\":1}}]}"

static void fill_session(const char *id)
{
    for (size_t done = 0; done < TOKENS; done += PIECE) {
        struct text body = {0};
        text_add(&body, "{\"session_id\":\"%s\",\"start\":%s,\"sliding_window\":1,", id,
                 done == 0 ? "true" : "false");
        text_add(&body, "\"hidden_states\":{\"shape\":[%d,4],\"data\":[0", PIECE);
        for (size_t i = 1; i < PIECE * 4; i++)
            text_add(&body, ",%zu", i % 7);
        text_add(&body, "]}}");
        expect_posted(&client, "/attend", body.data, 200, NULL);
        text_free(&body);
    }
}

static void fork_sessions(void)
{
    for (size_t i = 1; i <= FORKS; i++) {
        char id[32];
        snprintf(id, sizeof id, "t%zu", i);
        call_fork(&client, "t0", id, "");
    }
}

CASE(many, NULL, NULL, 60)

/* The positions of all forks together would pass the memory that a call may take. */
TEST(trees_over_many_forks_of_a_long_session_leave_memory_for_each_other)
{
    struct text body = {0};
    serve(MANY_CONFIG);
    fill_session("t0");
    fork_sessions();
    text_add(&body, "{\"sequences\":[{\"session_id\":\"t0\",\"hidden_states\":[1,2,3,4]}");
    for (size_t i = 1; i <= FORKS; i++)
        text_add(&body,
                 ",{\"session_id\":\"t%zu\",\"commit\":false,\"hidden_states\":[[1,2,3,4]],"
                 "\"attention_mask\":[[true]],\"position_ids\":[%d]}",
                 i, TOKENS);
    text_add(&body, "]}");
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "the list");
    ck_assert_msg(strstr(answer.text, "\"error\"") == NULL, "%.200s",
                  strstr(answer.text, "\"error\""));
    answer_free(&answer);
    text_free(&body);
    serve_end();
}

SUITE(tree)
