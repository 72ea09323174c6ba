/* codec.h: the bytes of a request: its body, from decompressing to parsing, and its reply, from
 * writing to compressing (request_codec.c); and the I/O workers, threads that do this to large ones
 * (codec_workers.c).
 *
 * The engine owner reads and writes what is small itself, on all threads of the engine.  A body or
 * reply that would hold up all other requests for milliseconds goes to an I/O worker and comes back
 * when it is done. */
#ifndef SRV_CODEC_H
#define SRV_CODEC_H

#include "base/clock.h"
#include "wire/request.h"

#define SRV_CANCEL_NS (100 * SRV_MS_NS) /* between two searches for cancelled requests in a queue */

/* Parses a body into request->job, or fills the reply with the error.  Does nothing where the body
 * was parsed before; leaves one unparsed, with request->expands set, that turns out to be large
 * when it is decompressed by another thread than a worker's. */
void srv_parse_body(struct srv_request *request);
bool srv_body_is_parsed(const struct srv_request *request);

/* Writes the reply of a job that has ended, or one piece of the reply: true while there is more.
 * Does nothing where the reply is already an error, since the body could not be parsed. */
void srv_write_reply(struct srv_request *request);
bool srv_write_reply_piece(struct srv_request *request);

/* Whether to go on with a request.  A small reply is always written.  The result of a cancelled
 * /attend is dropped.  A reply that says how a session was changed is written after its deadline
 * too.  At a stop its connection is closed silently: the step was applied, a refusal would lie.
 * Errors: those of srv_request_check_cancelled. */
enum srv_error_code srv_codec_goes_on(struct srv_request *request, struct srv_error *error);

/* ---- I/O workers ----------------------------------------------------------------------------- */

struct srv_codec_workers;

/* Reads the body of a request, or writes a piece of its reply, on a worker's thread.  True where
 * there is more to do: the function is called again in the turn of that caller. */
typedef bool srv_codec_work(void *context, struct srv_request *request);

/* Starts `threads` workers that call work(context, request) for the requests that they are given.
 * Cancelled requests are passed to `work` soon, out of turn.  False where memory or threads are
 * short. */
bool srv_codec_workers_open(struct srv_codec_workers **out, unsigned threads, srv_codec_work *work,
                            void *context);

/* Queues a request; false where none is queued any more.  Any thread. */
bool srv_codec_workers_accept(struct srv_codec_workers *workers, struct srv_request *request);

/* Queues those of requests [count] that have a large body to be read or a large reply to be
 * written.  The others, and those that cannot be queued, move up; returns how many they are.  Any
 * thread. */
size_t srv_codec_workers_accept_large(struct srv_codec_workers *workers,
                                      struct srv_request *requests[], size_t count);

/* Does all that is queued and ends the threads; nothing is queued from then on. */
void srv_codec_workers_finish(struct srv_codec_workers *workers);
void srv_codec_workers_free(struct srv_codec_workers *workers); /* finished ones; takes NULL */

/* The function of a struct srv_cancel, whose context is the request: whether to go on with a
 * request.  On a worker's thread it also passes queued requests that are cancelled to `work`; on
 * other threads it is always SRV_OK.  Errors: those of srv_request_check_cancelled. */
enum srv_error_code srv_codec_check(void *request, struct srv_error *error);

#endif
