/* test_golden.c: every vector of tests/golden and tests/reference through HTTP: outputs, weights
 * and cached keys and values of /attend, then the step-by-step runs through sessions, one by one
 * and many per call.
 *
 * Cases take turns in how they are written (9 or 17 digits, true or 1), so that each form is
 * compared with what other frameworks computed. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "golden.h"
#include "machine/cpu.h"
#include "suites.h"
#include "tensors.h"

#define LEAST_CASES 471 /* of tests/golden and tests/reference together */

static struct golden_set set;
static struct daemon daemon_;

/* ---- The daemons that serve every model of a case -------------------------------------------- */

#define MODELS_AT_ONCE 200 /* of one daemon; `models` has at most 256 */

static size_t *part_of, num_parts; /* [set.count]: cases of one part have the same daemon */

static void divide(void)
{
    size_t models = 0;
    part_of = calloc(set.count, sizeof *part_of);
    ck_assert_ptr_nonnull(part_of);
    for (size_t i = 0; i < set.count; i++) {
        size_t first = 0;
        while (strcmp(set.cases[first].model, set.cases[i].model) != 0)
            first++;
        part_of[i] = first < i ? part_of[first] : models++ / MODELS_AT_ONCE;
    }
    num_parts = (models - 1) / MODELS_AT_ONCE + 1;
    ck_assert_uint_ge(models, 50);
}

static bool first_of_its_model(size_t i)
{
    size_t j = 0;
    while (strcmp(set.cases[j].model, set.cases[i].model) != 0)
        j++;
    return j == i && set.cases[i].model[0] != '\0';
}

static void add_models(struct text *config, size_t part)
{
    char whole[PATH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < set.count; i++) {
        const struct golden_case *c = &set.cases[i];
        if (part_of[i] != part || !first_of_its_model(i))
            continue;
        ck_assert_ptr_nonnull(realpath(c->path, whole));
        text_add(config, "%s{\"name\":\"%s\",\"path\":\"%s\"", count++ > 0 ? "," : "", c->model,
                 whole);
        if (c->stack[0])
            text_add(config, ",\"stack\":\"%s\"", c->stack);
        text_add(config, "}");
    }
}

/* Once, before the tests' processes part. */
static void load_set(void)
{
    golden_load(&set);
    divide();
}

static void free_set(void)
{
    free(part_of);
    golden_free(&set);
}

/* With QUICK=1 the daemon as it comes alone: the unit suite has each case at every level. */
static bool is_taken(int run)
{
    const char *quick = getenv("QUICK");
    return run == 0 || ((quick == NULL || quick[0] == '\0') &&
                        run <= (int)attn_cpu_level_of(attn_cpu_features(ATTN_NUM_CPU_LEVELS - 1)));
}

/* Run 0 of each test takes the daemon as it comes, run n CPU level n with OpenBLAS' products. */
static void serve(struct client *client, int run, size_t part)
{
    struct text config = {0};
    text_add(&config, "{\"port\":0,\"cpu_level\":\"%s\",\"gemm\":\"%s\",\"models\":[",
             attn_cpu_level_name((enum attn_cpu_level)run), run == 0 ? "auto" : "openblas");
    add_models(&config, part);
    text_add(&config, "]}");
    daemon_start(&daemon_, config.data, NULL, NULL);
    text_free(&config);
    client_open(client, &daemon_);
}

static void stop(struct client *client)
{
    client_close(client);
    daemon_stop(&daemon_);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* The form in which a case writes its numbers and flags. */
struct style {
    int digits;
    bool words;
};

static struct style style_of(size_t i) { return (struct style){i % 2 ? 17 : 9, i / 2 % 2 != 0}; }

static void add_tensor(struct text *body, const char *name, const float *data,
                       const struct style *style, size_t rank, const size_t *shape)
{
    if (data == NULL)
        return;
    text_add(body, ",\"%s\":", name);
    text_floats(body, data, style->digits, rank, shape);
}

/* Adds tokens [from, to) of the keys, or of the values, of a weightless case. */
static void add_part(struct text *body, const char *name, const struct golden_case *c,
                     const struct style *style, size_t from, size_t to)
{
    bool values = strstr(name, "value") != NULL;
    size_t pairs = c->batch * c->kv_heads, width = values ? c->value_dim : c->head_dim;
    const float *all = values ? c->value : c->key;
    float *part = malloc(pairs * (to - from) * width * sizeof *part);
    for (size_t i = 0; i < pairs; i++)
        memcpy(part + i * (to - from) * width, all + (i * c->keys + from) * width,
               (to - from) * width * sizeof *part);
    add_tensor(body, name, part, style, SHAPE(c->batch, c->kv_heads, to - from, width));
    free(part);
}

static void add_rows(struct text *body, const struct golden_case *c, const struct style *style)
{
    const size_t b = c->batch, t = c->queries, s = c->keys;
    if (c->model[0]) {
        add_tensor(body, "hidden_states", c->hidden_states, style, SHAPE(b, t, c->hidden));
        add_tensor(body, c->value_states ? "key_hidden_states" : "encoder_hidden_states",
                   c->key_states, style, SHAPE(b, s, c->key_size));
        add_tensor(body, "value_hidden_states", c->value_states, style, SHAPE(b, s, c->value_size));
        return;
    }
    add_tensor(body, "query", c->query, style, SHAPE(b, c->heads, t, c->head_dim));
    add_part(body, "key", c, style, c->past, s);
    add_part(body, "value", c, style, c->past, s);
    if (c->past == 0)
        return;
    add_part(body, "past_key", c, style, 0, c->past);
    add_part(body, "past_value", c, style, 0, c->past);
}

static void add_modifiers(struct text *body, const struct golden_case *c, const struct style *style)
{
    const size_t b = c->batch, h = c->heads, t = c->queries, s = c->keys;
    add_tensor(body, "attention_bias", c->bias, style, SHAPE(b, h, t, s));
    if (c->causal >= 0)
        text_add(body, ",\"is_causal\":%s", c->causal ? "true" : "false");
    if (c->softcap != 0)
        text_add(body, ",\"softcap\":%.17g", c->softcap);
    if (c->windowed)
        text_add(body, ",\"sliding_window\":[%lld,%lld]", (long long)c->left, (long long)c->right);
    if (c->scale != 0)
        text_add(body, ",\"scale\":%.17g", c->scale);
    if (c->padding != NULL) {
        text_add(body, ",\"padding_mask\":");
        text_flags(body, c->padding, style->words, SHAPE(b, s));
    }
    if (c->mask != NULL) {
        text_add(body, ",\"attention_mask\":");
        text_flags(body, c->mask, style->words, SHAPE(b, h, t, s));
    }
    if (c->grid[0] > 0)
        text_add(body, ",\"grid\":[%zu,%zu]", c->grid[0], c->grid[1]);
    if (c->positions != NULL) {
        text_add(body, ",\"position_ids\":");
        text_integers(body, c->positions, SHAPE(b, t));
    }
    if (c->offsets != NULL) {
        text_add(body, ",\"query_offset\":");
        text_integers(body, c->offsets, SHAPE(b));
    }
}

static void write_body(struct text *body, const struct golden_case *c, const struct style *style,
                       bool average)
{
    static const char *const stages[] = {"raw", "softcap", "masked"};
    text_add(body, "{\"outputs\":[\"output\",\"attention_weights\",\"lse\"%s%s]",
             c->scores != NULL ? ",\"attention_scores\"" : "",
             c->model[0] || c->past > 0 ? ",\"key\",\"value\"" : "");
    if (c->model[0])
        text_add(body, ",\"model\":\"%s\",\"layer\":%zu", c->model, c->layer);
    if (average)
        text_add(body, ",\"average_heads\":true");
    if (c->scores != NULL)
        text_add(body, ",\"stage\":\"%s\"", stages[c->stage]);
    add_rows(body, c, style);
    add_modifiers(body, c, style);
    text_add(body, "}");
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Compares the answer's tensor, of this shape, as rows of its last dimension. */
static void expect(const struct golden_case *c, const json_t *answer, const char *name,
                   const float *want, const uint8_t *rows_wanted, size_t rank, const size_t *shape)
{
    size_t worst, rows = 1;
    if (want == NULL)
        return;
    for (size_t i = 0; i + 1 < rank; i++)
        rows *= shape[i];
    float *got = tensor_of(answer, name, rank, shape);
    double largest = golden_error(&worst, got, want, rows, shape[rank - 1], rows_wanted);
    ck_assert_msg(largest <= c->tolerance, "%s: %s[%zu] is %.9g, expected %.9g, error %.3g > %g",
                  c->name, name, worst, (double)got[worst], (double)want[worst], largest,
                  c->tolerance);
    free(got);
}

static void expect_answer_of(const struct golden_case *c, const json_t *answer, bool average)
{
    const size_t b = c->batch, h = c->heads, t = c->queries, s = c->keys;
    uint8_t *heads = golden_rows_per_head(c);
    if (average)
        expect(c, answer, "attention_weights", c->average, c->compare_rows,
               SHAPE(b, t, c->columns));
    else
        expect(c, answer, "attention_weights", c->weights, heads, SHAPE(b, h, t, c->columns));
    expect(c, answer, "attention_scores", c->scores, heads, SHAPE(b, h, t, s));
    if (c->model[0])
        expect(c, answer, "output", c->output, c->compare_rows, SHAPE(b, t, c->hidden));
    else
        expect(c, answer, "output", c->output, heads, SHAPE(b, h, t, c->value_dim));
    expect(c, answer, "key", c->key_cache, NULL, SHAPE(b, c->kv_heads, s, c->head_dim));
    expect(c, answer, "value", c->value_cache, NULL, SHAPE(b, c->kv_heads, s, c->value_dim));
    expect(c, answer, "key", c->present_key, NULL, SHAPE(b, c->kv_heads, s, c->head_dim));
    expect(c, answer, "value", c->present_value, NULL, SHAPE(b, c->kv_heads, s, c->value_dim));
    free(tensor_of(answer, "lse", SHAPE(b, h, t)));
    free(heads);
}

static void attend(struct client *client, const struct golden_case *c, const struct style *style,
                   bool average)
{
    struct text body = {0};
    write_body(&body, c, style, average);
    struct answer answer = client_post(client, "/attend", body.data);
    expect_answer(&answer, 200, NULL, c->name);
    expect_answer_of(c, answer.json, average);
    answer_free(&answer);
    text_free(&body);
}

START_TEST(test_golden_outputs_weights_and_keys_hold_through_http)
{
    struct client client;
    size_t averages = 0, attended = 0;
    if (!is_taken(_i))
        return;
    for (size_t part = 0; part < num_parts; part++) {
        serve(&client, _i, part);
        for (size_t i = 0; i < set.count; i++) {
            const struct golden_case *c = &set.cases[i];
            struct style style = style_of(i);
            if (part_of[i] != part)
                continue;
            attend(&client, c, &style, false);
            if (c->average != NULL) {
                attend(&client, c, &style, true);
                averages++;
            }
            attended++;
        }
        stop(&client);
    }
    printf("golden: %zu cases hold through HTTP, run %d, %zu of them averaged too\n", attended, _i,
           averages);
    ck_assert_uint_eq(attended, set.count);
    ck_assert_uint_ge(set.count, LEAST_CASES);
    ck_assert_uint_ge(averages, 3);
}
END_TEST

/* ---- Step by step ---------------------------------------------------------------------------- */

/* A case's run through sessions: `how` begins their ids. */
struct run {
    struct client *client;
    const struct golden_case *c;
    const char *how;
    struct style style;
};

/* Adds the members of a step of rows [from, from + n) of sequence b: rows, of `states`, masks,
 * positions. */
static void add_step_rows(struct text *body, const struct run *run, const float *states, size_t b,
                          size_t from, size_t n)
{
    const struct golden_case *c = run->c;
    const size_t row = b * c->queries + from;
    text_add(body, "\"session_id\":\"%s.%zu\",\"position\":%zu", run->how, b, from);
    if (from == 0 && (c->source == SIZE_MAX || states != c->hidden_states))
        text_add(body, ",\"start\":true");
    if (from + n == c->queries)
        text_add(body, ",\"outputs\":[\"output\",\"key\",\"value\"]");
    if (from == 0 && c->prefix)
        text_add(body, ",\"is_causal\":false");
    text_add(body, ",\"hidden_states\":");
    const float *rows = states + row * c->hidden;
    if (n == 1 && from % 2)
        text_floats(body, rows, run->style.digits, SHAPE(c->hidden));
    else
        text_floats(body, rows, run->style.digits, SHAPE(n, c->hidden));
    if (c->padding != NULL) {
        text_add(body, ",\"padding_mask\":");
        text_flags(body, c->padding + b * c->queries, run->style.words, SHAPE(from + n));
    }
    if (c->positions != NULL) {
        text_add(body, ",\"position_ids\":");
        text_integers(body, c->positions + row, SHAPE(n));
    }
}

static void post_rows(const struct run *run, size_t layer, const float *states, size_t b,
                      size_t from, size_t n, int status)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"%s\",\"layer\":%zu,", run->c->model, layer);
    add_step_rows(&body, run, states, b, from, n);
    text_add(&body, "}");
    expect_posted(run->client, "/decode", body.data, status,
                  status == 200 ? NULL : "invalid_value");
    text_free(&body);
}

/* Adds a step.  Where the case's layer reads another one's keys, that one's step is posted first,
 * and the case's before it is refused. */
static void add_step(struct text *body, const struct run *run, size_t b, size_t from, size_t n)
{
    const struct golden_case *c = run->c;
    if (c->source != SIZE_MAX) {
        if (from > 0)
            post_rows(run, c->layer, c->hidden_states, b, from, n, 400);
        post_rows(run, c->source, c->key_states, b, from, n, 200);
    }
    add_step_rows(body, run, c->hidden_states, b, from, n);
}

/* Copies a step's outputs from its answer, and compares the cache after the last step. */
static void take_step(float *output, const struct run *run, const json_t *answer, size_t b,
                      size_t from, size_t n)
{
    const struct golden_case *c = run->c;
    bool single = n == 1 && from % 2;
    float *rows = single ? tensor_of(answer, "output", SHAPE(c->hidden))
                         : tensor_of(answer, "output", SHAPE(n, c->hidden));
    memcpy(output + (b * c->queries + from) * c->hidden, rows, n * c->hidden * sizeof *rows);
    free(rows);
    ck_assert_int_eq(json_integer_value(json_object_get(answer, "length")), (json_int_t)(from + n));
    if (from + n < c->queries || c->grows)
        return;
    const size_t g = c->kv_heads, s = c->queries;
    expect(c, answer, "key", c->key_cache + b * g * s * c->head_dim, NULL,
           SHAPE(g, s, c->head_dim));
    expect(c, answer, "value", c->value_cache + b * g * s * c->value_dim, NULL,
           SHAPE(g, s, c->value_dim));
}

/* Runs one sequence: prefill through /attend, then single steps. */
static void run_alone(float *output, const struct run *run, size_t b)
{
    const struct golden_case *c = run->c;
    for (size_t from = 0, n; from < c->queries; from += n) {
        struct text body = {0};
        n = from == 0 ? c->prefill : 1;
        text_add(&body, "{\"model\":\"%s\",\"layer\":%zu,", c->model, c->layer);
        add_step(&body, run, b, from, n);
        text_add(&body, "}");
        struct answer answer =
            client_post(run->client, from == 0 ? "/attend" : "/decode", body.data);
        expect_answer(&answer, 200, NULL, c->name);
        take_step(output, run, answer.json, b, from, n);
        answer_free(&answer);
        text_free(&body);
    }
}

/* Runs all sequences of the batch, each step of theirs in one call. */
static void run_together(float *output, const struct run *run)
{
    const struct golden_case *c = run->c;
    for (size_t from = 0, n; from < c->queries; from += n) {
        struct text body = {0};
        n = from == 0 ? c->prefill : 1;
        text_add(&body, "{\"model\":\"%s\",\"layer\":%zu,\"sequences\":[", c->model, c->layer);
        for (size_t b = 0; b < c->batch; b++) {
            text_add(&body, b > 0 ? ",{" : "{");
            add_step(&body, run, b, from, n);
            text_add(&body, "}");
        }
        text_add(&body, "]}");
        struct answer answer = client_post(run->client, "/decode", body.data);
        expect_answer(&answer, 200, NULL, c->name);
        const json_t *list = json_object_get(answer.json, "sequences");
        ck_assert_uint_eq(json_array_size(list), c->batch);
        for (size_t b = 0; b < c->batch; b++)
            take_step(output, run, json_array_get(list, b), b, from, n);
        answer_free(&answer);
        text_free(&body);
    }
}

static void end_sessions(const struct run *run)
{
    for (size_t b = 0; b < run->c->batch; b++) {
        char path[64];
        snprintf(path, sizeof path, "/sessions/%s.%zu", run->how, b);
        expect_deleted(run->client, path, 204, NULL);
    }
}

static void expect_run(const struct golden_case *c, const float *output)
{
    size_t worst;
    double largest = golden_error(&worst, output, c->decode_output, c->batch * c->queries,
                                  c->hidden, c->compare_rows);
    ck_assert_msg(largest <= c->tolerance, "%s: step output[%zu] is %.9g, expected %.9g", c->name,
                  worst, (double)output[worst], (double)c->decode_output[worst]);
}

static void run_case(struct run *run)
{
    const struct golden_case *c = run->c;
    size_t count = c->batch * c->queries * c->hidden;
    float *alone = calloc(count, sizeof *alone), *together = calloc(count, sizeof *together);
    ck_assert(alone != NULL && together != NULL);
    run->how = "alone";
    for (size_t b = 0; b < c->batch; b++)
        run_alone(alone, run, b);
    end_sessions(run);
    run->how = "together";
    run_together(together, run);
    end_sessions(run);
    expect_run(c, alone);
    ck_assert_msg(memcmp(alone, together, count * sizeof *alone) == 0,
                  "%s: sequences in one call differ from the same ones alone", c->name);
    free(alone);
    free(together);
}

START_TEST(test_golden_prefill_and_single_steps_hold_through_sessions)
{
    struct client client;
    size_t sequences = 0;
    if (!is_taken(_i))
        return;
    for (size_t part = 0; part < num_parts; part++) {
        serve(&client, _i, part);
        for (size_t i = 0; i < set.count; i++) {
            if (part_of[i] != part || !set.cases[i].decodes)
                continue;
            run_case(&(struct run){.client = &client, .c = &set.cases[i], .style = style_of(i)});
            sequences += set.cases[i].batch;
        }
        stop(&client);
    }
    printf("golden: %zu sequences hold step by step through sessions, run %d\n", sequences, _i);
    ck_assert_uint_ge(sequences, 120);
}
END_TEST

Suite *suite_golden(void)
{
    Suite *suite = suite_create("golden");
    TCase *vectors = tcase_create("vectors");
    tcase_add_unchecked_fixture(vectors, load_set, free_set);
    tcase_add_loop_test(vectors, test_golden_outputs_weights_and_keys_hold_through_http, 0,
                        ATTN_NUM_CPU_LEVELS);
    tcase_add_loop_test(vectors, test_golden_prefill_and_single_steps_hold_through_sessions, 0,
                        ATTN_NUM_CPU_LEVELS);
    suite_add_tcase(suite, vectors);
    return suite;
}
