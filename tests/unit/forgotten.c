/* forgotten.c: see forgotten.h. */
#include "forgotten.h"

#include <math.h>
#include <string.h>

#include "attn_state.h"

/* The lowest position of the step's rows, as windows count it. */
static int64_t lowest_position(const struct attn_step *step)
{
    const int64_t *ids = step->modifiers.tree ? step->modifiers.position_ids : NULL;
    int64_t lowest = ids != NULL ? ids[0] : (int64_t)step->position;
    for (size_t i = 1; ids != NULL && i < step->rows; i++)
        lowest = ids[i] < lowest ? ids[i] : lowest;
    return lowest;
}

/* The slot of the first token that is no padding. */
static int64_t first_real(const struct attn_step *step)
{
    const uint8_t *padding = step->modifiers.padding_mask;
    size_t slot = 0;
    while (padding != NULL && slot < step->position + step->rows && !padding[slot])
        slot++;
    return (int64_t)slot;
}

/* The first position that a row at `at` sees, chunks beginning at `origin`. */
static int64_t first_seen(const struct attn_step *step, const struct attn_layer_spec *spec,
                          int64_t at, int64_t origin)
{
    const struct attn_modifiers *m = &step->modifiers;
    const int64_t chunk = m->has_window ? 0 : (int64_t)spec->attention_chunk_size;
    const int64_t left = m->has_window ? m->window_left : (int64_t)spec->sliding_window - 1;
    int64_t seen = left < 0 ? 0 : at - left;
    if (chunk > 0) {
        int64_t past = (at - origin) % chunk, begin = at - (past < 0 ? past + chunk : past);
        seen = begin > seen ? begin : seen;
    }
    return seen;
}

bool forgotten_is_seen(const struct attn_step *step, const struct attn_layer_spec *spec,
                       size_t layer)
{
    const size_t first = attn_cache_first(step->cache, layer);
    const struct attn_modifiers *m = &step->modifiers;
    const bool tree = m->tree && m->position_ids != NULL, counts = tree && m->padding_mask != NULL;
    if (step->position == 0 || first == 0)
        return false;
    const int64_t seen = first_seen(step, spec, lowest_position(step), tree ? 0 : first_real(step));
    int64_t real = 0;
    for (size_t s = 0; s < first; s++) {
        real += counts && m->padding_mask[s];
        if (counts && !m->padding_mask[s] && seen > 0)
            continue;
        if ((counts ? real - 1 : (int64_t)s) >= seen)
            return true;
    }
    return false;
}

void forgotten_hide(struct oracle_outputs *want, const struct attn_layer_spec *spec, size_t rows,
                    size_t keys, size_t first)
{
    const size_t d = spec->head_dim, dv = spec->value_head_dim;
    for (int stage = 0; stage < 3; stage++)
        for (size_t i = 0; want->scores[stage] != NULL && i < rows * keys; i++)
            if (i % keys < first)
                want->scores[stage][i] = -INFINITY;
    for (size_t g = 0; g < spec->num_kv_heads && first > 0; g++) {
        memset(want->key + g * keys * d, 0, first * d * sizeof *want->key);
        memset(want->value + g * keys * dv, 0, first * dv * sizeof *want->value);
    }
}
