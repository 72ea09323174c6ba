/* gguf_rope.c: keys and tensors of a GGUF file -> the RoPE members of a config.json. */
#include "files/gguf_keys.h"

#include <math.h>
#include <string.h>

/* Writes the numbers of a vector of the file. */
static void put_factors(struct attn_gguf_text *w, const char *member,
                        const struct attn_tensor_entry *entry)
{
    float factors[ATTN_MAX_HEAD_DIM];
    const size_t count = entry->ndim == 1 ? entry->shape[0] : 0;
    if (count == 0 || count > ATTN_MAX_HEAD_DIM)
        ATTN_GGUF_FAIL(w, ATTN_SHAPE_MISMATCH, entry->name,
                       "%.96s is no vector of up to %d numbers", entry->name, ATTN_MAX_HEAD_DIM);
    if (w->status == ATTN_OK)
        w->status = attn_gguf_read_f32(factors, entry, 0, count, w->error);
    attn_gguf_put(w, ", \"%s\": [", member);
    for (size_t i = 0; i < count && w->status == ATTN_OK; i++)
        attn_gguf_put(w, "%s%.9g", i > 0 ? ", " : "", (double)factors[i]);
    attn_gguf_put(w, "]");
}

/* YaRN's gain of a factor: 0.1 m ln factor + 1. */
static double yarn_gain(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* llama.cpp multiplies by attn_factor what config.json replaces by attention_factor.  The key of
 * mscale_all_dim has a tenth of it where attention is latent; mscale is the same then, else 1. */
static void put_yarn(struct attn_gguf_text *w, double factor, double attention)
{
    static const struct {
        const char *file, *published;
    } betas[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                 {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    const double all = attn_gguf_read_number(w, "rope.scaling.yarn_log_multiplier", 0);
    const double given = attn_gguf_read_number(w, "rope.scaling.yarn_attn_factor", 0);
    const double extrapolation = attn_gguf_read_number(w, "rope.scaling.yarn_ext_factor", 1);
    for (size_t i = 0; i < 2; i++)
        if (attn_gguf_find_key(w, betas[i].file) != NULL)
            attn_gguf_put_number(w, betas[i].published, attn_gguf_read_number(w, betas[i].file, 0));
    if (extrapolation != 1)
        ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.yarn_ext_factor",
                       "%s.rope.scaling.yarn_ext_factor is %g, wanted is 1", w->architecture->name,
                       extrapolation);
    if (attn_gguf_has_member(w, "kv_lora_rank")) {
        if (attention != 1 || given != 0)
            ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.attn_factor",
                           "an attn_factor of YaRN is not read for %s", w->architecture->name);
        attn_gguf_put(w, ", \"mscale\": %.6g, \"mscale_all_dim\": %.6g", 10 * all, 10 * all);
    } else if (attention != 1 || given != 0 || all != 0) {
        const double gain = yarn_gain(factor, 1) / yarn_gain(factor, all);
        attn_gguf_put(w, ", \"attention_factor\": %.17g", attention * (given != 0 ? given : gain));
    }
    if (w->architecture->yarn != NULL)
        attn_gguf_put(w, ", %s", w->architecture->yarn);
}

/* Lists of factors of frequencies: longrope's, or Llama 3's, which the conversion has computed, one
 * list for all lengths then. */
struct factors {
    const struct attn_tensor_entry *shorter, *longer, *all;
};

/* The type of the scaling in config.json, and its factor.  As in llama.cpp a factor alone is
 * linear; rope.scale_linear is what its key was once. */
static const char *scaling_type(double *factor, struct attn_gguf_text *w,
                                const struct factors *lists)
{
    static const char *const types[] = {"none", "linear", "yarn", "longrope"};
    const struct attn_gguf_value *type = attn_gguf_find_key(w, "rope.scaling.type");
    const char *name = type == NULL ? "linear" : type->kind == ATTN_GGUF_TEXT ? type->text : "";
    const bool any = lists->shorter != NULL || lists->longer != NULL || lists->all != NULL;
    const double old = attn_gguf_read_number(w, "rope.scale_linear", 0);
    size_t i = 0;
    *factor = attn_gguf_read_number(w, "rope.scaling.factor", old);
    while (i < 4 && strcmp(name, types[i]) != 0)
        i++;
    if (i == 4)
        ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, type->key,
                       "%.96s is \"%.64s\", wanted is one of none linear yarn "
                       "longrope",
                       type->key, name);
    if (i == 0 || *factor == 0)
        *factor = 1;
    if (lists->all != NULL ? lists->shorter != NULL || lists->longer != NULL
                           : (lists->shorter == NULL) != (lists->longer == NULL))
        ATTN_GGUF_FAIL(
            w, ATTN_UNSUPPORTED, "rope_factors_long.weight",
            "wanted are rope_freqs, or both of rope_factors_short and rope_factors_long");
    if (any && (i == 2 || *factor != 1))
        ATTN_GGUF_FAIL(w, ATTN_UNSUPPORTED, "rope.scaling.type",
                       "factors of frequencies beside scaling \"%s\" by %g are not read", name,
                       *factor);
    return any || i == 3 ? "longrope" : i == 2 ? "yarn" : *factor != 1 ? "linear" : "default";
}

void attn_gguf_put_rope(struct attn_gguf_text *w)
{
    const struct factors lists = {
        attn_gguf_find_in(w->parts, w->num_parts, "rope_factors_short.weight"),
        attn_gguf_find_in(w->parts, w->num_parts, "rope_factors_long.weight"),
        attn_gguf_find_in(w->parts, w->num_parts, "rope_freqs.weight")};
    double factor;
    const char *type = scaling_type(&factor, w, &lists);
    const double theta = attn_gguf_read_number(w, "rope.freq_base", 10000);
    const double attention = attn_gguf_read_number(w, "rope.scaling.attn_factor", 1);
    const double beta = attn_gguf_has_member(w, "llama_4_scaling_beta")
                            ? attn_gguf_read_number(w, "attention.temperature_scale", 0)
                            : 0;
    const size_t length = attn_gguf_read_size(w, "context_length", 0);
    const size_t original = attn_gguf_read_size(w, "rope.scaling.original_context_length", length);
    const bool longrope = strcmp(type, "longrope") == 0, yarn = strcmp(type, "yarn") == 0;
    if (w->status != ATTN_OK)
        return;
    attn_gguf_put_number(w, "rope_theta", theta);
    if (!attn_gguf_has_member(w, "rope_local_base_freq") &&
        attn_gguf_read_number(w, "rope.freq_base_swa", theta) != theta)
        ATTN_GGUF_FAIL(
            w, ATTN_UNSUPPORTED, "rope.freq_base_swa",
            "%s.rope.freq_base_swa differs from rope.freq_base, which is not read for it",
            w->architecture->name);
    if (w->architecture->rope_if_finetuned &&
        attn_gguf_read_number(w, "rope.scaling.finetuned", 1) == 0)
        ATTN_GGUF_FAIL(
            w, ATTN_UNSUPPORTED, "rope.scaling.finetuned",
            "%s.rope.scaling.finetuned is false: the model has no RoPE, and is not read from GGUF "
            "files",
            w->architecture->name);
    if (original != 0 && longrope && attn_gguf_has_member(w, "original_max_position_embeddings"))
        attn_gguf_put(w, ", \"original_max_position_embeddings\": %zu", original);
    attn_gguf_put(w, ", \"rope_scaling\": {\"rope_type\": \"%s\"", type);
    if (original != 0)
        attn_gguf_put(w, ", \"original_max_position_embeddings\": %zu", original);
    if (factor != 1 || yarn)
        attn_gguf_put_number(w, "factor", factor);
    if (beta != 0)
        attn_gguf_put_number(w, "llama_4_scaling_beta", beta);
    if (yarn)
        put_yarn(w, factor, attention);
    else if (longrope)
        attn_gguf_put_number(w, "attention_factor", attention);
    else if (attention != 1)
        ATTN_GGUF_FAIL(
            w, ATTN_UNSUPPORTED, "rope.scaling.attn_factor",
            "%s.rope.scaling.attn_factor is %g, which is read for yarn and longrope only",
            w->architecture->name, attention);
    if (longrope && (lists.all != NULL || lists.longer != NULL)) {
        put_factors(w, "short_factor", lists.all != NULL ? lists.all : lists.shorter);
        put_factors(w, "long_factor", lists.all != NULL ? lists.all : lists.longer);
    }
    attn_gguf_put(w, "}");
}
