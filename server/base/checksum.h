/* checksum.h: a 64-bit checksum of bytes that finds damage, not forgery.
 *
 * Four lanes take 4 bytes each in turn.  A lane's step is a bijection of its word, and so is the
 * step that joins each lane to the result: two texts that differ in one word always have different
 * checksums, and any others have equal ones with probability 2^-64.  The speed is that of memory,
 * several times a CRC's.  Values are stored in the state directory: the function never changes. */
#ifndef SRV_CHECKSUM_H
#define SRV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

struct srv_checksum {
    uint64_t lanes[4];
    uint64_t words; /* added so far */
};

void srv_checksum_init(struct srv_checksum *sum);

/* Adds `size` bytes, a multiple of 4.  The checksum does not depend on how the bytes are divided
 * among calls. */
void srv_checksum_add(struct srv_checksum *sum, const void *bytes, size_t size);
uint64_t srv_checksum_end(const struct srv_checksum *sum);

/* The checksum of one piece of `size` bytes, a multiple of 4. */
uint64_t srv_checksum_of(const void *bytes, size_t size);

#endif
