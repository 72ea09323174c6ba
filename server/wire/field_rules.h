/* field_rules.h: which field applies to which form of call. */
#ifndef SRV_FIELD_RULES_H
#define SRV_FIELD_RULES_H

#include "attn.h"
#include "wire/call.h"

enum srv_call_form {
    SRV_FORM_SELF,       /* /attend of a layer, keys from the same rows */
    SRV_FORM_CROSS,      /* /attend of a layer, keys from other rows */
    SRV_FORM_WEIGHTLESS, /* /attend of query, key and value */
    SRV_FORM_STEP,       /* a prefill or a decode step over a session */
    SRV_FORM_GIVEN_STEP, /* the same of query, key and value, over a session without weights */
};

/* Refuses fields and outputs of the rows that do not apply to this form of call with this layer
 * (NULL: weightless).  docs/API.md has the rules too.  Error: unsupported. */
enum srv_error_code srv_field_rules_check(const struct srv_rows *rows, enum srv_call_form form,
                                          const struct attn_layer_spec *spec,
                                          struct srv_error *error);

#endif
