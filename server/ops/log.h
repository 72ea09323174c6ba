/* log.h: one JSON object per line on standard error.
 *
 * Lines are written whole and in order by a thread of their own, some milliseconds later at most;
 * no other thread waits for a slow reader (log_writer.h).  All functions may be called on any
 * thread. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include "ops/log_writer.h"
#include "wire/route.h"

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

#endif
