/* io_workers.h: threads that read large bodies and write large replies.
 *
 * The scheduler reads and writes what is small itself, on all threads of the engine.  What would
 * hold up everybody else for milliseconds or more goes through here, and comes back. */
#ifndef SRV_IO_WORKERS_H
#define SRV_IO_WORKERS_H

#include "wire/request.h"

struct srv_io_workers;

/* Reads one request, or writes a piece of its reply, on a clerk's thread.  True where there is more
 * to do, for which it is called again when it is that caller's turn. */
typedef bool srv_io_work(void *context, struct srv_request *request);

/* `threads` threads that call work(context, request) for what they are given.  It is called soon,
 * whatever else there is to do, for requests that srv_io_workers_drop. */
bool srv_io_workers_open(struct srv_io_workers **out, unsigned threads, srv_io_work *work,
                         void *context);

/* Gives away those of requests [count] whose body is large and not yet read, or whose reply is and
 * not yet written; the rest, and what it cannot take, move up.  Returns how many stay. */
size_t srv_io_workers_take_large(struct srv_io_workers *clerk, struct srv_request *requests[],
                                 size_t count);

/* Does what it was given; from then on it takes nothing. */
void srv_io_workers_finish(struct srv_io_workers *clerk);
void srv_io_workers_free(struct srv_io_workers *clerk); /* a finished one; takes NULL */

/* For a struct srv_cancel: whether to go on with a request.  What a clerk has is dropped where
 * nobody waits for it any more; while it is asked, it also looks at those that wait.  Errors: as
 * srv_request_check_cancelled. */
enum srv_error_code srv_io_workers_check(void *request, struct srv_error *error);

/* Reads a body into request->job, or fills the reply with the error; what has been read is left as
 * it is, as is what turns out to be for a clerk. */
void srv_read_body(struct srv_request *request);

/* Writes the reply of a job that has ended, unless reading it failed and said so; or a piece of it:
 * true while there is more. */
void srv_write_reply(struct srv_request *request);
bool srv_write_reply_piece(struct srv_request *request);

#endif
