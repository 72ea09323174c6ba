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

static bool check_given(struct attn_resolution *r, const struct attn_hf_rope *rope)
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
    for (size_t i = 0; i < ATTN_COUNT(needs); i++) {
        const struct attn_hf_key *key = attn_hf_key_find(attn_rope_keys, needs[i].key);
        const void *field = (const char *)rope + key->offset;
        bool given = key->kind == ATTN_CONFIG_FACTORS
                         ? ((const struct attn_factors *)field)->count != 0
                         : *(const double *)field != 0;
        if (needs[i].type == rope->type && !given)
            return attn_refuse_key(r, ATTN_MALFORMED, "rope_scaling", ": %s needs %s",
                                   attn_rope_type_name(rope->type), key->name);
    }
    return true;
}

static bool check_factors(struct attn_resolution *r, const struct attn_hf_rope *rope, size_t dim)
{
    const char *const keys[] = {"short_factor", "long_factor"};
    const size_t counts[] = {rope->short_factor.count, rope->long_factor.count};
    for (size_t i = 0; i < 2; i++) {
        if (rope->type != ATTN_ROPE_LONGROPE && counts[i] != 0)
            return attn_refuse_key(r, ATTN_UNSUPPORTED, keys[i], " is for longrope only");
        if (rope->type == ATTN_ROPE_LONGROPE && counts[i] != dim / 2)
            return attn_refuse_key(r, ATTN_MALFORMED, keys[i],
                                   " has %zu entries, %zu components rotate in pairs", counts[i],
                                   dim);
    }
    if (rope->gain_factor != 0 && rope->type != ATTN_ROPE_YARN)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, "attn_factor", " is for yarn only");
    return (rope->gain_factor == 0 || rope->attention_factor == 0) ||
           attn_refuse_key(r, ATTN_MALFORMED, "attn_factor",
                           " contradicts attention_factor, which is the whole factor");
}

/* ---- Width --------------------------------------------------------------------------------- */

static bool rotary_dim(size_t *out, struct attn_resolution *r, const struct attn_hf_rope *rope,
                       size_t head_dim)
{
    /* Of latent attention the share may be that of the whole head, whose last part rotates. */
    const struct attn_hf_config *hf = &r->config->hf;
    const bool whole = hf->kv_lora_rank != 0 &&
                       lround((double)hf->head_dim * rope->partial_rotary_factor) == (long)head_dim;
    bool partial = rope->partial_rotary_factor != 0 && rope->partial_rotary_factor != 1 && !whole;
    const double own = r->config->family->defaults.rope.partial_rotary_factor;
    if (partial && rope->partial_rotary_factor != own &&
        ATTN_KEY(r, rope.partial_rotary_factor)[0] == '\0')
        return attn_refuse_key(r, ATTN_UNSUPPORTED, "partial_rotary_factor",
                               ": %g is not supported", rope->partial_rotary_factor);
    *out = partial ? (size_t)((double)head_dim * rope->partial_rotary_factor) : head_dim;
    if (partial && rope->dim != 0 && *out != rope->dim)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, rope.dim),
                               " is %zu, partial_rotary_factor makes %zu", rope->dim, *out);
    if (rope->dim != 0)
        *out = rope->dim;
    if (*out > head_dim)
        return attn_refuse_key(r, ATTN_OUT_OF_RANGE, ATTN_KEY(r, rope.dim),
                               " is %zu, at most head_dim, %zu", *out, head_dim);
    if (*out < 2 || *out % 2 != 0)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, "head_dim",
                               " is %zu, of which %zu components rotate; they must be pairs",
                               head_dim, *out);
    return true;
}

/* ---- Trained length, attention factor ------------------------------------------------------ */

/* The trained length.  dynamic takes max_position_embeddings whatever else is given, as both
 * versions do; yarn takes its own original_max_position_embeddings, as v4.55.4 does (v4.46.3 did
 * not read it); longrope takes that of the whole model first. */
static bool trained_length(double *out, struct attn_resolution *r, const struct attn_hf_rope *rope)
{
    const struct attn_hf_config *hf = &r->config->hf;
    size_t trained = (size_t)rope->original_max_position;
    if (rope->type == ATTN_ROPE_DYNAMIC || trained == 0)
        trained = hf->max_position;
    if (rope->type == ATTN_ROPE_LONGROPE && hf->original_max_position != 0)
        trained = hf->original_max_position;
    if (trained == 0 || (rope->type == ATTN_ROPE_LONGROPE && hf->max_position == 0))
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, max_position),
                               " is missing, rope_scaling needs it");
    if (trained == 1)
        return attn_refuse_key(r, ATTN_OUT_OF_RANGE, "original_max_position_embeddings",
                               " is 1, scaling needs at least 2");
    *out = (double)trained;
    return true;
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
    const double own = rope->gain_factor != 0 ? rope->gain_factor : 1;
    if (rope->attention_factor != 0)
        return rope->attention_factor;
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return own * attn_yarn_gain(rope->factor, rope->mscale) /
               attn_yarn_gain(rope->factor, rope->mscale_all_dim);
    return own * attn_yarn_gain(rope->factor, 1);
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

/* ---- The whole ----------------------------------------------------------------------------- */

/* Fills what a type has of its own. */
static bool resolve_type(struct attn_rope_spec *out, struct attn_resolution *r,
                         const struct attn_hf_rope *rope)
{
    if (out->type == ATTN_ROPE_DEFAULT || out->type == ATTN_ROPE_PROPORTIONAL)
        return true;
    if (out->type != ATTN_ROPE_LONGROPE)
        out->factor = rope->factor;
    if (out->type != ATTN_ROPE_LINEAR && !trained_length(&out->original_max_position, r, rope))
        return false;
    if (out->type == ATTN_ROPE_LLAMA3) {
        out->low_freq_factor = rope->low_freq_factor;
        out->high_freq_factor = rope->high_freq_factor;
    } else if (out->type == ATTN_ROPE_YARN) {
        out->beta_fast = rope->beta_fast != 0 ? rope->beta_fast : 32;
        out->beta_slow = rope->beta_slow != 0 ? rope->beta_slow : 1;
        out->truncate = rope->truncate;
        out->attention_factor = yarn_attention(rope);
    } else if (out->type == ATTN_ROPE_LONGROPE) {
        out->short_factor = rope->short_factor.values;
        out->long_factor = rope->long_factor.values;
        out->attention_factor =
            rope->short_mscale != 0
                ? rope->short_mscale
                : longrope_attention(&r->config->hf, rope, out->original_max_position);
        out->long_attention_factor = rope->long_mscale;
        if ((rope->short_mscale == 0) != (rope->long_mscale == 0))
            return attn_refuse_key(r, ATTN_MALFORMED, "rope_scaling",
                                   ": short_mscale and long_mscale need each other");
    }
    return true;
}

/* *out = RoPE of heads of width head_dim by `rope`. */
static bool rope_from_hf(struct attn_rope_spec *out, struct attn_resolution *r,
                         const struct attn_hf_rope *rope, size_t head_dim)
{
    *out = (struct attn_rope_spec){.type = ATTN_ROPE_NONE};
    if (rope->theta == 0 && (rope->type == ATTN_ROPE_NONE || r->config->hf.rope_optional))
        return true;
    if (rope->theta == 0)
        return attn_refuse_key(r, ATTN_MALFORMED, "rope_theta", " is missing");
    if (!check_given(r, rope) || !rotary_dim(&out->dim, r, rope, head_dim) ||
        !check_factors(r, rope, out->dim))
        return false;
    out->type = rope->type != ATTN_ROPE_NONE ? (enum attn_rope_type)rope->type : ATTN_ROPE_DEFAULT;
    out->interleaved = rope->interleaved;
    out->reversed = rope->reversed;
    if (r->config->hf.rope_by_grid)
        out->grid_prefix = 1 + r->config->hf.num_registers;
    out->theta = rope->theta * (rope->ratio != 0 ? rope->ratio : 1);
    out->attention_factor = 1;
    if (out->type == ATTN_ROPE_PROPORTIONAL) {
        if (rope->factor > 1)
            return attn_resolved(
                r, attn_fail(r->error, ATTN_UNSUPPORTED, "factor",
                             "rope_scaling: proportional with a factor of %g is not supported",
                             rope->factor));
        out->proportional_dim = out->dim;
        out->dim = head_dim - head_dim % 2;
    }
    if (rope->alpha != 0 && rope->type == ATTN_ROPE_DYNAMIC) { /* one base for every length */
        out->type = ATTN_ROPE_DEFAULT;
        if (head_dim > 2)
            out->theta *= pow(rope->alpha, (double)head_dim / (double)(head_dim - 2));
    }
    return resolve_type(out, r, rope) && attn_resolved(r, attn_rope_check(out, head_dim, r->error));
}

/* ---- By type of layer ---- */

/* Gives the two types of layers the shares that a list says of each layer. */
static bool resolve_partials(struct attn_hf_rope *full, struct attn_hf_rope *sliding,
                             struct attn_resolution *r)
{
    const struct attn_config *config = r->config;
    double shares[2] = {0, 0};
    for (size_t i = 0; config->hf.num_partials != 0 && i < config->num_layers; i++) {
        double *share = &shares[config->types[i] == ATTN_LAYER_SLIDING];
        if (*share != 0 && *share != config->partials[i])
            return attn_refuse_key(r, ATTN_UNSUPPORTED, ATTN_KEY(r, num_partials),
                                   " of layers of one type differ: write one share for all of "
                                   "them");
        *share = config->partials[i];
    }
    if (shares[0] != 0)
        full->partial_rotary_factor = shares[0];
    if (shares[1] != 0)
        sliding->partial_rotary_factor = shares[1];
    return true;
}

bool attn_resolve_rope(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    struct attn_hf_rope full = hf->rope, sliding = hf->rope_by_type ? hf->sliding_rope : hf->rope;
    const bool named = attn_hf_key_for_field(r->config->family->keys, HF_FIELD(position_type));
    const bool rotates = (!hf->alibi || !hf->alibi_replaces_rope) &&
                         (!named || hf->position_type == ATTN_POSITION_ROTARY);
    bool resolved = true;
    if (sliding.theta == 0)
        sliding.theta = hf->rope.theta;
    if (hf->partial_by_type)
        sliding.partial_rotary_factor = hf->rope.partial_rotary_factor;
    if (!resolve_partials(&full, &sliding, r))
        return false;
    for (size_t type = 0; type < ATTN_LAYER_LINEAR && resolved; type++) {
        struct attn_layer_spec *spec = &r->config->specs[type];
        const size_t latent = spec->mla.rope_head_dim;
        if (rotates)
            resolved = rope_from_hf(&spec->rope, r, type == ATTN_LAYER_SLIDING ? &sliding : &full,
                                    latent != 0 ? latent : spec->head_dim);
    }
    return resolved;
}
