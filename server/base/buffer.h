/* buffer.h: a growing byte buffer, for reply bodies.
 *
 * A failed growth (memory is short, the ceiling would be exceeded, the writer is cancelled) sticks:
 * appends then do nothing, so a writer checks `failed` once, at the end. */
#ifndef SRV_BUFFER_H
#define SRV_BUFFER_H

#include <string.h>

#include "base/cancel.h"

struct srv_buffer {
    char *data;
    size_t length, capacity, limit;
    bool failed;
    void *lent;               /* memory of the caller's that it began in, or NULL */
    struct srv_cancel cancel; /* asked as the buffer grows; where it says stop, growth has failed */
    size_t cancel_at;         /* the length at which it is asked next */
};

void srv_buffer_init(struct srv_buffer *buffer, size_t limit);

/* Makes a new buffer begin in `memory`, which outlives it, within the buffer's limit. */
void srv_buffer_lend(struct srv_buffer *buffer, void *memory, size_t bytes);

/* Makes constant bytes, which outlive the buffer, its contents, without a copy.  What is appended
 * to them goes into memory of the buffer's own. */
void srv_buffer_wrap(struct srv_buffer *buffer, const char *bytes, size_t count);

/* The bytes of memory that the buffer has allocated: none of what was lent to it, or is wrapped. */
static inline size_t srv_buffer_allocated(const struct srv_buffer *buffer)
{
    return buffer->data != buffer->lent ? buffer->capacity : 0;
}

void srv_buffer_fini(struct srv_buffer *buffer);

/* Makes room for `bytes` more and returns where to write them, NULL where it fails.  The writer
 * then adds what it wrote to buffer->length. */
char *srv_buffer_reserve(struct srv_buffer *buffer, size_t bytes);

/* Appends through srv_buffer_reserve. */
void srv_buffer_append_slowly(struct srv_buffer *buffer, const char *bytes, size_t count);

/* Inline, so that short constants are stored without a call where there is room. */
static inline void srv_buffer_append(struct srv_buffer *buffer, const char *bytes, size_t count)
{
    if (count >= buffer->capacity - buffer->length || buffer->failed ||
        (buffer->cancel.ask != NULL && buffer->length >= buffer->cancel_at)) {
        srv_buffer_append_slowly(buffer, bytes, count);
        return;
    }
    if (count > 0) /* else `bytes` may be NULL */
        memcpy(buffer->data + buffer->length, bytes, count);
    buffer->length += count;
}

/* Inline, so that the compiler knows the length of a literal. */
static inline void srv_buffer_text(struct srv_buffer *buffer, const char *text)
{
    srv_buffer_append(buffer, text, strlen(text));
}

/* Appends the number in decimal, padded with zeros to `width` digits. */
void srv_buffer_unsigned(struct srv_buffer *buffer, uint64_t number, size_t width);

/* Appends a constant and then the number. */
static inline void srv_buffer_number(struct srv_buffer *buffer, const char *before, uint64_t number)
{
    srv_buffer_text(buffer, before);
    srv_buffer_unsigned(buffer, number, 1);
}

void srv_buffer_printf(struct srv_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends the text as a JSON string, quotes and escapes included. */
void srv_buffer_json_string(struct srv_buffer *buffer, const char *text);

#endif
