/* metrics.h: counters and histograms, and their Prometheus text (0.0.4).
 *
 * Counters are fixed tables of atomics: counting never locks or allocates, on any thread.  Gauges
 * are read by the caller when they are printed. */
#ifndef SRV_METRICS_H
#define SRV_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "config/accounts.h"
#include "wire/route.h"

struct srv_metrics;

/* `routes` must outlive the metrics. */
bool srv_metrics_open(struct srv_metrics **out, const struct srv_routes *routes);
void srv_metrics_close(struct srv_metrics *metrics);

/* Counts one finished request: attnd_requests_total{route,method,status}, attnd_errors_total{code},
 * attnd_request_seconds{route,method} histogram and, of a request that was computed, its stages:
 * attnd_stage_seconds{stage="parse|queue|compute|write"}. */
void srv_metrics_request(struct srv_metrics *metrics, const struct srv_request *request);

/* Counts one computed batch of decode steps: attnd_decode_batch_size histogram (steps of one layer
 * computed together), attnd_decode_rows_total, attnd_decode_batch_seconds. */
void srv_metrics_decode(struct srv_metrics *metrics, size_t steps, size_t rows, uint64_t ns);

/* Counts one computed /attend or prefill: attnd_attend_rows_total (query rows),
 * attnd_attend_seconds. */
void srv_metrics_attend(struct srv_metrics *metrics, size_t rows, uint64_t ns);

/* Counts sessions: attnd_sessions_created_total, _expired_total, _deleted_total. */
enum srv_session_event { SRV_SESSION_CREATED, SRV_SESSION_EXPIRED, SRV_SESSION_DELETED };
void srv_metrics_session(struct srv_metrics *metrics, enum srv_session_event event, size_t count);

/* Counts events of the state directory. */
enum srv_store_event {
    SRV_JOURNAL_BYTES,
    SRV_JOURNAL_REFUSED,
    SRV_SNAPSHOT_MADE,
    SRV_SNAPSHOT_FAILED,
    SRV_FILE_DAMAGED,
    SRV_SESSIONS_RESTORED,
    SRV_SESSIONS_LOST,
    SRV_STORE_EVENTS,
};
void srv_metrics_store(struct srv_metrics *metrics, enum srv_store_event event, size_t count);

/* Present values, which other parts of the daemon own. */
struct srv_gauges {
    size_t sessions, queue, in_flight, connections;
    size_t cache_used_bytes, cache_budget_bytes, weight_bytes, resident_bytes, heap_bytes,
        open_files;
    bool ready, draining;
};
void srv_metrics_print(struct srv_buffer *out, const struct srv_metrics *metrics,
                       const struct srv_gauges *gauges);

/* Appends samples of each account, with the label `key`. */
void srv_metrics_print_accounts(struct srv_buffer *out, struct srv_accounts *accounts);

#endif
