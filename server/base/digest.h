/* digest.h: a 128-bit digest of rows, to tell a repeated step from another one.
 *
 * Not cryptographic: a caller can only collide with its own rows, in its own session.  Rows that
 * differ in one place collide by chance once in 2^64. */
#ifndef SRV_DIGEST_H
#define SRV_DIGEST_H

#include <stddef.h>
#include <stdint.h>

void srv_digest_init(uint64_t digest[2]);

/* Adds bytes; their number counts too, so parts do not run into each other. */
void srv_digest_add(uint64_t digest[2], const void *bytes, size_t count);

#endif
