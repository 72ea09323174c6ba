/* test_call.c: bodies of /attend and /decode: defaults, errors, and bodies that are cut off.
 * Where fields go is shown by what they do (HTTP suites); broken bodies by tests/fuzz. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites.h"
#include "wire/call.h"

static struct srv_arena arena;
static struct srv_error error;
static struct srv_call call;

static void setup(void) { srv_arena_init(&arena, 1 << 20, NULL, NULL); }
static void teardown(void) { srv_arena_fini(&arena); }

/* Reads `length` bytes in memory of exactly that length. */
static enum srv_error_code read_bytes(const char *body, size_t length, enum srv_call_kind kind)
{
    char *copy = malloc(length + (length == 0));
    memcpy(copy, body, length);
    srv_arena_fini(&arena);
    srv_arena_init(&arena, 1 << 20, NULL, NULL);
    const struct srv_body source = {.json = copy, .json_length = length};
    enum srv_error_code code = srv_call_read(&call, &source, kind, 4, &arena, &error);
    free(copy);
    return code;
}

static enum srv_error_code read_attend(const char *body)
{
    return read_bytes(body, strlen(body), SRV_CALL_ATTEND);
}

static enum srv_error_code read_decode(const char *body)
{
    return read_bytes(body, strlen(body), SRV_CALL_DECODE);
}

/* ---- What is read ---------------------------------------------------------------------------- */

CASE(fields, setup, teardown, 0)

TEST(call_defaults_hold_where_fields_are_absent_or_null)
{
    static const char *const bodies[] = {
        "{\"hidden_states\":[[1]]}",
        " {\"hidden_states\":[[1]],\"model\":null,\"layer\":null,\"commit\":null,\"outputs\":null,"
        "\"session_id\":null,\"position\":null,\"scale\":null,\"query\":null,\"padding_mask\":null,"
        "\"heads\":null,\"rows\":null,\"top_k\":null,\"average_heads\":null,\"stage\":null,"
        "\"local_radius\":null,\"softcap\":null,\"sliding_window\":null}"
        "\n",
    };
    for (size_t i = 0; i < 2; i++) {
        ck_assert_msg(read_attend(bodies[i]) == SRV_OK, "%s", error.message);
        const struct srv_rows *r = &call.rows;
        ck_assert(call.model == NULL && call.layer == 0 && call.sequences == NULL);
        ck_assert(r->session_id == NULL && !r->has_position && !r->has_commit && r->commit);
        ck_assert(!r->has_scale && !r->has_is_causal && !r->query.present &&
                  !r->padding_mask.present);
        ck_assert_uint_eq(r->outputs, SRV_OUT_OUTPUT);
        ck_assert(!r->heads.present && !r->query_rows.present && !r->sliding_window.present);
        ck_assert(r->top_k == 0 && !r->has_softcap && r->local_radius == SRV_LOCAL_RADIUS);
    }
}

/* The rule about what stands beside `sequences` relies on it. */
TEST(call_fields_of_the_call_stand_before_those_of_rows)
{
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        ck_assert_msg(srv_fields[i].in_call == (i < SRV_F_session_id), "%s", srv_fields[i].name);
}

/* ---- What is refused ------------------------------------------------------------------------- */

#define H "\"hidden_states\":[[1]]"
#define S "\"session_id\":\"s\","
#define WEIGHTS ",\"outputs\":[\"attention_weights\"]"
#define STATS ",\"outputs\":[\"head_stats\"]"

struct refusal {
    const char *body;
    enum srv_error_code code;
    const char *param;
};

static const struct refusal attend_refusals[] = {
    {"", SRV_E_MALFORMED_JSON, ""},
    {"   ", SRV_E_MALFORMED_JSON, ""},
    {"[]", SRV_E_MALFORMED_JSON, ""},
    {"null", SRV_E_MALFORMED_JSON, ""},
    {"\"x\"", SRV_E_MALFORMED_JSON, ""},
    {"{" H, SRV_E_MALFORMED_JSON, ""},
    {"{" H "}x", SRV_E_MALFORMED_JSON, ""},
    {"{" H "}{}", SRV_E_MALFORMED_JSON, ""},
    {"{" H ",}", SRV_E_MALFORMED_JSON, ""},
    {"{}", SRV_E_MISSING_FIELD, "hidden_states"},
    {"{\"hidden_states\":null}", SRV_E_MISSING_FIELD, "hidden_states"},
    {"{" H ",\"softcap\":-1}", SRV_E_INVALID_VALUE, "softcap"},
    {"{" H ",\"softcap\":true}", SRV_E_INVALID_TYPE, "softcap"},
    {"{" H ",\"sliding_window\":\"4\"}", SRV_E_INVALID_TYPE, "sliding_window"},
    {"{" H ",\"heads\":[0]}", SRV_E_INVALID_VALUE, "heads"},
    {"{" H ",\"rows\":[0]}", SRV_E_INVALID_VALUE, "rows"},
    {"{" H ",\"top_k\":4}", SRV_E_INVALID_VALUE, "top_k"},
    {"{" H ",\"average_heads\":true}", SRV_E_INVALID_VALUE, "average_heads"},
    {"{" H ",\"stage\":\"raw\"}", SRV_E_INVALID_VALUE, "stage"},
    {"{" H ",\"local_radius\":4}", SRV_E_INVALID_VALUE, "local_radius"},
    {"{" H ",\"top_k\":4,\"outputs\":[\"attention_scores\"]}", SRV_E_INVALID_VALUE, "top_k"},
    {"{" H WEIGHTS ",\"stage\":\"raw\"}", SRV_E_INVALID_VALUE, "stage"},
    {"{" H WEIGHTS ",\"heads\":0}", SRV_E_INVALID_TYPE, "heads"},
    {"{" H WEIGHTS ",\"heads\":[true]}", SRV_E_INVALID_TYPE, "heads"},
    {"{" H WEIGHTS ",\"rows\":[0.5]}", SRV_E_INVALID_TYPE, "rows"},
    {"{" H WEIGHTS ",\"rows\":\"0\"}", SRV_E_INVALID_TYPE, "rows"},
    {"{" H WEIGHTS ",\"top_k\":0}", SRV_E_INVALID_VALUE, "top_k"},
    {"{" H WEIGHTS ",\"top_k\":-3}", SRV_E_INVALID_VALUE, "top_k"},
    {"{" H WEIGHTS ",\"top_k\":1.5}", SRV_E_INVALID_TYPE, "top_k"},
    {"{" H WEIGHTS ",\"top_k\":99999999999999999999}", SRV_E_NUMBER_OUT_OF_RANGE, "top_k"},
    {"{" H STATS ",\"local_radius\":-1}", SRV_E_INVALID_VALUE, "local_radius"},
    {"{" H STATS ",\"local_radius\":1048577}", SRV_E_INVALID_VALUE, "local_radius"},
    {"{" H STATS ",\"local_radius\":\"4\"}", SRV_E_INVALID_TYPE, "local_radius"},
    {"{" H ",\"ablate\":true}", SRV_E_INVALID_VALUE, "ablate"},
    {"{" H STATS ",\"ablate\":1}", SRV_E_INVALID_TYPE, "ablate"},
    {"{" H ",\"targets\":[0]}", SRV_E_INVALID_VALUE, "targets"},
    {"{" H STATS ",\"targets\":[null]}", SRV_E_INVALID_TYPE, "targets"},
    {"{" H ",\"target_groups\":[[0]]}", SRV_E_INVALID_VALUE, "target_groups"},
    {"{" H STATS ",\"target_groups\":[[0],[]]}", SRV_E_INVALID_VALUE, "target_groups"},
    {"{" H STATS ",\"target_groups\":[[0],1]}", SRV_E_INVALID_TYPE, "target_groups"},
    {"{" H STATS ",\"target_groups\":[[0],[[1]]]}", SRV_E_SHAPE_MISMATCH, "target_groups"},
    {"{" H STATS ",\"target_groups\":[[99999999999999999999]]}", SRV_E_NUMBER_OUT_OF_RANGE,
     "target_groups"},
    {"{" H ",\"sequences\":[]}", SRV_E_UNKNOWN_FIELD, "sequences"},
    {"{" H ",\"Layer\":0}", SRV_E_UNKNOWN_FIELD, "Layer"},
    {"{" H ",\"\":0}", SRV_E_UNKNOWN_FIELD, ""},
    {"{" H "," H "}", SRV_E_DUPLICATE_FIELD, "hidden_states"},
    {"{\"layer\":null,\"layer\":1}", SRV_E_DUPLICATE_FIELD, "layer"},
    {"{" H ",\"layer\":-1}", SRV_E_INVALID_VALUE, "layer"},
    {"{" H ",\"layer\":1024}", SRV_E_INVALID_VALUE, "layer"},
    {"{" H ",\"layer\":0.5}", SRV_E_INVALID_TYPE, "layer"},
    {"{" H ",\"layer\":\"0\"}", SRV_E_INVALID_TYPE, "layer"},
    {"{" H ",\"layer\":1e99}", SRV_E_INVALID_TYPE, "layer"},
    {"{" H ",\"layer\":99999999999999999999}", SRV_E_NUMBER_OUT_OF_RANGE, "layer"},
    {"{" H ",\"model\":1}", SRV_E_INVALID_TYPE, "model"},
    {"{" H ",\"is_causal\":1}", SRV_E_INVALID_TYPE, "is_causal"},
    {"{" H ",\"is_causal\":\"true\"}", SRV_E_INVALID_TYPE, "is_causal"},
    {"{" H ",\"scale\":0}", SRV_E_INVALID_VALUE, "scale"},
    {"{" H ",\"scale\":-1}", SRV_E_INVALID_VALUE, "scale"},
    {"{" H ",\"scale\":1e999}", SRV_E_NUMBER_OUT_OF_RANGE, "scale"},
    {"{" H ",\"scale\":true}", SRV_E_INVALID_TYPE, "scale"},
    {"{" H ",\"outputs\":[]}", SRV_E_INVALID_VALUE, "outputs"},
    {"{" H ",\"outputs\":\"output\"}", SRV_E_INVALID_TYPE, "outputs"},
    {"{" H ",\"outputs\":[\"output\",\"output\"]}", SRV_E_INVALID_VALUE, "outputs"},
    {"{" H ",\"outputs\":[\"head_stat\"]}", SRV_E_INVALID_VALUE, "outputs"},
    {"{" H ",\"outputs\":[null]}", SRV_E_INVALID_TYPE, "outputs"},
    {"{" H ",\"padding_mask\":[2]}", SRV_E_INVALID_VALUE, "padding_mask"},
    {"{" H ",\"position_ids\":[0.5]}", SRV_E_INVALID_TYPE, "position_ids"},
    {"{" H ",\"position_ids\":0}", SRV_E_INVALID_TYPE, "position_ids"},
    {"{" H ",\"head_mask\":[null]}", SRV_E_INVALID_TYPE, "head_mask"},
    {"{\"hidden_states\":[[1],[2,3]]}", SRV_E_SHAPE_MISMATCH, "hidden_states"},
    {"{\"hidden_states\":[[1e39]]}", SRV_E_NUMBER_OUT_OF_RANGE, "hidden_states"},
    {"{\"hidden_states\":{\"shape\":[1]}}", SRV_E_MISSING_FIELD, "hidden_states"},
    {"{\"hidden_states\":[[NaN]]}", SRV_E_MALFORMED_JSON, ""},
    {"{" S H ",\"session_id\":\"s\"}", SRV_E_DUPLICATE_FIELD, "session_id"},
    {"{" H ",\"session_id\":\"\"}", SRV_E_INVALID_VALUE, "session_id"},
    {"{" H ",\"session_id\":\"-a\"}", SRV_E_INVALID_VALUE, "session_id"},
    {"{" H ",\"session_id\":\"a/b\"}", SRV_E_INVALID_VALUE, "session_id"},
    {"{" H ",\"session_id\":7}", SRV_E_INVALID_TYPE, "session_id"},
    {"{" S H ",\"position\":-1}", SRV_E_INVALID_VALUE, "position"},
    {"{" S H ",\"epoch\":-1}", SRV_E_INVALID_VALUE, "epoch"},
    {"{" H ",\"position\":0}", SRV_E_MISSING_FIELD, "session_id"},
    {"{" H ",\"commit\":true}", SRV_E_MISSING_FIELD, "session_id"},
    {"{" H ",\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[1]]]}", SRV_E_INVALID_VALUE,
     "hidden_states"},
    {"{\"query\":[[[1]]],\"key\":[[[1]]]}", SRV_E_MISSING_FIELD, "value"},
    {"{\"value\":[[[1]]]}", SRV_E_MISSING_FIELD, "query"},
    {"{" S "\"query\":[[[1]]],\"key\":[[[1]]]}", SRV_E_MISSING_FIELD, "value"},
    {"{" H ",\"key_hidden_states\":[[1]]}", SRV_E_MISSING_FIELD, "value_hidden_states"},
    {"{" H ",\"value_hidden_states\":[[1]]}", SRV_E_MISSING_FIELD, "key_hidden_states"},
    {"{" H ",\"key_hidden_states\":[[1]],\"value_hidden_states\":[[1]],"
     "\"encoder_hidden_states\":[[1]]}",
     SRV_E_INVALID_VALUE, "key_hidden_states"},
    {"{\"encoder_hidden_states\":[[1]]}", SRV_E_MISSING_FIELD, "hidden_states"},
    {"{" S H ",\"encoder_hidden_states\":[[1]]}", SRV_E_INVALID_VALUE, "encoder_hidden_states"},
    {"{" S H ",\"start\":false,\"encoder_hidden_states\":[[1]]}", SRV_E_INVALID_VALUE,
     "encoder_hidden_states"},
    {"{" H ",\"encoder_padding_mask\":[1]}", SRV_E_MISSING_FIELD, "encoder_hidden_states"},
    {"{" H ",\"encoder_hidden_states\":[[1]],\"encoder_padding_mask\":[1]}", SRV_E_MISSING_FIELD,
     "session_id"},
    {"{" S H ",\"key_hidden_states\":[[1]],\"value_hidden_states\":[[1]]}", SRV_E_INVALID_VALUE,
     "key_hidden_states"},
    {"{\"query\":[1],\"key\":[1],\"value\":[1],\"model\":\"m\"}", SRV_E_INVALID_VALUE, "model"},
    {"{\"query\":[1],\"key\":[1],\"value\":[1],\"layer\":1}", SRV_E_INVALID_VALUE, "layer"},
};

static const struct refusal decode_refusals[] = {
    {"{}", SRV_E_MISSING_FIELD, "session_id"},
    {"{" H "}", SRV_E_MISSING_FIELD, "session_id"},
    {"{" S "\"layer\":0}", SRV_E_MISSING_FIELD, "hidden_states"},
    {"{" S H ",\"encoder_hidden_states\":[[1]]}", SRV_E_INVALID_VALUE, "encoder_hidden_states"},
    {"{" S H ",\"start\":true,\"encoder_padding_mask\":[1]}", SRV_E_MISSING_FIELD,
     "encoder_hidden_states"},
    {"{\"sequences\":[{" S H ",\"start\":true,\"encoder_hidden_states\":[[1]]}]}",
     SRV_E_UNKNOWN_FIELD, "sequences[0].encoder_hidden_states"},
    {"{" S H ",\"key_hidden_states\":[[1]]}", SRV_E_UNKNOWN_FIELD, "key_hidden_states"},
    {"{" S H ",\"top_k\":4}", SRV_E_INVALID_VALUE, "top_k"},
    {"{\"sequences\":[{" S H ",\"rows\":[0]}]}", SRV_E_INVALID_VALUE, "sequences[0].rows"},
    {"{\"sequences\":[{" S H "}],\"heads\":[0]}", SRV_E_INVALID_VALUE, "heads"},
    {"{" S H ",\"query\":[[1]]}", SRV_E_INVALID_VALUE, "hidden_states"},
    {"{" S "\"query\":[[1]],\"key\":[[1]]}", SRV_E_MISSING_FIELD, "value"},
    {"{" S "\"query\":[[1]],\"key\":[[1]],\"value\":[[1]],\"model\":\"m\"}", SRV_E_INVALID_VALUE,
     "model"},
    {"{\"query\":[[1]],\"key\":[[1]],\"value\":[[1]]}", SRV_E_MISSING_FIELD, "session_id"},
    {"{" S "\"query\":[[1]],\"key\":[[1]],\"value\":[[1]],\"encoder_hidden_states\":[[1]]}",
     SRV_E_INVALID_VALUE, "encoder_hidden_states"},
    {"{\"sequences\":[]}", SRV_E_INVALID_VALUE, "sequences"},
    {"{\"sequences\":{}}", SRV_E_INVALID_TYPE, "sequences"},
    {"{\"sequences\":[1]}", SRV_E_INVALID_TYPE, "sequences[0]"},
    {"{\"sequences\":[{}]}", SRV_E_MISSING_FIELD, "sequences[0].session_id"},
    {"{\"sequences\":[{" S H "},{" S "\"hidden_states\":null}]}", SRV_E_MISSING_FIELD,
     "sequences[1].hidden_states"},
    {"{\"sequences\":[{" S H ",\"position\":-5}]}", SRV_E_INVALID_VALUE, "sequences[0].position"},
    {"{\"sequences\":[{" S H ",\"layer\":0}]}", SRV_E_UNKNOWN_FIELD, "sequences[0].layer"},
    {"{\"sequences\":[{" S H ",\"sequences\":[]}]}", SRV_E_UNKNOWN_FIELD, "sequences[0].sequences"},
    {"{\"sequences\":[{" S S H "}]}", SRV_E_DUPLICATE_FIELD, "sequences[0].session_id"},
    {"{\"sequences\":[{" S "\"hidden_states\":[1,true]}]}", SRV_E_INVALID_TYPE,
     "sequences[0].hidden_states"},
    {"{" S "\"sequences\":[{" S H "}]}", SRV_E_INVALID_VALUE, "session_id"},
    {"{\"sequences\":[{" S H "}]," H "}", SRV_E_INVALID_VALUE, "hidden_states"},
    {"{\"sequences\":[{" S H "}],\"outputs\":[\"lse\"]}", SRV_E_INVALID_VALUE, "outputs"},
    {"{\"sequences\":[{" S H "},{" S H "},{" S H "},{" S H "},{" S H "}]}", SRV_E_TOO_COMPLEX,
     "sequences"},
    {"{\"sequences\":[{" S H "},]}", SRV_E_MALFORMED_JSON, ""},
    {"{\"sequences\":[{" S H "}", SRV_E_MALFORMED_JSON, ""},
};

static void check_refusals(const struct refusal *cases, size_t count, enum srv_call_kind kind)
{
    for (size_t i = 0; i < count; i++) {
        enum srv_error_code code = read_bytes(cases[i].body, strlen(cases[i].body), kind);
        ck_assert_msg(code == cases[i].code && code == error.code, "%s: %s, %s", cases[i].body,
                      srv_error_word(code), error.message);
        ck_assert_msg(strcmp(error.param, cases[i].param) == 0, "%s: param %s", cases[i].body,
                      error.param);
        ck_assert_uint_gt(strlen(error.message), 0);
    }
}

TEST(call_attend_refuses_with_code_and_field)
{
    check_refusals(attend_refusals, COUNT(attend_refusals), SRV_CALL_ATTEND);
}

TEST(call_decode_refuses_with_code_and_field)
{
    check_refusals(decode_refusals, COUNT(decode_refusals), SRV_CALL_DECODE);
}

/* Names of other frameworks, and what a person is told to send. */
static const struct {
    const char *name, *says;
} foreign[] = {
    {"need_weights", "\"attention_weights\" in outputs"},
    {"output_attentions", "\"attention_weights\" in outputs"},
    {"key_padding_mask", "use padding_mask"},
    {"attn_mask", "use attention_mask"},
    {"past_key_values", "use session_id"},
    {"use_cache", "use session_id"},
    {"position_bias", "use attention_bias"},
    {"d_model", "GET /models"},
    {"n_heads", "GET /models"},
    {"inputs_embeds", "use hidden_states"},
    {"enable_gqa", "leave it out"},
    {"dropout_p", "leave it out"},
    {"is_training", "leave it out"},
    {"hidden_state", "did you mean hidden_states?"},
    {"topk", "did you mean top_k?"},
    {"queries", "use query"},
    {"causal", "did you mean is_causal?"},
};

TEST_EACH(call_says_what_to_send_for_a_field_of_another_framework, COUNT(foreign))
{
    char body[256], long_name[300];
    snprintf(body, sizeof body, "{" H ",\"%s\":1}", foreign[_i].name);
    read_attend(body);
    ck_assert_int_eq(error.code, SRV_E_UNKNOWN_FIELD);
    ck_assert_str_eq(error.param, foreign[_i].name);
    ck_assert_msg(strstr(error.message, foreign[_i].says) != NULL, "%s", error.message);
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    snprintf(body, sizeof body, "{\"%.200s\":1}", long_name);
    read_attend(body);
    ck_assert_int_eq(error.code, SRV_E_UNKNOWN_FIELD);
}

TEST(call_names_the_element_at_fault)
{
    read_decode("{\"sequences\":[{" S "\"hidden_states\":[[1,2],[3,\"4\"]]}]}");
    ck_assert_str_eq(error.message, "sequences[0].hidden_states[1][1] is not a number");
    read_attend("{" H ",\"layer\":5000}");
    ck_assert_str_eq(error.message, "layer is 5000, must be from 0 to 1023");
}

TEST(call_ids_have_the_documented_syntax)
{
    char longest[66];
    memset(longest, 'a', 65);
    longest[65] = '\0';
    ck_assert(!srv_id_valid(longest));
    ck_assert(srv_id_valid(longest + 1));
    ck_assert(srv_id_valid("0") && srv_id_valid("A.b_c-9") && srv_id_valid("a--"));
    ck_assert(!srv_id_valid("") && !srv_id_valid(".a") && !srv_id_valid("_a") &&
              !srv_id_valid("a b"));
    ck_assert(!srv_id_valid("\xc3\xa9") && !srv_id_valid("a\n"));
}

/* ---- Bodies that are cut off ----------------------------------------------------------------- */

static const char *const seeds[] = {
    "{\"model\":\"m\",\"layer\":3,\"hidden_states\":[[1,2.5],[-3e-7,4]],\"padding_mask\":[true,0],"
    "\"attention_bias\":[[null,1],[0,2]],\"outputs\":[\"output\",\"lse\"],\"scale\":0.125}",
    "{\"query\":[[[0.1]]],\"key\":[[[1e3]]],\"value\":{\"shape\":[1,1,2],\"datatype\":\"FP32\","
    "\"data\":"
    "[1,0.12345678901234567]},\"query_offset\":[0],\"is_causal\":true,\"average_heads\":false,"
    "\"outputs\":[\"attention_weights\"],\"heads\":[1,0],\"rows\":[2],\"top_k\":8}",
    "{\"sequences\":[{\"session_id\":\"a\",\"hidden_states\":[1,2],\"position\":17,\"epoch\":1},"
    "{\"session_id\":\"b\\u0031\",\"hidden_states\":[[3,4]],\"start\":true,\"position_ids\":[5]}]}",
};

TEST(call_refuses_every_shortened_body)
{
    for (size_t i = 0; i < COUNT(seeds); i++)
        for (size_t length = 0; length < strlen(seeds[i]); length++) {
            enum srv_call_kind kind = i == 2 ? SRV_CALL_DECODE : SRV_CALL_ATTEND;
            ck_assert_int_ne(read_bytes(seeds[i], length, kind), SRV_OK);
        }
}

SUITE(call)
