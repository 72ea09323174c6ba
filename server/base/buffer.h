/* buffer.h: a growing byte buffer, for reply bodies.  A failed growth (memory, ceiling) sticks:
 * appends become no-ops and `failed` tells at the end, so a writer checks once. */
#ifndef SRV_BUFFER_H
#define SRV_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cancel.h"

struct srv_buffer {
    char *data;
    size_t length, capacity, limit;
    bool failed;
    void *lent;              /* where it began, or NULL */
    struct srv_cancel pause; /* asked as the buffer grows; one that is told to stop has failed */
    size_t cancel_at;        /* the length at which it is asked next */
};

void srv_buffer_init(struct srv_buffer *buffer, size_t limit);

/* Begins a new buffer in memory that outlives it, as far as the limit lets it. */
void srv_buffer_lend(struct srv_buffer *buffer, void *memory, size_t bytes);
void srv_buffer_fini(struct srv_buffer *buffer);

/* Room for `bytes` more: a pointer to write them at, or NULL.  Commit with buffer->length +=. */
char *srv_buffer_reserve(struct srv_buffer *buffer, size_t bytes);
void srv_buffer_append(struct srv_buffer *buffer, const char *bytes, size_t count);

/* Inline, so that the length of a literal is not counted each time. */
static inline void srv_buffer_text(struct srv_buffer *buffer, const char *text)
{
    srv_buffer_append(buffer, text, strlen(text));
}

/* The number in decimal. */
void srv_buffer_unsigned(struct srv_buffer *buffer, uint64_t number);
void srv_buffer_printf(struct srv_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text as a JSON string, quotes and escapes included. */
void srv_buffer_json_string(struct srv_buffer *buffer, const char *text);

#endif
