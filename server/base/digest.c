/* digest.c: multiply and fold, over 8 bytes at a time.
 *
 * Each product waits for the one before it, so of long rows four lanes take a word each in turn,
 * whose products are under way together; what they come to is added as words are. */
#include "base/digest.h"

#include <string.h>

#define PRIME_A UINT64_C(0x9e3779b97f4a7c15)
#define PRIME_B UINT64_C(0xd6e8feb86659fd93)

/* The two halves of a 128-bit product, added: every input bit reaches every output bit. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static void add_word(uint64_t digest[2], uint64_t word)
{
    digest[0] = fold(digest[0] ^ word, PRIME_A) + PRIME_B;
    digest[1] = fold(digest[1] + word, PRIME_B) ^ digest[0];
}

void srv_digest_init(uint64_t digest[2])
{
    digest[0] = PRIME_B;
    digest[1] = PRIME_A;
}

#define LANES 4

/* Adds what there is of whole groups of words; returns its bytes. */
static size_t add_groups(uint64_t digest[2], const unsigned char *at, size_t count)
{
    uint64_t lanes[LANES], words[LANES];
    size_t whole = count - count % sizeof words;
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = digest[i % 2] + i * PRIME_B;
    for (const unsigned char *end = at + whole; at < end; at += sizeof words) {
        memcpy(words, at, sizeof words);
#pragma GCC unroll 4
        for (size_t i = 0; i < LANES; i++)
            lanes[i] = fold(lanes[i] ^ words[i], PRIME_A) + PRIME_B;
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
    memcpy(&word, at, left);
    add_word(digest, word);
    add_word(digest, count);
}
