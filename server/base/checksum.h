/* checksum.h: a 64-bit sum of bytes, against damage and not against forgers.
 *
 * Four lanes take 4 bytes each in turn; what a lane does with a word can be undone, and so can the
 * end that joins them.  So two texts that differ in one word only always have different sums, and
 * others by chance with 2^-64.  It runs at the speed of memory, several times that of a CRC. */
#ifndef SRV_CHECKSUM_H
#define SRV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

struct srv_checksum {
    uint64_t lanes[4];
    uint64_t words; /* taken so far */
};

void srv_checksum_init(struct srv_checksum *sum);

/* Adds bytes, a multiple of 4; how they are divided among calls does not matter. */
void srv_checksum_add(struct srv_checksum *sum, const void *bytes, size_t size);
uint64_t srv_checksum_end(const struct srv_checksum *sum);

/* The sum of one piece, a multiple of 4. */
uint64_t srv_checksum_of(const void *bytes, size_t size);

#endif
