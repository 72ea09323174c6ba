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

/* POST /decode of one row [E]; POST /decode of n rows [n][E]; POST /attend of n rows. */
struct answer call_decode(struct client *client, const char *id, unsigned seed, const char *extra);
struct answer call_decode_rows(struct client *client, const char *id, unsigned seed, size_t n,
                               const char *extra);
struct answer call_prefill(struct client *client, const char *id, unsigned seed, size_t n,
                           const char *extra);

/* Decodes a row, which must succeed at this position. */
void expect_decode(struct client *client, const char *id, unsigned seed, size_t position);

/* Decodes a row, which must fail. */
void refuse_decode(struct client *client, const char *id, unsigned seed, const char *extra,
                   long status, const char *code);

/* Returns the bits of the session's next decode, without committing it; the caller frees them. */
char *call_next_bits(struct client *client, const char *id);

/* POST /sessions with `extra` members beside id and model, which must succeed; returns the
 * epoch. */
json_int_t call_create(struct client *client, const char *id, const char *extra);
void call_delete(struct client *client, const char *id);

/* POST /sessions/{parent}/fork, which must succeed.  `extra`: further members beside the fork's id,
 * "" for all tokens, or beginning with a comma. */
void call_fork(struct client *client, const char *parent, const char *id, const char *extra);

/* GET /sessions/{id}: call_length returns the length of a layer, call_status the status. */
size_t call_length(struct client *client, const char *id, size_t layer);
long call_status(struct client *client, const char *id);

/* Asks for a snapshot, and waits until it is written and what it replaces is removed. */
void call_snapshot(struct client *client);

/* Returns the value of a metric's sample, named with its labels as in /metrics, or the sum of the
 * samples of a name without labels; fails where there is none. */
double call_metric(struct client *client, const char *sample);

/* The same, 0 where there is none yet: a histogram by model begins with its first value. */
double call_metric_so_far(struct client *client, const char *sample);

#endif
