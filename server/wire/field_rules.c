/* field_rules.c: the rules of which field applies where, a row each.
 *
 * Most fields apply to every form of call and have no rule here.  A field that a body cannot have
 * at all, or that excludes another, is refused by call.c. */
#include "wire/field_rules.h"

static bool gives_positions(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return rows->position_ids.present;
}

static bool wants_key_or_value(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return (rows->outputs & (SRV_OUT_KEY | SRV_OUT_VALUE)) != 0;
}

static bool wants_own_rows(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return wants_key_or_value(rows, spec) && !rows->past_key.present;
}

static bool wants_inner_rows(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return (rows->outputs & (SRV_OUT_QUERY | SRV_OUT_HEADS | SRV_OUT_CONCAT)) != 0;
}

static bool ablates(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return rows->ablate;
}

static bool rotates_encoder(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return rows->encoder_hidden_states.present && spec->rope.type != ATTN_ROPE_NONE;
}

static bool rotates_keys(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return rows->key_hidden_states.present && spec->rope.type != ATTN_ROPE_NONE &&
           spec->shares_layer == SIZE_MAX;
}

static bool reads_another_layer(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)rows;
    return spec->shares_layer != SIZE_MAX;
}

static bool gives_positions_across(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return gives_positions(rows, spec) && spec->shares_layer == SIZE_MAX;
}

static bool offsets_self(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return rows->query_offset.present && (spec == NULL || !spec->is_cross);
}

static bool positions_cross(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return rows->position_ids.present && spec->is_cross;
}

static bool is_cross_layer(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)rows;
    return spec->is_cross;
}

/* A field that does not apply to a form of call, where `broken` holds. */
static const struct {
    enum srv_call_form form;
    const char *param;
    bool (*broken)(const struct srv_rows *rows, const struct attn_layer_spec *spec);
    const char *why;
} rules[] = {
    {.form = SRV_FORM_WEIGHTLESS,
     .param = "position_ids",
     .broken = gives_positions,
     .why = "position_ids have no meaning without a layer: query and key are used as they are"},
    {.form = SRV_FORM_CROSS,
     .param = "position_ids",
     .broken = gives_positions_across,
     .why = "position_ids have no meaning where keys are of another sequence"},
    {.form = SRV_FORM_STEP,
     .param = "query_offset",
     .broken = offsets_self,
     .why = "query_offset has no meaning over a session, whose cached length says it"},
    {.form = SRV_FORM_GIVEN_STEP,
     .param = "query_offset",
     .broken = offsets_self,
     .why = "query_offset has no meaning over a session, whose cached length says it"},
    {.form = SRV_FORM_WEIGHTLESS,
     .param = "outputs",
     .broken = wants_own_rows,
     .why = "the outputs key and value have no meaning without a layer, but beside past_key: they "
            "are the request's own"},
    {.form = SRV_FORM_WEIGHTLESS,
     .param = "outputs",
     .broken = wants_inner_rows,
     .why = "the outputs query, head_output and concat have no meaning without a layer: query is "
            "the request's own, and output is what each head puts out"},
    {.form = SRV_FORM_GIVEN_STEP,
     .param = "outputs",
     .broken = wants_inner_rows,
     .why = "the outputs query, head_output and concat have no meaning without a layer: query is "
            "the request's own, and output is what each head puts out"},
    {.form = SRV_FORM_GIVEN_STEP,
     .param = "ablate",
     .broken = ablates,
     .why = "ablate has no meaning without a layer, whose output projection it compares"},
    {.form = SRV_FORM_WEIGHTLESS,
     .param = "ablate",
     .broken = ablates,
     .why = "ablate has no meaning without a layer, whose output projection it compares"},
    {.form = SRV_FORM_CROSS,
     .param = "encoder_hidden_states",
     .broken = rotates_encoder,
     .why = "encoder_hidden_states have no meaning for a layer with rotary positions"},
    {.form = SRV_FORM_CROSS,
     .param = "key_hidden_states",
     .broken = rotates_keys,
     .why = "key_hidden_states have no meaning for a layer with rotary positions"},
    {.form = SRV_FORM_SELF,
     .param = "hidden_states",
     .broken = is_cross_layer,
     .why = "hidden_states alone have no meaning for a layer of cross-attention: it needs "
            "encoder_hidden_states"},
    {.form = SRV_FORM_SELF,
     .param = "hidden_states",
     .broken = reads_another_layer,
     .why =
         "hidden_states alone have no meaning for a layer that reads the keys and values of an "
         "earlier one: it needs that layer's rows as key_hidden_states and value_hidden_states, or "
         "a session"},
    {.form = SRV_FORM_STEP,
     .param = "position_ids",
     .broken = positions_cross,
     .why = "position_ids have no meaning where keys are of another sequence"},
};

enum srv_error_code srv_field_rules_check(const struct srv_rows *rows, enum srv_call_form form,
                                          const struct attn_layer_spec *spec,
                                          struct srv_error *error)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].form == form && rules[i].broken(rows, spec))
            return srv_fail(error, SRV_E_UNSUPPORTED, rules[i].param, "%s", rules[i].why);
    return SRV_OK;
}
