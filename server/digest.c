/* digest.c: two lanes of multiply and fold over 8 bytes at a time. */
#include "digest.h"

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

void srv_digest_add(uint64_t digest[2], const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t word;
    for (size_t left = count; left >= sizeof word; left -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        add_word(digest, word);
    }
    word = 0;
    memcpy(&word, at, count % sizeof word);
    add_word(digest, word);
    add_word(digest, count);
}
