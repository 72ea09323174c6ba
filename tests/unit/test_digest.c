/* test_digest.c: the hash functions have the values that files of the state directory rely on, and
 * rows that differ have different digests. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/digest.h"
#include "basics/hash.h"
#include "suites.h"

#define LONGEST 100 /* bytes: several groups of words, then words, then bytes */

struct pair {
    uint64_t words[2];
};

static struct pair digest_of(const void *bytes, size_t count)
{
    struct pair digest;
    srv_digest_init(digest.words);
    srv_digest_add(digest.words, bytes, count);
    return digest;
}

static int compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int first = (x->words[0] > y->words[0]) - (x->words[0] < y->words[0]);
    return first != 0 ? first : (x->words[1] > y->words[1]) - (x->words[1] < y->words[1]);
}

/* No two digests of the list have the same first half or the same second half. */
static void expect_distinct(struct pair list[], size_t count)
{
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < count; i++) {
            uint64_t word = list[i].words[0];
            list[i].words[0] = list[i].words[1];
            list[i].words[1] = word;
        }
        qsort(list, count, sizeof list[0], compare);
        for (size_t i = 1; i < count; i++)
            ck_assert_uint_ne(list[i].words[0], list[i - 1].words[0]);
    }
}

TEST(digest_of_pieces_sees_each_and_their_order)
{
    static const char *const pieces[][3] = {{"a", "b", "c"}, {"x", "b", "c"}, {"a", "x", "c"},
                                            {"b", "a", "c"}, {"", "ab", "c"}, {"a", "", "c"}};
    struct pair list[COUNT(pieces)];
    for (size_t i = 0; i < COUNT(pieces); i++) {
        srv_digest_init(list[i].words);
        for (size_t j = 0; j < 3; j++)
            srv_digest_add(list[i].words, pieces[i][j], strlen(pieces[i][j]));
    }
    expect_distinct(list, COUNT(pieces));
}

TEST(digest_sees_every_bit_of_every_length)
{
    static struct pair list[LONGEST * (LONGEST + 1) / 2 * 8 + LONGEST];
    unsigned char bytes[LONGEST] = {0};
    size_t count = 0;
    for (size_t length = 0; length < LONGEST; length++) {
        list[count++] = digest_of(bytes, length);
        for (size_t bit = 0; bit < 8 * length; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            list[count++] = digest_of(bytes, length);
            bytes[bit / 8] = 0;
        }
    }
    ck_assert_uint_gt(count, 30000);
    expect_distinct(list, count);
}

TEST(digest_sees_which_place_a_word_has)
{
    enum { WORDS = LONGEST / 8 };
    static struct pair list[WORDS * WORDS];
    uint64_t words[WORDS];
    size_t count = 0;
    for (size_t i = 0; i < WORDS; i++)
        words[i] = i % 2 == 0 ? i : ~(uint64_t)i;
    list[count++] = digest_of(words, sizeof words);
    for (size_t i = 0; i < WORDS; i++)
        for (size_t j = i + 1; j < WORDS; j++) {
            uint64_t word = words[i];
            words[i] = words[j], words[j] = word;
            list[count++] = digest_of(words, sizeof words);
            words[j] = words[i], words[i] = word;
        }
    expect_distinct(list, count);
}

TEST(digest_keeps_parts_apart)
{
    static struct pair list[LONGEST];
    const unsigned char bytes[LONGEST] = {0};
    for (size_t first = 0; first < LONGEST; first++) {
        srv_digest_init(list[first].words);
        srv_digest_add(list[first].words, bytes, first);
        srv_digest_add(list[first].words, bytes, LONGEST - first);
    }
    expect_distinct(list, LONGEST);
}

TEST(digest_is_the_same_wherever_the_bytes_lie)
{
    unsigned char bytes[LONGEST], moved[LONGEST + 8];
    for (size_t i = 0; i < LONGEST; i++)
        bytes[i] = (unsigned char)(37 * i);
    struct pair here = digest_of(bytes, LONGEST);
    for (size_t i = 0; i < 8; i++) {
        memcpy(moved + i, bytes, LONGEST);
        struct pair there = digest_of(moved + i, LONGEST);
        ck_assert_int_eq(compare(&here, &there), 0);
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* SplitMix64's numbers for seed 0 are published, and those of XXH3 for no bytes in xxHash's own
 * tests; that of the text comes from an implementation in Python. */
TEST(hashes_have_the_values_that_files_hold)
{
    ck_assert_uint_eq(attn_hash_mix(ATTN_HASH_GOLDEN), UINT64_C(0xe220a8397b1dcdaf));
    ck_assert_uint_eq(attn_hash_mix(2 * ATTN_HASH_GOLDEN), UINT64_C(0x6e789e6aa1b965f4));
    ck_assert_uint_eq(XXH3_64bits("", 0), UINT64_C(0x2d06800538d394c2));
    ck_assert_uint_eq(XXH3_128bits("", 0).low64, UINT64_C(0x6001c324468d497f));
    ck_assert_uint_eq(XXH3_128bits("", 0).high64, UINT64_C(0x99aa06d3014798d8));
    ck_assert_uint_eq(srv_hash_text(UINT64_C(0xfedcba9876543210), "session-1"),
                      UINT64_C(0x1462d55d11b5eab7));
    ck_assert_uint_eq(srv_hash_text(12345, ""), 1);
}

/* Flipping an input bit flips each output bit for about half of the inputs. */
TEST(hash_mix_flips_each_output_bit_for_half_of_the_inputs)
{
    enum { TRIES = 4096 };
    for (unsigned in = 0; in < 64; in++) {
        unsigned flips[64] = {0};
        for (uint64_t i = 0; i < TRIES; i++) {
            uint64_t x = i * ATTN_HASH_GOLDEN;
            uint64_t changed = attn_hash_mix(x) ^ attn_hash_mix(x ^ UINT64_C(1) << in);
            for (unsigned out = 0; out < 64; out++)
                flips[out] += changed >> out & 1;
        }
        for (unsigned out = 0; out < 64; out++) /* six standard deviations are 192 */
            ck_assert_msg(flips[out] > TRIES / 2 - 192 && flips[out] < TRIES / 2 + 192,
                          "bits %u to %u: %u", in, out, flips[out]);
    }
}

SUITE(digest)
