/* forward.c: the forward pass of an attention layer, as the formula at the head of attn.h has it:
 *
 *   project           q, k, v, gate = x Wq, x Wk, x Wv, x Wg, with their biases
 *   norm and rope     normalise and rotate each row of q and k, check all rows, put k and v in the
 *                     cache (qkv.c has one row)
 *   attend            o = softmax(q k^T + mask) v of each sequence (attention.c)
 *   subtract          differential attention: heads in pairs (struct attn_differential_spec)
 *   gate              o = o sigmoid(gate), or o softplus(gate)
 *   normalise         o = norm(o), where the layer has a norm of its output's heads
 *   project back      output = o Wo, with its bias
 *   fill the outputs  (outputs.c)
 *
 * In a latent layer the projections are latents.  Where keys are made of rows, latents are expanded
 * to keys and values of heads.  Where they are cached, queries are multiplied by the weights of
 * keys, and sums by those of values (absorbed, layers/mla.h).
 *
 * Batch invariance: calls of up to ATTN_BATCHED_ROWS rows over caches share products, in which rows
 * are independent.  Every other call has products of its own, which spares copying its rows. */
#include "attention/forward.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "basics/status.h"

#define ROWS_OF_TASK 16 /* of q, k, v or o */

/* ---- Project ---- */

/* Whether projections check their own bounds, as no row is looked at afterwards. */
static bool projections_check(const struct attn_pass *pass)
{
    return pass->calls->cache == NULL && !attn_qkv_needs_norm_rope(pass->layer);
}

static size_t add_products(const struct attn_pass *pass, size_t n, struct attn_call *c)
{
    const struct attn_layer_inputs *in = &pass->in;
    const struct attn_linear *gate = &pass->layer->gate;
    const size_t rows = c->count * c->queries, keys = c->count * c->new_keys;
    const float *x = c->query_states + c->first * c->queries * in->q->in;
    const float *key = c->key_states + c->first * c->new_keys * in->k->in;
    const float *value = c->value_states + c->first * c->new_keys * in->v->in;
    const struct attn_layer *layer = pass->layer;
    float *v = pass->v + c->key_row * pass->value_width;
    struct attn_projection products[ATTN_CALL_PRODUCTS] = {
        /* neighbours read the same rows, which then become integers once */
        attn_projection_of(in->q, x, pass->q_a + c->row * in->q->out, rows),
        attn_projection_of(gate, x, pass->gate + c->row * gate->out, rows),
        attn_projection_of(&layer->index_w, x, pass->index_w + c->row * layer->index_w.out, rows),
        attn_projection_of(in->k, key, pass->k + c->key_row * in->k->out, keys),
        attn_projection_of(&layer->index_k, key, v + in->v->out, keys),
        attn_projection_of(in->v, value, v, keys),
    };
    products[4].ldy = products[5].ldy = pass->value_width;
    for (size_t i = 0; i < ATTN_CALL_PRODUCTS; i++) {
        if (products[i].rows == 0 || products[i].linear->out == 0)
            continue;
        pass->products[n] = products[i];
        pass->products[n].limit = ATTN_MAX_MAGNITUDE;
        pass->products[n++].beyond = projections_check(pass) ? &c->beyond : NULL;
    }
    return n;
}

/* Makes the products that calls share, of copies of their rows. */
static enum attn_status project_batched(const struct attn_pass *pass)
{
    const size_t width = pass->in.q->in;
    const bool keys = pass->key_rows > 0;
    struct attn_call all = {.query_states = pass->x,
                            .key_states = pass->x,
                            .value_states = pass->x,
                            .queries = pass->batched_rows,
                            .new_keys = keys ? pass->batched_rows : 0,
                            .count = 1};
    for (size_t i = 0; i < pass->count; i++) {
        const struct attn_call *c = &pass->calls[i];
        if (c->batched)
            memcpy(pass->x + c->row * width, c->query_states, c->queries * width * sizeof(float));
    }
    return attn_project(pass->engine, pass->products, add_products(pass, 0, &all), true);
}

static enum attn_status project(const struct attn_pass *pass)
{
    const struct attn_layer *layer = pass->layer;
    size_t n = 0;
    if (layer->spec.is_weightless)
        return ATTN_OK;
    if (pass->batched_rows > 0 && project_batched(pass) != ATTN_OK)
        return ATTN_NO_MEMORY;
    for (size_t i = 0; i < pass->count; i++)
        if (!pass->calls[i].batched)
            n = add_products(pass, n, &pass->calls[i]);
    enum attn_status status = attn_project(pass->engine, pass->products, n, false);
    if (status == ATTN_OK && attn_layer_is_latent(layer))
        status = attn_mla_project(pass->engine, layer, pass->q, pass->q_a, pass->index_q, pass->k,
                                  pass->query_rows);
    if (status == ATTN_OK && attn_pass_expands(pass))
        status = attn_mla_expand(pass->engine, layer, pass->head_k, pass->head_v, pass->k,
                                 pass->key_rows);
    return status;
}

/* ---- Norm and RoPE ---- */

/* Copies row i of the heads [heads][n][width] that a weightless call brings. */
static void copy_heads(float *to, const float *from, size_t heads, size_t n, size_t width, size_t i)
{
    for (size_t h = 0; h < heads; h++)
        memcpy(to + h * width, from + (h * n + i) * width, width * sizeof *to);
}

/* Copies the rotated part of a row, which all heads share, into the keys of its heads; false where
 * a number of these or of the values is beyond ATTN_MAX_MAGNITUDE. */
static bool copy_k_rope(const struct attn_pass *pass, size_t r)
{
    const struct attn_kernels *kernels = &pass->engine->kernels;
    const struct attn_layer_spec *spec = &pass->layer->spec;
    const size_t rope = spec->mla.rope_head_dim, d = spec->head_dim, heads = spec->num_heads;
    float *k = pass->head_k + r * heads * d;
    for (size_t h = 0; h < heads; h++)
        memcpy(k + (h + 1) * d - rope, pass->v + r * pass->value_width, rope * sizeof *k);
    return kernels->all_within(k, heads * d, ATTN_MAX_MAGNITUDE) &&
           kernels->all_within(pass->head_v + r * heads * spec->value_head_dim,
                               heads * spec->value_head_dim, ATTN_MAX_MAGNITUDE);
}

/* Row r of the queries, and of the keys, of a call that has it. */
static void norm_rope_row(const struct attn_pass *pass, struct attn_call *c, size_t r)
{
    const struct attn_layer *layer = pass->layer;
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_kernels *kernels = &pass->engine->kernels;
    const bool has_query = r < pass->query_rows, has_key = r < pass->key_rows;
    const int64_t *ids = has_query ? c->modifiers->position_ids : NULL;
    const size_t i = r - c->row, slot = c->slot + (c->queries > 0 ? i % c->queries : i);
    const struct attn_qkv row = {.q = has_query ? pass->q + r * layer->q.out : NULL,
                                 .k = has_key ? pass->k + r * pass->in.k->out : NULL,
                                 .v = has_key ? pass->v + r * pass->value_width : NULL};
    if (spec->is_weightless) {
        copy_heads(row.q, c->query_states, spec->num_heads, c->queries, spec->head_dim, i);
        copy_heads(row.k, c->key_states, spec->num_kv_heads, c->queries, spec->head_dim, i);
        copy_heads(row.v, c->value_states, spec->num_kv_heads, c->queries, spec->value_head_dim, i);
    }
    const struct attn_token token = {
        .position = ids ? ids[c->first * c->queries + i] : (int64_t)slot,
        .slot = slot,
        .grid = c->modifiers->grid,
    };
    bool within = attn_qkv_norm_rope(row, layer, kernels, c->inv_freq, &token);
    if (layer->index_k.out > 0)
        within = attn_index_norm_rope(has_query ? pass->index_q + r * layer->index_q.out : NULL,
                                      pass->index_w + r * layer->index_w.out,
                                      has_key ? row.v + pass->in.v->out : NULL, layer, kernels,
                                      c->inv_freq, token.position) &&
                 within;
    if (has_query && spec->position_bias.gated) {
        float *gates = pass->position_gates + r * spec->num_heads;
        attn_position_gates(gates, layer,
                            c->query_states + (c->first * c->queries + i) * spec->hidden_size);
        within = within && kernels->all_within(gates, spec->num_heads, ATTN_MAX_MAGNITUDE);
    }
    if (has_query)
        within = within && kernels->all_within(pass->gate + r * layer->gate.out, layer->gate.out,
                                               ATTN_MAX_MAGNITUDE);
    if (attn_pass_expands(pass))
        within = copy_k_rope(pass, r) && within;
    if (!within)
        atomic_store(&c->beyond, true);
    else if (c->puts && has_key && !attn_cache_put(c->cache, pass->layer_index, slot, row.k, row.v))
        atomic_store(&c->unfit, true);
}

static size_t rows_of(const struct attn_call *c)
{
    return c->count * attn_max(c->queries, c->new_keys);
}

static void norm_rope_task(void *argument, size_t i, unsigned thread)
{
    const struct attn_pass *pass = argument;
    const size_t rows = attn_max(pass->query_rows, pass->key_rows);
    const size_t end = attn_min((i + 1) * ROWS_OF_TASK, rows);
    struct attn_call *c = NULL;
    (void)thread;
    for (size_t r = i * ROWS_OF_TASK; r < end; r++) {
        if (c == NULL || r - c->row >= rows_of(c))
            for (c = pass->calls; r < c->row || r - c->row >= rows_of(c);)
                c++;
        norm_rope_row(pass, c, r);
    }
}

enum attn_status attn_forward_keys(struct attn_pass *pass)
{
    attn_pass_assign_rows(pass);
    const size_t rows = attn_max(pass->query_rows, pass->key_rows);
    const enum attn_status status = project(pass);
    if (status == ATTN_OK && !projections_check(pass))
        attn_pool_run(pass->engine->pool, norm_rope_task, pass, attn_ceil_div(rows, ROWS_OF_TASK));
    return attn_engine_cancelled(pass->engine, NULL) ? ATTN_CANCELLED : status;
}

/* ---- Attend ---- */

void attn_call_set(struct attn_problem *p, const struct attn_call *call, size_t b)
{
    p->mask = attn_mask_of(call->modifiers, call->mask, b, p->queries, p->keys);
    if (call->positions != NULL)
        attn_mask_set_positions(&p->mask, call->positions + b * (p->keys + p->queries),
                                call->modifiers, b);
    p->maps = attn_maps_of_sequence(&call->maps, b);
    if (p->maps.head_stats != NULL)
        p->first_key = attn_mask_first_key(&p->mask);
    if (call->outputs->lse != NULL)
        p->lse = call->outputs->lse + b * p->num_heads * p->queries;
}

/* The problem of sequence i of those that the pass computes of a call. */
static struct attn_problem problem_of(const struct attn_pass *pass, const struct attn_call *c,
                                      size_t i)
{
    const struct attn_layer *layer = pass->layer;
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_modifiers *modifiers = c->modifiers;
    const size_t row = c->row + i * c->queries, key_row = c->key_row + i * c->new_keys;
    const size_t heads = spec->num_heads, d = spec->head_dim, dv = spec->value_head_dim;
    const size_t key_width = spec->num_kv_heads * d;
    struct attn_problem p = {
        .queries = c->queries,
        .keys = c->keys,
        .num_heads = heads,
        .num_kv_heads = attn_pass_kv_heads(pass, c),
        .head_dim = d,
        .value_head_dim = dv,
        .q = {pass->q + row * layer->q.out, layer->q.out, d},
        .extra_k = layer->extra_k,
        .extra_v = layer->extra_v,
        .extra = layer->extra,
        .relative = layer->relative.rows != 0 ? &layer->relative : NULL,
        .scale = (float)(modifiers->scale != 0 ? modifiers->scale : spec->scale),
        .softcap = (float)(modifiers->has_softcap ? modifiers->softcap : spec->softcap),
        .sinks = layer->sinks,
        .head_mask = modifiers->head_mask,
        .invariant = c->batched,
    };
    if (attn_outputs_need_heads(c->outputs))
        p.out = (struct attn_rows){pass->o + row * layer->o.in, layer->o.in, dv};
    if (c->cache != NULL) {
        p.cache = attn_cache_view(c->cache, pass->layer_index);
    } else {
        p.pairs = attn_layer_attends_in_pairs(layer, &pass->engine->kernels);
        p.k = (struct attn_rows){pass->head_k + key_row * key_width, key_width, d};
        p.v = (struct attn_rows){pass->head_v + key_row * layer->v.out, layer->v.out, dv};
    }
    attn_call_set(&p, c, c->first + i);
    if (layer->index_k.out > 0) {
        p.index_q = pass->index_q + row * layer->index_q.out;
        p.index_w = pass->index_w + row * layer->index_w.out;
        p.index_k = pass->v + key_row * pass->value_width + pass->in.v->out;
    }
    if (spec->position_bias.gated) {
        p.mask.position_gates = pass->position_gates + row * heads;
        p.mask.gates = heads;
    }
    if (attn_pass_absorbs(pass)) { /* the problem becomes one over cached latents */
        const size_t rank = spec->mla.kv_lora_rank, width = rank + spec->mla.rope_head_dim;
        p.head_dim = width;
        p.value_head_dim = rank;
        p.q = (struct attn_rows){pass->absorbed + row * heads * width, heads * width, width};
        if (p.out.data != NULL)
            p.out = (struct attn_rows){pass->sums + row * heads * rank, heads * rank, rank};
    }
    return p;
}

/* The problem of differential attention beside `p`, which gives each head the first half of the
 * values: that of the other half, without maps. */
static struct attn_problem second_half(const struct attn_pass *pass, struct attn_problem *p,
                                       const struct attn_call *c, size_t i)
{
    const struct attn_maps *maps = &p->maps;
    p->value_heads = p->num_kv_heads / 2;
    struct attn_problem second = *p;
    second.first_value_head = p->value_heads;
    second.lse = NULL;
    second.maps = (struct attn_maps){.num_heads = maps->num_heads,
                                     .queries = maps->queries,
                                     .keys = maps->keys,
                                     .columns = maps->columns,
                                     .unit_heads = maps->unit_heads,
                                     .unit_tokens = maps->unit_tokens};
    if (p->out.data != NULL)
        second.out.data = pass->second + (c->row + i * c->queries) * p->out.token;
    return second;
}

/* Checks that the cache still holds all keys that a problem sees, by its mask. */
static enum attn_status check_kept(const struct attn_problem *p, struct attn_error *error)
{
    const size_t first = p->cache.first * ATTN_TILE;
    const size_t seen = attn_mask_visible(&p->mask, 0).first;
    if (seen >= first)
        return ATTN_OK;
    return attn_fail(error, ATTN_FORGOTTEN, "position",
                     "the step sees keys from %zu on, of which the layer's window has forgotten "
                     "those before %zu",
                     seen, first);
}

/* Whether the floats x [rows][width] of a call are within a limit. */
static bool call_within(const struct attn_pass *pass, const struct attn_call *c, const float *x,
                        size_t width, float limit)
{
    return attn_engine_all_within(pass->engine, x + c->row * width, c->count * c->queries * width,
                                  limit);
}

static enum attn_status absorb_queries(const struct attn_pass *pass)
{
    const struct attn_mla_spec *mla = &pass->layer->spec.mla;
    const size_t width = pass->layer->spec.num_heads * (mla->kv_lora_rank + mla->rope_head_dim);
    if (attn_mla_absorb(pass->engine, pass->layer, pass->absorbed, pass->q, pass->query_rows) !=
        ATTN_OK)
        return ATTN_NO_MEMORY;
    for (struct attn_call *c = pass->calls; c < pass->calls + pass->count; c++)
        if (!call_within(pass, c, pass->absorbed, width, ATTN_MAX_MAGNITUDE))
            atomic_store(&c->beyond, true);
    return ATTN_OK;
}

/* Marks the calls of which heads put out more than float32 holds. */
static void check_heads(const struct attn_pass *pass)
{
    for (struct attn_call *c = pass->calls; c < pass->calls + pass->count; c++)
        if (attn_call_is_sound(c) && attn_outputs_need_heads(c->outputs) &&
            !call_within(pass, c, pass->o, pass->layer->o.in, FLT_MAX))
            atomic_store(&c->output_over, true);
}

static enum attn_status up_project_sums(const struct attn_pass *pass)
{
    if (attn_mla_v_up_project(pass->engine, pass->layer, pass->o, pass->sums, pass->query_rows) !=
        ATTN_OK)
        return ATTN_NO_MEMORY;
    check_heads(pass);
    return ATTN_OK;
}

/* Solves `n` problems, of a layer that chooses keys as many at a time as that takes. */
static enum attn_status solve(const struct attn_pass *pass, size_t n)
{
    struct attn_workspace *workspace = &pass->engine->workspace;
    enum attn_status status = ATTN_OK;
    if (!attn_layer_chooses_keys(&pass->layer->spec))
        return attn_solve(pass->engine, pass->problems, n);
    for (size_t first = 0, count; first < n && status == ATTN_OK; first += count) {
        const struct attn_workspace_mark before = attn_workspace_get_mark(workspace);
        count = n - first;
        status = attn_choose_keys(&count, pass, pass->problems + first);
        if (status == ATTN_OK)
            status = attn_solve(pass->engine, pass->problems + first, count);
        attn_workspace_rewind(workspace, before);
    }
    return status;
}

static enum attn_status attend(const struct attn_pass *pass)
{
    size_t n = 0;
    if (attn_pass_absorbs(pass) && absorb_queries(pass) != ATTN_OK)
        return ATTN_NO_MEMORY;
    for (const struct attn_call *c = pass->calls; c < pass->calls + pass->count; c++)
        for (size_t i = 0; i < c->count && attn_call_is_sound(c); i++) {
            struct attn_problem *p = &pass->problems[n];
            *p = problem_of(pass, c, i);
            if (check_kept(p, c->error) != ATTN_OK)
                continue;
            if (pass->layer->spec.differential.lambda_init != 0)
                pass->problems[++n] = second_half(pass, p, c, i);
            n++;
        }
    const enum attn_status status = solve(pass, n);
    return status == ATTN_OK && attn_pass_absorbs(pass) ? up_project_sums(pass) : status;
}

/* ---- Rows of heads, before they are projected back ---- */

/* Makes the row of heads o [H][Dv], and that of the other half of the values, the H/2 normalised
 * differences [2Dv], in o.  From the last pair down, no head is overwritten before it is read. */
static void subtract_row(float *o, float *second, const struct attn_layer *layer)
{
    const struct attn_layer_spec *spec = &layer->spec;
    const struct attn_norm_spec norm = {.type = ATTN_NORM_RMS, .eps = spec->differential.norm_eps};
    const size_t dv = spec->value_head_dim, half = spec->num_heads / 2 * dv;
    const float share = (float)(1 - spec->differential.lambda_init);
    for (size_t i = 0; i < half; i++) {
        o[i] -= layer->lambda * o[half + i];
        second[i] -= layer->lambda * second[half + i];
    }
    for (size_t at = half; at > 0; at -= dv) {
        float *pair = o + 2 * (at - dv);
        memmove(pair, o + at - dv, dv * sizeof *o);
        memcpy(pair + dv, second + at - dv, dv * sizeof *o);
        attn_norm_vector(pair, &norm, NULL, NULL, 2 * dv);
        for (size_t i = 0; i < 2 * dv; i++)
            pair[i] *= share;
    }
}

/* Multiplies x [n] by ln(1 + exp(gate)), whose exponential would overflow for large gates. */
static void multiply_softplus(float *x, float gate, size_t n)
{
    const float factor = fmaxf(gate, 0) + log1pf(expf(-fabsf(gate)));
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void multiply_sigmoid(float *x, float gate, size_t n)
{
    const float divisor = 1 + expf(-gate);
    for (size_t i = 0; i < n; i++)
        x[i] /= divisor;
}

static void finish_row(const struct attn_pass *pass, size_t r)
{
    const struct attn_layer *layer = pass->layer;
    const struct attn_layer_spec *spec = &layer->spec;
    const size_t width = layer->o.in, gates = layer->gate.out;
    float *o = pass->o + r * width;
    if (spec->differential.lambda_init != 0)
        subtract_row(o, pass->second + r * width, layer);
    for (size_t g = 0; g < gates; g++)
        (spec->gate_softplus ? multiply_softplus : multiply_sigmoid)(
            o + g * (width / gates), pass->gate[r * gates + g], width / gates);
    if (spec->output_norm.type != ATTN_NORM_NONE)
        attn_norm_vector(o, &spec->output_norm, layer->o_norm, NULL, width);
}

static void finish_task(void *argument, size_t i, unsigned thread)
{
    const struct attn_pass *pass = argument;
    const size_t end = attn_min((i + 1) * ROWS_OF_TASK, pass->query_rows);
    (void)thread;
    for (size_t r = i * ROWS_OF_TASK; r < end; r++)
        finish_row(pass, r);
}

/* ---- Project back ---- */

static enum attn_status project_back(const struct attn_pass *pass)
{
    const struct attn_linear *o = &pass->layer->o;
    size_t n = 0;
    if (pass->layer->spec.is_weightless)
        return ATTN_OK;
    if (pass->output_rows > 0) {
        pass->products[0] = attn_projection_of(o, pass->o, pass->y, pass->output_rows);
        if (attn_project(pass->engine, pass->products, 1, true) != ATTN_OK)
            return ATTN_NO_MEMORY;
    }
    for (struct attn_call *c = pass->calls; c < pass->calls + pass->count; c++) {
        if (c->batched || c->outputs->output == NULL || !attn_call_is_sound(c))
            continue;
        float *output = c->outputs->output + c->first * c->queries * o->out;
        pass->products[n] =
            attn_projection_of(o, pass->o + c->row * o->in, output, c->count * c->queries);
        pass->products[n].limit = FLT_MAX;
        pass->products[n++].beyond = &c->output_over;
    }
    return attn_project(pass->engine, pass->products, n, false);
}

enum attn_status attn_forward(struct attn_pass *pass)
{
    const struct attn_layer_spec *spec = &pass->layer->spec;
    enum attn_status status = attn_forward_keys(pass); /* project, norm, rope */
    if (status == ATTN_OK)
        status = attend(pass);
    if (status == ATTN_OK && (spec->differential.lambda_init != 0 || pass->layer->gate.out > 0 ||
                              spec->output_norm.type != ATTN_NORM_NONE))
        attn_pool_run(pass->engine->pool, finish_task, pass,
                      attn_ceil_div(pass->query_rows, ROWS_OF_TASK));
    if (status == ATTN_OK &&
        (attn_layer_joins_heads(spec) || spec->gate_softplus)) /* have no bound */
        check_heads(pass);
    if (status == ATTN_OK)
        status = project_back(pass);
    if (attn_engine_cancelled(pass->engine, NULL))
        return ATTN_CANCELLED;
    if (status == ATTN_OK)
        attn_pass_fill_outputs(pass);
    return attn_engine_cancelled(pass->engine, NULL) ? ATTN_CANCELLED : status;
}
