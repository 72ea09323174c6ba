/* weight_shapes.c: which tensors a specification asks for, and their shapes. */
#include "families/weight_shapes.h"

const unsigned attn_projections[ATTN_NUM_PROJECTIONS] = {
    ATTN_PROJ_Q,    ATTN_PROJ_K,    ATTN_PROJ_V,      ATTN_PROJ_O,
    ATTN_PROJ_GATE, ATTN_PROJ_KV_A, ATTN_PROJ_K_ROPE, ATTN_PROJ_Q_A};
static struct attn_projection_shape shape_of(const struct attn_layer_spec *spec,
                                             unsigned projection)
{
    const struct attn_mla_spec *mla = &spec->mla;
    const bool latent = mla->kv_lora_rank > 0;
    switch (projection) {
    case ATTN_PROJ_Q:
        return (struct attn_projection_shape){mla->q_lora_rank > 0 ? mla->q_lora_rank
                                                                   : spec->hidden_size,
                                              spec->num_heads * spec->head_dim};
    case ATTN_PROJ_K:
        return (struct attn_projection_shape){latent ? mla->kv_lora_rank : spec->key_size,
                                              spec->num_kv_heads *
                                                  (spec->head_dim - mla->rope_head_dim)};
    case ATTN_PROJ_V:
        return (struct attn_projection_shape){latent ? mla->kv_lora_rank : spec->value_size,
                                              spec->num_kv_heads * spec->value_head_dim};
    case ATTN_PROJ_GATE:
        return (struct attn_projection_shape){spec->hidden_size,
                                              spec->num_heads * spec->value_head_dim};
    case ATTN_PROJ_KV_A:
        return (struct attn_projection_shape){spec->hidden_size, mla->kv_lora_rank};
    case ATTN_PROJ_K_ROPE:
        return (struct attn_projection_shape){spec->hidden_size, mla->rope_head_dim};
    case ATTN_PROJ_Q_A:
        return (struct attn_projection_shape){spec->hidden_size, mla->q_lora_rank};
    default:
        return (struct attn_projection_shape){spec->num_heads * spec->value_head_dim,
                                              spec->hidden_size};
    }
}

/* The projections to latents. */
static unsigned latents_of(const struct attn_layer_spec *spec)
{
    return (spec->mla.kv_lora_rank > 0 ? (unsigned)ATTN_PROJ_KV_A : 0u) |
           (spec->mla.q_lora_rank > 0 ? (unsigned)ATTN_PROJ_Q_A : 0u);
}

unsigned attn_needed_projections(const struct attn_layer_spec *spec, enum attn_tensor_role role)
{
    unsigned gate = spec->output_gate ? ATTN_PROJ_GATE : 0u;
    unsigned latents = latents_of(spec);
    bool weighted = attn_norm_floats(&spec->qk_norm, 1, 1) != 0;
    switch (role) {
    case ATTN_ROLE_WEIGHT:
        return ATTN_PROJ_ALL | gate | latents | (latents != 0 ? (unsigned)ATTN_PROJ_K_ROPE : 0u);
    case ATTN_ROLE_BIAS:
        return (spec->q_bias ? ATTN_PROJ_Q | gate : 0u) | (spec->k_bias ? ATTN_PROJ_K : 0u) |
               (spec->v_bias ? ATTN_PROJ_V : 0u) | (spec->o_bias ? ATTN_PROJ_O : 0u);
    case ATTN_ROLE_BIAS_KV:
        return spec->bias_kv ? ATTN_PROJ_K | ATTN_PROJ_V : 0u;
    case ATTN_ROLE_NORM:
        return (weighted ? ATTN_PROJ_Q | ATTN_PROJ_K : 0u) | latents;
    case ATTN_ROLE_NORM_BIAS:
        return weighted && spec->qk_norm.bias ? ATTN_PROJ_Q | ATTN_PROJ_K : 0u;
    case ATTN_ROLE_SINKS:
        return spec->sinks ? ATTN_PROJ_Q : 0u;
    case ATTN_ROLE_POSITION_NORM:
        return spec->position_bias.table_norm ? ATTN_PROJ_Q | ATTN_PROJ_K : 0u;
    case ATTN_ROLE_POSITION_BIAS:
        break;
    }
    return attn_layer_table_floats(spec) != 0 ? ATTN_PROJ_Q : 0u;
}

bool attn_fused_shape(struct attn_projection_shape *out, const struct attn_layer_spec *spec,
                      const struct attn_family_tensor *pattern)
{
    *out = (struct attn_projection_shape){0, 0};
    for (size_t i = 0; i < ATTN_NUM_PROJECTIONS; i++) {
        if ((pattern->projections & attn_projections[i]) == 0)
            continue;
        struct attn_projection_shape shape = shape_of(spec, attn_projections[i]);
        if (out->in != 0 && out->in != shape.in && pattern->role == ATTN_ROLE_WEIGHT)
            return false;
        out->in = shape.in;
        out->out += shape.out;
    }
    return true;
}

static struct attn_tensor_shape norm_shape(const struct attn_layer_spec *spec, unsigned projection)
{
    size_t heads = projection == ATTN_PROJ_Q ? spec->num_heads : spec->num_kv_heads;
    if (spec->qk_norm.extent == ATTN_NORM_EACH_HEAD)
        return (struct attn_tensor_shape){2, {heads, spec->head_dim}};
    return (struct attn_tensor_shape){1, {attn_norm_floats(&spec->qk_norm, heads, spec->head_dim)}};
}

struct attn_tensor_shape attn_tensor_shape(enum attn_layout layout,
                                           const struct attn_layer_spec *spec,
                                           const struct attn_family_tensor *pattern)
{
    struct attn_projection_shape fused;
    attn_fused_shape(&fused, spec, pattern);
    switch (pattern->role) {
    case ATTN_ROLE_WEIGHT:
        if (layout == ATTN_LAYOUT_TRANSPOSED)
            return (struct attn_tensor_shape){2, {fused.in, fused.out}};
        return (struct attn_tensor_shape){2, {fused.out, fused.in}};
    case ATTN_ROLE_BIAS:
        return (struct attn_tensor_shape){1, {fused.out}};
    case ATTN_ROLE_BIAS_KV:
        return (struct attn_tensor_shape){3, {1, 1, fused.out}};
    case ATTN_ROLE_NORM:
        if ((latents_of(spec) & pattern->projections) != 0)
            return (struct attn_tensor_shape){1, {fused.out}};
        return norm_shape(spec, pattern->projections);
    case ATTN_ROLE_NORM_BIAS:
        return norm_shape(spec, pattern->projections);
    case ATTN_ROLE_SINKS:
        return (struct attn_tensor_shape){1, {spec->num_heads}};
    case ATTN_ROLE_POSITION_NORM:
        return (struct attn_tensor_shape){1, {spec->hidden_size}};
    case ATTN_ROLE_POSITION_BIAS:
        break;
    }
    if (spec->position_bias.type == ATTN_BIAS_DISENTANGLED)
        return (struct attn_tensor_shape){2, {attn_relative_rows(spec), spec->hidden_size}};
    return (struct attn_tensor_shape){2, {spec->position_bias.buckets, spec->num_heads}};
}
