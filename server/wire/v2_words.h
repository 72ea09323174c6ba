/* v2_words.h: errors of a call in the words of the Open Inference Protocol. */
#ifndef SRV_V2_WORDS_H
#define SRV_V2_WORDS_H

#include "wire/json.h"

/* Replaces the names of fields of /attend with those that an infer request has for them in the
 * message and the `param` of an error of the call that the request means; what is quoted stays.  A
 * message that becomes too long is cut. */
void srv_v2_reword_error(struct srv_error *error);

/* Fails with unknown_field: there is no `what` ("input") of that name.  Says what to send instead:
 * the nearest of `names` [count]. */
bool srv_v2_fail_unknown(struct srv_json *json, const char *what, const char *name,
                         const char *const *names, size_t count);

#endif
