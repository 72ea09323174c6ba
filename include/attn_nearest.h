/* attn_nearest.h: the name that a misspelt word probably means, for messages.
 *
 * The header is shared with the daemon and is not installed. */
#ifndef ATTN_NEAREST_H
#define ATTN_NEAREST_H

#include <stddef.h>

#define ATTN_NEAREST_MAX 64 /* characters of a word or name; a longer one is near to nothing */

/* The name of `names` [count] that is nearest to the word; NULL where none is near.  The distance
 * is the number of characters to insert, delete, replace or swap with their neighbour (optimal
 * string alignment), in which upper and lower case are equal, and '-' and '_' too.  Near is a
 * distance of at most a third of the longer of the two; of equally near names the first is taken.
 * NULL among the names is passed over.  Costs the product of both lengths for each name. */
const char *attn_nearest(const char *word, const char *const *names, size_t count);

#endif
