/* test_weightless.c: sessions without weights: query, key and value over /decode, /attend and /v2.
 *
 * A token is named by its seed, from which its query, key and value follow.  Outputs are compared
 * with reference.c over all tokens so far, or with the bits of another session with the same
 * tokens. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "reference.h"
#include "scratch.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

enum { H = 4, G = 2, D = 4, V = 3, MOST = 80 };
#define SHAPE_FIELDS \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4,\"value_head_dim\":3"
#define TOLERANCE 1e-5

static char directory[SCRATCH_PATH];

static void start_as(const char *durability)
{
    serve_state(CONFIG_SMALL("\"max_weightless_shapes\":2,"), directory, durability);
}

static void start(void) { start_as("journal"); }

static void set_up(void)
{
    scratch_make(directory);
    start();
}

static void tear_down(void)
{
    serve_end();
    scratch_remove(directory);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* n tokens from a seed on, as calls have them: [heads][n][width]. */
static void make_tokens(float *out, size_t heads, size_t n, size_t width, unsigned seed, int which)
{
    float row[H * D];
    for (size_t t = 0; t < n; t++) {
        make_numbers(row, heads * width, 3 * (seed + (unsigned)t) + (unsigned)which);
        for (size_t h = 0; h < heads; h++)
            memcpy(out + (h * n + t) * width, row + h * width, width * sizeof *out);
    }
}

static void text_tokens(struct text *body, const char *id, unsigned seed, size_t n,
                        const char *extra)
{
    static float q[H * MOST * D], k[G * MOST * D], v[G * MOST * V];
    ck_assert_uint_le(n, MOST);
    make_tokens(q, H, n, D, seed, 0);
    make_tokens(k, G, n, D, seed, 1);
    make_tokens(v, G, n, V, seed, 2);
    text_add(body, "{\"session_id\":\"%s\",\"query\":", id);
    text_floats(body, q, 9, SHAPE(H, n, D));
    text_add(body, ",\"key\":");
    text_floats(body, k, 9, SHAPE(G, n, D));
    text_add(body, ",\"value\":");
    text_floats(body, v, 9, SHAPE(G, n, V));
    text_add(body, "%s}", extra);
}

static struct answer step(const char *path, const char *id, unsigned seed, size_t n,
                          const char *extra)
{
    struct text body = {0};
    text_tokens(&body, id, seed, n, extra);
    struct answer answer = client_post(&client, path, body.data);
    text_free(&body);
    return answer;
}

static void expect_step(const char *path, const char *id, unsigned seed, size_t n,
                        const char *extra)
{
    struct answer answer = step(path, id, seed, n, extra);
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
}

/* The bits of the next step, which is not committed; the caller frees them. */
static char *next_bits(const char *id)
{
    struct answer answer = step("/decode", id, 4711, 1, ",\"commit\":false");
    expect_answer(&answer, 200, NULL, id);
    char *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    return bits;
}

static void expect_same_next(const char *id, const char *other)
{
    char *bits = next_bits(id), *others = next_bits(other);
    ck_assert_str_eq(bits, others);
    free(bits);
    free(others);
}

static void create(const char *id, const char *fields)
{
    char body[512];
    snprintf(body, sizeof body, "{\"session_id\":\"%s\",%s}", id, fields);
    expect_posted(&client, "/sessions", body, 201, NULL);
}

/* ---- The reference --------------------------------------------------------------------------- */

static double causal(const void *context, size_t b, size_t h, size_t t, size_t s)
{
    const size_t *offset = context;
    (void)b, (void)h;
    return s <= t + *offset ? 0 : -INFINITY;
}

static double open_gate(const void *context, size_t h)
{
    (void)context, (void)h;
    return 1;
}

/* Compares the step of n tokens at `position` with attention over all tokens from `seed` on. */
static void expect_reference(const struct answer *answer, unsigned seed, size_t position, size_t n)
{
    static float q[H * MOST * D], k[G * 2 * MOST * D], v[G * 2 * MOST * V];
    make_tokens(q, H, n, D, seed + (unsigned)position, 0);
    make_tokens(k, G, position + n, D, seed, 1);
    make_tokens(v, G, position + n, V, seed, 2);
    struct reference want = {.batch = 1,
                             .heads = H,
                             .kv_heads = G,
                             .queries = n,
                             .keys = position + n,
                             .head_dim = D,
                             .value_dim = V,
                             .query = q,
                             .key = k,
                             .value = v,
                             .scale = 0.5,
                             .bias = causal,
                             .gate = open_gate,
                             .context = &position};
    reference_compute(&want);
    float *got = tensor_of(answer->json, "output", 3, (size_t[]){H, n, V});
    expect_close("output", got, want.output, H * n * V, TOLERANCE);
    free(got);
    reference_free(&want);
}

CASE(sessions, set_up, tear_down, 60)

TEST(steps_and_prefills_without_weights_equal_the_reference)
{
    static const size_t rows[] = {1, 70, 1, 5, 1};
    static const char *const paths[] = {"/decode", "/attend", "/decode", "/decode", "/attend"};
    size_t position = 0;
    for (size_t i = 0; i < 5; i++) {
        struct answer answer =
            step(paths[i], "s", 10 + (unsigned)position, rows[i], i == 0 ? ",\"start\":true" : "");
        expect_answer(&answer, 200, NULL, paths[i]);
        ck_assert_int_eq(answer_integer(&answer, "position"), (json_int_t)position);
        expect_reference(&answer, 10, position, rows[i]);
        position += rows[i];
        ck_assert_int_eq(answer_integer(&answer, "length"), (json_int_t)position);
        answer_free(&answer);
    }
}

/* ---- Forms ----------------------------------------------------------------------------------- */

TEST(many_sessions_of_one_request_succeed_or_fail_alone)
{
    struct text body = {0};
    call_create(&client, "model", "");
    create("a", SHAPE_FIELDS ",\"num_hidden_layers\":2");
    create("b", SHAPE_FIELDS);
    text_add(&body, "{\"sequences\":[");
    text_tokens(&body, "a", 1, 1, "");
    text_add(&body, ",");
    text_tokens(&body, "model", 1, 1, "");
    text_add(&body, ",");
    text_tokens(&body, "b", 1, 2, ",\"outputs\":[\"output\",\"key\",\"lse\"]");
    text_add(&body, ",{\"session_id\":\"b\",\"query\":[[1,2]],\"key\":[[1,2]],\"value\":[[1]]}");
    text_add(&body,
             ",{\"session_id\":\"b\",\"query\":[[1,2]],\"key\":[[1,2],[1,2]],\"value\":[[1],[1]]}");
    text_add(&body, "]}");
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "sequences");
    static const char *const codes[] = {NULL, "model_mismatch", NULL, "shape_mismatch",
                                        "shape_mismatch"};
    const json_t *sequences = json_object_get(answer.json, "sequences");
    for (size_t i = 0; i < 5; i++) {
        const json_t *error = json_object_get(json_array_get(sequences, i), "error");
        const char *code = json_string_value(json_object_get(error, "code"));
        ck_assert_msg(codes[i] == NULL ? error == NULL : code && strcmp(code, codes[i]) == 0,
                      "sequences[%zu]: %s", i, code ? code : "no error");
    }
    float *key = tensor_of(json_array_get(sequences, 2), "key", 3, (size_t[]){G, 2, D}),
          want[G * 2 * D];
    make_tokens(want, G, 2, D, 1, 1);
    expect_close("key", key, want, G * 2 * D, 1e-6);
    free(key);
    answer_free(&answer);
    text_free(&body);
    expect_step("/decode", "a", 9, 1, ",\"layer\":1");
    ck_assert_uint_eq(call_length(&client, "a", 0), 1);
    ck_assert_uint_eq(call_length(&client, "a", 1), 1);
    ck_assert_uint_eq(call_length(&client, "b", 0), 2);
}

TEST(one_row_has_no_dimension_of_tokens)
{
    static const char body[] =
        "{\"session_id\":\"s\",\"start\":true,\"query\":[[1,0],[0,1],[1,1],[2,0]],"
        "\"key\":[[1,2],[3,4]],\"value\":[[5,6,7],[8,9,10]]}";
    static const float want[] = {5, 6, 7, 5, 6, 7, 8, 9, 10, 8, 9, 10};
    struct answer answer = client_post(&client, "/decode", body);
    expect_answer(&answer, 200, NULL, "one row");
    float *got = tensor_of(answer.json, "output", 2, (size_t[]){4, 3});
    expect_close("output", got, want, 12, 0);
    free(got);
    answer_free(&answer);
}

TEST(a_sequence_of_v2_is_a_session_without_weights)
{
    static const char infer[] =
        "{\"parameters\":{\"sequence_id\":\"v\"%s},\"inputs\":["
        "{\"name\":\"query\",\"shape\":[1,1,1,2],\"datatype\":\"FP32\",\"data\":[1,2]},"
        "{\"name\":\"key\",\"shape\":[1,1,1,2],\"datatype\":\"FP32\",\"data\":[3,4]},"
        "{\"name\":\"value\",\"shape\":[1,1,1,2],\"datatype\":\"FP32\",\"data\":[5,6]}]}";
    static const char *const parameters[] = {",\"sequence_start\":true", "",
                                             ",\"sequence_end\":true"};
    for (size_t i = 0; i < 3; i++) {
        char body[512];
        snprintf(body, sizeof body, infer, parameters[i]);
        struct answer answer = client_post(&client, "/v2/models/attention/infer", body);
        ck_assert_msg(answer.status == 200, "%s", answer.text);
        const json_t *length =
            json_object_get(json_object_get(answer.json, "parameters"), "length");
        ck_assert_int_eq(json_integer_value(length), (json_int_t)i + 1);
        answer_free(&answer);
    }
    ck_assert_int_eq(call_status(&client, "v"), 404);
}

/* ---- Retries and state ----------------------------------------------------------------------- */

TEST(a_retry_is_answered_again_and_other_keys_are_a_conflict)
{
    expect_step("/decode", "s", 1, 2, ",\"start\":true,\"position\":0");
    struct answer first = step("/decode", "s", 3, 1, ",\"position\":2");
    struct answer again = step("/decode", "s", 3, 1, ",\"position\":2");
    expect_answer(&again, 200, NULL, "the same step");
    ck_assert(json_is_true(json_object_get(again.json, "replayed")));
    expect_same("output", again.json, first.json, "output");
    ck_assert_uint_eq(call_length(&client, "s", 0), 3);
    static const char *const others[] = {
        "\"query\":[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]],\"key\":[[1,2,3,4],[1,2,3,4]],"
        "\"value\":[[1,2,3],[1,2,3]]",
        "\"query\":[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]],\"key\":[[1,2,3,5],[1,2,3,4]],"
        "\"value\":[[1,2,3],[1,2,3]]",
        "\"query\":[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]],\"key\":[[1,2,3,4],[1,2,3,4]],"
        "\"value\":[[1,2,3],[1,2,4]]"};
    for (size_t i = 0; i < 3; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"session_id\":\"s\",\"position\":3,%s}", others[i]);
        expect_posted(&client, "/decode", body, i == 0 ? 200 : 409,
                      i == 0 ? NULL : "position_conflict");
    }
    answer_free(&first);
    answer_free(&again);
}

/* GET of a state, and PUT of it as another session. */
static void move_state(const char *id, const char *to)
{
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    struct answer state = client_get(&client, path);
    expect_answer(&state, 200, NULL, path);
    snprintf(path, sizeof path, "/sessions/%s/state", to);
    struct answer answer =
        client_send(&client, &(struct request){"PUT", path, state.text, .length = state.length,
                                               .headers = type});
    expect_answer(&answer, 201, NULL, path);
    answer_free(&answer);
    answer_free(&state);
}

TEST(forks_truncation_and_states_keep_the_bits)
{
    create("s", SHAPE_FIELDS ",\"kv_dtype\":\"bf16\",\"scale\":0.3,\"sliding_window\":40");
    expect_step("/attend", "s", 1, 70, "");
    call_fork(&client, "s", "fork", "");
    move_state("s", "moved");
    expect_same_next("fork", "s");
    expect_same_next("moved", "s");
    expect_step("/decode", "s", 100, 3, "");
    expect_posted(&client, "/sessions/s/truncate", "{\"length\":70}", 200, NULL);
    expect_same_next("s", "fork");
}

TEST(a_restart_restores_sessions_from_journal_and_snapshot)
{
    create("journal", SHAPE_FIELDS ",\"softcap\":3,\"num_hidden_layers\":2");
    expect_step("/attend", "journal", 1, 70, "");
    char *bits = next_bits("journal");
    for (int restart = 0; restart < 3; restart++) {
        if (restart == 1) {
            struct answer answer = client_post(&client, "/snapshot", "");
            answer_free(&answer);
        }
        if (restart == 0) {
            serve_kill();
        } else {
            serve_end();
        }
        start();
        char *now = next_bits("journal");
        ck_assert_str_eq(now, bits);
        free(now);
    }
    free(bits);
    struct answer answer = step("/attend", "journal", 1, 70, ",\"position\":0");
    expect_answer(&answer, 200, NULL, "a retry after the restart");
    ck_assert(json_is_true(json_object_get(answer.json, "replayed")));
    answer_free(&answer);
}

#define END_FIELDS "\"num_attention_heads\":1,\"head_dim\":4,\"kv_dtype\":"

/* The output of a step with these components of key and value, or of one that is not committed;
 * its bits are the caller's to free. */
static char *end_step(const char *id, const char *row, bool commit)
{
    char body[400];
    snprintf(body, sizeof body,
             "{\"session_id\":\"%s\",\"query\":[[1e-15,2e-15,-1e-15,0]],\"key\":[[%s]],"
             "\"value\":[[%s]]%s}",
             id, row, row, commit ? "" : ",\"commit\":false");
    struct answer answer = client_post(&client, "/decode", body);
    expect_answer(&answer, 200, NULL, body);
    char *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    return bits;
}

/* Of every kv_dtype, rows at the ends of what is accepted. */
TEST_EACH(rows_at_the_ends_of_ranges_outlive_export_snapshot_and_kill, 4)
{
    static const char *const dtypes[] = {"\"f32\"", "\"bf16\"", "\"f16\"", "\"int8\""};
    static const char *const ends[] = {"0,-0.0,1e-45,-1e-38",  "65519,-65519,6e-8,1",
                                       "1e15,-9.99999e14,3,0", "-1e15,1e15,1e-45,65504",
                                       "9.9999e14,1,1,1",      "-9.998e14,1.5e-36,0,1e-30"};
    const bool narrow = _i == 2; /* f16 holds less than the others accept */
    char fields[96];
    snprintf(fields, sizeof fields, END_FIELDS "%s", dtypes[_i]);
    create("s", fields);
    for (size_t i = 0; i < (narrow ? 2 : COUNT(ends)); i++)
        free(end_step("s", ends[i], true));
    char *bits = end_step("s", "0,0,0,1", false);
    for (int i = 0; i < 3; i++) {
        move_state("s", "moved");
        char *moved = end_step("moved", "0,0,0,1", false), *own = end_step("s", "0,0,0,1", false);
        ck_assert_str_eq(moved, bits);
        ck_assert_str_eq(own, bits);
        free(moved);
        free(own);
        call_delete(&client, "moved");
        if (i == 0) {
            call_snapshot(&client);
            serve_kill();
        } else { /* while a snapshot is made */
            expect_posted(&client, "/snapshot", "", 202, NULL);
            serve_end();
        }
        start_as(i < 1 ? "journal" : "snapshot");
    }
    free(bits);
}

/* With fewer shapes than sessions have, from the journal and from files of a snapshot. */
TEST_EACH(a_restart_with_fewer_shapes_is_refused_and_loses_nothing, 4)
{
    char own[64], path[96], *out, *err;
    create("a", SHAPE_FIELDS);
    create("b", SHAPE_FIELDS ",\"kv_dtype\":\"f16\"");
    expect_step("/decode", "b", 1, 3, "");
    if (_i >= 2) {
        struct answer answer = client_post(&client, "/snapshot", "");
        answer_free(&answer);
    }
    serve_end();
    config_write(own, path,
                 _i % 2 == 0 ? CONFIG_SMALL("\"max_weightless_shapes\":1,")
                             : CONFIG_SMALL("\"max_weightless_shapes\":0,"));
    const char *const arguments[] = {"--config",     path,      "--state-dir", directory,
                                     "--durability", "journal", NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, "cannot be held") != NULL &&
                      strstr(err, "max_weightless_shapes") != NULL,
                  "%s", err);
    config_remove(own);
    free(out);
    free(err);
    start();
    ck_assert_uint_eq(call_length(&client, "a", 0), 0);
    ck_assert_uint_eq(call_length(&client, "b", 0), 3);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static void expect_create(const char *body, long status, const char *code, const char *param)
{
    struct answer answer = client_post(&client, "/sessions", body);
    expect_answer(&answer, status, code, body);
    const json_t *error = json_object_get(answer.json, "error");
    ck_assert_msg(strcmp(json_string_value(json_object_get(error, "param")), param) == 0, "%s: %s",
                  body, answer.text);
    answer_free(&answer);
}

TEST(shapes_are_bounded_and_freed_with_their_last_session)
{
    static const char body[] = "{\"num_attention_heads\":4,\"head_dim\":8}";
    create("a", SHAPE_FIELDS);
    create("b", SHAPE_FIELDS ",\"kv_dtype\":\"f16\"");
    create("c", SHAPE_FIELDS); /* as a */
    expect_create(body, 503, "session_limit", "max_weightless_shapes");
    ck_assert_double_eq(call_metric(&client, "attnd_weightless_shapes"), 2);
    ck_assert_double_eq(call_metric(&client, "attnd_model_sessions{model=\"(none)\"}"), 3);
    call_delete(&client, "a");
    expect_create(body, 503, "session_limit", "max_weightless_shapes");
    call_delete(&client, "c");
    create("d", "\"num_attention_heads\":4,\"head_dim\":8");
    call_delete(&client, "b");
    call_delete(&client, "d");
    ck_assert_double_eq(call_metric(&client, "attnd_weightless_shapes"), 0);
}

TEST(a_session_says_its_shape)
{
    create("s", "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"head_dim\":4,"
                "\"kv_dtype\":\"int8\",\"softcap\":30,\"sliding_window\":12");
    struct answer answer = client_get(&client, "/sessions/s");
    json_t *want =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:i}", "num_attention_heads", 6,
                  "num_key_value_heads", 3, "head_dim", 4, "value_head_dim", 4, "num_hidden_layers",
                  1, "kv_dtype", "int8", "scale", 0.5, "softcap", 30.0, "sliding_window", 12);
    const json_t *shape = json_object_get(answer.json, "weightless"), *value;
    const char *name;
    ck_assert(json_is_null(json_object_get(answer.json, "model")));
    json_object_foreach(want, name, value) {
        const json_t *got = json_object_get(shape, name);
        ck_assert_msg(json_is_number(value) ? json_number_value(got) == json_number_value(value)
                                            : json_equal(got, value),
                      "%s in %s", name, answer.text);
    }
    json_decref(want);
    answer_free(&answer);
}

TEST(shapes_that_cannot_be_are_refused_by_name)
{
    static const struct {
        const char *body, *code, *param;
    } cases[] = {
        {"{\"num_attention_heads\":4}", "missing_field", "head_dim"},
        {"{\"head_dim\":4}", "missing_field", "num_attention_heads"},
        {"{\"kv_dtype\":\"f32\"}", "missing_field", "num_attention_heads"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"model\":\"tiny\"}", "invalid_value",
         "num_attention_heads"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"kv_dtype\":\"f64\"}", "invalid_value",
         "kv_dtype"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"num_key_value_heads\":3}", "invalid_value",
         "num_key_value_heads"},
        {"{\"num_attention_heads\":4000,\"head_dim\":4}", "invalid_value", "num_attention_heads"},
        {"{\"num_attention_heads\":1024,\"head_dim\":65}", "invalid_value", "num_attention_heads"},
        {"{\"num_attention_heads\":4,\"head_dim\":4000}", "invalid_value", "head_dim"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"num_hidden_layers\":257}", "invalid_value",
         "num_hidden_layers"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"scale\":1e-60}", "invalid_value", "scale"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"scale\":1e6}", "invalid_value", "scale"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"scale\":\"1\"}", "invalid_type", "scale"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"softcap\":1e-9}", "invalid_value", "softcap"},
        {"{\"num_attention_heads\":4,\"head_dim\":4,\"sliding_window\":0}", "invalid_value",
         "sliding_window"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_create(cases[i].body, 400, cases[i].code, cases[i].param);
    ck_assert_double_eq(call_metric(&client, "attnd_weightless_shapes"), 0);
}

TEST(rows_of_the_wrong_kind_are_refused)
{
    create("s", SHAPE_FIELDS);
    call_create(&client, "model", "");
    static const char one[] = "\"query\":[[1]],\"key\":[[1]],\"value\":[[1]]";
    static const struct {
        const char *path, *body;
        long status;
        const char *code;
    } cases[] = {
        {"/decode", "{\"session_id\":\"s\",\"hidden_states\":[1]}", 409, "model_mismatch"},
        {"/decode",
         "{\"session_id\":\"s\",\"model\":\"plain\",\"hidden_states\":[1,2,3,4,5,6,7,8]}", 409,
         "model_mismatch"},
        {"/decode", "{\"session_id\":\"model\",%s}", 409, "model_mismatch"},
        {"/decode", "{\"session_id\":\"s\",%s}", 422, "shape_mismatch"},
        {"/decode", "{\"session_id\":\"s\",\"layer\":1,%s}", 404, "layer_not_found"},
        {"/decode", "{\"session_id\":\"new\",\"start\":true,\"layer\":1,%s}", 404,
         "layer_not_found"},
        {"/decode", "{\"session_id\":\"new\",%s}", 404, "session_not_found"},
        {"/decode", "{\"session_id\":\"s\",\"outputs\":[\"concat\"],%s}", 422, "unsupported"},
        {"/decode", "{\"session_id\":\"s\",\"query_offset\":0,%s}", 422, "unsupported"},
        {"/attend", "{\"layer\":0,%s}", 400, "invalid_value"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char body[256];
        snprintf(body, sizeof body, cases[i].body, one);
        expect_posted(&client, cases[i].path, body, cases[i].status, cases[i].code);
    }
    ck_assert_int_eq(call_status(&client, "new"), 404);
    ck_assert_uint_eq(call_length(&client, "s", 0), 0);
}

SUITE(weightless)
