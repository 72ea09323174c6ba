/* request_codec.h: the bytes of a request: its body, from decompressing to parsing, and its reply,
 * from writing to compressing.  On a compute thread, or on an I/O worker's in pieces. */
#ifndef SRV_REQUEST_CODEC_H
#define SRV_REQUEST_CODEC_H

#include "wire/request.h"

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

#endif
