/* test_digest.c: rows that differ have digests that differ, wherever and however they do. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "suites.h"

#define LONGEST 100 /* bytes: several groups of words, words and bytes behind them */

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

/* No two are the same, nor is either half of two. */
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

START_TEST(test_digest_sees_every_bit_of_every_length)
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
END_TEST

START_TEST(test_digest_sees_which_place_a_word_has)
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
END_TEST

START_TEST(test_digest_keeps_parts_apart)
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
END_TEST

START_TEST(test_digest_is_the_same_wherever_the_bytes_lie)
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
END_TEST

Suite *suite_digest(void)
{
    Suite *suite = suite_create("digest");
    TCase *digests = tcase_create("digests");
    tcase_add_test(digests, test_digest_sees_every_bit_of_every_length);
    tcase_add_test(digests, test_digest_sees_which_place_a_word_has);
    tcase_add_test(digests, test_digest_keeps_parts_apart);
    tcase_add_test(digests, test_digest_is_the_same_wherever_the_bytes_lie);
    suite_add_tcase(suite, digests);
    return suite;
}
