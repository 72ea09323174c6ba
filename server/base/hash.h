/* hash.h: the daemon's hash functions, each with what it is for.  None is cryptographic: API keys
 * and states are digested with SHA-256.
 *
 * checksum.h and digest.h have those whose values are in files. */
#ifndef SRV_HASH_H
#define SRV_HASH_H

#include <stdint.h>

/* 2^64 / golden ratio, odd: multiples of it are spread evenly over 64 bits. */
#define SRV_HASH_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* A bijection of 64 bits in which each input bit flips half of the output bits: the finaliser of
 * SplitMix64 (Steele, Lea, Flood 2014).  Makes numbers that look random of a counter's multiples of
 * SRV_HASH_GOLDEN. */
static inline uint64_t srv_hash_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The hash of a text in a table whose keys clients choose: a polynomial modulo 2^61 - 1 at a random
 * point that stays secret, so that nobody can choose texts that collide. */
uint64_t srv_hash_text(uint64_t point, const char *text);

#endif
