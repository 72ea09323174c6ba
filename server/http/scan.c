/* scan.c: a state machine over bytes.  Each state is a row of `steps`, a function that reads
 * as far as it goes and says which state follows.
 *
 * Rules that need the whole head, such as which fields exclude each other, are guard.c's. */
#include "http/scan.h"

#include "wire/route.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

enum state {
    START, /* of a request; a zeroed scan begins here */
    START_LF,
    METHOD,
    TARGET,
    VERSION,
    LINE_LF, /* after the CR of the request line or a field */
    FIELD,   /* the first byte of a line */
    NAME,
    BLANKS, /* before a value */
    VALUE,
    HEAD_LF, /* after the CR of the empty line */
    BODY,
    CHUNK_DIGITS,
    CHUNK_EXTENSION,
    CHUNK_LINE_LF,
    CHUNK_DATA,
    CHUNK_CR,
    CHUNK_LF,
    REST, /* the connection ends after this request: nothing more is looked at */
};

enum field { OTHER_FIELD, LENGTH_FIELD, CODING_FIELD };

/* All that can be wrong. */
static const struct srv_scan_fault
    bad_line_end = {SRV_E_BAD_REQUEST, NULL, "CR and LF do not stand together"},
    bad_method = {SRV_E_BAD_REQUEST, NULL, "the method is not a token"},
    bad_target = {SRV_E_BAD_REQUEST, NULL,
                  "the request target is empty or holds a byte that no URI has"},
    bad_version = {SRV_E_BAD_REQUEST, NULL, "the version must be HTTP/1.1 or HTTP/1.0"},
    bad_name = {SRV_E_BAD_REQUEST, NULL, "a line of the header is folded or has no valid name"},
    bad_value = {SRV_E_BAD_REQUEST, NULL, "a header field holds a control character"},
    bad_length = {SRV_E_BAD_REQUEST, "Content-Length", "Content-Length is no number of bytes"},
    large_length = {SRV_E_BODY_TOO_LARGE, "Content-Length", "Content-Length is 2^64 or more"},
    bad_coding = {SRV_E_NOT_IMPLEMENTED, "Transfer-Encoding",
                  "Transfer-Encoding has more than `chunked`"},
    bad_chunk = {SRV_E_BAD_REQUEST, NULL, "the size or the end of a chunk is malformed"},
    large_chunk = {SRV_E_BODY_TOO_LARGE, NULL, "the size of a chunk is 2^64 or more"},
    long_chunk_line = {SRV_E_BAD_REQUEST, NULL,
                       "the line before a chunk has more than " TEXT(SRV_MAX_CHUNK_LINE) " bytes"},
    long_head = {SRV_E_HEADERS_TOO_LARGE, NULL,
                 "more than " TEXT(SRV_MAX_HEADER_BYTES) " bytes of header"},
    many_fields = {SRV_E_HEADERS_TOO_LARGE, NULL,
                   "more than " TEXT(SRV_MAX_HEADERS) " header fields and query parameters"};

static char *fail(struct srv_scan *s, const struct srv_scan_fault *fault, char *at)
{
    s->fault = fault;
    return at;
}

static char *go_on(struct srv_scan *s, enum state next, char *at)
{
    s->state = (uint8_t)next;
    return at;
}

/* ---- Characters ------------------------------------------------------------------------------ */

/* The characters of a token, letters, digits and !#$%&'*+-.^_`|~: a bit for each below 128. */
static const uint64_t token_characters[2] = {0x3ff6cfa00000000, 0x57ffffffc7fffffe};

static bool is_token_character(char character)
{
    unsigned char c = (unsigned char)character;
    return c < 128 && (token_characters[c / 64] >> c % 64 & 1) != 0;
}

static bool is_target_character(char c) { return c > ' ' && c <= '~' && c != '#'; }

/* Of a value or of a chunk's extension. */
static bool is_text_character(char c) { return (unsigned char)c >= ' ' ? c != 0x7f : c == '\t'; }

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

static void keep(struct srv_scan *s, char c)
{
    if (s->word_length < sizeof s->word)
        s->word[s->word_length++] = small(c);
}

static bool word_is(const struct srv_scan *s, const char *text)
{
    return s->word_length == strlen(text) && memcmp(s->word, text, s->word_length) == 0;
}

/* The byte at `at` must be LF. */
static char *expect_lf(struct srv_scan *s, enum state next, char *at)
{
    return *at == '\n' ? go_on(s, next, at + 1) : fail(s, &bad_line_end, at);
}

/* ---- The head -------------------------------------------------------------------------------- */

static char *scan_method(struct srv_scan *s, char *at, char *end)
{
    for (; at < end && (*at != ' ' || s->word_length == 0); at++, s->word_length = 1)
        if (!is_token_character(*at))
            return fail(s, &bad_method, at);
    s->word_length = at < end ? 0 : s->word_length;
    return at < end ? go_on(s, TARGET, at + 1) : at;
}

static char *scan_target(struct srv_scan *s, char *at, char *end)
{
    for (; at < end && *at != ' '; at++) {
        if (!is_target_character(*at))
            return fail(s, &bad_target, at);
        if ((*at == '?' || *at == '&') && ++s->fields > SRV_MAX_HEADERS)
            return fail(s, &many_fields, at);
        if (s->word_length < strlen("/v2/")) { /* what follows does not matter */
            s->word[s->word_length++] = *at;
            s->word[s->word_length] = '\0';
            s->is_v2 = srv_v2_is_path(s->word);
        }
    }
    if (at == end)
        return at;
    if (s->word_length == 0)
        return fail(s, &bad_target, at);
    s->word_length = 0;
    return go_on(s, VERSION, at + 1);
}

static char *scan_version(struct srv_scan *s, char *at, char *end)
{
    static const char version[] = "HTTP/1.";
    for (; at < end && s->word_length < sizeof version; at++, s->word_length++) {
        size_t i = s->word_length;
        if (i < sizeof version - 1 ? *at != version[i] : *at != '0' && *at != '1')
            return fail(s, &bad_version, at);
        s->is_old = *at == '0';
    }
    if (at == end)
        return at;
    return *at == '\r' ? go_on(s, LINE_LF, at + 1) : fail(s, &bad_version, at);
}

static char *scan_line_lf(struct srv_scan *s, char *at, char *end)
{
    (void)end;
    return expect_lf(s, FIELD, at);
}

static char *scan_field(struct srv_scan *s, char *at, char *end)
{
    (void)end;
    if (*at == '\r')
        return go_on(s, HEAD_LF, at + 1);
    if (!is_token_character(*at))
        return fail(s, &bad_name, at);
    if (++s->fields > SRV_MAX_HEADERS)
        return fail(s, &many_fields, at);
    s->word_length = 0;
    return go_on(s, NAME, at);
}

/* Which field the word names, and what two of a kind mean. */
static enum field classify(struct srv_scan *s)
{
    bool is_length = word_is(s, "content-length"), is_coding = word_is(s, "transfer-encoding");
    if (s->in_trailer || (!is_length && !is_coding))
        return OTHER_FIELD;
    s->unframed = s->unframed || s->has_length || s->has_coding;
    s->has_length = s->has_length || is_length;
    s->has_coding = s->has_coding || is_coding;
    return is_length ? LENGTH_FIELD : CODING_FIELD;
}

static char *scan_name(struct srv_scan *s, char *at, char *end)
{
    for (; at < end && *at != ':'; at++) {
        if (!is_token_character(*at))
            return fail(s, &bad_name, at);
        if (word_is(s, "cooki") && small(*at) == 'e')
            *at = '_';
        keep(s, *at);
    }
    if (at == end)
        return at;
    s->field = (uint8_t)classify(s);
    s->word_length = 0;
    if (s->field == LENGTH_FIELD)
        s->left = 0;
    return go_on(s, BLANKS, at + 1);
}

static char *scan_blanks(struct srv_scan *s, char *at, char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    s->blank = false;
    return at < end ? go_on(s, VALUE, at) : at;
}

/* Whether `c` is a blank behind a length or a coding.  Such blanks are no part of the value: they
 * are taken out (srv_scan), and nothing else may follow them. */
static bool is_blank_behind(const struct srv_scan *s, char c)
{
    bool ends = s->field == LENGTH_FIELD   ? s->word_length > 0
                : s->field == CODING_FIELD ? word_is(s, "chunked")
                                           : false;
    return s->state == VALUE && ends && (c == ' ' || c == '\t');
}

/* Digits and nothing else. */
static char *scan_length(struct srv_scan *s, char *at, char *end)
{
    for (; at < end && *at != '\r' && !is_blank_behind(s, *at); at++, s->word_length = 1) {
        unsigned digit = (unsigned)(*at - '0');
        if (digit > 9)
            return fail(s, &bad_length, at);
        if (__builtin_mul_overflow(s->left, 10u, &s->left) ||
            __builtin_add_overflow(s->left, digit, &s->left))
            return fail(s, &large_length, at);
    }
    return at < end && s->word_length == 0 ? fail(s, &bad_length, at) : at;
}

static char *scan_value(struct srv_scan *s, char *at, char *end)
{
    if (s->blank && *at != '\r')
        return fail(s, s->field == LENGTH_FIELD ? &bad_length : &bad_coding, at);
    if (s->field == LENGTH_FIELD)
        at = scan_length(s, at, end);
    for (; at < end && s->fault == NULL && is_text_character(*at) && !is_blank_behind(s, *at); at++)
        if (s->field == CODING_FIELD)
            keep(s, *at);
    if (at == end || s->fault != NULL || is_blank_behind(s, *at))
        return at;
    if (*at != '\r')
        return fail(s, *at == '\n' ? &bad_line_end : &bad_value, at);
    if (s->field == CODING_FIELD)
        s->unframed = s->unframed || !word_is(s, "chunked");
    return go_on(s, LINE_LF, at + 1);
}

static char *begin_chunk(struct srv_scan *s, char *at)
{
    s->left = 0;
    s->line = 0;
    s->word_length = 0;
    return go_on(s, CHUNK_DIGITS, at);
}

/* Ends a head or, after chunks, the trailer. */
static char *scan_head_lf(struct srv_scan *s, char *at, char *end)
{
    (void)end;
    at = expect_lf(s, START, at);
    if (s->fault != NULL)
        return at;
    if (s->in_trailer)
        return go_on(s, REST, at);
    s->requests++;
    if (s->unframed || (s->has_coding && s->is_old))
        return go_on(s, REST, at);
    if (s->has_coding)
        return begin_chunk(s, at);
    return go_on(s, s->left > 0 ? BODY : START, at);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static char *pass_over(struct srv_scan *s, enum state next, char *at, const char *end)
{
    size_t count = (size_t)(end - at);
    count = count < s->left ? count : (size_t)s->left;
    s->left -= count;
    return s->left == 0 ? go_on(s, next, at + count) : at + count;
}

static char *scan_body(struct srv_scan *s, char *at, char *end)
{
    return pass_over(s, START, at, end);
}

static char *scan_chunk_data(struct srv_scan *s, char *at, char *end)
{
    return pass_over(s, CHUNK_CR, at, end);
}

/* The value of a hexadecimal digit, 16 for any other character. */
static unsigned hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    return small(c) >= 'a' && small(c) <= 'f' ? (unsigned)(small(c) - 'a') + 10 : 16;
}

static char *scan_chunk_digits(struct srv_scan *s, char *at, char *end)
{
    for (; at < end && hex_digit(*at) < 16; at++, s->word_length = 1) {
        if (s->left >> 60 != 0)
            return fail(s, &large_chunk, at);
        s->left = s->left * 16 + hex_digit(*at);
    }
    if (at == end)
        return at;
    if (s->word_length == 0 || (*at != ';' && *at != '\r'))
        return fail(s, &bad_chunk, at);
    return go_on(s, *at == ';' ? CHUNK_EXTENSION : CHUNK_LINE_LF, at + 1);
}

static char *scan_chunk_extension(struct srv_scan *s, char *at, char *end)
{
    while (at < end && is_text_character(*at))
        at++;
    if (at == end)
        return at;
    return *at == '\r' ? go_on(s, CHUNK_LINE_LF, at + 1) : fail(s, &bad_chunk, at);
}

/* The empty lines after head and trailer count as one. */
static char *scan_chunk_line_lf(struct srv_scan *s, char *at, char *end)
{
    (void)end;
    s->in_trailer = s->left == 0;
    if (s->in_trailer)
        s->bytes -= 2;
    return expect_lf(s, s->in_trailer ? FIELD : CHUNK_DATA, at);
}

static char *scan_chunk_cr(struct srv_scan *s, char *at, char *end)
{
    (void)end;
    return *at == '\r' ? go_on(s, CHUNK_LF, at + 1) : fail(s, &bad_chunk, at);
}

static char *scan_chunk_lf(struct srv_scan *s, char *at, char *end)
{
    (void)end;
    at = expect_lf(s, CHUNK_DIGITS, at);
    return s->fault == NULL ? begin_chunk(s, at) : at;
}

static char *scan_rest(struct srv_scan *s, char *at, char *end)
{
    (void)s, (void)at;
    return end;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static char *(*const steps[])(struct srv_scan *, char *, char *) = {
    [METHOD] = scan_method,
    [TARGET] = scan_target,
    [VERSION] = scan_version,
    [LINE_LF] = scan_line_lf,
    [FIELD] = scan_field,
    [NAME] = scan_name,
    [BLANKS] = scan_blanks,
    [VALUE] = scan_value,
    [HEAD_LF] = scan_head_lf,
    [BODY] = scan_body,
    [CHUNK_DIGITS] = scan_chunk_digits,
    [CHUNK_EXTENSION] = scan_chunk_extension,
    [CHUNK_LINE_LF] = scan_chunk_line_lf,
    [CHUNK_DATA] = scan_chunk_data,
    [CHUNK_CR] = scan_chunk_cr,
    [CHUNK_LF] = scan_chunk_lf,
    [REST] = scan_rest,
};

/* Takes one empty line before a request line out of the bytes, and begins the request with any
 * other byte.  Returns the new end. */
static char *start(struct srv_scan *s, char *at, char *end)
{
    bool is_lf = s->state == START_LF && *at == '\n';
    bool is_cr = s->state == START && *at == '\r' && !s->skipped;
    if (is_lf || is_cr) {
        s->skipped = is_lf;
        s->state = is_cr ? START_LF : START;
        memmove(at, at + 1, (size_t)(end - at) - 1);
        return end - 1;
    }
    if (s->state == START_LF)
        fail(s, &bad_line_end, at);
    *s = (struct srv_scan){.fault = s->fault, .requests = s->requests, .state = METHOD};
    return end;
}

/* Takes a blank, which counts as one of the head's, out of the bytes; returns the new end. */
static char *remove_blank(struct srv_scan *s, char *at, char *end)
{
    s->blank = true;
    if (++s->bytes > SRV_MAX_HEADER_BYTES)
        fail(s, &long_head, at);
    memmove(at, at + 1, (size_t)(end - at) - 1);
    return end - 1;
}

/* Carries out the state's step, within what a head or a chunk's line may still have and one byte
 * more, which is the fault: so the verdict is the same wherever bytes are cut. */
static char *step(struct srv_scan *s, char *at, char *end)
{
    bool in_head = s->state <= HEAD_LF;
    bool in_line = s->state >= CHUNK_DIGITS && s->state <= CHUNK_LINE_LF;
    size_t *count = in_head ? &s->bytes : &s->line;
    size_t most = in_head ? SRV_MAX_HEADER_BYTES : SRV_MAX_CHUNK_LINE, left = most + 1 - *count;
    if ((in_head || in_line) && (size_t)(end - at) > left)
        end = at + left;
    char *next = steps[s->state](s, at, end);
    if (in_head || in_line)
        *count += (size_t)(next - at);
    if (s->fault == NULL && *count > most)
        fail(s, in_head ? &long_head : &long_chunk_line, next);
    return next;
}

bool srv_scan_in_body(const struct srv_scan *s)
{
    return s->state != REST && (s->state >= BODY || s->in_trailer);
}

size_t srv_scan(struct srv_scan *s, char *bytes, size_t count)
{
    char *at = bytes, *end = bytes + count, *whole = bytes; /* where the request begins */
    uint64_t requests = s->requests;
    while (at < end && s->fault == NULL) {
        if (s->state <= START_LF) {
            whole = at;
            requests = s->requests;
            end = start(s, at, end);
        } else if (is_blank_behind(s, *at)) {
            end = remove_blank(s, at, end);
        } else {
            at = step(s, at, end);
        }
    }
    if (s->fault == NULL)
        return (size_t)(end - bytes);
    s->requests = requests;
    return (size_t)(whole - bytes);
}
