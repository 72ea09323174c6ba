/* v2_words.h: errors of a call in the words of the Open Inference Protocol. */
#ifndef SRV_V2_WORDS_H
#define SRV_V2_WORDS_H

#include <stddef.h>

#include "base/errors.h"

/* Replaces the names of fields of /attend in a text of up to `size` bytes with those that an infer
 * request has for them; what is quoted stays.  A text that grows beyond `size` is cut. */
void srv_v2_reword(char *text, size_t size);

/* Likewise in the message and the `param` of an error of the call that an infer request means. */
void srv_v2_reword_error(struct srv_error *error);

#endif
