/* test_broadcast.c: masks and biases of every shape that broadcasts, in every kind of call, against
 * the oracle with the mask written out for each sequence, head, query and key.
 *
 * A shape is read as a request's is (wire/shapes.h), computed by the library with strides, and
 * spread over [B][H][T][S] by indexing for the oracle. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "rng.h"
#include "suites.h"
#include "wire/shapes.h"

enum { H = 6, G = 3, D = 8, DV = 12, E = 24, CACHED = 67, TREE = 4, MOST = 70 };

/* Dimensions that a shape has in full; those that are missing or 1 broadcast. */
enum { B_ = 1, H_ = 2, T_ = 4 };

static const struct form {
    const char *name;
    unsigned rank, whole;
} forms[] = {
    {"[T,S]", 2, T_},          {"[1,S]", 2, 0},           {"[B,T,S]", 3, B_ | T_},
    {"[B,1,S]", 3, B_},        {"[H,T,S]", 3, H_ | T_},   {"[H,1,S]", 3, H_},
    {"[1,T,S]", 3, T_},        {"[1,1,S]", 3, 0},         {"[B,H,T,S]", 4, B_ | H_ | T_},
    {"[B,H,1,S]", 4, B_ | H_}, {"[B,1,T,S]", 4, B_ | T_}, {"[B,1,1,S]", 4, B_},
    {"[1,H,T,S]", 4, H_ | T_}, {"[1,H,1,S]", 4, H_},      {"[1,1,T,S]", 4, T_},
    {"[1,1,1,S]", 4, 0},
};
#define FORMS COUNT(forms)

static struct attn_engine *engine;
static struct attn_model *model;
static struct attn_cache_pool *pool;
static struct attn_error error;
static struct rng rng;

static void setup(void)
{
    static const char random[] = "{\"hidden_size\":24,\"num_attention_heads\":6,\"head_dim\":8,"
                                 "\"num_key_value_heads\":3,\"rope_theta\":10000,\"seed\":5}";
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, 1 << 20), ATTN_OK);
    model = opened_random(random, NULL);
    rng = rng_seeded(19);
}

static void teardown(void)
{
    attn_model_close(model);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}

/* ---- Shapes as requests have them ---- */

/* One mask or bias of a call, as the request has it and written out. */
struct plane {
    struct srv_rows rows;
    struct srv_sizes sizes;
    struct attn_modifiers read, full; /* by strides; [B][H][T][width] */
    size_t width;                     /* S, or T of a tree */
    void *data, *spread;
};

static size_t full_count(const struct plane *p)
{
    return p->sizes.batch * H * p->sizes.queries * p->width;
}

static void make_tensor(struct srv_tensor *out, struct plane *p, const struct form *form,
                        bool boolean)
{
    const struct srv_sizes *s = &p->sizes;
    const size_t shape[4] = {form->whole & B_ ? s->batch : 1, form->whole & H_ ? H : 1,
                             form->whole & T_ ? s->queries : 1, p->width};
    size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    *out = (struct srv_tensor){.present = true, .rank = form->rank, .count = count};
    out->kind = boolean ? SRV_BOOLS : SRV_FLOATS_OR_NULL;
    for (unsigned i = 0; i < form->rank; i++)
        out->shape[i] = shape[4 - form->rank + i];
    if (form->rank == 3) /* the first is B or H */
        out->shape[0] = form->whole & B_ ? shape[0] : shape[1];
    out->data = p->data =
        boolean ? (void *)rng_bytes(&rng, count, 70) : (void *)rng_floats(&rng, count, 2);
    for (size_t i = 0; !boolean && i < count; i += 1 + rng_below(&rng, 9))
        out->f32[i] = -INFINITY;
    p->spread = malloc(full_count(p) * sizeof(float));
    for (size_t i = 0; i < full_count(p); i++) {
        size_t w = i % p->width, t = i / p->width % s->queries;
        size_t h = i / p->width / s->queries % H, b = i / p->width / s->queries / H;
        size_t at = ((b % shape[0] * shape[1] + h % shape[1]) * shape[2] + t % shape[2]) * p->width;
        if (boolean)
            ((uint8_t *)p->spread)[i] = out->u8[at + w];
        else
            ((float *)p->spread)[i] = out->f32[at + w];
    }
}

/* Makes a mask of that form and reads it; nothing of it is copied. */
static void make_plane(struct plane *p, const struct form *form, bool boolean, bool tree)
{
    struct srv_arena none;
    struct srv_error refusal = {0};
    size_t head = p->sizes.queries * p->width;
    srv_arena_init(&none, 0, NULL, NULL);
    p->rows = (struct srv_rows){.commit = true};
    make_tensor(boolean ? &p->rows.attention_mask : &p->rows.attention_bias, p, form, boolean);
    ck_assert_msg(srv_modifiers_read(&p->read, &p->rows, &p->sizes, &none, &refusal) == SRV_OK,
                  "%s: %s", form->name, refusal.message);
    ck_assert_int_eq(p->read.tree, tree);
    ck_assert_ptr_eq(boolean ? (const void *)p->read.attention_mask : p->read.attention_bias,
                     p->data);
    p->full = (struct attn_modifiers){.tree = tree};
    if (boolean) {
        p->full.attention_mask = p->spread;
        p->full.attention_mask_head_stride = head;
        p->full.attention_mask_batch_stride = H * head;
    } else {
        p->full.attention_bias = p->spread;
        p->full.attention_bias_head_stride = head;
        p->full.attention_bias_batch_stride = H * head;
    }
}

static void free_plane(struct plane *p)
{
    free(p->data);
    free(p->spread);
}

/* ---- Results ---- */

/* Every output of a call, and the oracle's; `width` is that of a row of `output`. */
struct results {
    size_t rows, pairs, output_rows, width, keys, heads;
    struct attn_outputs got;
    struct oracle_outputs want;
};

static float *floats(size_t count)
{
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = NAN;
    return data;
}

static double *doubles(size_t count) { return calloc(count, sizeof(double)); }

static void make_results(struct results *r, const struct srv_sizes *s, enum attn_stage stage)
{
    r->rows = s->batch * H * s->queries;
    r->pairs = s->batch * s->queries;
    r->keys = s->keys;
    r->heads = s->batch * H;
    r->output_rows = s->hidden_size > 0 ? r->pairs : r->rows;
    r->width = s->hidden_size > 0 ? s->hidden_size : DV;
    r->got = (struct attn_outputs){
        .output = floats(r->output_rows * r->width),
        .attention_weights = floats(r->rows * r->keys),
        .average_weights = floats(r->pairs * r->keys),
        .attention_scores = floats(r->rows * r->keys),
        .stage = stage,
        .lse = floats(r->rows),
        .head_stats = calloc(r->heads, sizeof(struct attn_head_stats)),
        .local_radius = 2,
    };
    r->want = (struct oracle_outputs){
        .output = doubles(r->output_rows * r->width),
        .weights = doubles(r->rows * r->keys),
        .average = doubles(r->pairs * r->keys),
        .lse = doubles(r->rows),
        .head_stats = calloc(r->heads, sizeof(struct attn_head_stats)),
        .local_radius = 2,
    };
    r->want.scores[stage] = doubles(r->rows * r->keys);
}

static void expect_results(struct results *r, const char *call, const struct form *form)
{
    const struct {
        const char *name;
        const float *got;
        const double *want;
        size_t rows, width;
    } parts[] = {
        {"output", r->got.output, r->want.output, r->output_rows, r->width},
        {"weights", r->got.attention_weights, r->want.weights, r->rows, r->keys},
        {"mean", r->got.average_weights, r->want.average, r->pairs, r->keys},
        {"scores", r->got.attention_scores, r->want.scores[r->got.stage], r->rows, r->keys},
        {"lse", r->got.lse, r->want.lse, r->rows, 1},
    };
    for (size_t i = 0; i < COUNT(parts); i++) {
        double off = oracle_error(parts[i].got, parts[i].want, parts[i].rows, parts[i].width);
        ck_assert_msg(off < 3e-5, "%s, %s: %s is off by %g", call, form->name, parts[i].name, off);
    }
    for (size_t h = 0; h < r->heads; h++) {
        const struct attn_head_stats *got = &r->got.head_stats[h], *want = &r->want.head_stats[h];
        ck_assert_uint_eq(got->rows, want->rows);
        ck_assert_msg(fabs(got->entropy - want->entropy) < 1e-4, "%s, %s", call, form->name);
        ck_assert_msg(fabs(got->mean_distance - want->mean_distance) < 1e-3, "%s", call);
    }
}

static void free_results(struct results *r)
{
    free(r->got.output);
    free(r->got.attention_weights);
    free(r->got.average_weights);
    free(r->got.attention_scores);
    free(r->got.lse);
    free(r->got.head_stats);
    free(r->want.output);
    free(r->want.weights);
    free(r->want.average);
    free(r->want.scores[r->got.stage]);
    free(r->want.lse);
    free(r->want.head_stats);
}

/* ---- Calls ---- */

static void check_core(const struct form *form, bool boolean, enum attn_stage stage)
{
    struct plane p = {
        .width = MOST,
        .sizes = {.batch = 2, .queries = 5, .keys = MOST, .num_heads = H, .num_kv_heads = G}};
    const struct srv_sizes *s = &p.sizes;
    struct results r;
    float *query = rng_floats(&rng, s->batch * H * s->queries * D, 1.5f);
    float *key = rng_floats(&rng, s->batch * G * s->keys * D, 1.5f);
    float *value = rng_floats(&rng, s->batch * G * s->keys * DV, 1);
    make_plane(&p, form, boolean, false);
    make_results(&r, s, stage);
    struct attn_core_args args = {.batch = s->batch,
                                  .queries = s->queries,
                                  .keys = s->keys,
                                  .num_heads = H,
                                  .num_kv_heads = G,
                                  .head_dim = D,
                                  .value_head_dim = DV,
                                  .query = query,
                                  .key = key,
                                  .value = value,
                                  .modifiers = p.read,
                                  .outputs = r.got};
    ck_assert_msg(attn_core(engine, &args, &error) == ATTN_OK, "%s", error.message);
    args.modifiers = p.full;
    oracle_core(&r.want, &args);
    expect_results(&r, "weightless", form);
    free_results(&r);
    free_plane(&p);
    free(query);
    free(key);
    free(value);
}

static void check_attend(const struct form *form, bool boolean, enum attn_stage stage)
{
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    struct plane p = {.width = MOST,
                      .sizes = {.batch = 2,
                                .queries = MOST,
                                .keys = MOST,
                                .num_heads = H,
                                .num_kv_heads = G,
                                .hidden_size = E}};
    struct results r;
    float *hidden = rng_floats(&rng, 2 * MOST * E, 1.5f);
    make_plane(&p, form, boolean, false);
    make_results(&r, &p.sizes, stage);
    struct attn_attend_args args = {.batch = 2,
                                    .queries = MOST,
                                    .keys = MOST,
                                    .hidden_states = hidden,
                                    .modifiers = p.read,
                                    .outputs = r.got};
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
    args.modifiers = p.full;
    oracle_layer(&r.want, layer, &args);
    expect_results(&r, "attend", form);
    free_results(&r);
    free_plane(&p);
    free(hidden);
}

/* A step of `rows` rows after CACHED tokens; a tree's mask is over those rows. */
static void check_step(const struct form *form, bool boolean, size_t rows, bool tree,
                       enum attn_stage stage)
{
    const struct attn_layer *layer = attn_model_loaded_layer(model, 0);
    const size_t total = CACHED + rows;
    struct plane p = {.width = tree ? rows : total,
                      .sizes = {.batch = 1,
                                .queries = rows,
                                .keys = total,
                                .num_heads = H,
                                .num_kv_heads = G,
                                .hidden_size = E,
                                .over_cache = true}};
    struct results r;
    float *hidden = rng_floats(&rng, total * E, 1.5f);
    make_plane(&p, form, boolean, tree);
    make_results(&r, &p.sizes, stage);
    struct attn_step prefill = {.rows = CACHED, .hidden_states = hidden, .commit = true};
    ck_assert_int_eq(attn_cache_new(&prefill.cache, pool, model, 128, &error), ATTN_OK);
    struct attn_step step = {.cache = prefill.cache,
                             .position = CACHED,
                             .rows = rows,
                             .hidden_states = hidden + CACHED * E,
                             .modifiers = p.read,
                             .outputs = r.got};
    struct attn_step *first[] = {&prefill}, *second[] = {&step};
    ck_assert_int_eq(attn_decode(engine, model, 0, first, 1), ATTN_OK);
    ck_assert_int_eq(prefill.error.status, ATTN_OK);
    ck_assert_int_eq(attn_decode(engine, model, 0, second, 1), ATTN_OK);
    ck_assert_msg(step.error.status == ATTN_OK, "%s", step.error.message);
    step.modifiers = p.full;
    oracle_step(&r.want, layer, hidden, &step);
    expect_results(&r, tree ? "tree" : rows == 1 ? "decode" : "prefill", form);
    attn_cache_free(step.cache);
    free_results(&r);
    free_plane(&p);
    free(hidden);
}

CASE(shapes, setup, teardown, 0)

TEST_EACH(broadcast_every_shape_in_every_call_equals_the_oracle, FORMS)
{
    const struct form *form = &forms[_i];
    for (int boolean = 0; boolean < 2; boolean++)
        for (int stage = 0; stage < 3; stage++) {
            check_core(form, boolean, (enum attn_stage)stage);
            check_attend(form, boolean, (enum attn_stage)stage);
            check_step(form, boolean, 1, false, (enum attn_stage)stage);
            check_step(form, boolean, 5, false, (enum attn_stage)stage);
        }
    check_step(form, true, TREE, true, ATTN_STAGE_MASKED);
}

/* ---- Refusals ---- */

/* Shapes that do not fit, and shapes that two frameworks read differently. */
static const struct {
    size_t batch, queries, keys; /* with H heads */
    bool boolean;
    unsigned rank;
    size_t shape[4];
    const char *says; /* NULL: it is taken */
} readings[] = {
    {3, 3, 3, true, 2, {3, 3}, "as padding_mask, or a mask of queries and keys as [1,1,T,S]"},
    {3, 3, 7, true, 2, {3, 7}, "ambiguous"},
    {3, 3, 3, true, 4, {1, 1, 3, 3}, NULL},
    {3, 3, 3, true, 3, {1, 3, 3}, NULL},
    {3, 3, 3, true, 4, {3, 1, 1, 3}, NULL},
    {3, 3, 3, true, 2, {1, 3}, NULL},
    {3, 3, 3, false, 2, {3, 3}, NULL}, /* no padding is added to scores */
    {1, 3, 3, true, 2, {3, 3}, NULL},
    {1, 1, 3, true, 2, {1, 3}, NULL},
    {2, 3, 3, true, 2, {3, 3}, NULL},
    {2, 3, 5, true, 2, {2, 5}, "real tokens [B,S] are padding_mask"},
    {H, 3, 5, true, 3, {H, 3, 5}, "as [B,1,T,S] or as [1,H,T,S]"},
    {H, 3, 5, false, 3, {H, 3, 5}, "as [B,1,T,S] or as [1,H,T,S]"},
    {H, 3, 5, true, 3, {H, 1, 5}, "ambiguous"},
    {H, 3, 5, true, 4, {H, 1, 3, 5}, NULL},
    {H, 3, 5, true, 4, {1, H, 3, 5}, NULL},
    {H, 3, 5, true, 3, {1, 3, 5}, NULL},
    {2, 3, 5, true, 3, {4, 3, 5}, "does not broadcast to [2,6,3,5]"},
    {2, 3, 5, true, 3, {2 * H, 3, 5}, "does not broadcast"},
    {2, 3, 5, true, 4, {2, 2, 3, 5}, "does not broadcast"},
    {2, 3, 5, true, 4, {H, 2, 3, 5}, "does not broadcast"},
    {2, 3, 5, true, 4, {2, H, 2, 5}, "does not broadcast"},
    {2, 3, 5, true, 4, {2, H, 3, 1}, "does not broadcast"}, /* keys do not broadcast */
    {2, 3, 5, true, 4, {2, H, 3, 4}, "does not broadcast"},
    {2, 3, 5, true, 4, {2, 0, 3, 5}, "does not broadcast"},
    {2, 3, 5, true, 1, {5}, "does not broadcast"},
    {2, 3, 5, false, 1, {5}, "does not broadcast"},
};

CASE(refusals, NULL, NULL, 0)

TEST_EACH(broadcast_shapes_with_two_meanings_or_none_are_refused, COUNT(readings))
{
    static const uint8_t ones[4096]; /* never looked at */
    struct srv_arena none;
    struct srv_error refusal = {0};
    struct attn_modifiers out;
    struct srv_rows rows = {.commit = true};
    const struct srv_sizes sizes = {.batch = readings[_i].batch,
                                    .queries = readings[_i].queries,
                                    .keys = readings[_i].keys,
                                    .num_heads = H,
                                    .num_kv_heads = G};
    struct srv_tensor *mask = readings[_i].boolean ? &rows.attention_mask : &rows.attention_bias;
    *mask = (struct srv_tensor){.present = true,
                                .kind = readings[_i].boolean ? SRV_BOOLS : SRV_FLOATS_OR_NULL,
                                .rank = readings[_i].rank,
                                .data = (void *)(uintptr_t)ones};
    memcpy(mask->shape, readings[_i].shape, sizeof readings[_i].shape);
    srv_arena_init(&none, 0, NULL, NULL);
    enum srv_error_code code = srv_modifiers_read(&out, &rows, &sizes, &none, &refusal);
    ck_assert_int_eq(code, readings[_i].says == NULL ? SRV_OK : SRV_E_SHAPE_MISMATCH);
    if (readings[_i].says == NULL)
        return;
    ck_assert_msg(strstr(refusal.message, readings[_i].says) != NULL, "%s", refusal.message);
    ck_assert_str_eq(refusal.param, readings[_i].boolean ? "attention_mask" : "attention_bias");
}

SUITE(broadcast)
