/* head.c: bytes of a connection through the scan, in one piece and in several, which must be the
 * same; and a head that passes, split into pointers in libmicrohttpd's lenient way, through the
 * guard: a head that both pass must look the same to a strict reader of its bytes. */
#include <strings.h>

#include "fuzz.h"
#include "http/guard.h"
#include "http/scan.h"
#include "wire/trace.h"

/* Ends the line at `at` where CR, LF or both come, after any other bytes; returns what follows, the
 * limit where nothing does. */
static char *end_line(char *at, char *limit)
{
    while (at < limit && *at != '\r' && *at != '\n')
        at++;
    if (at == limit)
        return at;
    bool both = at[0] == '\r' && at[1] == '\n';
    at[0] = '\0';
    if (both)
        at[1] = '\0';
    return at + 1 + both;
}

/* Ends a word of the request line at a blank; returns what follows, NULL where there is none. */
static char *end_word(char *at, const char *limit)
{
    char *blank = memchr(at, ' ', (size_t)(limit - at));
    if (blank == NULL)
        return NULL;
    *blank = '\0';
    return blank + 1;
}

static void add_field(struct srv_head *head, char *line)
{
    char *colon = line + strcspn(line, ":"), *value = colon + (*colon == ':');
    *colon = '\0';
    value += strspn(value, " \t");
    FUZZ_EXPECT(head->count < SRV_MAX_HEADERS);
    head->fields[head->count++] =
        (struct srv_header_field){line, value, strlen(line), strlen(value)};
}

/* Splits `text`, which ends in a NUL at `limit`, into pointers.  False where libmicrohttpd does not
 * take it for a head either. */
static bool parse(struct srv_head *head, char *text, char *limit)
{
    char *at = end_line(text, limit), *path = end_word(text, at);
    char *version = path != NULL ? end_word(path, at) : NULL;
    if (version == NULL)
        return false;
    *head = (struct srv_head){.method = text, .path = path, .version = version};
    while (at < limit && *at != '\r' && *at != '\n') {
        char *line = at;
        at = end_line(at, limit);
        add_field(head, line);
    }
    head->target = head->path;
    return at[0] == '\r' && at[1] == '\n';
}

/* Counts the lines whose name begins so; every line must end in CR LF. */
static unsigned count_lines(const char *bytes, size_t length, const char *name)
{
    unsigned count = 0;
    const char *at = bytes, *end = bytes + length;
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
        FUZZ_EXPECT(stop != NULL && memchr(at, '\n', (size_t)(stop - at)) == NULL);
        FUZZ_EXPECT(memchr(at, '\0', (size_t)(stop - at)) == NULL);
        size_t n = strlen(name);
        count += (size_t)(stop - at) > n && strncasecmp(at, name, n) == 0 && at[n] == ':';
        at = stop + 2;
    }
    return count;
}

static void expect_unambiguous(const struct srv_framing *framing, const char *bytes, size_t length)
{
    unsigned lengths = count_lines(bytes, length, "Content-Length");
    unsigned codings = count_lines(bytes, length, "Transfer-Encoding");
    FUZZ_EXPECT(lengths + codings <= 1);
    FUZZ_EXPECT(framing->has_length == (lengths == 1) && framing->chunked == (codings == 1));
    FUZZ_EXPECT(count_lines(bytes, length, "Host") <= 1);
}

/* Without keys the only origins that pass are listed ones and the daemon's own. */
static void ask_origin(const struct srv_head *head, bool tls)
{
    static struct srv_request request;
    const struct srv_http_context context = {.allowed_hosts = "a,b.c",
                                             .allow_origins = "https://a"};
    const struct srv_header_field *origin = srv_head_find(head, "Origin");
    struct srv_error error = {0};
    request.origin = NULL;
    if (srv_origin_check(&request, &context, head, tls, &error) != SRV_OK)
        return;
    FUZZ_EXPECT(origin == NULL || request.origin != NULL ||
                srv_origin_is_own(origin, srv_head_find(head, "Host"), tls));
    FUZZ_EXPECT(request.origin == NULL || origin->value_length == strlen("https://a"));
}

/* Runs the checks that follow on a head that has passed. */
static void ask(const struct srv_head *head)
{
    struct srv_error error = {0};
    char id[SRV_ID_MAX + 1];
    bool flag;
    uint64_t length;
    ask_origin(head, false);
    ask_origin(head, true);
    srv_guard_content_type(head, false, &error);
    srv_guard_content_type(head, true, &error);
    srv_guard_content_type_bytes(head, &error);
    enum srv_coding coding;
    srv_guard_content_encoding(&coding, head, &error);
    FUZZ_EXPECT(srv_guard_accept_encoding(head) <= SRV_DEFLATE);
    if (srv_guard_json_length(&flag, &length, head, &error) == SRV_OK)
        FUZZ_EXPECT(flag || srv_head_find(head, "Inference-Header-Content-Length") == NULL);
    srv_guard_accept(head, "application/json", &error);
    srv_guard_accept(head, "text/plain", &error);
    srv_guard_accept_binary(&flag, head, &error);
    if (srv_guard_deadline(&length, head, &error) == SRV_OK)
        FUZZ_EXPECT(length <= SRV_MAX_DEADLINE_MS);
    if (srv_guard_id(id, head, "X-Session-Id", &error) == SRV_OK)
        FUZZ_EXPECT(strlen(id) <= SRV_ID_MAX);
    srv_header_field_id(id, srv_head_find(head, "X-Request-Id"));
    const struct srv_header_field *parent = srv_head_find(head, "traceparent");
    struct srv_trace trace;
    if (parent != NULL && srv_trace_read(&trace, parent->value, parent->value_length))
        FUZZ_EXPECT(strlen(trace.trace_id) == SRV_TRACE_ID && parent->value_length >= 55);
}

/* Scans a copy of the bytes in pieces; what is let through goes to `out`. */
static size_t scan_pieces(struct srv_scan *scan, char *out, const uint8_t *data, size_t size,
                          size_t piece)
{
    size_t length = 0;
    *scan = (struct srv_scan){.fault = NULL};
    for (size_t at = 0; at < size && scan->fault == NULL; at += piece) {
        size_t now = piece < size - at ? piece : size - at;
        char *copy = malloc(now);
        FUZZ_EXPECT(copy != NULL);
        memcpy(copy, data + at, now);
        size_t passed = srv_scan(scan, copy, now);
        FUZZ_EXPECT(passed <= now);
        memcpy(out + length, copy, passed);
        length += passed;
        free(copy);
    }
    return length;
}

/* The first head of what passed, whose end is found as a strict reader finds it. */
static void guard(char *text, size_t length, const char *bytes)
{
    struct srv_framing framing = {0};
    struct srv_error error = {0};
    struct srv_head head;
    const char *end = memmem(text, length, "\r\n\r\n", 4);
    FUZZ_EXPECT(end != NULL);
    size_t size = (size_t)(end - text) + 4;
    FUZZ_EXPECT(memchr(text, '\0', size) == NULL);
    FUZZ_EXPECT(parse(&head, text, text + size));
    if (srv_guard_head(&framing, &head, &error) != SRV_OK)
        return;
    FUZZ_EXPECT(error.code == SRV_OK);
    expect_unambiguous(&framing, bytes, size);
    ask(&head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct srv_scan whole, cut;
    char *text = malloc(2 * size + 2), *again = text + size + 1;
    FUZZ_EXPECT(text != NULL);
    size_t length = scan_pieces(&whole, text, data, size, size);
    size_t longer = scan_pieces(&cut, again, data, size, size > 0 ? 1 + data[0] % 7 : 1);
    FUZZ_EXPECT(cut.fault == whole.fault && cut.requests >= whole.requests);
    FUZZ_EXPECT(longer >= length && memcmp(text, again, length) == 0);
    text[length] = '\0';
    if (whole.requests > 0)
        guard(text, length, again);
    free(text);
    return 0;
}
