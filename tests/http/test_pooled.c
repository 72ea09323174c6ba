/* test_pooled.c: pooled maps in every form of call, against the plain definition over the whole map
 * of the same call; what is refused; what a pooled map costs. */
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
    serve(CONFIG_SMALL("\"max_reply_bytes\":\"4MiB\","));
    forms_begin(&client);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---- The definition -------------------------------------------------------------------------- */

/* A request for maps of a form, and the shape of its whole maps. */
struct asked {
    const char *name;    /* of the output */
    const char *members; /* beside pool */
    size_t heads, rows;  /* 0 heads: the mean over heads; 0 rows: all */
};

static const struct asked asked[] = {
    {"attention_weights", ",\"outputs\":[\"attention_weights\"]", 1, 0},
    {"attention_weights", ",\"outputs\":[\"attention_weights\"],\"heads\":[1,0],\"rows\":[2,0]", 2,
     2},
    {"attention_weights", ",\"outputs\":[\"attention_weights\"],\"average_heads\":true", 0, 0},
    {"attention_scores", ",\"outputs\":[\"attention_scores\"],\"stage\":\"masked\"", 1, 0},
    {"attention_scores", ",\"outputs\":[\"attention_scores\"],\"heads\":[0],\"rows\":[0,1,2]", 1,
     3},
};
#define ASKED COUNT(asked)

static const size_t pools[][2] = {{1, 1}, {2, 3}, {4, 2}, {4096, 4096}, {1, 4096}};
#define POOLS COUNT(pools)

/* The maps [count][rows][columns] of an answer, as they are or pooled. */
static float *maps_of(size_t *count, struct answer *answer, int i, const struct asked *what,
                      const size_t *rows_columns)
{
    const struct form *f = &forms[i];
    size_t heads =
        what->heads == 1 && strstr(what->members, "heads") == NULL ? f->heads : what->heads;
    size_t shape[4], rank = 0;
    *count = 1;
    if (f->batch > 0)
        *count *= shape[rank++] = f->batch;
    if (heads > 0)
        *count *= shape[rank++] = heads;
    shape[rank++] = rows_columns[0];
    shape[rank++] = rows_columns[1];
    return tensor_of(form_reply(answer, i), what->name, rank, shape);
}

/* The largest, or the mean of the finite cells, of the block [r0, r1) x [c0, c1). */
static double reduce(const float *map, size_t columns, const size_t block[4], bool mean)
{
    double largest = -INFINITY, sum = 0;
    size_t finite = 0;
    for (size_t r = block[0]; r < block[1]; r++)
        for (size_t c = block[2]; c < block[3]; c++) {
            double x = (double)map[r * columns + c];
            largest = fmax(largest, x);
            sum += isinf(x) ? 0 : x;
            finite += !isinf(x);
        }
    if (mean)
        return finite > 0 ? sum / (double)finite : -INFINITY;
    return largest;
}

static void expect_pooled(const float *got, const float *map, const size_t whole[2],
                          const size_t size[2], bool mean, const char *what)
{
    for (size_t r = 0; r < size[0]; r++)
        for (size_t c = 0; c < size[1]; c++) {
            const size_t block[] = {
                r * whole[0] / size[0], ((r + 1) * whole[0] + size[0] - 1) / size[0],
                c * whole[1] / size[1], ((c + 1) * whole[1] + size[1] - 1) / size[1]};
            double want = reduce(map, whole[1], block, mean);
            double x = (double)got[r * size[1] + c];
            ck_assert_msg(x == want || (mean && fabs(x - want) <= 1e-6 * (fabs(want) + 1)),
                          "%s: cell (%zu, %zu) is %.9g, expected %.9g", what, r, c, x, want);
        }
}

static void compare(int i, const struct asked *what, const size_t *pool, const char *type)
{
    const struct form *f = &forms[i];
    const size_t whole[] = {what->rows > 0 ? what->rows : f->rows, f->keys};
    const size_t size[] = {smaller(pool[0], whole[0]), smaller(pool[1], whole[1])};
    char members[256], text[320];
    snprintf(members, sizeof members, "%s,\"pool\":[%zu,%zu]%s%s%s", what->members, pool[0],
             pool[1], type ? ",\"pool_type\":\"" : "", type ? type : "", type ? "\"" : "");
    snprintf(text, sizeof text, "%s%s", f->name, members);
    struct answer full = form_expect(&client, i, what->members);
    struct answer few = form_expect(&client, i, members);
    size_t count;
    float *map = maps_of(&count, &full, i, what, whole);
    float *got = maps_of(&count, &few, i, what, size);
    for (size_t m = 0; m < count; m++)
        expect_pooled(got + m * size[0] * size[1], map + m * whole[0] * whole[1], whole, size,
                      type != NULL && strcmp(type, "mean") == 0, text);
    free(map);
    free(got);
    answer_free(&full);
    answer_free(&few);
}

CASE(pooled, set_up, serve_end, 0)

TEST_EACH(pooled_maps_of_every_form_equal_the_definition, FORM_COUNT)
{
    for (size_t a = 0; a < ASKED; a++)
        for (size_t p = 0; p < POOLS; p++) {
            compare(_i, &asked[a], pools[p], p % 2 ? "max" : NULL);
            compare(_i, &asked[a], pools[p], "mean");
        }
}

/* ---- Refusals -------------------------------------------------------------------------------- */

#define WEIGHTS ",\"outputs\":[\"attention_weights\"]"

TEST_EACH(what_has_no_meaning_beside_pool_is_refused, FORM_COUNT)
{
    static const struct {
        const char *members;
        long status;
        const char *code;
    } cases[] = {
        {",\"pool\":[2,2]", 400, "invalid_value"}, /* no map is asked for */
        {",\"outputs\":[\"head_stats\"],\"pool\":[2,2]", 400, "invalid_value"},
        {WEIGHTS ",\"pool_type\":\"max\"", 400, "missing_field"},
        {WEIGHTS ",\"pool\":[2,2],\"top_k\":1", 400, "invalid_value"},
        {WEIGHTS ",\"pool\":[2,2],\"pool_type\":\"median\"", 400, "invalid_value"},
        {WEIGHTS ",\"pool\":[2,2],\"pool_type\":1", 400, "invalid_type"},
        {WEIGHTS ",\"pool\":2", 400, "invalid_type"},
        {WEIGHTS ",\"pool\":[2.5,2]", 400, "invalid_type"},
        {WEIGHTS ",\"pool\":[2]", 422, "shape_mismatch"},
        {WEIGHTS ",\"pool\":[2,2,2]", 422, "shape_mismatch"},
        {WEIGHTS ",\"pool\":[[2,2]]", 422, "shape_mismatch"},
        {WEIGHTS ",\"pool\":[0,2]", 422, "number_out_of_range"},
        {WEIGHTS ",\"pool\":[2,-1]", 422, "number_out_of_range"},
        {WEIGHTS ",\"pool\":[4097,2]", 422, "number_out_of_range"},
        {WEIGHTS ",\"pool\":[2,9223372036854775807]", 422, "number_out_of_range"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        form_refuse(&client, _i, cases[i].members, cases[i].status, cases[i].code);
}

/* ---- Costs ----------------------------------------------------------------------------------- */

enum { HEADS = 4, TOKENS = 1024, WIDTH = 4 };

/* POSTs attention of 4 heads over 1,024 tokens, whose whole map has 4 million weights. */
static struct answer post_large(const char *extra)
{
    static const char *const names[] = {"query", "key", "value"};
    static float numbers[HEADS * TOKENS * WIDTH];
    struct text body = {0};
    text_add(&body, "{\"outputs\":[\"attention_weights\",\"attention_scores\"]%s", extra);
    for (unsigned i = 0; i < 3; i++) {
        make_numbers(numbers, HEADS * TOKENS * WIDTH, i + 1);
        text_add(&body, ",\"%s\":", names[i]);
        text_floats(&body, numbers, 4, SHAPE(HEADS, TOKENS, WIDTH));
    }
    text_add(&body, "}");
    struct answer answer = client_post(&client, "/attend", body.data);
    text_free(&body);
    return answer;
}

TEST(a_pooled_map_is_charged_for_its_own_size)
{
    struct answer whole = post_large(""); /* 8 million numbers pass 4 MiB by far */
    expect_answer(&whole, 422, "reply_too_large", "the whole maps");
    struct answer pooled = post_large(",\"pool\":[96,96]");
    expect_answer(&pooled, 200, NULL, "pooled maps");
    ck_assert_uint_lt(pooled.length, (size_t)2 * HEADS * 96 * 96 * 14);
    answer_free(&whole);
    answer_free(&pooled);
}

static size_t peak_bytes(void)
{
    return daemon_status_number(&served, served.process.pid, "VmHWM", 10) * 1024;
}

TEST(a_pooled_map_of_4096_tokens_takes_little_memory)
{
    static const char *const names[] = {"query", "key", "value"};
    static float numbers[12 * 4096 * 2];
    struct text body = {0};
    text_add(&body, "{\"outputs\":[\"attention_weights\"],\"pool\":[96,96],"
                    "\"pool_type\":\"mean\",\"map_datatype\":\"UINT8\",\"binary_output\":true");
    for (unsigned i = 0; i < 3; i++) {
        make_numbers(numbers, 12 * 4096 * 2, i + 1);
        text_add(&body, ",\"%s\":", names[i]);
        text_floats(&body, numbers, 2, SHAPE(12, 4096, 2));
    }
    text_add(&body, "}");
    size_t before = peak_bytes();
    struct answer answer = client_post(&client, "/attend", body.data);
    ck_assert_int_eq(answer.status, 200);
    ck_assert_uint_lt(answer.length, (size_t)12 * 96 * 96 + 2048);
    size_t grown = peak_bytes() - before; /* 805 MB would be the whole map */
    printf("pooled: 12 x 4,096 x 4,096 as %zu bytes, the peak of memory grew by %.0f MB\n",
           answer.length, (double)grown / 1e6);
    ck_assert_uint_lt(grown, (size_t)100 << (INSTRUMENTED ? 22 : 20));
    answer_free(&answer);
    text_free(&body);
}

SUITE(pooled)
