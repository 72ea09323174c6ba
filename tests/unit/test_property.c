/* test_property.c: properties of every layer and every call, tested over thousands of random ones:
 *   - a random layer has the specification that its configuration says;
 *   - attn_attend and a tree of new rows equal the oracle, at each CPU level in turn, and selected
 *     outputs are parts of the oracle's full maps;
 *   - steps over a cache equal attn_attend; those that are not committed change nothing.
 * Errors are relative to the largest |want| of a row, or to 0.1 where that is less (oracle.h).
 * PROPERTY_SEED=17 PROPERTY_COUNT=1 runs the case of seed 17 alone. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "forgotten.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "property_draw.h"
#include "suites.h"

#define LAYERS 2000
#define TOLERANCE 1e-4
#define SPARE 8 /* tokens of a cache beyond the sequence */

/* Engines of every level that this CPU has, with one thread and with two, and of each of these with
 * packed products and with OpenBLAS'. */
static struct attn_engine *engines[4 * (ATTN_NUM_CPU_LEVELS - 1)];
static size_t num_engines;
static struct attn_cache_pool *pool;

/* The case under test. */
struct subject {
    struct draw draw;
    struct attn_engine *engine;
    struct attn_model *model;
    const struct attn_layer *layer;
    const char *what;                       /* the operation under test, for messages */
    const struct attn_modifiers *modifiers; /* of that operation */
    size_t queries, keys;
};

static double worst; /* the largest error of all cases */

static void setup(void)
{
    struct attn_error error;
    for (unsigned i = 0; i < COUNT(engines); i++) {
        const struct attn_engine_options options = {
            .threads = 1 + i % 2,
            .level = 1 + i / 4,
            .gemm = i / 2 % 2 == 0 ? ATTN_GEMM_PACKED : ATTN_GEMM_OPENBLAS,
        };
        enum attn_status status = attn_engine_open(&engines[num_engines], &options, &error);
        num_engines += status == ATTN_OK;
        ck_assert(status == ATTN_OK || status == ATTN_UNSUPPORTED);
    }
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
}

static void teardown(void)
{
    free_unused_pool(pool);
    while (num_engines > 0)
        attn_engine_close(engines[--num_engines]);
}

/* ---- Failures ---- */

static void report(const struct subject *s, const char *name, const char *detail)
{
    struct attn_engine_info info;
    char modifiers[512];
    attn_engine_describe(&info, s->engine);
    draw_describe(modifiers, sizeof modifiers, s->modifiers);
    ck_abort_msg(
        "PROPERTY_SEED=%u PROPERTY_COUNT=1: %s, %s: %s\n  layer %zu of %s\n  B %zu, T %zu, "
        "S %zu%s, %s\n  %s, gemm %s, %u threads",
        s->draw.seed, s->what, name, detail, s->draw.layer, s->draw.json, s->draw.call.batch,
        s->queries, s->keys, s->draw.call.key_hidden_states ? " (cross)" : "", modifiers,
        info.level_name, info.gemm_name, info.threads);
}

static void expect(const struct subject *s, bool holds, const char *name, const char *detail)
{
    if (!holds)
        report(s, name, detail);
}

static void expect_status(const struct subject *s, enum attn_status status,
                          const struct attn_error *error)
{
    if (status != ATTN_OK)
        report(s, attn_status_name(status), error->message);
}

static void expect_rows(const struct subject *s, const char *name, const float *got,
                        const double *want, size_t rows, size_t width)
{
    size_t at;
    char detail[128];
    double error = oracle_worst(&at, got, want, rows, width);
    worst = fmax(worst, error);
    snprintf(detail, sizeof detail, "row %zu, element %zu is %.9g, expected %.9g: error %.3g",
             at / width, at % width, (double)got[at], want[at], error);
    expect(s, error <= TOLERANCE, name, detail);
}

/* ---- Buffers ---- */

/* Floats that are NaN until they are written. */
static float *unwritten(struct draw *d, size_t count)
{
    float *data = draw_keep(d, count, sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = NAN;
    return data;
}

static double *doubles(struct draw *d, size_t count) { return draw_keep(d, count, sizeof(double)); }

/* Sizes of a call and of its results. */
struct sizes {
    size_t batch, queries, keys, columns;
    size_t rows, pairs; /* B*H*T, B*T */
    size_t tokens;      /* B*G*S */
};

static struct sizes sizes_of(const struct attn_layer_spec *spec, size_t batch, size_t queries,
                             size_t keys)
{
    return (struct sizes){.batch = batch,
                          .queries = queries,
                          .keys = keys,
                          .columns = attn_weight_columns(spec, keys),
                          .rows = batch * spec->num_heads * queries,
                          .pairs = batch * queries,
                          .tokens = batch * spec->num_kv_heads * keys};
}

/* Buffers for all results, nothing selected. */
static struct attn_outputs full_outputs(struct subject *s, const struct sizes *n)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    struct draw *d = &s->draw;
    return (struct attn_outputs){
        .output = unwritten(d, n->pairs * spec->hidden_size),
        .attention_weights = unwritten(d, n->rows * n->columns),
        .average_weights = unwritten(d, n->pairs * n->columns),
        .attention_scores = unwritten(d, n->rows * n->keys),
        .stage = d->stage,
        .head_stats = draw_keep(d, n->batch * spec->num_heads, sizeof(struct attn_head_stats)),
        .local_radius = d->local_radius,
        .lse = unwritten(d, n->rows),
        .key = unwritten(d, n->tokens * spec->head_dim),
        .value = unwritten(d, n->tokens * spec->value_head_dim),
    };
}

static struct oracle_outputs wanted(struct subject *s, const struct sizes *n)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    struct draw *d = &s->draw;
    struct oracle_outputs out = {
        .output = doubles(d, n->pairs * spec->hidden_size),
        .weights = doubles(d, n->rows * n->columns),
        .average = doubles(d, n->pairs * n->columns),
        .lse = doubles(d, n->rows),
        .head_stats = draw_keep(d, n->batch * spec->num_heads, sizeof(struct attn_head_stats)),
        .local_radius = d->local_radius,
        .key = doubles(d, n->tokens * spec->head_dim),
        .value = doubles(d, n->tokens * spec->value_head_dim),
    };
    out.scores[d->stage] = doubles(d, n->rows * n->keys);
    return out;
}

/* ---- Comparing with the oracle ---- */

/* The weights of a row that sees no key are exactly 0; where no head sees a key the output is the
 * bias of o. */
static void expect_nothing_seen(const struct subject *s, const struct sizes *n,
                                const struct attn_outputs *got, const struct oracle_outputs *want)
{
    const struct attn_linear *o = &s->layer->o;
    size_t heads = s->layer->spec.num_heads;
    for (size_t i = 0; i < n->pairs; i++) {
        size_t blind = 0;
        for (size_t h = 0; h < heads; h++) {
            size_t row = (i / n->queries * heads + h) * n->queries + i % n->queries;
            if (want->lse[row] != -INFINITY)
                continue;
            blind++;
            expect(s, !got->lse || got->lse[row] == -INFINITY, "lse", "sees nothing, not -inf");
            for (size_t j = 0; got->attention_weights && j < n->columns; j++)
                expect(s, got->attention_weights[row * n->columns + j] == 0, "weights",
                       "sees nothing, not 0");
        }
        for (size_t e = 0; got->output && blind == heads && e < o->out; e++)
            expect(s, got->output[i * o->out + e] == (o->bias ? o->bias[e] : 0), "output",
                   "no head sees anything, not the bias of o");
    }
}

static void expect_stats(const struct subject *s, const struct attn_head_stats *got,
                         const struct attn_head_stats *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct attn_head_stats *g = &got[i], *w = &want[i];
        const float have[] = {(float)g->entropy,  (float)g->mean_distance, (float)g->self,
                              (float)g->previous, (float)g->first,         (float)g->local,
                              (float)g->largest};
        const double need[] = {w->entropy, w->mean_distance, w->self,   w->previous,
                               w->first,   w->local,         w->largest};
        expect(s, g->rows == w->rows, "head_stats", "another number of rows");
        expect_rows(s, "head_stats (entropy, distance, self, previous, first, local, largest)",
                    have, need, COUNT(have), 1);
    }
}

static void expect_all(const struct subject *s, const struct sizes *n,
                       const struct attn_outputs *got, const struct oracle_outputs *want)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    const struct {
        const char *name;
        const float *got;
        const double *want;
        size_t rows, width;
    } parts[] = {
        {"key", got->key, want->key, n->tokens, spec->head_dim},
        {"value", got->value, want->value, n->tokens, spec->value_head_dim},
        {"scores", got->attention_scores, want->scores[got->stage], n->rows, n->keys},
        {"lse", got->lse, want->lse, n->rows / n->queries, n->queries},
        {"weights", got->attention_weights, want->weights, n->rows, n->columns},
        {"average", got->average_weights, want->average, n->pairs, n->columns},
        {"output", got->output, want->output, n->pairs, spec->hidden_size},
    };
    for (size_t i = 0; i < COUNT(parts); i++)
        if (parts[i].got)
            expect_rows(s, parts[i].name, parts[i].got, parts[i].want, parts[i].rows,
                        parts[i].width);
    if (got->head_stats)
        expect_stats(s, got->head_stats, want->head_stats, n->batch * spec->num_heads);
    expect_nothing_seen(s, n, got, want);
}

/* ---- Selection ---- */

/* The size of a selection: H' heads and T' rows. */
struct part {
    size_t heads, rows;
};

static size_t chosen(const size_t *list, size_t i) { return list ? list[i] : i; }

static struct part part_of(const struct attn_selection *selection, size_t heads, size_t queries)
{
    return (struct part){selection->heads ? selection->num_heads : heads,
                         selection->rows ? selection->num_rows : queries};
}

/* Picks the selected rows [B][H'][T'][width] of a map [B][H][T][width]. */
static const double *pick(struct subject *s, const double *map, const struct sizes *n, size_t width)
{
    const struct attn_selection *sel = &s->draw.selection;
    size_t heads = s->layer->spec.num_heads, at = 0;
    struct part part = part_of(sel, heads, n->queries);
    double *out = doubles(&s->draw, n->batch * part.heads * part.rows * width);
    for (size_t b = 0; b < n->batch; b++)
        for (size_t h = 0; h < part.heads; h++)
            for (size_t t = 0; t < part.rows; t++, at++) {
                size_t row =
                    (b * heads + chosen(sel->heads, h)) * n->queries + chosen(sel->rows, t);
                memcpy(out + at * width, map + row * width, width * sizeof *out);
            }
    return out;
}

/* The mean over heads of a map [B][H'][T'][width]. */
static const double *mean_of(struct subject *s, const double *map, size_t batch, struct part part,
                             size_t width)
{
    size_t plane = part.rows * width;
    double *out = doubles(&s->draw, batch * plane);
    for (size_t i = 0; i < batch * part.heads * plane; i++)
        out[i / plane / part.heads * plane + i % plane] += map[i] / (double)part.heads;
    return out;
}

/* Checks the k largest of a row: columns of the row, each once, in order, and none left out is
 * larger. */
static void expect_largest(const struct subject *s, const uint32_t *index, const float *weight,
                           const double *row, size_t k, size_t width)
{
    double norm = 0.1, least = INFINITY;
    bool taken[2 * DRAW_TOKENS] = {false};
    for (size_t j = 0; j < width; j++)
        norm = fmax(norm, fabs(row[j]));
    for (size_t i = 0; i < k; i++) {
        expect(s, index[i] < width && !taken[index[i]], "top_index", "no column, or one twice");
        expect(s, fabs((double)weight[i] - row[index[i]]) <= TOLERANCE * norm, "top_weight",
               "not the weight of its column");
        expect(s,
               i == 0 || weight[i] < weight[i - 1] ||
                   (weight[i] == weight[i - 1] && index[i] > index[i - 1]),
               "top_weight", "not in order");
        taken[index[i]] = true;
        least = (double)weight[i];
    }
    for (size_t j = 0; j < width; j++)
        expect(s, taken[j] || row[j] <= least + TOLERANCE * norm, "top_index",
               "a larger one is left");
}

/* Compares selected outputs with the same parts of the oracle's full maps. */
static void expect_selected(struct subject *s, const struct sizes *n,
                            const struct attn_outputs *got, const struct oracle_outputs *want)
{
    struct part part = part_of(&s->draw.selection, s->layer->spec.num_heads, n->queries);
    const double *weights = pick(s, want->weights, n, n->columns);
    const double *scores = pick(s, want->scores[got->stage], n, n->keys);
    const double *average = mean_of(s, weights, n->batch, part, n->columns);
    size_t rows = n->batch * part.heads * part.rows, means = n->batch * part.rows;
    if (got->attention_weights)
        expect_rows(s, "selected weights", got->attention_weights, weights, rows, n->columns);
    expect_rows(s, "selected scores", got->attention_scores, scores, rows, n->keys);
    if (got->average_weights)
        expect_rows(s, "selected average", got->average_weights, average, means, n->columns);
    for (size_t i = 0; i < (got->average_weights ? means : rows); i++)
        expect_largest(s, got->top_index + i * got->top_k, got->top_weight + i * got->top_k,
                       (got->average_weights ? average : weights) + i * n->columns, got->top_k,
                       n->columns);
    if (got->head_stats)
        expect_stats(s, got->head_stats, want->head_stats, n->batch * s->layer->spec.num_heads);
}

/* Changes outputs to those of a case that selects: maps of another shape, the largest. */
static void select_outputs(struct attn_outputs *out, struct subject *s, const struct sizes *n)
{
    struct draw *d = &s->draw;
    struct part part = part_of(&d->selection, s->layer->spec.num_heads, n->queries);
    size_t rows = n->batch * part.rows * (d->averages ? 1 : part.heads);
    out->selection = d->selection;
    out->top_k = d->top_k;
    out->top_index = draw_keep(d, rows * d->top_k, sizeof *out->top_index);
    out->top_weight = unwritten(d, rows * d->top_k);
    out->attention_scores = unwritten(d, n->batch * part.heads * part.rows * n->keys);
    out->attention_weights = unwritten(d, n->batch * part.heads * part.rows * n->columns);
    out->average_weights = d->averages ? unwritten(d, rows * n->columns) : NULL;
    if (d->seed % 3 == 0)
        out->attention_weights = NULL; /* rows of weights are then kept only while they are made */
    if (d->seed % 4 == 0)
        out->head_stats = NULL;
}

/* ---- One call ---- */

static void attend(const struct subject *s, const struct attn_attend_args *args)
{
    struct attn_error error;
    expect_status(s, attn_attend(s->engine, s->model, s->draw.layer, args, &error), &error);
}

static void check_attend(struct subject *s)
{
    struct attn_attend_args args = s->draw.call;
    const struct sizes n = sizes_of(&s->layer->spec, args.batch, args.queries, args.keys);
    struct oracle_outputs want = wanted(s, &n);
    s->what = "attend";
    s->modifiers = &args.modifiers;
    s->queries = args.queries;
    s->keys = args.keys;
    oracle_layer(&want, s->layer, &args);
    args.outputs = full_outputs(s, &n);
    if (s->draw.seed % 4 == 1) { /* without maps, as most calls are */
        struct attn_outputs few = {.output = args.outputs.output, .lse = args.outputs.lse};
        args.outputs = few;
    }
    attend(s, &args);
    expect_all(s, &n, &args.outputs, &want);
    if (!s->draw.selects)
        return;
    s->what = "attend with a selection";
    args.outputs = full_outputs(s, &n);
    select_outputs(&args.outputs, s, &n);
    attend(s, &args);
    expect_selected(s, &n, &args.outputs, &want);
}

/* ---- Caches ---- */

/* One sequence of the case's batch, causal, as its layer may cache it. */
static struct attn_attend_args sequence(struct subject *s)
{
    const struct attn_attend_args *call = &s->draw.call;
    size_t b = rng_below(&s->draw.rng, (unsigned)call->batch), rows = call->queries;
    struct attn_attend_args args = {
        .batch = 1,
        .queries = rows,
        .keys = rows,
        .hidden_states = call->hidden_states + b * rows * s->layer->spec.hidden_size,
        .modifiers = call->modifiers,
    };
    struct attn_modifiers *m = &args.modifiers;
    m->is_causal = ATTN_CAUSAL_YES;
    m->query_offset = NULL;
    if (call->key_hidden_states) { /* the masks are for other keys */
        m->padding_mask = m->attention_mask = NULL;
        m->attention_bias = NULL;
    }
    if (m->padding_mask)
        m->padding_mask += b * rows;
    if (m->attention_mask)
        m->attention_mask += b * m->attention_mask_batch_stride;
    if (m->attention_bias)
        m->attention_bias += b * m->attention_bias_batch_stride;
    if (m->position_ids)
        m->position_ids += b * rows;
    return args;
}

/* Extracts the planes [H or 1][rows][first + rows] of a step from those [H or 1][T][T] of the whole
 * sequence.  A mask of one row [T] needs no copy: a step reads as much of it as it has keys. */
static void *step_planes(size_t *stride, struct subject *s, const void *planes, size_t whole,
                         size_t first, size_t rows, size_t size)
{
    size_t keys = first + rows, heads = *stride ? s->layer->spec.num_heads : 1;
    char *out = draw_keep(&s->draw, heads * rows * keys, size);
    for (size_t i = 0; i < heads * rows; i++) {
        size_t from = i / rows * *stride + (first + i % rows) * whole;
        memcpy(out + i * keys * size, (const char *)planes + from * size, keys * size);
    }
    *stride = *stride ? rows * keys : 0;
    return out;
}

static struct attn_modifiers step_modifiers(struct subject *s, const struct attn_attend_args *args,
                                            size_t first, size_t rows)
{
    struct attn_modifiers m = args->modifiers;
    if (first % 2 == 0)
        m.is_causal = ATTN_CAUSAL_DEFAULT; /* causal, for steps */
    if (m.attention_mask && !m.attention_mask_one_row)
        m.attention_mask = step_planes(&m.attention_mask_head_stride, s, m.attention_mask,
                                       args->queries, first, rows, sizeof *m.attention_mask);
    if (m.attention_bias && !m.attention_bias_one_row)
        m.attention_bias = step_planes(&m.attention_bias_head_stride, s, m.attention_bias,
                                       args->queries, first, rows, sizeof *m.attention_bias);
    if (m.position_ids)
        m.position_ids += first;
    return m;
}

/* False where the step is refused, as it sees keys that the layer's window has forgotten. */
static bool run_step(const struct subject *s, struct attn_step *step)
{
    struct attn_step *steps[] = {step};
    const bool lost = forgotten_is_seen(step, &s->layer->spec, s->draw.layer);
    enum attn_status status = attn_decode(s->engine, s->model, s->draw.layer, steps, 1);
    status = status != ATTN_OK ? status : step->error.status;
    expect_status(s, lost && status == ATTN_FORGOTTEN ? ATTN_OK : status, &step->error);
    expect(s, lost == (status == ATTN_FORGOTTEN), "a forgotten key", "seen, and not refused");
    return !lost;
}

static struct attn_cache *new_cache(const struct subject *s, size_t max_length)
{
    struct attn_cache *cache = NULL;
    struct attn_error error;
    expect_status(s, attn_cache_new(&cache, pool, s->model, max_length, &error), &error);
    return cache;
}

/* The cache's tokens, keys before values. */
static float *contents(struct subject *s, const struct attn_cache *cache, size_t tokens)
{
    const struct attn_cached_sizes sizes = attn_cached_sizes(&s->layer->spec);
    size_t keys = sizes.heads * tokens * sizes.key;
    float *data = unwritten(&s->draw, keys + sizes.heads * tokens * sizes.value);
    attn_cache_read(data, data + keys, cache, s->draw.layer, tokens);
    return data;
}

/* Runs a step that is not committed, with rows other than those that follow. */
static void try_step(struct subject *s, struct attn_cache *cache, const float *x, size_t length)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    size_t bytes = sizes.heads * length * (sizes.key + sizes.value);
    struct attn_step step = {
        .cache = cache,
        .position = length,
        .rows = 1,
        .hidden_states = x,
        .outputs = {.output = unwritten(&s->draw, spec->hidden_size)},
    };
    float *before = contents(s, cache, length);
    run_step(s, &step);
    float *after = contents(s, cache, length);
    expect(s, memcmp(before, after, bytes * sizeof *before) == 0, "cache", "changed uncommitted");
    expect(s, attn_cache_length(cache, s->draw.layer) == length, "cache", "grew uncommitted");
}

/* Computes the sequence in one step, or in steps of random sizes, and compares with the whole. */
static void check_division(struct subject *s, const struct attn_attend_args *args, bool pieces)
{
    size_t width = s->layer->spec.hidden_size, total = args->queries;
    struct attn_cache *cache = new_cache(s, total + SPARE);
    const struct attn_outputs *whole = &args->outputs;
    double *want = doubles(&s->draw, total * width);
    float *again = unwritten(&s->draw, total * width);
    oracle_widen(want, whole->output, total * width);
    for (size_t at = 0, rows; at < total; at += rows) {
        unsigned most = (unsigned)(total - at);
        rows = pieces ? 1 + rng_below(&s->draw.rng, most < 30 ? most : most / 2) : total;
        struct attn_modifiers m = step_modifiers(s, args, at, rows);
        struct attn_step step = {.cache = cache,
                                 .position = at,
                                 .rows = rows,
                                 .hidden_states = args->hidden_states + at * width,
                                 .modifiers = m,
                                 .outputs = {.output = unwritten(&s->draw, rows * width)},
                                 .commit = true};
        s->modifiers = &step.modifiers;
        s->queries = rows;
        s->keys = at + rows;
        if (at > 0 && rng_below(&s->draw.rng, 3) == 0)
            try_step(s, cache, args->hidden_states, at);
        if (!run_step(s, &step))
            break;
        expect_rows(s, "output", step.outputs.output, want + at * width, rows, width);
        expect(s, attn_cache_length(cache, s->draw.layer) == at + rows, "cache", "wrong length");
        const float *first = step.outputs.output;
        step.outputs.output = again, step.commit = rng_below(&s->draw.rng, 2);
        if (rng_below(&s->draw.rng, 4) > 0 || !run_step(s, &step))
            continue;
        expect(s, memcmp(first, again, rows * width * sizeof *again) == 0, "output",
               "other bits when repeated");
        expect(s, attn_cache_length(cache, s->draw.layer) == at + rows, "cache", "grew repeated");
    }
    attn_cache_free(cache);
}

/* Whether RoPE's frequencies depend on the length of the call: parts of it then have others. */
static bool is_rescaled(const struct subject *s, const struct attn_modifiers *m, size_t rows)
{
    const struct attn_rope_spec *rope = &s->layer->spec.rope;
    bool may = rope->type == ATTN_ROPE_DYNAMIC || rope->type == ATTN_ROPE_LONGROPE;
    return may && (double)draw_length(m, rows, rows) > rope->original_max_position;
}

static void check_steps(struct subject *s)
{
    struct attn_attend_args args = sequence(s);
    const struct sizes n = sizes_of(&s->layer->spec, 1, args.queries, args.keys);
    s->what = "attend, causal";
    s->modifiers = &args.modifiers;
    s->queries = s->keys = args.queries;
    args.outputs = full_outputs(s, &n);
    attend(s, &args);
    s->what = "one prefill";
    check_division(s, &args, false);
    s->what = "steps";
    if (!is_rescaled(s, &args.modifiers, args.queries))
        check_division(s, &args, true);
}

static void check_tree(struct subject *s)
{
    const struct attn_layer_spec *spec = &s->layer->spec;
    size_t total = s->draw.call.queries, rows = 1 + rng_below(&s->draw.rng, (unsigned)total);
    rows = rows > 12 && rng_below(&s->draw.rng, 4) ? 12 : rows;
    size_t cached = total - rows;
    const struct sizes n = sizes_of(spec, 1, rows, total);
    struct attn_modifiers none = {0};
    struct attn_step prefill = {.cache = new_cache(s, total + SPARE),
                                .rows = cached,
                                .hidden_states = s->draw.call.hidden_states,
                                .commit = true};
    struct attn_step step = {.cache = prefill.cache,
                             .position = cached,
                             .rows = rows,
                             .hidden_states = prefill.hidden_states + cached * spec->hidden_size,
                             .outputs = full_outputs(s, &n),
                             .commit = rng_below(&s->draw.rng, 2)};
    struct oracle_outputs want = wanted(s, &n);
    draw_tree(&step.modifiers, &s->draw, spec, cached, rows);
    s->what = "tree";
    s->modifiers = &step.modifiers;
    s->queries = rows;
    s->keys = total;
    if (cached > 0)
        run_step(s, &prefill);
    const size_t first = attn_cache_first(step.cache, s->draw.layer);
    if (!is_rescaled(s, &none, total) && run_step(s, &step)) {
        oracle_step(&want, s->layer, prefill.hidden_states, &step);
        forgotten_hide(&want, spec, n.rows, total, first);
        expect_all(s, &n, &step.outputs, &want);
        expect(s, attn_cache_length(step.cache, s->draw.layer) == (step.commit ? total : cached),
               "cache", "wrong length");
    }
    attn_cache_free(step.cache);
}

/* ---- One case ---- */

/* Checks that the layer is the one that was drawn. */
static void check_spec(const struct subject *s)
{
    double got = 0, want = 0;
    const char *name = draw_differs(&got, &want, &s->layer->spec, &s->draw.spec);
    char detail[96];
    snprintf(detail, sizeof detail, "is %g, drawn %g", got, want);
    expect(s, name == NULL, name != NULL ? name : "spec", detail);
}

static void check_case(unsigned seed)
{
    struct subject s = {.what = "open", .engine = engines[seed % num_engines]};
    struct attn_error error;
    s.modifiers = &s.draw.call.modifiers;
    draw_layer(&s.draw, seed);
    expect_status(&s,
                  attn_model_open_random(&s.model, s.draw.json, strlen(s.draw.json), NULL, &error),
                  &error);
    expect_status(&s, attn_model_load(s.model, &error), &error);
    s.layer = attn_model_loaded_layer(s.model, s.draw.layer);
    check_spec(&s);
    draw_call(&s.draw, &s.layer->spec);
    check_attend(&s);
    const struct attn_layer_spec *spec = &s.layer->spec;
    if (!spec->is_cross && spec->key_size == spec->hidden_size &&
        spec->value_size == spec->hidden_size) {
        check_steps(&s);
        check_tree(&s);
    }
    attn_model_close(s.model);
    draw_free(&s.draw);
}

static unsigned from_environment(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

CASE(layers, setup, teardown, 900)

TEST(property_random_layers_equal_the_oracle_whole_in_steps_and_as_trees)
{
    unsigned first = from_environment("PROPERTY_SEED", 1);
    unsigned count = from_environment("PROPERTY_COUNT", LAYERS);
    for (unsigned i = 0; i < count; i++)
        check_case(first + i);
    ck_assert_uint_gt(count, 0);
    printf("property: %u specifications hold, largest error %.2g of %g allowed\n", count, worst,
           TOLERANCE);
}

SUITE(property)
