/* hash.h: the daemon's hash functions, each with what it is for.  None is cryptographic: API keys
 * and states are digested with SHA-256.
 *
 * Values of srv_hash_word and srv_hash_fold are in files of the state directory (checksum.h,
 * digest.h), so these two functions never change. */
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

/* Adds a word to a hash.  With either argument fixed it is a bijection of the other, so two
 * sequences of words that differ in one word have different hashes. */
static inline uint64_t srv_hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * SRV_HASH_GOLDEN;
    return hash ^ hash >> 32;
}

/* The two halves of the 128-bit product a * b, combined by ^: each input bit reaches every output
 * bit. */
static inline uint64_t srv_hash_fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The hash of a text in a table whose keys clients choose: a polynomial modulo 2^61 - 1 at a random
 * point that stays secret, so that nobody can choose texts that collide. */
uint64_t srv_hash_text(uint64_t point, const char *text);

#endif
