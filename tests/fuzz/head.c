/* head.c: heads of requests, split into pointers in libmicrohttpd's lenient way, against the guard:
 * a head that the guard passes must look the same to a strict reader of its bytes.  Heads that hold
 * a NUL are left to the catalogue: libmicrohttpd has written NULs over the ends of lines, so that a
 * NUL in the input may pass for such an end (docs/TESTING.md). */
#include <strings.h>

#include "fuzz.h"
#include "http/http_guard.h"

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
    if (head->count < SRV_MAX_HEADERS)
        head->fields[head->count] =
            (struct srv_header_field){line, value, strlen(line), strlen(value)};
    head->count++;
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
    size_t end = at[0] == '\r' && at[1] == '\n' ? 2 : at[0] == '\n';
    head->end = at + end;
    head->bytes = (size_t)(head->end - text);
    return end > 0;
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

/* Runs the checks that follow on a head that has passed. */
static void ask(const struct srv_head *head)
{
    struct srv_error error = {0};
    char id[SRV_ID_MAX + 1];
    bool flag;
    uint64_t length;
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
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct srv_framing framing = {0};
    struct srv_error error = {0};
    struct srv_head head;
    size_t length;
    char *text = fuzz_text(&length, &in, in.left);
    bool passed =
        parse(&head, text, text + length) && srv_guard_head(&framing, &head, &error) == SRV_OK;
    FUZZ_EXPECT(!passed || error.code == SRV_OK);
    if (passed && memchr(data, '\0', head.bytes) == NULL) {
        FUZZ_EXPECT(memcmp(data + head.bytes - 4, "\r\n\r\n", 4) == 0);
        expect_unambiguous(&framing, (const char *)data, head.bytes);
    }
    if (passed)
        ask(&head);
    free(text);
    return 0;
}
