/* check.c: the formula at the head of attn.h in double, for a few rows.
 *
 * Weights, inputs and cached keys are generated again from their streams, so only the result under
 * test comes from the library.  First all keys and values that a sequence's rows see are computed,
 * BLOCK tokens at a time so that each weight is converted once for all of these; then, row by row,
 * scores, weighted sums and output projection.  Scores of unit-variance inputs stay far below the
 * range of exp in double, so no maximum is subtracted.
 *
 * RoPE's frequencies and angles are float32, which docs/NUMERICS.md makes part of the formula. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "machine.h"

#define BLOCK ((size_t)8) /* tokens */
#define BIAS_BOUND 0.1f
#define NUM_LINEARS 4

enum linear { LINEAR_Q, LINEAR_K, LINEAR_V, LINEAR_O };

struct oracle {
    const struct bench_work *work;
    const struct bench_layer *layer;
    size_t keys, width;          /* S of a sequence, and the width G D of its keys */
    float *weights[NUM_LINEARS]; /* [out][in]; NULL without a model */
    float *biases[NUM_LINEARS];  /* [out]; NULL where the layer has none */
    double *kv;                  /* [keys][2][width] of `sequence`, keys rotated */
    size_t sequence;
};

/* ---- Weights ------------------------------------------------------------------------------- */

static size_t linear_in(const struct bench_layer *l, enum linear which)
{
    return which == LINEAR_O ? l->heads * l->head_dim : l->hidden;
}

static size_t linear_out(const struct bench_layer *l, enum linear which)
{
    if (which == LINEAR_O)
        return l->hidden;
    return (which == LINEAR_Q ? l->heads : l->kv_heads) * l->head_dim;
}

static void make_weights(struct oracle *oracle)
{
    const struct bench_layer *l = oracle->layer;
    for (enum linear i = 0; i < NUM_LINEARS; i++) {
        size_t in = linear_in(l, i), out = linear_out(l, i);
        oracle->weights[i] = bench_need(attn_alloc(attn_mul(in, out), sizeof(float)));
        attn_random_uniform(oracle->weights[i], in * out, attn_random_stream(BENCH_SEED, 0, i),
                            (float)sqrt(3.0 / (double)in));
        if (!l->bias)
            continue;
        oracle->biases[i] = bench_need(attn_alloc(out, sizeof(float)));
        attn_random_uniform(oracle->biases[i], out,
                            attn_random_stream(BENCH_SEED, 0, NUM_LINEARS + i), BIAS_BOUND);
    }
}

/* y[r] = W x[r] + b for `rows` <= BLOCK rows; y rows are `stride` doubles apart.  x [in][BLOCK]. */
static void project(double *y, size_t stride, const struct oracle *oracle, enum linear which,
                    const double *x, size_t rows)
{
    size_t in = linear_in(oracle->layer, which), out = linear_out(oracle->layer, which);
    for (size_t j = 0; j < out; j++) {
        const float *w = oracle->weights[which] + j * in;
        double bias = oracle->biases[which] ? (double)oracle->biases[which][j] : 0;
        double sums[BLOCK];
        for (size_t r = 0; r < BLOCK; r++)
            sums[r] = bias;
        for (size_t i = 0; i < in; i++)
            for (size_t r = 0; r < BLOCK; r++)
                sums[r] += (double)w[i] * x[i * BLOCK + r];
        for (size_t r = 0; r < rows; r++)
            y[r * stride + j] = sums[r];
    }
}

/* Rotates heads [count][D] of the token at `position`. */
static void rotate(double *heads, size_t count, const struct bench_layer *l, size_t position)
{
    size_t half = l->head_dim / 2;
    for (size_t i = 0; l->rope_theta > 0 && i < half; i++) {
        float exponent = (float)i / (float)half;
        float frequency = 1.0f / (float)pow(l->rope_theta, (double)exponent);
        double angle = (double)((float)position * frequency);
        for (size_t h = 0; h < count; h++) {
            double *x = heads + h * l->head_dim, a = x[i], b = x[half + i];
            x[i] = a * cos(angle) - b * sin(angle);
            x[half + i] = b * cos(angle) + a * sin(angle);
        }
    }
}

/* Rows [first, first + rows) of the inputs, transposed: out [E][BLOCK], absent rows zero. */
static void transpose_rows(double *out, const struct oracle *oracle, size_t first, size_t rows)
{
    size_t width = oracle->layer->hidden;
    for (size_t i = 0; i < width; i++)
        for (size_t r = 0; r < BLOCK; r++)
            out[i * BLOCK + r] = r < rows ? (double)oracle->work->x[(first + r) * width + i] : 0;
}

/* ---- Keys and values ----------------------------------------------------------------------- */

/* Keys and values of tokens [token, token + rows), which are the inputs' rows from `first` on. */
static void project_tokens(const struct oracle *oracle, size_t token, size_t first, size_t rows)
{
    const struct bench_layer *l = oracle->layer;
    size_t width = oracle->width;
    double *x = bench_need(attn_alloc(l->hidden * BLOCK, sizeof *x));
    double *key = oracle->kv + token * 2 * width;
    transpose_rows(x, oracle, first, rows);
    project(key, 2 * width, oracle, LINEAR_K, x, rows);
    project(key + width, 2 * width, oracle, LINEAR_V, x, rows);
    for (size_t r = 0; r < rows; r++)
        rotate(key + r * 2 * width, l->kv_heads, l, token + r);
    attn_free(x);
}

static void attend_task(void *context, size_t i)
{
    const struct oracle *oracle = context;
    size_t token = i * BLOCK;
    project_tokens(oracle, token, oracle->sequence * oracle->keys + token,
                   attn_min(BLOCK, oracle->keys - token));
}

static void cached_task(void *context, size_t token)
{
    const struct oracle *oracle = context;
    size_t width = 2 * oracle->width;
    float *row = bench_need(attn_alloc(width, sizeof *row));
    if (token + 1 == oracle->keys && oracle->layer->hidden == 0) {
        for (size_t i = 0; i < width / 2; i++) {
            size_t at = oracle->sequence * width / 2 + i;
            oracle->kv[token * width + i] = (double)oracle->work->key[at];
            oracle->kv[token * width + width / 2 + i] = (double)oracle->work->value[at];
        }
    } else if (token + 1 == oracle->keys) {
        project_tokens(oracle, token, oracle->sequence, 1);
    } else {
        bench_cached_row(row, oracle->layer, oracle->sequence, token);
        for (size_t i = 0; i < width; i++)
            oracle->kv[token * width + i] = (double)row[i];
    }
    attn_free(row);
}

static void given_task(void *context, size_t token)
{
    const struct oracle *oracle = context;
    size_t d = oracle->layer->head_dim, width = oracle->width;
    double *key = oracle->kv + token * 2 * width;
    for (size_t i = 0; i < width; i++) {
        size_t at = (i / d * oracle->keys + token) * d + i % d;
        key[i] = (double)oracle->work->key[at];
        key[width + i] = (double)oracle->work->value[at];
    }
}

static void make_keys(struct oracle *oracle, struct attn_engine *engine)
{
    static void (*const tasks[])(void *, size_t) = {
        [BENCH_ATTEND] = attend_task,
        [BENCH_DECODE] = cached_task,
        [BENCH_CORE] = given_task,
    };
    enum bench_kind kind = oracle->work->shape->kind;
    size_t count = kind == BENCH_ATTEND ? attn_ceil_div(oracle->keys, BLOCK) : oracle->keys;
    attn_engine_run(engine, tasks[kind], oracle, count);
}

/* ---- Rows ---------------------------------------------------------------------------------- */

/* o [H][D] of the query q [H][D] over the first `visible` keys. */
static void attend_row(double *o, const struct oracle *oracle, const double *q, size_t visible)
{
    const struct bench_layer *l = oracle->layer;
    size_t d = l->head_dim, width = oracle->width;
    memset(o, 0, l->heads * d * sizeof *o);
    for (size_t h = 0; h < l->heads; h++) {
        size_t g = h / (l->heads / l->kv_heads);
        double sum = 0;
        for (size_t s = 0; s < visible; s++) {
            const double *key = oracle->kv + s * 2 * width + g * d;
            double score = 0;
            for (size_t i = 0; i < d; i++)
                score += q[h * d + i] * key[i];
            double weight = exp(score / sqrt((double)d));
            sum += weight;
            for (size_t i = 0; i < d; i++)
                o[h * d + i] += weight * key[width + i];
        }
        for (size_t i = 0; i < d; i++)
            o[h * d + i] /= sum;
    }
}

static double row_error(const float *got, const double *want, size_t width)
{
    double norm = 0, error = 0;
    for (size_t i = 0; i < width; i++) {
        double difference = fabs((double)got[i] - want[i]);
        norm = fmax(norm, fabs(want[i]));
        error = isnan(difference) ? INFINITY : fmax(error, difference);
    }
    return error / norm;
}

/* Row t of a core shape: queries and outputs are [H][T][D]. */
static double check_core_row(const struct oracle *oracle, size_t t)
{
    const struct bench_layer *l = oracle->layer;
    size_t d = l->head_dim, width = l->heads * d;
    double *q = bench_need(attn_alloc(2 * width, sizeof *q)), *o = q + width;
    double worst = 0;
    for (size_t i = 0; i < width; i++)
        q[i] = (double)oracle->work->x[(i / d * oracle->keys + t) * d + i % d];
    attend_row(o, oracle, q, t + 1);
    for (size_t h = 0; h < l->heads; h++)
        worst =
            fmax(worst, row_error(oracle->work->out + (h * oracle->keys + t) * d, o + h * d, d));
    attn_free(q);
    return worst;
}

/* The row of the inputs with index `row` that stands at key position `position`. */
static double check_layer_row(const struct oracle *oracle, size_t row, size_t position)
{
    const struct bench_layer *l = oracle->layer;
    size_t inner = l->heads * l->head_dim, widest = attn_max(inner, l->hidden);
    double *x = bench_need(attn_alloc((BLOCK + 2) * widest, sizeof *x));
    double *q = x + BLOCK * widest, *o = q + widest;
    transpose_rows(x, oracle, row, 1);
    project(q, inner, oracle, LINEAR_Q, x, 1);
    rotate(q, l->heads, l, position);
    attend_row(o, oracle, q, l->causal ? position + 1 : oracle->keys);
    for (size_t i = 0; i < inner; i++)
        for (size_t r = 0; r < BLOCK; r++)
            x[i * BLOCK + r] = r == 0 ? o[i] : 0;
    project(q, l->hidden, oracle, LINEAR_O, x, 1);
    double error = row_error(oracle->work->out + row * l->hidden, q, l->hidden);
    attn_free(x);
    return error;
}

/* A row of a step without weights, whose query is given, after all keys. */
static double check_given_row(const struct oracle *oracle, size_t row)
{
    size_t width = bench_row_width(oracle->layer);
    double *q = bench_need(attn_alloc(2 * width, sizeof *q)), *o = q + width;
    for (size_t i = 0; i < width; i++)
        q[i] = (double)oracle->work->x[row * width + i];
    attend_row(o, oracle, q, oracle->keys);
    double error = row_error(oracle->work->out + row * width, o, width);
    attn_free(q);
    return error;
}

#define SAMPLES 3

struct sample {
    const struct oracle *oracle;
    double errors[SAMPLES];
};

static void sample_task(void *context, size_t i)
{
    struct sample *sample = context;
    const struct oracle *oracle = sample->oracle;
    size_t last = oracle->keys - 1, t = i * last / (SAMPLES - 1);
    switch (oracle->work->shape->kind) {
    case BENCH_ATTEND:
        sample->errors[i] = check_layer_row(oracle, oracle->sequence * oracle->keys + t, t);
        break;
    case BENCH_DECODE: /* there is one row only */
        if (i == 0)
            sample->errors[i] = oracle->layer->hidden == 0
                                    ? check_given_row(oracle, oracle->sequence)
                                    : check_layer_row(oracle, oracle->sequence, last);
        break;
    case BENCH_CORE:
        sample->errors[i] = check_core_row(oracle, t);
        break;
    }
}

double bench_check(const struct bench_work *work, struct attn_engine *engine)
{
    const struct bench_shape *shape = work->shape;
    const struct bench_layer *l = shape->layer;
    struct oracle oracle = {.work = work, .layer = l, .width = l->kv_heads * l->head_dim};
    double worst = 0;
    if (l->kv_rank > 0)
        return bench_check_latent(work, engine);
    oracle.keys = shape->kind == BENCH_DECODE ? work->context + 1 : shape->tokens;
    oracle.kv = bench_need(attn_alloc(attn_mul(oracle.keys, 2 * oracle.width), sizeof(double)));
    if (shape->kind != BENCH_CORE && l->hidden > 0)
        make_weights(&oracle);
    for (size_t pass = 0; pass < attn_min(shape->batch, 2); pass++) {
        struct sample sample = {.oracle = &oracle};
        oracle.sequence = pass * (shape->batch - 1);
        make_keys(&oracle, engine);
        attn_engine_run(engine, sample_task, &sample, SAMPLES);
        for (size_t i = 0; i < SAMPLES; i++)
            worst = fmax(worst, sample.errors[i]);
    }
    for (enum linear i = 0; i < NUM_LINEARS; i++) {
        attn_free(oracle.weights[i]);
        attn_free(oracle.biases[i]);
    }
    attn_free(oracle.kv);
    return worst;
}
