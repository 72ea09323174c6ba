/* encoder.h: a caller whose sessions start over encoder rows, and what kills must leave of them. */
#ifndef TESTS_KILL_ENCODER_H
#define TESTS_KILL_ENCODER_H

#include "client.h"

/* Starts sessions of the model `crossed` one after the other, deletes older ones, and returns when
 * the daemon is gone.  A thread's function; its argument is the daemon. */
void *encoder_call(void *served);

/* After a restart: sends the start of each session again, which must be answered as a request that
 * brings the encoder's rows is, and as a replay where the first was answered.  Returns how many
 * sessions were lost or differ; *compared counts all. */
size_t encoder_verify(size_t *compared, struct client *client);

#endif
