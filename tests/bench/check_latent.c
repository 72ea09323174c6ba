/* check_latent.c: a decode of a latent layer in double, for its first and its last session.
 *
 * As check.c: weights, inputs and cached latents are generated again from their streams.  The
 * products of latents and heads are taken in the order that needs the fewest operations, which in
 * double is as good as any. */
#include <math.h>
#include <stdlib.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "check.h"
#include "machine.h"

/* Streams of the weights, as families/random.c numbers them. */
enum stream { Q = 0, K = 1, V = 2, O = 3, Q_A_NORM = 18, KV_A_NORM = 19, KV_A = 80, K_ROPE, Q_A };

static float *weights(enum stream stream, size_t out, size_t in, double bound, double center)
{
    float *w = bench_need(attn_alloc(attn_mul(in, out), sizeof *w));
    attn_random_uniform(w, in * out, attn_random_stream(BENCH_SEED, 0, stream), (float)bound);
    for (size_t i = 0; center != 0 && i < in * out; i++)
        w[i] += (float)center;
    return w;
}

/* y [out] = W x [in], the weights of a matrix being made for this product. */
static void project(double *y, enum stream stream, size_t out, const double *x, size_t in)
{
    float *w = weights(stream, out, in, sqrt(3.0 / (double)in), 0);
    for (size_t o = 0; o < out; o++) {
        y[o] = 0;
        for (size_t i = 0; i < in; i++)
            y[o] += (double)w[o * in + i] * x[i];
    }
    attn_free(w);
}

static void normalize(double *x, enum stream stream, size_t n)
{
    float *w = weights(stream, n, 1, 0.1, 1);
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        x[i] *= (double)w[i] / sqrt(squares / (double)n + 1e-6);
    attn_free(w);
}

static void rotate(double *x, const struct bench_layer *l, size_t position)
{
    const size_t half = l->rope / 2;
    for (size_t i = 0; i < half; i++) {
        float frequency = 1.0f / (float)pow(l->rope_theta, (double)((float)i / (float)half));
        double angle = (double)((float)position * frequency), a = x[i], b = x[half + i];
        x[i] = a * cos(angle) - b * sin(angle);
        x[half + i] = b * cos(angle) + a * sin(angle);
    }
}

/* One head over the cached tokens: q [nope + rope] to o [Dv], given its rows of K and V. */
static void attend_head(double *o, const struct bench_layer *l, const double *q, const float *k,
                        const float *v, const double *cached, size_t keys)
{
    const size_t rank = l->kv_rank, width = rank + l->rope;
    double *query = bench_need(attn_calloc(2 * width, sizeof *query)), *mean = query + width;
    double sum = 0;
    for (size_t i = 0; i < l->nope; i++)
        for (size_t j = 0; j < rank; j++)
            query[j] += q[i] * (double)k[i * rank + j];
    for (size_t j = 0; j < l->rope; j++)
        query[rank + j] = q[l->nope + j];
    for (size_t s = 0; s < keys; s++) {
        double score = 0;
        for (size_t j = 0; j < width; j++)
            score += query[j] * cached[s * width + j];
        const double weight = exp(score / sqrt((double)(l->nope + l->rope)));
        sum += weight;
        for (size_t j = 0; j < rank; j++)
            mean[j] += weight * cached[s * width + j];
    }
    for (size_t i = 0; i < l->head_dim; i++) {
        o[i] = 0;
        for (size_t j = 0; j < rank; j++)
            o[i] += (double)v[i * rank + j] * mean[j] / sum;
    }
    attn_free(query);
}

struct heads {
    const struct bench_layer *layer;
    double *o, *q, *cached; /* [H][Dv], [H][nope + rope], [keys][R + rope] */
    float *k, *v;           /* [H][nope][R], [H][Dv][R] */
    size_t keys;
};

static void head_task(void *context, size_t h)
{
    const struct heads *all = context;
    const struct bench_layer *l = all->layer;
    attend_head(all->o + h * l->head_dim, l, all->q + h * (l->nope + l->rope),
                all->k + h * l->nope * l->kv_rank, all->v + h * l->head_dim * l->kv_rank,
                all->cached, all->keys);
}

/* Queries and the newest cached token, of the session's hidden states x [E]. */
static void project_row(struct heads *all, const double *x)
{
    const struct bench_layer *l = all->layer;
    const size_t d = l->nope + l->rope, rank = l->kv_rank, last = all->keys - 1;
    double *q_a = bench_need(attn_alloc(l->q_rank, sizeof *q_a));
    double *newest = all->cached + last * (rank + l->rope);
    project(q_a, Q_A, l->q_rank, x, l->hidden);
    normalize(q_a, Q_A_NORM, l->q_rank);
    project(all->q, Q, l->heads * d, q_a, l->q_rank);
    project(newest, KV_A, rank, x, l->hidden);
    normalize(newest, KV_A_NORM, rank);
    project(newest + rank, K_ROPE, l->rope, x, l->hidden);
    rotate(newest + rank, l, last);
    for (size_t h = 0; h < l->heads; h++)
        rotate(all->q + h * d + l->nope, l, last);
    attn_free(q_a);
}

static void read_cached(struct heads *all, size_t session)
{
    const size_t width = bench_cached_width(all->layer);
    float *row = bench_need(attn_alloc(width, sizeof *row));
    for (size_t s = 0; s + 1 < all->keys; s++) {
        bench_cached_row(row, all->layer, session, s);
        for (size_t i = 0; i < width; i++)
            all->cached[s * width + i] = (double)row[i];
    }
    attn_free(row);
}

static double check_session(struct heads *all, const struct bench_work *work, size_t session,
                            struct attn_engine *engine)
{
    const struct bench_layer *l = all->layer;
    double *x = bench_need(attn_alloc(2 * l->hidden, sizeof *x)), *y = x + l->hidden;
    double norm = 0, error = 0;
    for (size_t i = 0; i < l->hidden; i++)
        x[i] = (double)work->x[session * l->hidden + i];
    read_cached(all, session);
    project_row(all, x);
    attn_engine_run(engine, head_task, all, l->heads);
    project(y, O, l->hidden, all->o, l->heads * l->head_dim);
    for (size_t i = 0; i < l->hidden; i++) {
        double difference = fabs((double)work->out[session * l->hidden + i] - y[i]);
        norm = fmax(norm, fabs(y[i]));
        error = isnan(difference) ? INFINITY : fmax(error, difference);
    }
    attn_free(x);
    return error / norm;
}

double bench_check_latent(const struct bench_work *work, struct attn_engine *engine)
{
    const struct bench_layer *l = work->shape->layer;
    const size_t bound = l->heads * l->kv_rank;
    struct heads all = {.layer = l, .keys = work->context + 1};
    double worst = 0, spread = sqrt(3.0 / (double)l->kv_rank);
    all.o = bench_need(attn_alloc(l->heads * l->head_dim, sizeof *all.o));
    all.q = bench_need(attn_alloc(l->heads * (l->nope + l->rope), sizeof *all.q));
    all.cached = bench_need(attn_alloc(all.keys * bench_cached_width(l), sizeof *all.cached));
    all.k = weights(K, l->nope, bound, spread, 0);
    all.v = weights(V, l->head_dim, bound, spread, 0);
    for (size_t pass = 0; pass < attn_min(work->shape->batch, 2); pass++)
        worst = fmax(worst, check_session(&all, work, pass * (work->shape->batch - 1), engine));
    void *owned[] = {all.o, all.q, all.cached, all.k, all.v};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        attn_free(owned[i]);
    return worst;
}
