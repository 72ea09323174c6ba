/* oracle.c: the formula at the head of attn.h, literally, and comparing results with it. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/relative.h"

/* ---- Positions ---- */

/* The slot of query t, which may be outside of the keys. */
static int64_t query_slot(const struct oracle_problem *p, size_t b, size_t t)
{
    const struct attn_modifiers *m = &p->modifiers;
    int64_t offset = m->query_offset ? m->query_offset[b] : (int64_t)p->keys - (int64_t)p->queries;
    return offset + (int64_t)t;
}

/* The position of a slot where real tokens are counted from 0 and padding is at 0.  Outside of the
 * keys positions go on one by one. */
static int64_t count_tokens(const struct oracle_problem *p, size_t b, int64_t slot)
{
    int64_t last = (int64_t)p->keys - 1, count = 0;
    if (slot < 0 || slot > last) {
        int64_t edge = slot < 0 ? 0 : last;
        return count_tokens(p, b, edge) + slot - edge;
    }
    const uint8_t *real = p->modifiers.padding_mask + b * p->keys;
    for (int64_t s = 0; s <= slot; s++)
        count += real[s];
    return real[slot] ? count - 1 : 0;
}

/* The position of a slot: ordinarily the slot itself.  New rows of a tree have given positions, and
 * then padding does not count.  For ALiBi padding never counts, unless it
 * goes by slots. */
static int64_t position(const struct oracle_problem *p, size_t b, int64_t slot, bool alibi)
{
    const struct attn_modifiers *m = &p->modifiers;
    int64_t cached = (int64_t)p->keys - (int64_t)p->queries;
    bool placed = m->tree && m->position_ids;
    if (placed && slot >= cached)
        return m->position_ids[(int64_t)(b * p->queries) + slot - cached];
    return m->padding_mask && (alibi || placed) ? count_tokens(p, b, slot) : slot;
}

/* ---- Position bias ---- */

/* x rounded to the nearest bfloat16, ties to even. */
static double bfloat16(double x)
{
    float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

/* Press et al. 2021: 2^(-8i/n) for n heads, n a power of two.  Other numbers of heads have the
 * slopes of the power below, then of the power above the 1st, the 3rd, the 5th... */
static double alibi_slope(size_t heads, size_t h)
{
    size_t power = 1;
    while (power * 2 <= heads)
        power *= 2;
    if (h < power)
        return pow(2, -8.0 * (double)(h + 1) / (double)power);
    return pow(2, -8.0 * (double)(2 * (h - power) + 1) / (double)(2 * power));
}

static double alibi(const struct oracle_problem *p, size_t h, int64_t at)
{
    double slope = alibi_slope(p->num_heads, h);
    if (p->position_bias.bfloat16)
        return bfloat16(bfloat16(slope) * bfloat16((double)at));
    return slope * (double)at;
}

/* The bucket of a distance (Raffel et al. 2020), with the float32 logarithm of the published
 * code. */
static size_t t5_bucket(const struct attn_position_bias_spec *spec, int64_t distance)
{
    size_t buckets = spec->buckets, first = 0;
    int64_t far = distance < 0 ? -distance : 0;
    if (spec->bidirectional) {
        buckets /= 2;
        first = distance > 0 ? buckets : 0;
        far = distance < 0 ? -distance : distance;
    }
    size_t exact = buckets / 2;
    if ((size_t)far < exact)
        return first + (size_t)far;
    float ratio =
        logf((float)far / (float)exact) / (float)log((double)spec->max_distance / (double)exact);
    size_t bucket = exact + (size_t)(ratio * (float)(buckets - exact));
    return first + (bucket < buckets ? bucket : buckets - 1);
}

/* The row of distance i - j in a table of 2S rows, with the float32 logarithms of the published
 * code of DeBERTa, or in one of relative keys. */
static size_t relative_row(const struct attn_position_bias_spec *spec, int64_t distance)
{
    const int64_t before = (int64_t)spec->max_distance, after = (int64_t)spec->max_after;
    const int64_t span = (int64_t)(spec->buckets != 0 ? spec->buckets : spec->max_distance);
    const int64_t mid = (int64_t)spec->buckets / 2, far = distance < 0 ? -distance : distance;
    int64_t bucket = distance;
    if (spec->type == ATTN_BIAS_RELATIVE_KEY)
        return (size_t)(after + (distance < -after   ? -after
                                 : distance > before ? before
                                                     : distance));
    if (spec->buckets != 0 && far > mid) {
        float logs = logf((float)far / (float)mid) /
                     logf((float)((double)(spec->max_distance - 1) / (double)mid));
        bucket = (int64_t)ceilf(logs * (float)(mid - 1)) + mid;
        bucket = distance < 0 ? -bucket : bucket;
    }
    bucket += span;
    return (size_t)(bucket < 0 ? 0 : bucket >= 2 * span ? 2 * span - 1 : bucket);
}

/* scale (q.Kr + k.Qr) of query t and key s (He et al. 2021), or scale q.P (Shaw et al. 2018). */
static double relative(const struct oracle_problem *p, size_t b, size_t h, size_t t, size_t s)
{
    const struct attn_relative *r = p->relative;
    const size_t d = p->head_dim;
    const int64_t distance =
        position(p, b, query_slot(p, b, t), false) - position(p, b, (int64_t)s, false);
    const size_t x = relative_row(&p->position_bias, distance);
    const double *q = p->query + ((b * p->num_heads + h) * p->queries + t) * d;
    const double *k = p->key + ((b * p->num_heads + h) * p->keys + s) * d;
    double sum = 0;
    for (size_t i = 0; i < d; i++) {
        if (p->position_bias.content_to_position)
            sum += q[i] * (double)r->keys[((h * r->tiles + x / 64) * d + i) * 64 + x % 64];
        if (p->position_bias.position_to_content)
            sum += k[i] * (double)r->queries[(h * r->rows + x) * d + i];
    }
    return p->modifiers.scale * sum;
}

static double position_bias(const struct oracle_problem *p, size_t b, size_t h, size_t t, size_t s)
{
    int64_t query = query_slot(p, b, t), key = (int64_t)s;
    const bool tokens = !p->position_bias.by_slot;
    if (p->position_bias.type == ATTN_BIAS_ALIBI)
        return p->position_bias.scale * (alibi(p, h, position(p, b, key, tokens)) -
                                         alibi(p, h, position(p, b, query, tokens)));
    if (p->position_bias.type == ATTN_BIAS_T5) {
        int64_t distance = position(p, b, key, false) - position(p, b, query, false);
        return (double)p->bias_table[t5_bucket(&p->position_bias, distance) * p->num_heads + h];
    }
    if (p->position_bias.type == ATTN_BIAS_DISENTANGLED ||
        p->position_bias.type == ATTN_BIAS_RELATIVE_KEY)
        return relative(p, b, h, t, s);
    return 0;
}

/* ---- Scores ---- */

static bool allowed(const struct oracle_problem *p, size_t b, size_t h, size_t t, size_t s)
{
    const struct attn_modifiers *m = &p->modifiers;
    size_t first = m->tree ? p->keys - p->queries : 0; /* that the mask speaks of */
    if (!m->attention_mask || s < first)
        return true;
    return m
        ->attention_mask[b * m->attention_mask_batch_stride + h * m->attention_mask_head_stride +
                         (m->attention_mask_one_row ? 0 : t * (p->keys - first)) + s - first];
}

/* The chunk of a slot: from the first real token on, or by the positions of a tree. */
static double chunk_of(const struct oracle_problem *p, size_t b, int64_t slot)
{
    const struct attn_modifiers *m = &p->modifiers;
    size_t first = 0;
    while (m->padding_mask && first < p->keys && !m->padding_mask[b * p->keys + first])
        first++;
    bool placed = m->tree && m->position_ids;
    int64_t at = placed ? position(p, b, slot, false) : slot - (int64_t)first;
    return floor((double)at / (double)p->chunk);
}

static bool visible(const struct oracle_problem *p, size_t b, size_t h, size_t t, size_t s)
{
    const struct attn_modifiers *m = &p->modifiers;
    int64_t query = query_slot(p, b, t), key = (int64_t)s;
    int64_t distance = position(p, b, key, false) - position(p, b, query, false);
    if (m->is_causal == ATTN_CAUSAL_YES && key > query)
        return false;
    if (m->has_window && m->window_left >= 0 && distance < -m->window_left)
        return false;
    if (m->has_window && m->window_right >= 0 && distance > m->window_right)
        return false;
    if (p->chunk > 0 && fabs(chunk_of(p, b, key) - chunk_of(p, b, query)) > 0.5)
        return false;
    if (m->padding_mask && !m->padding_mask[b * p->keys + s])
        return false;
    return allowed(p, b, h, t, s);
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static const double *query_of(const struct oracle_problem *p, size_t b, size_t h, size_t t)
{
    return p->query + ((b * p->num_heads + h) * p->queries + t) * p->head_dim;
}

static size_t group_of(const struct oracle_problem *p, size_t h)
{
    return h / (p->num_heads / p->num_kv_heads);
}

static double capped(const struct oracle_problem *p, double score)
{
    double c = p->modifiers.softcap;
    return c > 0 ? c * tanh(score / c) : score;
}

/* The score of key s for query t of head h, at each stage. */
static void score(double stages[3], const struct oracle_problem *p, size_t b, size_t h, size_t t,
                  size_t s)
{
    const struct attn_modifiers *m = &p->modifiers;
    size_t key = (b * p->num_kv_heads + group_of(p, h)) * p->keys + s;
    stages[0] = m->scale * dot(query_of(p, b, h, t), p->key + key * p->head_dim, p->head_dim);
    stages[1] = capped(p, stages[0]);
    stages[2] = -INFINITY;
    if (!visible(p, b, h, t, s))
        return;
    stages[2] = stages[1] + position_bias(p, b, h, t, s);
    if (m->attention_bias)
        stages[2] += (double)m->attention_bias[b * m->attention_bias_batch_stride +
                                               h * m->attention_bias_head_stride +
                                               (m->attention_bias_one_row ? 0 : t * p->keys) + s];
}

/* The score of an appended key, which no mask and no bias touches. */
static double extra_score(const struct oracle_problem *p, size_t b, size_t h, size_t t, size_t e)
{
    const double *key = p->extra_key + (e * p->num_kv_heads + group_of(p, h)) * p->head_dim;
    return capped(p, p->modifiers.scale * dot(query_of(p, b, h, t), key, p->head_dim));
}

/* ---- Rows ---- */

/* Turns scores [W] into weights before head_mask; returns ln of the sum of exponentials, -inf where
 * no key is seen. */
static double softmax(double *row, const struct oracle_problem *p, size_t h)
{
    double sum = 0, max = -INFINITY;
    for (size_t s = 0; s < p->keys + p->extra; s++)
        max = fmax(max, row[s]);
    if (max > -INFINITY && p->sinks) {
        max = fmax(max, (double)p->sinks[h]);
        sum = exp((double)p->sinks[h] - max);
    }
    for (size_t s = 0; s < p->keys + p->extra; s++)
        sum += row[s] == -INFINITY ? 0 : exp(row[s] - max);
    double lse = sum > 0 ? max + log(sum) : -INFINITY;
    for (size_t s = 0; s < p->keys + p->extra; s++)
        row[s] = row[s] == -INFINITY ? 0 : exp(row[s] - lse);
    return lse;
}

/* Adds a row that sees a key to its head's sums. */
static void measure(struct attn_head_stats *sums, const struct oracle_problem *p, const double *row,
                    size_t b, size_t t, size_t radius)
{
    const uint8_t *real = p->modifiers.padding_mask;
    int64_t query = query_slot(p, b, t);
    bool found = false;
    double largest = 0;
    sums->rows++;
    for (size_t s = 0; s < p->keys; s++) {
        double w = row[s];
        int64_t distance = query - (int64_t)s;
        int64_t far = distance < 0 ? -distance : distance;
        sums->entropy -= w > 0 ? w * log(w) : 0;
        sums->mean_distance += w * (double)far;
        sums->self += distance == 0 ? w : 0;
        sums->previous += distance == 1 ? w : 0;
        sums->local += far <= (int64_t)radius ? w : 0;
        largest = fmax(largest, w);
        if (!found && (!real || real[b * p->keys + s])) {
            sums->first += w;
            found = true;
        }
    }
    sums->largest += largest;
}

static void mean(struct attn_head_stats *sums)
{
    double n = sums->rows > 0 ? (double)sums->rows : 1;
    double *fields[] = {&sums->entropy, &sums->mean_distance, &sums->self,   &sums->previous,
                        &sums->first,   &sums->local,         &sums->largest};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i] /= n;
}

static void weighted_sum(double *out, const struct oracle_problem *p, const double *row, size_t b,
                         size_t h)
{
    size_t g = group_of(p, h), dv = p->value_head_dim;
    const double *v = p->value + (b * p->num_kv_heads + g) * p->keys * dv;
    for (size_t i = 0; i < dv; i++)
        out[i] = 0;
    for (size_t s = 0; s < p->keys; s++)
        for (size_t i = 0; i < dv; i++)
            out[i] += row[s] * v[s * dv + i];
    for (size_t e = 0; e < p->extra; e++)
        for (size_t i = 0; i < dv; i++)
            out[i] += row[p->keys + e] * p->extra_value[(e * p->num_kv_heads + g) * dv + i];
}

static void one_row(struct oracle_outputs *out, double *row, const struct oracle_problem *p,
                    size_t b, size_t h, size_t t)
{
    size_t at = (b * p->num_heads + h) * p->queries + t, columns = p->keys + p->extra;
    bool sees = false; /* a key that is not appended */
    for (size_t s = 0; s < p->keys; s++) {
        double stages[3];
        score(stages, p, b, h, t, s);
        for (int i = 0; i < 3; i++)
            if (out->scores[i])
                out->scores[i][at * p->keys + s] = stages[i];
        row[s] = stages[2];
        sees = sees || row[s] > -INFINITY;
    }
    for (size_t e = 0; e < p->extra; e++)
        row[p->keys + e] = extra_score(p, b, h, t, e);
    double lse = softmax(row, p, h), gate = 1;
    if (out->lse)
        out->lse[at] = lse;
    if (out->head_stats && sees)
        measure(&out->head_stats[b * p->num_heads + h], p, row, b, t, out->local_radius);
    if (p->modifiers.head_mask)
        gate = (double)p->modifiers.head_mask[h];
    for (size_t s = 0; s < columns; s++) {
        row[s] *= gate;
        if (out->weights)
            out->weights[at * columns + s] = row[s];
        if (out->average)
            out->average[(b * p->queries + t) * columns + s] += row[s] / (double)p->num_heads;
    }
    if (out->output)
        weighted_sum(out->output + at * p->value_head_dim, p, row, b, h);
}

void oracle_solve(struct oracle_outputs *out, const struct oracle_problem *p)
{
    size_t columns = p->keys + p->extra, heads = p->batch * p->num_heads;
    double *row = malloc(columns * sizeof *row);
    for (size_t i = 0; out->average && i < p->batch * p->queries * columns; i++)
        out->average[i] = 0;
    for (size_t i = 0; out->head_stats && i < heads; i++)
        out->head_stats[i] = (struct attn_head_stats){0};
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->num_heads; h++)
            for (size_t t = 0; t < p->queries; t++)
                one_row(out, row, p, b, h, t);
    for (size_t i = 0; out->head_stats && i < heads; i++)
        mean(&out->head_stats[i]);
    free(row);
}

/* ---- Weightless ---- */

static double *widened(const float *x, size_t count)
{
    double *wide = malloc(count * sizeof *wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)x[i];
    return wide;
}

void oracle_core(struct oracle_outputs *out, const struct attn_core_args *a)
{
    double *query = widened(a->query, a->batch * a->num_heads * a->queries * a->head_dim);
    double *key = widened(a->key, a->batch * a->num_kv_heads * a->keys * a->head_dim);
    double *value = widened(a->value, a->batch * a->num_kv_heads * a->keys * a->value_head_dim);
    struct oracle_problem p = {
        .batch = a->batch,
        .queries = a->queries,
        .keys = a->keys,
        .num_heads = a->num_heads,
        .num_kv_heads = a->num_kv_heads,
        .head_dim = a->head_dim,
        .value_head_dim = a->value_head_dim,
        .query = query,
        .key = key,
        .value = value,
        .modifiers = a->modifiers,
    };
    if (p.modifiers.scale == 0)
        p.modifiers.scale = 1 / sqrt((double)a->head_dim);
    if (!p.modifiers.has_softcap)
        p.modifiers.softcap = 0;
    oracle_solve(out, &p);
    free(query);
    free(key);
    free(value);
}

/* ---- Comparing ---- */

static double element_error(double got, double want)
{
    if (got == want)
        return 0; /* infinities included */
    return isfinite(got) && isfinite(want) ? fabs(got - want) : INFINITY;
}

double oracle_worst(size_t *at, const float *got, const double *want, size_t rows, size_t width)
{
    double largest = 0;
    *at = 0;
    for (size_t r = 0; r < rows; r++) {
        double norm = 0.1;
        for (size_t i = r * width; i < (r + 1) * width; i++)
            norm = isfinite(want[i]) ? fmax(norm, fabs(want[i])) : norm;
        for (size_t i = r * width; i < (r + 1) * width; i++) {
            double error = element_error((double)got[i], want[i]) / norm;
            if (error > largest) {
                largest = error;
                *at = i;
            }
        }
    }
    return largest;
}

double oracle_error(const float *got, const double *want, size_t rows, size_t width)
{
    size_t at;
    return oracle_worst(&at, got, want, rows, width);
}

void oracle_widen(double *out, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (double)in[i];
}
