/* field_rules.c: the rules, a row each.
 *
 * Most fields mean something in every form of call, and stand in no rule.  Those that a form's body
 * does not have at all, or that exclude each other, are request.c's to refuse. */
#include "wire/field_rules.h"

static bool gives_positions(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return rows->position_ids.present;
}

static bool gives_offset(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return rows->query_offset.present;
}

static bool wants_cached(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)spec;
    return (rows->outputs & (SRV_OUT_KEY | SRV_OUT_VALUE)) != 0;
}

static bool rotates_encoder(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return rows->encoder_hidden_states.present && spec->rope.type != ATTN_ROPE_NONE;
}

static bool rotates_keys(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    return rows->key_hidden_states.present && spec->rope.type != ATTN_ROPE_NONE;
}

static bool crosses(const struct srv_rows *rows, const struct attn_layer_spec *spec)
{
    (void)rows;
    return spec->is_cross;
}

static const struct {
    unsigned forms; /* enum srv_call_form */
    const char *param;
    bool (*broken)(const struct srv_rows *rows, const struct attn_layer_spec *spec);
    const char *why;
} rules[] = {
    {SRV_FORM_WEIGHTLESS, "position_ids", gives_positions,
     "position_ids have no meaning without a layer: query and key are used as they are"},
    {SRV_FORM_CROSS, "position_ids", gives_positions,
     "position_ids have no meaning where keys are of another sequence"},
    {SRV_FORM_STEP, "query_offset", gives_offset,
     "query_offset has no meaning over a session, whose cached length says it"},
    {SRV_FORM_WEIGHTLESS, "outputs", wants_cached,
     "the outputs key and value have no meaning without a layer: they are the request's own"},
    {SRV_FORM_CROSS, "encoder_hidden_states", rotates_encoder,
     "encoder_hidden_states have no meaning for a layer with rotary positions"},
    {SRV_FORM_CROSS, "key_hidden_states", rotates_keys,
     "key_hidden_states have no meaning for a layer with rotary positions"},
    {SRV_FORM_SELF, "hidden_states", crosses,
     "hidden_states alone have no meaning for a layer of cross-attention: it needs "
     "encoder_hidden_states"},
    {SRV_FORM_STEP, "session_id", crosses,
     "session_id has no meaning for a layer of cross-attention, which has no cache"},
};

enum srv_error_code srv_field_rules_check(const struct srv_rows *rows, enum srv_call_form form,
                                          const struct attn_layer_spec *spec,
                                          struct srv_error *error)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if ((rules[i].forms & form) != 0 && rules[i].broken(rows, spec))
            return srv_fail(error, SRV_E_UNSUPPORTED, rules[i].param, "%s", rules[i].why);
    return SRV_OK;
}
