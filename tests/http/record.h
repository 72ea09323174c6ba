/* record.h: exchanges with attnd as lines of JSON, for `make check-openapi`.
 *
 * The environment variable EXCHANGES names the file to which they are appended; without it nothing
 * is recorded.  A line is written at once, so that threads and processes may share the file. */
#ifndef TESTS_HTTP_RECORD_H
#define TESTS_HTTP_RECORD_H

#include <stdbool.h>
#include <stddef.h>

struct recorded {
    const char *method, *path; /* NULL: not known, what was sent is no request */
    const char *head;          /* lines of the request's fields, or NULL */
    const char *body;          /* NULL: none, or not known */
    size_t length;             /* of the body */
    long status;
    const char *reply_head; /* status line and fields */
    const char *reply;
    size_t reply_length;
};

bool record_wanted(void);
void record_exchange(const struct recorded *exchange);

/* The requests that were sent over a connection and are not answered yet. */
struct sent {
    char *data;
    size_t length;
    bool lost; /* too many bytes: what follows is not recorded */
};

void sent_add(struct sent *sent, const void *bytes, size_t count);

/* Records the reply with the first request of *sent, which is removed.  Replies that are not
 * attnd's, but a proxy's, are not recorded. */
void sent_answered(struct sent *sent, long status, const char *reply_head, const char *reply,
                   size_t reply_length);

/* Copies the value of a field among the lines of a head; false where there is none. */
bool record_field(char out[256], const char *head, const char *name);

#endif
