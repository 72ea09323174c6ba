/* test_copies.c: the outputs query, head_output and concat, beside key and value.
 *   - of random layers and calls they equal the oracle's, whole, selected and over a cache;
 *   - an output has the bits that it has beside all others, in a batch of steps too;
 *   - what is not asked for is not computed, which is counted in pauses. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "basics/mem.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "property_draw.h"
#include "suites.h"

#define TOLERANCE 1e-4
#define SEEDS 300

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_model *model;
static struct attn_error error;

static void open_engine(unsigned threads)
{
    const struct attn_engine_options options = {.threads = threads, .gemm = ATTN_GEMM_PACKED};
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
}

static void close_engine(void)
{
    free_unused_pool(pool);
    attn_engine_close(engine);
}

static void setup(void) { open_engine(2); }

static void open_model(const char *config) { model = opened_random(config, NULL); }

static void run_steps(size_t layer, struct attn_step *const steps[], size_t count)
{
    ck_assert_int_eq(attn_decode(engine, model, layer, steps, count), ATTN_OK);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(steps[i]->error.status == ATTN_OK, "%s", steps[i]->error.message);
}

/* ---- The oracle ------------------------------------------------------------------------------ */

struct subject {
    struct draw draw;
    const struct attn_layer *layer;
    size_t rows; /* B*T */
};

/* Room for the three outputs of all rows and heads, which begins as NaN. */
static void take_results(struct attn_outputs *got, struct oracle_outputs *want, struct subject *s)
{
    const struct attn_linear *q = &s->layer->q, *o = &s->layer->o;
    struct draw *d = &s->draw;
    const size_t count[] = {s->rows * q->out, s->rows * o->in, s->rows * o->in};
    float **floats[] = {&got->query, &got->head_output, &got->concat};
    double **doubles[] = {&want->query, &want->head_output, &want->concat};
    for (size_t i = 0; i < 3; i++) {
        *floats[i] = draw_keep(d, count[i], sizeof(float));
        *doubles[i] = draw_keep(d, count[i], sizeof(double));
        for (size_t j = 0; j < count[i]; j++)
            (*floats[i])[j] = NAN;
    }
}

static void expect_rows(const struct subject *s, const char *what, const float *got,
                        const double *want, size_t rows, size_t width)
{
    size_t at;
    double worst = oracle_worst(&at, got, want, rows, width);
    ck_assert_msg(worst <= TOLERANCE, "seed %u, layer %zu of %s: %s[%zu] is %.9g, expected %.9g",
                  s->draw.seed, s->draw.layer, s->draw.json, what, at, (double)got[at], want[at]);
}

static void expect_whole(const struct subject *s, const struct attn_outputs *got,
                         const struct oracle_outputs *want)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    const size_t heads = s->rows * spec->num_heads, dv = spec->value_head_dim;
    expect_rows(s, "query", got->query, want->query, heads, spec->head_dim);
    expect_rows(s, "head_output", got->head_output, want->head_output, heads, dv);
    expect_rows(s, "concat", got->concat, want->concat, s->rows, spec->num_heads * dv);
}

static size_t chosen(const size_t *list, size_t i) { return list != NULL ? list[i] : i; }

/* Expects few [B][H'][T'][width] to have the bits of whole [B][H][T][width]. */
static void expect_part(const struct subject *s, const float *few, const float *whole, size_t width)
{
    const struct attn_selection *selected = &s->draw.selection;
    const size_t all_heads = s->layer->spec.num_heads, t = s->draw.call.queries;
    const size_t heads = selected->heads ? selected->num_heads : all_heads;
    const size_t rows = selected->rows ? selected->num_rows : t;
    for (size_t i = 0; i < s->draw.call.batch * heads * rows; i++) {
        size_t head = chosen(selected->heads, i / rows % heads);
        size_t row = chosen(selected->rows, i % rows), b = i / rows / heads;
        ck_assert_mem_eq(few + i * width, whole + ((b * all_heads + head) * t + row) * width,
                         width * sizeof *few);
    }
}

static void check_attend(struct subject *s)
{
    struct attn_attend_args args = s->draw.call;
    struct oracle_outputs want = {0};
    struct attn_outputs few = {.selection = s->draw.selection};
    s->rows = args.batch * args.queries;
    take_results(&args.outputs, &want, s);
    oracle_layer(&want, s->layer, &args);
    ck_assert_int_eq(attn_attend(engine, model, s->draw.layer, &args, &error), ATTN_OK);
    expect_whole(s, &args.outputs, &want);
    const struct attn_outputs whole = args.outputs;
    take_results(&few, &want, s);
    args.outputs = few;
    ck_assert_int_eq(attn_attend(engine, model, s->draw.layer, &args, &error), ATTN_OK);
    expect_part(s, few.query, whole.query, s->layer->spec.head_dim);
    expect_part(s, few.head_output, whole.head_output, s->layer->spec.value_head_dim);
    ck_assert_mem_eq(few.concat, whole.concat, s->rows * s->layer->o.in * sizeof(float));
}

/* Whether a cache may hold the layer's tokens, and RoPE's frequencies do not follow the length. */
static bool can_step(const struct attn_layer_spec *spec)
{
    return !spec->is_cross && spec->key_size == spec->hidden_size &&
           spec->value_size == spec->hidden_size && spec->rope.type != ATTN_ROPE_DYNAMIC &&
           spec->rope.type != ATTN_ROPE_LONGROPE;
}

/* A step of some rows after the others of the sequence: appended, and then computed again. */
static void check_step(struct subject *s)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    size_t total = s->draw.call.queries, rows = 1 + s->draw.seed % total;
    struct attn_step step = {.hidden_states = s->draw.call.hidden_states, .commit = true};
    struct attn_step *list[] = {&step};
    struct oracle_outputs want = {0};
    ck_assert_int_eq(attn_cache_new(&step.cache, pool, model, total, &error), ATTN_OK);
    if ((step.rows = total - rows) > 0)
        run_steps(s->draw.layer, list, 1);
    step.position = total - rows;
    step.rows = s->rows = rows;
    step.hidden_states += step.position * spec->hidden_size;
    for (int again = 0; again < 2; again++) {
        take_results(&step.outputs, &want, s);
        oracle_step(&want, s->layer, s->draw.call.hidden_states, &step);
        run_steps(s->draw.layer, list, 1);
        expect_whole(s, &step.outputs, &want);
    }
    attn_cache_free(step.cache);
}

CASE(numbers, setup, close_engine, 300)

TEST(copies_of_random_layers_equal_the_oracle)
{
    size_t stepped = 0, rotated = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct subject s = {0};
        draw_layer(&s.draw, seed);
        open_model(s.draw.json);
        s.layer = attn_model_loaded_layer(model, s.draw.layer);
        draw_call(&s.draw, &s.layer->spec);
        check_attend(&s);
        if (can_step(&s.layer->spec)) {
            check_step(&s);
            stepped++;
            rotated += s.layer->inv_freq != NULL;
        }
        attn_model_close(model);
        draw_free(&s.draw);
    }
    ck_assert_uint_gt(stepped, SEEDS / 4);
    ck_assert_uint_gt(rotated, SEEDS / 10);
}

/* ---- Each output alone ----------------------------------------------------------------------- */

#define WIDTH ((size_t)64)
#define HEADS ((size_t)4)
#define GROUPS ((size_t)2)
#define HEAD_DIM ((size_t)16)
#define CACHED ((size_t)30)
#define LONG ((size_t)70) /* rows of a step that has products of its own */
#define TOP ((size_t)3)

static const char config[] = "{\"hidden_size\":64,\"num_attention_heads\":4,"
                             "\"num_key_value_heads\":2,\"rope_theta\":10000,\"seed\":3}";

/* Outputs, and what each has for one row, for one key, and for a row and a key. */
static const struct {
    size_t offset, element, per_row, per_key, per_pair;
} kinds[] = {
#define KIND(member, ...)                                  \
    {                                                      \
        offsetof(struct attn_outputs, member), __VA_ARGS__ \
    }
    KIND(output, sizeof(float), WIDTH, 0, 0),
    KIND(query, sizeof(float), (HEADS * HEAD_DIM), 0, 0),
    KIND(head_output, sizeof(float), (HEADS * HEAD_DIM), 0, 0),
    KIND(concat, sizeof(float), (HEADS * HEAD_DIM), 0, 0),
    KIND(key, sizeof(float), 0, (GROUPS * HEAD_DIM), 0),
    KIND(value, sizeof(float), 0, (GROUPS * HEAD_DIM), 0),
    KIND(lse, sizeof(float), HEADS, 0, 0),
    KIND(attention_weights, sizeof(float), 0, 0, HEADS),
    KIND(attention_scores, sizeof(float), 0, 0, HEADS),
    KIND(top_weight, sizeof(float), (HEADS * TOP), 0, 0),
    KIND(top_index, sizeof(uint32_t), (HEADS * TOP), 0, 0), /* asked for with top_weight only */
};
#define KINDS COUNT(kinds)
#define ALONE (KINDS - 1)

static size_t kind_bytes(size_t kind, size_t rows, size_t keys)
{
    return kinds[kind].element * (kinds[kind].per_row * rows + kinds[kind].per_key * keys +
                                  kinds[kind].per_pair * rows * keys);
}

static void *buffer_of(const struct attn_outputs *outputs, size_t kind)
{
    void *buffer;
    memcpy(&buffer, (const char *)outputs + kinds[kind].offset, sizeof buffer);
    return buffer;
}

/* Buffers for kinds [first, end), full of 0xff: NaN. */
static struct attn_outputs take_kinds(size_t first, size_t end, size_t rows, size_t keys)
{
    struct attn_outputs out = {.top_k = TOP, .stage = ATTN_STAGE_MASKED};
    for (size_t i = first; i < end; i++) {
        void *buffer = malloc(kind_bytes(i, rows, keys));
        memset(buffer, 0xff, kind_bytes(i, rows, keys));
        memcpy((char *)&out + kinds[i].offset, &buffer, sizeof buffer);
    }
    return out;
}

static void free_kinds(const struct attn_outputs *out)
{
    for (size_t i = 0; i < KINDS; i++)
        free(buffer_of(out, i));
}

/* One kind; the weights and the indices of the largest belong together. */
static struct attn_outputs take_one(size_t kind, size_t rows, size_t keys)
{
    return take_kinds(kind, kind == ALONE - 1 ? KINDS : kind + 1, rows, keys);
}

static void expect_same(const struct attn_outputs *got, const struct attn_outputs *all, size_t rows,
                        size_t keys)
{
    for (size_t i = 0; i < KINDS; i++)
        if (buffer_of(got, i) != NULL)
            ck_assert_mem_eq(buffer_of(got, i), buffer_of(all, i), kind_bytes(i, rows, keys));
}

TEST(copies_and_all_outputs_are_the_same_alone)
{
    struct rng rng = rng_seeded(5);
    float *x = rng_floats(&rng, 2 * LONG * WIDTH, 1);
    open_model(config);
    struct attn_attend_args args = {.batch = 2, .queries = LONG, .hidden_states = x};
    const struct attn_outputs all = take_kinds(0, KINDS, 2 * LONG, LONG * 2);
    args.outputs = all;
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OK);
    for (size_t i = 0; i < ALONE; i++) {
        args.outputs = take_one(i, 2 * LONG, 2 * LONG);
        ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OK);
        for (size_t k = 0; k < KINDS; k++) /* a map has one sequence's rows by its keys */
            if (buffer_of(&args.outputs, k) != NULL)
                ck_assert_mem_eq(buffer_of(&args.outputs, k), buffer_of(&all, k),
                                 kinds[k].per_pair > 0 ? 2 * kind_bytes(k, LONG, LONG)
                                                       : kind_bytes(k, 2 * LONG, 2 * LONG));
        free_kinds(&args.outputs);
    }
    free_kinds(&all);
    free(x);
    attn_model_close(model);
}

/* Steps of 1, 3 and LONG rows over caches of their own, each for one output, in one batch. */
TEST(copies_in_a_batch_have_the_bits_of_steps_alone)
{
    static const size_t counts[] = {1, 3, LONG};
    struct rng rng = rng_seeded(6);
    float *x = rng_floats(&rng, (CACHED + LONG) * WIDTH, 1);
    struct attn_step steps[3 * ALONE], *list[3 * ALONE];
    open_model(config);
    struct attn_step prefill = {.rows = CACHED, .hidden_states = x, .commit = true};
    ck_assert_int_eq(attn_cache_new(&prefill.cache, pool, model, CACHED + LONG, &error), ATTN_OK);
    run_steps(0, (struct attn_step *[]){&prefill}, 1);
    for (size_t i = 0; i < 3 * ALONE; i++) {
        size_t rows = counts[i % 3];
        list[i] = &steps[i];
        steps[i] = (struct attn_step){.position = CACHED,
                                      .rows = rows,
                                      .hidden_states = x + CACHED * WIDTH,
                                      .outputs = take_one(i / 3, rows, CACHED + rows),
                                      .commit = i % 2};
        ck_assert_int_eq(attn_cache_fork(&steps[i].cache, prefill.cache, CACHED, &error), ATTN_OK);
    }
    run_steps(0, list, 3 * ALONE);
    for (size_t i = 0; i < 3 * ALONE; i++) {
        struct attn_step alone = steps[i];
        alone.cache = prefill.cache;
        alone.commit = false;
        alone.outputs = take_kinds(0, KINDS, alone.rows, CACHED + alone.rows);
        run_steps(0, (struct attn_step *[]){&alone}, 1);
        expect_same(&steps[i].outputs, &alone.outputs, alone.rows, CACHED + alone.rows);
        ck_assert_uint_eq(attn_cache_length(steps[i].cache, 0), CACHED + (i % 2 ? alone.rows : 0));
        free_kinds(&alone.outputs);
        free_kinds(&steps[i].outputs);
        attn_cache_free(steps[i].cache);
    }
    attn_cache_free(prefill.cache);
    free(x);
    attn_model_close(model);
}

/* ---- Work ------------------------------------------------------------------------------------ */

static bool count_pause(void *context)
{
    ++*(size_t *)context;
    return false;
}

static bool never(void *context)
{
    (void)context;
    ck_abort_msg("nothing was wanted");
    return false;
}

/* Pauses of a prefill or of an attend of LONG rows for some outputs. */
static size_t pauses(const struct attn_outputs *outputs, const float *x, bool step)
{
    size_t count = 0;
    const struct attn_yield yield = {count_pause, never, &count};
    if (step) {
        struct attn_step one = {
            .rows = LONG, .hidden_states = x, .outputs = *outputs, .yield = &yield};
        ck_assert_int_eq(attn_cache_new(&one.cache, pool, model, LONG, &error), ATTN_OK);
        run_steps(0, (struct attn_step *[]){&one}, 1);
        attn_cache_free(one.cache);
        return count;
    }
    const struct attn_attend_args args = {
        .batch = 1, .queries = LONG, .hidden_states = x, .outputs = *outputs, .yield = &yield};
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OK);
    return count;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

TEST(copies_of_heads_and_rows_that_are_not_there_are_refused)
{
    float x[2 * WIDTH] = {1}, y[2 * WIDTH];
    const size_t heads[] = {0, HEADS}, rows[] = {1, 1};
    open_model(config);
    struct attn_attend_args args = {.batch = 1, .queries = 2, .hidden_states = x};
    args.outputs = (struct attn_outputs){.query = y, .selection = {heads, 2, NULL, 0}};
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, "heads");
    args.outputs = (struct attn_outputs){.head_output = y, .selection = {NULL, 0, rows, 2}};
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_INVALID);
    ck_assert_str_eq(error.param, "rows");
    attn_model_close(model);
}

CASE(work, NULL, NULL, 0)

/* The calling thread pauses between tasks, and for each tile and row of attention. */
TEST_EACH(copies_cost_neither_attention_nor_projection_that_nobody_asks_for, 2)
{
    const bool step = _i == 1;
    struct rng rng = rng_seeded(7);
    float *x = rng_floats(&rng, LONG * WIDTH, 1), *y = rng_floats(&rng, LONG * WIDTH, 1);
    float *z = rng_floats(&rng, LONG * WIDTH, 1);
    open_engine(1);
    open_model(config);
    size_t none = pauses(&(struct attn_outputs){0}, x, step);
    size_t query = pauses(&(struct attn_outputs){.query = y}, x, step);
    size_t key = pauses(&(struct attn_outputs){.key = y}, x, step);
    size_t concat = pauses(&(struct attn_outputs){.concat = y}, x, step);
    size_t lse = pauses(&(struct attn_outputs){.lse = y}, x, step);
    size_t both = pauses(&(struct attn_outputs){.concat = y, .output = z}, x, step);
    ck_assert_uint_gt(query, 0);
    ck_assert_uint_lt(query, none + 8);
    ck_assert_uint_lt(key, none + 8);
    ck_assert_uint_gt(lse, none + LONG * HEADS);
    ck_assert_uint_lt(concat, lse + 8);
    ck_assert_uint_gt(both, concat);
    free(x);
    free(y);
    free(z);
    attn_model_close(model);
    close_engine();
}

TEST_EACH(copies_and_maps_cost_no_attention_of_rows_and_heads_that_nobody_asks_for, 2)
{
    const bool step = _i == 1;
    const size_t head[] = {1}, row[] = {LONG - 1};
    struct rng rng = rng_seeded(7);
    float *x = rng_floats(&rng, LONG * WIDTH, 1);
    float *map = rng_floats(&rng, HEADS * LONG * LONG, 1);
    open_engine(1);
    open_model(config);
    struct attn_outputs outputs = {.attention_weights = map};
    const size_t none = pauses(&(struct attn_outputs){0}, x, step);
    const size_t whole = pauses(&outputs, x, step);
    outputs.selection = (struct attn_selection){.heads = head, .num_heads = 1};
    const size_t of_head = pauses(&outputs, x, step);
    outputs.selection.rows = row;
    outputs.selection.num_rows = 1;
    const size_t of_row = pauses(&outputs, x, step);
    ck_assert_uint_lt(GROUPS * (of_head - none), whole - none + 8);
    ck_assert_uint_lt(of_row - none, (of_head - none) / 2);
    free(x);
    free(map);
    attn_model_close(model);
    close_engine();
}

SUITE(copies)
