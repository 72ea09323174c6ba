/* field_rules.h: which fields mean nothing in which calls. */
#ifndef SRV_FIELD_RULES_H
#define SRV_FIELD_RULES_H

#include "attn.h"
#include "wire/call.h"

enum srv_call_form {
    SRV_FORM_SELF = 1 << 0,       /* rows for a layer, keys from the same rows */
    SRV_FORM_CROSS = 1 << 1,      /* keys from other rows */
    SRV_FORM_WEIGHTLESS = 1 << 2, /* query, key and value */
    SRV_FORM_STEP = 1 << 3,       /* a prefill or decode */
};

/* Refuses, as unsupported, what the rows ask for and this form of call with this layer (NULL:
 * weightless) cannot mean.  The rules stand in docs/API.md too. */
enum srv_error_code srv_field_rules_check(const struct srv_rows *rows, enum srv_call_form form,
                                          const struct attn_layer_spec *spec,
                                          struct srv_error *error);

#endif
