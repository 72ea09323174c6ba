/* test_decode.c: steps over sessions: positions, retries, steps without commit, lists. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

/* The layer's length, which a position error tells. */
static json_int_t length_in(const struct answer *answer)
{
    return json_integer_value(json_object_get(json_object_get(answer->json, "error"), "length"));
}

CASE(steps, serve_small, serve_end, 0)

TEST(decode_of_an_unknown_session_is_not_found_and_makes_none)
{
    refuse_decode(&client, "nobody", 1, "", 404, "session_not_found");
    refuse_decode(&client, "nobody", 1, ",\"start\":false", 404, "session_not_found");
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
}

TEST(start_makes_a_session_once)
{
    struct answer answer = call_decode(&client, "started", 1, ",\"start\":true");
    expect_answer(&answer, 200, NULL, "start");
    ck_assert_int_eq(answer_integer(&answer, "position"), 0);
    ck_assert_int_eq(answer_integer(&answer, "length"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(answer.json, "session_id")), "started");
    answer_free(&answer);
    refuse_decode(&client, "started", 2, ",\"start\":true", 409, "session_exists");
    ck_assert_uint_eq(call_length(&client, "started", 0), 1);
    expect_decode(&client, "started", 2, 1);
}

TEST(start_of_a_step_that_fails_leaves_no_session)
{
    refuse_decode(&client, "stillborn", 1, ",\"start\":true,\"position\":3", 409, "position_gap");
    ck_assert_int_eq(call_status(&client, "stillborn"), 404);
    refuse_decode(&client, "stillborn", 1, ",\"start\":true,\"padding_mask\":[1,1]", 422,
                  "shape_mismatch");
    ck_assert_int_eq(call_status(&client, "stillborn"), 404);
}

TEST(position_must_be_the_length_and_errors_name_the_true_one)
{
    call_create(&client, "placed", "");
    for (unsigned i = 0; i < 4; i++)
        expect_decode(&client, "placed", i, i);
    struct answer early = call_decode(&client, "placed", 50, ",\"position\":2");
    expect_answer(&early, 409, "position_conflict", "early");
    ck_assert_int_eq(length_in(&early), 4);
    struct answer late = call_decode(&client, "placed", 50, ",\"position\":5");
    expect_answer(&late, 409, "position_gap", "late");
    ck_assert_int_eq(length_in(&late), 4);
    ck_assert_uint_eq(call_length(&client, "placed", 0), 4);
    expect_decode(&client, "placed", 4, 4);
    answer_free(&early);
    answer_free(&late);
}

TEST(repeated_step_is_answered_again_and_not_applied)
{
    call_create(&client, "again", "");
    for (unsigned i = 0; i < 3; i++)
        expect_decode(&client, "again", i, i);
    struct answer first = call_decode(&client, "again", 3, ",\"position\":3");
    struct answer second = call_decode(&client, "again", 3, ",\"position\":3");
    expect_answer(&first, 200, NULL, "first");
    expect_answer(&second, 200, NULL, "second");
    ck_assert_ptr_null(json_object_get(first.json, "replayed"));
    ck_assert(json_is_true(json_object_get(second.json, "replayed")));
    expect_same("replay", second.json, first.json, "output");
    ck_assert_int_eq(answer_integer(&second, "position"), 3);
    ck_assert_int_eq(answer_integer(&second, "length"), 4);
    ck_assert_uint_eq(call_length(&client, "again", 0), 4);
    refuse_decode(&client, "again", 99, ",\"position\":3", 409, "position_conflict");
    refuse_decode(&client, "again", 2, ",\"position\":2", 409, "position_conflict");
    expect_decode(&client, "again", 4, 4);
    answer_free(&first);
    answer_free(&second);
}

#define OUTPUTS                                                                           \
    ",\"outputs\":[\"output\",\"attention_weights\",\"lse\",\"key\",\"value\",\"query\"," \
    "\"head_output\",\"concat\"]"

TEST(repeated_prefill_is_answered_again_with_the_same_bits)
{
    static const char *const extra[] = {",\"position\":0" OUTPUTS, ",\"position\":20" OUTPUTS};
    static const char *const names[] = {"output", "attention_weights", "lse",    "key", "value",
                                        "query",  "head_output",       "concat", NULL};
    call_create(&client, "prefilled", "");
    for (unsigned i = 0; i < 2; i++) {
        struct answer first = call_prefill(&client, "prefilled", 40 * i, 20 + 70 * i, extra[i]);
        struct answer second = call_prefill(&client, "prefilled", 40 * i, 20 + 70 * i, extra[i]);
        expect_answer(&first, 200, NULL, "first");
        expect_answer(&second, 200, NULL, "second");
        ck_assert(json_is_true(json_object_get(second.json, "replayed")));
        for (size_t j = 0; names[j] != NULL; j++)
            expect_same("replay", second.json, first.json, names[j]);
        answer_free(&first);
        answer_free(&second);
    }
    ck_assert_uint_eq(call_length(&client, "prefilled", 0), 110);
}

/* A row as [E] makes output and concat rows too. */
TEST(outputs_of_one_row_follow_its_shape)
{
    call_create(&client, "flat", "");
    call_create(&client, "listed", "");
    struct answer flat = call_decode(&client, "flat", 1, OUTPUTS);
    struct answer listed = call_decode_rows(&client, "listed", 1, 1, OUTPUTS);
    expect_answer(&flat, 200, NULL, "[E]");
    expect_answer(&listed, 200, NULL, "[1,E]");
    static const char *const rows[] = {"output", "concat"}, *const others[] = {"lse", "query"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *list = json_object_get(listed.json, rows[i]);
        ck_assert_uint_eq(json_array_size(list), 1);
        ck_assert_uint_eq(json_array_size(json_array_get(list, 0)), TINY);
        ck_assert_msg(json_equal(json_object_get(flat.json, rows[i]), json_array_get(list, 0)),
                      "%s", flat.text);
        expect_same("of a row", flat.json, listed.json, others[i]);
    }
    answer_free(&flat);
    answer_free(&listed);
}

TEST(steps_without_position_append_even_when_equal)
{
    call_create(&client, "appended", "");
    for (json_int_t i = 0; i < 3; i++) {
        struct answer answer = call_decode(&client, "appended", 7, "");
        expect_answer(&answer, 200, NULL, "append");
        ck_assert_int_eq(answer_integer(&answer, "position"), i);
        answer_free(&answer);
    }
}

TEST(uncommitted_step_computes_on_top_and_leaves_the_session)
{
    call_create(&client, "whatif", "");
    for (unsigned i = 0; i < 5; i++)
        expect_decode(&client, "whatif", i, i);
    struct answer other = call_decode(&client, "whatif", 70, ",\"position\":5,\"commit\":false");
    struct answer tried = call_decode(&client, "whatif", 5, ",\"position\":5,\"commit\":false");
    expect_answer(&other, 200, NULL, "other");
    expect_answer(&tried, 200, NULL, "tried");
    ck_assert_int_eq(answer_integer(&tried, "position"), 5);
    ck_assert_int_eq(answer_integer(&tried, "length"), 5);
    ck_assert_uint_eq(call_length(&client, "whatif", 0), 5);
    struct answer kept = call_decode(&client, "whatif", 5, ",\"position\":5,\"commit\":true");
    expect_answer(&kept, 200, NULL, "kept");
    ck_assert_ptr_null(json_object_get(kept.json, "replayed"));
    ck_assert_int_eq(answer_integer(&kept, "length"), 6);
    expect_same("kept", kept.json, tried.json, "output");
    answer_free(&other);
    answer_free(&tried);
    answer_free(&kept);
}

TEST(layers_of_a_session_advance_separately)
{
    call_create(&client, "layers", "");
    for (unsigned i = 0; i < 3; i++)
        expect_decode(&client, "layers", i, i);
    struct answer answer = call_decode(&client, "layers", 9, ",\"layer\":1,\"position\":0");
    expect_answer(&answer, 200, NULL, "layer 1");
    ck_assert_int_eq(answer_integer(&answer, "layer"), 1);
    ck_assert_int_eq(answer_integer(&answer, "length"), 1);
    ck_assert_uint_eq(call_length(&client, "layers", 0), 3);
    ck_assert_uint_eq(call_length(&client, "layers", 1), 1);
    refuse_decode(&client, "layers", 9, ",\"layer\":2", 404, "layer_not_found");
    answer_free(&answer);
}

TEST(prefill_equals_single_steps_and_plain_attention)
{
    enum { N = 12 };
    struct text body = {0};
    float rows[N * TINY];
    call_create(&client, "stepped", "");
    struct answer whole = call_prefill(&client, "prefill", 0, N, ",\"start\":true");
    expect_answer(&whole, 200, NULL, "prefill");
    ck_assert_str_eq(json_string_value(json_object_get(whole.json, "model")), "tiny");
    for (unsigned i = 0; i < N; i++)
        make_numbers(rows + i * TINY, TINY, i);
    text_add(&body, "{\"model\":\"tiny\",\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(N, TINY));
    text_add(&body, "}");
    struct answer plain = client_post(&client, "/attend", body.data);
    expect_answer(&plain, 200, NULL, "attend");
    float *a = tensor_of(whole.json, "output", SHAPE(N, TINY));
    float *b = tensor_of(plain.json, "output", SHAPE(N, TINY));
    expect_close("prefill", a, b, N * TINY, 1e-5);
    for (unsigned i = 0; i < N; i++) {
        struct answer step = call_decode(&client, "stepped", i, "");
        float *row = tensor_of(step.json, "output", SHAPE(TINY));
        expect_close("step", row, a + i * TINY, TINY, 1e-5);
        free(row);
        answer_free(&step);
    }
    free(a);
    free(b);
    answer_free(&whole);
    answer_free(&plain);
    text_free(&body);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Appends an item to the list whose text so far is `list`. */
static void add_item(struct text *list, const char *id, unsigned seed, const char *extra)
{
    text_add(list, list->length > 0 ? ",{" : "{");
    text_step(list, id, seed, extra);
    text_add(list, "}");
}

static struct answer post_list(struct text *list, const char *const headers[])
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"sequences\":[%s]}", list->data);
    struct answer answer = client_send(
        &client, &(struct request){
                     .method = "POST", .path = "/decode", .body = body.data, .headers = headers});
    text_free(&body);
    text_free(list);
    return answer;
}

static const json_t *item(const struct answer *answer, size_t i)
{
    const json_t *list = json_object_get(answer->json, "sequences");
    ck_assert_uint_lt(i, json_array_size(list));
    return json_array_get(list, i);
}

static const char *item_code(const struct answer *answer, size_t i)
{
    const json_t *error = json_object_get(item(answer, i), "error");
    return json_string_value(json_object_get(error, "code"));
}

static const char *item_message(const struct answer *answer, size_t i)
{
    const json_t *error = json_object_get(item(answer, i), "error");
    return json_string_value(json_object_get(error, "message"));
}

TEST(bad_members_of_a_list_fail_alone)
{
    struct text list = {0};
    call_create(&client, "good1", "");
    call_create(&client, "good2", "");
    call_create(&client, "alone", "");
    add_item(&list, "good1", 1, "");
    add_item(&list, "missing", 1, "");
    add_item(&list, "good2", 1, ",\"position\":7");
    add_item(&list, "good2", 1, ",\"head_mask\":[1,1]");
    text_add(&list, ",{\"session_id\":\"good2\",\"hidden_states\":[1,2,3]}");
    add_item(&list, "good2", 1, ",\"position\":0");
    add_item(&list, "other.0123456789abcdefghjkmnpqrs", 1, "");
    struct answer answer = post_list(&list, NULL);
    expect_answer(&answer, 200, NULL, "list");
    ck_assert_str_eq(item_code(&answer, 6), "wrong_instance");
    struct answer alone = call_decode(&client, "alone", 1, "");
    expect_same("first", item(&answer, 0), alone.json, "output");
    ck_assert_str_eq(item_code(&answer, 1), "session_not_found");
    ck_assert_str_eq(item_message(&answer, 1), "there is no session of this id; `start` makes one");
    ck_assert_str_eq(item_code(&answer, 2), "position_gap");
    ck_assert_str_eq(item_code(&answer, 3), "shape_mismatch");
    ck_assert_str_eq(item_code(&answer, 4), "shape_mismatch");
    expect_same("last", item(&answer, 5), alone.json, "output");
    ck_assert_uint_eq(call_length(&client, "good1", 0), 1);
    ck_assert_uint_eq(call_length(&client, "good2", 0), 1);
    answer_free(&answer);
    answer_free(&alone);
}

TEST(steps_of_one_session_in_one_list_run_in_order)
{
    enum { N = 6 };
    struct text list = {0};
    char position[32];
    call_create(&client, "queue", "");
    call_create(&client, "single", "");
    for (unsigned i = 0; i < N; i++) {
        snprintf(position, sizeof position, ",\"position\":%u", i);
        add_item(&list, "queue", i, position);
    }
    struct answer answer = post_list(&list, NULL);
    expect_answer(&answer, 200, NULL, "list");
    for (unsigned i = 0; i < N; i++) {
        struct answer alone = call_decode(&client, "single", i, "");
        expect_same("step", item(&answer, i), alone.json, "output");
        answer_free(&alone);
    }
    ck_assert_uint_eq(call_length(&client, "queue", 0), N);
    answer_free(&answer);
}

TEST(session_header_must_name_the_session_of_the_body)
{
    static const char *const mine[] = {"X-Session-Id: mine", NULL};
    static const char *const other[] = {"X-Session-Id: other", NULL};
    struct text list = {0};
    call_create(&client, "mine", "");
    add_item(&list, "mine", 1, "");
    struct answer agreed = post_list(&list, mine);
    expect_answer(&agreed, 200, NULL, "agreed");
    ck_assert_ptr_null(json_object_get(item(&agreed, 0), "error"));
    add_item(&list, "theirs", 3, "");
    add_item(&list, "mine", 2, "");
    struct answer led = post_list(&list, mine);
    expect_answer(&led, 200, NULL, "one of two");
    ck_assert_ptr_nonnull(json_object_get(item(&led, 0), "error"));
    ck_assert_ptr_null(json_object_get(item(&led, 1), "error"));
    add_item(&list, "mine", 2, "");
    add_item(&list, "theirs", 3, "");
    struct answer differed = post_list(&list, other);
    expect_answer(&differed, 400, "invalid_value", "differed");
    struct answer looked = client_send(
        &client, &(struct request){.method = "GET", .path = "/sessions/mine", .headers = other});
    expect_answer(&looked, 400, "invalid_value", "looked at");
    struct answer deleted = client_send(
        &client, &(struct request){.method = "DELETE", .path = "/sessions/mine", .headers = other});
    expect_answer(&deleted, 400, "invalid_value", "deleted");
    ck_assert_uint_eq(call_length(&client, "mine", 0), 2);
    answer_free(&agreed);
    answer_free(&led);
    answer_free(&differed);
    answer_free(&looked);
    answer_free(&deleted);
}

TEST(masks_of_a_step_cover_cached_and_new_tokens)
{
    static const char weights[] = ",\"outputs\":[\"attention_weights\"],\"padding_mask\":[0,1,0,1]";
    call_create(&client, "masked", "");
    for (unsigned i = 0; i < 3; i++)
        expect_decode(&client, "masked", i, i);
    refuse_decode(&client, "masked", 3, ",\"padding_mask\":[1]", 422, "shape_mismatch");
    struct answer answer = call_decode(&client, "masked", 3, weights);
    expect_answer(&answer, 200, NULL, "masked");
    float *w = tensor_of(answer.json, "attention_weights", SHAPE(4, 1, 4));
    for (size_t h = 0; h < 4; h++) {
        ck_assert(w[h * 4] == 0 && w[h * 4 + 2] == 0);
        ck_assert_float_eq_tol(w[h * 4 + 1] + w[h * 4 + 3], 1, 1e-6f);
    }
    free(w);
    answer_free(&answer);
}

SUITE(decode)
