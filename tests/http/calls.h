/* calls.h: the calls on sessions of the model `tiny` that suites have in common.  A row is named by
 * its seed: the same seed is the same row. */
#ifndef TESTS_HTTP_CALLS_H
#define TESTS_HTTP_CALLS_H

#include "client.h"
#include "text.h"

/* Adds "session_id":..,"hidden_states":[..] of one row [E], or of rows seed, seed + 1, ... [n][E],
 * and `extra`: "" or members that begin with a comma. */
void text_step(struct text *body, const char *id, unsigned seed, const char *extra);
void text_steps(struct text *body, const char *id, unsigned seed, size_t n, const char *extra);

/* POST /decode of one row [E]; of n rows [n][E]; and the latter to /attend. */
struct answer call_decode(struct client *client, const char *id, unsigned seed, const char *extra);
struct answer call_decode_rows(struct client *client, const char *id, unsigned seed, size_t n,
                               const char *extra);
struct answer call_prefill(struct client *client, const char *id, unsigned seed, size_t n,
                           const char *extra);

/* The same, expected to succeed with this position and length. */
void expect_decode(struct client *client, const char *id, unsigned seed, size_t position);

/* The same, expected to fail. */
void refuse_decode(struct client *client, const char *id, unsigned seed, const char *extra,
                   long status, const char *code);

/* The bits of what the session's next decode would be; free them. */
char *call_next_bits(struct client *client, const char *id);

/* POST /sessions with these members beside the id and model, expected to succeed; returns the
 * epoch. */
json_int_t call_create(struct client *client, const char *id, const char *extra);
void call_delete(struct client *client, const char *id);

/* POST /sessions/{parent}/fork of all its tokens, or with these members beside the fork's id, ""
 * or beginning with a comma; expected to succeed. */
void call_fork(struct client *client, const char *parent, const char *id, const char *extra);

/* GET /sessions/{id}: the length of a layer; the answer's status without more. */
size_t call_length(struct client *client, const char *id, size_t layer);
long call_status(struct client *client, const char *id);

/* The value of a metric's sample, written as /metrics has it (with labels); fails where it is not
 * there. */
double call_metric(struct client *client, const char *sample);

#endif
