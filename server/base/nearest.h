/* nearest.h: the name that a misspelt word probably means, and lists of names, for messages. */
#ifndef SRV_NEAREST_H
#define SRV_NEAREST_H

#include <stddef.h>

#define SRV_NEAREST_MAX 64 /* characters of a word or name; a longer one is near to nothing */

/* The name of `names` [count] that is nearest to the word; NULL where none is near.  The distance
 * is the number of characters to insert, delete, replace or swap with their neighbour (optimal
 * string alignment), in which upper and lower case are equal, and '-' and '_' too.  Near is a
 * distance of at most a third of the longer of the two; of equally near names the first is taken.
 * NULL among the names is passed over.  Costs the product of both lengths for each name. */
const char *srv_nearest(const char *word, const char *const *names, size_t count);

/* Prints the names as "FP32, FP16; did you mean FP32?": all that fit `size` bytes, "..." for those
 * that do not, and the one that is near to the word, if any.  `size` is at least 96. */
void srv_choices(char *out, size_t size, const char *word, const char *const *names, size_t count);

#endif
