/* digest.h: a 128-bit digest of rows, by which the retry of a step is told from another step, and
 * the hash of texts that clients choose.
 *
 * The digest is not cryptographic: a caller can collide with its own rows only, in its own session.
 * Digests are stored in the state directory: the function never changes. */
#ifndef SRV_DIGEST_H
#define SRV_DIGEST_H

#include <stddef.h>
#include <stdint.h>

void srv_digest_init(uint64_t digest[2]);

/* Adds a piece; where pieces end counts: ("ab", "c") and ("a", "bc") differ. */
void srv_digest_add(uint64_t digest[2], const void *bytes, size_t count);

/* The hash of a text in a table whose keys clients choose: a polynomial modulo 2^61 - 1 at a random
 * point that stays secret, so that nobody can choose texts that collide. */
uint64_t srv_hash_text(uint64_t point, const char *text);

#endif
