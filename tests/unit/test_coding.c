/* test_coding.c: bodies in gzip and deflate, whole and damaged; the coding chosen for a reply. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "http/guard.h"
#include "suites.h"
#include "wire/coding.h"

#define TEXT_MAX 300000

static char text[TEXT_MAX], coded[2 * TEXT_MAX];
static size_t coded_size, granted, grant_limit;
static struct srv_error error;

static bool grant(void *context, size_t bytes)
{
    (void)context;
    granted += bytes;
    return granted <= grant_limit;
}

/* Compresses the bytes with zlib itself; returns the length. */
static size_t code(char *out, size_t room, enum srv_coding coding, const char *bytes, size_t size)
{
    z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)size};
    int window = coding == SRV_GZIP ? MAX_WBITS + 16 : MAX_WBITS;
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)room;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

/* Decompresses `coded`, expecting the first `size` bytes of `text`, or this error. */
static void expect(enum srv_coding coding, size_t most, enum srv_error_code wanted, size_t size)
{
    char *out, *exact = malloc(coded_size > 0 ? coded_size : 1);
    size_t length;
    const struct srv_decompress_limits limits = {.most = most, .grant = grant};
    memcpy(exact, coded, coded_size); /* in memory of the exact size, for sanitizers */
    error = (struct srv_error){0};
    granted = 0;
    enum srv_error_code got =
        srv_decompress(&out, &length, coding, exact, coded_size, &limits, &error);
    ck_assert_msg(got == wanted && error.code == wanted, "%s: %s", srv_error_word(got),
                  error.message);
    free(exact);
    if (got != SRV_OK)
        return;
    ck_assert_uint_eq(length, size);
    ck_assert(memcmp(out, text, size) == 0);
    ck_assert_int_eq(out[size], '\0');
    free(out);
}

static void setup(void)
{
    grant_limit = SIZE_MAX;
    for (size_t i = 0; i < TEXT_MAX;
         i++) /* like text of numbers: gzip makes it 2 to 3 times shorter */
        text[i] = "0123456789.,-e"[(i * 2654435761u >> 13) % 14];
}

/* The coding of a loop test, which runs once for each. */
#define CODING (_i == 0 ? SRV_GZIP : SRV_DEFLATE)

CASE(bodies, setup, NULL, 0)

TEST_EACH(coding_gives_back_what_was_coded, 2)
{
    static const size_t sizes[] = {0, 1, 2, 100, 4095, 4096, 4097, 65536, TEXT_MAX};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        coded_size = code(coded, sizeof coded, CODING, text, sizes[i]);
        expect(CODING, TEXT_MAX, SRV_OK, sizes[i]);
        expect(CODING, sizes[i], SRV_OK, sizes[i]);
        if (sizes[i] > 0)
            expect(CODING, sizes[i] - 1, SRV_E_BODY_TOO_LARGE, 0);
    }
}

TEST_EACH(coding_refuses_every_length_but_the_whole, 2)
{
    size_t whole = code(coded, sizeof coded, CODING, text, 2000);
    for (coded_size = 0; coded_size < whole; coded_size++)
        expect(CODING, TEXT_MAX, SRV_E_MALFORMED_ENCODING, 0);
}

TEST_EACH(coding_refuses_what_follows_the_end_and_a_second_member, 2)
{
    size_t whole = code(coded, sizeof coded, CODING, text, 2000);
    coded[whole] = 0;
    coded_size = whole + 1;
    expect(CODING, TEXT_MAX, SRV_E_MALFORMED_ENCODING, 0);
    coded_size = whole + code(coded + whole, sizeof coded - whole, CODING, text, 10);
    expect(CODING, TEXT_MAX, SRV_E_MALFORMED_ENCODING, 0);
}

TEST_EACH(coding_refuses_the_other_form_and_text_as_it_is, 2)
{
    enum srv_coding other = CODING == SRV_GZIP ? SRV_DEFLATE : SRV_GZIP;
    coded_size = code(coded, sizeof coded, other, text, 500);
    expect(CODING, TEXT_MAX, SRV_E_MALFORMED_ENCODING, 0);
    memcpy(coded, "{\"a\":1}", coded_size = 7);
    expect(CODING, TEXT_MAX, SRV_E_MALFORMED_ENCODING, 0);
}

/* Some bits of gzip's header (time, operating system) mean nothing; any other changed bit is an
 * error. */
TEST_EACH(coding_a_turned_bit_is_found_or_means_nothing, 2)
{
    size_t refused = 0, whole = code(coded, sizeof coded, CODING, text, 300);
    const struct srv_decompress_limits limits = {.most = TEXT_MAX, .grant = grant};
    coded_size = whole;
    for (size_t bit = 0; bit < 8 * whole; bit++) {
        char *out;
        size_t length;
        coded[bit / 8] ^= (char)(1 << bit % 8);
        if (srv_decompress(&out, &length, CODING, coded, whole, &limits, &error) == SRV_OK) {
            ck_assert(length == 300 && memcmp(out, text, 300) == 0);
            free(out);
        } else {
            ck_assert_int_eq(error.code, SRV_E_MALFORMED_ENCODING);
            refused++;
        }
        coded[bit / 8] ^= (char)(1 << bit % 8);
    }
    ck_assert_uint_ge(refused, 8 * whole - 8 * 10);
}

TEST_EACH(coding_a_bomb_takes_no_more_than_it_may, 2)
{
    enum { BOMB = 64 << 20 };
    char *zeros = calloc(BOMB, 1);
    coded_size = code(coded, sizeof coded, CODING, zeros, BOMB);
    ck_assert_uint_lt(SRV_DECOMPRESS_RATIO_MAX * coded_size, BOMB);
    expect(CODING, SIZE_MAX, SRV_E_BODY_TOO_LARGE, 0);
    ck_assert_uint_le(granted, SRV_DECOMPRESS_RATIO_MAX * coded_size + 1);
    expect(CODING, 5000000, SRV_E_BODY_TOO_LARGE, 0);
    ck_assert_uint_le(granted, 5000001);
    grant_limit = 2000000;
    expect(CODING, SIZE_MAX, SRV_E_OUT_OF_MEMORY, 0);
    free(zeros);
}

TEST_EACH(coding_what_is_short_may_expand_as_far_as_it_likes, 2)
{
    memset(text, ' ', TEXT_MAX);
    coded_size = code(coded, sizeof coded, CODING, text, TEXT_MAX);
    ck_assert_uint_lt(coded_size * SRV_DECOMPRESS_RATIO_MAX, TEXT_MAX);
    expect(CODING, TEXT_MAX, SRV_OK, TEXT_MAX);
}

/* ---- Header fields --------------------------------------------------------------------------- */

static struct srv_head head_of(const char *name, const char *value, const char *second)
{
    struct srv_head head = {.count = second != NULL ? 2 : 1};
    head.fields[0] = (struct srv_header_field){name, value, strlen(name), strlen(value)};
    if (second != NULL)
        head.fields[1] = (struct srv_header_field){name, second, strlen(name), strlen(second)};
    return head;
}

CASE(heads, NULL, NULL, 0)

TEST(coding_of_a_body_is_one_of_three)
{
    static const struct {
        const char *value, *second;
        int wanted; /* -1: refused */
    } cases[] = {{"gzip", NULL, SRV_GZIP},
                 {"GZip", NULL, SRV_GZIP},
                 {"x-gzip", NULL, SRV_GZIP},
                 {"deflate", NULL, SRV_DEFLATE},
                 {"identity", NULL, SRV_IDENTITY},
                 {"br", NULL, -1},
                 {"", NULL, -1},
                 {"gzip, gzip", NULL, -1},
                 {"gzip,identity", NULL, -1},
                 {"gzip", "gzip", -1},
                 {"identity", "gzip", -1},
                 {"gzip;q=1", NULL, -1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct srv_head head = head_of("content-encoding", cases[i].value, cases[i].second);
        enum srv_coding coding = SRV_DEFLATE;
        enum srv_error_code got = srv_guard_content_encoding(&coding, &head, &error);
        ck_assert_msg(cases[i].wanted < 0 ? got == SRV_E_UNSUPPORTED_MEDIA
                                          : got == SRV_OK && (int)coding == cases[i].wanted,
                      "%s", cases[i].value);
    }
}

TEST(coding_of_a_reply_is_what_weighs_most)
{
    static const struct {
        const char *value, *second;
        enum srv_coding wanted;
    } cases[] = {{"gzip", NULL, SRV_GZIP},
                 {"deflate", NULL, SRV_DEFLATE},
                 {"deflate, GZIP", NULL, SRV_GZIP},
                 {"gzip;q=0.5, deflate;q=0.6", NULL, SRV_DEFLATE},
                 {"gzip;q=0.5 , deflate; q=0.5", NULL, SRV_GZIP},
                 {"gzip;q=0", NULL, SRV_IDENTITY},
                 {"gzip;q=0.000", NULL, SRV_IDENTITY},
                 {"gzip;q=0.001", NULL, SRV_GZIP},
                 {"*", NULL, SRV_GZIP},
                 {"*;q=0", NULL, SRV_IDENTITY},
                 {"gzip;q=0, *", NULL, SRV_DEFLATE},
                 {"gzip;q=0, deflate;q=0, *", NULL, SRV_IDENTITY},
                 {"identity", NULL, SRV_IDENTITY},
                 {"identity;q=1, gzip;q=0.5", NULL, SRV_IDENTITY},
                 {"identity;q=0.5, gzip;q=1.0", NULL, SRV_GZIP},
                 {"identity;q=0, gzip;q=0.1", NULL, SRV_GZIP},
                 {"br, zstd", NULL, SRV_IDENTITY},
                 {"br", "deflate", SRV_DEFLATE},
                 {"", NULL, SRV_IDENTITY},
                 {", ,gzip", NULL, SRV_GZIP},
                 {"gzipped", NULL, SRV_IDENTITY},
                 {"gzi", NULL, SRV_IDENTITY}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct srv_head head = head_of("Accept-Encoding", cases[i].value, cases[i].second);
        ck_assert_msg(srv_guard_accept_encoding(&head) == cases[i].wanted, "%s", cases[i].value);
    }
    struct srv_head other = head_of("Accept", "gzip", NULL);
    ck_assert_int_eq(srv_guard_accept_encoding(&other), SRV_IDENTITY);
}

SUITE(coding)
