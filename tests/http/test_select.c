/* test_select.c: selections from attention_weights, attention_scores, query and head_output, in
 * every form of call: a selection has the bits of the whole, and is charged for its own size
 * only. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forms.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

static void set_up(void)
{
    serve(CONFIG_SMALL("\"max_reply_bytes\":\"64MiB\","));
    forms_begin(&client);
}

#define MAPS ",\"outputs\":[\"attention_weights\",\"attention_scores\"],\"stage\":\"masked\""
#define WEIGHTS ",\"outputs\":[\"attention_weights\"]"
#define INNER ",\"outputs\":[\"query\",\"head_output\",\"concat\"]"

/* The element of nested arrays at these indices. */
static const json_t *element(const json_t *array, size_t rank, const size_t *at)
{
    for (size_t i = 0; i < rank; i++) {
        ck_assert_msg(at[i] < json_array_size(array), "index %zu of %zu in dimension %zu", at[i],
                      json_array_size(array), i);
        array = json_array_get(array, at[i]);
    }
    return array;
}

/* Row (b, h, t) of a map, which has a batch dimension where the form has one. */
static const json_t *row_of(const json_t *map, const struct form *f, size_t b, size_t h, size_t t)
{
    const size_t at[] = {b, h, t};
    return f->batch > 0 ? element(map, 3, at) : element(map, 2, at + 1);
}

static size_t batch_of(const struct form *f) { return f->batch > 0 ? f->batch : 1; }

/* Fails unless `part` is the map of these heads and rows of the whole. */
static void expect_part(const struct form *f, const json_t *part, const json_t *whole,
                        const size_t *heads, size_t num_heads, const size_t *rows, size_t num_rows)
{
    ck_assert_ptr_nonnull(part);
    for (size_t b = 0; b < batch_of(f); b++) {
        const json_t *sequence = f->batch > 0 ? json_array_get(part, b) : part;
        ck_assert_uint_eq(json_array_size(sequence), num_heads);
        for (size_t h = 0; h < num_heads; h++) {
            ck_assert_uint_eq(json_array_size(json_array_get(sequence, h)), num_rows);
            for (size_t t = 0; t < num_rows; t++)
                ck_assert_msg(
                    json_equal(row_of(part, f, b, h, t), row_of(whole, f, b, heads[h], rows[t])),
                    "%s: head %zu, row %zu is not as in the whole", f->name, heads[h], rows[t]);
        }
    }
}

static struct answer ask(int i, const char *outputs, const char *selection)
{
    char extra[256];
    snprintf(extra, sizeof extra, "%s%s", outputs, selection);
    return form_expect(&client, i, extra);
}

/* Asks for the two outputs of these names in form i, whole and selected. */
static void compare_parts(int i, const char *outputs, const char *const names[2])
{
    static const size_t all[] = {0, 1, 2, 3, 4, 5}, heads[] = {1, 0}, rows[] = {2, 0, 1};
    const struct form *f = &forms[i];
    struct answer whole = ask(i, outputs, ""), some = ask(i, outputs, ",\"heads\":[1,0]");
    struct answer few = ask(i, outputs, ",\"rows\":[2,0,1],\"heads\":[1,0]");
    struct answer late = ask(i, outputs, ",\"rows\":[2]");
    for (size_t k = 0; k < 2; k++) {
        const json_t *map = json_object_get(form_reply(&whole, i), names[k]);
        expect_part(f, map, map, all, f->heads, all, f->rows);
        expect_part(f, json_object_get(form_reply(&some, i), names[k]), map, heads, 2, all,
                    f->rows);
        expect_part(f, json_object_get(form_reply(&few, i), names[k]), map, heads, 2, rows, 3);
        expect_part(f, json_object_get(form_reply(&late, i), names[k]), map, all, f->heads, rows,
                    1);
    }
    answer_free(&whole);
    answer_free(&some);
    answer_free(&few);
    answer_free(&late);
}

CASE(forms, set_up, serve_end, 0)

TEST_EACH(heads_and_rows_are_parts_of_the_whole_maps, FORM_COUNT)
{
    static const char *const names[] = {"attention_weights", "attention_scores"};
    compare_parts(_i, MAPS, names);
}

/* concat has the heads of a row side by side. */
static void expect_concat(const struct form *f, const json_t *reply)
{
    const json_t *heads = json_object_get(reply, "head_output");
    const json_t *concat = json_object_get(reply, "concat");
    for (size_t b = 0; b < batch_of(f); b++)
        for (size_t t = 0; t < f->rows; t++) {
            const size_t at[] = {b, t};
            const json_t *row = f->batch > 0 ? element(concat, 2, at) : element(concat, 1, at + 1);
            size_t width = json_array_size(row) / f->heads;
            ck_assert_uint_eq(json_array_size(row_of(heads, f, b, 0, t)), width);
            for (size_t i = 0; i < f->heads * width; i++)
                ck_assert(json_equal(json_array_get(row, i),
                                     json_array_get(row_of(heads, f, b, i / width, t), i % width)));
        }
}

TEST_EACH(queries_and_outputs_of_heads_are_selected_as_maps_are, FORM_COUNT)
{
    static const char *const names[] = {"query", "head_output"};
    if (_i == FORM_WEIGHTLESS) {
        for (size_t k = 0; k < 3; k++) {
            static const char *const outputs[] = {"query", "head_output", "concat"};
            char extra[64];
            snprintf(extra, sizeof extra, ",\"outputs\":[\"output\",\"%s\"]", outputs[k]);
            form_refuse(&client, _i, extra, 422, "unsupported");
        }
        return;
    }
    compare_parts(_i, INNER, names);
    struct answer some = form_expect(&client, _i, INNER ",\"rows\":[1]");
    struct answer all = form_expect(&client, _i, INNER);
    expect_concat(&forms[_i], form_reply(&all, _i));
    expect_same("concat beside rows", form_reply(&some, _i), form_reply(&all, _i), "concat");
    answer_free(&some);
    answer_free(&all);
}

/* ---- The largest ----------------------------------------------------------------------------- */

/* Fails unless index and weight are the k largest of `row`, in order; of equal weights the lower
 * column comes first. */
static void expect_largest(const struct form *f, const json_t *index, const json_t *weight,
                           const json_t *row, size_t k)
{
    bool taken[64] = {false};
    size_t columns = json_array_size(row);
    k = k < columns ? k : columns;
    ck_assert_uint_le(columns, 64);
    ck_assert_uint_eq(json_array_size(index), k);
    ck_assert_uint_eq(json_array_size(weight), k);
    for (size_t i = 0; i < k; i++) {
        size_t best = columns;
        for (size_t j = 0; j < columns; j++)
            if (!taken[j] && (best == columns || json_number_value(json_array_get(row, j)) >
                                                     json_number_value(json_array_get(row, best))))
                best = j;
        taken[best] = true;
        ck_assert(json_is_integer(json_array_get(index, i)));
        ck_assert_msg(json_integer_value(json_array_get(index, i)) == (json_int_t)best &&
                          json_equal(json_array_get(weight, i), json_array_get(row, best)),
                      "%s: the %zu. of the largest is not column %zu", f->name, i + 1, best);
    }
}

static void compare_largest(int i, size_t k)
{
    static const size_t heads[] = {1, 0}, rows[] = {2, 0};
    const struct form *f = &forms[i];
    char extra[128];
    snprintf(extra, sizeof extra, WEIGHTS ",\"top_k\":%zu,\"heads\":[1,0],\"rows\":[2,0]", k);
    struct answer whole = form_expect(&client, i, WEIGHTS), top = form_expect(&client, i, extra);
    const json_t *map = json_object_get(form_reply(&whole, i), "attention_weights");
    const json_t *pair = json_object_get(form_reply(&top, i), "attention_weights");
    ck_assert_uint_eq(json_object_size(pair), 2);
    for (size_t b = 0; b < batch_of(f); b++)
        for (size_t h = 0; h < 2; h++)
            for (size_t t = 0; t < 2; t++)
                expect_largest(f, row_of(json_object_get(pair, "index"), f, b, h, t),
                               row_of(json_object_get(pair, "weight"), f, b, h, t),
                               row_of(map, f, b, heads[h], rows[t]), k);
    answer_free(&whole);
    answer_free(&top);
}

TEST_EACH(top_k_is_the_largest_weights_in_order, FORM_COUNT)
{
    compare_largest(_i, 1);
    compare_largest(_i, 3);
    compare_largest(_i, 1000); /* more than there are: all of them */
}

TEST(equal_weights_come_by_their_columns)
{
    struct answer answer =
        client_post(&client, "/attend",
                    "{\"query\":[[[0]]],\"key\":[[[1],[2],[3],[4],[5]]],\"top_k\":3,"
                    "\"value\":[[[1],[2],[3],[4],[5]]],\"attention_bias\":[[null,0,0,1,0]],"
                    "\"outputs\":[\"attention_weights\"]}");
    expect_answer(&answer, 200, NULL, "ties");
    json_t *want = json_loads("[[[3,1,2]]]", 0, NULL);
    ck_assert(json_equal(
        json_object_get(json_object_get(answer.json, "attention_weights"), "index"), want));
    json_decref(want);
    answer_free(&answer);
}

/* ---- The mean -------------------------------------------------------------------------------- */

/* Row (b, t) of a mean. */
static const json_t *mean_row(const json_t *mean, const struct form *f, size_t b, size_t t)
{
    const size_t at[] = {b, t};
    return f->batch > 0 ? element(mean, 2, at) : element(mean, 1, at + 1);
}

TEST_EACH(average_is_over_the_selected_heads, FORM_COUNT)
{
    const struct form *f = &forms[_i];
    struct answer whole = form_expect(&client, _i, WEIGHTS);
    struct answer mean =
        form_expect(&client, _i, WEIGHTS ",\"average_heads\":true,\"heads\":[1,0],\"rows\":[2,1]");
    const json_t *map = json_object_get(form_reply(&whole, _i), "attention_weights");
    const json_t *got = json_object_get(form_reply(&mean, _i), "attention_weights");
    for (size_t b = 0; b < batch_of(f); b++)
        for (size_t t = 0; t < 2; t++)
            for (size_t s = 0; s < f->keys; s++) {
                double sum = 0;
                for (size_t h = 0; h < 2; h++)
                    sum += json_number_value(json_array_get(row_of(map, f, b, h, 2 - t), s));
                double x = json_number_value(json_array_get(mean_row(got, f, b, t), s));
                ck_assert_msg(fabs(x - sum / 2) <= 1e-6, "%s: mean of %zu is %g", f->name, s, x);
            }
    answer_free(&whole);
    answer_free(&mean);
}

TEST_EACH(selected_rows_of_an_average_are_those_of_the_whole, FORM_COUNT)
{
    const struct form *f = &forms[_i];
    struct answer whole = form_expect(&client, _i, WEIGHTS ",\"average_heads\":true");
    struct answer rows = form_expect(&client, _i, WEIGHTS ",\"average_heads\":true,\"rows\":[2]");
    struct answer top = form_expect(&client, _i, WEIGHTS ",\"average_heads\":true,\"top_k\":2");
    const json_t *mean = json_object_get(form_reply(&whole, _i), "attention_weights");
    const json_t *part = json_object_get(form_reply(&rows, _i), "attention_weights");
    const json_t *pair = json_object_get(form_reply(&top, _i), "attention_weights");
    for (size_t b = 0; b < batch_of(f); b++) {
        ck_assert(json_equal(mean_row(part, f, b, 0), mean_row(mean, f, b, 2)));
        for (size_t t = 0; t < f->rows; t++)
            expect_largest(f, mean_row(json_object_get(pair, "index"), f, b, t),
                           mean_row(json_object_get(pair, "weight"), f, b, t),
                           mean_row(mean, f, b, t), 2);
    }
    answer_free(&whole);
    answer_free(&rows);
    answer_free(&top);
}

TEST_EACH(a_selection_leaves_the_other_outputs_alone, FORM_COUNT)
{
    static const char asked[] =
        ",\"outputs\":[\"attention_weights\",\"output\",\"lse\",\"head_stats\"]";
    static const struct {
        const char *selection, *names[4];
    } cases[] = {{",\"rows\":[0],\"top_k\":2", {"output", "lse", "head_stats"}},
                 {",\"heads\":[1]", {"output", "lse"}}};
    char part[128];
    struct answer whole = form_expect(&client, _i, asked);
    for (size_t i = 0; i < 2; i++) {
        snprintf(part, sizeof part, "%s%s", asked, cases[i].selection);
        struct answer some = form_expect(&client, _i, part);
        for (const char *const *name = cases[i].names; *name != NULL; name++)
            expect_same(forms[_i].name, form_reply(&some, _i), form_reply(&whole, _i), *name);
        answer_free(&some);
    }
    answer_free(&whole);
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

enum { HEADS = 12, TOKENS = 512, WIDTH = 16 };

static void add_rows(struct text *body, const char *name, unsigned seed, size_t heads, float by)
{
    size_t count = heads * TOKENS * WIDTH;
    float *numbers = malloc(count * sizeof *numbers);
    ck_assert_ptr_nonnull(numbers);
    make_numbers(numbers, count, seed);
    for (size_t i = 0; i < count; i++)
        numbers[i] *= by;
    text_add(body, ",\"%s\":", name);
    text_floats(body, numbers, 5, SHAPE(heads, TOKENS, WIDTH));
    free(numbers);
}

/* POSTs attention of 12 heads over 512 tokens; scores have a deviation near 1. */
static struct answer post_large(const char *extra)
{
    struct text body = {0};
    text_add(&body, "{\"outputs\":[\"attention_weights\"]%s", extra);
    add_rows(&body, "query", 1, HEADS, 2);
    add_rows(&body, "key", 2, HEADS, 2);
    add_rows(&body, "value", 3, HEADS, 1);
    text_add(&body, "}");
    struct answer answer = client_post(&client, "/attend", body.data);
    text_free(&body);
    return answer;
}

TEST(the_largest_eight_take_two_hundredths_of_the_whole_maps_bytes)
{
    struct answer refused = post_large(""); /* 12 x 512 x 512 numbers of 25 bytes pass 64 MiB */
    expect_answer(&refused, 422, "reply_too_large", "the whole map");
    struct answer top = post_large(",\"top_k\":8");
    struct answer half = post_large(",\"heads\":[0,1,2,3,4,5]");
    struct answer rest = post_large(",\"heads\":[6,7,8,9,10,11]");
    expect_answer(&top, 200, NULL, "the largest");
    expect_answer(&half, 200, NULL, "half of the map");
    expect_answer(&rest, 200, NULL, "the other half");
    double whole = (double)half.length + (double)rest.length, part = (double)top.length / whole;
    printf("select: 8 of 512 weights take %zu bytes, %.3f %% of the whole map's %.0f\n", top.length,
           100 * part, whole);
    ck_assert_double_lt(part, 0.02);
    answer_free(&refused);
    answer_free(&top);
    answer_free(&half);
    answer_free(&rest);
}

SUITE(select)
