/* long_call.h: requests of many rows whose answers come later, for tests of what goes on
 * meanwhile. */
#ifndef TESTS_HTTP_LONG_CALL_H
#define TESTS_HTTP_LONG_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "calls.h"
#include "raw.h"

#define ROW_WIDTH 64   /* width of the models' hidden states */
#define WAIT_MS 120000 /* for an answer: sanitizers are slow */

/* A request that takes long, on a thread and a connection of its own. */
struct long_call {
    const struct daemon *daemon;
    const char *path;
    const char *const *headers;
    struct text body;
    pthread_t thread;
    atomic_bool answered;
    double took_ms; /* from before it was sent to its answer */
    struct answer answer;
};

/* Adds so many rows to a body, and ends its object. */
void add_rows(struct text *body, size_t rows);

/* Adds the whole body of an attention without weights that answers rows x rows of them. */
void add_weights_call(struct text *body, int rows);

/* Waits until between `low` and `high` requests are queued or running. */
void await_depth(struct client *client, double low, double high);

/* Sends the call and waits until it is queued. */
void long_send(struct long_call *call, struct client *client);

/* Starts POST /attend of so many rows, with `members` before them. */
void long_begin_with(struct long_call *call, struct client *client, const char *const headers[],
                     const char *members, size_t rows);
void long_begin(struct long_call *call, struct client *client, const char *members, size_t rows);

/* Waits for the call's answer, which must have this status, and the error `code` or NULL. */
void long_end(struct long_call *call, long status, const char *code);

/* POSTs one row to /decode; returns the position of the row. */
json_int_t step(struct client *client, const char *id, bool start);

/* Sends a POST whose answer is read later, or never, and frees its body.  `version` is that of
 * HTTP; `fields` are further lines of the head, each with its end. */
void post_body(struct raw *raw, const struct daemon *daemon, const char *path, const char *version,
               const char *fields, struct text *body);

#endif
