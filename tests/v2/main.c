/* main.c: the Open Inference Protocol as its clients speak it: build/v2 [--quick].
 *
 * Requests are bytes on a connection, as tritonclient (sync and asyncio) and curl were seen to send
 * them.  Every call of every form is made as /attend and as an infer request, and both replies must
 * hold the same bits.  Exchanges are counted; each is judged. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "cases.h"
#include "forms.h"
#include "infer.h"
#include "suite_run.h"
#include "tensors.h"
#include "verdict.h"

#define WAIT_MS 60000
#define ROUNDS 20 /* of random calls over sequences, each of STEPS */
#define ROUNDS_QUICK 3
#define STEPS 24
#define COMPARED_MIN 100 /* more than so many, in the quick form too: nothing here is drawn */
#define REPLAYS_MIN 10
#define REFUSALS_MIN 100

static bool quick;
static size_t exchanges, compared, replays, refusals;
static struct daemon served;
static struct client client; /* of native calls */
static struct raw raw;       /* one connection for all of the other */

/* ---- Asking ---------------------------------------------------------------------------------- */

static struct raw_answer send_bytes(const struct text *request)
{
    ck_assert(raw_send(&raw, request->data, request->length));
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    char connection[256];
    ck_assert_msg(answer.status != 0, "no answer to %.200s", request->data);
    if (raw_header(connection, &answer, "Connection") && strcmp(connection, "close") == 0) {
        raw_close(&raw);
        raw_open(&raw, served.host, served.port);
    }
    exchanges++;
    return answer;
}

static struct raw_answer ask(enum v2_client kind, const char *method, const char *path,
                             const char *body, const char *fields)
{
    struct text request = {0};
    v2_head(&request, kind, method, path, body != NULL ? strlen(body) : SIZE_MAX, fields);
    text_add(&request, "%s", body != NULL ? body : "");
    struct raw_answer answer = send_bytes(&request);
    text_free(&request);
    return answer;
}

static struct raw_answer ask_infer(const char *native, const struct v2_form *form)
{
    struct text request = {0};
    v2_request(&request, native, form);
    struct raw_answer answer = send_bytes(&request);
    text_free(&request);
    return answer;
}

/* The members of `want` that an infer reply has must be the same. */
static void expect_equal(const json_t *got, const json_t *want, const char *what)
{
    const char *name;
    json_t *value;
    struct answer ours = {.json = json_object()}, theirs = {.json = json_object()};
    json_object_foreach((json_t *)want, name, value) {
        if (strcmp(name, "model") == 0 || strcmp(name, "layer") == 0)
            continue;
        ck_assert_msg(json_object_get(got, name) != NULL, "%s: no %s", what, name);
        json_object_set(ours.json, name, json_object_get(got, name));
        json_object_set(theirs.json, name, value);
    }
    expect_same_answers(&ours, &theirs, what);
    json_decref(ours.json);
    json_decref(theirs.json);
    compared++;
}

/* ---- Every form of call ---------------------------------------------------------------------- */

static const char *const outputs[] = {
    "",
    ",\"outputs\":[\"attention_weights\",\"output\",\"lse\",\"attention_scores\"]",
    ",\"outputs\":[\"attention_scores\",\"lse\"],\"stage\":\"masked\",\"heads\":[1,0],\"rows\":[2,"
    "0]",
    ",\"outputs\":[\"output\",\"attention_weights\"],\"top_k\":2",
    ",\"outputs\":[\"lse\",\"attention_weights\"],\"top_k\":3,\"average_heads\":true",
    ",\"is_causal\":true,\"scale\":0.5,\"softcap\":3,\"sliding_window\":[2,1]",
    ",\"outputs\":[\"concat\",\"key\",\"query\",\"head_output\",\"value\"],\"heads\":[1]",
};
#define OF_LAYERS (sizeof outputs / sizeof outputs[0] - 1) /* no outputs of weightless attention */

static void compare_call(int i, const char *extra, const struct v2_form *form)
{
    struct text body = {0};
    form_body(&body, i, extra);
    struct answer native = client_post(&client, form_path(i), body.data);
    expect_answer(&native, 200, NULL, forms[i].name);
    struct raw_answer answer = ask_infer(body.data, form);
    json_t *reply = v2_reply(&answer, form, forms[i].name);
    expect_equal(reply, native.json, forms[i].name);
    json_decref(reply);
    raw_answer_free(&answer);
    answer_free(&native);
    text_free(&body);
}

/* All clients and forms of outputs by turns; the whole run takes their product. */
START_TEST(test_every_call_has_the_bits_of_attend)
{
    unsigned turn = 0, step = quick ? 7 : 1;
    for (int i = 0; i < FORM_COUNT; i++) {
        if (i == FORM_ITEM)
            continue;
        for (size_t k = 0; k < OF_LAYERS + (i != FORM_WEIGHTLESS); k++)
            for (unsigned mix = turn++ % step; mix < V2_CLIENTS * V2_OUTPUTS * 4; mix += step) {
                const struct v2_form form = {
                    .client = (enum v2_client)(mix % V2_CLIENTS),
                    .outputs = (enum v2_outputs)(mix / V2_CLIENTS % V2_OUTPUTS),
                    .binary = mix / (V2_CLIENTS * V2_OUTPUTS) % 2 == 1,
                    .backwards = mix / (V2_CLIENTS * V2_OUTPUTS) / 2 == 1,
                    .coding = (enum v2_coding)(turn % V2_CODINGS),
                    .version = turn % 2 == 1,
                    .id = turn % 3 == 1   ? "a b/7"
                          : turn % 3 == 2 ? "1"
                                          : NULL,
                    .extra = turn % 2 == 0 ? "\"priority\":3,\"timeout\":60000000," : NULL,
                };
                compare_call(i, outputs[k], &form);
            }
    }
}
END_TEST

/* ---- Sequences ------------------------------------------------------------------------------- */

static void add_step(struct text *body, const char *id, unsigned seed, size_t rows, size_t position,
                     bool start)
{
    float numbers[4 * TINY];
    make_numbers(numbers, rows * TINY, seed);
    body->length = 0;
    text_add(body, "{\"model\":\"tiny\",\"session_id\":\"%s\",\"position\":%zu%s,", id, position,
             start ? ",\"start\":true" : "");
    text_add(body, "\"hidden_states\":");
    text_floats(body, numbers, 9, SHAPE(1, rows, TINY));
    text_add(body, "}");
}

/* The same step natively, over the twin of the sequence. */
static json_t *native_step(const char *twin, unsigned seed, size_t rows, size_t position)
{
    struct text body = {0};
    add_step(&body, twin, seed, rows, position, position == 0);
    struct answer answer = client_post(&client, "/attend", body.data);
    expect_answer(&answer, 200, NULL, twin);
    json_t *json = json_incref(answer.json);
    answer_free(&answer);
    text_free(&body);
    return json;
}

/* Makes a step, sometimes twice; the repeat must say so and have the same bits. */
static void step_and_compare(const char *id, const char *twin, unsigned seed, size_t rows,
                             size_t position, const struct v2_form *form)
{
    struct text body = {0};
    json_t *want = native_step(twin, seed, rows, position), *first = NULL;
    json_object_del(want, "session_id");
    json_object_del(want, "epoch");
    json_object_del(want, "revision");
    add_step(&body, id, seed, rows, position, position == 0);
    for (unsigned again = 0; again < 1 + seed % 2; again++) {
        struct raw_answer answer = ask_infer(body.data, form);
        json_t *got = v2_reply(&answer, form, id);
        expect_equal(got, want, id);
        ck_assert_int_eq(json_integer_value(json_object_get(got, "length")),
                         (json_int_t)(position + rows));
        ck_assert_int_eq(json_is_true(json_object_get(got, "replayed")), again > 0);
        if (first != NULL)
            ck_assert(json_equal(json_object_get(got, "epoch"), json_object_get(first, "epoch")));
        replays += again > 0;
        json_decref(first);
        first = got;
        raw_answer_free(&answer);
    }
    json_decref(first);
    json_decref(want);
    text_free(&body);
}

static void run_sequence(unsigned round)
{
    char id[32], twin[32], request[32];
    size_t position = 0;
    snprintf(id, sizeof id, "%u", 1000000u + round);
    snprintf(twin, sizeof twin, "twin-%u", round);
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned seed = round * STEPS + i;
        size_t rows = 1 + seed % 3;
        bool ends = i == STEPS - 1;
        snprintf(request, sizeof request, "request-%u", i);
        const struct v2_form form = {
            .client = (enum v2_client)(seed % V2_CLIENTS),
            .outputs = (enum v2_outputs)(seed % V2_OUTPUTS),
            .binary = seed % 5 < 3,
            .id = request,
            .extra = ends ? "\"sequence_end\":true," : "\"sequence_end\":false,",
        };
        step_and_compare(id, twin, ends ? seed & ~1u : seed, rows, position, &form);
        position += rows;
    }
    ck_assert_int_eq(call_status(&client, id), 404);
    ck_assert_uint_eq(call_length(&client, twin, 0), position);
}

START_TEST(test_sequences_have_the_bits_of_sessions_and_repeats_are_applied_once)
{
    for (unsigned round = 0; round < (quick ? ROUNDS_QUICK : ROUNDS); round++)
        run_sequence(round);
}
END_TEST

/* ---- Routes and refusals --------------------------------------------------------------------- */

static const struct {
    const char *method, *path, *body, *holds;
} routes[] = {
    {"GET", "/v2", NULL,
     "\"extensions\":[\"binary_tensor_data\",\"model_configuration\",\"parameters\","
     "\"sequence\",\"statistics\"]"},
    {"GET", "/v2/", NULL, "\"name\":\"attnd\""},
    {"GET", "/v2/health/live", NULL, ""},
    {"GET", "/v2/health/ready", NULL, ""},
    {"GET", "/v2/models/tiny", NULL, "\"versions\":[\"1\"],\"platform\":\"attnd\""},
    {"GET", "/v2/models/tiny/versions/1", NULL, "\"datatype\":\"FP32\",\"shape\":[-1,-1,16]"},
    {"GET", "/v2/models/tiny.1", NULL, "\"name\":\"tiny.1\""},
    {"GET", "/v2/models/attention", NULL, "\"name\":\"query\""},
    {"GET", "/v2/models/plain", NULL, "\"name\":\"encoder_hidden_states\""},
    {"GET", "/v2/models/tiny/ready", NULL, ""},
    {"GET", "/v2/models/tiny.0/versions/1/ready", NULL, ""},
    {"GET", "/v2/models/tiny/config", NULL, "\"data_type\":\"TYPE_FP32\",\"dims\":[-1,-1,16]"},
    {"GET", "/v2/models/tiny/versions/1/config", NULL, "\"sequence_batching\":{"},
    {"GET", "/v2/models/attention/config", NULL, "\"max_batch_size\":0"},
    {"GET", "/v2/models/tiny/stats", NULL, "\"model_stats\":[{\"name\":\"tiny\""},
    {"GET", "/v2/models/tiny.1/versions/1/stats", NULL, "\"inference_count\":"},
    {"GET", "/v2/models/stats", NULL, "\"name\":\"attention\",\"version\":\"1\""},
    {"POST", "/v2/repository/index", NULL, "{\"name\":\"plain.0\",\"version\":\"1\""},
    {"POST", "/v2/repository/index", "{\"ready\":true}", "\"state\":\"READY\""},
};

START_TEST(test_every_route_answers_every_client_with_200)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        for (enum v2_client kind = V2_SYNC; kind < V2_CLIENTS; kind++) {
            char field[256];
            struct raw_answer answer =
                ask(kind, routes[i].method, routes[i].path, routes[i].body, "");
            ck_assert_msg(answer.status == 200, "%s: %u %.200s", routes[i].path, answer.status,
                          answer.body);
            ck_assert_msg(strstr(answer.body, routes[i].holds) != NULL, "%s: %.400s",
                          routes[i].path, answer.body);
            ck_assert(!raw_header(field, &answer, "Content-Encoding"));
            json_t *json = json_loads(answer.body, JSON_REJECT_DUPLICATES, NULL);
            ck_assert_msg(json != NULL, "%s: %.200s", routes[i].path, answer.body);
            json_decref(json);
            raw_answer_free(&answer);
        }
}
END_TEST

#define INFER "/v2/models/tiny/infer"

static json_t *ask_json(const char *method, const char *path, const char *body)
{
    struct raw_answer answer = ask(V2_CURL, method, path, body, "");
    ck_assert_msg(answer.status == 200, "%s: %u %.200s", path, answer.status, answer.body);
    json_t *json = json_loads(answer.body, 0, NULL);
    ck_assert_ptr_nonnull(json);
    raw_answer_free(&answer);
    return json;
}

/* Fails unless a tensor of a reply has the name, datatype and shape of the model's metadata. */
static void expect_described(const json_t *tensor, const json_t *described)
{
    const char *name = json_string_value(json_object_get(tensor, "name")), *type, *described_type;
    const json_t *got = json_object_get(tensor, "shape");
    const json_t *want = json_object_get(described, "shape");
    ck_assert_str_eq(name, json_string_value(json_object_get(described, "name")));
    type = json_string_value(json_object_get(tensor, "datatype"));
    described_type = json_string_value(json_object_get(described, "datatype"));
    ck_assert_str_eq(type, described_type);
    ck_assert_uint_eq(json_array_size(got), json_array_size(want));
    for (size_t d = 0; d < json_array_size(got); d++) {
        json_int_t size = json_integer_value(json_array_get(want, d));
        ck_assert_msg(size == -1 || size == json_integer_value(json_array_get(got, d)),
                      "%s: dimension %zu", name, d);
    }
}

static const json_t *named(const json_t *list, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
            return item;
    return NULL;
}

/* Asks for every output that /openapi.json names, of 2 sequences of 3 rows. */
START_TEST(test_metadata_has_every_output_in_its_shape)
{
    struct text body = {0};
    size_t i, asked = 0;
    json_t *name, *tensor, *document = ask_json("GET", "/openapi.json", NULL);
    json_t *metadata = ask_json("GET", "/v2/models/tiny", NULL), *names = NULL;
    json_unpack(document, "{s:{s:{s:{s:o}}}}", "components", "schemas", "OutputName", "enum",
                &names);
    text_add(&body, "{\"inputs\":[{\"name\":\"hidden_states\",\"shape\":[2,3,16],\"datatype\":"
                    "\"FP32\",\"data\":[0");
    for (i = 1; i < (size_t)2 * 3 * 16; i++)
        text_add(&body, ",%zu", i % 7);
    text_add(&body, "]}],\"outputs\":[");
    json_array_foreach(names, i, name)
        if (strcmp(json_string_value(name), "head_stats") != 0)
            text_add(&body, "%s{\"name\":\"%s\"}", asked++ > 0 ? "," : "", json_string_value(name));
    text_add(&body, "]}");
    json_t *reply = ask_json("POST", INFER, body.data);
    const json_t *described = json_object_get(metadata, "outputs");
    ck_assert_uint_ge(asked, 9);
    ck_assert_uint_eq(json_array_size(json_object_get(reply, "outputs")), asked);
    ck_assert_uint_eq(json_array_size(described), asked);
    json_array_foreach(json_object_get(reply, "outputs"), i, tensor)
        expect_described(tensor,
                         named(described, json_string_value(json_object_get(tensor, "name"))));
    json_decref(reply);
    json_decref(metadata);
    json_decref(document);
    text_free(&body);
}
END_TEST

#define INPUT(rest) "{\"inputs\":[{\"name\":\"hidden_states\"," rest "}]}"
#define ROW "[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7]"
#define GOOD "\"shape\":[1,1,16],\"datatype\":\"FP32\",\"data\":" ROW
#define HIDDEN "\"inputs\":[{\"name\":\"hidden_states\"," GOOD "}]"

static const struct {
    const char *method, *path, *body;
    unsigned status;
    const char *code;
} wrong[] = {
    {"GET", "/v2/nothing", NULL, 404, "route_not_found"},
    {"GET", "/v2//", NULL, 404, "route_not_found"},
    {"GET", "/v2/models", NULL, 404, "route_not_found"},
    {"GET", "/v2/systemsharedmemory/status", NULL, 404, "route_not_found"},
    {"GET", "/v2/models/tiny/versions/2", NULL, 404, "route_not_found"},
    {"GET", "/v2/models/none", NULL, 404, "model_not_found"},
    {"GET", "/v2/models/tiny.2/ready", NULL, 404, "model_not_found"},
    {"GET", "/v2/models/tiny.01", NULL, 404, "model_not_found"},
    {"GET", "/v2/models/tiny.99999", NULL, 404, "model_not_found"},
    {"GET", "/v2/models/tiny./config", NULL, 404, "model_not_found"},
    {"GET", "/v2/models/none/stats", NULL, 404, "model_not_found"},
    {"GET", INFER, NULL, 405, "method_not_allowed"},
    {"POST", "/v2", "{}", 405, "method_not_allowed"},
    {"DELETE", "/v2/models/stats", NULL, 405, "method_not_allowed"},
    {"BREW", "/v2/models/stats", NULL, 501, "not_implemented"},
    {"POST", "/v2/repository/models/tiny/load", "{}", 400, "bad_request"},
    {"POST", "/v2/repository/models/tiny/unload", NULL, 400, "bad_request"},
    {"POST", INFER, NULL, 411, "length_required"},
    {"POST", INFER, "", 400, "malformed_json"},
    {"POST", INFER, "{", 400, "malformed_json"},
    {"POST", INFER, "[]", 400, "malformed_json"},
    {"POST", INFER, "{} x", 400, "malformed_json"},
    {"POST", INFER, "{}", 400, "missing_field"},
    {"POST", INFER, "{\"inputs\":{}}", 400, "invalid_type"},
    {"POST", INFER, "{\"inputs\":[1]}", 400, "invalid_type"},
    {"POST", INFER, "{\"inputs\":[{}]}", 400, "missing_field"},
    {"POST", INFER, "{\"inputs\":[],\"inputs\":[]}", 400, "duplicate_field"},
    {"POST", INFER, "{\"other\":1}", 400, "unknown_field"},
    {"POST", "/v2/models/none/infer", INPUT(GOOD), 404, "model_not_found"},
    {"POST", "/v2/models/tiny.1/infer", "{\"parameters\":{\"layer\":1},\"inputs\":[]}", 400,
     "duplicate_field"},
    {"POST", INFER, "{\"parameters\":{\"layer\":9}," GOOD "}", 400, "unknown_field"},
    {"POST", INFER,
     "{\"parameters\":{\"layer\":9},\"inputs\":[{\"name\":\"hidden_states\"," GOOD "}]}", 404,
     "layer_not_found"},
    {"POST", "/v2/models/attention/infer", INPUT(GOOD), 400, "missing_field"},
    {"POST", INFER, INPUT("\"name\":\"x\"," GOOD), 400, "duplicate_field"},
    {"POST", INFER, "{\"inputs\":[{\"name\":\"scale\"," GOOD "}]}", 400, "unknown_field"},
    {"POST", INFER, "{\"inputs\":[{\"name\":\"x\"," GOOD "}]}", 400, "unknown_field"},
    {"POST", INFER, INPUT("\"datatype\":\"FP32\",\"data\":[1]"), 400, "missing_field"},
    {"POST", INFER, INPUT("\"shape\":[1],\"data\":[1]"), 400, "missing_field"},
    {"POST", INFER, INPUT("\"shape\":[1],\"datatype\":\"FP32\""), 400, "missing_field"},
    {"POST", INFER, INPUT("\"shape\":[1,16],\"datatype\":\"BYTES\",\"data\":" ROW), 400,
     "invalid_value"},
    {"POST", INFER, INPUT("\"shape\":[1,16],\"datatype\":\"FP32\",\"data\":[1]"), 422,
     "shape_mismatch"},
    {"POST", INFER, INPUT("\"shape\":[16,1],\"datatype\":\"FP32\",\"data\":[" ROW "]"), 422,
     "shape_mismatch"},
    {"POST", INFER, INPUT("\"shape\":[1,1,16,1,1],\"datatype\":\"FP32\",\"data\":" ROW), 422,
     "shape_mismatch"},
    {"POST", INFER, INPUT("\"shape\":[-1,16],\"datatype\":\"FP32\",\"data\":" ROW), 400,
     "invalid_value"},
    {"POST", INFER, INPUT("\"shape\":[4294967296,4294967296,16],\"datatype\":\"FP32\",\"data\":[]"),
     422, "shape_mismatch"},
    {"POST", INFER,
     INPUT("\"shape\":[1,1,16],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":64}"),
     400, "invalid_value"},
    {"POST", INFER, INPUT(GOOD ",\"parameters\":{\"binary_data_size\":64}"), 400, "invalid_value"},
    {"POST", INFER, INPUT(GOOD ",\"parameters\":{\"shared_memory_region\":\"x\"}"), 422,
     "unsupported"},
    {"POST", INFER, INPUT(GOOD ",\"weight\":1"), 400, "unknown_field"},
    {"POST", INFER,
     "{\"outputs\":[{\"name\":\"x\"}],\"inputs\":[{\"name\":\"hidden_states\"," GOOD "}]}", 400,
     "invalid_value"},
    {"POST", INFER, "{\"outputs\":[{\"name\":\"head_stats\"}]}", 422, "unsupported"},
    {"POST", INFER, "{\"outputs\":[{\"name\":\"output\",\"parameters\":{\"classification\":3}}]}",
     422, "unsupported"},
    {"POST", INFER, "{\"outputs\":[{\"parameters\":{}}]}", 400, "missing_field"},
    {"POST", INFER, "{\"parameters\":{\"nope\":null}}", 400, "unknown_field"},
    {"POST", INFER, "{\"parameters\":{\"sequence_end\":true}}", 400, "missing_field"},
    {"POST", INFER, "{\"parameters\":{\"sequence_id\":1.5}}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"sequence_id\":-5}}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"sequence_id\":\"a/b\"}}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"sequence_id\":[1]}}", 400, "invalid_type"},
    {"POST", INFER, "{\"parameters\":{\"timeout\":-1}}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"timeout\":1,\"timeout\":1}}", 400, "duplicate_field"},
    {"POST", INFER, "{\"parameters\":{\"is_casual\":true}}", 400, "unknown_field"},
    {"POST", INFER, "{\"parameters\":{\"model\":\"plain\"}}", 400, "unknown_field"},
    {"POST", INFER, "{\"parameters\":{\"session_id\":\"x\"}}", 400, "unknown_field"},
    {"POST", INFER, "{\"parameters\":{\"sequences\":[]}}", 400, "unknown_field"},
    {"POST", INFER, "{\"parameters\":{\"hidden_states\":[[1]]}}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"heads\":{\"input\":0}}}", 400, "invalid_type"},
    {"POST", INFER, "{\"parameters\":{\"heads\":[{\"input\":0}]}}", 400, "invalid_type"},
    {"POST", INFER, "{\"parameters\":{\"ablate\":true}," HIDDEN "}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"target_groups\":[[0]]}," HIDDEN "}", 400, "invalid_value"},
    {"POST", INFER, "{\"parameters\":{\"targets\":[0]}," HIDDEN "}", 400, "invalid_value"},
    {"POST", INFER,
     "{\"parameters\":{\"sequence_id\":5},\"inputs\":[{\"name\":\"hidden_states\"," GOOD "}]}", 404,
     "session_not_found"},
};

START_TEST(test_every_error_has_the_form_of_the_protocol)
{
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (enum v2_client kind = V2_SYNC; kind < V2_CLIENTS; kind++) {
            char what[512];
            snprintf(what, sizeof what, "%s %s %s", wrong[i].method, wrong[i].path,
                     wrong[i].body != NULL ? wrong[i].body : "");
            struct raw_answer answer = ask(kind, wrong[i].method, wrong[i].path, wrong[i].body, "");
            v2_expect_error(&answer, wrong[i].status, wrong[i].code, what);
            raw_answer_free(&answer);
            refusals++;
        }
}
END_TEST

START_TEST(test_errors_say_what_to_send_instead)
{
    static const struct {
        const char *body, *holds;
    } hints[] = {
        {"{\"inputs\":[{\"name\":\"hidden_state\"}]}", "hidden_states"},
        {"{\"inputs\":[{\"name\":\"hidden_states\",\"shape\":[1,1,16],\"datatype\":\"F32\","
         "\"data\":" ROW "}]}",
         "FP32"},
        {"{\"parameters\":{\"is_casual\":true}}", "is_causal"},
        {"{\"parameters\":{\"sequenc_id\":1}}", "did you mean sequence_id?"},
        {"{\"parameters\":{\"session_id\":\"x\"}}", "use sequence_id"},
        {"{\"parameters\":{\"binary_output\":true}}", "use binary_data_output"},
        {"{\"outputs\":[{\"name\":\"attention_weights_index\"}]}", "comes with attention_weights"},
        {"{\"inputs\":[{\"name\":\"hidden_states\"," GOOD
         "}],\"outputs\":[{\"name\":\"attention_weights_index\"},"
         "{\"name\":\"attention_weights\"}]}",
         "top_k is missing"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        struct raw_answer answer = ask(V2_CURL, "POST", INFER, hints[i].body, "");
        ck_assert_msg(answer.status == 400 && strstr(answer.body, hints[i].holds) != NULL, "%s",
                      answer.body);
        raw_answer_free(&answer);
    }
    struct raw_answer answer =
        ask(V2_CURL, "POST", "/v2/models/tiny.1/infer", "{\"parameters\":{\"layer\":1}}", "");
    ck_assert_msg(strstr(answer.body, "the path names it") != NULL, "%s", answer.body);
    raw_answer_free(&answer);
}
END_TEST

#define NEXT "\"sequence_id\":\"words\""

/* Each answer has the text and, where `param` is not NULL, names it. */
static const struct {
    const char *method, *path, *body, *param, *holds;
} words[] = {
    {"POST", INFER, "{\"parameters\":{\"position\":0}," HIDDEN "}", "sequence_id",
     "sequence_id is missing"},
    {"POST", INFER, "{\"parameters\":{" NEXT "}," HIDDEN "}", "sequence_id",
     "; sequence_start makes one"},
    {"POST", INFER, "{\"parameters\":{\"sequence_id\":\"a b\"}," HIDDEN "}", "sequence_id",
     "sequence_id must be"},
    {"POST", INFER,
     "{\"parameters\":{" NEXT "},\"inputs\":[{\"name\":\"hidden_states\"," GOOD
     "},{\"name\":\"encoder_hidden_states\"," GOOD "}]}",
     "encoder_hidden_states", "beside sequence_id only where sequence_start is true"},
    {"POST", INFER, "{\"parameters\":{" NEXT ",\"sequence_start\":true,\"timeout\":1}," HIDDEN "}",
     "timeout", "deadline"},
    {"POST", INFER, "{\"parameters\":{\"past_key_values\":1}}", "past_key_values",
     "no parameter of this request: a session keeps keys and values: use sequence_id"},
    {"POST", INFER, "{\"parameters\":{\"session_id\":\"x\"}}", "session_id", "use sequence_id"},
    {"POST", INFER, "{\"parameters\":{\"model_name\":\"x\"}}", "model_name",
     "the path names the model"},
    {"POST", INFER, "{\"inputs\":[{\"name\":\"embeddings\"}]}", "embeddings",
     "no input of this request"},
    {"POST", INFER, "{\"inputs\":[{\"name\":\"model_name\"}]}", "model_name",
     "the path names the model"},
    {"POST", INFER, "{\"inputs\":[{\"name\":\"top_k\"}]}", "top_k", "a parameter, not an input"},
    {"POST", INFER, "{\"inputs\":[{\"name\":\"query\"," GOOD "}]}", "query",
     "an input of the model attention"},
    {"POST", INFER,
     "{\"parameters\":{\"map_datatype\":\"FP16\"},\"outputs\":[{\"name\":\"attention_weights\"}]"
     "," HIDDEN "}",
     "map_datatype", "(binary_data_output)"},
    {"POST", INFER,
     "{\"outputs\":[{\"name\":\"output\",\"parameters\":{\"shared_memory_region\":\"r\"}}]}",
     "shared_memory_region", "there is no shared memory"},
    {"POST", INFER,
     INPUT("\"shape\":[1,1,16],\"datatype\":\"FP64\",\"parameters\":{\"binary_data_size\":128}"),
     "hidden_states", "\\\"FP64\\\" in binary form: one of FP32, FP16, BF16\""},
    {"GET", "/v2/models/none", NULL, "model", "POST /v2/repository/index"},
    {"GET", "/v2/systemsharedmemory/status", NULL, NULL, "attnd has no shared memory"},
    {"POST", "/v2/systemsharedmemory/region/x/register", "{}", NULL, "attnd has no shared memory"},
    {"POST", "/v2/cudasharedmemory/unregister", "{}", NULL, "attnd has no shared memory"},
    {"GET", "/v2/trace/setting", NULL, NULL, "no trace settings"},
    {"POST", "/v2/models/tiny/trace/setting", "{}", NULL, "no trace settings"},
    {"POST", "/v2/logging", "{}", NULL, "option log"},
    {"POST", "/v2/models/tiny/generate", "{}", NULL, "makes no text"},
    {"GET", "/v2/models/tiny/versions/2", NULL, NULL, "the version 1 only"},
    {"GET", "/v2/models/tiny/versions/1/nothing", NULL, NULL, "GET /v2 lists the extensions"},
    {"GET", "/v2/nothing", NULL, NULL, "GET /v2 lists the extensions"},
};

START_TEST(test_errors_are_in_the_words_of_the_protocol)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct raw_answer answer = ask(V2_CURL, words[i].method, words[i].path, words[i].body, "");
        json_t *json = json_loads(answer.body, 0, NULL);
        const char *param = json_string_value(json_object_get(json, "param"));
        const char *message = json_string_value(json_object_get(json, "error"));
        const char *want = words[i].param;
        bool named = want == NULL ? param == NULL : param != NULL && strcmp(param, want) == 0;
        ck_assert_msg(answer.status >= 400 && named && strstr(answer.body, words[i].holds) != NULL,
                      "%s %s: %s", words[i].path, words[i].body, answer.body);
        ck_assert_msg(strstr(message, "field") == NULL && strchr(message, '`') == NULL, "%s",
                      message);
        json_decref(json);
        raw_answer_free(&answer);
        refusals++;
    }
}
END_TEST

/* Lists of too many members, and heads and bodies that are refused before they are read. */
START_TEST(test_lists_and_framing_have_bounds)
{
    struct text body = {0};
    const struct {
        const char *before, *item, *after;
        size_t count, status;
        const char *code;
    } lists[] = {
        {"{\"inputs\":[",
         "{\"name\":\"head_mask\",\"shape\":[0],\"datatype\":\"FP32\",\"data\":[]}", "]}", 17, 413,
         "too_complex"},
        {"{\"outputs\":[", "{\"name\":\"output\"}", "]}", 17, 413, "too_complex"},
        {"{\"parameters\":{\"rows\":[", "123456789", "]}}", 4000, 413, "too_complex"},
        {"{\"parameters\":{", "\"local_radius\":1", "}}", 9000, 413, "too_complex"},
        {"{\"id\":\"", "12345678", "\"}", 17, 400, "invalid_value"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        body.length = 0;
        text_add(&body, "%s", lists[i].before);
        for (size_t k = 0; k < lists[i].count; k++)
            text_add(&body, "%s%s", k > 0 && lists[i].item[1] != '2' ? "," : "", lists[i].item);
        text_add(&body, "%s", lists[i].after);
        struct raw_answer answer = ask(V2_SYNC, "POST", INFER, body.data, "");
        v2_expect_error(&answer, (unsigned)lists[i].status, lists[i].code, lists[i].before);
        raw_answer_free(&answer);
    }
    static const struct {
        const char *request;
        unsigned status;
        const char *code;
    } heads[] = {
        {"POST " INFER " HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n", 400, "bad_request"},
        {"POST " INFER " HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n", 413,
         "body_too_large"},
        {"POST " INFER
         " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Encoding: br\r\n\r\n{}",
         415, "unsupported_media_type"},
        {"POST " INFER " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n" JSON_LENGTH ": 9\r\n\r\n{}",
         400, "bad_request"},
        {"GET http://a/v2/none HTTP/1.1\r\nHost: a\r\n\r\n", 404, "route_not_found"},
        {"GET /v2 HTTP/1.1\r\n\r\n", 400, "bad_request"},
    };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct raw_answer answer =
            raw_exchange(served.host, served.port, heads[i].request, WAIT_MS);
        v2_expect_error(&answer, heads[i].status, heads[i].code, heads[i].request);
        raw_answer_free(&answer);
        exchanges++;
    }
    text_free(&body);
}
END_TEST

/* ---- Running --------------------------------------------------------------------------------- */

static void begin(void)
{
    daemon_start(&served, CONFIG_SMALL(""), NULL, NULL);
    client_open(&client, &served);
    forms_begin(&client);
    raw_open(&raw, served.host, served.port);
}

static void end(void)
{
    raw_close(&raw);
    client_close(&client);
    daemon_stop(&served);
}

static Suite *suite_v2_check(void)
{
    Suite *suite = suite_create("v2");
    TCase *tests = suite_cases(suite, "v2", NULL, NULL, 0);
    tcase_add_unchecked_fixture(tests, begin, end);
    tcase_add_test(tests, test_every_route_answers_every_client_with_200);
    tcase_add_test(tests, test_metadata_has_every_output_in_its_shape);
    tcase_add_test(tests, test_every_call_has_the_bits_of_attend);
    tcase_add_test(tests, test_sequences_have_the_bits_of_sessions_and_repeats_are_applied_once);
    tcase_add_test(tests, test_every_error_has_the_form_of_the_protocol);
    tcase_add_test(tests, test_errors_say_what_to_send_instead);
    tcase_add_test(tests, test_errors_are_in_the_words_of_the_protocol);
    tcase_add_test(tests, test_lists_and_framing_have_bounds);
    return suite;
}

int main(int argc, char *argv[])
{
    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    const bool ran = suite_run(suite_v2_check());
    const struct verdict_condition conditions[] = {VERDICT(ran), VERDICT(compared > COMPARED_MIN),
                                                   VERDICT(replays > REPLAYS_MIN),
                                                   VERDICT(refusals > REFUSALS_MIN)};
    const bool right = VERDICTS("check-v2", conditions);
    printf(
        "check-v2: %zu exchanges as tritonclient, its asyncio form and curl send them: %zu calls "
        "with the bits of /attend, %zu repeats applied once, %zu refusals in the protocol's "
        "form%s\n",
        exchanges, compared, replays, refusals, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
