/* generate.c: tables of requests, of ways to write them, and of what can be wrong with them.
 *
 * In the texts of the tables '$' stands for the length of the body in decimal digits, and byte 0x01
 * for a NUL. */
#include "generate.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define ID "%c%07u-%02u-body"

unsigned rng_below(struct rng *rng, unsigned n)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ (z >> 31)) % n);
}

static bool one_in(struct rng *rng, unsigned n) { return rng_below(rng, n) == 0; }

/* A request while it is written. */
struct draft {
    struct rng *rng;
    unsigned connection, number; /* of the request in its connection */
    struct text fields, body;
};

/* Adds a text of the tables. */
static void add(struct text *out, const char *text, size_t length)
{
    for (; *text != '\0'; text++) {
        if (*text == '$')
            text_add(out, "%zu", length);
        else
            text_bytes(out, *text == '\x01' ? "" : text, 1);
    }
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* Adds requests that nobody sends: a reader that loses the end of the body finds them. */
static void add_smuggled(struct text *out, const struct draft *draft)
{
    text_add(out, "\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: " ID "\r\n\r\n",
             's', draft->connection, draft->number);
}

/* The output of attention over one key is its value: here it names the request. */
static void add_attend(struct draft *draft, const char *blanks)
{
    text_add(&draft->body,
             "{\"query\":[[[[1,0]]]],%s\"key\":[[[[1,0]]]],\"value\":[[[[%u,%u]]]]}%s", blanks,
             draft->connection, draft->number, blanks);
}

static void body_attend(struct draft *draft)
{
    add_attend(draft,
               one_in(draft->rng, 2) ? "\r\n\r\n0\r\n\r\n" + 5 * rng_below(draft->rng, 2) : "");
}

static void body_gzip(struct draft *draft)
{
    unsigned char packed[4096];
    add_attend(draft, "");
    z_stream stream = {.next_in = (unsigned char *)draft->body.data,
                       .avail_in = (unsigned)draft->body.length,
                       .next_out = packed,
                       .avail_out = sizeof packed};
    ck_assert_int_eq(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    draft->body.length = 0;
    text_bytes(&draft->body, packed, sizeof packed - stream.avail_out);
    text_add(&draft->fields, "Content-Encoding: gzip\r\n");
}

/* Adds `size` bytes of tensors: a smuggled request, or any bytes. */
static void add_tensors(struct draft *draft, size_t size)
{
    struct text bytes = {0};
    if (one_in(draft->rng, 2))
        add_smuggled(&bytes, draft);
    while (bytes.length < size)
        text_bytes(&bytes, &(char){(char)rng_below(draft->rng, 256)}, 1);
    text_bytes(&draft->body, bytes.data, size);
    text_free(&bytes);
}

static void end_json(struct draft *draft)
{
    text_add(&draft->fields, "Inference-Header-Content-Length: %zu\r\n", draft->body.length);
}

static void body_attend_binary(struct draft *draft)
{
    size_t width = 40 + rng_below(draft->rng, 30);
    text_add(&draft->body,
             "{\"query\":[[[[1,0]]]],\"key\":[[[[1,0]]]],\"value\":{\"shape\":[1,1,1,%zu],"
             "\"datatype\":\"FP16\",\"binary_data_size\":%zu}}",
             width, 2 * width);
    end_json(draft);
    add_tensors(draft, 2 * width);
}

static void body_decode_binary(struct draft *draft)
{
    text_add(
        &draft->body,
        "{\"model\":\"tiny\",\"session_id\":\"" GENERATE_SESSION "\",\"commit\":false,"
        "\"hidden_states\":{\"shape\":[4,16],\"datatype\":\"FP16\",\"binary_data_size\":128}}");
    end_json(draft);
    add_tensors(draft, 128);
}

static void body_requests(struct draft *draft)
{
    add_smuggled(&draft->body, draft);
    if (one_in(draft->rng, 3))
        add_smuggled(&draft->body, draft);
}

static void body_none_needed(struct draft *draft) { text_add(&draft->body, "{}"); }

#define JSON "application/json"
#define BYTES "application/octet-stream"

static const struct resource {
    const char *method, *path, *type;
    void (*body)(struct draft *draft);
} resources[] = {
    {.method = "GET", .path = "/livez"},
    {.method = "GET", .path = "/readyz?x=1&y=%20"},
    {.method = "GET", .path = "/models/tiny"},
    {.method = "GET", .path = "/nowhere"},
    {.method = "GET", .path = "/sessions/none"},
    {.method = "HEAD", .path = "/livez"},
    {.method = "HEAD", .path = "/models/tiny"},
    {.method = "HEAD", .path = "/nowhere"},
    {.method = "DELETE", .path = "/sessions/none"},
    {.method = "DELETE", .path = "/livez"},
    {.method = "FROB", .path = "/livez"},
    {.method = "OPTIONS", .path = "/livez"},
    {.method = "POST", .path = "/attend", .type = JSON, .body = body_attend},
    {.method = "POST", .path = "/attend", .type = JSON, .body = body_attend},
    {.method = "POST", .path = "/attend", .type = JSON, .body = body_gzip},
    {.method = "POST", .path = "/attend", .type = BYTES, .body = body_attend_binary},
    {.method = "POST", .path = "/attend", .type = BYTES, .body = body_attend_binary},
    {.method = "POST", .path = "/decode", .type = BYTES, .body = body_decode_binary},
    {.method = "POST", .path = "/sessions", .type = JSON, .body = body_requests},
    {.method = "POST", .path = "/attend", .type = JSON, .body = body_requests},
    {.method = "POST", .path = "/nowhere", .type = JSON, .body = body_requests},
    {.method = "PUT", .path = "/livez", .type = JSON, .body = body_requests},
    {.method = "FROB", .path = "/livez", .type = JSON, .body = body_requests},
    {.method = "POST", .path = "/sessions", .type = JSON, .body = body_none_needed},
};

/* ---- Ways to write a request ----------------------------------------------------------------- */

/* The request line; the fields that frame the body; further fields. */
struct form {
    const char *name;
    const char *before, *gap1, *origin, *gap2, *version, *end;
};

static const struct form form_good[] = {
    {.gap1 = " ", .gap2 = " ", .version = "HTTP/1.1", .end = "\r\n"},
};

static const struct form forms_odd[] = {
    {"a leading empty line", "\r\n", " ", "", " ", "HTTP/1.1", "\r\n"},
    {"two leading empty lines", "\r\n\r\n", " ", "", " ", "HTTP/1.1", "\r\n"},
    {"a leading LF", "\n", " ", "", " ", "HTTP/1.1", "\r\n"},
    {"a leading blank", " ", " ", "", " ", "HTTP/1.1", "\r\n"},
    {"two blanks behind the method", "", "  ", "", " ", "HTTP/1.1", "\r\n"},
    {"a tab behind the method", "", "\t", "", " ", "HTTP/1.1", "\r\n"},
    {"a NUL behind the method", "", "\x01", "", " ", "HTTP/1.1", "\r\n"},
    {"two blanks behind the target", "", " ", "", "  ", "HTTP/1.1", "\r\n"},
    {"a NUL behind the target", "", " ", "", "\x01", "HTTP/1.1", "\r\n"},
    {"a blank at the end of the line", "", " ", "", " ", "HTTP/1.1 ", "\r\n"},
    {"a NUL behind the version", "", " ", "", " ", "HTTP/1.1\x01", "\r\n"},
    {"a word too many", "", " ", "", " ", "HTTP/1.1 x", "\r\n"},
    {"HTTP/1.2", "", " ", "", " ", "HTTP/1.2", "\r\n"},
    {"HTTP/2.0", "", " ", "", " ", "HTTP/2.0", "\r\n"},
    {"http/1.1", "", " ", "", " ", "http/1.1", "\r\n"},
    {"HTTP/1.01", "", " ", "", " ", "HTTP/1.01", "\r\n"},
    {"no version", "", " ", "", "", "", "\r\n"},
    {"a request line that ends in LF", "", " ", "", " ", "HTTP/1.1", "\n"},
    {"a request line that ends in CR", "", " ", "", " ", "HTTP/1.1", "\r"},
    {"a request line that ends in CR CR LF", "", " ", "", " ", "HTTP/1.1", "\r\r\n"},
    {"a request line that ends in NUL LF", "", " ", "", " ", "HTTP/1.1", "\x01\n"},
    {"a target without slash", "", " ", "x", " ", "HTTP/1.1", "\r\n"},
    {"another's authority", "", " ", "http://y:1", " ", "HTTP/1.1", "\r\n"},
    {"an absolute target", "", " ", "http://x", " ", "HTTP/1.1", "\r\n"},
    {"an absolute target in capitals", "", " ", "HTTPS://X", " ", "HTTP/1.1", "\r\n"},
    {"another scheme", "", " ", "ftp://x", " ", "HTTP/1.1", "\r\n"},
};

/* Fields of a body that has a length, and of one in chunks. */
/* nginx refuses a tab before a value. */
static const char *const lengths_good[] = {
    "Content-Length: $\r\n",   "Content-Length: $\r\n",    "Content-Length: $\r\n",
    "Content-Length: $\r\n",   "content-length: $\r\n",    "CONTENT-LENGTH:$\r\n",
    "Content-Length:   $\r\n", "Content-Length: 000$\r\n", "Content-Length:\t$\r\n",
};
static const char *const codings_good[] = {
    "Transfer-Encoding: chunked\r\n",  "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n",  "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:chunked\r\n",   "TRANSFER-ENCODING: CHUNKED\r\n",
    "Transfer-Encoding:  Chunked\r\n", "Transfer-Encoding:\tchunked\r\n",
};

static const struct framing_form {
    const char *fields;
    bool chunked; /* the body is written in chunks */
} framings_odd[] = {
    {"Content-Length: $\r\nContent-Length: $\r\n", false},
    {"Content-Length: $\r\nContent-Length: 0\r\n", false},
    {"Content-Length: 0\r\nContent-Length: $\r\n", false},
    {"Content-Length: $, $\r\n", false},
    {"Content-Length: $ $\r\n", false},
    {"Content-Length: +$\r\n", false},
    {"Content-Length: -$\r\n", false},
    {"Content-Length: 0x$\r\n", false},
    {"Content-Length: $a\r\n", false},
    {"Content-Length: $.0\r\n", false},
    {"Content-Length: \"$\"\r\n", false},
    {"Content-Length:\r\n", false},
    {"Content-Length\r\n", false},
    {"Content-Length : $\r\n", false},
    {"Content-Length: $ \r\n", false},
    {"Transfer-Encoding: chunked \r\n", true},
    {"Transfer-Encoding: chunked\t\r\n", true},
    {"Content-Length\t: $\r\n", false},
    {"Content-Length: \x0b$\r\n", false},
    {"Content-Length: $\x01\r\n", false},
    {"Content-Length: $\x01\n", false},
    {"Content-Length: $\n", false},
    {"Content-Length: $\r", false},
    {"Content-Length: 0$\r\n $\r\n", false},
    {"Content-Length: \r\n $\r\n", false},
    {"Content-Length: 99999999999999999999999\r\n", false},
    {"Content-Length: 18446744073709551616\r\n", false},
    {"Content-Length: 9223372036854775808\r\n", false},
    {"X-A: a\nContent-Length: $\r\n", false},
    {"X-A: a\rContent-Length: $\r\n", false},
    {"X-A: a\x01\nContent-Length: $\r\n", false},
    {"X-A: a\r\n Content-Length: 5\r\nContent-Length: $\r\n", false},
    {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", true},
    {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", true},
    {"Content-Length: $\r\nTransfer-Encoding: chunked\r\n", false},
    {"Content-Length: $\r\nTransfer-Encoding: identity\r\n", false},
    {"Content-Length: $\r\nTransfer-Encoding:\r\n", false},
    {"Content-Length: $\r\nX-A: a\nTransfer-Encoding: chunked\r\n", false},
    {"Content-Length: $\r\nX-A: a\x01\nTransfer-Encoding: chunked\r\n", false},
    {"Content-Length: $\r\nX-A: a\rTransfer-Encoding: chunked\r\n", false},
    {"Content-Length: $\r\nX-A: a\r\n Transfer-Encoding: chunked\r\n", false},
    {"Content-Length: $\r\nTransfer-Encoding : chunked\r\n", false},
    {"Content-Length: $\r\n Transfer-Encoding: chunked\r\n", false},
    {"Transfer-Encoding: chunked, identity\r\n", true},
    {"Transfer-Encoding: identity, chunked\r\n", true},
    {"Transfer-Encoding: identity\r\n", true},
    {"Transfer-Encoding: gzip, chunked\r\n", true},
    {"Transfer-Encoding: chunked, chunked\r\n", true},
    {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", true},
    {"Transfer-Encoding: chunked\r\nTransfer-encoding: identity\r\n", true},
    {"Transfer-Encoding: identity\r\nTransfer-encoding: chunked\r\n", true},
    {"Transfer-Encoding: xchunked\r\n", true},
    {"Transfer-Encoding: chunkedx\r\n", true},
    {"Transfer-Encoding: chunked;q=1\r\n", true},
    {"Transfer-Encoding: \"chunked\"\r\n", true},
    {"Transfer-Encoding: ,chunked\r\n", true},
    {"Transfer-Encoding: \x0b"
     "chunked\r\n",
     true},
    {"Transfer-Encoding: chunked\x01\r\n", true},
    {"Transfer-Encoding: chunked\x01\n", true},
    {"Transfer-Encoding : chunked\r\n", true},
    {"Transfer-Encoding\t: chunked\r\n", true},
    {"Transfer_Encoding: chunked\r\n", true},
    {"Transfer-Encoding: chunked\n", true},
    {" Transfer-Encoding: chunked\r\n", true},
    {"Transfer-Encoding:\r\n chunked\r\n", true},
    {"X-A: a\nTransfer-Encoding: chunked\r\n", true},
    {"X-A: a\rTransfer-Encoding: chunked\r\n", true},
    {"X-A: a\x01\nTransfer-Encoding: chunked\r\n", true},
    {"X-A: a\r\n Transfer-Encoding: chunked\r\n", true},
};

static const char *const extras_good[] = {
    "",
    "",
    "",
    "X-Empty:\r\n",
    "x-lower: a\r\nX-Tab:\ta\tb\r\n",
    "X-Bytes: \xc3\xa4\r\n",
    "Accept: */*\r\nUser-Agent: a (b; c)\r\n",
    "Cookie: a=b; c=\"d\"\r\nCookie: e=f\r\n",
    "X-Odd: Transfer-Encoding: chunked\r\n",
};

static const char *const extras_odd[] = {
    "X-A: a\r\n b\r\n",
    "X-A: a\r\n\tb\r\n",
    "X-A : a\r\n",
    " X-A: a\r\n",
    "nonsense\r\n",
    ": a\r\n",
    "X A: a\r\n",
    "X(A): a\r\n",
    "X\x01"
    "A: a\r\n",
    "X-A: a\x01"
    "b\r\n",
    "X-A: a\x1b\r\n",
    "X-A: a\rb\r\n",
    "X-A: a\n",
    "X-A: a\x01\n",
    "X-A: a\r\r\n",
    "\x01\r\n",
    "\r\r\n",
    "\n",
    "\x01\n",
    "Host: y\r\n",
    "Expect: 200-ok\r\n",
    "Expect: 100-continue\r\nExpect: 100-continue\r\n",
};

/* How a body is written in chunks: before a size, behind it, behind the bytes, and the end. */
struct chunks {
    const char *name, *zeros, *extension, *end, *last;
};

static const struct chunks chunks_good[] = {
    {"", "", "\r\n", "\r\n", "0\r\n\r\n"},
    {"", "", "\r\n", "\r\n", "0\r\n\r\n"},
    {"", "000", "\r\n", "\r\n", "0000\r\n\r\n"},
    {"", "", ";a\r\n", "\r\n", "0;b=c\r\n\r\n"},
    {"", "0", ";a=b;c=\"d e\"\r\n", "\r\n", "0\r\nX-Trailer: a\r\n\r\n"},
    {"", "", "\r\n", "\r\n", "0\r\nX-A: a\r\nContent-Length: 5\r\n\r\n"},
    {"", "", ";a=\"0\"\r\n", "\r\n", "00\r\nTransfer-Encoding: chunked\r\n\r\n"},
};

static const struct chunks chunks_odd[] = {
    {"a chunk size with 0x", "0x", "\r\n", "\r\n", "0\r\n\r\n"},
    {"a chunk size with a plus", "+", "\r\n", "\r\n", "0\r\n\r\n"},
    {"a chunk size with a minus", "-", "\r\n", "\r\n", "0\r\n\r\n"},
    {"a blank before a chunk size", " ", "\r\n", "\r\n", "0\r\n\r\n"},
    {"a blank behind a chunk size", "", " \r\n", "\r\n", "0\r\n\r\n"},
    {"a letter behind a chunk size", "", "g\r\n", "\r\n", "0\r\n\r\n"},
    {"a NUL behind a chunk size", "", "\x01\r\n", "\r\n", "0\r\n\r\n"},
    {"a huge chunk size", "FFFFFFFFFFFFFFFF", "\r\n", "\r\n", "0\r\n\r\n"},
    {"a chunk size that ends in LF", "", "\n", "\r\n", "0\r\n\r\n"},
    {"a chunk size that ends in CR", "", "\r", "\r\n", "0\r\n\r\n"},
    {"a chunk size that ends in CR CR LF", "", "\r\r\n", "\r\n", "0\r\n\r\n"},
    {"an extension that ends in LF", "", ";a\n", "\r\n", "0\r\n\r\n"},
    {"an extension that holds LF", "", ";a\nb\r\n", "\r\n", "0\r\n\r\n"},
    {"an extension that holds CR", "", ";a\rb\r\n", "\r\n", "0\r\n\r\n"},
    {"an extension without a name", "", ";\r\n", "\r\n", "0\r\n\r\n"},
    {"a chunk that ends in LF", "", "\r\n", "\n", "0\r\n\r\n"},
    {"a chunk that ends in CR", "", "\r\n", "\r", "0\r\n\r\n"},
    {"a chunk that ends in blanks", "", "\r\n", "  ", "0\r\n\r\n"},
    {"a chunk without end", "", "\r\n", "", "0\r\n\r\n"},
    {"a last chunk that ends in LF", "", "\r\n", "\r\n", "0\n\r\n"},
    {"chunks that end in LF", "", "\r\n", "\r\n", "0\r\n\n"},
    {"chunks that end in CR", "", "\r\n", "\r\n", "0\r\n\r"},
    {"chunks without end", "", "\r\n", "\r\n", "0\r\n"},
    {"chunks without a last one", "", "\r\n", "\r\n", ""},
    {"a trailer that ends in LF", "", "\r\n", "\r\n", "0\r\nX-A: a\n\r\n"},
    {"a trailer that is folded", "", "\r\n", "\r\n", "0\r\nX-A: a\r\n b\r\n\r\n"},
    {"a trailer without colon", "", "\r\n", "\r\n", "0\r\nnonsense\r\n\r\n"},
    {"a trailer with a NUL", "", "\r\n", "\r\n",
     "0\r\nX-A: a\x01"
     "b\r\n\r\n"},
    {"a second last chunk", "", "\r\n", "\r\n", "0\r\n\r\n0\r\n\r\n"},
};

/* ---- Writing --------------------------------------------------------------------------------- */

/* What is odd in a request: at most one of these. */
enum oddity { ODD_NOTHING, ODD_LINE, ODD_FRAMING, ODD_EXTRA, ODD_CHUNKS, ODD_LENGTH, ODDITIES };

static void add_chunks(struct text *out, struct draft *draft, const struct chunks *way)
{
    size_t done = 0;
    while (done < draft->body.length) {
        size_t left = draft->body.length - done;
        size_t size = 1 + rng_below(draft->rng, one_in(draft->rng, 3) ? (unsigned)left : 16);
        size = size < left ? size : left;
        add(out, way->zeros, 0);
        text_add(out, one_in(draft->rng, 2) ? "%zx" : "%zX", size);
        add(out, way->extension, 0);
        text_bytes(out, draft->body.data + done, size);
        add(out, way->end, 0);
        done += size;
    }
    add(out, way->last, 0);
}

#define ANY(table) &(table)[rng_below(draft->rng, COUNT(table))]

static const char *any_text(struct rng *rng, const char *const texts[], size_t count)
{
    return texts[rng_below(rng, (unsigned)count)];
}

/* Writes the fields that frame the body; returns whether the body is to be written in chunks. */
static bool add_framing(struct text *out, struct draft *draft, enum oddity odd, bool chunked,
                        const char **name)
{
    const struct framing_form *form = ANY(framings_odd);
    size_t length = draft->body.length;
    if (odd == ODD_FRAMING) {
        *name = form->fields;
        add(out, form->fields, length);
        return form->chunked;
    }
    if (odd == ODD_LENGTH) {
        *name = "a length that is not the body's";
        length = one_in(draft->rng, 2) ? length + 1 + rng_below(draft->rng, 60)
                                       : rng_below(draft->rng, (unsigned)length + 1);
    }
    add(out,
        chunked ? any_text(draft->rng, codings_good, COUNT(codings_good))
                : any_text(draft->rng, lengths_good, COUNT(lengths_good)),
        length);
    return chunked;
}

/* HTTP/1.0, and what is asked of the connection. */
static void add_connection(struct text *out, struct draft *draft, bool is_1_0, bool has_body)
{
    static const char *const options[] = {"close", "Keep-Alive", "keep-alive", "x, close"};
    if (one_in(draft->rng, is_1_0 ? 2 : 12))
        text_add(out, "Connection: %s\r\n",
                 any_text(draft->rng, options, is_1_0 ? 3 : COUNT(options)));
    if (has_body && !is_1_0 && one_in(draft->rng, 8))
        text_add(out, "Expect: 100-continue\r\n");
}

static void add_request_line(struct text *out, struct draft *draft, const struct resource *resource,
                             enum oddity odd, bool is_1_0, const char **name)
{
    const struct form *form = odd == ODD_LINE ? ANY(forms_odd) : form_good;
    if (odd == ODD_LINE)
        *name = form->name;
    text_add(out, "%s%s", form->before != NULL ? form->before : "", resource->method);
    add(out, form->gap1, 0);
    text_add(out, "%s%s", form->origin != NULL ? form->origin : "", resource->path);
    add(out, form->gap2, 0);
    add(out, is_1_0 ? "HTTP/1.0" : form->version, 0);
    add(out, form->end, 0);
}

static void add_request(struct text *out, struct draft *draft, enum oddity odd, const char **name)
{
    const struct resource *resource = ANY(resources);
    bool needs_body = odd >= ODD_FRAMING && odd != ODD_EXTRA;
    while (needs_body && resource->body == NULL)
        resource = ANY(resources);
    bool has_body = resource->body != NULL, is_1_0 = odd == ODD_NOTHING && one_in(draft->rng, 12);
    bool chunked = has_body && !is_1_0 && (odd == ODD_CHUNKS || one_in(draft->rng, 5));
    const char *extra = any_text(draft->rng, extras_good, COUNT(extras_good));
    if (odd == ODD_EXTRA)
        *name = extra = any_text(draft->rng, extras_odd, COUNT(extras_odd));
    if (has_body)
        resource->body(draft);
    add_request_line(out, draft, resource, odd, is_1_0, name);
    text_add(out, one_in(draft->rng, 40) ? "host:\tx\r\n" : "Host: x\r\n");
    text_add(out, "X-Request-Id: " ID "\r\n", 'c', draft->connection, draft->number);
    add_connection(out, draft, is_1_0, has_body && odd != ODD_EXTRA);
    if (has_body) {
        text_add(out, "Content-Type: %s\r\n", resource->type);
        text_bytes(out, draft->fields.data != NULL ? draft->fields.data : "", draft->fields.length);
        chunked = add_framing(out, draft, odd, odd != ODD_LENGTH && chunked, name);
    } else if (one_in(draft->rng, 6)) {
        text_add(out, "Content-Length: 0\r\n");
    }
    add(out, extra, 0);
    text_add(out, "\r\n");
    const struct chunks *way = odd == ODD_CHUNKS ? ANY(chunks_odd) : ANY(chunks_good);
    if (odd == ODD_CHUNKS)
        *name = way->name;
    if (chunked)
        add_chunks(out, draft, way);
    else if (has_body)
        text_bytes(out, draft->body.data, draft->body.length);
}

/* Changes, drops or adds up to three bytes anywhere. */
static void mutate(struct text *bytes, struct rng *rng)
{
    static const char *const pieces[] = {"\r",
                                         "\n",
                                         "\x01",
                                         " ",
                                         "\t",
                                         ":",
                                         ";",
                                         ",",
                                         "0",
                                         "1",
                                         "f",
                                         "\r\n",
                                         "\r\n\r\n",
                                         "A",
                                         "\x7f",
                                         "Transfer-Encoding: chunked\r\n",
                                         "Content-Length: 0\r\n",
                                         "GET /livez HTTP/1.1\r\n"};
    for (unsigned left = 1 + rng_below(rng, 3); left > 0; left--) {
        struct text changed = {0};
        size_t at = rng_below(rng, (unsigned)bytes->length);
        text_bytes(&changed, bytes->data, at);
        if (!one_in(rng, 3))
            add(&changed, any_text(rng, pieces, COUNT(pieces)), 0);
        at += rng_below(rng, 2);
        text_bytes(&changed, bytes->data + at, bytes->length - at);
        text_free(bytes);
        *bytes = changed;
    }
}

void generate(struct generated *out, uint64_t seed, unsigned connection)
{
    struct rng rng = {seed * 0x2545f4914f6cdd1du + connection};
    unsigned count = 1 + rng_below(&rng, GENERATE_MAX_REQUESTS), kind = rng_below(&rng, 8);
    unsigned odd_one = kind == 1 || kind == 2 || kind == 3 ? rng_below(&rng, count) : count;
    *out = (struct generated){0};
    for (unsigned i = 0; i < count; i++) {
        struct draft draft = {.rng = &rng, .connection = connection, .number = i};
        enum oddity odd = i == odd_one ? 1 + rng_below(&rng, ODDITIES - 1) : ODD_NOTHING;
        add_request(&out->bytes, &draft, odd, &out->oddity);
        text_free(&draft.fields);
        text_free(&draft.body);
    }
    if (kind == 0 || kind == 4) {
        out->oddity = "changed bytes";
        mutate(&out->bytes, &rng);
    }
}
