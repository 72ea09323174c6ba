/* log_writer.h: a thread that writes lines to a descriptor, so that no other thread waits for it.
 *
 * A terminal that nobody reads, a pipe whose reader is stopped and a file on a frozen disk hold up
 * write(2) without end.  Here they hold up that thread alone: lines beyond its buffer are dropped
 * and counted, and a line that says how many follows once there is room. */
#ifndef SRV_LOG_WRITER_H
#define SRV_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#define SRV_LOG_LINE_MAX 4096 /* bytes of a line, its line feed included: PIPE_BUF of Linux */

struct srv_log_writer;

/* Starts the thread; the caller has blocked the signals that the thread is not to take.
 * `print_dropped` prints the line about dropped ones and returns its length.  False where memory or
 * threads are short. */
bool srv_log_writer_open(struct srv_log_writer **out, int fd,
                         size_t (*print_dropped)(char out[SRV_LOG_LINE_MAX], size_t count));

/* Takes in one line of at most SRV_LOG_LINE_MAX bytes that ends in a line feed.  Any thread; does
 * not wait for the descriptor. */
void srv_log_writer_put(struct srv_log_writer *writer, const char *line, size_t length);

/* Waits until all that was taken in is written or lost, for a second at most; whether it is. */
bool srv_log_writer_flush(struct srv_log_writer *writer);

/* Flushes and ends the thread; where the descriptor takes nothing, leaves the thread and its memory
 * to the end of the process.  Leaves fd open.  Takes NULL. */
void srv_log_writer_close(struct srv_log_writer *writer);

#endif
