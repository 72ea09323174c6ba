/* oracle_layer.c: from hidden states to queries, keys and values, and from heads to the output. */
#include "oracle_layer.h"

#include <math.h>
#include <stdlib.h>

#include "basics/half_float.h"
#include "layers/mla.h"

#define PI 3.14159265358979323846
#define MAX_PAIRS (ATTN_MAX_HEAD_DIM / 2)

/* A call with its defaults resolved. */
struct call {
    const struct attn_layer *layer;
    size_t batch, queries, keys;
    const float *x, *y, *z;                   /* rows of queries, keys, values */
    const float *cached_k, *cached_v;         /* [G][S][D], [G][S][Dv] to attend over, or NULL */
    int64_t *query_positions, *key_positions; /* [B][T], [B][S] for RoPE */
    size_t chunk;      /* of the layer, 0 where the call has a window of its own */
    size_t first_slot; /* of the queries in their sequence */
    float frequencies[MAX_PAIRS];
    double attention_factor;
    struct attn_modifiers modifiers;
};

/* ---- RoPE ---- */

/* The index, as a real number, of the pair that makes `turns` turns within the trained length (Peng
 * et al.). */
static double yarn_pair(const struct attn_rope_spec *r, double turns)
{
    return (double)r->dim * log(r->original_max_position / (turns * 2 * PI)) / (2 * log(r->theta));
}

/* From 0, where yarn leaves a frequency alone, to 1, where it divides it by factor. */
static double yarn_ramp(const struct attn_rope_spec *r, size_t i)
{
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)r->dim - 1);
    if (low == high)
        high += 0.001;
    return fmin(fmax(((double)i - low) / (high - low), 0), 1);
}

static double llama3(const struct attn_rope_spec *r, double frequency)
{
    double turns = r->original_max_position * frequency / (2 * PI); /* within the trained length */
    if (turns < r->low_freq_factor)
        return frequency / r->factor;
    if (turns > r->high_freq_factor)
        return frequency;
    double smooth = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

/* Inverse frequency i of base theta.  Each operation is rounded to float32, as in the published
 * code: at position 3,000 the last bit is worth 2e-4 rad. */
static double plain(double theta, size_t i, size_t dim)
{
    float exponent = (float)(2 * i) / (float)dim;
    return (double)(1.0f / (float)pow(theta, (double)exponent));
}

/* Inverse frequency i of a call whose largest position is length - 1. */
static double frequency(const struct attn_rope_spec *r, size_t i, double length)
{
    double dim = (double)r->dim, trained = r->original_max_position, theta = r->theta;
    double normal = plain(theta, i, r->dim);
    switch (r->type) {
    case ATTN_ROPE_LINEAR:
        return normal / r->factor;
    case ATTN_ROPE_DYNAMIC:
        if (length > trained)
            theta *= pow(r->factor * length / trained - (r->factor - 1), dim / (dim - 2));
        return plain(theta, i, r->dim);
    case ATTN_ROPE_YARN:
        return normal * (1 - yarn_ramp(r, i)) + normal / r->factor * yarn_ramp(r, i);
    case ATTN_ROPE_LLAMA3:
        return llama3(r, normal);
    case ATTN_ROPE_LONGROPE:
        return normal / (length > trained ? r->long_factor[i] : r->short_factor[i]);
    case ATTN_ROPE_PROPORTIONAL:
        return i < r->proportional_dim / 2 ? normal : 0;
    default:
        return normal;
    }
}

static void rotate(double *x, const struct call *call, int64_t position)
{
    const struct attn_rope_spec *r = &call->layer->spec.rope;
    for (size_t i = 0; i < r->dim / 2; i++) {
        float angle = (float)position * call->frequencies[i];
        double c = call->attention_factor * cos((double)angle);
        double s = call->attention_factor * sin((double)angle);
        double *first = r->interleaved ? &x[2 * i] : &x[i];
        double *second = r->interleaved ? &x[2 * i + 1] : &x[i + r->dim / 2];
        double a = *first, b = *second;
        s = r->reversed ? -s : s;
        *first = a * c - b * s;
        *second = b * c + a * s;
    }
}

/* ---- Projections ---- */

/* Row `o` of weight times x [in], plus its bias. */
static double product(const struct attn_linear *linear, const float *x, size_t o)
{
    double sum = linear->bias ? (double)linear->bias[o] : 0;
    for (size_t i = 0; i < linear->in; i++)
        sum += (double)oracle_weight(linear, o, i) * (double)x[i];
    return sum;
}

/* x [B][tokens][in] as heads [B][heads][tokens][width]; the caller frees. */
static double *project(const struct attn_linear *linear, const float *x, size_t batch,
                       size_t tokens, size_t heads)
{
    size_t width = linear->out / heads;
    double *out = malloc(batch * tokens * linear->out * sizeof *out);
    for (size_t b = 0; b < batch; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t t = 0; t < tokens; t++)
                for (size_t d = 0; d < width; d++)
                    out[((b * heads + h) * tokens + t) * width + d] =
                        product(linear, x + (b * tokens + t) * linear->in, h * width + d);
    return out;
}

/* Normalises each head of x [B][heads][tokens][D], or all heads of a token together. */
static void normalize(double *x, const struct call *call, const struct attn_norm_spec *norm,
                      const float *weight, const float *bias, size_t heads, size_t tokens, size_t d)
{
    bool all = norm->extent == ATTN_NORM_ALL_HEADS;
    double n = (double)(all ? heads * d : d);
    for (size_t i = 0; norm->type != ATTN_NORM_NONE && i < call->batch * tokens; i++) {
        double *token = x + (i / tokens * heads * tokens + i % tokens) * d;
        for (size_t vector = 0; vector < (all ? 1 : heads); vector++) {
            size_t first = all ? 0 : vector, end = all ? heads : vector + 1;
            double mean = 0, squares = 0;
            for (size_t h = first; h < end; h++)
                for (size_t c = 0; norm->type == ATTN_NORM_LAYER && c < d; c++)
                    mean += token[h * tokens * d + c] / n;
            for (size_t h = first; h < end; h++)
                for (size_t c = 0; c < d; c++)
                    squares += pow(token[h * tokens * d + c] - mean, 2);
            for (size_t h = first; h < end; h++)
                for (size_t c = 0; c < d; c++) {
                    double *number = &token[h * tokens * d + c];
                    size_t at = norm->extent == ATTN_NORM_HEAD ? c : h * d + c;
                    *number = (*number - mean) / sqrt(squares / n + norm->eps);
                    *number *= weight ? (double)weight[at] : 1;
                    *number += bias ? (double)bias[at] : 0;
                }
        }
    }
}

/* Rotates x [B][heads][tokens][D]. */
static void rotate_all(double *x, const struct call *call, const int64_t *positions, size_t heads,
                       size_t tokens)
{
    const struct attn_layer_spec *spec = &call->layer->spec;
    for (size_t i = 0; spec->rope.type != ATTN_ROPE_NONE && i < call->batch * heads * tokens; i++)
        rotate(x + i * spec->head_dim, call, positions[i / (heads * tokens) * tokens + i % tokens]);
}

/* Clamps x [n] to the layer's clip_qkv, if it has one. */
static void clip(double *x, const struct call *call, size_t n)
{
    const double limit = call->layer->spec.clip_qkv;
    for (size_t i = 0; limit > 0 && i < n; i++)
        x[i] = fmax(fmin(x[i], limit), -limit);
}

/* Normalises, clips and rotates queries or keys x [B][heads][tokens][D]. */
static void postprocess(double *x, const struct call *call, const float *weight, const float *bias,
                        const int64_t *positions, size_t heads, size_t tokens)
{
    const struct attn_norm_spec *norm = &call->layer->spec.qk_norm;
    size_t d = call->layer->spec.head_dim;
    if (!norm->after_rope)
        normalize(x, call, norm, weight, bias, heads, tokens, d);
    clip(x, call, call->batch * heads * tokens * d);
    rotate_all(x, call, positions, heads, tokens);
    if (norm->after_rope)
        normalize(x, call, norm, weight, bias, heads, tokens, d);
}

/* The factor of queries [B][H][T][D] that grows with their position. */
static void scale_queries(double *q, const struct call *call)
{
    const struct attn_query_scaling *s = &call->layer->spec.query_scaling;
    size_t d = call->layer->spec.head_dim, tokens = call->queries;
    size_t row = call->layer->q.out * tokens;
    for (size_t i = 0; s->period > 0 && i < call->batch * row; i++) {
        size_t t = i / d % tokens;
        double at = s->by_slot ? (double)(call->first_slot + t)
                               : (double)call->query_positions[i / row * tokens + t];
        q[i] *= 1 + s->beta * log(1 + floor((at + (s->next ? 1 : 0)) / s->period));
    }
}

/* Multiplies heads [B][H][T][Dv] by the sigmoid or softplus of the gate's projection. */
static void apply_gate(double *heads, const struct call *call)
{
    const struct attn_layer_spec *spec = &call->layer->spec;
    const size_t shared = spec->gate_by_head ? spec->value_head_dim : 1; /* values of one gate */
    if (!spec->output_gate)
        return;
    double *gate =
        project(&call->layer->gate, call->x, call->batch, call->queries, spec->num_heads);
    for (size_t i = 0; i < call->batch * call->queries * call->layer->o.in; i++) {
        const double x = gate[i / shared];
        heads[i] *= spec->gate_softplus ? log(1 + exp(x)) : 1 / (1 + exp(-x));
    }
    free(gate);
}

/* Projects heads [B][H][T][Dv] through Wo to out [B][T][E]. */
static void project_back(double *out, const struct call *call, const double *heads)
{
    const struct attn_linear *o = &call->layer->o;
    size_t h = call->layer->spec.num_heads, dv = call->layer->spec.value_head_dim;
    for (size_t r = 0; r < call->batch * call->queries * o->out; r++) {
        size_t e = r % o->out, t = r / o->out % call->queries, b = r / o->out / call->queries;
        double sum = o->bias ? (double)o->bias[e] : 0;
        for (size_t i = 0; i < o->in; i++)
            sum += (double)oracle_weight(o, e, i) *
                   heads[((b * h + i / dv) * call->queries + t) * dv + i % dv];
        out[r] = sum;
    }
}

/* The heads [B][H][T][Dv] side by side, [B][T][H*Dv]. */
static void join_heads(double *out, const struct call *call, const double *heads)
{
    size_t h = call->layer->spec.num_heads, dv = call->layer->spec.value_head_dim;
    for (size_t i = 0; i < call->batch * h * call->queries * dv; i++) {
        size_t t = i / dv % call->queries, row = i / dv / call->queries;
        out[((row / h * call->queries + t) * h + row % h) * dv + i % dv] = heads[i];
    }
}

/* ---- A call ---- */

/* The extra keys, or values: add_bias_kv's [1][G][D] or none, then zeroes for add_zero_attn. */
static double *extra_rows(const float *learned, size_t width)
{
    double *rows = calloc(2 * width, sizeof *rows);
    for (size_t i = 0; learned && i < width; i++)
        rows[i] = (double)learned[i];
    return rows;
}

static void copy(double *out, const double *in, size_t count)
{
    for (size_t i = 0; out && i < count; i++)
        out[i] = in[i];
}

static void replace(double *out, const float *in, size_t count)
{
    for (size_t i = 0; in && i < count; i++)
        out[i] = (double)in[i];
}

/* ---- Latent attention ---- */

/* y [count][out] = W x, x [count][in]; the caller frees. */
static double *multiply(const struct attn_linear *linear, const double *x, size_t count)
{
    double *y = calloc(count * linear->out, sizeof *y);
    for (size_t i = 0; i < count * linear->out; i++)
        for (size_t j = 0; j < linear->in; j++)
            y[i] += (double)oracle_weight(linear, i % linear->out, j) *
                    x[i / linear->out * linear->in + j];
    return y;
}

static double *multiply_floats(const struct attn_linear *linear, const float *x, size_t count)
{
    double *wide = malloc(count * linear->in * sizeof *wide);
    replace(wide, x, count * linear->in);
    double *y = multiply(linear, wide, count);
    free(wide);
    return y;
}

/* RMSNorm of rows x [count][n]. */
static void normalize_rows(double *x, const float *weight, size_t count, size_t n, double eps)
{
    for (size_t r = 0; r < count; r++, x += n) {
        double squares = 0;
        for (size_t i = 0; i < n; i++)
            squares += x[i] * x[i];
        for (size_t i = 0; i < n; i++)
            x[i] *= (double)weight[i] / sqrt(squares / (double)n + eps);
    }
}

/* Queries [B][H][T][D]: of hidden states or of their latents; the last components rotate. */
static double *latent_queries(const struct call *call)
{
    const struct attn_layer *l = call->layer;
    const struct attn_layer_spec *s = &l->spec;
    const size_t heads = s->num_heads, d = s->head_dim, rows = call->batch * call->queries;
    double *rank = multiply_floats(l->q_a.out > 0 ? &l->q_a : &l->q, call->x, rows), *flat = rank;
    if (l->q_a.out > 0) {
        normalize_rows(rank, l->q_a_norm, rows, s->mla.q_lora_rank, s->mla.norm_eps);
        flat = multiply(&l->q, rank, rows);
        free(rank);
    }
    double *q = malloc(rows * heads * d * sizeof *q);
    for (size_t i = 0; i < rows * heads; i++) {
        size_t t = i % call->queries, h = i / call->queries % heads, b = i / call->queries / heads;
        size_t row = b * call->queries + t;
        for (size_t c = 0; c < d; c++)
            q[i * d + c] = flat[(row * heads + h) * d + c];
        if (s->rope.type != ATTN_ROPE_NONE)
            rotate(q + (i + 1) * d - s->mla.rope_head_dim, call, call->query_positions[row]);
    }
    free(flat);
    return q;
}

/* Keys [B][H][S][D] and values [B][H][S][Dv] of latents and of the part that heads share. */
static void latent_keys(double **k, double **v, const struct call *call)
{
    const struct attn_layer *l = call->layer;
    const struct attn_layer_spec *s = &l->spec;
    const size_t heads = s->num_heads, d = s->head_dim, dv = s->value_head_dim, keys = call->keys;
    const size_t rope = s->mla.rope_head_dim, rank = s->mla.kv_lora_rank;
    double *latent = multiply_floats(&l->kv_a, call->y, call->batch * keys);
    double *shared = multiply_floats(&l->k_rope, call->y, call->batch * keys);
    normalize_rows(latent, l->kv_a_norm, call->batch * keys, rank, s->mla.norm_eps);
    for (size_t r = 0; s->rope.type != ATTN_ROPE_NONE && r < call->batch * keys; r++)
        rotate(shared + r * rope, call, call->key_positions[r]);
    *k = malloc(call->batch * heads * keys * d * sizeof **k);
    *v = malloc(call->batch * heads * keys * dv * sizeof **v);
    for (size_t i = 0; i < call->batch * heads; i++) {
        const double *from = latent + i / heads * keys * rank;
        double *up = multiply(&l->mla_heads[i % heads].k_up, from, keys);
        double *values = multiply(&l->mla_heads[i % heads].v_up, from, keys);
        for (size_t c = 0; c < keys * d; c++)
            (*k)[i * keys * d + c] =
                c % d < d - rope ? up[c / d * (d - rope) + c % d]
                                 : shared[(i / heads * keys + c / d) * rope + c % d - (d - rope)];
        copy(*v + i * keys * dv, values, keys * dv);
        free(up);
        free(values);
    }
    free(latent);
    free(shared);
}

/* ---- The whole ---- */

/* Queries, keys and values of other layers. */
static void head_rows(double **q, double **k, double **v, const struct call *call)
{
    const struct attn_layer *layer = call->layer;
    const struct attn_layer_spec *spec = &layer->spec;
    size_t groups = spec->num_kv_heads;
    *q = project(&layer->q, call->x, call->batch, call->queries, spec->num_heads);
    *k = project(&layer->k, call->y, call->batch, call->keys, groups);
    *v = project(&layer->v, call->z, call->batch, call->keys, groups);
    for (size_t i = 0; spec->key_multiplier != 0 && i < call->batch * call->keys * layer->k.out;
         i++)
        (*k)[i] *= spec->key_multiplier;
    postprocess(*q, call, layer->q_norm, layer->q_norm_bias, call->query_positions, spec->num_heads,
                call->queries);
    scale_queries(*q, call);
    postprocess(*k, call, layer->k_norm, layer->k_norm_bias, call->key_positions, groups,
                call->keys);
    normalize(*v, call, &spec->v_norm, NULL, NULL, groups, call->keys, spec->value_head_dim);
    clip(*v, call, call->batch * call->keys * layer->v.out);
}

static void solve(struct oracle_outputs *out, const struct call *call)
{
    const struct attn_layer *layer = call->layer;
    const struct attn_layer_spec *spec = &layer->spec;
    size_t groups = spec->num_kv_heads;
    double *q, *k, *v;
    if (spec->mla.kv_lora_rank > 0) {
        q = latent_queries(call);
        scale_queries(q, call);
        latent_keys(&k, &v, call);
    } else {
        head_rows(&q, &k, &v, call);
    }
    copy(out->key, k, call->batch * call->keys * groups * spec->head_dim);
    copy(out->value, v, call->batch * call->keys * layer->v.out);
    copy(out->query, q, call->batch * call->queries * layer->q.out);
    replace(k, call->cached_k, call->keys * groups * spec->head_dim);
    replace(v, call->cached_v, call->keys * layer->v.out);
    double *extra_k = extra_rows(layer->bias_k, layer->k.out);
    double *extra_v = extra_rows(layer->bias_v, layer->v.out);
    double *heads = malloc(call->batch * call->queries * layer->o.in * sizeof *heads);
    const struct oracle_problem p = {
        .batch = call->batch,
        .queries = call->queries,
        .keys = call->keys,
        .num_heads = spec->num_heads,
        .num_kv_heads = groups,
        .head_dim = spec->head_dim,
        .value_head_dim = spec->value_head_dim,
        .query = q,
        .key = k,
        .value = v,
        .extra_key = extra_k,
        .extra_value = extra_v,
        .extra = (size_t)spec->bias_kv + spec->add_zero_attn,
        .modifiers = call->modifiers,
        .chunk = call->chunk,
        .sinks = layer->sinks,
        .position_bias = spec->position_bias,
        .bias_table = layer->bias_table,
        .relative = &layer->relative,
    };
    struct oracle_outputs inner = *out;
    inner.output = heads;
    oracle_solve(&inner, &p);
    apply_gate(heads, call);
    normalize(heads, call, &spec->output_norm, layer->o_norm, NULL, spec->num_heads, call->queries,
              spec->value_head_dim);
    copy(out->head_output, heads, call->batch * call->queries * layer->o.in);
    if (out->concat)
        join_heads(out->concat, call, heads);
    if (out->output)
        project_back(out->output, call, heads);
    double *owned[] = {q, k, v, extra_k, extra_v, heads};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

/* The call's modifiers, with the layer's settings where they say nothing. */
static struct attn_modifiers resolve(const struct attn_modifiers *modifiers,
                                     const struct attn_layer_spec *spec, bool causal)
{
    struct attn_modifiers m = *modifiers;
    if (m.is_causal == ATTN_CAUSAL_DEFAULT)
        m.is_causal = causal ? ATTN_CAUSAL_YES : ATTN_CAUSAL_NO;
    if (m.scale == 0)
        m.scale = spec->scale;
    if (!m.has_softcap)
        m.softcap = spec->softcap;
    if (!m.has_window && spec->sliding_window > 0) {
        m.has_window = true;
        m.window_left = (int64_t)spec->sliding_window - 1;
        m.window_right = spec->is_causal ? 0 : m.window_left;
    }
    return m;
}

/* Computes the frequencies, which depend on the largest position of the call's own rows. */
static void set_frequencies(struct call *call)
{
    const struct attn_rope_spec *rope = &call->layer->spec.rope;
    int64_t last = 0;
    for (size_t i = 0; i < call->batch * call->queries; i++)
        last = call->query_positions[i] > last ? call->query_positions[i] : last;
    for (size_t i = 0; rope->type != ATTN_ROPE_NONE && i < rope->dim / 2; i++)
        call->frequencies[i] = (float)frequency(rope, i, (double)last + 1);
    call->attention_factor = rope->attention_factor;
    if (rope->long_attention_factor > 0 && (double)last + 1 > rope->original_max_position)
        call->attention_factor = rope->long_attention_factor;
}

void oracle_layer(struct oracle_outputs *out, const struct attn_layer *layer,
                  const struct attn_attend_args *a)
{
    const int64_t *ids = a->modifiers.position_ids;
    bool cross = a->key_hidden_states != NULL;
    size_t keys = cross ? a->keys : a->queries;
    int64_t *positions = malloc(a->batch * (a->queries + keys) * sizeof *positions);
    struct call call = {
        .layer = layer,
        .batch = a->batch,
        .queries = a->queries,
        .keys = keys,
        .x = a->hidden_states,
        .y = cross ? a->key_hidden_states : a->hidden_states,
        .query_positions = positions,
        .key_positions = positions, /* layers with RoPE have self-attention */
        .chunk = a->modifiers.has_window ? 0 : layer->spec.attention_chunk_size,
        .modifiers = resolve(&a->modifiers, &layer->spec, layer->spec.is_causal && !cross),
    };
    call.z = a->value_hidden_states ? a->value_hidden_states : call.y;
    for (size_t i = 0; i < a->batch * a->queries; i++)
        positions[i] = ids ? ids[i] : (int64_t)(i % a->queries);
    set_frequencies(&call);
    solve(out, &call);
    free(positions);
}

void oracle_step(struct oracle_outputs *out, const struct attn_layer *layer,
                 const float *hidden_states, const struct attn_step *step)
{
    oracle_rounded_step(out, layer, hidden_states, step, NULL, NULL);
}

void oracle_rounded_step(struct oracle_outputs *out, const struct attn_layer *layer,
                         const float *hidden_states, const struct attn_step *step, const float *key,
                         const float *value)
{
    const int64_t *ids = step->modifiers.position_ids;
    size_t cached = step->position, keys = cached + step->rows;
    int64_t *positions = malloc(keys * sizeof *positions);
    struct call call = {
        .layer = layer,
        .batch = 1,
        .queries = step->rows,
        .keys = keys,
        .x = hidden_states + cached * layer->spec.hidden_size,
        .y = hidden_states,
        .z = hidden_states,
        .cached_k = key,
        .cached_v = value,
        .query_positions = positions + cached,
        .key_positions = positions,
        .chunk = step->modifiers.has_window ? 0 : layer->spec.attention_chunk_size,
        .first_slot = cached,
        .modifiers = resolve(&step->modifiers, &layer->spec, true),
    };
    for (size_t s = 0; s < keys; s++)
        positions[s] = ids && s >= cached ? ids[s - cached] : (int64_t)s;
    set_frequencies(&call);
    solve(out, &call);
    free(positions);
}

float oracle_weight(const struct attn_linear *linear, size_t o, size_t i)
{
    const size_t each = attn_numbers_per_word(linear->dtype);
    const size_t word = attn_linear_word(linear, o / ATTN_PANEL, i - i % each);
    const size_t at = (word + o % ATTN_PANEL) * each + i % each; /* in numbers of the dtype */
    switch (linear->dtype) {
    case ATTN_BF16:
        return attn_bf16_to_float(((const uint16_t *)linear->panels)[at]);
    case ATTN_INT8:
        return linear->scale[o] * (float)(((const uint8_t *)linear->panels)[at] - 128);
    default:
        return ((const float *)linear->panels)[at];
    }
}
