/* hash.h: the hash of texts that clients choose. */
#ifndef SRV_HASH_H
#define SRV_HASH_H

#include <stdint.h>

/* The hash of a text in a table whose keys clients choose: a polynomial modulo 2^61 - 1 at a random
 * point that stays secret, so that nobody can choose texts that collide. */
uint64_t srv_hash_text(uint64_t point, const char *text);

#endif
