/* test_stats.c: head_stats: heads whose statistics are computed by hand, and statistics of every
 * form of call compared with its attention weights.
 *
 * Heads are made by biases that spread each row's weight evenly over chosen keys: one, two or
 * three, or all. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#define RADIUS 4     /* the default local_radius */
#define TINY_HEADS 4 /* the first four of the table below */

/* ---- Statistics of heads that share their weight evenly -------------------------------------- */

enum head { PREVIOUS, UNIFORM, SINK, LOCAL, POSITIONAL, FOCUSED, HEADS };

static const char *const patterns[HEADS] = {"previous", "global",     "sink",
                                            "local",    "positional", "focused"};

/* Whether the query at position i attends to the key at j <= i. */
static bool attends(enum head head, size_t i, size_t j)
{
    switch (head) {
    case PREVIOUS:
        return j + 1 == i || i == 0;
    case UNIFORM:
        return true;
    case SINK:
        return j == 0;
    case LOCAL:
        return j + 2 >= i;
    case POSITIONAL:
        return i < 6 ? j == 0 : j + 6 == i;
    default:
        return j == i / 3;
    }
}

struct stats {
    double entropy, mean_distance, self, previous, first, local, largest;
};

/* The statistics of queries [from, from + n), by counting. */
static struct stats count_stats(enum head head, size_t from, size_t n)
{
    struct stats s = {0};
    for (size_t i = from; i < from + n; i++) {
        double share = 0;
        for (size_t j = 0; j <= i; j++)
            share += attends(head, i, j);
        share = 1 / share;
        s.entropy -= log(share) / (double)n;
        s.largest += share / (double)n;
        for (size_t j = 0; j <= i; j++) {
            double w = attends(head, i, j) ? share / (double)n : 0;
            s.mean_distance += w * (double)(i - j);
            s.self += j == i ? w : 0;
            s.previous += j + 1 == i ? w : 0;
            s.first += j == 0 ? w : 0;
            s.local += i - j <= RADIUS ? w : 0;
        }
    }
    return s;
}

static double member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    ck_assert_msg(json_is_number(value), "no number %s", name);
    return json_number_value(value);
}

static void expect_numbers(const char *what, const json_t *got, const struct stats *want,
                           size_t rows)
{
    const struct {
        const char *name;
        double want;
    } numbers[] = {
        {"entropy", want->entropy}, {"mean_distance", want->mean_distance},
        {"self", want->self},       {"previous", want->previous},
        {"first", want->first},     {"local", want->local},
        {"largest", want->largest}, {"rows", (double)rows},
    };
    for (size_t i = 0; i < COUNT(numbers); i++) {
        double x = member(got, numbers[i].name);
        ck_assert_msg(fabs(x - numbers[i].want) <= 1e-5, "%s: %s is %.9g, expected %.9g", what,
                      numbers[i].name, x, numbers[i].want);
    }
    ck_assert_uint_eq(json_object_size(got), 10); /* the numbers above, head and pattern */
}

/* Fails unless the list is of the first `heads` heads of the table, queries [from, from + n). */
static void expect_heads(const char *what, const json_t *list, size_t heads, size_t from, size_t n)
{
    char place[128];
    ck_assert_uint_eq(json_array_size(list), heads);
    for (size_t h = 0; h < heads; h++) {
        const json_t *got = json_array_get(list, h);
        const char *pattern = json_string_value(json_object_get(got, "pattern"));
        struct stats want = count_stats((enum head)h, from, n);
        snprintf(place, sizeof place, "%s, the %s head", what, patterns[h]);
        ck_assert_double_eq(member(got, "head"), (double)h);
        ck_assert_msg(pattern != NULL && strcmp(pattern, patterns[h]) == 0, "%s is called %s",
                      place, pattern);
        expect_numbers(place, got, &want, n);
    }
}

/* Adds members that make the table's heads of rows [from, from + n): a scale that leaves no scores,
 * and a bias that chooses the keys. */
static void add_heads(struct text *body, size_t heads, size_t from, size_t n)
{
    static float bias[HEADS * 16 * 16];
    size_t keys = from + n;
    ck_assert_uint_le(keys, 16);
    for (size_t h = 0; h < heads; h++)
        for (size_t t = 0; t < n; t++)
            for (size_t s = 0; s < keys; s++)
                bias[(h * n + t) * keys + s] =
                    s <= from + t && attends((enum head)h, from + t, s) ? 0 : -1000;
    text_add(body, ",\"outputs\":[\"head_stats\"],\"is_causal\":true,\"scale\":1e-30,"
                   "\"attention_bias\":");
    text_floats(body, bias, 9, SHAPE(1, heads, n, keys));
}

CASE(stats, set_up, serve_end, 0)

TEST(heads_made_by_hand_are_named_and_measured)
{
    static float zeros[HEADS * 16];
    struct text body = {0};
    text_add(&body, "{\"query\":");
    text_floats(&body, zeros, 1, SHAPE(HEADS, 16, 1));
    text_add(&body, ",\"key\":");
    text_floats(&body, zeros, 1, SHAPE(1, 16, 1));
    text_add(&body, ",\"value\":");
    text_floats(&body, zeros, 1, SHAPE(1, 16, 1));
    add_heads(&body, HEADS, 0, 16);
    text_add(&body, "}");
    struct answer answer = client_post(&client, "/attend", body.data);
    expect_answer(&answer, 200, NULL, "heads");
    expect_heads("weightless", json_object_get(answer.json, "head_stats"), HEADS, 0, 16);
    answer_free(&answer);
    text_free(&body);
}

/* The same heads, made by queries and keys: key s is the unit vector s, and query t points at the
 * keys that it attends to. */
TEST(heads_made_of_queries_and_keys_are_named_and_measured)
{
    static float query[HEADS * 16 * 16], key[16 * 16];
    struct text body = {0};
    for (size_t h = 0; h < HEADS; h++)
        for (size_t t = 0; t < 16; t++)
            for (size_t s = 0; s <= t; s++)
                query[(h * 16 + t) * 16 + s] = attends((enum head)h, t, s) ? 100 : 0;
    for (size_t s = 0; s < 16; s++)
        key[s * 16 + s] = 1;
    text_add(&body, "{\"outputs\":[\"head_stats\"],\"is_causal\":true,\"scale\":1,\"query\":");
    text_floats(&body, query, 9, SHAPE(HEADS, 16, 16));
    text_add(&body, ",\"key\":");
    text_floats(&body, key, 9, SHAPE(1, 16, 16));
    text_add(&body, ",\"value\":");
    text_floats(&body, key, 9, SHAPE(1, 16, 16));
    text_add(&body, "}");
    struct answer answer = client_post(&client, "/attend", body.data);
    expect_answer(&answer, 200, NULL, "heads");
    expect_heads("one call", json_object_get(answer.json, "head_stats"), HEADS, 0, 16);
    answer_free(&answer);
    text_free(&body);
}

/* POSTs an /attend of ten rows for a layer of `tiny`. */
static struct answer post_layer(const char *extra)
{
    static float rows[10 * TINY];
    struct text body = {0};
    make_numbers(rows, 10 * TINY, 9);
    text_add(&body, "{\"model\":\"tiny\",\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(10, TINY));
    text_add(&body, "%s}", extra);
    struct answer answer = client_post(&client, "/attend", body.data);
    text_free(&body);
    return answer;
}

TEST(heads_have_one_name_through_layer_prefill_and_decode)
{
    struct text self = {0}, prefill = {0}, step = {0};
    add_heads(&self, TINY_HEADS, 0, 10);
    text_add(&prefill, ",\"start\":true%s", self.data);
    add_heads(&step, TINY_HEADS, 10, 6);
    struct answer begun = call_prefill(&client, "patterned", 1, 10, prefill.data);
    struct answer stepped = call_decode_rows(&client, "patterned", 11, 6, step.data);
    struct answer given = post_layer(self.data);
    expect_answer(&begun, 200, NULL, "prefill");
    expect_answer(&stepped, 200, NULL, "step");
    expect_answer(&given, 200, NULL, "layer");
    expect_heads("prefill", json_object_get(begun.json, "head_stats"), TINY_HEADS, 0, 10);
    expect_heads("decode", json_object_get(stepped.json, "head_stats"), TINY_HEADS, 10, 6);
    expect_heads("layer", json_object_get(given.json, "head_stats"), TINY_HEADS, 0, 10);
    answer_free(&begun);
    answer_free(&stepped);
    answer_free(&given);
    text_free(&self);
    text_free(&prefill);
    text_free(&step);
}

/* ---- Every form against its own weights ------------------------------------------------------ */

/* Statistics of [rows][keys] weights, whose row t has the position `from` + t. */
static struct stats weigh_stats(const float *weights, size_t rows, size_t keys, size_t from,
                                size_t radius)
{
    struct stats s = {0};
    for (size_t t = 0; t < rows; t++) {
        double largest = 0, n = (double)rows;
        for (size_t j = 0; j < keys; j++) {
            double w = (double)weights[t * keys + j];
            double away = fabs((double)(from + t) - (double)j);
            s.entropy -= w > 0 ? w * log(w) / n : 0;
            s.mean_distance += w * away / n;
            s.self += j == from + t ? w / n : 0;
            s.previous += j + 1 == from + t ? w / n : 0;
            s.first += j == 0 ? w / n : 0;
            s.local += away <= (double)radius ? w / n : 0;
            largest = fmax(largest, w);
        }
        s.largest += largest / n;
    }
    return s;
}

static const json_t *stats_of(const json_t *list, const struct form *f, size_t b, size_t h)
{
    return json_array_get(f->batch > 0 ? json_array_get(list, b) : list, h);
}

TEST_EACH(head_stats_are_those_of_the_weights_in_every_form, FORM_COUNT)
{
    const struct form *f = &forms[_i];
    size_t batch = f->batch > 0 ? f->batch : 1;
    const size_t shape[] = {batch, f->heads, f->rows, f->keys}, skip = f->batch > 0 ? 0 : 1;
    struct answer answer = form_expect(
        &client, _i, ",\"outputs\":[\"attention_weights\",\"head_stats\"],\"local_radius\":1");
    const json_t *reply = form_reply(&answer, _i), *list = json_object_get(reply, "head_stats");
    float *weights = tensor_of(reply, "attention_weights", 4 - skip, shape + skip);
    ck_assert_uint_eq(json_array_size(list), f->batch > 0 ? batch : f->heads);
    for (size_t i = 0; i < batch * f->heads; i++) {
        const json_t *got = stats_of(list, f, i / f->heads, i % f->heads);
        struct stats want =
            weigh_stats(weights + i * f->rows * f->keys, f->rows, f->keys, f->cached, 1);
        expect_numbers(f->name, got, &want, f->rows);
        ck_assert_double_eq(member(got, "head"), (double)(i % f->heads));
    }
    free(weights);
    answer_free(&answer);
}

/* ---- Targets and groups ---------------------------------------------------------------------- */

/* Of the keys that every form has. */
#define KEYS 5
#define GROUPS ",\"target_groups\":[[0],[4,1],[2,3]]"
static const int group_of_key[KEYS] = {0, 1, 2, 2, 1};

/* The target of row t of sequence b: -1 in some row of every sequence. */
static int target_of(size_t b, size_t t) { return (int)((3 * t + b) % (KEYS + 1)) - 1; }

/* Adds targets [T], or [B][T] where the form has a batch. */
static void add_targets(struct text *extra, const struct form *f)
{
    int64_t targets[2 * 8];
    size_t batch = f->batch > 0 ? f->batch : 1;
    for (size_t i = 0; i < batch * f->rows; i++)
        targets[i] = target_of(i / f->rows, i % f->rows);
    text_add(extra, ",\"targets\":");
    if (f->batch > 0)
        text_integers(extra, targets, SHAPE(batch, f->rows));
    else
        text_integers(extra, targets, SHAPE(f->rows));
}

struct answers {
    double target, target_hits, target_rows, share[3], hits[3];
};

/* What weights [rows][keys] of sequence b say. */
static struct answers weigh_targets(const float *weights, size_t rows, size_t keys, size_t b)
{
    struct answers a = {0};
    for (size_t t = 0; t < rows; t++) {
        const float *row = weights + t * keys;
        size_t largest = 0;
        int target = target_of(b, t);
        for (size_t j = 0; j < keys; j++) {
            largest = row[j] > row[largest] ? j : largest;
            if (j < KEYS)
                a.share[group_of_key[j]] += (double)row[j] / (double)rows;
        }
        if (largest < KEYS)
            a.hits[group_of_key[largest]] += 1 / (double)rows;
        if (target < 0)
            continue;
        a.target_rows++;
        a.target += (double)row[target];
        a.target_hits += largest == (size_t)target;
    }
    a.target /= a.target_rows;
    a.target_hits /= a.target_rows;
    return a;
}

static void expect_answers(const char *what, const json_t *got, const struct answers *want)
{
    const json_t *groups = json_object_get(got, "groups");
    ck_assert_double_eq_tol(member(got, "target"), want->target, 1e-6);
    ck_assert_double_eq_tol(member(got, "target_hits"), want->target_hits, 1e-6);
    ck_assert_double_eq(member(got, "target_rows"), want->target_rows);
    ck_assert_uint_eq(json_object_size(got), 14);
    ck_assert_uint_eq(json_array_size(groups), 3);
    for (size_t g = 0; g < 3; g++) {
        const json_t *group = json_array_get(groups, g);
        double share = member(group, "share"), hits = member(group, "hits");
        ck_assert_msg(fabs(share - want->share[g]) <= 1e-6 && fabs(hits - want->hits[g]) <= 1e-6,
                      "%s: group %zu has %g and %g, expected %g and %g", what, g, share, hits,
                      want->share[g], want->hits[g]);
    }
}

TEST_EACH(targets_and_groups_are_those_of_the_weights_in_every_form, FORM_COUNT)
{
    const struct form *f = &forms[_i];
    size_t batch = f->batch > 0 ? f->batch : 1;
    const size_t shape[] = {batch, f->heads, f->rows, f->keys}, skip = f->batch > 0 ? 0 : 1;
    struct text extra = {0};
    text_add(&extra, ",\"outputs\":[\"attention_weights\",\"head_stats\"]" GROUPS);
    add_targets(&extra, f);
    struct answer answer = form_expect(&client, _i, extra.data);
    const json_t *reply = form_reply(&answer, _i), *list = json_object_get(reply, "head_stats");
    float *weights = tensor_of(reply, "attention_weights", 4 - skip, shape + skip);
    for (size_t i = 0; i < batch * f->heads; i++) {
        const size_t plane = f->rows * f->keys;
        struct answers want = weigh_targets(weights + i * plane, f->rows, f->keys, i / f->heads);
        expect_answers(f->name, stats_of(list, f, i / f->heads, i % f->heads), &want);
    }
    free(weights);
    answer_free(&answer);
    text_free(&extra);
}

/* One row of targets serves all sequences of a batch; selected heads keep their own answers. */
TEST(targets_broadcast_and_selected_heads_keep_their_answers)
{
    struct answer whole = form_expect(&client, FORM_BATCH,
                                      ",\"outputs\":[\"head_stats\"]" GROUPS
                                      ",\"targets\":[[0,0,1,-1,3,4],[0,0,1,-1,3,4]]");
    struct answer part = form_expect(&client, FORM_BATCH,
                                     ",\"outputs\":[\"head_stats\"],\"heads\":[2,0]" GROUPS
                                     ",\"targets\":[0,0,1,-1,3,4]");
    for (size_t b = 0; b < 2; b++) {
        const json_t *from = json_array_get(json_object_get(whole.json, "head_stats"), b);
        const json_t *got = json_array_get(json_object_get(part.json, "head_stats"), b);
        ck_assert(json_equal(json_array_get(got, 0), json_array_get(from, 2)));
        ck_assert(json_equal(json_array_get(got, 1), json_array_get(from, 0)));
    }
    answer_free(&whole);
    answer_free(&part);
}

TEST_EACH(targets_and_groups_that_name_no_key_are_refused, FORM_COUNT)
{
    static const struct {
        const char *member;
        long status;
        const char *code;
    } cases[] = {
        {"\"targets\":[0]", 422, "shape_mismatch"},
        {"\"targets\":[[[0]]]", 422, "shape_mismatch"},
        {"\"targets\":[0.5]", 400, "invalid_type"},
        {"\"targets\":0", 400, "invalid_type"},
        {"\"target_groups\":[]", 400, "invalid_value"},
        {"\"target_groups\":[[0],[]]", 400, "invalid_value"},
        {"\"target_groups\":[[0],[1],[0],[1],[0],[1],[0],[1],[0],[1],[0],[1],[0],[1],[0],[1],[0]]",
         400, "invalid_value"},
        {"\"target_groups\":[[100]]", 422, "number_out_of_range"},
        {"\"target_groups\":[[0],[-1]]", 422, "number_out_of_range"},
        {"\"target_groups\":[[0],[1,2,1]]", 422, "number_out_of_range"},
        {"\"target_groups\":[[[0]]]", 422, "shape_mismatch"},
        {"\"target_groups\":[0]", 400, "invalid_type"},
        {"\"target_groups\":[[true]]", 400, "invalid_type"},
        {"\"target_groups\":{\"shape\":[1],\"data\":[0]}", 400, "invalid_type"},
        {"\"target_groups\":[[0]],\"target_groups\":[[0]]", 400, "duplicate_field"},
    };
    struct text extra = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        extra.length = 0;
        text_add(&extra, ",\"outputs\":[\"head_stats\"],%s", cases[i].member);
        form_refuse(&client, _i, extra.data, cases[i].status, cases[i].code);
    }
    extra.length = 0;
    text_add(&extra, ",\"outputs\":[\"head_stats\"],\"targets\":[0");
    for (size_t t = 1; t < forms[_i].rows; t++)
        text_add(&extra, ",%d", t == 2 ? 8 : 0);
    text_add(&extra, "]");
    form_refuse(&client, _i, extra.data, 422, "number_out_of_range");
    text_free(&extra);
}

/* ---- Ablation -------------------------------------------------------------------------------- */

static double norm_of_difference(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += pow((double)a[i] - (b != NULL ? (double)b[i] : 0), 2);
    return sqrt(sum);
}

/* The output of the form, [B][T][E], where head h has head_mask 0. */
static float *output_without(int i, size_t h, size_t batch, size_t width)
{
    const struct form *f = &forms[i];
    const size_t shape[] = {batch, f->rows, width}, skip = f->batch > 0 ? 0 : 1;
    struct text extra = {0};
    text_add(&extra, ",\"head_mask\":[");
    for (size_t k = 0; k < f->heads; k++)
        text_add(&extra, "%s%s", k > 0 ? "," : "", k == h ? "0" : "1");
    text_add(&extra, "]");
    struct answer answer = form_expect(&client, i, extra.data);
    float *output = tensor_of(form_reply(&answer, i), "output", 3 - skip, shape + skip);
    answer_free(&answer);
    text_free(&extra);
    return output;
}

TEST_EACH(ablation_is_the_change_of_the_output_without_a_head_in_every_form, FORM_COUNT)
{
    const struct form *f = &forms[_i];
    size_t batch = f->batch > 0 ? f->batch : 1, width = _i == FORM_CROSS ? PLAIN : TINY;
    if (_i == FORM_WEIGHTLESS)
        return; /* unsupported: test_fields.c */
    struct answer answer =
        form_expect(&client, _i, ",\"outputs\":[\"head_stats\"],\"ablate\":true");
    const json_t *list = json_object_get(form_reply(&answer, _i), "head_stats");
    float *whole = output_without(_i, f->heads, batch, width);
    for (size_t h = 0; h < f->heads; h++) {
        float *without = output_without(_i, h, batch, width);
        for (size_t b = 0; b < batch; b++) {
            size_t n = f->rows * width;
            const json_t *got = stats_of(list, f, b, h);
            double change = norm_of_difference(whole + b * n, without + b * n, n) /
                            norm_of_difference(whole + b * n, NULL, n);
            ck_assert_double_eq_tol(member(got, "ablation"), change, 1e-5 + 1e-4 * change);
            ck_assert_double_gt(change, 1e-3); /* there is something to compare */
            ck_assert_uint_eq(json_object_size(got), 11);
        }
        free(without);
    }
    free(whole);
    answer_free(&answer);
}

/* ---- Rows and heads -------------------------------------------------------------------------- */

TEST(rows_that_see_nothing_are_not_counted)
{
    struct answer answer = form_expect(
        &client, FORM_DECODE,
        ",\"outputs\":[\"head_stats\",\"attention_weights\",\"lse\"],\"attention_mask\":"
        "[[1,1,1,1,1,1,1,1],[0,0,0,0,0,0,0,0],[1,1,1,1,1,1,1,1]]");
    const json_t *head = json_array_get(json_object_get(answer.json, "head_stats"), 2);
    ck_assert_double_eq(member(head, "rows"), 2);
    answer_free(&answer);
    answer = form_expect(&client, FORM_DECODE,
                         ",\"outputs\":[\"head_stats\"],\"padding_mask\":[0,0,0,0,0,0,0,0]");
    head = json_array_get(json_object_get(answer.json, "head_stats"), 0);
    expect_numbers("nothing", head, &(struct stats){0}, 0);
    ck_assert_str_eq(json_string_value(json_object_get(head, "pattern")), "global");
    answer_free(&answer);
}

TEST(heads_select_statistics_in_their_order)
{
    struct answer all = form_expect(&client, FORM_BATCH, ",\"outputs\":[\"head_stats\"]");
    struct answer two =
        form_expect(&client, FORM_BATCH, ",\"outputs\":[\"head_stats\"],\"heads\":[2,0]");
    const json_t *whole = json_object_get(all.json, "head_stats");
    const json_t *part = json_object_get(two.json, "head_stats");
    ck_assert_uint_ge(json_array_size(whole), 2);
    ck_assert_uint_eq(json_array_size(part), json_array_size(whole));
    for (size_t b = 0; b < json_array_size(whole); b++) {
        const json_t *from = json_array_get(whole, b), *got = json_array_get(part, b);
        ck_assert_uint_eq(json_array_size(got), 2);
        ck_assert(json_equal(json_array_get(got, 0), json_array_get(from, 2)));
        ck_assert(json_equal(json_array_get(got, 1), json_array_get(from, 0)));
    }
    answer_free(&all);
    answer_free(&two);
}

SUITE(stats)
