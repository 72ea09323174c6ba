/* nearest.h: the name that a misspelt word probably means, and lists of names, for messages. */
#ifndef SRV_NEAREST_H
#define SRV_NEAREST_H

#include "attn_nearest.h"

/* Prints the names as "FP32, FP16; did you mean FP32?": all that fit `size` bytes, "..." for those
 * that do not, and the one that is near to the word, if any.  `size` is at least 96. */
void srv_choices(char *out, size_t size, const char *word, const char *const *names, size_t count);

#endif
