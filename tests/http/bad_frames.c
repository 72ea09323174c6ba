/* bad_frames.c: bytes that are no good HTTP/1.1, most of them ways to smuggle a request past a
 * proxy that reads them otherwise.
 *
 * Where the status is 0, or the code NULL, libmicrohttpd ends the matter before attnd sees the
 * request: it closes the connection, or answers with a bare page. */
#include "bad_cases.h"

#define BYTES(text) text, sizeof(text) - 1
#define JSON "Host: x\r\nContent-Type: application/json\r\n"
#define STEP(fields) BYTES("POST /decode HTTP/1.1\r\n" JSON fields "\r\n" BAD_STEP)
#define CHUNKED(body) \
    BYTES("POST /decode HTTP/1.1\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n" body)
#define GET(fields) BYTES("GET /healthz HTTP/1.1\r\n" fields "\r\n")
#define LENGTH "Content-Length: " BAD_STEP_LENGTH "\r\n"
#define GOOD "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
#define AS_CHUNK "64\r\n" BAD_STEP "\r\n0\r\n\r\n"

static void repeat(struct text *text, const char *piece, size_t times)
{
    for (size_t i = 0; i < times; i++)
        text_add(text, "%s", piece);
}

static void make_long_field(struct text *bytes)
{
    text_add(bytes, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ");
    repeat(bytes, "0123456789", 1800);
    text_add(bytes, "\r\n\r\n");
}

static void make_huge_field(struct text *bytes)
{
    text_add(bytes, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ");
    repeat(bytes, "0123456789", 20000);
    text_add(bytes, "\r\n\r\n");
}

static void make_many_fields(struct text *bytes)
{
    text_add(bytes, "GET /healthz HTTP/1.1\r\nHost: x\r\n");
    repeat(bytes, "X-Many: 1\r\n", 64);
    text_add(bytes, "\r\n");
}

static void make_countless_fields(struct text *bytes)
{
    text_add(bytes, "GET /healthz HTTP/1.1\r\nHost: x\r\n");
    repeat(bytes, "X: 1\r\n", 20000);
    text_add(bytes, "\r\n");
}

static void make_long_path(struct text *bytes)
{
    text_add(bytes, "GET /");
    repeat(bytes, "0123456789", 1800);
    text_add(bytes, " HTTP/1.1\r\nHost: x\r\n\r\n");
}

static void make_huge_path(struct text *bytes)
{
    text_add(bytes, "GET /");
    repeat(bytes, "0123456789", 20000);
    text_add(bytes, " HTTP/1.1\r\nHost: x\r\n\r\n");
}

static void make_long_chunk_size(struct text *bytes)
{
    text_add(bytes, "POST /decode HTTP/1.1\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n");
    repeat(bytes, "0", 40000);
    text_add(bytes, AS_CHUNK);
}

static void make_large_chunks(struct text *bytes)
{
    text_add(bytes, "POST /decode HTTP/1.1\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t i = 0; i < 300; i++) {
        text_add(bytes, "400\r\n");
        repeat(bytes, "0123456789abcdef", 64);
        text_add(bytes, "\r\n");
    }
    text_add(bytes, "0\r\n\r\n");
}

const struct bad_frame bad_frames[] = {
    /* Two ideas of where the body ends. */
    {"chunked and length", STEP("Transfer-Encoding: chunked\r\n" LENGTH), 400, "bad_request",
     BAD_CLOSED, false, false, NULL},
    {"length and chunked",
     BYTES("POST /decode HTTP/1.1\r\n" JSON LENGTH "Transfer-Encoding: chunked\r\n\r\n" AS_CHUNK),
     400, "bad_request", BAD_CLOSED, false, false, NULL},
    {"one length twice", STEP(LENGTH LENGTH), 400, "bad_request", BAD_CLOSED, false, false, NULL},
    {"two lengths", STEP(LENGTH "Content-Length: 5\r\n"), 400, "bad_request", BAD_CLOSED, false,
     false, NULL},
    {"two lengths in one", STEP("Content-Length: 100, 100\r\n"), 400, NULL, BAD_CLOSED, false,
     false, NULL},
    {"a length in words", STEP("Content-Length: abc\r\n"), 400, NULL, BAD_CLOSED, false, false,
     NULL},
    {"a negative length", STEP("Content-Length: -1\r\n"), 400, NULL, BAD_CLOSED, false, false,
     NULL},
    {"a length with a plus", STEP("Content-Length: +100\r\n"), 400, NULL, BAD_CLOSED, false, false,
     NULL},
    {"a hexadecimal length", STEP("Content-Length: 0x64\r\n"), 400, NULL, BAD_CLOSED, false, false,
     NULL},
    {"a length with a point", STEP("Content-Length: 100.0\r\n"), 400, NULL, BAD_CLOSED, false,
     false, NULL},
    {"a length with a blank", STEP("Content-Length: 1 00\r\n"), 400, NULL, BAD_CLOSED, false, false,
     NULL},
    {"an empty length", STEP("Content-Length: \r\n"), 400, NULL, BAD_CLOSED, false, false, NULL},
    {"a length of 2^64 and more", STEP("Content-Length: 99999999999999999999999\r\n"), 413, NULL,
     BAD_CLOSED, false, false, NULL},
    {"a length of 2^63", STEP("Content-Length: 9223372036854775808\r\n"), 413, "body_too_large",
     BAD_CLOSED, false, false, NULL},
    {"no length", STEP(""), 411, "length_required", BAD_OPEN, false, false, NULL},
    {"gzip as transfer coding", STEP("Transfer-Encoding: gzip\r\n"), 501, "not_implemented",
     BAD_CLOSED, false, false, NULL},
    {"gzip before chunked", STEP("Transfer-Encoding: gzip, chunked\r\n"), 501, "not_implemented",
     BAD_CLOSED, false, false, NULL},
    {"chunked twice in one", STEP("Transfer-Encoding: chunked, chunked\r\n"), 501,
     "not_implemented", BAD_CLOSED, false, false, NULL},
    {"a coding like chunked", STEP("Transfer-Encoding: xchunked\r\n"), 501, "not_implemented",
     BAD_CLOSED, false, false, NULL},
    {"chunked with a parameter", STEP("Transfer-Encoding: chunked;q=1\r\n"), 501, "not_implemented",
     BAD_CLOSED, false, false, NULL},
    {"an empty coding", STEP("Transfer-Encoding: \r\n"), 501, "not_implemented", BAD_CLOSED, false,
     false, NULL},
    {"chunked twice", STEP("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"chunked in HTTP/1.0",
     BYTES("POST /decode HTTP/1.0\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n" AS_CHUNK), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},

    /* Chunks. */
    {"a chunk size in words", CHUNKED("zz\r\n" BAD_STEP "\r\n0\r\n\r\n"), 400, NULL, BAD_CLOSED,
     false, false, NULL},
    {"a negative chunk size", CHUNKED("-64\r\n" BAD_STEP "\r\n0\r\n\r\n"), 400, NULL, BAD_CLOSED,
     false, false, NULL},
    {"a chunk size with 0x", CHUNKED("0x64\r\n" BAD_STEP "\r\n0\r\n\r\n"), 400, NULL, BAD_CLOSED,
     false, false, NULL},
    {"a chunk size of 2^64 and more", CHUNKED("FFFFFFFFFFFFFFFFF\r\n" BAD_STEP "\r\n0\r\n\r\n"),
     413, NULL, BAD_CLOSED, false, false, NULL},
    {"an empty chunk size", CHUNKED("\r\n" BAD_STEP "\r\n0\r\n\r\n"), 400, NULL, BAD_CLOSED, false,
     false, NULL},
    {"a chunk without its end", CHUNKED("64\r\n" BAD_STEP "0\r\n\r\n"), 400, NULL, BAD_CLOSED,
     false, false, NULL},
    {"chunks beyond the limit", BYTES(""), 413, "body_too_large", BAD_OPEN, false, false,
     make_large_chunks},
    {"chunks without an end", CHUNKED("64\r\n" BAD_STEP "\r\n"), 0, NULL, BAD_CLOSED, true, false,
     NULL},

    /* Who is asked, and for what. */
    {"no Host", GET(""), 400, "bad_request", BAD_CLOSED, false, false, NULL},
    {"two Hosts", GET("Host: x\r\nHost: y\r\n"), 400, "bad_request", BAD_CLOSED, false, false,
     NULL},
    {"a line of one word", BYTES("GET\r\n\r\n"), 0, NULL, BAD_CLOSED, false, false, NULL},
    {"HTTP/0.9", BYTES("GET /healthz\r\n\r\n"), 400, NULL, BAD_CLOSED, false, false, NULL},
    {"two blanks", BYTES("GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request",
     BAD_CLOSED, false, false, NULL},
    {"a tab", BYTES("GET\t/healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400, NULL, BAD_CLOSED, false,
     false, NULL},
    {"a word too many", BYTES("GET /healthz HTTP/1.1 x\r\nHost: x\r\n\r\n"), 400, NULL, BAD_CLOSED,
     false, false, NULL},
    {"HTTP/3.0", BYTES("GET /healthz HTTP/3.0\r\nHost: x\r\n\r\n"), 505, NULL, BAD_CLOSED, false,
     false, NULL},
    {"a version in small letters", BYTES("GET /healthz http/1.1\r\nHost: x\r\n\r\n"), 400, NULL,
     BAD_CLOSED, false, false, NULL},
    {"the HTTP/2 preface", BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, NULL, BAD_CLOSED, false,
     false, NULL},
    {"an absolute target", BYTES("GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"a star", BYTES("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request", BAD_CLOSED,
     false, false, NULL},
    {"a target without slash", BYTES("GET healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad_request",
     BAD_CLOSED, false, false, NULL},
    {"a byte beyond ASCII in the target", BYTES("GET /health\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n"),
     400, "bad_request", BAD_CLOSED, false, false, NULL},
    {"a control character in the target", BYTES("GET /health\x01z HTTP/1.1\r\nHost: x\r\n\r\n"),
     400, "bad_request", BAD_CLOSED, false, false, NULL},
    {"a fragment in the target", BYTES("GET /healthz#a HTTP/1.1\r\nHost: x\r\n\r\n"), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"an unknown method", BYTES("FROB /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 501,
     "not_implemented", BAD_OPEN, false, false, NULL},
    {"a method in small letters", BYTES("get /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 501,
     "not_implemented", BAD_OPEN, false, false, NULL},
    {"a method that is no token", BYTES("G@T /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"bytes of TLS", BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), 0, NULL,
     BAD_CLOSED, false, false, NULL},
    {"a long path", BYTES(""), 431, "headers_too_large", BAD_CLOSED, false, false, make_long_path},
    {"a huge path", BYTES(""), 414, NULL, BAD_CLOSED, false, false, make_huge_path},

    /* Header fields. */
    {"a NUL in a value", GET("Host: x\r\nX-A: a\0b\r\n"), 400, "bad_request", BAD_CLOSED, false,
     false, NULL},
    {"a NUL in a name", GET("Host: x\r\nX\0A: a\r\n"), 400, NULL, BAD_CLOSED, false, false, NULL},
    {"a control character in a value", GET("Host: x\r\nX-A: a\x01b\r\n"), 400, "bad_request",
     BAD_CLOSED, false, false, NULL},
    {"a CR in a value", GET("Host: x\r\nX-A: a\rb\r\n"), 400, "bad_request", BAD_CLOSED, false,
     false, NULL},
    {"a folded line", GET("Host: x\r\nX-A: a\r\n b\r\n"), 400, "bad_request", BAD_CLOSED, false,
     false, NULL},
    {"a folded line that hides a length", GET("Host: x\r\nX-A: a\r\n\tContent-Length: 5\r\n"), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"a blank before the colon", GET("Host : x\r\n"), 400, "bad_request", BAD_CLOSED, false, false,
     NULL},
    {"a line without colon", GET("Host: x\r\nnonsense\r\n"), 400, NULL, BAD_CLOSED, false, false,
     NULL},
    {"an empty name", GET("Host: x\r\n: a\r\n"), 400, "bad_request", BAD_CLOSED, false, false,
     NULL},
    {"a name that is no token", GET("Host: x\r\nX(A): a\r\n"), 400, "bad_request", BAD_CLOSED,
     false, false, NULL},
    {"a NUL in the request line", BYTES("GET /healthz\0 HTTP/1.1\r\nHost: x\r\n\r\n"), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"bare LF", BYTES("GET /healthz HTTP/1.1\nHost: x\n\n"), 400, "bad_request", BAD_CLOSED, false,
     false, NULL},
    {"bare LF before a hidden length",
     BYTES("POST /decode HTTP/1.1\r\n" JSON "X: a\nContent-Length: 100\r\n\r\n" BAD_STEP), 400,
     "bad_request", BAD_CLOSED, false, false, NULL},
    {"an unknown expectation", STEP(LENGTH "Expect: 200-ok\r\n"), 501, "not_implemented",
     BAD_CLOSED, false, false, NULL},
    {"too many fields", BYTES(""), 431, "headers_too_large", BAD_CLOSED, false, false,
     make_many_fields},
    {"countless fields", BYTES(""), 431, NULL, BAD_CLOSED, false, false, make_countless_fields},
    {"a long field", BYTES(""), 431, "headers_too_large", BAD_CLOSED, false, false,
     make_long_field},
    {"a huge field", BYTES(""), 431, NULL, BAD_CLOSED, false, false, make_huge_field},

    /* Ends and beginnings. */
    {"a cut head", BYTES("POST /decode HTTP/1.1\r\nHost: x\r\nContent-Le"), 0, NULL, BAD_CLOSED,
     true, false, NULL},
    {"a cut body", BYTES("POST /decode HTTP/1.1\r\n" JSON LENGTH "\r\n{\"model\":\"tiny\""), 0,
     NULL, BAD_CLOSED, true, false, NULL},
    {"nothing at all", BYTES(""), 0, NULL, BAD_CLOSED, true, false, NULL},
    {"garbage behind a good request", BYTES(GOOD "\x01\x02\x03\r\n\r\n"), 0, NULL, BAD_CLOSED,
     false, true, NULL},
    {"a bad request behind a good one", BYTES(GOOD "GET /healthz HTTP/1.1\r\n\r\n"), 400,
     "bad_request", BAD_CLOSED, false, true, NULL},
    {"a body longer than its length",
     BYTES("POST /sessions HTTP/1.1\r\n" JSON "Content-Length: 2\r\n\r\n{}" BAD_STEP "\r\n\r\n"),
     400, "missing_field", BAD_OPEN, false, false, NULL},

    /* Never refused: no more is read, until the time for the body is up. */
    {"a chunk size that goes on", BYTES(""), 408, "request_timeout", BAD_CLOSED, false, false,
     make_long_chunk_size},
};
const size_t bad_frame_count = sizeof bad_frames / sizeof bad_frames[0];
