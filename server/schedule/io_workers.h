/* io_workers.h: threads that read large bodies and write large replies.
 *
 * The engine owner reads and writes what is small itself, on all threads of the engine.  A body or
 * reply that would hold up all other requests for milliseconds goes to an I/O worker and comes back
 * when it is done. */
#ifndef SRV_IO_WORKERS_H
#define SRV_IO_WORKERS_H

#include "wire/request.h"

struct srv_io_workers;

/* Reads the body of a request, or writes a piece of its reply, on a worker's thread.  True where
 * there is more to do: the function is called again in the turn of that caller. */
typedef bool srv_io_work(void *context, struct srv_request *request);

/* Starts `threads` workers that call work(context, request) for the requests that they are given.
 * Cancelled requests are passed to `work` soon, out of turn.  False where memory or threads are
 * short. */
bool srv_io_workers_open(struct srv_io_workers **out, unsigned threads, srv_io_work *work,
                         void *context);

/* Queues those of requests [count] that have a large body to be read or a large reply to be
 * written.  The others, and those that cannot be queued, move up; returns how many they are.  Any
 * thread. */
size_t srv_io_workers_take_large(struct srv_io_workers *workers, struct srv_request *requests[],
                                 size_t count);

/* Queues a request whose reply its route's handler writes; false where none is queued any more.
 * Any thread. */
bool srv_io_workers_take(struct srv_io_workers *workers, struct srv_request *request);

/* Does all that is queued and ends the threads; nothing is queued from then on. */
void srv_io_workers_finish(struct srv_io_workers *workers);
void srv_io_workers_free(struct srv_io_workers *workers); /* finished ones; takes NULL */

/* The function of a struct srv_cancel, whose context is the request: whether to go on with a
 * request.  On a worker's thread it also passes queued requests that are cancelled to `work`; on
 * other threads it is always SRV_OK.  Errors: those of srv_request_check_cancelled. */
enum srv_error_code srv_io_workers_check(void *request, struct srv_error *error);

/* Reads a body into request->job, or fills the reply with the error.  Does nothing where the body
 * was read before; leaves a body unread, with request->expands set, that turns out to be large when
 * it is decompressed by another thread than a worker's. */
void srv_read_body(struct srv_request *request);

/* Writes the reply of a job that has ended, or one piece of the reply: true while there is more.
 * Does nothing where the reply is already an error, since the body could not be read. */
void srv_write_reply(struct srv_request *request);
bool srv_write_reply_piece(struct srv_request *request);

#endif
