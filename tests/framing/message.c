/* message.c: line by line, and at the first byte that the RFC does not have there, the end. */
#include "message.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define MAX_LENGTH ((uint64_t)1 << 40) /* of a body or chunk: more than any stream here has */

/* A part of the stream. */
struct span {
    const char *at, *end;
};

static size_t length_of(struct span span) { return (size_t)(span.end - span.at); }

static bool is(struct span span, const char *word)
{
    return length_of(span) == strlen(word) && strncasecmp(span.at, word, length_of(span)) == 0;
}

static bool all_of(struct span span, const char *characters)
{
    for (const char *c = span.at; c < span.end; c++)
        if (*c == '\0' || strchr(characters, *c) == NULL)
            return false;
    return span.at < span.end;
}

#define DIGITS "0123456789"
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

static bool is_token(struct span span) { return all_of(span, DIGITS LETTERS "!#$%&'*+-.^_`|~"); }

static struct span trim(struct span span)
{
    while (span.at < span.end && (*span.at == ' ' || *span.at == '\t'))
        span.at++;
    while (span.at < span.end && (span.end[-1] == ' ' || span.end[-1] == '\t'))
        span.end--;
    return span;
}

/* Splits `rest` at the first `byte`, which is dropped; all of it where there is none. */
static struct span split(struct span *rest, char byte)
{
    const char *found = memchr(rest->at, byte, length_of(*rest));
    struct span part = {rest->at, found != NULL ? found : rest->end};
    rest->at = found != NULL ? found + 1 : rest->end;
    return part;
}

bool message_id(char out[MESSAGE_ID_MAX + 1], const char *value, size_t length)
{
    out[0] = '\0';
    if (length > MESSAGE_ID_MAX ||
        !all_of((struct span){value, value + length}, DIGITS LETTERS "_.-"))
        return false;
    memcpy(out, value, length);
    out[length] = '\0';
    return true;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Takes a line that ends in CR LF and holds no other control character but the tab. */
static bool take_line(struct span *out, struct span *rest)
{
    const char *end = memchr(rest->at, '\n', length_of(*rest));
    if (end == NULL || end == rest->at || end[-1] != '\r')
        return false;
    *out = (struct span){rest->at, end - 1};
    rest->at = end + 1;
    for (const char *c = out->at; c < out->end; c++)
        if ((unsigned char)*c < ' ' ? *c != '\t' : *c == 0x7f)
            return false;
    return true;
}

/* Splits a line into name and value. */
static bool read_field(struct span *name, struct span *value, struct span line)
{
    *value = line;
    *name = split(value, ':');
    bool has_colon = name->end < line.end;
    *value = trim(*value);
    return has_colon && is_token(*name);
}

/* Reads a target; `authority` is that of an absolute one, which becomes the path behind it. */
static bool read_target(struct span *target, struct span *authority)
{
    for (const char *c = target->at; c < target->end; c++)
        if (*c <= ' ' || *c > '~' || *c == '#')
            return false;
    *authority = (struct span){target->at, target->at};
    if (target->at < target->end && *target->at == '/')
        return true;
    struct span rest = *target, scheme = split(&rest, ':');
    if (!(is(scheme, "http") || is(scheme, "https")) || length_of(rest) < 3 ||
        memcmp(rest.at, "//", 2) != 0)
        return false;
    authority->at = authority->end = rest.at + 2;
    while (authority->end < target->end && *authority->end != '/')
        authority->end++;
    target->at = authority->end;
    return authority->at < authority->end;
}

static bool read_request_line(struct message *out, struct span *authority, struct span line)
{
    struct span version = line, method = split(&version, ' '), target = split(&version, ' ');
    out->is_head = length_of(method) == 4 && memcmp(method.at, "HEAD", 4) == 0;
    if (!is_token(method) || !(is(version, "HTTP/1.1") || is(version, "HTTP/1.0")) ||
        memcmp(version.at, "HTTP", 4) != 0 || !read_target(&target, authority))
        return false;
    out->closes = version.end[-1] == '0';
    text_add(&out->line, "%.*s %s%.*s %.*s", (int)length_of(method), method.at,
             target.at < target.end ? "" : "/", (int)length_of(target), target.at,
             (int)length_of(version), version.at);
    return true;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* What the fields say about where the request ends. */
struct framing {
    bool is_1_0;
    unsigned hosts, lengths, codings, expectations, ids;
    struct span authority, host; /* of an absolute target; of the field */
    uint64_t length;
};

static bool take_host(struct message *out, struct framing *framing, struct span value)
{
    framing->host = value;
    if (framing->hosts == 0)
        text_bytes(&out->host, value.at, length_of(value));
    return framing->hosts++ == 0;
}

static bool take_length(struct message *out, struct framing *framing, struct span value)
{
    if (framing->lengths++ > 0 || !all_of(value, DIGITS))
        return false;
    for (const char *c = value.at; c < value.end && framing->length < MAX_LENGTH; c++)
        framing->length = 10 * framing->length + (uint64_t)(*c - '0');
    out->has_body = true;
    return true;
}

static bool take_coding(struct message *out, struct framing *framing, struct span value)
{
    out->chunked = out->has_body = true;
    return framing->codings++ == 0 && !framing->is_1_0 && is(value, "chunked");
}

static bool take_expect(struct message *out, struct framing *framing, struct span value)
{
    out->expects = !framing->is_1_0;
    return framing->is_1_0 || (framing->expectations++ == 0 && is(value, "100-continue"));
}

static bool take_connection(struct message *out, struct framing *framing, struct span value)
{
    while (value.at < value.end) {
        struct span option = trim(split(&value, ','));
        if (is(option, "close"))
            out->closes = true;
        else if (is(option, "keep-alive") && framing->is_1_0)
            out->closes = false;
    }
    return true;
}

static bool take_id(struct message *out, struct framing *framing, struct span value)
{
    if (framing->ids++ == 0)
        message_id(out->id, value.at, length_of(value));
    return true;
}

static bool pass_over(struct message *out, struct framing *framing, struct span value)
{
    (void)out;
    (void)framing;
    (void)value;
    return true;
}

static const struct {
    const char *name;
    bool (*take)(struct message *out, struct framing *framing, struct span value);
    bool copied; /* to message.fields */
} names[] = {
    {.name = "Host", .take = take_host},
    {.name = "Content-Length", .take = take_length},
    {.name = "Transfer-Encoding", .take = take_coding},
    {.name = "Expect", .take = take_expect},
    {.name = "Connection", .take = take_connection, .copied = true},
    {.name = "X-Request-Id", .take = take_id},
    {.name = "Trailer", .take = pass_over},
};

static bool take_field(struct message *out, struct framing *framing, struct span line)
{
    struct span name, value;
    bool right = read_field(&name, &value, line), copied = true;
    for (size_t i = 0; right && i < sizeof names / sizeof names[0]; i++) {
        if (!is(name, names[i].name))
            continue;
        right = names[i].take(out, framing, value);
        copied = names[i].copied;
    }
    if (right && copied) {
        text_bytes(&out->fields, name.at, length_of(name));
        text_bytes(&out->fields, ": ", 2);
        text_bytes(&out->fields, value.at, length_of(value));
        text_bytes(&out->fields, "\r\n", 2);
    }
    return right;
}

/* Whether the fields fit together. */
static bool ends_well(const struct framing *framing)
{
    struct span authority = framing->authority, host = framing->host;
    bool same = length_of(authority) == length_of(host) &&
                strncasecmp(authority.at, host.at, length_of(host)) == 0;
    return (framing->hosts == 1 || framing->is_1_0) &&
           (framing->codings == 0 || framing->lengths == 0) &&
           (length_of(authority) == 0 || framing->hosts == 0 || same);
}

static bool read_head(struct message *out, struct framing *framing, struct span *rest)
{
    struct span line;
    if (!take_line(&line, rest) || !read_request_line(out, &framing->authority, line))
        return false;
    framing->is_1_0 = out->closes;
    while (take_line(&line, rest)) {
        if (line.at == line.end)
            return ends_well(framing);
        if (!take_field(out, framing, line))
            return false;
    }
    return false;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static bool read_chunk_size(uint64_t *out, struct span line)
{
    static const char digits[] = "0123456789abcdef";
    *out = 0;
    const char *c = line.at;
    for (; c < line.end && *out < MAX_LENGTH; c++) {
        int digit = *c >= 'A' && *c <= 'F' ? *c + ('a' - 'A') : *c;
        const char *found = digit != 0 ? strchr(digits, digit) : NULL;
        if (found == NULL)
            break;
        *out = 16 * *out + (uint64_t)(found - digits);
    }
    return c > line.at && (*out >= MAX_LENGTH || c == line.end || *c == ';');
}

static bool read_trailers(struct span *rest)
{
    struct span line, name, value;
    while (take_line(&line, rest)) {
        if (line.at == line.end)
            return true;
        if (!read_field(&name, &value, line))
            return false;
    }
    return false;
}

static bool read_chunks(struct message *out, struct span *rest)
{
    struct span line;
    uint64_t size;
    while (take_line(&line, rest) && read_chunk_size(&size, line)) {
        if (size == 0)
            return read_trailers(rest);
        if (size > length_of(*rest))
            return false;
        text_bytes(&out->body, rest->at, size);
        rest->at += size;
        if (!take_line(&line, rest) || line.at < line.end)
            return false;
    }
    return false;
}

/* ---- Requests -------------------------------------------------------------------------------- */

void message_read(struct message *out, const char *bytes, size_t length)
{
    struct span rest = {bytes, bytes + length};
    struct framing framing = {.is_1_0 = false};
    *out = (struct message){.kind = MESSAGE_REFUSED};
    text_bytes(&out->line, "", 0);
    text_bytes(&out->fields, "", 0);
    text_bytes(&out->body, "", 0);
    if (length >= 2 && memcmp(bytes, "\r\n", 2) == 0)
        rest.at += 2;
    if (length == 0) {
        out->kind = MESSAGE_NONE;
    } else if (!read_head(out, &framing, &rest)) {
        return;
    } else if (out->chunked) {
        out->kind = read_chunks(out, &rest) ? MESSAGE_WHOLE : MESSAGE_BROKEN;
    } else if (framing.length > length_of(rest)) {
        out->kind = MESSAGE_BROKEN;
    } else {
        out->kind = MESSAGE_WHOLE;
        text_bytes(&out->body, rest.at, framing.length);
        rest.at += framing.length;
    }
    out->size = (size_t)(rest.at - bytes);
}

void message_free(struct message *message)
{
    text_free(&message->line);
    text_free(&message->host);
    text_free(&message->fields);
    text_free(&message->body);
}
