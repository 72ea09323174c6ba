/* metrics_gauges.c: present values as Prometheus text: of the daemon, its models and API keys.
 *
 * A gauge is a row of a table: its name, and the member that holds its value. */
#include <inttypes.h>

#include "ops/metrics.h"

#include "basics/mem.h"

/* ---- The daemon ------------------------------------------------------------------------------ */

#define MEMBER(m) offsetof(struct srv_gauges, m)
#define PROCESS(m) (MEMBER(process) + offsetof(struct srv_process, m))
#define LIMIT(m) (MEMBER(limits) + offsetof(struct srv_limits, m))

static const struct {
    const char *name, *help;
    size_t offset; /* of a size_t in struct srv_gauges */
} gauges[] = {
    {"attnd_ready", "1 while requests are served.", MEMBER(ready)},
    {"attnd_draining", "1 after SIGTERM or POST /admin/drain.", MEMBER(draining)},
    {"attnd_sessions", "Live sessions.", MEMBER(sessions)},
    {"attnd_sessions_limit", "Live sessions at most.", LIMIT(max_sessions)},
    {"attnd_sessions_restoring", "Live sessions that a start has left to be read.",
     MEMBER(sessions_restoring)},
    {"attnd_sessions_unread", "Live sessions whose tokens are on the disk alone.",
     MEMBER(sessions_unread)},
    {"attnd_store_used_bytes", "Blocks of sessions in files.", MEMBER(store_used)},
    {"attnd_store_held_bytes", "Disk that files of blocks take.", MEMBER(store_held)},
    {"attnd_journal_wait_seconds", "Time for which the disk has kept the journal waiting.",
     MEMBER(journal_wait_s)},
    {"attnd_weightless_shapes", "Shapes that live weightless sessions have.",
     MEMBER(weightless_shapes)},
    {"attnd_weightless_shapes_limit", "Shapes of live weightless sessions at most.",
     LIMIT(max_weightless_shapes)},
    {"attnd_queue_depth", "Requests waiting or running.", MEMBER(queue)},
    {"attnd_queue_limit", "Requests waiting or running at most.", LIMIT(max_queue)},
    {"attnd_requests_waiting", "Requests whose computation has not begun.", MEMBER(waiting)},
    {"attnd_requests_running", "Requests whose computation has begun.", MEMBER(running)},
    {"attnd_in_flight_bytes", "Memory admitted for requests.", MEMBER(in_flight)},
    {"attnd_in_flight_limit_bytes", "Memory admitted for requests at most.",
     LIMIT(max_in_flight_bytes)},
    {"attnd_inputs_bytes", "Rows that are kept for calls to name.", MEMBER(inputs_bytes)},
    {"attnd_inputs_limit_bytes", "Rows that are kept at most.", LIMIT(inputs_bytes)},
    {"attnd_connections", "Open connections.", MEMBER(connections)},
    {"attnd_connections_limit", "Open connections at most.", LIMIT(max_connections)},
    {"attnd_cache_used_bytes", "Key/value blocks in use.", MEMBER(cache_used_bytes)},
    {"attnd_cache_budget_bytes", "Key/value blocks at most.", MEMBER(cache_budget_bytes)},
    {"attnd_weight_bytes", "Resident weights.", MEMBER(weight_bytes)},
    {"attnd_weight_mapped_bytes", "Resident weights that daemons share, pages of weights_cache.",
     MEMBER(mapped_bytes)},
    {"attnd_memory_limit_bytes", "Memory that the bounds of the daemon fit.",
     MEMBER(memory_limit_bytes)},
    {"attnd_heap_bytes", "Memory given out by the allocator.", PROCESS(heap_bytes)},
    {"process_resident_memory_bytes", "Resident memory size in bytes.", PROCESS(resident_bytes)},
    {"process_virtual_memory_bytes", "Virtual memory size in bytes.", PROCESS(virtual_bytes)},
    {"process_open_fds", "Number of open file descriptors.", PROCESS(open_files)},
    {"process_max_fds", "Maximum number of open file descriptors.", PROCESS(max_files)},
};

/* Prints a metric and its sample; without one where the value is negative. */
static void print_one(struct srv_buffer *out, const char *name, const char *type, const char *help,
                      double value)
{
    srv_metrics_print_head(out, name, type, help);
    if (value >= 0)
        srv_buffer_printf(out, "%s %.15g\n", name, value);
}

void srv_metrics_print_gauges(struct srv_buffer *out, const struct srv_gauges *g)
{
    for (size_t i = 0; i < ATTN_COUNT(gauges); i++) {
        const size_t *value = (const void *)((const char *)g + gauges[i].offset);
        srv_metrics_print_head(out, gauges[i].name, "gauge", gauges[i].help);
        /* A figure of the process is 0 only where the kernel does not tell it: no sample then. */
        if (*value > 0 || strncmp(gauges[i].name, "process_", 8) != 0)
            srv_buffer_printf(out, "%s %zu\n", gauges[i].name, *value);
    }
    print_one(out, "attnd_cache_used_ratio", "gauge", "Part of attnd_cache_budget_bytes in use.",
              g->cache_budget_bytes > 0
                  ? (double)g->cache_used_bytes / (double)g->cache_budget_bytes
                  : 0);
    print_one(out, "process_start_time_seconds", "gauge",
              "Start time of the process since unix epoch in seconds.", g->process.start_seconds);
    print_one(out, "process_cpu_seconds_total", "counter",
              "Total user and system CPU time spent in seconds.", g->process.cpu_seconds);
    print_one(out, "attnd_certificate_expiry_timestamp_seconds", "gauge",
              "When the TLS certificate expires.",
              g->certificate_expires > 0 ? g->certificate_expires : -1);
    srv_metrics_print_head(out, "attnd_build_info", "gauge", "Always 1; the label says what runs.");
    srv_buffer_text(out, "attnd_build_info{version=\"" ATTN_VERSION "\"} 1\n");
}

/* ---- By model -------------------------------------------------------------------------------- */

static const struct {
    const char *name, *help;
    size_t offset; /* of a size_t in struct srv_model_gauges */
} model_gauges[] = {
    {"attnd_model_sessions", "Live sessions of the model.",
     offsetof(struct srv_model_gauges, sessions)},
    {"attnd_model_weight_bytes", "Resident weights of the model.",
     offsetof(struct srv_model_gauges, weight_bytes)},
};

void srv_metrics_print_models(struct srv_buffer *out, const struct srv_model_gauges models[],
                              size_t count)
{
    for (size_t g = 0; g < ATTN_COUNT(model_gauges); g++) {
        srv_metrics_print_head(out, model_gauges[g].name, "gauge", model_gauges[g].help);
        for (size_t i = 0; i < count; i++) {
            const size_t *value = (const void *)((const char *)&models[i] + model_gauges[g].offset);
            srv_buffer_printf(out, "%s{model=\"%s\"} %zu\n", model_gauges[g].name, models[i].name,
                              *value);
        }
    }
}

/* ---- By API key ------------------------------------------------------------------------------ */

static const struct {
    const char *name, *help;
    enum srv_quota quota;
} account_gauges[] = {
    {"attnd_key_sessions", "Live sessions of the key.", SRV_QUOTA_SESSIONS},
    {"attnd_key_cache_bytes", "Blocks of the key's sessions, shared ones in each.",
     SRV_QUOTA_CACHE},
    {"attnd_key_in_flight_bytes", "Memory admitted for the key's requests.", SRV_QUOTA_IN_FLIGHT},
};

void srv_metrics_print_accounts(struct srv_buffer *out, struct srv_accounts *accounts)
{
    pthread_mutex_lock(&accounts->lock);
    srv_metrics_print_head(out, "attnd_key_requests_total", "counter",
                           "Requests taken from the key.");
    for (size_t i = 0; i < accounts->count; i++)
        srv_buffer_printf(out, "attnd_key_requests_total{key=\"%s\"} %" PRIuFAST64 "\n",
                          accounts->items[i]->name, atomic_load(&accounts->items[i]->requests));
    srv_metrics_print_head(out, "attnd_key_refused_total", "counter",
                           "Requests beyond a limit of the key.");
    for (size_t i = 0; i < accounts->count; i++)
        for (enum srv_quota quota = 0; quota < SRV_QUOTAS; quota++)
            srv_buffer_printf(out,
                              "attnd_key_refused_total{key=\"%s\",limit=\"%s\"} %" PRIuFAST64 "\n",
                              accounts->items[i]->name, srv_quota_name(quota),
                              atomic_load(&accounts->items[i]->refused[quota]));
    for (size_t g = 0; g < ATTN_COUNT(account_gauges); g++) {
        srv_metrics_print_head(out, account_gauges[g].name, "gauge", account_gauges[g].help);
        for (size_t i = 0; i < accounts->count; i++)
            srv_buffer_printf(out, "%s{key=\"%s\"} %zu\n", account_gauges[g].name,
                              accounts->items[i]->name,
                              atomic_load(&accounts->items[i]->used[account_gauges[g].quota]));
    }
    pthread_mutex_unlock(&accounts->lock);
}
