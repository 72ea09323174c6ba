/* hash.c: a polynomial modulo a prime. */
#include "base/hash.h"

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
