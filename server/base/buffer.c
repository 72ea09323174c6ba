/* buffer.c: a growing byte buffer that doubles up to its ceiling.
 *
 * After a failed growth the contents stay, `failed` stays set, and every later append does
 * nothing. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistr.h>

#include "base/number.h"
#include "basics/mem.h"

#define CAPACITY_MIN 256

void srv_buffer_init(struct srv_buffer *buffer, size_t limit)
{
    *buffer = (struct srv_buffer){.limit = limit};
}

void srv_buffer_lend(struct srv_buffer *buffer, void *memory, size_t bytes)
{
    buffer->data = buffer->lent = memory;
    buffer->capacity = bytes < buffer->limit ? bytes : buffer->limit;
}

/* No byte is written to `bytes`: there is no room after them. */
void srv_buffer_wrap(struct srv_buffer *buffer, const char *bytes, size_t count)
{
    size_t limit = count > buffer->limit ? count : buffer->limit;
    srv_buffer_fini(buffer);
    srv_buffer_init(buffer, limit);
    srv_buffer_lend(buffer, (char *)bytes, count);
    buffer->length = count;
}

void srv_buffer_fini(struct srv_buffer *buffer)
{
    if (buffer->data != buffer->lent)
        free(buffer->data);
    *buffer = (struct srv_buffer){0};
}

/* Raises the capacity to at least `needed`, which is within the limit; false where memory is
 * short. */
static bool grow(struct srv_buffer *buffer, size_t needed)
{
    size_t capacity = attn_max(buffer->capacity, CAPACITY_MIN);
    bool own = buffer->data != buffer->lent;
    bool huge = !own && needed >= ATTN_HUGE_PAGE; /* reserved in one go: allocated exactly */
    if (huge)
        capacity = needed;
    while (capacity < needed && capacity <= buffer->limit / 2)
        capacity *= 2;
    if (capacity < needed || capacity > buffer->limit)
        capacity = buffer->limit;
    char *data = huge ? attn_alloc_huge(1, capacity) : realloc(own ? buffer->data : NULL, capacity);
    if (data == NULL)
        return false;
    if (!own && buffer->length > 0)
        memcpy(data, buffer->lent, buffer->length);
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

char *srv_buffer_reserve(struct srv_buffer *buffer, size_t bytes)
{
    struct srv_error error;
    if (buffer->cancel.ask != NULL && buffer->length >= buffer->cancel_at) {
        buffer->cancel_at = buffer->length + SRV_CANCEL_BYTES;
        buffer->failed = buffer->failed || srv_cancel_ask(&buffer->cancel, &error) != SRV_OK;
    }
    if (buffer->failed)
        return NULL;
    if (bytes > buffer->capacity - buffer->length || buffer->data == NULL) {
        bool fits = bytes <= buffer->limit - buffer->length && buffer->limit > 0;
        if (!fits || !grow(buffer, buffer->length + bytes)) {
            buffer->failed = true;
            return NULL;
        }
    }
    return buffer->data + buffer->length;
}

void srv_buffer_append_slowly(struct srv_buffer *buffer, const char *bytes, size_t count)
{
    char *to = srv_buffer_reserve(buffer, count);
    if (to == NULL || count == 0)
        return;
    memcpy(to, bytes, count);
    buffer->length += count;
}

void srv_buffer_unsigned(struct srv_buffer *buffer, uint64_t number, size_t width)
{
    char *to = srv_buffer_reserve(buffer, SRV_UNSIGNED_MAX);
    if (to != NULL)
        buffer->length += srv_unsigned_write(to, number, width);
}

void srv_buffer_printf(struct srv_buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *to = length < 0 ? NULL : srv_buffer_reserve(buffer, (size_t)length + 1); /* and a NUL */
    if (to != NULL) {
        vsnprintf(to, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

/* The letter that follows the backslash in the byte's short escape; 0 where it has none. */
static char short_escape(char byte)
{
    static const char bytes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = byte == '\0' ? NULL : strchr(bytes, byte);
    return found == NULL ? '\0' : letters[found - bytes];
}

/* Appends the first character of `text` and returns its bytes.  A byte that is not UTF-8 (in a
 * message truncated inside a character) becomes U+FFFD, so that a reply is always valid JSON. */
static size_t append_character(struct srv_buffer *buffer, const char *text, const char *end)
{
    char letter = short_escape(*text);
    if (letter != '\0') {
        srv_buffer_append(buffer, (const char[]){'\\', letter}, 2);
        return 1;
    }
    if ((unsigned char)*text < 0x20) {
        srv_buffer_printf(buffer, "\\u%04x", (unsigned)*text);
        return 1;
    }
    int bytes = u8_mblen((const uint8_t *)text, (size_t)(end - text));
    if (bytes < 0) {
        srv_buffer_text(buffer, "\\ufffd");
        return 1;
    }
    srv_buffer_append(buffer, text, (size_t)bytes);
    return (size_t)bytes;
}

/* The number of ASCII characters at `text` that need no escape: nearly all of nearly all
 * strings. */
static size_t count_plain(const char *text)
{
    const char *at = text;
    while (*at >= ' ' && *at != '"' && *at != '\\' && (unsigned char)*at < 0x80)
        at++;
    return (size_t)(at - text);
}

void srv_buffer_json_string(struct srv_buffer *buffer, const char *text)
{
    const char *end = text + strlen(text);
    srv_buffer_append(buffer, "\"", 1);
    while (text < end) {
        size_t plain = count_plain(text);
        srv_buffer_append(buffer, text, plain);
        text += plain > 0 ? plain : append_character(buffer, text, end);
    }
    srv_buffer_append(buffer, "\"", 1);
}
