/* long_call.h: requests of many rows whose answers come later, for tests of what goes on
 * meanwhile. */
#ifndef TESTS_HTTP_LONG_CALL_H
#define TESTS_HTTP_LONG_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "calls.h"
#include "raw.h"

#define ROW_WIDTH 64   /* of the models' hidden states */
#define WAIT_MS 120000 /* for an answer: sanitizers are slow */

/* A request that takes long, on a thread and a connection of its own. */
struct long_call {
    const struct daemon *daemon;
    const char *path;
    const char *const *headers;
    struct text body;
    pthread_t thread;
    atomic_bool answered;
    struct answer answer;
};

/* Ends a body's object with so many rows. */
void add_rows(struct text *body, size_t rows);

/* Until so many requests are in line or computed. */
void await_depth(struct client *client, double low, double high);

/* Sends the call and waits until it is queued. */
void long_send(struct long_call *call, struct client *client);

/* Begins POST /attend of so many rows, `members` before them. */
void long_begin_with(struct long_call *call, struct client *client, const char *const headers[],
                     const char *members, size_t rows);
void long_begin(struct long_call *call, struct client *client, const char *members, size_t rows);

/* Waits for its answer; `code` of an error, or NULL. */
void long_end(struct long_call *call, long status, const char *code);

/* One row to /decode; returns the position it got. */
json_int_t step(struct client *client, const char *id, bool start);

/* Sends a POST whose answer is read later, or never, and frees its body; `version` of HTTP,
 * `fields`: more of its head, each with its end. */
void post_body(struct raw *raw, const struct daemon *daemon, const char *path, const char *version,
               const char *fields, struct text *body);

#endif
