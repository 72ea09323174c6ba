/* log.h: one JSON object per line on standard error.
 *
 * Each line is one write(2), so lines never mix.  No thread waits for a slow reader: where the pipe
 * is full, the line is dropped and counted.  All functions may be called on any thread. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include <pthread.h>

#include "wire/route.h"

enum srv_log_level { SRV_LOG_OFF, SRV_LOG_ERROR, SRV_LOG_INFO, SRV_LOG_ACCESS };

struct srv_log {
    enum srv_log_level level; /* SRV_LOG_ACCESS: one line per request as well */
    int fd;
    pthread_mutex_t lock; /* held from asking whether fd takes a line to writing it */
    size_t dropped;       /* lines lost since the last one that was written; under the lock */
};

void srv_log_open(struct srv_log *log, enum srv_log_level level, int fd);
void srv_log_close(struct srv_log *log); /* leaves fd open */

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
