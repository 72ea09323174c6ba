/* metrics.h: counters and histograms, and their Prometheus text (0.0.4).
 *
 * Counters are fixed tables of atomics: counting never locks or allocates, on any thread.  Gauges
 * are read by the caller when they are printed. */
#ifndef SRV_METRICS_H
#define SRV_METRICS_H

#include "wire/route.h"

/* ---- usage.c -----------------------------------------------------------------------------------
 *
 * The kernel's figures about this process, for metrics, and the C library's allocator.
 *
 * The files of /proc are opened once and kept open: in a sandbox none can be opened later. */

struct srv_usage;

/* NULL where memory is short.  `close` takes NULL. */
struct srv_usage *srv_usage_open(void);
void srv_usage_close(struct srv_usage *usage);

/* Whether the files of /proc could be opened. */
bool srv_usage_is_whole(const struct srv_usage *usage);

struct srv_process {
    size_t resident_bytes, virtual_bytes;
    size_t max_files;     /* descriptors, as allowed when the usage was opened */
    double start_seconds; /* since 1970: when the usage was opened */
    double cpu_seconds;   /* of all threads, user and system */
    size_t open_files;    /* as old as heap_bytes where it has to be counted */
    size_t heap_bytes;    /* allocated and not freed, a second ago at most, or a hundred times what
                             reading it takes; resident memory has besides these the allocator's
                             free pages, code, and mappings of others */
};

/* Each is 0 where the kernel does not provide it.  Any thread. */
void srv_usage_read(struct srv_process *out, struct srv_usage *usage);

/* Gives blocks of 1 MiB and more mappings of their own: they go back to the system whole, and
 * growing does not copy them.  Smaller blocks share as many arenas as `threads`, the number of
 * threads that allocate all the time.  Called once, before there is another thread. */
void srv_heap_configure(size_t threads);

struct srv_metrics;

/* `routes` must outlive the metrics. */
bool srv_metrics_open(struct srv_metrics **out, const struct srv_routes *routes);
void srv_metrics_close(struct srv_metrics *metrics);

/* Gives the next model its label, before any of its computations: the first model is 0.  Models
 * from SRV_METRIC_MODELS on share the label "(other)", so that a scrape stays small.  One thread,
 * before the others begin. */
#define SRV_METRIC_MODELS 32
#define SRV_NO_MODEL SIZE_MAX /* attention without weights */
#define SRV_NO_MODEL_NAME "(none)"
void srv_metrics_add_model(struct srv_metrics *metrics, const char *name);

/* Counts one finished request: attnd_requests_total{route,method,status}, attnd_errors_total{code},
 * attnd_request_seconds{route,method} histogram and, of a request that was computed, its stages:
 * attnd_stage_seconds{stage="parse|queue|compute|write"}. */
void srv_metrics_request(struct srv_metrics *metrics, const struct srv_request *request);

/* Counts one computed batch of decode steps of a model: attnd_decode_batch_size{model} histogram
 * (steps of one layer computed together), attnd_decode_rows_total{model},
 * attnd_decode_batch_seconds{model}. */
void srv_metrics_decode(struct srv_metrics *metrics, size_t model, size_t steps, size_t rows,
                        uint64_t ns);

/* Counts one computed /attend or prefill: attnd_attend_rows_total{model} (query rows),
 * attnd_attend_seconds{model}. */
void srv_metrics_attend(struct srv_metrics *metrics, size_t model, size_t rows, uint64_t ns);

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
    SRV_SESSIONS_EVICTED,
    SRV_SESSIONS_READ,
    SRV_BLOCK_BYTES_READ,
    SRV_BLOCK_BYTES_WRITTEN,
    SRV_STORE_EVENTS,
};
void srv_metrics_store(struct srv_metrics *metrics, enum srv_store_event event, size_t count);

/* Appends HELP and TYPE of a metric, and all that was counted. */
void srv_metrics_print_head(struct srv_buffer *out, const char *name, const char *type,
                            const char *help);
void srv_metrics_print(struct srv_buffer *out, const struct srv_metrics *metrics);

/* ---- metrics_gauges.c: present values, which other parts of the daemon own ---- */

struct srv_gauges {
    size_t ready, draining;                   /* 0 or 1 */
    size_t sessions, queue, running, waiting; /* queue: those that wait or run */
    size_t sessions_restoring, sessions_unread, journal_wait_s;
    size_t store_used, store_held; /* bytes of blocks in the state directories */
    size_t in_flight, inputs_bytes, connections, weightless_shapes;
    size_t cache_used_bytes, cache_budget_bytes, weight_bytes, mapped_bytes;
    size_t memory_limit_bytes;
    double certificate_expires; /* seconds since 1970; 0: no sample */
    struct srv_process process;
    struct srv_limits limits;
};
void srv_metrics_print_gauges(struct srv_buffer *out, const struct srv_gauges *gauges);

/* Appends the gauges with the label `model`: a sample for each of models[count]. */
struct srv_model_gauges {
    const char *name;
    size_t sessions, weight_bytes;
};
void srv_metrics_print_models(struct srv_buffer *out, const struct srv_model_gauges models[],
                              size_t count);

/* Appends samples of each account, with the label `key`. */
void srv_metrics_print_accounts(struct srv_buffer *out, struct srv_accounts *accounts);

#endif
