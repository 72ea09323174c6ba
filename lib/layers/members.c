/* members.c: a specification -> the rows of a layer's matrices and arrays. */
#include "layers/members.h"

#include <string.h>

#include "engine/mask.h"
#include "layers/mla.h"

#define BIAS ATTN_RANDOM_BIAS
#define LAMBDA 0.5f /* bound of random lambdas */
#define SCORE 1     /* bound of random sinks and position biases */

static void set_matrices(struct attn_matrix_shape out[ATTN_NUM_MATRICES],
                         const struct attn_layer_spec *spec)
{
    const struct attn_mla_spec *m = &spec->mla;
    const struct attn_indexer_spec *index = &m->index;
    const bool latent = m->kv_lora_rank > 0;
    const size_t e = spec->hidden_size, heads = spec->num_heads, groups = spec->num_kv_heads;
    const size_t q_in = m->q_lora_rank > 0 ? m->q_lora_rank : e;
    const size_t k_in = latent ? m->kv_lora_rank : spec->key_size;
    const size_t v_in = latent ? m->kv_lora_rank : spec->value_size, a_in = latent ? e : 0;
    const size_t k_out = groups * (spec->head_dim - m->rope_head_dim);
    const size_t o_in = heads * spec->value_head_dim;
    const struct attn_matrix_shape shapes[ATTN_NUM_MATRICES] = {
        [ATTN_MATRIX_Q] = {q_in, heads * spec->head_dim, spec->q_bias},
        [ATTN_MATRIX_K] = {k_in, k_out, spec->k_bias},
        [ATTN_MATRIX_V] = {v_in, groups * spec->value_head_dim, spec->v_bias},
        [ATTN_MATRIX_O] = {o_in, e, spec->o_bias},
        [ATTN_MATRIX_GATE] = {e, attn_gate_width(spec), spec->output_gate && spec->q_bias},
        [ATTN_MATRIX_KV_A] = {a_in, m->kv_lora_rank, m->bias},
        [ATTN_MATRIX_K_ROPE] = {a_in, m->rope_head_dim, m->bias},
        [ATTN_MATRIX_Q_A] = {a_in, m->q_lora_rank, m->bias && m->q_lora_rank > 0},
        [ATTN_MATRIX_INDEX_Q] = {index->num_heads > 0 ? q_in : 0,
                                 index->num_heads * index->head_dim, false},
        [ATTN_MATRIX_INDEX_K] = {index->num_heads > 0 ? e : 0, index->head_dim, false},
        [ATTN_MATRIX_INDEX_W] = {index->num_heads > 0 ? e : 0, index->num_heads, false},
    };
    memcpy(out, shapes, sizeof shapes);
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        out[i].packed = out[i].in != 0 && out[i].out != 0 && !attn_mla_divides(spec, i);
}

/* The shape of weights of a norm of rows of `heads` heads. */
static struct attn_tensor_shape norm_shape(const struct attn_layer_spec *spec, size_t heads)
{
    const size_t d = spec->head_dim;
    if (spec->qk_norm.extent == ATTN_NORM_EACH_HEAD)
        return (struct attn_tensor_shape){2, {heads, d}};
    return (struct attn_tensor_shape){1, {spec->qk_norm.extent == ATTN_NORM_HEAD ? d : heads * d}};
}

/* The last rows: of differential attention, an indexer, and a dynamic mask; `floats` as set_arrays
 * has it. */
static void set_last_arrays(struct attn_array_row *out, const struct attn_layer_spec *spec)
{
    const bool lambda = spec->differential.lambda_init != 0;
    const size_t index = spec->mla.index.head_dim;
    const bool dynamic = spec->keep_window_size > 0;
    const size_t heads = spec->num_kv_heads, values = heads * spec->value_head_dim;
    const struct attn_tensor_shape of_head = {1, {spec->head_dim}}, of_key = {1, {index}};
    const struct attn_tensor_shape by_values = {2, {heads, values}}, of_heads = {1, {heads}};
    const struct attn_array_row last[] = {
        {"lambda_q1", ATTN_ROLE_LAMBDA, ATTN_PROJ_Q, lambda, of_head, LAMBDA, 0},
        {"lambda_k1", ATTN_ROLE_LAMBDA, ATTN_PROJ_K, lambda, of_head, LAMBDA, 0},
        {"lambda_q2", ATTN_ROLE_LAMBDA, ATTN_PROJ_V, lambda, of_head, LAMBDA, 0},
        {"lambda_k2", ATTN_ROLE_LAMBDA, ATTN_PROJ_O, lambda, of_head, LAMBDA, 0},
        {"indexer.k_norm", ATTN_ROLE_NORM, ATTN_PROJ_INDEX_K, index > 0, of_key, BIAS, 1},
        {"indexer.k_norm", ATTN_ROLE_NORM_BIAS, ATTN_PROJ_INDEX_K, index > 0, of_key, BIAS, 0},
        {"dt_proj", ATTN_ROLE_DYNAMIC_MASK, ATTN_PROJ_Q, dynamic, by_values, BIAS, 0},
        {"dt_proj", ATTN_ROLE_DYNAMIC_MASK, ATTN_PROJ_K, dynamic && spec->v_bias, of_heads, BIAS,
         0},
        {"A", ATTN_ROLE_DYNAMIC_MASK, ATTN_PROJ_V, dynamic, of_heads, SCORE, 0},
    };
    memcpy(out, last, sizeof last);
}

static void set_arrays(struct attn_array_row out[ATTN_NUM_ARRAYS],
                       const struct attn_layer_spec *spec)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const bool normed = spec->qk_norm.type != ATTN_NORM_NONE && !spec->qk_norm.weightless;
    const bool shifted = normed && spec->qk_norm.bias, t5 = bias->type == ATTN_BIAS_T5;
    const bool grid = bias->type == ATTN_BIAS_GRID, by_head = t5 || grid;
    const bool own_key = bias->own_projections && bias->content_to_position;
    const bool own_query = bias->own_projections && bias->position_to_content;
    const size_t e = spec->hidden_size, heads = spec->num_heads, rows = attn_relative_rows(spec);
    const size_t r = spec->mla.kv_lora_rank, q_rank = spec->mla.q_lora_rank;
    const struct attn_tensor_shape of_e = {1, {e}};
    const struct attn_tensor_shape heads_of_row = {1, {heads * spec->value_head_dim}};
    const struct attn_tensor_shape q_norm = norm_shape(spec, heads);
    const struct attn_tensor_shape k_norm = norm_shape(spec, spec->num_kv_heads);
    const struct attn_tensor_shape key = {3, {1, 1, spec->num_kv_heads * spec->head_dim}};
    const struct attn_tensor_shape value = {3, {1, 1, spec->num_kv_heads * spec->value_head_dim}};
    const struct attn_tensor_shape table = {2,
                                            {t5     ? bias->buckets
                                             : grid ? attn_grid_rows(bias->grid)
                                                    : rows,
                                             by_head                                ? heads
                                             : bias->type == ATTN_BIAS_RELATIVE_KEY ? spec->head_dim
                                                                                    : e}};
    const struct attn_tensor_shape square = {2, {heads * spec->head_dim, e}};
    const struct attn_tensor_shape of_heads = {1, {heads * spec->head_dim}};
    const struct attn_tensor_shape gate = {2, {ATTN_GATE_OUTPUTS, spec->head_dim}};
    const struct attn_array_row all[ATTN_NUM_ARRAYS] = {
        {"bias_k", ATTN_ROLE_BIAS_KV, ATTN_PROJ_K, spec->bias_kv, key, BIAS, 0},
        {"bias_v", ATTN_ROLE_BIAS_KV, ATTN_PROJ_V, spec->bias_kv, value, BIAS, 0},
        {"q_norm", ATTN_ROLE_NORM, ATTN_PROJ_Q, normed, q_norm, BIAS, 1},
        {"k_norm", ATTN_ROLE_NORM, ATTN_PROJ_K, normed, k_norm, BIAS, 1},
        {"sinks", ATTN_ROLE_SINKS, ATTN_PROJ_Q, spec->sinks, {1, {heads}}, SCORE, 0},
        {NULL, ATTN_ROLE_POSITION_BIAS, ATTN_PROJ_Q, by_head || rows > 0, table, SCORE, 0},
        {"q_norm", ATTN_ROLE_NORM_BIAS, ATTN_PROJ_Q, shifted, q_norm, BIAS, 0},
        {"k_norm", ATTN_ROLE_NORM_BIAS, ATTN_PROJ_K, shifted, k_norm, BIAS, 0},
        {NULL, ATTN_ROLE_POSITION_NORM, ATTN_PROJ_Q, bias->table_norm, of_e, BIAS, 1},
        {NULL, ATTN_ROLE_POSITION_NORM, ATTN_PROJ_K, bias->table_norm, of_e, BIAS, 0},
        {"q_a_layernorm", ATTN_ROLE_NORM, ATTN_PROJ_Q_A, q_rank > 0, {1, {q_rank}}, BIAS, 1},
        {"kv_a_layernorm", ATTN_ROLE_NORM, ATTN_PROJ_KV_A, r > 0, {1, {r}}, BIAS, 1},
        {"output_norm", ATTN_ROLE_NORM, ATTN_PROJ_O, spec->output_norm.type != 0, heads_of_row,
         BIAS, 1},
        {NULL, ATTN_ROLE_POSITION_PROJECTION, ATTN_PROJ_K, own_key, square, BIAS, 0},
        {NULL, ATTN_ROLE_POSITION_PROJECTION, ATTN_PROJ_Q, own_query, square, BIAS, 0},
        {NULL, ATTN_ROLE_POSITION_PROJECTION_BIAS, ATTN_PROJ_K, own_key && bias->own_key_bias,
         of_heads, BIAS, 0},
        {NULL, ATTN_ROLE_POSITION_PROJECTION_BIAS, ATTN_PROJ_Q, own_query, of_heads, BIAS, 0},
        {"gate", ATTN_ROLE_POSITION_GATE, ATTN_PROJ_Q, bias->gated, gate, BIAS, 0},
        {"gate",
         ATTN_ROLE_POSITION_GATE,
         ATTN_PROJ_K,
         bias->gated,
         {1, {ATTN_GATE_OUTPUTS}},
         BIAS,
         0},
        {"gate", ATTN_ROLE_POSITION_GATE, ATTN_PROJ_V, bias->gated, {4, {1, heads, 1, 1}}, BIAS, 1},
    };
    memcpy(out, all, sizeof all);
}

struct attn_members attn_layer_members(const struct attn_layer_spec *spec)
{
    struct attn_members all;
    set_matrices(all.matrices, spec);
    set_arrays(all.arrays, spec);
    set_last_arrays(all.arrays + ATTN_ARRAY_LAMBDA_Q1, spec);
    for (size_t i = 0; i < ATTN_NUM_ARRAYS; i++) /* so far 1 where the layer has the array */
        for (size_t n = 0; n < all.arrays[i].shape.ndim; n++)
            all.arrays[i].floats *= all.arrays[i].shape.size[n];
    return all;
}
