/* digest.c: a chain of 128-bit hashes, and a polynomial modulo a prime. */
#include "base/digest.h"

#include "base/checksum.h"

void srv_digest_init(uint64_t digest[2]) { digest[0] = digest[1] = 0; }

void srv_digest_add(uint64_t digest[2], const void *bytes, size_t count)
{
    const XXH128_hash_t part = XXH3_128bits(bytes, count);
    const uint64_t chain[4] = {digest[0], digest[1], part.low64, part.high64};
    const XXH128_hash_t next = XXH3_128bits(chain, sizeof chain);
    digest[0] = next.low64;
    digest[1] = next.high64;
}

#define PRIME ((UINT64_C(1) << 61) - 1)

uint64_t srv_hash_text(uint64_t point, const char *text)
{
    uint64_t hash = 1;
    point %= PRIME;
    for (const char *c = text; *c != '\0'; c++) {
        unsigned __int128 product = (unsigned __int128)hash * point;
        hash = (uint64_t)((product + (unsigned char)*c + 1) % PRIME);
    }
    return hash;
}
