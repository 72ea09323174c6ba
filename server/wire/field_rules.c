/* field_rules.c: the rules of which field applies where, a row each.
 *
 * Most fields apply to every form of call and have no rule here.  A field that a body cannot have
 * at all, or that excludes another, is refused by call.c. */
#include "wire/shapes.h"

#define BIT(form) (1u << SRV_FORM_##form)

#define ALL (~0u)

#define NO_POSITIONS "position_ids have no meaning where keys are of another sequence"

#define BY_HEAD                                                                                  \
    "no mask or bias differs by head in a layer whose indexer or dynamic mask chooses the keys " \
    "of several heads together: send [B,1,T,S]"

/* Of three dimensions the first may be B: there the library checks. */
static bool by_head(const struct attn_layer_spec *spec, const struct srv_tensor *mask)
{
    return spec != NULL && attn_layer_chooses_keys(spec) && mask->present && mask->rank == 4 &&
           mask->shape[1] > 1;
}

enum srv_error_code srv_field_rules_check(const struct srv_rows *rows, enum srv_call_form form,
                                          const struct attn_layer_spec *spec,
                                          struct srv_error *error)
{
    const bool is_cross = spec != NULL && spec->is_cross;
    const bool borrows = spec != NULL && spec->shares_layer != SIZE_MAX; /* another's keys */
    const bool rotates = spec != NULL && spec->rope.type != ATTN_ROPE_NONE;
    const bool joined = spec != NULL && attn_layer_joins_heads(spec);
    const bool positions = rows->position_ids.present;
    const bool by_grid = rotates && spec->rope.grid_prefix > 0;
    const bool whole = spec != NULL && attn_layer_needs_grid(spec);
    const bool own = (rows->outputs & (SRV_OUT_KEY | SRV_OUT_VALUE)) != 0;
    const bool inner = (rows->outputs & (SRV_OUT_QUERY | SRV_OUT_HEADS | SRV_OUT_CONCAT)) != 0;
    const struct {
        unsigned forms;
        bool broken;
        const char *param, *why;
    } rules[] = {
        {BIT(WEIGHTLESS), positions, "position_ids",
         "position_ids have no meaning without a layer: query and key are used as they are"},
        {BIT(CROSS), positions && !borrows, "position_ids", NO_POSITIONS},
        {BIT(STEP) | BIT(GIVEN_STEP), rows->query_offset.present && !is_cross, "query_offset",
         "query_offset has no meaning over a session, whose cached length says it"},
        {BIT(WEIGHTLESS), own && !rows->past_key.present, "outputs",
         "the outputs key and value have no meaning without a layer, but beside past_key: they are "
         "the request's own"},
        {BIT(WEIGHTLESS) | BIT(GIVEN_STEP), inner, "outputs",
         "the outputs query, head_output and concat have no meaning without a layer: query is the "
         "request's own, and output is what each head puts out"},
        {BIT(WEIGHTLESS) | BIT(GIVEN_STEP), rows->ablate, "ablate",
         "ablate has no meaning without a layer, whose output projection it compares"},
        {BIT(SELF) | BIT(CROSS) | BIT(STEP), joined && rows->ablate, "ablate",
         "ablate has no meaning for a layer that normalises or subtracts heads together, in which "
         "a head has no share of its own: compare with a call whose head_mask is 0 for it"},
        {ALL, by_head(spec, &rows->attention_mask), "attention_mask", BY_HEAD},
        {ALL, by_head(spec, &rows->attention_bias), "attention_bias", BY_HEAD},
        {ALL, rows->grid.present && !by_grid, "grid",
         "grid has a meaning only for layers that rotate by rows and columns of patches"},
        {BIT(SELF), by_grid && !rows->grid.present, "grid",
         "grid is missing: this layer rotates by rows and columns of patches, [rows, columns]"},
        {BIT(SELF), by_grid && positions, "position_ids",
         "position_ids have no meaning for a layer that rotates by a grid of patches"},
        {BIT(STEP), whole, "session_id",
         "a session has no meaning for a layer that attends to all patches of an image at once"},
        {BIT(CROSS), rotates && rows->encoder_hidden_states.present, "encoder_hidden_states",
         "encoder_hidden_states have no meaning for a layer with rotary positions"},
        {BIT(CROSS), rotates && !borrows && rows->key_hidden_states.present, "key_hidden_states",
         "key_hidden_states have no meaning for a layer with rotary positions"},
        {BIT(SELF), is_cross, "hidden_states",
         "hidden_states alone have no meaning for a layer of cross-attention: it needs "
         "encoder_hidden_states"},
        {BIT(SELF), borrows, "hidden_states",
         "hidden_states alone have no meaning for a layer that reads the keys and values of an "
         "earlier one: it needs that layer's rows as key_hidden_states and value_hidden_states, or "
         "a session"},
        {BIT(STEP), positions && is_cross, "position_ids", NO_POSITIONS},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].broken && (rules[i].forms & 1u << form) != 0)
            return srv_fail(error, SRV_E_UNSUPPORTED, rules[i].param, "%s", rules[i].why);
    return SRV_OK;
}
