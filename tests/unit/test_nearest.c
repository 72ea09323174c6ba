/* test_nearest.c: what a misspelt word is taken for, against the definition of the distance. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "rng.h"
#include "suites.h"

static const char *const fields[] = {
    "hidden_states",  "padding_mask", "attention_mask",   "query", "sliding_window",
    "attention_bias", NULL,           "key_hidden_states"};
#define FIELD_COUNT COUNT(fields)

static const struct {
    const char *word, *nearest; /* NULL: none */
} cases[] = {
    {"hidden_state", "hidden_states"},
    {"Hidden-States", "hidden_states"},
    {"hiddne_states", "hidden_states"},
    {"attentoin_bias", "attention_bias"},
    {"quer", "query"},
    {"qurey", "query"},
    {"key_hidden_state", "key_hidden_states"},
    {"sliding_windows", "sliding_window"},
    {"temperature", NULL},
    {"q", NULL},
    {"", NULL},
    {"\xff\xfe", NULL},
};

TEST_EACH(nearest_suggests_the_field_that_was_meant, COUNT(cases))
{
    const char *nearest = attn_nearest(cases[_i].word, fields, FIELD_COUNT);
    if (cases[_i].nearest == NULL)
        ck_assert_ptr_null(nearest);
    else
        ck_assert_str_eq(nearest, cases[_i].nearest);
}

TEST(nearest_of_words_that_are_too_long_is_none)
{
    char word[4 * ATTN_NEAREST_MAX];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    const char *const names[] = {word};
    ck_assert_ptr_null(attn_nearest(word, names, 1));
    word[ATTN_NEAREST_MAX + 1] = '\0';
    ck_assert_ptr_null(attn_nearest(word, names, 1));
    word[ATTN_NEAREST_MAX] = '\0';
    ck_assert_ptr_eq(attn_nearest(word, names, 1), word);
}

TEST(choices_are_listed_and_cut_before_they_pass_the_room)
{
    static const char *const names[] = {"FP32", "FP16", "BF16"};
    char out[256], text[64][ATTN_NEAREST_MAX + 1];
    const char *many[64];
    srv_choices(out, sizeof out, "F32", names, 3);
    ck_assert_str_eq(out, "FP32, FP16, BF16; did you mean FP32?");
    srv_choices(out, sizeof out, "float", names, 3);
    ck_assert_str_eq(out, "FP32, FP16, BF16");
    srv_choices(out, sizeof out, "float", names, 0);
    ck_assert_str_eq(out, "");
    for (size_t length = 1; length <= ATTN_NEAREST_MAX; length++) {
        for (size_t i = 0; i < 64; i++) {
            memset(text[i], 'a', length);
            text[i][length] = '\0';
            many[i] = text[i];
        }
        memset(out, '!', sizeof out);
        srv_choices(out, 96, text[0], many, 64);
        ck_assert_uint_lt(strlen(out), 96);
        ck_assert_ptr_nonnull(strstr(out, "...; did you mean a"));
        ck_assert_int_eq(out[96], '!');
    }
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The definition of the distance, by recursion over the last characters. */
static size_t defined(const char *a, size_t m, const char *b, size_t n)
{
    if (m == 0 || n == 0)
        return m + n;
    size_t d = defined(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);
    d = least(d, least(defined(a, m - 1, b, n), defined(a, m, b, n - 1)) + 1);
    if (m > 1 && n > 1 && a[m - 1] == b[n - 2] && a[m - 2] == b[n - 1])
        d = least(d, defined(a, m - 2, b, n - 2) + 1);
    return d;
}

TEST(nearest_is_the_first_of_the_least_distance)
{
    struct rng rng = rng_seeded(19);
    for (size_t round = 0; round < 400; round++) {
        char words[5][7]; /* the word, and four names, of the letters a to c */
        const char *names[4], *expected = NULL;
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < 5; i++) {
            size_t length = 1 + rng_below(&rng, 6);
            for (size_t j = 0; j < length; j++)
                words[i][j] = (char)('a' + rng_below(&rng, 3));
            words[i][length] = '\0';
        }
        for (size_t i = 0; i < 4; i++) {
            size_t m = strlen(words[0]), n = strlen(words[i + 1]);
            size_t d = defined(words[0], m, words[i + 1], n);
            names[i] = words[i + 1];
            if (d < best && d <= (m > n ? m : n) / 3) {
                best = d;
                expected = names[i];
            }
        }
        ck_assert_msg(attn_nearest(words[0], names, 4) == expected, "%s: %s, not %s", words[0],
                      attn_nearest(words[0], names, 4), expected);
    }
}

SUITE(nearest)
