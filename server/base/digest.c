/* digest.c: multiply and fold (srv_hash_fold), over 8 bytes at a time.
 *
 * Each product depends on the one before it.  So the bulk of long rows goes through four
 * independent lanes, which take a word each in turn and whose products overlap; the lanes' results
 * are then added as words are. */
#include "base/digest.h"

#include <string.h>

#include "base/hash.h"

#define PRIME UINT64_C(0xd6e8feb86659fd93)

static void add_word(uint64_t digest[2], uint64_t word)
{
    digest[0] = srv_hash_fold(digest[0] ^ word, SRV_HASH_GOLDEN) + PRIME;
    digest[1] = srv_hash_fold(digest[1] + word, PRIME) ^ digest[0];
}

void srv_digest_init(uint64_t digest[2])
{
    digest[0] = PRIME;
    digest[1] = SRV_HASH_GOLDEN;
}

#define LANES 4

/* Adds all whole groups of LANES words; returns how many bytes those are. */
static size_t add_groups(uint64_t digest[2], const unsigned char *at, size_t count)
{
    uint64_t lanes[LANES], words[LANES];
    size_t whole = count - count % sizeof words;
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = digest[i % 2] + i * PRIME;
    for (const unsigned char *end = at + whole; at < end; at += sizeof words) {
        memcpy(words, at, sizeof words);
#pragma GCC unroll 4
        for (size_t i = 0; i < LANES; i++)
            lanes[i] = srv_hash_fold(lanes[i] ^ words[i], SRV_HASH_GOLDEN) + PRIME;
    }
    for (size_t i = 0; i < LANES && whole > 0; i++)
        add_word(digest, lanes[i]);
    return whole;
}

void srv_digest_add(uint64_t digest[2], const void *bytes, size_t count)
{
    size_t whole = add_groups(digest, bytes, count), left = count - whole;
    const unsigned char *at = (const unsigned char *)bytes + whole;
    uint64_t word;
    for (; left >= sizeof word; left -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        add_word(digest, word);
    }
    word = 0;
    if (left > 0) /* else `bytes` may be NULL */
        memcpy(&word, at, left);
    add_word(digest, word);
    add_word(digest, count);
}
