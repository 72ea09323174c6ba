/* test_number.c: numbers as text, against exact integers, glibc's strtof and the definition of
 * "shortest".  ATTN_LONG_TESTS=1 in the environment tries 100 million random floats, not 2
 * million. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/number_tables.h"
#include "suites.h"

/* ck_assert_msg at no cost where it holds: libcheck records every assertion in a file. */
#define REQUIRE(condition, ...)        \
    do {                               \
        if (!(condition))              \
            ck_abort_msg(__VA_ARGS__); \
    } while (0)

static uint64_t random_bits(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The number of random numbers to try. */
static long samples(long few)
{
    const char *set = getenv("ATTN_LONG_TESTS");
    return set != NULL && strcmp(set, "1") == 0 ? 100000000 : few;
}

/* ---- The table of distances ------------------------------------------------------------------ */

#define LIMBS 16

struct big {
    uint32_t limb[LIMBS]; /* lowest first */
};

static void big_multiply(struct big *x, uint32_t factor)
{
    uint64_t carry = 0;
    for (size_t i = 0; i < LIMBS; i++) {
        carry += (uint64_t)x->limb[i] * factor;
        x->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    ck_assert_uint_eq(carry, 0);
}

static struct big big_power(uint32_t base, int exponent)
{
    struct big x = {{1}};
    for (int i = 0; i < exponent; i++)
        big_multiply(&x, base);
    return x;
}

/* x * factor for a 64-bit factor: x * upper * 2^32 + x * lower */
static struct big big_times(const struct big *x, uint64_t factor)
{
    struct big lower = *x, upper = *x;
    uint64_t carry = 0;
    big_multiply(&lower, (uint32_t)factor);
    big_multiply(&upper, (uint32_t)(factor >> 32));
    ck_assert_uint_eq(upper.limb[LIMBS - 1], 0);
    for (size_t i = 1; i < LIMBS; i++) {
        carry += (uint64_t)lower.limb[i] + upper.limb[i - 1];
        lower.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return lower;
}

static int big_compare(const struct big *a, const struct big *b)
{
    for (size_t i = LIMBS; i-- > 0;)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static struct big big_shifted(struct big x, int bits)
{
    for (int i = 0; i < bits; i++)
        big_multiply(&x, 2);
    return x;
}

/* Entry t is ceil(b / a): (t - 1) * a < b <= t * a. */
static void check_ceiling(uint64_t t, const struct big *a, const struct big *b, int q)
{
    struct big below = big_times(a, t - 1), above = big_times(a, t);
    ck_assert_msg(big_compare(&below, b) < 0 && big_compare(b, &above) <= 0, "entry for 2^%d", q);
}

CASE(read, NULL, NULL, 60)

/* Everything is multiplied by 2^150 * 10^46, which makes all numbers whole. */
TEST(number_table_holds_distances_of_floats_rounded_up)
{
    for (int q = SRV_STEP_MIN, p = -46; q <= SRV_STEP_MAX; q++) {
        struct big distance = big_shifted(big_power(10, 46), q + 150);
        struct big power = big_shifted(big_power(10, p + 46), 150);
        while (big_compare(&power, &distance) <= 0) {
            big_multiply(&power, 10);
            p++;
        }
        distance = big_shifted(distance, 64);
        check_ceiling(srv_steps[q - SRV_STEP_MIN], &power, &distance, q);
    }
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads `text`, all of which must be a number, and compares with strtof. */
static void check_read(const char *text)
{
    const char *end, *limit = text + strlen(text);
    float got, want = strtof(text, NULL);
    bool valid = srv_number_read(&got, text, limit, &end);
    REQUIRE(valid && end == limit, "%.60s: not read as a whole", text);
    REQUIRE(to_bits(got) == to_bits(want), "%.60s: got %a, want %a", text, got, want);
}

TEST(number_read_rounds_edge_cases_as_strtof)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0",
        "-0.0e5",
        "0e999999999999",
        "1",
        "-1",
        "10",
        "0.1",
        "0.5",
        "3.25",
        "123456789",
        "1e10",
        "1E10",
        "1e+10",
        "1e-10",
        "1.5e-5",
        "16777216",
        "16777217",
        "16777218",
        "16777219",
        "16777217.0000000000000000000000000000000001",
        "33554434",
        "33554435",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "9999999999999999999",
        "99999999999999999999",
        "3.4028234663852886e38",
        "3.4028235677973362e38",
        "3.4028235677973366e38",
        "340282356779733661637539395458142568447",
        "340282356779733661637539395458142568448",
        "3.5e38",
        "1e38",
        "1e39",
        "-1e39",
        "1e999999999999",
        "-1e999999999999",
        "1e-999999999999",
        "1.1754943508222875e-38",
        "1.1754942807573643e-38",
        "1.17549428e-38",
        "1.4e-45",
        "7.1e-46",
        "7.006492321624085e-46",
        "7.0064923216240853e-46",
        "7.0064923216240854e-46",
        "7e-46",
        "1e-46",
        "1e-65",
        "18446744073709551615e-65",
        "1e-400",
        "2.2250738585072014e-308",
        "0.00000000000000000000000000000000000000000000000000000000000000000000000000001",
        "100000000000000000000000000000000000000000000000000000000000000000000000000000e-77",
        "1.00000005960464477539062",
        "1.000000059604644775390625",
        "1.00000005960464477539063",
        "0.000123456789012345678",
        "0.0001234567890123456789012345",
        "8388608.5",
        "8388609.5",
    };
    for (size_t i = 0; i < COUNT(texts); i++)
        check_read(texts[i]);
}

TEST(number_read_takes_numbers_of_a_thousand_digits)
{
    static char text[2100];
    memset(text, '0', sizeof text);
    memcpy(text, "0.", 2);
    memcpy(text + 1002, "1", 2);
    check_read(text); /* 0.000...1 */
    memcpy(text + 1003, "e1001", 6);
    check_read(text); /* the same, scaled to 1 by an exponent */
    memcpy(text + 1003, "e1039", 6);
    check_read(text); /* scaled to 1e38 */
    memset(text, '1', 1000);
    text[1000] = '\0';
    check_read(text); /* infinite */
    memcpy(text + 1000, "e-999", 6);
    check_read(text); /* 1.11... */
    memset(text, '0', 1000);
    memcpy(text, "16777217", 8);
    memcpy(text + 1000, "e-992", 6);
    check_read(text); /* a half point after 992 zeros */
    text[999] = '1';
    check_read(text); /* and slightly more */
}

TEST(number_read_decides_half_points_with_long_tails)
{
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)(random_bits(&state) % 0x7F7FFFFF);
        if (i % 4 == 0)
            bits %= 0x800000; /* denormals */
        double half = ((double)from_bits(bits) + (double)from_bits(bits + 1)) / 2;
        char text[200], tail[260];
        snprintf(text, sizeof text, "%.120e", half); /* exact: a half point has 113 digits */
        check_read(text);
        char *exponent = strchr(text, 'e');
        for (int zeros = 0; zeros < 40; zeros += 13) {
            snprintf(tail, sizeof tail, "%.*s%.*s1%s", (int)(exponent - text), text, zeros,
                     "0000000000000000000000000000000000000000", exponent);
            check_read(tail);
        }
        snprintf(text, sizeof text, "%.*e", 16 + i % 8, half); /* near it */
        check_read(text);
    }
}

TEST(number_read_agrees_with_strtof_on_random_decimals)
{
    uint64_t state = 2;
    for (int i = 0; i < 500000; i++) {
        char text[64];
        uint64_t r = random_bits(&state);
        int exponent = (int)(random_bits(&state) % 90) - 60;
        int digits = 1 + (int)(random_bits(&state) % 19);
        for (int drop = digits; drop < 19; drop++)
            r /= 10;
        if (i % 3 == 0)
            snprintf(text, sizeof text, "%llue%d", (unsigned long long)r, exponent);
        else if (i % 3 == 1)
            snprintf(text, sizeof text, "-0.%.*s%llu", i % 7, "000000", (unsigned long long)r);
        else
            snprintf(text, sizeof text, "%llu.%llu", (unsigned long long)(r >> 40),
                     (unsigned long long)r);
        check_read(text);
    }
}

TEST(number_read_stops_at_the_limit)
{
    static const char text[] = "1234567890.123456789e12";
    for (size_t length = 1; length < sizeof text; length++) {
        char *copy = malloc(length); /* of the exact length: a sanitizer sees a byte too many */
        const char *end;
        float value;
        memcpy(copy, text, length);
        bool valid = srv_number_read(&value, copy, copy + length, &end);
        bool complete = text[length - 1] != '.' && text[length - 1] != 'e';
        ck_assert_int_eq(valid, complete);
        ck_assert_ptr_eq(end, copy + length);
        free(copy);
    }
}

TEST(number_read_refuses_what_json_has_not)
{
    static const struct {
        const char *text;
        size_t stop; /* offset of the first wrong byte */
    } cases[] = {
        {"", 0},   {"-", 1},   {"+1", 0},   {".5", 0},  {"-.5", 1},       {"1.", 2},  {"1.e5", 2},
        {"1e", 2}, {"1e+", 3}, {"1e-x", 3}, {"NaN", 0}, {"-Infinity", 1}, {"inf", 0}, {"0.x", 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = cases[i].text, *end;
        float value;
        double wide;
        ck_assert_msg(!srv_number_read(&value, text, text + strlen(text), &end), "%s", text);
        ck_assert_msg(end == text + cases[i].stop, "%s: stops at %td", text, end - text);
        ck_assert(!srv_number_skip(text, text + strlen(text), &end));
        ck_assert(!srv_number_read_double(&wide, text, text + strlen(text), &end));
    }
}

TEST(number_read_leaves_what_follows)
{
    static const char *const texts[] = {"0123", "1,", "1.5]", "-0x10", "2e5.1", "7 "};
    static const size_t lengths[] = {1, 1, 3, 2, 3, 1};
    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *end;
        float value;
        ck_assert(srv_number_read(&value, texts[i], texts[i] + strlen(texts[i]), &end));
        ck_assert_uint_eq((size_t)(end - texts[i]), lengths[i]);
    }
}

TEST(number_read_double_agrees_with_strtod)
{
    uint64_t state = 3;
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = random_bits(&state);
        double x, got;
        char text[64];
        const char *end;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        snprintf(text, sizeof text, "%.*e", i % 24, x);
        REQUIRE(srv_number_read_double(&got, text, text + strlen(text), &end), "%s", text);
        x = strtod(text, NULL);
        REQUIRE(memcmp(&got, &x, sizeof x) == 0, "%s", text);
    }
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* The significant digits of a text, without zeros at either end. */
static size_t digits_of(char out[32], const char *text)
{
    size_t count = 0;
    for (; *text != '\0' && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && (count > 0 || *text != '0'))
            out[count++] = *text;
    while (count > 0 && out[count - 1] == '0')
        count--;
    out[count] = '\0';
    return count;
}

/* The fewest digits that round to x, found by trying; writes the digits to `out`. */
static size_t shortest_by_trial(char out[32], float x)
{
    char text[32];
    for (int digits = 0; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, x);
        if (strtof(text, NULL) == x)
            break;
    }
    return digits_of(out, text);
}

static void write_text(char out[SRV_NUMBER_MAX + 1], float x)
{
    memset(out, '#', SRV_NUMBER_MAX);
    size_t length = srv_numbers_write(out, &x, 1) - 1; /* less the comma */
    REQUIRE(length <= 16, "%zu characters", length);
    out[length] = '\0';
}

static void check_round_trip(float x)
{
    char text[SRV_NUMBER_MAX + 1];
    const char *end;
    float got;
    write_text(text, x);
    REQUIRE(srv_number_read(&got, text, text + strlen(text), &end) && *end == '\0', "%s", text);
    REQUIRE(to_bits(got) == to_bits(x), "%s: reads as %a, was %a", text, got, x);
    REQUIRE(to_bits(strtof(text, NULL)) == to_bits(x), "%s: strtof differs", text);
}

/* The interval around a power of two is uneven: its shortest text need not be the closest of that
 * length, which %.*e writes. */
static void check_shortest(float x)
{
    char text[SRV_NUMBER_MAX + 1], got[32], want[32];
    write_text(text, x);
    size_t count = digits_of(got, text), least = shortest_by_trial(want, x);
    REQUIRE(count <= least, "%s: %zu digits, %s has %zu", text, count, want, least);
    if ((to_bits(x) & 0x7FFFFF) != 0)
        REQUIRE(strcmp(got, want) == 0, "%s: not the closest, which is %s", text, want);
}

CASE(write, NULL, NULL, 3600)

TEST(number_write_has_the_form_that_json_readers_take)
{
    static const struct {
        float x;
        const char *text;
    } cases[] = {
        {0.0f, "0"},
        {-0.0f, "-0.0"},
        {1.0f, "1"},
        {-3.0f, "-3"},
        {0.1f, "0.1"},
        {-0.25f, "-0.25"},
        {0.3333333432674408f, "0.33333334"},
        {123.456f, "123.456"},
        {1200.0f, "1200"},
        {16777216.0f, "16777216"},
        {123456790.0f, "123456790"},
        {999999940.0f, "999999940"},
        {1e9f, "1e9"},
        {1.5e10f, "1.5e10"},
        {0.0001f, "0.0001"},
        {-0.000123456789f, "-0.00012345679"},
        {0.00001f, "1e-5"},
        {1e-7f, "1e-7"},
        {3.4028234663852886e38f, "3.4028235e38"},
        {-1.1754943508222875e-38f, "-1.1754944e-38"},
        {1.4e-45f, "1e-45"},
        {8.5e-45f, "8e-45"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[SRV_NUMBER_MAX + 1];
        write_text(text, cases[i].x);
        ck_assert_str_eq(text, cases[i].text);
    }
}

TEST(number_write_round_trips_powers_of_two_and_ten_and_their_neighbours)
{
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (int step = -3; step <= 3; step++)
            for (uint32_t sign = 0; sign < 2; sign++) {
                uint32_t bits = (exponent << 23) + (uint32_t)step;
                if (bits >= 0x7F800000)
                    continue;
                check_round_trip(from_bits(bits | sign << 31));
                if (bits != 0)
                    check_shortest(from_bits(bits));
            }
    for (int exponent = -45; exponent <= 38; exponent++)
        for (int step = -3; step <= 3; step++) {
            char text[16];
            snprintf(text, sizeof text, "1e%d", exponent);
            float x = from_bits(to_bits(strtof(text, NULL)) + (uint32_t)step);
            if (!(x > 0)) /* a NaN below the least denormal */
                continue;
            check_round_trip(x);
            check_shortest(x);
        }
}

TEST(number_write_round_trips_every_small_integer)
{
    for (int i = -100000; i <= 100000; i++) {
        char text[SRV_NUMBER_MAX + 1], want[16];
        write_text(text, (float)i);
        snprintf(want, sizeof want, "%d", i);
        ck_assert_str_eq(text, want);
    }
}

TEST(number_write_is_shortest_closest_and_exact_for_random_floats)
{
    uint64_t state = 4;
    for (long i = 0; i < samples(2000000); i++) {
        uint32_t bits = (uint32_t)random_bits(&state);
        if ((bits & 0x7F800000) == 0x7F800000)
            continue;
        char nine[32];
        float x = from_bits(bits);
        check_round_trip(x);
        if (i % 8 == 0 && x != 0)
            check_shortest(x);
        if (i % 8 == 1) {
            snprintf(nine, sizeof nine, "%.9g", x);
            check_read(nine);
            snprintf(nine, sizeof nine, "%.17g", x * (1 + 1e-8 * (double)(bits & 0xFFFF) / 65536));
            check_read(nine);
        }
    }
}

/* ---- Lists ----------------------------------------------------------------------------------- */

#define MANY 64

/* Reads a list whose text, commas included, ends at its NUL, in memory of its exact length. */
static size_t read_list(float out[MANY], const char *text, size_t *stop)
{
    size_t length = strlen(text);
    char *copy = malloc(length + (length == 0));
    const char *at = copy;
    memcpy(copy, text, length);
    size_t count = srv_numbers_read(out, MANY, &at, copy + length);
    *stop = (size_t)(at - copy);
    free(copy);
    return count;
}

/* Reads a list at the end of its text, and far from it, where another path reads it. */
static void check_list(const char *text, size_t want_count, size_t want_stop)
{
    static const char *const tails[] = {"", "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"};
    for (size_t i = 0; i < 2; i++) {
        char whole[128];
        float got[MANY];
        size_t stop;
        snprintf(whole, sizeof whole, "%s%s", text, tails[i]);
        size_t count = read_list(got, whole, &stop);
        ck_assert_msg(count == want_count, "%s: %zu numbers", whole, count);
        ck_assert_msg(stop == want_stop, "%s: stops at %zu", whole, stop);
    }
}

TEST(numbers_read_stops_before_what_is_no_number_with_a_comma)
{
    static const char *const refused[] = {"",      "1",     "1e39,",       "-1e999,", "null,",
                                          "01,",   "-,",    "+1,",         "1.,",     ".5,",
                                          "1e,",   "1.x,",  "1.5.5,",      "1.5e,",   "0x1,",
                                          "00.5,", "1.5 ,", "1.2345678x,", "1.\xb1,", "1.,5"};
    for (size_t i = 0; i < COUNT(refused); i++)
        check_list(refused[i], 0, 0);
    check_list("1,", 1, 2);
    check_list("1,,", 1, 2);
    check_list("1,2 ,3", 1, 2);
    check_list("1, \t\r\n2,]", 2, 8);
    check_list("1.5,1.12345678\xb0,", 1, 4);
}

TEST(numbers_read_takes_no_more_than_it_may)
{
    const char *text = "1,2.5,3,4,", *at = text;
    float got[4] = {0, 0, 0, -1};
    ck_assert_uint_eq(srv_numbers_read(got, 3, &at, text + strlen(text)), 3);
    ck_assert_int_eq(at - text, 8);
    ck_assert(got[0] == 1 && got[1] == 2.5f && got[2] == 3 && got[3] == -1);
}

/* A random number in one of the forms that occur in requests. */
static int random_text(char *out, size_t size, uint64_t *state)
{
    uint64_t r = random_bits(state);
    uint32_t bits;
    int form = (int)(random_bits(state) % 8), digits = 1 + (int)(r % 30);
    double x = ((double)(r >> 11) * 0x1p-53 - 0.5) * pow(10, (double)(r % 9) - 4);
    unsigned long long whole = r >> (1 + r % 63), more = random_bits(state);
    switch (form) {
    case 0:
        return snprintf(out, size, "%.*e", digits, x);
    case 1:
        return snprintf(out, size, "%llu", whole);
    case 2:
        return snprintf(out, size, "%llu.%.*s%llu", whole, (int)(more % 9), "00000000", more);
    case 3:
        return snprintf(out, size, "-%d.%.*s", (int)(r % 3000), digits,
                        "123456789999999999999999999");
    case 4: /* halfway between two floats from 2 to 512, or truncated close to it */
        bits = 0x40000000 + (uint32_t)(more & 0x3FFFFFF);
        return snprintf(out, size, "%.*f", (int)(16 + r % 8),
                        ((double)from_bits(bits) + (double)from_bits(bits + 1)) / 2);
    case 5:
        return snprintf(out, size, "%.*f", digits % 25, x);
    default:
        return snprintf(out, size, "%.*g", digits, x);
    }
}

TEST(numbers_read_agrees_with_strtof_in_every_form)
{
    uint64_t state = 5;
    for (int round = 0; round < 10000; round++) {
        static char text[MANY * 80];
        float got[MANY];
        size_t length = 0, stop;
        for (int i = 0; i < MANY; i++) {
            length += (size_t)random_text(text + length, 64, &state);
            length += (size_t)snprintf(text + length, 8, ",%.*s", round % 3, "  ");
        }
        REQUIRE(read_list(got, text, &stop) == MANY && stop == length, "%s: to %zu", text, stop);
        const char *at = text;
        for (int i = 0; i < MANY; i++) {
            char *end;
            float want = strtof(at, &end);
            REQUIRE(to_bits(got[i]) == to_bits(want), "%.40s: got %a, want %a", at, got[i], want);
            at = end + 1;
        }
    }
}

TEST(numbers_write_gives_null_for_what_is_not_finite)
{
    static const float x[] = {INFINITY, 1, -INFINITY, -0.0f, NAN, 0, -2.5e-20f};
    char text[COUNT(x) * (SRV_NUMBER_MAX + 1) + 1];
    text[srv_numbers_write(text, x, COUNT(x))] = '\0';
    ck_assert_str_eq(text, "null,1,null,-0.0,null,0,-2.5e-20,");
    ck_assert_uint_eq(srv_numbers_write(text, x, 0), 0);
}

TEST(numbers_of_random_bits_round_trip_in_lists)
{
    uint64_t state = 6;
    for (long done = 0; done < samples(2000000); done += MANY) {
        float x[MANY], got[MANY];
        char text[MANY * (SRV_NUMBER_MAX + 1)];
        for (int i = 0; i < MANY; i++) {
            uint32_t bits = (uint32_t)random_bits(&state);
            x[i] = from_bits((bits & 0x7F800000) == 0x7F800000 ? bits ^ 0x40000000 : bits);
        }
        size_t length = srv_numbers_write(text, x, MANY - (size_t)(done % 5 == 0));
        size_t count = MANY - (size_t)(done % 5 == 0);
        const char *at = text;
        REQUIRE(srv_numbers_read(got, MANY, &at, text + length) == count && at == text + length,
                "%.*s", (int)length, text);
        REQUIRE(memcmp(got, x, count * sizeof x[0]) == 0, "%.*s: differs", (int)length, text);
        at = text;
        for (size_t i = 0; i < count; i++) {
            char *end;
            float want = strtof(at, &end);
            REQUIRE(to_bits(x[i]) == to_bits(want) && *end == ',', "%.20s: is %a", at, x[i]);
            at = end + 1;
        }
    }
}

SUITE(number)
