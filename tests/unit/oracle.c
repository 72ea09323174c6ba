/* oracle.c: the formula of attn.h's head, literally. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

static bool visible(const struct attn_core_args *a, size_t b, size_t h, size_t t, size_t s)
{
    const struct attn_modifiers *m = &a->modifiers;
    long long offset =
        m->query_offset ? m->query_offset[b] : (long long)a->keys - (long long)a->queries;
    if (m->is_causal == ATTN_CAUSAL_YES && (long long)s > offset + (long long)t)
        return false;
    long long at = offset + (long long)t;
    if (m->has_window && ((m->window_left >= 0 && (long long)s < at - m->window_left) ||
                          (m->window_right >= 0 && (long long)s > at + m->window_right)))
        return false;
    if (m->padding_mask && !m->padding_mask[b * a->keys + s])
        return false;
    return !m->attention_mask ||
           m->attention_mask[b * m->attention_mask_batch_stride +
                             h * m->attention_mask_head_stride + t * a->keys + s];
}

static double score(const struct attn_core_args *a, size_t b, size_t h, size_t t, size_t s)
{
    const struct attn_modifiers *m = &a->modifiers;
    size_t g = h / (a->num_heads / a->num_kv_heads), d = a->head_dim;
    const float *q = a->query + ((b * a->num_heads + h) * a->queries + t) * d;
    const float *k = a->key + ((b * a->num_kv_heads + g) * a->keys + s) * d;
    double dot = 0, scale = m->scale != 0 ? m->scale : 1 / sqrt((double)d);
    if (!visible(a, b, h, t, s))
        return -INFINITY;
    for (size_t i = 0; i < d; i++)
        dot += (double)q[i] * (double)k[i];
    dot *= scale;
    if (m->softcap > 0)
        dot = m->softcap * tanh(dot / m->softcap);
    if (m->attention_bias)
        dot += (double)m->attention_bias[b * m->attention_bias_batch_stride +
                                         h * m->attention_bias_head_stride + t * a->keys + s];
    return dot;
}

/* weights [S]; returns ln of the sum of exponentials, -inf where nothing is visible. */
static double softmax_row(double *weights, const struct attn_core_args *a, size_t b, size_t h,
                          size_t t)
{
    double max = -INFINITY, sum = 0;
    for (size_t s = 0; s < a->keys; s++) {
        weights[s] = score(a, b, h, t, s);
        max = fmax(max, weights[s]);
    }
    for (size_t s = 0; s < a->keys; s++)
        sum += weights[s] == -INFINITY ? 0 : exp(weights[s] - max);
    double lse = sum > 0 ? max + log(sum) : -INFINITY;
    double gate = a->modifiers.head_mask ? (double)a->modifiers.head_mask[h] : 1;
    for (size_t s = 0; s < a->keys; s++)
        weights[s] = weights[s] == -INFINITY ? 0 : gate * exp(weights[s] - lse);
    return lse;
}

static void one_row(struct oracle_outputs *out, double *weights, const struct attn_core_args *a,
                    size_t b, size_t h, size_t t)
{
    size_t row = (b * a->num_heads + h) * a->queries + t;
    size_t g = h / (a->num_heads / a->num_kv_heads), dv = a->value_head_dim;
    const float *v = a->value + (b * a->num_kv_heads + g) * a->keys * dv;
    double lse = softmax_row(weights, a, b, h, t);
    if (out->lse)
        out->lse[row] = lse;
    for (size_t i = 0; out->output && i < dv; i++) {
        double sum = 0;
        for (size_t s = 0; s < a->keys; s++)
            sum += weights[s] * (double)v[s * dv + i];
        out->output[row * dv + i] = sum;
    }
    for (size_t s = 0; s < a->keys; s++) {
        if (out->weights)
            out->weights[row * a->keys + s] = weights[s];
        if (out->average)
            out->average[(b * a->queries + t) * a->keys + s] += weights[s] / (double)a->num_heads;
    }
}

void oracle_core(struct oracle_outputs *out, const struct attn_core_args *args)
{
    double *weights = malloc(args->keys * sizeof *weights);
    for (size_t i = 0; out->average && i < args->batch * args->queries * args->keys; i++)
        out->average[i] = 0;
    for (size_t b = 0; b < args->batch; b++)
        for (size_t h = 0; h < args->num_heads; h++)
            for (size_t t = 0; t < args->queries; t++)
                one_row(out, weights, args, b, h, t);
    free(weights);
}

double oracle_error(const float *got, const double *want, size_t rows, size_t width)
{
    double largest = 0;
    for (size_t r = 0; r < rows; r++) {
        double norm = 0.1, error = 0;
        for (size_t i = 0; i < width; i++) {
            double g = (double)got[r * width + i], w = want[r * width + i];
            if (g == w)
                continue; /* infinities included */
            norm = fmax(norm, fabs(w));
            error = isnan(g) ? INFINITY : fmax(error, fabs(g - w));
        }
        largest = fmax(largest, error / norm);
    }
    return largest;
}
