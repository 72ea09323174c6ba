/* field_hints.h: what to send in place of a field that a body cannot have. */
#ifndef SRV_FIELD_HINTS_H
#define SRV_FIELD_HINTS_H

#include <stddef.h>

#define SRV_HINT_MAX 144

/* Prints why `name` is no `what` ("field") of a body, and what to send instead: what the name of
 * another framework is called here, else the nearest of `names` [count], which the body can
 * have. */
void srv_field_hint(char out[SRV_HINT_MAX], const char *what, const char *name,
                    const char *const *names, size_t count);

#endif
