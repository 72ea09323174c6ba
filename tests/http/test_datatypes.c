/* test_datatypes.c: maps as FP16 and UINT8 in every form of call, against the same maps as
 * FP32; where their bytes stand beside other tensors; what is refused. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binary.h"
#include "calls.h"
#include "forms.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

static void set_up(void)
{
    serve_small();
    forms_begin(&client);
}

#define BINARY "Accept: application/octet-stream"

static struct answer post(const char *path, const char *json, bool binary)
{
    const char *const headers[] = {binary ? BINARY : NULL, NULL};
    const struct request request = {
        .method = "POST", .path = path, .body = json, .headers = headers};
    return client_send(&client, &request);
}

/* POSTs form `i` for a reply in binary form, which is decoded. */
static struct answer post_form(int i, const char *extra)
{
    struct text body = {0};
    form_body(&body, i, extra);
    struct answer answer = post(form_path(i), body.data, true);
    binary_decode(&answer, extra);
    text_free(&body);
    return answer;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Half the distance between two halves near x. */
static double half_step(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, (exponent < -13 ? -13 : exponent) - 12);
}

/* Compares nested arrays of halves with the numbers that they stand for. */
static void expect_halves(const json_t *got, const json_t *want, const char *what)
{
    ck_assert_int_eq(json_is_array(got), json_is_array(want));
    ck_assert_uint_eq(json_array_size(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++)
        expect_halves(json_array_get(got, i), json_array_get(want, i), what);
    if (json_is_array(want))
        return;
    double x = json_number_value(got), y = json_number_value(want);
    ck_assert_int_eq(json_is_null(got), json_is_null(want));
    ck_assert_msg(fabs(x - y) <= half_step(y), "%s: %.9g for %.9g", what, x, y);
}

/* The least or the largest number of nested arrays, and 0. */
static double end_of(const json_t *map, bool largest)
{
    double end = json_is_array(map) ? 0 : json_number_value(map);
    for (size_t i = 0; i < json_array_size(map); i++) {
        double x = end_of(json_array_get(map, i), largest);
        end = largest ? fmax(end, x) : fmin(end, x);
    }
    return end;
}

/* Compares the bytes of nested arrays with the numbers that they stand for. */
static void expect_bytes(const json_t *got, const json_t *want, double least, double most,
                         const char *what)
{
    ck_assert_uint_eq(json_array_size(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++)
        expect_bytes(json_array_get(got, i), json_array_get(want, i), least, most, what);
    if (json_is_array(want))
        return;
    double x = least + (most - least) * (double)json_integer_value(got) / 255;
    ck_assert_msg(json_is_integer(got) && fabs(x - json_number_value(want)) <= (most - least) / 509,
                  "%s: %.9g for %.9g", what, x, json_number_value(want));
}

/* Compares maps, nested `depth` deep in lists as their minimum and maximum are, of which a map has
 * one each. */
static void expect_ranges(const json_t *bytes, const json_t *least, const json_t *most,
                          const json_t *want, int depth, const char *what)
{
    if (depth == 0) {
        ck_assert_msg(json_is_number(least) && json_is_number(most), "%s: no range", what);
        ck_assert_float_eq((float)json_number_value(least), (float)end_of(want, false));
        ck_assert_float_eq((float)json_number_value(most), (float)end_of(want, true));
        expect_bytes(bytes, want, json_number_value(least), json_number_value(most), what);
        return;
    }
    ck_assert_uint_eq(json_array_size(least), json_array_size(want));
    ck_assert_uint_eq(json_array_size(most), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++)
        expect_ranges(json_array_get(bytes, i), json_array_get(least, i), json_array_get(most, i),
                      json_array_get(want, i), depth - 1, what);
}

static const char *const weights[] = {
    ",\"outputs\":[\"lse\",\"attention_weights\"]",
    ",\"outputs\":[\"attention_weights\",\"lse\"],\"heads\":[1,0],\"rows\":[2,1,0]",
    ",\"outputs\":[\"attention_weights\"],\"average_heads\":true",
    ",\"outputs\":[\"attention_weights\",\"output\"],\"pool\":[2,3]",
    ",\"outputs\":[\"attention_weights\"],\"pool\":[1,3],\"pool_type\":\"mean\","
    "\"average_heads\":true",
};
#define WEIGHTS COUNT(weights)

/* Posts a form twice, its maps as FP32 and as `type`. */
static void post_both(struct answer *full, struct answer *narrow, int i, const char *members,
                      const char *type)
{
    char more[256];
    snprintf(more, sizeof more, "%s,\"map_datatype\":\"%s\"", members, type);
    *full = post_form(i, members);
    *narrow = post_form(i, more);
}

static const json_t *part(const struct answer *answer, int i, const char *name)
{
    return json_object_get(form_reply(answer, i), name);
}

/* The other outputs stay as they are. */
static void expect_others(const struct answer *got, const struct answer *want, int i)
{
    static const char *const others[] = {"output", "lse"};
    for (size_t k = 0; k < 2; k++)
        if (part(want, i, others[k]) != NULL)
            expect_same(forms[i].name, form_reply(got, i), form_reply(want, i), others[k]);
}

CASE(datatypes, set_up, serve_end, 0)

TEST_EACH(halves_of_every_form_are_the_nearest_to_its_weights_and_scores, FORM_COUNT)
{
    static const char scores[] =
        ",\"outputs\":[\"attention_scores\",\"attention_weights\",\"lse\"],\"stage\":\"masked\"";
    for (size_t a = 0; a <= WEIGHTS; a++) {
        struct answer full, half;
        post_both(&full, &half, _i, a < WEIGHTS ? weights[a] : scores, "FP16");
        expect_halves(part(&half, _i, "attention_weights"), part(&full, _i, "attention_weights"),
                      forms[_i].name);
        if (a == WEIGHTS)
            expect_halves(part(&half, _i, "attention_scores"), part(&full, _i, "attention_scores"),
                          "scores");
        expect_others(&half, &full, _i);
        answer_free(&full);
        answer_free(&half);
    }
}

TEST_EACH(bytes_of_every_form_are_the_nearest_within_each_maps_range, FORM_COUNT)
{
    static const char gate[] = ",\"outputs\":[\"attention_weights\"],\"head_mask\":[1,-2]";
    const struct form *f = &forms[_i];
    for (size_t a = 0; a < WEIGHTS + (f->heads == 2); a++) {
        const char *members = a < WEIGHTS ? weights[a] : gate;
        const bool mean = strstr(members, "average") != NULL;
        struct answer full, few;
        post_both(&full, &few, _i, members, "UINT8");
        const json_t *object = part(&few, _i, "attention_weights");
        expect_ranges(json_object_get(object, "bytes"), json_object_get(object, "minimum"),
                      json_object_get(object, "maximum"), part(&full, _i, "attention_weights"),
                      (f->batch > 0) + !mean, f->name);
        expect_others(&few, &full, _i);
        answer_free(&full);
        answer_free(&few);
    }
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* Two steps of a list: maps of an odd number of bytes, then tensors of four bytes. */
static struct answer post_list(const char *extra)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"sequences\":[");
    for (unsigned i = 0; i < 2; i++) {
        text_add(&body, i > 0 ? ",{" : "{");
        text_steps(&body, i > 0 ? "formed" : "empty", 7 + i, 3, ",\"commit\":false,\"heads\":[0],");
        text_add(&body, "\"rows\":[1,0,2],\"outputs\":[\"attention_weights\",\"output\"]%s}",
                 extra);
    }
    text_add(&body, "]}");
    struct answer answer = post("/decode", body.data, true);
    text_free(&body);
    return answer;
}

TEST(steps_of_a_list_begin_at_a_multiple_of_their_elements)
{
    call_create(&client, "empty", ""); /* its map has 9 numbers */
    struct answer full = post_list("");
    binary_decode(&full, "FP32");
    static const char *const types[] = {"FP16", "UINT8"};
    for (size_t t = 0; t < 2; t++) {
        char extra[64];
        snprintf(extra, sizeof extra, ",\"map_datatype\":\"%s\"", types[t]);
        struct answer few = post_list(extra);
        binary_decode(&few, types[t]);
        for (size_t i = 0; i < 2; i++) {
            const json_t *a = json_array_get(json_object_get(full.json, "sequences"), i);
            const json_t *b = json_array_get(json_object_get(few.json, "sequences"), i);
            expect_same(types[t], b, a, "output");
        }
        answer_free(&few);
    }
    answer_free(&full);
}

TEST(an_infer_reply_has_ranges_in_its_parameters)
{
    struct text body = {0};
    float rows[2 * 3 * TINY];
    make_numbers(rows, 2 * 3 * TINY, 5);
    text_add(&body, "{\"parameters\":{\"map_datatype\":\"UINT8\",\"heads\":[2,0],"
                    "\"binary_data_output\":true},\"outputs\":[{\"name\":\"attention_weights\"},"
                    "{\"name\":\"lse\"}],\"inputs\":[{\"name\":\"hidden_states\","
                    "\"shape\":[2,3,16],\"datatype\":\"FP32\",\"data\":");
    text_floats(&body, rows, 9, SHAPE(2 * 3 * TINY));
    text_add(&body, "}]}");
    struct answer answer = post("/v2/models/tiny/infer", body.data, true);
    ck_assert_int_eq(answer.status, 200);
    char length[256];
    ck_assert(answer_header(length, &answer, JSON_LENGTH));
    json_t *json = json_loadb(answer.text, strtoul(length, NULL, 10), 0, NULL);
    const json_t *outputs = json_object_get(json, "outputs");
    const json_t *first = json_array_get(outputs, 0), *last = json_array_get(outputs, 1);
    ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "lse");
    ck_assert_str_eq(json_string_value(json_object_get(last, "datatype")), "UINT8");
    const json_t *parameters = json_object_get(last, "parameters");
    ck_assert_int_eq(json_integer_value(json_object_get(parameters, "binary_data_size")), 36);
    json_t *least = json_object_get(parameters, "minimum"),
           *zeros = json_pack("[i,i,i,i]", 0, 0, 0, 0);
    ck_assert(json_equal(least, zeros));
    json_decref(zeros);
    ck_assert_uint_eq(json_array_size(json_object_get(parameters, "maximum")), 4);
    ck_assert_uint_eq(answer.length - strtoul(length, NULL, 10), 2 * 4 * 3 * sizeof(float) + 36);
    /* The first row of a causal map is 1 0 0, and 1 is the largest weight there is. */
    ck_assert_mem_eq(answer.text + answer.length - 36, "\377\0\0", 3);
    json_decref(json);
    answer_free(&answer);
    text_free(&body);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

TEST_EACH(datatypes_that_a_reply_cannot_have_are_refused, FORM_COUNT)
{
    static const struct {
        const char *members;
        long status;
        const char *code;
    } cases[] = {
        {",\"outputs\":[\"attention_weights\"],\"map_datatype\":\"FP16\"", 400, "invalid_value"},
        {",\"outputs\":[\"attention_weights\"],\"map_datatype\":\"UINT8\"", 400, "invalid_value"},
        {",\"outputs\":[\"attention_scores\"],\"map_datatype\":\"UINT8\"", 422, "unsupported"},
        {",\"outputs\":[\"attention_weights\"],\"map_datatype\":\"fp16\"", 400, "invalid_value"},
        {",\"outputs\":[\"attention_weights\"],\"map_datatype\":16", 400, "invalid_type"},
        {",\"outputs\":[\"attention_weights\"],\"top_k\":1,\"map_datatype\":\"FP16\"", 400,
         "invalid_value"},
        {",\"map_datatype\":\"FP16\"", 400, "invalid_value"}, /* no map is asked for */
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        form_refuse(&client, _i, cases[i].members, cases[i].status, cases[i].code);
    struct answer plain =
        form_expect(&client, _i, ",\"outputs\":[\"attention_weights\"],\"map_datatype\":\"FP32\"");
    answer_free(&plain);
}

SUITE(datatypes)
