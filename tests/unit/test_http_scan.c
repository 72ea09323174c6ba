/* test_http_scan.c: the framing of a connection's bytes: one verdict wherever they are cut, and
 * nothing of a faulty request behind whole ones. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "http/scan.h"
#include "suites.h"

#define GET "GET /livez HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
#define COOKIES "a=1; b=2; c=3; d=4"

/* Bytes of a connection; `end` of them, and `requests`, come before the fault. */
struct stream {
    const char *text;
    enum srv_error_code code; /* SRV_OK: no fault */
    unsigned requests;
    const char *before; /* the whole requests before the fault; NULL: all of `text` */
};

static const struct stream streams[] = {
    {GET "\r\n" GET "\r\n" GET "X: \r\n\r\n", SRV_OK, 3, NULL},
    {GET "Content-Length: 5\r\n\r\n12345" GET "\r\n", SRV_OK, 2, NULL},
    {GET "Content-Length: 0\r\n\r\n" GET "\r\n", SRV_OK, 2, NULL},
    {GET "\r\n" GET "Content-Length: 5\r\n\r\n1\r\n3", SRV_OK, 2, NULL},
    {CHUNKED "2\r\n[]\r\nA;b=\"c\"\r\n0123456789\r\n00\r\nA: b\r\n\r\n", SRV_OK, 1, NULL},
    {CHUNKED "0\r\n\r\nanything may follow", SRV_OK, 1, NULL},
    {GET "Transfer-Encoding: gzip\r\n\r\nanything", SRV_OK, 1, NULL},
    {GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\nanything", SRV_OK, 1, NULL},
    {GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nanything", SRV_OK, 1, NULL},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\nanything", SRV_OK, 1, NULL},
    {GET "Content-Length: 5 5\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {GET "Transfer-Encoding: chunked x\r\n\r\n", SRV_E_NOT_IMPLEMENTED, 0, ""},
    {GET "\r\nG@T / HTTP/1.1\r\n\r\n", SRV_E_BAD_REQUEST, 1, GET "\r\n"},
    {GET "\r\n" GET "\r\n" CHUNKED "zz\r\n", SRV_E_BAD_REQUEST, 2, GET "\r\n" GET "\r\n"},
    {GET "Content-Length: 5\r\n\r\n12345\n", SRV_E_BAD_REQUEST, 1,
     GET "Content-Length: 5\r\n\r\n12345"},
    {CHUNKED "\r\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED ";a\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "-2\r\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "0x2\r\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "2 \r\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "2\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "2;a\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "2\r\r\n[]\r\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "2\r\n[]0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "2\r\n[]\n0\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "0\r\nA: b\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "0\r\n a: b\r\n\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {CHUNKED "10000000000000000\r\n", SRV_E_BODY_TOO_LARGE, 0, ""},
    {"\r\n\r\n" GET "\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {"\r" GET "\r\n", SRV_E_BAD_REQUEST, 0, ""},
    {"\n" GET "\r\n", SRV_E_BAD_REQUEST, 0, ""},
};
#define NUM_STREAMS (int)COUNT(streams)

struct outcome {
    struct srv_scan scan;
    char bytes[65536]; /* let through */
    size_t length;
};

/* Scans bytes in pieces of `piece`, after one of `first`; each lies in memory of its size. */
static void run(struct outcome *out, const char *bytes, size_t count, size_t first, size_t piece)
{
    memset(out, 0, sizeof *out);
    for (size_t at = 0; at < count && out->scan.fault == NULL;) {
        size_t now = at == 0 && first > 0 ? first : piece;
        now = now < count - at ? now : count - at;
        char *copy = malloc(now);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, bytes + at, now);
        size_t passed = srv_scan(&out->scan, copy, now);
        ck_assert_uint_le(passed, now);
        memcpy(out->bytes + out->length, copy, passed);
        out->length += passed;
        at += now;
        free(copy);
    }
}

static enum srv_error_code code_of(const struct outcome *out)
{
    return out->scan.fault != NULL ? out->scan.fault->code : SRV_OK;
}

TEST_EACH(scan_lets_whole_requests_through_and_nothing_of_a_faulty_one, NUM_STREAMS)
{
    static struct outcome out;
    const struct stream *stream = &streams[_i];
    const char *before = stream->before != NULL ? stream->before : stream->text;
    run(&out, stream->text, strlen(stream->text), 0, SIZE_MAX);
    ck_assert_msg(code_of(&out) == stream->code, "%s: %s", stream->text,
                  srv_error_word(code_of(&out)));
    ck_assert_uint_eq(out.scan.requests, stream->requests);
    ck_assert_uint_eq(out.length, strlen(before));
    ck_assert_mem_eq(out.bytes, before, out.length);
}

/* A request whose first bytes were let through counts once its head was. */
TEST_EACH(scan_says_the_same_wherever_bytes_are_cut, NUM_STREAMS)
{
    static struct outcome whole, cut;
    const struct stream *stream = &streams[_i];
    size_t count = strlen(stream->text);
    run(&whole, stream->text, count, 0, SIZE_MAX);
    for (size_t first = 0; first < count; first++) {
        run(&cut, stream->text, count, first, first > 0 ? SIZE_MAX : 1);
        ck_assert_msg(cut.scan.fault == whole.scan.fault, "%s: cut after %zu: %s", stream->text,
                      first, srv_error_word(code_of(&cut)));
        ck_assert_uint_ge(cut.scan.requests, whole.scan.requests);
        ck_assert_uint_le(cut.scan.requests, whole.scan.requests + (whole.scan.fault != NULL));
        ck_assert_uint_ge(cut.length, whole.length);
        ck_assert_mem_eq(cut.bytes, whole.bytes, whole.length);
    }
}

TEST(scan_takes_out_one_empty_line_before_each_request)
{
    static const char text[] = "\r\n" GET "\r\n\r\n" GET "\r\n", kept[] = GET "\r\n" GET "\r\n";
    static struct outcome out;
    for (size_t first = 0; first < sizeof text - 1; first++) {
        run(&out, text, sizeof text - 1, first, first > 0 ? SIZE_MAX : 1);
        ck_assert_ptr_null(out.scan.fault);
        ck_assert_uint_eq(out.length, sizeof kept - 1);
        ck_assert_mem_eq(out.bytes, kept, sizeof kept - 1);
    }
}

TEST(scan_takes_out_blanks_behind_lengths_and_codings)
{
    static const char text[] = GET "A: b \r\nContent-Length: 3 \t \r\n\r\n1 3" GET
                                   "Transfer-Encoding:\tchunked\t\r\n\r\n1\r\n \r\n0\r\n\r\n",
                      kept[] = GET "A: b \r\nContent-Length: 3\r\n\r\n1 3" GET
                                   "Transfer-Encoding:\tchunked\r\n\r\n1\r\n \r\n0\r\n\r\n";
    static struct outcome out;
    for (size_t first = 0; first < sizeof text - 1; first++) {
        run(&out, text, sizeof text - 1, first, first > 0 ? SIZE_MAX : 1);
        ck_assert_ptr_null(out.scan.fault);
        ck_assert_uint_eq(out.scan.requests, 2);
        ck_assert_str_eq(out.bytes, kept);
    }
}

TEST(scan_hides_cookies_and_no_other_field)
{
    static const char text[] = GET "Cookie: " COOKIES "\r\nCOOKIE:\r\nCook: e\r\nX: cookie\r\n\r\n",
                      kept[] = GET "Cooki_: " COOKIES "\r\nCOOKI_:\r\nCook: e\r\nX: cookie\r\n\r\n";
    static struct outcome out;
    for (size_t first = 0; first < sizeof text - 1; first++) {
        run(&out, text, sizeof text - 1, first, first > 0 ? SIZE_MAX : 1);
        ck_assert_ptr_null(out.scan.fault);
        ck_assert_str_eq(out.bytes, kept);
    }
}

/* The verdict on `times` copies of `item` between `head` and `tail`. */
static enum srv_error_code repeat(const char *head, const char *item, size_t times,
                                  const char *tail)
{
    static struct outcome out;
    static char text[65536];
    size_t length = strlen(head), size = strlen(item);
    ck_assert_uint_lt(length + times * size + strlen(tail), sizeof text);
    memcpy(text, head, length);
    for (size_t i = 0; i < times; i++, length += size)
        memcpy(text + length, item, size);
    memcpy(text + length, tail, strlen(tail));
    run(&out, text, length + strlen(tail), 0, 1000);
    return code_of(&out);
}

TEST(scan_bounds_fields_parameters_bytes_and_chunk_lines)
{
    size_t room = SRV_MAX_HEADER_BYTES - strlen(GET "X: \r\n\r\n");
    const char *last = CHUNKED "0\r\n";
    size_t trailer = SRV_MAX_HEADER_BYTES - strlen(CHUNKED "X: \r\n");
    ck_assert_int_eq(repeat(GET "Content-Length: 5", " ", SRV_MAX_HEADER_BYTES, ""),
                     SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat(GET, "A: b\r\n", SRV_MAX_HEADERS - 1, "\r\n"), SRV_OK);
    ck_assert_int_eq(repeat(GET, "A: b\r\n", SRV_MAX_HEADERS, "\r\n"), SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat("GET /?a", "&a", SRV_MAX_HEADERS - 2, " HTTP/1.1\r\nHost: a\r\n\r\n"),
                     SRV_OK);
    ck_assert_int_eq(repeat("GET /?a", "&a", SRV_MAX_HEADERS - 1, " HTTP/1.1\r\nHost: a\r\n\r\n"),
                     SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat(GET "X: ", "b", room, "\r\n\r\n"), SRV_OK);
    ck_assert_int_eq(repeat(GET "X: ", "b", room + 1, "\r\n\r\n"), SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat("GET /", "b", 20000, ""), SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat(last, "A: b\r\n", SRV_MAX_HEADERS - 2, "\r\n"), SRV_OK);
    ck_assert_int_eq(repeat(last, "A: b\r\n", SRV_MAX_HEADERS - 1, "\r\n"),
                     SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat(CHUNKED "0\r\nX: ", "b", trailer, "\r\n\r\n"), SRV_OK);
    ck_assert_int_eq(repeat(CHUNKED "0\r\nX: ", "b", trailer + 1, "\r\n\r\n"),
                     SRV_E_HEADERS_TOO_LARGE);
    ck_assert_int_eq(repeat(CHUNKED "2;", "b", 1024 - 4, "\r\n"), SRV_OK);
    ck_assert_int_eq(repeat(CHUNKED "2;", "b", 1024 - 3, "\r\n"), SRV_E_BAD_REQUEST);
    ck_assert_int_eq(repeat(CHUNKED, "0", 1025, ""), SRV_E_BAD_REQUEST);
    ck_assert_int_eq(repeat(CHUNKED, "1\r\na\r\n", 2000, "0\r\n\r\n"), SRV_OK);
}

TEST(scan_knows_faulty_heads_of_v2_by_their_target)
{
    static const struct {
        const char *text;
        bool is_v2;
    } heads[] = {
        {"GET /\r\n", false},         {"GET /v\r\n", false},       {"GET /v2\r\n", true},
        {"GET /v2/a\r\n", true},      {"GET /v2a\r\n", false},     {"GET /v2?a\x01", true},
        {"GET /v2 HTTP/2\r\n", true}, {"GET / HTTP/2\r\n", false}, {"GET /v HTTP/2\r\n", false},
        {"GET v2 HTTP/2\r\n", false},
    };
    static struct outcome out;
    for (size_t i = 0; i < COUNT(heads); i++) {
        run(&out, heads[i].text, strlen(heads[i].text), 0, 1);
        ck_assert_ptr_nonnull(out.scan.fault);
        ck_assert_msg(out.scan.is_v2 == heads[i].is_v2, "%s", heads[i].text);
    }
}

SUITE(http_scan)
