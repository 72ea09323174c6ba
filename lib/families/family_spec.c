/* family_spec.c: settings -> the specification of each layer.
 *
 * What is not given is computed from the rest, and what must fit together is checked.  Layers of
 * one model differ in few things: whether they slide, and with that their RoPE, and the scale. */
#include "families/family_spec.h"

#include <math.h>

#include "status.h"

#define SETTING(field) offsetof(struct attn_hf_config, field)

const char *attn_family_key_name(const struct attn_family *family, size_t offset)
{
    const struct attn_hf_key *key = attn_hf_key_for_field(family->keys, offset);
    return key != NULL ? key->name : "";
}

static enum attn_status check_present(const struct attn_family *family,
                                      const struct attn_hf_config *settings,
                                      struct attn_error *error)
{
    const struct {
        size_t value, offset;
    } needed[] = {
        {settings->hidden_size, SETTING(hidden_size)},
        {settings->num_heads, SETTING(num_heads)},
        {settings->num_layers, SETTING(num_layers)},
    };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const char *key = attn_family_key_name(family, needed[i].offset);
        if (needed[i].value == 0)
            return attn_fail(error, ATTN_MALFORMED, key, "%s is missing", key);
    }
    return ATTN_OK;
}

/* ---- Heads --------------------------------------------------------------------------------- */

static size_t kv_heads(const struct attn_family *family, const struct attn_hf_config *settings)
{
    if (family->kv_by_flags && !settings->grouped)
        return settings->multi_query ? 1 : settings->num_heads;
    return settings->num_kv_heads != 0 ? settings->num_kv_heads : settings->num_heads;
}

static double scale_of(const struct attn_hf_config *settings, size_t head_dim)
{
    if (settings->scale != 0 || !settings->scaled)
        return settings->scale != 0 ? settings->scale : 1;
    return 1 / sqrt(settings->query_scalar != 0 ? settings->query_scalar : (double)head_dim);
}

static enum attn_status resolve_heads(struct attn_layer_spec *spec,
                                      const struct attn_family *family,
                                      const struct attn_hf_config *settings,
                                      struct attn_error *error)
{
    const char *key = attn_family_key_name(family, SETTING(num_heads));
    const char *kv_key = attn_family_key_name(family, SETTING(num_kv_heads));
    spec->hidden_size = settings->hidden_size;
    spec->key_size = settings->key_size != 0 ? settings->key_size : spec->hidden_size;
    spec->value_size = settings->value_size != 0 ? settings->value_size : spec->hidden_size;
    spec->num_heads = settings->num_heads;
    spec->num_kv_heads = kv_heads(family, settings);
    if (spec->num_heads % spec->num_kv_heads != 0)
        return attn_fail(error, ATTN_MALFORMED, kv_key,
                         "%s is %zu, which does not divide %zu heads", kv_key, spec->num_kv_heads,
                         spec->num_heads);

    spec->head_dim = settings->head_dim;
    if (spec->head_dim == 0) {
        if (spec->hidden_size % spec->num_heads != 0)
            return attn_fail(error, ATTN_MALFORMED, key,
                             "%s is %zu, which does not divide a width of %zu", key,
                             spec->num_heads, spec->hidden_size);
        spec->head_dim = spec->hidden_size / spec->num_heads;
    }
    spec->value_head_dim =
        settings->value_head_dim != 0 ? settings->value_head_dim : spec->head_dim;
    spec->scale = scale_of(settings, spec->head_dim);
    return attn_check_count(spec->head_dim, ATTN_MAX_HEAD_DIM, "head_dim", error);
}

/* ---- What else layers have in common ------------------------------------------------------- */

static void resolve_flags(struct attn_layer_spec *spec, const struct attn_family *family,
                          const struct attn_hf_config *settings)
{
    unsigned biased = settings->bias ? ATTN_PROJ_ALL & ~family->unbiased : 0u;
    spec->q_bias = (biased & ATTN_PROJ_Q) != 0;
    spec->k_bias = (biased & ATTN_PROJ_K) != 0;
    spec->v_bias = (biased & ATTN_PROJ_V) != 0;
    spec->o_bias = (biased & ATTN_PROJ_O) != 0;
    spec->bias_kv = settings->bias_kv;
    spec->add_zero_attn = settings->add_zero_attn;
    spec->is_causal = settings->is_causal;
    spec->is_cross = settings->is_cross;
    spec->sinks = settings->sinks;
    spec->qk_norm = settings->qk_norm;
    spec->norm_eps = settings->qk_norm ? settings->norm_eps : 0;
    spec->softcap = settings->softcap;
}

/* T5's encoder looks both ways and tells the two apart; its decoder looks back. */
static enum attn_status resolve_position_bias(struct attn_layer_spec *spec,
                                              const struct attn_family *family,
                                              const struct attn_hf_config *settings,
                                              struct attn_error *error)
{
    const char *key = attn_family_key_name(family, SETTING(buckets));
    if (settings->alibi && settings->buckets != 0)
        return attn_fail(error, ATTN_MALFORMED, key, "%s contradicts alibi", key);
    if (settings->alibi)
        spec->position_bias = (struct attn_position_bias_spec){
            .type = ATTN_BIAS_ALIBI,
            .scale = settings->alibi_scaled ? 1 / sqrt((double)spec->head_dim) : 1,
            .bfloat16 = settings->alibi_bfloat16,
        };
    else if (settings->buckets != 0)
        spec->position_bias = (struct attn_position_bias_spec){
            .type = ATTN_BIAS_T5,
            .buckets = settings->buckets,
            .max_distance = settings->max_distance,
            .bidirectional = !settings->is_causal,
        };
    return ATTN_OK;
}

/* ---- What they differ in ------------------------------------------------------------------- */

static enum attn_status resolve_sliding(struct attn_config *config,
                                        const struct attn_hf_config *settings,
                                        struct attn_error *error)
{
    const char *key = attn_family_key_name(config->family, SETTING(num_layer_types));
    size_t types = settings->num_layer_types;
    config->sliding_window = settings->use_window ? settings->sliding_window : 0;
    if (types != 0 && types != config->num_layers)
        return attn_fail(error, ATTN_MALFORMED, key, "%s has %zu entries for %zu layers", key,
                         types, config->num_layers);
    size_t period = settings->sliding_period != 0 ? settings->sliding_period : 1;
    for (size_t i = 0; types == 0 && i < config->num_layers; i++)
        config->sliding[i] = config->sliding_window != 0 && i >= settings->first_sliding &&
                             (i - settings->first_sliding) % period == 0;
    return ATTN_OK;
}

static enum attn_status resolve_rope(struct attn_config *config,
                                     const struct attn_hf_config *settings,
                                     struct attn_error *error)
{
    const struct attn_hf_rope *sliding =
        settings->rope_by_type ? &settings->sliding_rope : &settings->rope;
    size_t head_dim = config->spec.head_dim;
    if (settings->alibi && settings->alibi_replaces_rope)
        return ATTN_OK;
    enum attn_status status = attn_rope_from_hf(&config->rope[0], config->family, settings,
                                                &settings->rope, head_dim, error);
    if (status != ATTN_OK)
        return status;
    return attn_rope_from_hf(&config->rope[1], config->family, settings, sliding, head_dim, error);
}

enum attn_status attn_config_from_hf(struct attn_config *config, const struct attn_hf_config *given,
                                     struct attn_error *error)
{
    struct attn_hf_config settings = *given;
    const struct attn_family *family = config->family;
    if (settings.num_layers == 0)
        settings.num_layers = settings.num_layers_otherwise;
    enum attn_status status = check_present(family, &settings, error);
    if (status != ATTN_OK)
        return status;

    config->num_layers = settings.num_layers;
    config->max_position = settings.max_position;
    config->seed = settings.seed;
    config->scale_by_layer = settings.scale_by_layer;
    resolve_flags(&config->spec, family, &settings);
    status = resolve_heads(&config->spec, family, &settings, error);
    if (status == ATTN_OK)
        status = resolve_position_bias(&config->spec, family, &settings, error);
    if (status == ATTN_OK)
        status = resolve_sliding(config, &settings, error);
    return status == ATTN_OK ? resolve_rope(config, &settings, error) : status;
}

void attn_config_layer_spec(struct attn_layer_spec *out, const struct attn_config *config,
                            size_t layer)
{
    bool sliding = config->sliding[layer];
    *out = config->spec;
    out->rope = config->rope[sliding];
    out->sliding_window = sliding ? config->sliding_window : 0;
    if (config->scale_by_layer)
        out->scale /= (double)(layer + 1);
}
