/* rope.c: the RoPE keys of a configuration -> struct attn_rope_spec.
 *
 * The rules follow modeling_rope_utils.py of huggingface/transformers v4.46.3 and v4.55.4.  Where
 * the two differ, or later versions differ from them, a comment states the choice; configurations
 * that are consistent in themselves mean the same everywhere. */
#include <math.h>

#include "basics/status.h"
#include "engine/rope.h"
#include "families/spec.h"

/* ---- What a type needs --------------------------------------------------------------------- */

static const char *type_name(size_t type)
{
    const struct attn_rope_name *known = attn_rope_names;
    while (known->name != NULL && known->type != type)
        known++;
    return known->name != NULL ? known->name : "";
}

static enum attn_status check_given(const struct attn_hf_rope *rope, struct attn_error *error)
{
    static const struct {
        enum attn_rope_type type;
        const char *key;
    } needs[] = {
        {ATTN_ROPE_LINEAR, "factor"},
        {ATTN_ROPE_DYNAMIC, "factor"},
        {ATTN_ROPE_YARN, "factor"},
        {ATTN_ROPE_LLAMA3, "factor"},
        {ATTN_ROPE_LLAMA3, "low_freq_factor"},
        {ATTN_ROPE_LLAMA3, "high_freq_factor"},
        {ATTN_ROPE_LLAMA3, "original_max_position_embeddings"},
        {ATTN_ROPE_LONGROPE, "short_factor"},
        {ATTN_ROPE_LONGROPE, "long_factor"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        const struct attn_hf_key *key = attn_hf_key_find(attn_rope_keys, needs[i].key);
        const void *field = (const char *)rope + key->offset;
        bool given = key->kind == ATTN_CONFIG_FACTORS
                         ? ((const struct attn_factors *)field)->count != 0
                         : *(const double *)field != 0;
        if (needs[i].type == rope->type && !given)
            return attn_fail(error, ATTN_MALFORMED, "rope_scaling", "rope_scaling: %s needs %s",
                             type_name(rope->type), key->name);
    }
    return ATTN_OK;
}

static enum attn_status check_factors(const struct attn_hf_rope *rope, size_t dim,
                                      struct attn_error *error)
{
    const struct {
        const struct attn_factors *list;
        const char *key;
    } lists[] = {{&rope->short_factor, "short_factor"}, {&rope->long_factor, "long_factor"}};
    for (size_t i = 0; i < 2; i++) {
        size_t count = lists[i].list->count;
        const char *key = lists[i].key;
        if (rope->type != ATTN_ROPE_LONGROPE && count != 0)
            return attn_fail(error, ATTN_UNSUPPORTED, key, "%s is for longrope only", key);
        if (rope->type == ATTN_ROPE_LONGROPE && count != dim / 2)
            return attn_fail(error, ATTN_MALFORMED, key,
                             "%s has %zu entries, %zu components rotate in pairs", key, count, dim);
    }
    return ATTN_OK;
}

/* ---- Width --------------------------------------------------------------------------------- */

static enum attn_status rotary_dim(size_t *out, const struct attn_family *family,
                                   const struct attn_hf_rope *rope, size_t head_dim,
                                   struct attn_error *error)
{
    const char *key = attn_family_key_name(family, HF_FIELD(rope.dim));
    bool partial = rope->partial_rotary_factor != 0 && rope->partial_rotary_factor != 1;
    if (partial &&
        attn_hf_key_for_field(family->keys, HF_FIELD(rope.partial_rotary_factor)) == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, "partial_rotary_factor",
                         "partial_rotary_factor: %g is not supported", rope->partial_rotary_factor);
    *out = partial ? (size_t)((double)head_dim * rope->partial_rotary_factor) : head_dim;
    if (rope->dim != 0)
        *out = rope->dim;
    if (*out > head_dim)
        return attn_fail(error, ATTN_OUT_OF_RANGE, key, "%s is %zu, at most head_dim, %zu", key,
                         *out, head_dim);
    if (*out < 2 || *out % 2 != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "head_dim",
                         "head_dim is %zu, of which %zu components rotate; they must be pairs",
                         head_dim, *out);
    return ATTN_OK;
}

/* ---- Trained length, attention factor ------------------------------------------------------ */

/* The trained length.  dynamic takes max_position_embeddings whatever else is given, as both
 * versions do; yarn takes its own original_max_position_embeddings, as v4.55.4 does (v4.46.3 did
 * not read it); longrope takes that of the whole model first. */
static size_t trained_length(const struct attn_hf_config *hf, const struct attn_hf_rope *rope)
{
    size_t own = (size_t)rope->original_max_position;
    if (rope->type == ATTN_ROPE_LONGROPE && hf->original_max_position != 0)
        return hf->original_max_position;
    if (rope->type == ATTN_ROPE_DYNAMIC || own == 0)
        return hf->max_position;
    return own;
}

double attn_yarn_gain(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* The attention factor of yarn.  `factor` is taken as the configuration gives it.  Some versions
 * between the two tags took max_position_embeddings / original_max_position_embeddings instead;
 * files that have the trained length in both would then not be scaled at all, though their authors
 * scale them. */
static double yarn_attention(const struct attn_hf_rope *rope)
{
    if (rope->attention_factor != 0)
        return rope->attention_factor;
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return attn_yarn_gain(rope->factor, rope->mscale) /
               attn_yarn_gain(rope->factor, rope->mscale_all_dim);
    return attn_yarn_gain(rope->factor, 1);
}

/* The attention factor of longrope.  Where the model gives its trained length, the ratio of the two
 * lengths counts, whatever `factor` says; else `factor`, or the ratio where there is none. */
static double longrope_attention(const struct attn_hf_config *hf, const struct attn_hf_rope *rope,
                                 double trained)
{
    double factor = (double)hf->max_position / trained;
    if (hf->original_max_position == 0 && rope->factor != 0)
        factor = rope->factor;
    if (rope->attention_factor != 0)
        return rope->attention_factor;
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(trained));
}

static enum attn_status resolve_length(struct attn_rope_spec *out, const struct attn_family *family,
                                       const struct attn_hf_config *hf,
                                       const struct attn_hf_rope *rope, struct attn_error *error)
{
    const char *key = attn_family_key_name(family, HF_FIELD(max_position));
    size_t trained = trained_length(hf, rope);
    if (trained == 0 || (rope->type == ATTN_ROPE_LONGROPE && hf->max_position == 0))
        return attn_fail(error, ATTN_MALFORMED, key, "%s is missing, rope_scaling needs it", key);
    if (trained == 1)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "original_max_position_embeddings",
                         "original_max_position_embeddings is 1, scaling needs at least 2");
    out->original_max_position = (double)trained;
    return ATTN_OK;
}

/* ---- The whole ----------------------------------------------------------------------------- */

static void resolve_llama3(struct attn_rope_spec *out, const struct attn_hf_rope *rope)
{
    out->low_freq_factor = rope->low_freq_factor;
    out->high_freq_factor = rope->high_freq_factor;
}

static void resolve_yarn(struct attn_rope_spec *out, const struct attn_hf_rope *rope)
{
    out->beta_fast = rope->beta_fast != 0 ? rope->beta_fast : 32;
    out->beta_slow = rope->beta_slow != 0 ? rope->beta_slow : 1;
    out->truncate = rope->truncate;
    out->attention_factor = yarn_attention(rope);
}

static enum attn_status resolve_type(struct attn_rope_spec *out, const struct attn_family *family,
                                     const struct attn_hf_config *hf,
                                     const struct attn_hf_rope *rope, struct attn_error *error)
{
    if (out->type == ATTN_ROPE_DEFAULT || out->type == ATTN_ROPE_PROPORTIONAL)
        return ATTN_OK;
    if (out->type != ATTN_ROPE_LONGROPE)
        out->factor = rope->factor;
    if (out->type != ATTN_ROPE_LINEAR) {
        enum attn_status status = resolve_length(out, family, hf, rope, error);
        if (status != ATTN_OK)
            return status;
    }
    if (out->type == ATTN_ROPE_LLAMA3)
        resolve_llama3(out, rope);
    if (out->type == ATTN_ROPE_YARN)
        resolve_yarn(out, rope);
    if (out->type == ATTN_ROPE_LONGROPE) {
        out->short_factor = rope->short_factor.values;
        out->long_factor = rope->long_factor.values;
        out->attention_factor = longrope_attention(hf, rope, out->original_max_position);
    }
    return ATTN_OK;
}

/* dynamic with alpha: one base for every length. */
static enum attn_status resolve_alpha(struct attn_rope_spec *out, const struct attn_hf_rope *rope,
                                      size_t head_dim, struct attn_error *error)
{
    out->type = ATTN_ROPE_DEFAULT;
    out->attention_factor = 1;
    if (head_dim > 2)
        out->theta *= pow(rope->alpha, (double)head_dim / (double)(head_dim - 2));
    return attn_rope_check(out, head_dim, error);
}

enum attn_status attn_rope_from_hf(struct attn_rope_spec *out, const struct attn_family *family,
                                   const struct attn_hf_config *hf, const struct attn_hf_rope *rope,
                                   size_t head_dim, struct attn_error *error)
{
    *out = (struct attn_rope_spec){.type = ATTN_ROPE_NONE};
    if (rope->theta == 0 && rope->type == ATTN_ROPE_NONE)
        return ATTN_OK;
    if (rope->theta == 0)
        return attn_fail(error, ATTN_MALFORMED, "rope_theta", "rope_theta is missing");
    enum attn_status status = check_given(rope, error);
    if (status == ATTN_OK)
        status = rotary_dim(&out->dim, family, rope, head_dim, error);
    if (status == ATTN_OK)
        status = check_factors(rope, out->dim, error);
    if (status != ATTN_OK)
        return status;
    out->type = rope->type != ATTN_ROPE_NONE ? (enum attn_rope_type)rope->type : ATTN_ROPE_DEFAULT;
    out->interleaved = rope->interleaved;
    if (out->type == ATTN_ROPE_PROPORTIONAL && rope->factor > 1)
        return attn_fail(error, ATTN_UNSUPPORTED, "factor",
                         "rope_scaling: proportional with a factor of %g is not supported",
                         rope->factor);
    if (out->type == ATTN_ROPE_PROPORTIONAL) {
        out->proportional_dim = out->dim;
        out->dim = head_dim - head_dim % 2;
    }
    out->theta = rope->theta;
    if (rope->alpha != 0 && rope->type == ATTN_ROPE_DYNAMIC)
        return resolve_alpha(out, rope, head_dim, error);
    out->attention_factor = 1;
    status = resolve_type(out, family, hf, rope, error);
    return status == ATTN_OK ? attn_rope_check(out, head_dim, error) : status;
}
