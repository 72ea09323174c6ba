/* log.h: one JSON object per line on standard error.
 *
 * Lines are written whole and in order by a thread of their own, some milliseconds later at most;
 * no other thread waits for a slow reader.  All functions may be called on any
 * thread. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include "wire/route.h"

struct srv_log_writer;

enum srv_log_level { SRV_LOG_OFF, SRV_LOG_ERROR, SRV_LOG_INFO, SRV_LOG_ACCESS };

struct srv_log {
    enum srv_log_level level;      /* SRV_LOG_ACCESS: one line per request as well */
    struct srv_log_writer *writer; /* NULL: of level off */
};

/* The caller has blocked the signals that the writing thread is not to take.  False where memory or
 * threads are short. */
bool srv_log_open(struct srv_log *log, enum srv_log_level level, int fd);
/* Waits for the lines so far, for a second at most. */
void srv_log_flush(struct srv_log *log);
/* Waits for the last lines, for a second at most; leaves fd open.  Takes one that was never
 * opened. */
void srv_log_close(struct srv_log *log);

/* Logs {"time":"..","level":"info","event":"ready","message":".."}. */
void srv_log_event(struct srv_log *log, enum srv_log_level level, const char *event,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Logs
 * {"time","level":"access","request_id","trace_id"?,"parent_id"?,"span_id"?,"method","route",
 * "caller"?,"status","code"?,"bytes_in","bytes_out","ms"} and, for a computed request, "parse_ms",
 * "queue_ms", "compute_ms", "write_ms".  The three ids stand there for a request of a trace.
 * `route` is the route's pattern, never the path; `caller` the name of an API key, never the
 * key. */
void srv_log_request(struct srv_log *log, const struct srv_request *request);

/* ---- log_writer.c: a thread that writes lines to a descriptor, so that no other thread waits ----
 *
 * A terminal that nobody reads, a pipe whose reader is stopped and a file on a frozen disk hold up
 * write(2) without end.  Here they hold up that thread alone: lines beyond its buffer are dropped
 * and counted, and a line that says how many follows once there is room. */

#define SRV_LOG_LINE_MAX 4096 /* bytes of a line, its line feed included: PIPE_BUF of Linux */

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
