/* reference.c: attention by its definition, softmax(scale q k + bias) v. */
#include "reference.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static float *take(size_t count)
{
    float *memory = calloc(count, sizeof *memory);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static double score(const struct reference *r, size_t b, size_t h, size_t t, size_t s)
{
    size_t g = h / (r->heads / r->kv_heads);
    const float *q = r->query + ((b * r->heads + h) * r->queries + t) * r->head_dim;
    const float *k = r->key + ((b * r->kv_heads + g) * r->keys + s) * r->head_dim;
    double sum = 0;
    for (size_t i = 0; i < r->head_dim; i++)
        sum += (double)q[i] * (double)k[i];
    return r->scale * sum + r->bias(r->context, b, h, t, s);
}

/* Computes a row of weights [S], before gating; returns its lse. */
static double compute_weights(double *weights, const struct reference *r, size_t b, size_t h,
                              size_t t)
{
    double largest = -INFINITY, sum = 0;
    for (size_t s = 0; s < r->keys; s++) {
        weights[s] = score(r, b, h, t, s);
        largest = fmax(largest, weights[s]);
    }
    for (size_t s = 0; s < r->keys; s++) {
        weights[s] = isinf(weights[s]) ? 0 : exp(weights[s] - largest);
        sum += weights[s];
    }
    for (size_t s = 0; s < r->keys && sum > 0; s++)
        weights[s] /= sum;
    return sum > 0 ? largest + log(sum) : -INFINITY;
}

static void compute_row(struct reference *r, double *weights, size_t b, size_t h, size_t t)
{
    size_t g = h / (r->heads / r->kv_heads), row = (b * r->heads + h) * r->queries + t;
    r->lse[row] = (float)compute_weights(weights, r, b, h, t);
    for (size_t s = 0; s < r->keys; s++) {
        weights[s] *= r->gate(r->context, h);
        r->weights[row * r->keys + s] = (float)weights[s];
    }
    for (size_t i = 0; i < r->value_dim; i++) {
        double sum = 0;
        for (size_t s = 0; s < r->keys; s++)
            sum += weights[s] *
                   (double)r->value[((b * r->kv_heads + g) * r->keys + s) * r->value_dim + i];
        r->output[row * r->value_dim + i] = (float)sum;
    }
}

void reference_compute(struct reference *r)
{
    size_t rows = r->batch * r->heads * r->queries;
    double *weights = calloc(r->keys, sizeof *weights);
    ck_assert_ptr_nonnull(weights);
    r->output = take(rows * r->value_dim);
    r->weights = take(rows * r->keys);
    r->lse = take(rows);
    for (size_t b = 0; b < r->batch; b++)
        for (size_t h = 0; h < r->heads; h++)
            for (size_t t = 0; t < r->queries; t++)
                compute_row(r, weights, b, h, t);
    free(weights);
}

void reference_free(struct reference *r)
{
    free(r->output);
    free(r->weights);
    free(r->lse);
}
