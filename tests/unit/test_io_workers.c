/* test_io_workers.c: whose turn it is with an I/O worker, which requests it drops, and that
 * reading, writing and decompressing stop when they are cancelled. */
#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "app.h"
#include "schedule/dispatch.h"
#include "schedule/job.h"
#include "suites.h"
#include "wire/tensor.h"

#define MANY 8
#define LARGE (SRV_LARGE_BYTES + 1)

static struct srv_app app;
static struct srv_job attend; /* an attention over given rows */
static struct srv_request requests[MANY];
static struct srv_codec_workers *workers; /* one */
static char order[64];                    /* a digit for each call: which request it was for */
static int pieces[MANY];
static size_t drops; /* the first call checks whether to go on until so many were dropped, */
static enum srv_error_code checked; /* and got this at last */
static sem_t begun, go_on;

/* The first call waits until all requests are queued. */
static bool work(void *context, struct srv_request *request)
{
    struct srv_error error = {0};
    size_t which = (size_t)(request - requests), calls = strlen(order);
    (void)context;
    order[calls] = (char)('0' + which);
    if (calls == 0) {
        sem_post(&begun);
        sem_wait(&go_on);
        do
            checked = srv_codec_check(request, &error);
        while (checked == SRV_OK && strlen(order) < 1 + drops);
    }
    return --pieces[which] > 0;
}

static void add(size_t which, unsigned caller, bool written)
{
    struct srv_request *request = &requests[which], *list[] = {request};
    *request = (struct srv_request){.app = &app,
                                    .limits = &app.config.limits,
                                    .stopping = &app.stopping,
                                    .in_flight = &app.in_flight,
                                    .caller = caller,
                                    .body_length = written ? 0 : LARGE,
                                    .reply_bytes = written ? LARGE : 0,
                                    .job = written ? &attend : NULL,
                                    .t_computed = written};
    ck_assert_uint_eq(srv_codec_workers_accept_large(workers, list, 1), 0);
}

static void setup(void)
{
    memset(order, 0, sizeof order);
    for (size_t i = 0; i < MANY; i++)
        pieces[i] = 1;
    app = (struct srv_app){0};
    drops = 0;
    attend = (struct srv_job){.num_items = 0};
    sem_init(&begun, 0, 0);
    sem_init(&go_on, 0, 0);
    ck_assert(srv_codec_workers_open(&workers, 1, work, NULL));
    add(0, 1, false);
    sem_wait(&begun);
}

static void expect_order(const char *wanted)
{
    sem_post(&go_on);
    srv_codec_workers_finish(workers);
    srv_codec_workers_free(workers);
    ck_assert_str_eq(order, wanted);
}

CASE(turns, setup, NULL, 0)

TEST(io_worker_serves_callers_in_turn)
{
    for (size_t i = 1; i <= 4; i++)
        add(i, 1, false);
    add(5, 2, false);
    add(6, 3, true);
    expect_order("0561234");
}

TEST(io_worker_reads_before_it_writes)
{
    add(1, 1, true);
    add(2, 1, true);
    add(3, 1, false);
    expect_order("0312");
}

TEST(io_worker_does_the_next_piece_when_all_others_had_their_turn)
{
    pieces[1] = 3;
    pieces[2] = 2;
    add(1, 1, true);
    add(2, 1, true);
    add(3, 1, true);
    expect_order("0123121");
}

TEST(io_worker_that_is_busy_drops_cancelled_requests_and_goes_on)
{
    add(1, 1, false);
    add(2, 1, true);
    add(3, 1, true);
    atomic_store(&requests[1].client_gone, true);
    requests[3].deadline_ns = 1;
    drops = 2;
    expect_order("0132");
    ck_assert_int_eq(checked, SRV_OK);
}

TEST(io_worker_stops_at_a_request_that_is_cancelled)
{
    requests[0].deadline_ns = 1;
    expect_order("0");
    ck_assert_int_eq(checked, SRV_E_DEADLINE);
}

/* The reply to a step says that its rows were appended. */
TEST(io_worker_writes_late_replies_of_steps_but_not_to_clients_that_left)
{
    struct srv_job step = {.num_items = 1};
    add(1, 1, true);
    add(2, 1, true);
    requests[1].job = requests[2].job = &step;
    requests[1].deadline_ns = 1;
    atomic_store(&requests[2].client_gone, true);
    drops = 1;
    expect_order("021");
}

/* ---- Cancelling ------------------------------------------------------------------------------ */

static size_t asked, allowed;

static enum srv_error_code ask(void *context, struct srv_error *error)
{
    (void)context;
    return asked++ < allowed ? SRV_OK : srv_fail(error, SRV_E_DEADLINE, NULL, "enough");
}

static const struct srv_cancel asking = {ask, NULL};

static void pause_after(size_t times)
{
    asked = 0;
    allowed = times;
}

#define NUMBERS 100000

CASE(pauses, NULL, NULL, 0)

TEST(pause_stops_what_is_written)
{
    static float zeros[NUMBERS];
    for (size_t times = 0; times < 3; times++) {
        struct srv_buffer out;
        srv_buffer_init(&out, SIZE_MAX);
        out.cancel = asking;
        pause_after(times);
        srv_tensor_write_json(&out, zeros, (const size_t[]){NUMBERS}, 1);
        ck_assert(out.failed);
        ck_assert_uint_eq(asked, times + 1);
        ck_assert_uint_le(out.length, times * 2 * SRV_CANCEL_BYTES);
        srv_buffer_fini(&out);
    }
}

/* Numbers in one array, numbers in rows of one each, and JSON that is skipped. */
TEST_EACH(pause_stops_what_is_read, 3)
{
    for (size_t times = 0; times < 3; times++) {
        char *text = malloc(4 * NUMBERS + 3);
        size_t length = 0;
        for (size_t i = 0; i < NUMBERS; i++, length += _i == 0 ? 2 : 4)
            memcpy(text + length, _i == 0 ? ",1" : ",[1]", _i == 0 ? 2 : 4);
        text[0] = '[';
        memcpy(text + length++, "]", 2);
        struct srv_arena arena;
        struct srv_error error;
        struct srv_json json;
        struct srv_tensor tensor;
        srv_arena_init(&arena, SIZE_MAX / 2, NULL, NULL);
        srv_json_init(&json, text, length, &error);
        json.cancel = asking;
        pause_after(times);
        bool read = _i < 2 ? srv_tensor_read_json(&tensor, &json, &arena, SRV_FLOATS, false, "x")
                           : srv_json_skip(&json);
        ck_assert(!read);
        ck_assert_int_eq(error.code, SRV_E_DEADLINE);
        ck_assert_uint_eq(asked, times + 1);
        srv_arena_fini(&arena);
        free(text);
    }
}

static bool grant(void *context, size_t bytes)
{
    (void)context;
    return bytes > 0;
}

TEST(pause_stops_what_is_expanded)
{
    static Bytef plain[1 << 22], coded[1 << 16];
    uLongf size = sizeof coded;
    const struct srv_decompress_limits limits = {sizeof plain, grant, NULL, asking};
    struct srv_error error;
    char *out;
    size_t length;
    ck_assert_int_eq(compress(coded, &size, plain, sizeof plain), Z_OK);
    pause_after(2);
    ck_assert_int_eq(
        srv_decompress(&out, &length, SRV_DEFLATE, (const char *)coded, size, &limits, &error),
        SRV_E_DEADLINE);
    ck_assert_uint_eq(asked, 3);
}

SUITE(io_workers)
