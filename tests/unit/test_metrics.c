/* test_metrics.c: counts of the metrics, in the lines that a scraper reads. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/endpoints.h"
#include "config/keys.h"
#include "disk.h"
#include "ops/metrics.h"
#include "suites.h"

#define MS UINT64_C(1000000)

static struct srv_metrics *metrics;
static struct srv_buffer text;
static struct srv_gauges gauges;
static const struct srv_model_gauges models[] = {{"a", .sessions = 2, .weight_bytes = 64},
                                                 {"b", .sessions = 1, .weight_bytes = 32}};

static void open_metrics(void)
{
    gauges = (struct srv_gauges){.sessions = 3, .ready = true};
    ck_assert(srv_metrics_open(&metrics, &srv_routes));
    srv_metrics_add_model(metrics, "a");
    srv_metrics_add_model(metrics, "b");
    srv_buffer_init(&text, 1 << 20);
}

static void close_metrics(void)
{
    srv_metrics_close(metrics);
    srv_buffer_fini(&text);
}

static void print(void)
{
    text.length = 0;
    srv_metrics_print(&text, metrics);
    srv_metrics_print_gauges(&text, &gauges);
    srv_metrics_print_models(&text, models, 2);
    srv_buffer_append(&text, "", 1);
    ck_assert(!text.failed);
}

/* The print must contain `line` as a whole line. */
static void expect_line(const char *line)
{
    size_t length = strlen(line);
    for (const char *at = text.data; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, line, length) == 0 && at[length] == '\n')
            return;
        if (*at == '\0')
            break;
    }
    ck_abort_msg("no line: %s", line);
}

static struct srv_request finished(const struct srv_route *route, unsigned status,
                                   enum srv_error_code code)
{
    struct srv_request request = {.route = route, .method = SRV_POST};
    request.reply.status = status;
    request.reply.code = code;
    request.t_start = 1000 * MS;
    request.t_replied = 1003 * MS;
    return request;
}

CASE(metrics, open_metrics, close_metrics, 0)

TEST(metrics_requests_are_counted_by_route_method_status_and_code)
{
    struct srv_request good = finished(&srv_routes.items[0], 200, SRV_OK);
    struct srv_request full = finished(&srv_routes.items[0], 429, SRV_E_QUEUE_FULL);
    struct srv_request lost = finished(NULL, 404, SRV_E_ROUTE_NOT_FOUND);
    struct srv_request odd = finished(NULL, 418, SRV_OK);
    srv_metrics_request(metrics, &good);
    srv_metrics_request(metrics, &good);
    srv_metrics_request(metrics, &full);
    srv_metrics_request(metrics, &lost);
    srv_metrics_request(metrics, &odd);
    print();
    expect_line("attnd_requests_total{route=\"/attend\",method=\"POST\",status=\"200\"} 2");
    expect_line("attnd_requests_total{route=\"/attend\",method=\"POST\",status=\"429\"} 1");
    expect_line("attnd_requests_total{route=\"none\",method=\"POST\",status=\"404\"} 1");
    expect_line("attnd_requests_total{route=\"none\",method=\"POST\",status=\"other\"} 1");
    expect_line("attnd_errors_total{code=\"queue_full\"} 1");
    expect_line("attnd_errors_total{code=\"route_not_found\"} 1");
    expect_line("attnd_errors_total{code=\"internal\"} 0");
    expect_line("attnd_request_seconds_count{route=\"/attend\",method=\"POST\"} 3");
    expect_line("attnd_request_seconds_sum{route=\"/attend\",method=\"POST\"} 0.009");
}

TEST(metrics_every_status_of_an_error_has_a_count_of_its_own)
{
    for (int code = SRV_OK + 1; code < SRV_ERROR_COUNT; code++) {
        char line[128];
        unsigned status = srv_error_status((enum srv_error_code)code);
        struct srv_request request = finished(NULL, status, (enum srv_error_code)code);
        srv_metrics_request(metrics, &request);
        print();
        ck_assert_msg(strstr(text.data, "status=\"other\"") == NULL, "%u", status);
        snprintf(line, sizeof line, "method=\"POST\",status=\"%u\"} ", status);
        ck_assert_msg(strstr(text.data, line) != NULL, "%u", status);
    }
}

TEST(metrics_stages_are_of_computed_requests_only)
{
    struct srv_request plain = finished(&srv_routes.items[0], 200, SRV_OK), job = plain;
    job.t_body = 1000 * MS;
    job.t_popped = 1001 * MS;
    job.t_compute = 1001 * MS + MS / 5;
    job.t_computed = 1002 * MS;
    srv_metrics_request(metrics, &plain);
    srv_metrics_request(metrics, &job);
    print();
    expect_line("attnd_stage_seconds_count{stage=\"queue\"} 1");
    expect_line("attnd_stage_seconds_sum{stage=\"queue\"} 0.001");
    expect_line("attnd_stage_seconds_sum{stage=\"parse\"} 0.0002");
    expect_line("attnd_stage_seconds_sum{stage=\"compute\"} 0.0008");
    expect_line("attnd_stage_seconds_sum{stage=\"write\"} 0.001");
}

TEST(metrics_buckets_are_cumulative_and_bounds_inclusive)
{
    srv_metrics_decode(metrics, 0, 1, 1, 10000);
    srv_metrics_decode(metrics, 0, 4, 5, 10001);
    srv_metrics_decode(metrics, 0, 2000, 2000, 20000 * MS);
    print();
    expect_line("attnd_decode_batch_size_bucket{model=\"a\",le=\"1\"} 1");
    expect_line("attnd_decode_batch_size_bucket{model=\"a\",le=\"2\"} 1");
    expect_line("attnd_decode_batch_size_bucket{model=\"a\",le=\"4\"} 2");
    expect_line("attnd_decode_batch_size_bucket{model=\"a\",le=\"1024\"} 2");
    expect_line("attnd_decode_batch_size_bucket{model=\"a\",le=\"+Inf\"} 3");
    expect_line("attnd_decode_batch_size_sum{model=\"a\"} 2005");
    expect_line("attnd_decode_batch_size_count{model=\"a\"} 3");
    expect_line("attnd_decode_rows_total{model=\"a\"} 2006");
    expect_line("attnd_decode_batch_seconds_bucket{model=\"a\",le=\"1e-05\"} 1");
    expect_line("attnd_decode_batch_seconds_bucket{model=\"a\",le=\"2.5e-05\"} 2");
    expect_line("attnd_decode_batch_seconds_bucket{model=\"a\",le=\"10\"} 2");
    expect_line("attnd_decode_batch_seconds_bucket{model=\"a\",le=\"+Inf\"} 3");
}

TEST(metrics_computations_are_counted_by_model_and_without_one)
{
    srv_metrics_decode(metrics, 1, 2, 3, MS);
    srv_metrics_attend(metrics, 0, 7, 2 * MS);
    srv_metrics_attend(metrics, SRV_NO_MODEL, 5, 2 * MS);
    print();
    expect_line("attnd_decode_rows_total{model=\"a\"} 0");
    expect_line("attnd_decode_rows_total{model=\"b\"} 3");
    expect_line("attnd_decode_batch_size_count{model=\"b\"} 1");
    expect_line("attnd_attend_rows_total{model=\"(none)\"} 5");
    expect_line("attnd_attend_rows_total{model=\"a\"} 7");
    expect_line("attnd_attend_rows_total{model=\"b\"} 0");
    expect_line("attnd_attend_seconds_count{model=\"(none)\"} 1");
    expect_line("attnd_attend_seconds_count{model=\"a\"} 1");
    expect_line("attnd_model_sessions{model=\"a\"} 2");
    expect_line("attnd_model_weight_bytes{model=\"b\"} 32");
    ck_assert_ptr_null(strstr(text.data, "_total{model=\"(other)\"}"));
    ck_assert_ptr_null(strstr(text.data, "attnd_attend_seconds_count{model=\"b\"}"));
}

/* However many models are configured, a scrape has series for SRV_METRIC_MODELS of them. */
TEST(metrics_models_beyond_the_bound_share_a_label)
{
    char name[16];
    for (size_t i = 2; i < SRV_MAX_MODELS; i++) {
        snprintf(name, sizeof name, "m%zu", i);
        srv_metrics_add_model(metrics, name);
    }
    for (size_t i = SRV_METRIC_MODELS - 1; i < SRV_MAX_MODELS; i++)
        srv_metrics_decode(metrics, i, 1, 1, MS);
    print();
    expect_line("attnd_decode_rows_total{model=\"m31\"} 1");
    expect_line("attnd_decode_rows_total{model=\"(other)\"} 224");
    expect_line("attnd_decode_batch_seconds_count{model=\"(other)\"} 224");
    ck_assert_ptr_null(strstr(text.data, "m32"));
}

/* A scrape whose reply passed SRV_PROBE_BYTES would be refused: with long names and all of its
 * series it has half of that. */
TEST(metrics_a_scrape_of_all_series_stays_small)
{
    char name[SRV_ID_MAX + 1];
    for (size_t i = 2; i < SRV_MAX_MODELS; i++) {
        snprintf(name, sizeof name, "%064zu", i);
        srv_metrics_add_model(metrics, name);
    }
    for (size_t i = 0; i < SRV_MAX_MODELS; i++) {
        srv_metrics_decode(metrics, i, 1, 1, MS);
        srv_metrics_attend(metrics, i, 1, MS);
    }
    srv_metrics_attend(metrics, SRV_NO_MODEL, 1, MS);
    for (size_t i = 0; i < srv_routes.count; i++) {
        struct srv_request request = finished(&srv_routes.items[i], 200, SRV_OK);
        srv_metrics_request(metrics, &request);
    }
    print();
    ck_assert_uint_lt(text.length, SRV_PROBE_BYTES / 2);
}

TEST(metrics_sessions_and_gauges_have_their_lines)
{
    gauges.queue = 5;
    gauges.running = 2;
    gauges.waiting = 3;
    gauges.cache_used_bytes = 1 << 20;
    gauges.cache_budget_bytes = 4 << 20;
    gauges.limits.max_queue = 100;
    gauges.process = (struct srv_process){
        .virtual_bytes = (size_t)1 << 40, .start_seconds = 1795386160.25, .cpu_seconds = 12.5};
    srv_metrics_session(metrics, SRV_SESSION_CREATED, 5);
    srv_metrics_session(metrics, SRV_SESSION_EXPIRED, 2);
    srv_metrics_session(metrics, SRV_SESSION_DELETED, 1);
    print();
    expect_line("attnd_sessions_created_total 5");
    expect_line("attnd_sessions_expired_total 2");
    expect_line("attnd_sessions_deleted_total 1");
    expect_line("attnd_sessions 3");
    expect_line("attnd_ready 1");
    expect_line("attnd_draining 0");
    expect_line("attnd_queue_depth 5");
    expect_line("attnd_queue_limit 100");
    expect_line("attnd_requests_running 2");
    expect_line("attnd_requests_waiting 3");
    expect_line("attnd_cache_used_ratio 0.25");
    expect_line("process_virtual_memory_bytes 1099511627776");
    expect_line("process_start_time_seconds 1795386160.25");
    expect_line("# TYPE process_cpu_seconds_total counter");
    expect_line("process_cpu_seconds_total 12.5");
}

/* Every sample follows the TYPE line of its family, and each family has one HELP and one TYPE. */
TEST(metrics_every_sample_stands_below_its_own_type_line)
{
    struct srv_request request = finished(&srv_routes.items[1], 200, SRV_OK);
    char family[128] = "";
    size_t samples = 0, families = 0;
    srv_metrics_request(metrics, &request);
    print();
    for (char *rest, *line = strtok_r(text.data, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "# TYPE ", 7) == 0) {
            size_t length = strcspn(line + 7, " ");
            ck_assert_uint_lt(length, sizeof family);
            memcpy(family, line + 7, length);
            family[length] = '\0';
            families++;
        } else if (line[0] != '#') {
            char *end;
            ck_assert_msg(strncmp(line, family, strlen(family)) == 0, "below %s: %s", family, line);
            ck_assert_ptr_nonnull(strrchr(line, ' '));
            strtod(strrchr(line, ' ') + 1, &end);
            ck_assert_msg(*end == '\0', "%s", line);
            samples++;
        }
    }
    ck_assert_uint_gt(families, 20);
    ck_assert_uint_gt(samples, families);
}

TEST(metrics_what_proc_does_not_tell_is_no_sample)
{
    gauges.process.resident_bytes = gauges.process.open_files = 0;
    gauges.process.virtual_bytes = 4096;
    gauges.sessions = 0;
    print();
    expect_line("process_virtual_memory_bytes 4096");
    ck_assert_ptr_null(strstr(text.data, "\nprocess_resident_memory_bytes"));
    ck_assert_ptr_null(strstr(text.data, "\nprocess_open_fds"));
    expect_line("attnd_sessions 0");
}

TEST(metrics_each_gauge_of_a_key_shows_its_own_figure)
{
    static struct srv_accounts accounts = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct srv_account *account = srv_accounts_get(&accounts, "k");
    srv_account_charge_anyway(account, SRV_QUOTA_SESSIONS, 3);
    srv_account_charge_anyway(account, SRV_QUOTA_CACHE, 4096);
    srv_account_charge_anyway(account, SRV_QUOTA_IN_FLIGHT, 77);
    srv_metrics_print_accounts(&text, &accounts);
    srv_buffer_append(&text, "", 1);
    expect_line("attnd_key_sessions{key=\"k\"} 3");
    expect_line("attnd_key_cache_bytes{key=\"k\"} 4096");
    expect_line("attnd_key_in_flight_bytes{key=\"k\"} 77");
    srv_accounts_free(&accounts);
}

/* Where reading the allocator's figures takes a second, they are read each 100 s. */
TEST(metrics_a_slow_reading_is_taken_for_a_hundredth_of_the_time)
{
    struct srv_process process;
    struct srv_usage *usage = srv_usage_open();
    ck_assert_ptr_nonnull(usage);
    atomic_store(&disk.pread_s, 1);
    srv_usage_read(&process, usage);
    atomic_store(&disk.pread_s, 0);
    const size_t before = process.heap_bytes;
    char *volatile block = malloc((size_t)64 << 20);
    ck_assert_ptr_nonnull(block);
    for (int after_s = 1; after_s < 102; after_s += 25) {
        srv_usage_read(&process, usage);
        if (after_s < 100)
            ck_assert_uint_eq(process.heap_bytes, before);
        else /* a sanitizer's allocator tells nothing */
            ck_assert(before == 0 || process.heap_bytes >= before + ((size_t)64 << 20));
        atomic_fetch_add(&disk.monotonic_s, 25);
    }
    free(block);
    srv_usage_close(usage);
    disk_reset();
}

SUITE(metrics)
