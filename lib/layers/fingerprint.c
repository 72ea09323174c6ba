/* fingerprint.c: a hash of a layer's specification and of its weights as they were loaded. */
#include "layers/layer.h"

#include <string.h>

#include "basics/hash.h"
#include "basics/mem.h"

#define ABSENT SIZE_MAX /* in place of an array that the layer does not have */

static uint64_t hash_real(uint64_t hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return attn_hash_word(hash, bits);
}

uint64_t attn_hash_floats(uint64_t hash, const float *x, size_t count)
{
    for (size_t i = 0; i + 2 <= count; i += 2) {
        uint64_t pair;
        memcpy(&pair, &x[i], sizeof pair);
        hash = attn_hash_word(hash, pair);
    }
    return count % 2 == 0 ? hash : hash_real(hash, (double)x[count - 1]);
}

/* The length is hashed too, so that one array cannot pass for the beginning of the next. */
static uint64_t hash_floats(uint64_t hash, const float *x, size_t count)
{
    return x == NULL ? attn_hash_word(hash, ABSENT)
                     : attn_hash_floats(attn_hash_word(hash, count), x, count);
}

static uint64_t hash_weights(uint64_t hash, struct attn_linear *linear,
                             const struct attn_weights_hash *weights)
{
    const size_t count = linear->in * linear->out;
    if (count == 0)
        return attn_hash_word(hash, ABSENT);
    return weights->add(weights->context, attn_hash_word(hash, count), linear);
}

static uint64_t hash_matrix(uint64_t hash, struct attn_linear *linear,
                            const struct attn_weights_hash *weights)
{
    return hash_floats(hash_weights(hash, linear, weights), linear->bias, linear->out);
}

static uint64_t hash_sizes(uint64_t hash, const size_t *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = attn_hash_word(hash, sizes[i]);
    return hash;
}

static uint64_t hash_reals(uint64_t hash, const double *reals, size_t count)
{
    if (reals == NULL)
        return attn_hash_word(hash, ABSENT);
    hash = attn_hash_word(hash, count);
    for (size_t i = 0; i < count; i++)
        hash = hash_real(hash, reals[i]);
    return hash;
}

static uint64_t hash_rope(uint64_t hash, const struct attn_rope_spec *r)
{
    const size_t sizes[] = {(size_t)r->type, r->dim, r->interleaved, r->truncate};
    const double reals[] = {
        r->theta,           r->factor,           r->attention_factor, r->original_max_position,
        r->low_freq_factor, r->high_freq_factor, r->beta_fast,        r->beta_slow};
    hash = hash_sizes(hash, sizes, ATTN_COUNT(sizes));
    hash = hash_reals(hash, reals, ATTN_COUNT(reals));
    hash = hash_reals(hash, r->short_factor, r->dim / 2);
    return hash_reals(hash, r->long_factor, r->dim / 2);
}

/* Members that few layers have.  A layer without any of them adds nothing to the hash, so its
 * fingerprint is that of sessions that were kept before these members existed. */
static uint64_t hash_variants(uint64_t hash, const struct attn_layer_spec *s)
{
    const struct attn_norm_spec *qk = &s->qk_norm, *v = &s->v_norm;
    const struct attn_query_scaling *scaling = &s->query_scaling;
    const size_t sizes[] = {qk->type == ATTN_NORM_LAYER,
                            (size_t)qk->extent,
                            qk->weightless,
                            qk->bias,
                            qk->after_rope,
                            (size_t)v->type,
                            s->position_bias.by_slot,
                            s->position_bias.content_to_position,
                            s->position_bias.position_to_content,
                            s->position_bias.table_norm,
                            s->output_gate,
                            s->attention_chunk_size,
                            scaling->next,
                            scaling->by_slot,
                            s->shares_layer + 1,
                            s->rope.proportional_dim};
    const double reals[] = {v->eps, scaling->beta, scaling->period,
                            s->position_bias.table_norm_eps};
    bool any = v->eps != 0 || scaling->period != 0;
    for (size_t i = 0; i < ATTN_COUNT(sizes); i++)
        any = any || sizes[i] != 0;
    if (!any)
        return hash;
    hash = hash_sizes(hash, sizes, ATTN_COUNT(sizes));
    return hash_reals(hash, reals, ATTN_COUNT(reals));
}

/* Numbers of one layer or another, each hashed by itself where it is not 0, after its place. */
static uint64_t hash_numbers(uint64_t hash, const struct attn_layer_spec *s)
{
    const struct attn_position_bias_spec *b = &s->position_bias;
    const double numbers[] = {s->clip_qkv,
                              s->key_multiplier,
                              (double)s->output_norm.type,
                              s->output_norm.eps,
                              s->rope.reversed,
                              b->own_projections,
                              (double)b->max_after,
                              b->gated,
                              (double)b->grid,
                              (double)s->rope.grid_prefix,
                              (double)s->max_tokens,
                              s->gate_softplus,
                              s->gate_by_head,
                              s->rope.long_attention_factor};
    for (size_t i = 0; i < ATTN_COUNT(numbers); i++)
        if (numbers[i] != 0)
            hash = hash_real(attn_hash_word(hash, i), numbers[i]);
    return hash;
}

static uint64_t hash_spec(uint64_t hash, const struct attn_layer_spec *s)
{
    bool normed = s->qk_norm.type != ATTN_NORM_NONE;
    const struct attn_position_bias_spec *b = &s->position_bias;
    const size_t sizes[] = {s->hidden_size,     s->key_size,      s->value_size,
                            s->num_heads,       s->num_kv_heads,  s->head_dim,
                            s->value_head_dim,  s->is_causal,     s->is_cross,
                            s->q_bias,          s->k_bias,        s->v_bias,
                            s->o_bias,          s->bias_kv,       s->add_zero_attn,
                            s->sinks,           normed,           s->sliding_window,
                            (size_t)b->type,    b->bfloat16,      b->buckets,
                            b->max_distance,    b->bidirectional, (size_t)s->dtype,
                            (size_t)s->kv_dtype};
    const double reals[] = {s->scale, s->softcap, s->qk_norm.eps, b->scale};
    hash = hash_sizes(hash, sizes, ATTN_COUNT(sizes));
    hash = hash_reals(hash, reals, ATTN_COUNT(reals));
    return hash_numbers(hash_variants(hash_rope(hash, &s->rope), s), s);
}

uint64_t attn_layer_hash(uint64_t hash, struct attn_layer *layer,
                         const struct attn_weights_hash *weights)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_members all = attn_layer_members(spec);
    const struct attn_mla_spec *m = &spec->mla;
    const size_t latent[] = {m->kv_lora_rank, m->q_lora_rank, m->rope_head_dim};
    hash = hash_spec(hash, spec);
    for (size_t i = 0; i <= ATTN_MATRIX_O; i++)
        hash = hash_matrix(hash, &layer->matrices[i], weights);
    for (size_t i = 0; i <= ATTN_ARRAY_BIAS_TABLE; i++)
        hash = hash_floats(hash, layer->arrays[i], all.arrays[i].floats);
    if (layer->relative.keys != NULL)
        hash = hash_floats(hash, layer->relative.keys,
                           layer->relative.tiles * ATTN_TILE * layer->k.out);
    if (layer->relative.queries != NULL)
        hash = hash_floats(hash, layer->relative.queries, layer->relative.rows * layer->q.out);
    for (size_t i = ATTN_ARRAY_Q_NORM_BIAS; i <= ATTN_ARRAY_K_NORM_BIAS && spec->qk_norm.bias; i++)
        hash = hash_floats(hash, layer->arrays[i], all.arrays[i].floats);
    if (spec->output_gate)
        hash = hash_matrix(hash, &layer->gate, weights);
    if (spec->value_scale != 0)
        hash = hash_real(hash, spec->value_scale);
    if (spec->differential.lambda_init != 0)
        hash =
            hash_real(hash_real(hash, spec->differential.lambda_init), spec->differential.norm_eps);
    for (size_t i = ATTN_ARRAY_LAMBDA_Q1; i <= ATTN_ARRAY_LAMBDA_K2 && layer->lambda_q1; i++)
        hash = hash_floats(hash, layer->arrays[i], all.arrays[i].floats);
    if (layer->o_norm != NULL)
        hash = hash_floats(hash, layer->o_norm, layer->o.in);
    for (size_t i = ATTN_ARRAY_GATE_WEIGHT;
         i <= ATTN_ARRAY_GATE_CONSTANT && spec->position_bias.gated; i++)
        hash = hash_floats(hash, layer->arrays[i], all.arrays[i].floats);
    if (m->kv_lora_rank == 0)
        return hash;
    hash = hash_real(hash_sizes(hash, latent, ATTN_COUNT(latent)), m->norm_eps);
    for (size_t i = ATTN_MATRIX_KV_A; i <= ATTN_MATRIX_Q_A; i++)
        hash = m->bias ? hash_matrix(hash, &layer->matrices[i], weights)
                       : hash_weights(hash, &layer->matrices[i], weights);
    hash = hash_floats(hash, layer->kv_a_norm, m->kv_lora_rank);
    hash = hash_floats(hash, layer->q_a_norm, m->q_lora_rank);
    if (m->index.num_heads == 0)
        return hash;
    const size_t index[] = {m->index.num_heads, m->index.head_dim, m->index.topk,
                            m->index.interleaved};
    hash = hash_sizes(hash, index, ATTN_COUNT(index));
    for (size_t i = ATTN_MATRIX_INDEX_Q; i <= ATTN_MATRIX_INDEX_W; i++)
        hash = hash_weights(hash, &layer->matrices[i], weights);
    hash = hash_floats(hash, layer->index_norm, m->index.head_dim);
    return hash_floats(hash, layer->index_norm_bias, m->index.head_dim);
}
