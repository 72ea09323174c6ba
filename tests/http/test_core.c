/* test_core.c: /attend without weights: every modifier, compared with reference.c.
 *
 * Each row of a table has a modifier's dimensions and its value at (b, h, t, s); both the JSON of a
 * call and the expected result are made from it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "reference.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

enum { B = 2, H = 4, G = 2, T = 3, S = 5, D = 4, V = 3 };

enum kind {
    ALLOWS, /* 1: query t may attend to key s; 0: not */
    ADDS,   /* added to the score */
    GATES,  /* multiplies the weights */
    CAUSAL, /* a flag, which forbids s > t + offset */
};

/* Dimensions that a field has: at their full size, or of size 1. */
enum { B_ = 1, H_ = 2, T_ = 4, S_ = 8, ONE_B = 16, ONE_H = 32, ONE_T = 64 };

struct modifier {
    const char *name;
    enum kind kind;
    const char *field; /* NULL: the member is `text` */
    unsigned dimensions;
    double (*value)(size_t b, size_t h, size_t t, size_t s);
    const char *text;
};

static double pads(size_t b, size_t h, size_t t, size_t s)
{
    (void)h, (void)t;
    return s != 1 + b;
}

static double masks(size_t b, size_t h, size_t t, size_t s) { return (s + t + 2 * h + b) % 3 != 0; }

/* Query row 1 sees nothing. */
static double masks_a_row(size_t b, size_t h, size_t t, size_t s)
{
    (void)b, (void)h, (void)s;
    return t != 1;
}

static double slopes(size_t b, size_t h, size_t t, size_t s)
{
    return (s + 2 * t + 3 * h + 5 * b) % 7 == 6
               ? -INFINITY
               : 0.25 * (double)s - 0.5 * (double)t + 0.125 * (double)h - (double)b;
}

static double gates(size_t b, size_t h, size_t t, size_t s)
{
    (void)b, (void)t, (void)s;
    return 0.5 * (double)h; /* head 0 is pruned */
}

static double from_the_end(size_t b, size_t h, size_t t, size_t s)
{
    (void)b, (void)h;
    return s <= t + (S - T);
}

static double from_the_start(size_t b, size_t h, size_t t, size_t s)
{
    (void)b, (void)h;
    return s <= t;
}

static double from_an_offset_each(size_t b, size_t h, size_t t, size_t s)
{
    (void)h;
    return s <= t + 1 + b;
}

static const struct modifier modifiers[] = {
    {"padding_mask [S]", ALLOWS, "padding_mask", .dimensions = S_, .value = pads},
    {"padding_mask [B,S]", ALLOWS, "padding_mask", .dimensions = B_ | S_, .value = pads},
    {"attention_mask [T,S]", ALLOWS, "attention_mask", .dimensions = T_ | S_, .value = masks},
    {"attention_mask [B,T,S]", ALLOWS, "attention_mask", .dimensions = B_ | T_ | S_,
     .value = masks},
    {"attention_mask [B,H,T,S]", ALLOWS, "attention_mask", .dimensions = B_ | H_ | T_ | S_,
     .value = masks},
    {"attention_mask [1,H,T,S]", ALLOWS, "attention_mask", .dimensions = ONE_B | H_ | T_ | S_,
     .value = masks},
    {"attention_mask [B,1,T,S]", ALLOWS, "attention_mask", .dimensions = B_ | ONE_H | T_ | S_,
     .value = masks},
    {"attention_mask [1,1,T,S]", ALLOWS, "attention_mask", .dimensions = ONE_B | ONE_H | T_ | S_,
     .value = masks},
    {"attention_mask [B,1,1,S]", ALLOWS, "attention_mask", .dimensions = B_ | ONE_H | ONE_T | S_,
     .value = masks},
    {"attention_mask [1,H,1,S]", ALLOWS, "attention_mask", .dimensions = ONE_B | H_ | ONE_T | S_,
     .value = masks},
    {"attention_mask [H,T,S]", ALLOWS, "attention_mask", .dimensions = H_ | T_ | S_,
     .value = masks},
    {"attention_mask [B,1,S]", ALLOWS, "attention_mask", .dimensions = B_ | ONE_T | S_,
     .value = masks},
    {"attention_mask [1,S]", ALLOWS, "attention_mask", .dimensions = ONE_T | S_, .value = masks},
    {"a row that sees nothing", ALLOWS, "attention_mask", .dimensions = T_ | S_,
     .value = masks_a_row},
    {"attention_bias [T,S]", ADDS, "attention_bias", .dimensions = T_ | S_, .value = slopes},
    {"attention_bias [B,T,S]", ADDS, "attention_bias", .dimensions = B_ | T_ | S_, .value = slopes},
    {"attention_bias [H,T,S]", ADDS, "attention_bias", .dimensions = H_ | T_ | S_, .value = slopes},
    {"attention_bias [B,H,T,S]", ADDS, "attention_bias", .dimensions = B_ | H_ | T_ | S_,
     .value = slopes},
    {"attention_bias [1,H,T,S]", ADDS, "attention_bias", .dimensions = ONE_B | H_ | T_ | S_,
     .value = slopes},
    {"attention_bias [B,1,1,S]", ADDS, "attention_bias", .dimensions = B_ | ONE_H | ONE_T | S_,
     .value = slopes},
    {"attention_bias [1,H,1,S]", ADDS, "attention_bias", .dimensions = ONE_B | H_ | ONE_T | S_,
     .value = slopes},
    {"attention_bias [B,1,T,S]", ADDS, "attention_bias", .dimensions = B_ | ONE_H | T_ | S_,
     .value = slopes},
    {"head_mask [H]", GATES, "head_mask", .dimensions = H_, .value = gates},
    {"is_causal", CAUSAL, .value = from_the_end, .text = ",\"is_causal\":true"},
    {"query_offset 0", CAUSAL, .value = from_the_start,
     .text = ",\"is_causal\":true,\"query_offset\":0"},
    {"query_offset [B]", CAUSAL, .value = from_an_offset_each,
     .text = ",\"is_causal\":true,\"query_offset\":[1,2]"},
};
#define MODIFIERS COUNT(modifiers)

/* The modifiers of one call. */
struct chosen {
    const struct modifier *list[4];
    size_t count;
};

/* A modifier's value; indices of dimensions that its field does not have count as 0. */
static double value_at(const struct modifier *m, size_t b, size_t h, size_t t, size_t s)
{
    unsigned has = m->kind == CAUSAL ? B_ | H_ | T_ | S_ : m->dimensions;
    return m->value(has & B_ ? b : 0, has & H_ ? h : 0, has & T_ ? t : 0, has & S_ ? s : 0);
}

static double bias_of(const void *context, size_t b, size_t h, size_t t, size_t s)
{
    const struct chosen *chosen = context;
    double bias = 0;
    for (size_t i = 0; i < chosen->count; i++) {
        const struct modifier *m = chosen->list[i];
        double value = m->kind == GATES ? 0 : value_at(m, b, h, t, s);
        bias += m->kind == ADDS || m->kind == GATES ? value : value != 0 ? 0 : -INFINITY;
    }
    return bias;
}

static double gate_of(const void *context, size_t h)
{
    const struct chosen *chosen = context;
    double gate = 1;
    for (size_t i = 0; i < chosen->count; i++)
        if (chosen->list[i]->kind == GATES)
            gate *= chosen->list[i]->value(0, h, 0, 0);
    return gate;
}

/* Adds the field over its dimensions, slowest first; masks alternate between 1 and true. */
static void add_field(struct text *body, const struct modifier *m)
{
    float numbers[B * H * T * S];
    uint8_t flags[B * H * T * S];
    size_t shape[4], rank = 0, n = 0;
    const unsigned whole[] = {B_, H_, T_, S_}, one[] = {ONE_B, ONE_H, ONE_T, 0};
    const size_t sizes[] = {B, H, T, S};
    size_t extent[4];
    for (size_t i = 0; i < 4; i++) {
        extent[i] = m->dimensions & whole[i] ? sizes[i] : 1;
        if (m->dimensions & (whole[i] | one[i]))
            shape[rank++] = extent[i];
    }
    for (size_t i = 0; i < extent[0] * extent[1] * extent[2] * extent[3]; i++, n++) {
        size_t s = i % extent[3], t = i / extent[3] % extent[2];
        size_t h = i / (extent[3] * extent[2]) % extent[1];
        size_t b = i / (extent[3] * extent[2] * extent[1]);
        numbers[n] = (float)m->value(b, h, t, s);
        flags[n] = numbers[n] == 1;
    }
    text_add(body, ",\"%s\":", m->field);
    if (m->kind == ALLOWS)
        text_flags(body, flags, rank % 2, rank, shape);
    else
        text_floats(body, numbers, 9, rank, shape);
}

/* The rows of a call.  A call that is not batched has the first sequence only. */
struct core {
    float query[B * H * T * D], key[B * G * S * D], value[B * G * S * V];
    struct reference reference;
    bool batched, flat;
};

static void fill_core(struct core *core, const struct chosen *chosen, bool batched)
{
    make_numbers(core->query, B * H * T * D, 1);
    make_numbers(core->key, B * G * S * D, 2);
    make_numbers(core->value, B * G * S * V, 3);
    core->batched = batched;
    core->flat = false;
    core->reference = (struct reference){
        .batch = batched ? B : 1,
        .heads = H,
        .kv_heads = G,
        .queries = T,
        .keys = S,
        .head_dim = D,
        .value_dim = V,
        .query = core->query,
        .key = core->key,
        .value = core->value,
        .scale = 1 / sqrt(D),
        .bias = bias_of,
        .gate = gate_of,
        .context = chosen,
    };
}

static void add_rows(struct text *body, const struct core *core, const char *name,
                     const float *data, size_t heads, size_t tokens, size_t width)
{
    const size_t shape[] = {B, heads, tokens, width};
    size_t skip = core->batched ? 0 : 1;
    text_add(body, "\"%s\":", name);
    if (core->flat)
        text_flat(body, data, 4 - skip, shape + skip);
    else
        text_floats(body, data, 9, 4 - skip, shape + skip);
    text_add(body, ",");
}

static struct answer post_core(const struct core *core, const char *extra)
{
    struct text body = {0};
    text_add(&body, "{");
    add_rows(&body, core, "query", core->query, H, T, D);
    add_rows(&body, core, "key", core->key, G, S, D);
    add_rows(&body, core, "value", core->value, G, S, V);
    text_add(&body, "\"outputs\":[\"lse\",\"output\",\"attention_weights\"]%s}", extra);
    struct answer answer = client_post(&client, "/attend", body.data);
    text_free(&body);
    return answer;
}

/* Compares a tensor of the answer, which has a batch dimension where the request has one. */
static void expect_tensor(const struct core *core, const struct answer *answer, const char *call,
                          const char *name, const float *want, size_t rank, const size_t *shape)
{
    char what[256];
    size_t count = 1, skip = core->batched ? 0 : 1;
    for (size_t i = skip; i < rank; i++)
        count *= shape[i];
    float *got = tensor_of(answer->json, name, rank - skip, shape + skip);
    snprintf(what, sizeof what, "%s: %s", call, name);
    expect_close(what, got, want, count, 1e-5);
    free(got);
}

static void expect_core(struct core *core, const char *extra, const char *what)
{
    struct reference *r = &core->reference;
    struct answer answer = post_core(core, extra);
    expect_answer(&answer, 200, NULL, what);
    reference_compute(r);
    expect_tensor(core, &answer, what, "output", r->output, SHAPE(B, H, T, V));
    expect_tensor(core, &answer, what, "attention_weights", r->weights, SHAPE(B, H, T, S));
    expect_tensor(core, &answer, what, "lse", r->lse, SHAPE(B, H, T));
    reference_free(r);
    answer_free(&answer);
}

static void expect_chosen(const struct chosen *chosen, bool batched)
{
    struct core core;
    struct text extra = {0}, what = {0};
    fill_core(&core, chosen, batched);
    text_add(&what, batched ? "batched" : "single");
    text_add(&extra, " ");
    for (size_t i = 0; i < chosen->count; i++) {
        const struct modifier *m = chosen->list[i];
        text_add(&what, ", %s", m->name);
        if (m->field == NULL)
            text_add(&extra, "%s", m->text);
        else
            add_field(&extra, m);
    }
    expect_core(&core, extra.data, what.data);
    text_free(&extra);
    text_free(&what);
}

CASE(weightless, serve_small, serve_end, 0)

TEST(attention_without_weights_is_the_formula)
{
    const struct chosen none = {.count = 0};
    expect_chosen(&none, true);
    expect_chosen(&none, false);
}

TEST(each_modifier_does_what_it_says)
{
    for (size_t i = 0; i < MODIFIERS; i++) {
        const struct chosen one = {.list = {&modifiers[i]}, .count = 1};
        expect_chosen(&one, true);
        if ((modifiers[i].dimensions & B_) == 0 && strstr(modifiers[i].name, "[B]") == NULL)
            expect_chosen(&one, false);
    }
}

/* The modifier of that name. */
static const struct modifier *named(const char *name)
{
    size_t i = 0;
    while (strcmp(modifiers[i].name, name) != 0)
        ck_assert_uint_lt(++i, MODIFIERS);
    return &modifiers[i];
}

TEST(modifiers_compose)
{
    const struct chosen all = {.list = {named("padding_mask [B,S]"),
                                        named("attention_mask [B,T,S]"),
                                        named("attention_bias [B,H,T,S]"), named("head_mask [H]")},
                               .count = 4};
    const struct chosen causal = {.list = {named("query_offset [B]"), named("padding_mask [S]"),
                                           named("attention_bias [H,T,S]")},
                                  .count = 3};
    expect_chosen(&all, true);
    expect_chosen(&causal, true);
}

TEST(scale_replaces_the_default)
{
    const struct chosen none = {.count = 0};
    struct core core;
    fill_core(&core, &none, true);
    core.reference.scale = 2.5;
    expect_core(&core, ",\"scale\":2.5", "scale 2.5");
}

TEST(flat_tensors_are_the_same_tensors)
{
    const struct chosen none = {.count = 0};
    struct core core;
    for (int batched = 0; batched < 2; batched++) {
        fill_core(&core, &none, batched);
        struct answer nested = post_core(&core, "");
        core.flat = true;
        struct answer flat = post_core(&core, "");
        expect_answer(&flat, 200, NULL, "flat");
        expect_same("flat", flat.json, nested.json, "output");
        expect_same("flat", flat.json, nested.json, "lse");
        answer_free(&nested);
        answer_free(&flat);
    }
}

TEST(average_heads_is_their_mean)
{
    const struct chosen none = {.count = 0};
    struct core core;
    float want[B * T * S] = {0};
    fill_core(&core, &none, true);
    struct answer each = post_core(&core, ""), mean = post_core(&core, ",\"average_heads\":true");
    float *weights = tensor_of(each.json, "attention_weights", SHAPE(B, H, T, S));
    float *got = tensor_of(mean.json, "attention_weights", SHAPE(B, T, S));
    for (size_t i = 0; i < B * H * T * S; i++)
        want[i / (H * T * S) * T * S + i % (T * S)] += weights[i] / H;
    expect_close("mean", got, want, B * T * S, 1e-6);
    free(weights);
    free(got);
    answer_free(&each);
    answer_free(&mean);
}

/* Posts the rows that the reference has, not batched. */
static struct answer post_wide(const struct reference *r)
{
    struct text body = {0};
    text_add(&body, "{\"query\":");
    text_floats(&body, r->query, 9, SHAPE(r->heads, r->queries, r->head_dim));
    text_add(&body, ",\"key\":");
    text_floats(&body, r->key, 9, SHAPE(r->kv_heads, r->keys, r->head_dim));
    text_add(&body, ",\"value\":");
    text_floats(&body, r->value, 9, SHAPE(r->kv_heads, r->keys, r->value_dim));
    text_add(&body, "}");
    struct answer answer = client_post(&client, "/attend", body.data);
    text_free(&body);
    return answer;
}

TEST(heads_are_up_to_1024_wide)
{
    enum { WIDEST = 1024 };
    static float query[H * T * (WIDEST + 1)], key[G * S * (WIDEST + 1)], value[G * S * WIDEST];
    const struct chosen none = {.count = 0};
    make_numbers(query, COUNT(query), 1);
    make_numbers(key, COUNT(key), 2);
    make_numbers(value, COUNT(value), 3);
    struct reference r = {
        .batch = 1,
        .heads = H,
        .kv_heads = G,
        .queries = T,
        .keys = S,
        .head_dim = WIDEST,
        .value_dim = WIDEST,
        .query = query,
        .key = key,
        .value = value,
        .scale = 1 / sqrt(WIDEST),
        .bias = bias_of,
        .gate = gate_of,
        .context = &none,
    };
    struct answer answer = post_wide(&r);
    expect_answer(&answer, 200, NULL, "1,024 wide");
    reference_compute(&r);
    float *got = tensor_of(answer.json, "output", SHAPE(H, T, WIDEST));
    expect_close("1,024 wide", got, r.output, H * T * WIDEST, 1e-5);
    free(got);
    reference_free(&r);
    answer_free(&answer);
    r.head_dim = WIDEST + 1;
    answer = post_wide(&r);
    expect_answer(&answer, 422, "number_out_of_range", "1,025 wide");
    answer_free(&answer);
}

SUITE(core)
