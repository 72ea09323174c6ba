/* clerk.h: threads that read large bodies and write large replies.
 *
 * The scheduler reads and writes what is small itself, on all threads of the engine.  What would
 * hold up everybody else for milliseconds or more goes through here, and comes back. */
#ifndef SRV_CLERK_H
#define SRV_CLERK_H

#include "http.h"

#define SRV_LARGE_BYTES ((size_t)256 << 10) /* of a body, or of a reply's outputs */

struct srv_clerk;

/* Reads or writes one request, on a clerk's thread. */
typedef void srv_clerk_work(void *context, struct srv_request *request);

/* `threads` threads that call work(context, request) for up to `capacity` requests at a time. */
bool srv_clerk_open(struct srv_clerk **out, size_t capacity, unsigned threads, srv_clerk_work *work,
                    void *context);

/* Gives away those of requests [count] whose body is large and not yet read, or whose reply is and
 * not yet written; the rest, and what it cannot take, move up.  Returns how many stay. */
size_t srv_clerk_relieve(struct srv_clerk *clerk, struct srv_request *requests[], size_t count);

/* Finishes what it was given; from then on it takes nothing. */
void srv_clerk_finish(struct srv_clerk *clerk);
void srv_clerk_free(struct srv_clerk *clerk); /* a finished one; takes NULL */

/* Reads a body into request->job, or fills the reply with the error; what has been read is left as
 * it is. */
void srv_read_body(struct srv_request *request);

/* Writes the reply of a job that has ended, unless reading it failed and said so. */
void srv_write_reply(struct srv_request *request);

#endif
