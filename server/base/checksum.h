/* checksum.h: XXH3 of xxHash, which finds damage and not forgery, at the speed of memory.
 *
 * The functions are compiled in: a program that keeps the library's state in variables of its own
 * must not meet another version of the library.  Values are stored in the state directory. */
#ifndef SRV_CHECKSUM_H
#define SRV_CHECKSUM_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#endif
