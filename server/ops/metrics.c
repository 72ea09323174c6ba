/* metrics.c: atomics in fixed tables, printed as Prometheus text.
 *
 * Requests are counted by row and status: a row for each route of the route table, and one for each
 * method of requests that matched no route.  Computations are counted by model: a row for each
 * configured model up to SRV_METRIC_MODELS, one for attention without weights, and one for the
 * models beyond.  Labels are texts of the tables and names of the configuration, never a client's,
 * so the number of series is bounded.
 *
 * Counters only rise, so a print while other threads count shows each counter at some moment of the
 * print; a histogram's _count is the sum of its buckets as they were read, so the two agree in
 * every print. */
#include "ops/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "basics/mem.h"
#include "ops/stage.h"

typedef atomic_uint_fast64_t counter;

/* ---- Histograms ------------------------------------------------------------------------------ */

#define MAX_BOUNDS 19

struct bounds {
    double unit; /* the printed value of 1 */
    size_t count;
    uint64_t upper[MAX_BOUNDS]; /* [count], inclusive */
};

#define US UINT64_C(1000)
#define MS (1000 * US)

static const struct bounds seconds = {
    .unit = 1e-9,
    .count = 19,
    .upper = {10 * US, 25 * US, 50 * US, 100 * US, 250 * US, 500 * US, MS, 2500 * US, 5 * MS,
              10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, 1000 * MS, 2500 * MS,
              5000 * MS, 10000 * MS},
};

static const struct bounds batch_sizes = {
    .unit = 1, .count = 11, .upper = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}};

struct histogram {
    counter buckets[MAX_BOUNDS + 1]; /* not cumulative; the last has no upper bound */
    counter sum;
};

static void observe(struct histogram *histogram, const struct bounds *bounds, uint64_t value)
{
    size_t i = 0;
    while (i < bounds->count && value > bounds->upper[i])
        i++;
    atomic_fetch_add_explicit(&histogram->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
}

static void count_up(counter *value, uint64_t by)
{
    atomic_fetch_add_explicit(value, by, memory_order_relaxed);
}

static unsigned long long read_count(const counter *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

/* ---- Counters -------------------------------------------------------------------------------- */

static const unsigned statuses[] = {200, 201, 202, 204, 304, 400, 401, 403, 404, 405,
                                    406, 408, 409, 410, 411, 413, 415, 421, 422, 429,
                                    431, 499, 500, 501, 503, 504, 507, 0 /* any other */};

struct row {
    counter by_status[ATTN_COUNT(statuses)];
    struct histogram seconds;
};

struct model {
    char name[SRV_ID_MAX + 1];
    struct histogram decode_batch_size, decode_batch_seconds, attend_seconds;
    counter decode_rows, attend_rows;
};

/* The rows of no model, and of models beyond SRV_METRIC_MODELS.  No model can have their names. */
enum { WEIGHTLESS, FIRST_MODEL, OTHER_MODELS = FIRST_MODEL + SRV_METRIC_MODELS, MODEL_ROWS };

struct srv_metrics {
    counter errors[SRV_ERROR_COUNT];
    struct histogram stages[SRV_STAGE_TOTAL];
    struct model models[MODEL_ROWS];
    size_t num_models;   /* that were added */
    counter sessions[3]; /* by enum srv_session_event */
    counter store[SRV_STORE_EVENTS];
    const struct srv_routes *routes;
    struct row rows[]; /* [routes->count + SRV_METHOD_COUNT + 1] */
};

static size_t row_count(const struct srv_routes *routes)
{
    return routes->count + SRV_METHOD_COUNT + 1;
}

bool srv_metrics_open(struct srv_metrics **out, const struct srv_routes *routes)
{
    *out = calloc(1, sizeof **out + row_count(routes) * sizeof(struct row));
    if (*out == NULL)
        return false;
    (*out)->routes = routes;
    snprintf((*out)->models[WEIGHTLESS].name, sizeof(*out)->models[0].name, SRV_NO_MODEL_NAME);
    snprintf((*out)->models[OTHER_MODELS].name, sizeof(*out)->models[0].name, "(other)");
    return true;
}

void srv_metrics_add_model(struct srv_metrics *metrics, const char *name)
{
    size_t row = FIRST_MODEL + metrics->num_models++;
    if (row < OTHER_MODELS)
        snprintf(metrics->models[row].name, sizeof metrics->models[row].name, "%s", name);
}

void srv_metrics_close(struct srv_metrics *metrics) { free(metrics); }

void srv_metrics_request(struct srv_metrics *metrics, const struct srv_request *request)
{
    const struct srv_routes *routes = metrics->routes;
    size_t method = (size_t)request->method, status = 0;
    size_t index = request->route != NULL
                       ? (size_t)(request->route - routes->items)
                       : routes->count + (method < SRV_METHOD_COUNT ? method : SRV_METHOD_COUNT);
    struct row *row = &metrics->rows[index];
    while (statuses[status] != 0 && statuses[status] != request->reply.status)
        status++;
    count_up(&row->by_status[status], 1);
    observe(&row->seconds, &seconds, srv_stage_ns(request, SRV_STAGE_TOTAL));
    if (request->reply.code != SRV_OK && request->reply.code < SRV_ERROR_COUNT)
        count_up(&metrics->errors[request->reply.code], 1);
    if (request->t_computed == 0)
        return;
    for (enum srv_stage stage = 0; stage < SRV_STAGE_TOTAL; stage++)
        observe(&metrics->stages[stage], &seconds, srv_stage_ns(request, stage));
}

static struct model *model_of(struct srv_metrics *metrics, size_t model)
{
    if (model == SRV_NO_MODEL)
        return &metrics->models[WEIGHTLESS];
    return &metrics->models[model < SRV_METRIC_MODELS ? FIRST_MODEL + model : OTHER_MODELS];
}

void srv_metrics_decode(struct srv_metrics *metrics, size_t model, size_t steps, size_t rows,
                        uint64_t ns)
{
    struct model *of = model_of(metrics, model);
    observe(&of->decode_batch_size, &batch_sizes, steps);
    observe(&of->decode_batch_seconds, &seconds, ns);
    count_up(&of->decode_rows, rows);
}

void srv_metrics_attend(struct srv_metrics *metrics, size_t model, size_t rows, uint64_t ns)
{
    struct model *of = model_of(metrics, model);
    observe(&of->attend_seconds, &seconds, ns);
    count_up(&of->attend_rows, rows);
}

void srv_metrics_store(struct srv_metrics *metrics, enum srv_store_event event, size_t count)
{
    count_up(&metrics->store[event], count);
}

void srv_metrics_session(struct srv_metrics *metrics, enum srv_session_event event, size_t count)
{
    count_up(&metrics->sessions[event], count);
}

/* ---- Printing -------------------------------------------------------------------------------- */

void srv_metrics_print_head(struct srv_buffer *out, const char *name, const char *type,
                            const char *help)
{
    srv_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* `labels` is "" or pairs name="value", each followed by a comma. */
static void print_histogram(struct srv_buffer *out, const struct histogram *histogram,
                            const struct bounds *bounds, const char *name, const char *labels)
{
    unsigned long long total = 0;
    for (size_t i = 0; i < bounds->count; i++) {
        total += read_count(&histogram->buckets[i]);
        srv_buffer_printf(out, "%s_bucket{%sle=\"%g\"} %llu\n", name, labels,
                          (double)bounds->upper[i] * bounds->unit, total);
    }
    total += read_count(&histogram->buckets[bounds->count]);
    double sum = (double)read_count(&histogram->sum) * bounds->unit;
    int bare = labels[0] != '\0' ? (int)strlen(labels) - 1 : 0;
    const char *open = bare > 0 ? "{" : "", *close = bare > 0 ? "}" : "";
    srv_buffer_printf(out, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, labels, total);
    srv_buffer_printf(out, "%s_sum%s%.*s%s %.9g\n", name, open, bare, labels, close, sum);
    srv_buffer_printf(out, "%s_count%s%.*s%s %llu\n", name, open, bare, labels, close, total);
}

static bool any(const counter counts[], size_t count)
{
    size_t i = 0;
    while (i < count && read_count(&counts[i]) == 0)
        i++;
    return i < count;
}

static void row_labels(char out[160], const struct srv_routes *routes, size_t row)
{
    bool matched = row < routes->count;
    enum srv_method method =
        matched ? routes->items[row].method : (enum srv_method)(row - routes->count);
    snprintf(out, 160, "route=\"%s\",method=\"%s\",", matched ? routes->items[row].path : "none",
             srv_method_name(method));
}

static void print_requests(struct srv_buffer *out, const struct srv_metrics *metrics)
{
    char labels[160];
    srv_metrics_print_head(out, "attnd_requests_total", "counter", "Requests answered.");
    for (size_t i = 0; i < row_count(metrics->routes); i++) {
        row_labels(labels, metrics->routes, i);
        for (size_t k = 0; k < ATTN_COUNT(statuses); k++) {
            unsigned long long count = read_count(&metrics->rows[i].by_status[k]);
            char status[16] = "other";
            if (statuses[k] != 0)
                snprintf(status, sizeof status, "%u", statuses[k]);
            if (count > 0)
                srv_buffer_printf(out, "attnd_requests_total{%sstatus=\"%s\"} %llu\n", labels,
                                  status, count);
        }
    }
    srv_metrics_print_head(out, "attnd_errors_total", "counter", "Errors sent, by code.");
    for (size_t i = SRV_OK + 1; i < SRV_ERROR_COUNT; i++)
        srv_buffer_printf(out, "attnd_errors_total{code=\"%s\"} %llu\n",
                          srv_error_word((enum srv_error_code)i), read_count(&metrics->errors[i]));
    srv_metrics_print_head(out, "attnd_request_seconds", "histogram",
                           "From first header to reply.");
    for (size_t i = 0; i < row_count(metrics->routes); i++) {
        row_labels(labels, metrics->routes, i);
        if (any(metrics->rows[i].by_status, ATTN_COUNT(statuses)))
            print_histogram(out, &metrics->rows[i].seconds, &seconds, "attnd_request_seconds",
                            labels);
    }
}

/* ---- By model -------------------------------------------------------------------------------- */

#define MEMBER(m) offsetof(struct model, m)

static const struct {
    const char *name, *help;
    size_t offset;               /* of a histogram, or of a counter */
    const struct bounds *bounds; /* NULL: a counter */
} of_models[] = {
    {"attnd_decode_batch_size", "Decode steps of one layer that were computed together.",
     MEMBER(decode_batch_size), &batch_sizes},
    {"attnd_decode_batch_seconds", "Computing one batch of decode steps.",
     MEMBER(decode_batch_seconds), &seconds},
    {"attnd_attend_seconds", "Computing one attention over given rows or one prefill.",
     MEMBER(attend_seconds), &seconds},
    {"attnd_decode_rows_total", "Rows computed by decode steps.", MEMBER(decode_rows), NULL},
    {"attnd_attend_rows_total", "Query rows computed by /attend.", MEMBER(attend_rows), NULL},
};

static void print_models(struct srv_buffer *out, const struct srv_metrics *metrics)
{
    char labels[SRV_ID_MAX + sizeof "model=\"\","];
    for (size_t i = 0; i < ATTN_COUNT(of_models); i++) {
        const char *name = of_models[i].name;
        const struct bounds *bounds = of_models[i].bounds;
        srv_metrics_print_head(out, name, bounds != NULL ? "histogram" : "counter",
                               of_models[i].help);
        for (size_t row = 0; row < MODEL_ROWS; row++) {
            const void *value = (const char *)&metrics->models[row] + of_models[i].offset;
            const struct histogram *h = value;
            bool named = row == OTHER_MODELS ? metrics->num_models > SRV_METRIC_MODELS
                                             : row < FIRST_MODEL + metrics->num_models;
            snprintf(labels, sizeof labels, "model=\"%s\",", metrics->models[row].name);
            if (bounds != NULL && any(h->buckets, ATTN_COUNT(h->buckets)))
                print_histogram(out, h, bounds, name, labels);
            else if (bounds == NULL && named)
                srv_buffer_printf(out, "%s{model=\"%s\"} %llu\n", name, metrics->models[row].name,
                                  read_count(value));
        }
    }
}

/* ---- Totals ---------------------------------------------------------------------------------- */

#undef MEMBER
#define MEMBER(m) offsetof(struct srv_metrics, m)

static const struct {
    const char *name, *help;
    size_t offset;
} counters[] = {
    {"attnd_sessions_created_total", "Sessions created.", MEMBER(sessions[SRV_SESSION_CREATED])},
    {"attnd_sessions_expired_total", "Sessions that expired.",
     MEMBER(sessions[SRV_SESSION_EXPIRED])},
    {"attnd_sessions_deleted_total", "Sessions deleted.", MEMBER(sessions[SRV_SESSION_DELETED])},
    {"attnd_sessions_restored_total", "Sessions restored at start.",
     MEMBER(store[SRV_SESSIONS_RESTORED])},
    {"attnd_sessions_lost_total", "Sessions that could not be restored.",
     MEMBER(store[SRV_SESSIONS_LOST])},
    {"attnd_sessions_evicted_total", "Sessions that left memory for others.",
     MEMBER(store[SRV_SESSIONS_EVICTED])},
    {"attnd_sessions_read_total", "Sessions whose tokens were read for a request.",
     MEMBER(store[SRV_SESSIONS_READ])},
    {"attnd_store_read_bytes_total", "Bytes of blocks read from files.",
     MEMBER(store[SRV_BLOCK_BYTES_READ])},
    {"attnd_store_written_bytes_total", "Bytes of blocks written to files.",
     MEMBER(store[SRV_BLOCK_BYTES_WRITTEN])},
    {"attnd_journal_bytes_total", "Bytes written to journals.", MEMBER(store[SRV_JOURNAL_BYTES])},
    {"attnd_journal_refused_total", "Writes that a journal did not take.",
     MEMBER(store[SRV_JOURNAL_REFUSED])},
    {"attnd_snapshots_total", "Snapshots written.", MEMBER(store[SRV_SNAPSHOT_MADE])},
    {"attnd_snapshots_failed_total", "Snapshots that could not be written.",
     MEMBER(store[SRV_SNAPSHOT_FAILED])},
    {"attnd_damaged_files_total", "Files of state_dir found damaged.",
     MEMBER(store[SRV_FILE_DAMAGED])},
};

void srv_metrics_print(struct srv_buffer *out, const struct srv_metrics *metrics)
{
    char labels[32];
    print_requests(out, metrics);
    srv_metrics_print_head(out, "attnd_stage_seconds", "histogram", "Stages of computed requests.");
    for (enum srv_stage stage = 0; stage < SRV_STAGE_TOTAL; stage++) {
        snprintf(labels, sizeof labels, "stage=\"%s\",", srv_stage_name(stage));
        print_histogram(out, &metrics->stages[stage], &seconds, "attnd_stage_seconds", labels);
    }
    print_models(out, metrics);
    for (size_t i = 0; i < ATTN_COUNT(counters); i++) {
        const void *value = (const char *)metrics + counters[i].offset;
        srv_metrics_print_head(out, counters[i].name, "counter", counters[i].help);
        srv_buffer_printf(out, "%s %llu\n", counters[i].name, read_count(value));
    }
}
