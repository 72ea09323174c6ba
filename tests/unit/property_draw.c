/* property_draw.c: drawing.  Each modifier has a chance of its own, so that all pairs of them meet
 * somewhere in a few thousand cases; sizes are small mostly and pass a tile of 64 keys often. */
#include "property_draw.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Chances ---- */

static bool chance(struct draw *d, unsigned percent) { return rng_below(&d->rng, 100) < percent; }

/* A number from least to most. */
static size_t between(struct draw *d, size_t least, size_t most)
{
    return least + rng_below(&d->rng, (unsigned)(most - least + 1));
}

static double real(struct draw *d, double least, double most)
{
    return least + (most - least) * rng_below(&d->rng, 1000) / 1000;
}

/* Memory that runs out, or a size that went wrong, ends the test. */
static void *own(struct draw *d, void *data)
{
    void **more = realloc(d->owned, (d->num_owned + 1) * sizeof *more);
    if (data == NULL || more == NULL)
        abort();
    d->owned = more;
    return d->owned[d->num_owned++] = data;
}

void *draw_keep(struct draw *d, size_t count, size_t size)
{
    return own(d, calloc(count > 0 ? count : 1, size));
}

static float *floats(struct draw *d, size_t count, float range)
{
    return own(d, rng_floats(&d->rng, count, range));
}

void draw_free(struct draw *d)
{
    while (d->num_owned > 0)
        free(d->owned[--d->num_owned]);
    free(d->owned);
    d->owned = NULL;
}

/* ---- A layer ---- */

__attribute__((format(printf, 2, 3))) static void say(struct draw *d, const char *format, ...)
{
    size_t used = strlen(d->json);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(d->json + used, sizeof d->json - used, format, arguments);
    va_end(arguments);
}

static const char *truth(bool value) { return value ? "true" : "false"; }

/* One or two heads of the widest: of 576, 768 or 1,024 numbers, keys, values or both. */
static void draw_wide(struct attn_layer_spec *s, struct draw *d)
{
    static const size_t widths[] = {576, 768, ATTN_MAX_HEAD_DIM};
    s->num_heads = between(d, 1, 2);
    s->num_kv_heads = between(d, 1, s->num_heads);
    if (chance(d, 80))
        s->head_dim = widths[between(d, 0, 2)];
    if (chance(d, 60))
        s->value_head_dim = widths[between(d, 0, 2)];
}

/* Latent attention, with or without a latent of queries.  Latents have 4 numbers at least: RMSNorm
 * of a single number near 0 multiplies its rounding. */
static void draw_latent(struct draw *d)
{
    struct attn_layer_spec *s = &d->spec;
    struct attn_mla_spec *m = &s->mla;
    const size_t nope = between(d, 1, 20);
    *m = (struct attn_mla_spec){.kv_lora_rank = between(d, 4, chance(d, 80) ? 40 : 200),
                                .q_lora_rank = chance(d, 60) ? between(d, 4, 30) : 0,
                                .rope_head_dim = 2 * between(d, 1, 8),
                                .norm_eps = 1e-6};
    s->num_kv_heads = s->num_heads;
    s->head_dim = nope + m->rope_head_dim;
    say(d, "{\"kv_lora_rank\":%zu,\"qk_nope_head_dim\":%zu,\"qk_rope_head_dim\":%zu",
        m->kv_lora_rank, nope, m->rope_head_dim);
    if (m->q_lora_rank > 0)
        say(d, ",\"q_lora_rank\":%zu", m->q_lora_rank);
    say(d, ",");
}

static void draw_shape(struct draw *d)
{
    struct attn_layer_spec *s = &d->spec;
    do {
        s->num_heads = between(d, 1, 16);
        s->num_kv_heads = between(d, 1, s->num_heads);
    } while (s->num_heads % s->num_kv_heads != 0);
    s->head_dim = between(d, 2, chance(d, 75) ? 24 : 80);
    s->hidden_size = between(d, 4, chance(d, 75) ? 40 : 96);
    s->value_head_dim = chance(d, 25) ? between(d, 1, 40) : s->head_dim;
    if (chance(d, 2))
        draw_wide(s, d);
    s->key_size = s->value_size = s->hidden_size;
    if (d->seed % 8 == 3)
        draw_latent(d);
    else
        say(d, "{");
    say(d, "\"hidden_size\":%zu,\"num_attention_heads\":%zu,\"num_key_value_heads\":%zu",
        s->hidden_size, s->num_heads, s->num_kv_heads);
}

static void say_factors(struct draw *d, const char *key, size_t count, double most)
{
    say(d, ",\"%s\":[", key);
    for (size_t i = 0; i < count; i++)
        say(d, "%s%.2f", i > 0 ? "," : "", real(d, 1, most));
    say(d, "]");
}

static void draw_rope_scaling(struct draw *d)
{
    static const char *const names[] = {"",     "default", "linear",   "dynamic",
                                        "yarn", "llama3",  "longrope", "proportional"};
    struct attn_rope_spec *r = &d->spec.rope;
    r->factor = real(d, 1, 8);
    r->original_max_position = (double)between(d, 4, 120);
    say(d, ",\"rope_scaling\":{\"rope_type\":\"%s\"", names[r->type]);
    if (r->type > ATTN_ROPE_DEFAULT && r->type < ATTN_ROPE_LONGROPE)
        say(d, ",\"factor\":%.17g", r->factor);
    if (r->type == ATTN_ROPE_YARN || r->type == ATTN_ROPE_LLAMA3 || r->type == ATTN_ROPE_LONGROPE)
        say(d, ",\"original_max_position_embeddings\":%g", r->original_max_position);
    if (r->type == ATTN_ROPE_LLAMA3)
        say(d, ",\"low_freq_factor\":%g,\"high_freq_factor\":%g", real(d, 0.5, 2), real(d, 2.5, 9));
    if (r->type == ATTN_ROPE_YARN && chance(d, 50))
        say(d, ",\"beta_fast\":%g,\"beta_slow\":%g", real(d, 2, 40), real(d, 0.2, 1.5));
    if (r->type == ATTN_ROPE_YARN && chance(d, 50))
        say(d, ",\"truncate\":%s", truth(chance(d, 50)));
    if ((r->type == ATTN_ROPE_YARN || r->type == ATTN_ROPE_LONGROPE) && chance(d, 50))
        say(d, ",\"attention_factor\":%g", real(d, 0.5, 1.5));
    if (r->type == ATTN_ROPE_LONGROPE) {
        say_factors(d, "short_factor", r->dim / 2, 2);
        say_factors(d, "long_factor", r->dim / 2, 9);
        if (chance(d, 50))
            say(d, ",\"short_mscale\":%g,\"long_mscale\":%g", real(d, 0.5, 1.5), real(d, 0.5, 1.5));
    }
    say(d, "},\"max_position_embeddings\":%g",
        r->original_max_position * (r->type == ATTN_ROPE_LONGROPE ? 4 : 1));
}

static void draw_rope(struct draw *d)
{
    static const double bases[] = {100, 10000, 500000};
    struct attn_rope_spec *r = &d->spec.rope;
    const bool latent = d->spec.mla.kv_lora_rank > 0;
    d->spec.head_dim += latent ? 0 : d->spec.head_dim % 2;
    r->dim = latent ? d->spec.mla.rope_head_dim : d->spec.head_dim;
    r->type = chance(d, 30) ? ATTN_ROPE_DEFAULT : (enum attn_rope_type)between(d, 1, 7);
    r->theta = bases[between(d, 0, 2)];
    r->interleaved = chance(d, 30);
    if (!latent && chance(d, 30) && r->dim >= 4) {
        r->dim = 2 * between(d, 1, r->dim / 2 - 1);
        say(d, ",\"partial_rotary_factor\":%.17g",
            ((double)r->dim + 0.25) / (double)d->spec.head_dim);
    }
    if (r->type == ATTN_ROPE_PROPORTIONAL) {
        r->proportional_dim = r->dim;
        r->dim = latent ? r->dim : d->spec.head_dim;
    }
    if (r->type == ATTN_ROPE_DYNAMIC && r->dim < 4)
        r->type = ATTN_ROPE_DEFAULT; /* its base has an exponent of dim/(dim-2) */
    say(d, ",\"rope_theta\":%g", r->theta);
    if (r->interleaved)
        say(d, ",\"rope_interleaved\":true");
    r->reversed = chance(d, 15);
    if (r->reversed)
        say(d, ",\"rope_reversed\":true");
    if (r->type != ATTN_ROPE_DEFAULT || chance(d, 20))
        draw_rope_scaling(d);
}

/* DeBERTa's, with or without buckets; draw_details finishes the scale. */
static void draw_disentangled(struct draw *d)
{
    static const char *const terms[] = {"\"c2p\"", "\"p2c\"", "\"p2c|c2p\"", "[\"c2p\",\"p2c\"]"};
    struct attn_position_bias_spec *p = &d->spec.position_bias;
    size_t which = between(d, 0, 3);
    p->type = ATTN_BIAS_DISENTANGLED;
    p->content_to_position = which != 1;
    p->position_to_content = which != 0;
    p->buckets = chance(d, 70) ? 2 * between(d, 2, 100) : 0;
    p->max_distance = between(d, p->buckets / 2 + 2, 2 * p->buckets + 100);
    p->table_norm = chance(d, 50);
    p->table_norm_eps = p->table_norm ? 1e-7 : 0;
    say(d, ",\"pos_att_type\":%s,\"max_relative_positions\":%zu,\"position_buckets\":%d",
        terms[which], p->max_distance, p->buckets != 0 ? (int)p->buckets : -1);
    if (p->table_norm)
        say(d, ",\"norm_rel_ebd\":\"layer_norm\"");
}

/* Wav2Vec2-BERT's, or SpeechT5's, which has one row less before a query than after it. */
static void draw_relative_keys(struct draw *d)
{
    struct attn_position_bias_spec *p = &d->spec.position_bias;
    const size_t before = between(d, 1, 150);
    p->type = ATTN_BIAS_RELATIVE_KEY;
    p->content_to_position = true;
    p->backward = chance(d, 50);
    p->own_table = !p->backward;
    p->max_after = between(d, p->backward, 150);
    p->max_distance = p->backward ? p->max_after - 1 : before;
    say(d,
        ",\"position_embeddings_type\":\"relative_key\",\"relative_attention_max_distance\":%zu,"
        "\"max_relative_after\":%zu,\"relative_backward\":%s",
        before, p->max_after, truth(p->backward));
}

static void draw_position_bias(struct draw *d)
{
    struct attn_position_bias_spec *p = &d->spec.position_bias;
    if (d->spec.num_kv_heads == d->spec.num_heads && !d->spec.is_cross &&
        d->spec.mla.kv_lora_rank == 0 && d->spec.key_size == d->spec.hidden_size && chance(d, 60)) {
        if (chance(d, 60))
            draw_disentangled(d);
        else
            draw_relative_keys(d);
        return;
    }
    if (chance(d, 50)) {
        bool scaled = chance(d, 30);
        p->type = ATTN_BIAS_ALIBI;
        p->scale = scaled ? 1 / sqrt((double)d->spec.head_dim) : 1;
        p->bfloat16 = chance(d, 30);
        p->by_slot = chance(d, 30);
        say(d, ",\"alibi\":true,\"alibi_scaled\":%s,\"alibi_bfloat16\":%s,\"alibi_by_slot\":%s",
            truth(scaled), truth(p->bfloat16), truth(p->by_slot));
        return;
    }
    p->type = ATTN_BIAS_T5;
    p->buckets = 2 * between(d, 2, 20);
    p->max_distance = between(d, p->buckets, 2 * p->buckets + 100);
    p->bidirectional = !d->spec.is_causal;
    say(d, ",\"relative_attention_num_buckets\":%zu,\"relative_attention_max_distance\":%zu",
        p->buckets, p->max_distance);
}

/* Keys and values from another sequence, perhaps of other widths. */
static void draw_cross(struct draw *d)
{
    struct attn_layer_spec *s = &d->spec;
    s->is_cross = chance(d, 40);
    if (s->is_cross)
        say(d, ",\"is_cross\":true");
    if (chance(d, 40)) {
        s->key_size = between(d, 3, 40);
        s->value_size = chance(d, 50) ? s->key_size : between(d, 3, 40);
        say(d, ",\"kdim\":%zu,\"vdim\":%zu", s->key_size, s->value_size);
    }
}

/* Windows and chunks: of every layer, or of those that a list names. */
static void draw_types(struct draw *d, size_t layers)
{
    static const char *const names[] = {"full_attention", "sliding_attention", "chunked_attention"};
    size_t most = chance(d, 50) ? 12 : 90, widths[3] = {0};
    size_t kinds = between(d, 1, 3); /* 1: windows, 2: chunks, 3: both */
    for (size_t kind = 1; kind <= 2; kind++)
        widths[kind] = (kinds & kind) != 0 ? between(d, 1, most) : 0;
    if (widths[1] > 0)
        say(d, ",\"sliding_window\":%zu", widths[1]);
    if (widths[2] > 0)
        say(d, ",\"attention_chunk_size\":%zu", widths[2]);
    d->spec.sliding_window = widths[1];
    d->spec.attention_chunk_size = widths[2];
    if (chance(d, 40))
        return;
    say(d, ",\"layer_types\":[");
    for (size_t i = 0; i < layers; i++) {
        size_t type = between(d, 0, 2);
        type = widths[type] > 0 ? type : 0;
        say(d, "%s\"%s\"", i > 0 ? "," : "", names[type]);
        if (i != d->layer)
            continue;
        d->spec.sliding_window = type == 1 ? widths[1] : 0;
        d->spec.attention_chunk_size = type == 2 ? widths[2] : 0;
    }
    say(d, "]");
}

/* Takes RoPE from some layers. */
static void draw_unrotated(struct draw *d, size_t layers)
{
    say(d, ",\"no_rope_layers\":[");
    for (size_t i = 0; i < layers; i++) {
        bool rotates = chance(d, 50);
        say(d, "%s%d", i > 0 ? "," : "", rotates);
        if (i == d->layer && !rotates)
            d->spec.rope = (struct attn_rope_spec){.type = ATTN_ROPE_NONE};
    }
    say(d, "]");
}

static void draw_query_scaling(struct draw *d)
{
    struct attn_query_scaling *scaling = &d->spec.query_scaling;
    *scaling = (struct attn_query_scaling){.beta = real(d, -0.5, 1),
                                           .period = real(d, 0.5, 20),
                                           .next = chance(d, 50),
                                           .by_slot = chance(d, 50)};
    say(d, ",\"attn_scale\":%.17g,\"floor_scale\":%.17g,\"attn_scale_next\":%s", scaling->beta,
        scaling->period, truth(scaling->next));
    say(d, ",\"attn_scale_by_slot\":%s", truth(scaling->by_slot));
}

/* Norms of queries, keys and values, half of them RMSNorm of each head, and the gate. */
static void draw_norms(struct draw *d)
{
    static const char *const extents[] = {NULL, "each_head", "all_heads"};
    struct attn_norm_spec *norm = &d->spec.qk_norm;
    if (chance(d, 40)) {
        *norm = (struct attn_norm_spec){.type = ATTN_NORM_RMS, .eps = chance(d, 50) ? 0.01 : 1e-6};
        norm->extent = chance(d, 50) ? ATTN_NORM_HEAD : (enum attn_norm_extent)between(d, 1, 2);
        /* Two numbers less their mean are opposite: of close ones rounding makes the sign. */
        if (chance(d, 40) && d->spec.head_dim > 2)
            norm->type = ATTN_NORM_LAYER;
        norm->weightless = chance(d, 20);
        norm->bias = !norm->weightless && chance(d, 30);
        norm->after_rope = chance(d, 30);
        say(d, ",\"qk_norm\":true,\"qk_norm_bias\":%s,\"qk_norm_weightless\":%s", truth(norm->bias),
            truth(norm->weightless));
        say(d, ",\"qk_norm_after_rope\":%s", truth(norm->after_rope));
    }
    if (norm->extent != ATTN_NORM_HEAD)
        say(d, ",\"qk_norm_extent\":\"%s\"", extents[norm->extent]);
    if (norm->type == ATTN_NORM_LAYER)
        say(d, ",\"qk_norm_type\":\"layer_norm\"");
    if (chance(d, 15))
        d->spec.v_norm = (struct attn_norm_spec){
            .type = ATTN_NORM_RMS, .weightless = true, .eps = norm->eps > 0 ? norm->eps : 1e-6};
    d->spec.output_gate = chance(d, 20);
    say(d, ",\"v_norm\":%s,\"attn_output_gate\":%s", truth(d->spec.v_norm.type != ATTN_NORM_NONE),
        truth(d->spec.output_gate));
    d->spec.gate_softplus = d->spec.output_gate && chance(d, 50);
    d->spec.gate_by_head = d->spec.output_gate && chance(d, 50);
    say(d, ",\"gate_softplus\":%s,\"gate_by_head\":%s", truth(d->spec.gate_softplus),
        truth(d->spec.gate_by_head));
    if (chance(d, 15))
        d->spec.output_norm = (struct attn_norm_spec){.type = ATTN_NORM_RMS,
                                                      .extent = ATTN_NORM_ALL_HEADS,
                                                      .eps = norm->eps > 0 ? norm->eps : 1e-6};
    say(d, ",\"output_norm\":%s", truth(d->spec.output_norm.type != ATTN_NORM_NONE));
    if (norm->eps > 1e-6)
        say(d, ",\"rms_norm_eps\":%g", norm->eps);
}

/* What happens to queries, keys and values before norms. */
static void draw_adjustments(struct draw *d)
{
    if (chance(d, 15)) {
        d->spec.clip_qkv = real(d, 0.2, 2);
        say(d, ",\"clip_qkv\":%.17g", d->spec.clip_qkv);
    }
    if (chance(d, 15)) {
        d->spec.key_multiplier = real(d, 0.2, 0.9);
        say(d, ",\"key_multiplier\":%.17g", d->spec.key_multiplier);
    }
}

static void draw_details(struct draw *d)
{
    struct attn_layer_spec *s = &d->spec;
    const bool latent = s->mla.kv_lora_rank > 0; /* which has a bias of the output alone */
    const bool bias = chance(d, 50);
    s->q_bias = bias && !latent;
    s->sinks = chance(d, 20);
    s->bias_kv = !latent && chance(d, 10);
    s->add_zero_attn = !latent && chance(d, 10);
    s->scale = 1 / sqrt((double)s->head_dim);
    if (s->position_bias.type == ATTN_BIAS_DISENTANGLED)
        s->scale /=
            sqrt(1.0 + s->position_bias.content_to_position + s->position_bias.position_to_content);
    say(d,
        ",\"head_dim\":%zu,\"value_head_dim\":%zu,\"attention_bias\":%s,"
        "\"attention_sinks\":%s,\"add_bias_kv\":%s,\"add_zero_attn\":%s",
        s->head_dim, s->value_head_dim, truth(bias), truth(s->sinks), truth(s->bias_kv),
        truth(s->add_zero_attn));
    if (!latent) {
        draw_norms(d);
        draw_adjustments(d);
    }
    if (chance(d, 25)) {
        s->softcap = real(d, 0.5, 20);
        say(d, ",\"attn_logit_softcapping\":%.17g", s->softcap);
    }
    if (chance(d, 25)) {
        s->scale = real(d, 0.02, 0.6);
        say(d, ",\"scale\":%.17g", s->scale);
    }
}

void draw_layer(struct draw *out, unsigned seed)
{
    *out = (struct draw){.seed = seed, .rng = rng_seeded(seed)};
    size_t layers = between(out, 1, 2);
    out->layer = between(out, 0, layers - 1);
    draw_shape(out);
    out->spec.is_causal = chance(out, 60);
    say(out, ",\"num_hidden_layers\":%zu,\"is_causal\":%s,\"seed\":%u", layers,
        truth(out->spec.is_causal), seed);
    if (chance(out, 50)) {
        draw_rope(out);
        if (chance(out, 15))
            draw_unrotated(out, layers);
    } else if (out->spec.mla.kv_lora_rank == 0 && chance(out, 25)) {
        draw_cross(out);
    }
    if (chance(out, 15))
        draw_query_scaling(out);
    if (out->spec.rope.type == ATTN_ROPE_NONE && chance(out, 60))
        draw_position_bias(out);
    if (chance(out, 30))
        draw_types(out, layers);
    draw_details(out);
    say(out, "}");
}

const char *draw_differs(double *got_value, double *want_value, const struct attn_layer_spec *got,
                         const struct attn_layer_spec *want)
{
    const struct {
        double got, want;
        const char *name;
    } fields[] = {
        {(double)got->num_heads, (double)want->num_heads, "heads"},
        {(double)got->num_kv_heads, (double)want->num_kv_heads, "kv heads"},
        {(double)got->head_dim, (double)want->head_dim, "head_dim"},
        {(double)got->value_head_dim, (double)want->value_head_dim, "value_head_dim"},
        {(double)got->hidden_size, (double)want->hidden_size, "hidden_size"},
        {(double)got->key_size, (double)want->key_size, "key_size"},
        {(double)got->value_size, (double)want->value_size, "value_size"},
        {got->scale, want->scale, "scale"},
        {got->softcap, want->softcap, "softcap"},
        {(double)got->sliding_window, (double)want->sliding_window, "sliding_window"},
        {(double)got->attention_chunk_size, (double)want->attention_chunk_size, "chunk"},
        {got->query_scaling.beta, want->query_scaling.beta, "attn_scale"},
        {got->query_scaling.period, want->query_scaling.period, "floor_scale"},
        {got->query_scaling.next, want->query_scaling.next, "attn_scale_next"},
        {got->query_scaling.by_slot, want->query_scaling.by_slot, "attn_scale_by_slot"},
        {(double)got->mla.kv_lora_rank, (double)want->mla.kv_lora_rank, "kv_lora_rank"},
        {(double)got->mla.q_lora_rank, (double)want->mla.q_lora_rank, "q_lora_rank"},
        {(double)got->mla.rope_head_dim, (double)want->mla.rope_head_dim, "qk_rope_head_dim"},
        {got->is_causal, want->is_causal, "is_causal"},
        {got->is_cross, want->is_cross, "is_cross"},
        {got->q_bias, want->q_bias, "bias"},
        {got->qk_norm.type, want->qk_norm.type, "qk_norm"},
        {got->qk_norm.extent, want->qk_norm.extent, "extent of qk_norm"},
        {got->qk_norm.weightless, want->qk_norm.weightless, "weightless"},
        {got->qk_norm.bias, want->qk_norm.bias, "bias of qk_norm"},
        {got->qk_norm.after_rope, want->qk_norm.after_rope, "after_rope"},
        {got->qk_norm.eps, want->qk_norm.eps, "eps of qk_norm"},
        {got->v_norm.type, want->v_norm.type, "v_norm"},
        {got->v_norm.eps, want->v_norm.eps, "eps of v_norm"},
        {got->output_gate, want->output_gate, "output_gate"},
        {got->gate_softplus, want->gate_softplus, "gate_softplus"},
        {got->gate_by_head, want->gate_by_head, "gate_by_head"},
        {got->output_norm.type, want->output_norm.type, "output_norm"},
        {got->output_norm.eps, want->output_norm.eps, "eps of output_norm"},
        {got->clip_qkv, want->clip_qkv, "clip_qkv"},
        {got->key_multiplier, want->key_multiplier, "key_multiplier"},
        {got->rope.reversed, want->rope.reversed, "rope_reversed"},
        {got->sinks, want->sinks, "sinks"},
        {got->bias_kv, want->bias_kv, "bias_kv"},
        {got->add_zero_attn, want->add_zero_attn, "add_zero_attn"},
        {got->rope.type, want->rope.type, "rope type"},
        {(double)got->rope.dim, (double)want->rope.dim, "rope dim"},
        {(double)got->rope.proportional_dim, (double)want->rope.proportional_dim, "proportional"},
        {got->rope.interleaved, want->rope.interleaved, "interleaved"},
        {got->position_bias.type, want->position_bias.type, "position bias"},
        {got->position_bias.bfloat16, want->position_bias.bfloat16, "bfloat16"},
        {got->position_bias.by_slot, want->position_bias.by_slot, "by_slot"},
        {(double)got->position_bias.max_distance, (double)want->position_bias.max_distance,
         "max_distance"},
        {got->position_bias.content_to_position, want->position_bias.content_to_position, "c2p"},
        {got->position_bias.position_to_content, want->position_bias.position_to_content, "p2c"},
        {got->position_bias.table_norm, want->position_bias.table_norm, "norm_rel_ebd"},
        {(double)got->position_bias.buckets, (double)want->position_bias.buckets, "buckets"},
        {(double)got->position_bias.max_after, (double)want->position_bias.max_after, "max_after"},
        {got->position_bias.backward, want->position_bias.backward, "backward"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        *got_value = fields[i].got;
        *want_value = fields[i].want;
        if (!(fabs(fields[i].got - fields[i].want) < 1e-9))
            return fields[i].name;
    }
    return NULL;
}

/* ---- A call ---- */

static size_t tokens(struct draw *d)
{
    return between(d, 1, chance(d, 65) ? 14 : chance(d, 65) ? 70 : DRAW_TOKENS);
}

/* Multiply-adds that the oracle will take its time for. */
static size_t cost(const struct attn_attend_args *a, const struct attn_layer_spec *s)
{
    size_t q = s->num_heads * (s->head_dim + s->value_head_dim);
    size_t k = s->num_kv_heads * (s->head_dim + s->value_head_dim);
    return a->batch * (a->queries * a->keys * q + a->queries * q * s->hidden_size +
                       a->keys * k * (s->key_size + s->value_size) / 2);
}

static void draw_rows(struct draw *d, const struct attn_layer_spec *s)
{
    struct attn_attend_args *a = &d->call;
    bool may_cross = s->rope.type == ATTN_ROPE_NONE && s->mla.kv_lora_rank == 0;
    bool must_cross =
        s->is_cross || s->key_size != s->hidden_size || s->value_size != s->hidden_size;
    bool cross = must_cross || (may_cross && chance(d, 30));
    a->batch = between(d, 1, 3);
    a->queries = tokens(d);
    a->keys = cross ? tokens(d) : a->queries;
    while (cost(a, s) > 3000000 && (a->batch > 1 || a->queries > 1)) {
        if (a->batch > 1)
            a->batch--;
        else
            a->queries -= (a->queries + 3) / 4;
        a->keys = cross ? a->keys : a->queries;
    }
    a->hidden_states = floats(d, a->batch * a->queries * s->hidden_size, 1.7f);
    if (!cross)
        return;
    a->key_hidden_states = floats(d, a->batch * a->keys * s->key_size, 1.7f);
    if (s->key_size != s->value_size || chance(d, 40))
        a->value_hidden_states = floats(d, a->batch * a->keys * s->value_size, 1.7f);
}

/* A mask or bias may differ by batch, by head and by row; its strides, and its elements. */
static size_t draw_planes(size_t *batch_stride, size_t *head_stride, bool *one_row, struct draw *d,
                          size_t heads)
{
    bool per_head = chance(d, 50), per_batch = chance(d, 50);
    *one_row = chance(d, 30);
    size_t plane = (*one_row ? 1 : d->call.queries) * d->call.keys;
    *head_stride = per_head ? plane : 0;
    *batch_stride = per_batch ? plane * (per_head ? heads : 1) : 0;
    return (per_batch ? d->call.batch : 1) * (per_head ? heads : 1) * plane;
}

static const float *draw_bias(struct draw *d, size_t count)
{
    float *bias = floats(d, count, 2);
    bool forbids = chance(d, 50);
    for (size_t i = 0; forbids && i < count; i += between(d, 1, 17))
        bias[i] = -INFINITY;
    return bias;
}

static const int64_t *draw_positions(struct draw *d, size_t count, size_t rows)
{
    int64_t *ids = draw_keep(d, count, sizeof *ids);
    bool far = d->spec.rope.type == ATTN_ROPE_DEFAULT && chance(d, 30);
    int64_t first = (int64_t)between(d, 0, far ? 3000 : 60);
    bool scattered = chance(d, 40);
    for (size_t i = 0; i < count; i++)
        ids[i] = scattered ? (int64_t)between(d, 0, 100) : first + (int64_t)(i % rows);
    return ids;
}

/* What a call may override, whatever it is over. */
static void draw_overrides(struct attn_modifiers *m, struct draw *d, size_t heads)
{
    if (chance(d, 15))
        m->head_mask = floats(d, heads, 1);
    if (chance(d, 20)) {
        m->has_window = true;
        m->window_left = chance(d, 25) ? -1 : (int64_t)between(d, 0, 90);
        m->window_right = chance(d, 25) ? -1 : (int64_t)between(d, 0, 20);
    }
    if (chance(d, 15)) {
        m->has_softcap = true;
        m->softcap = chance(d, 30) ? 0 : real(d, 0.5, 30);
    }
    if (chance(d, 15))
        m->scale = real(d, 0.02, 0.5);
}

static void draw_modifiers(struct draw *d, const struct attn_layer_spec *s)
{
    struct attn_attend_args *a = &d->call;
    struct attn_modifiers *m = &a->modifiers;
    draw_overrides(m, d, s->num_heads);
    m->is_causal = chance(d, 60) ? ATTN_CAUSAL_DEFAULT : (enum attn_causal)between(d, 1, 2);
    if (chance(d, 25))
        m->padding_mask = own(d, rng_bytes(&d->rng, a->batch * a->keys, 80));
    if (chance(d, 20)) {
        size_t count = draw_planes(&m->attention_mask_batch_stride, &m->attention_mask_head_stride,
                                   &m->attention_mask_one_row, d, s->num_heads);
        m->attention_mask = own(d, rng_bytes(&d->rng, count, 70));
    }
    if (chance(d, 20)) {
        size_t count = draw_planes(&m->attention_bias_batch_stride, &m->attention_bias_head_stride,
                                   &m->attention_bias_one_row, d, s->num_heads);
        m->attention_bias = draw_bias(d, count);
    }
    if (chance(d, 20)) {
        int64_t *offsets = draw_keep(d, a->batch, sizeof *offsets);
        for (size_t b = 0; b < a->batch; b++)
            offsets[b] = (int64_t)between(d, 0, a->keys + 5) - 3;
        m->query_offset = offsets;
    }
    bool positioned = s->rope.type != ATTN_ROPE_NONE || s->query_scaling.period > 0;
    if (chance(d, positioned ? 40 : 5))
        m->position_ids = draw_positions(d, a->batch * a->queries, a->queries);
}

/* Some of the numbers below `count`, each once, in any order. */
static const size_t *draw_subset(size_t *out_count, struct draw *d, size_t count)
{
    size_t *list = draw_keep(d, count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        size_t j = between(d, 0, i);
        list[i] = list[j];
        list[j] = i;
    }
    *out_count = between(d, 1, count);
    return list;
}

void draw_call(struct draw *d, const struct attn_layer_spec *s)
{
    draw_rows(d, s);
    draw_modifiers(d, s);
    d->stage = (enum attn_stage)between(d, 0, 2);
    d->local_radius = between(d, 0, 6);
    d->selects = chance(d, 30);
    if (!d->selects)
        return;
    d->averages = chance(d, 50);
    d->top_k = between(d, 1, attn_weight_columns(s, d->call.keys));
    if (chance(d, 60))
        d->selection.heads = draw_subset(&d->selection.num_heads, d, s->num_heads);
    if (chance(d, 60))
        d->selection.rows = draw_subset(&d->selection.num_rows, d, d->call.queries);
}

/* ---- A tree ---- */

/* Each new row follows an earlier one or the cached text, and sees itself and its ancestors. */
static void grow(uint8_t *mask, int64_t *ids, struct draw *d, size_t cached, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        size_t parent = between(d, 0, t); /* t: the cached text */
        ids[t] = parent == t ? (int64_t)cached : ids[parent] + 1;
        if (parent != t)
            memcpy(mask + t * n, mask + parent * n, n);
        mask[t * n + t] = 1;
    }
}

void draw_tree(struct attn_modifiers *out, struct draw *d, const struct attn_layer_spec *s,
               size_t cached, size_t n)
{
    uint8_t *mask = draw_keep(d, n * n, 1);
    int64_t *ids = draw_keep(d, n, sizeof *ids);
    *out = (struct attn_modifiers){.tree = true, .attention_mask = mask};
    draw_overrides(out, d, s->num_heads);
    grow(mask, ids, d, cached, n);
    if (chance(d, 15)) { /* any graph, not only trees */
        out->is_causal = (enum attn_causal)between(d, 0, 2);
        for (size_t i = 0; i < n * n; i++)
            mask[i] = chance(d, 60);
    }
    if (chance(d, 85))
        out->position_ids = ids;
    if (chance(d, 20)) {
        uint8_t *padding = own(d, rng_bytes(&d->rng, cached + n, 80));
        out->padding_mask = padding;
    }
    if (chance(d, 20))
        out->attention_bias = draw_bias(d, n * (cached + n));
}

/* ---- Looking ---- */

void draw_describe(char *out, size_t size, const struct attn_modifiers *m)
{
    static const char *const causal[] = {"default", "no", "yes"};
    snprintf(out, size, "causal %s%s%s%s%s%s%s%s, scale %g, softcap %s%g, window %s[%lld,%lld]",
             causal[m->is_causal], m->tree ? ", tree" : "", m->query_offset ? ", offset" : "",
             m->padding_mask ? ", padding" : "",
             !m->attention_mask          ? ""
             : m->attention_mask_one_row ? ", mask of a row"
                                         : ", mask",
             !m->attention_bias          ? ""
             : m->attention_bias_one_row ? ", bias of a row"
                                         : ", bias",
             m->head_mask ? ", head_mask" : "", m->position_ids ? ", position_ids" : "", m->scale,
             m->has_softcap ? "" : "no ", m->softcap, m->has_window ? "" : "no ",
             (long long)m->window_left, (long long)m->window_right);
}

int64_t draw_length(const struct attn_modifiers *m, size_t count, size_t rows)
{
    int64_t last = m->position_ids ? 0 : (int64_t)rows - 1;
    for (size_t i = 0; m->position_ids && i < count; i++)
        last = m->position_ids[i] > last ? m->position_ids[i] : last;
    return last + 1;
}
