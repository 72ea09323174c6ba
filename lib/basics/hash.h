/* hash.h: the 64-bit mixing functions of library and daemon.
 *
 * Both are fast and neither is cryptographic.  Random weights come out of the first and model
 * fingerprints, which files and replies carry, out of both: their bits must stay what they are. */
#ifndef ATTN_LIB_BASICS_HASH_H
#define ATTN_LIB_BASICS_HASH_H

#include <stdint.h>

/* 2^64 / golden ratio, odd: multiples of it are spread evenly over 64 bits. */
#define ATTN_HASH_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* A bijection of 64 bits in which every input bit flips half of the output bits: the finaliser of
 * SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t attn_hash_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* `hash` of a sequence, continued by one word.  The multiplier is that of MurmurHash3's
 * finaliser. */
static inline uint64_t attn_hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ (hash >> 32);
}

#endif
