/* test_evicted.c: sessions beyond memory.  Two daemons get the same requests: `served` keeps few
 * sessions in memory and reads the others from its disk, `whole` keeps all, and their answers have
 * the same bits. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"
#include "tensors.h"
#include "waiting.h"

#define FEW "96KiB"   /* six sessions of ROWS tokens in two layers of `tiny` */
#define FEWER "64KiB" /* after a restart */
#define BUDGET (96 << 10)
#define BLOCK 4096 /* bytes of 64 tokens in a layer of `tiny` */
#define ROWS 70    /* one block and a part of the next */
#define OPERATIONS 100u
#define LATEST_S (INSTRUMENTED ? 120 : 30)

/* What sessions are of; `weightless` is no model. */
static const struct {
    const char *name, *kv_dtype, *members;
} kinds[] = {
    {"tiny", "f32", "\"num_key_value_heads\":2"},
    {"bf16", "bf16", "\"num_key_value_heads\":2"},
    {"f16", "f16", "\"num_key_value_heads\":2"},
    {"int8", "int8", "\"num_key_value_heads\":2"},
    {"window", "f32",
     "\"sliding_window\":8,\"layer_types\":[\"full_attention\",\"sliding_attention\"]"},
    {"latent", "f32",
     "\"kv_lora_rank\":10,\"q_lora_rank\":12,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"value_"
     "head_dim\":5"},
    {"crossed", "f32", "\"is_cross\":true"},
    {"weightless", "", ""},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], CROSSED = KINDS - 2, WEIGHTLESS = KINDS - 1 };

static char directory[SCRATCH_PATH];
static struct daemon whole;
static struct client whole_client;
static const char *durability;
static char config[4096];

static void write_config(void)
{
    size_t n =
        (size_t)snprintf(config, sizeof config,
                         "{\"port\":0,\"memory_limit\":\"64GiB\",\"threads\":1,\"log\":\"error\","
                         "\"max_weightless_shapes\":2,\"models\":[");
    for (size_t i = 0; i < WEIGHTLESS; i++)
        n += (size_t)snprintf(
            config + n, sizeof config - n,
            "%s{\"name\":\"%s\",\"kv_dtype\":\"%s\",\"random\":{\"hidden_size\":16,"
            "\"num_attention_heads\":4,\"num_hidden_layers\":2,\"seed\":7,%s}}",
            i > 0 ? "," : "", kinds[i].name, kinds[i].kv_dtype, kinds[i].members);
    snprintf(config + n, sizeof config - n, "]}");
}

static void start(const char *cache_bytes)
{
    char preload[512];
    const char *const arguments[] = {
        "--state-dir", directory, "--durability", durability, "--cache-bytes", cache_bytes, NULL};
    const char *const variables[] = {preload, NULL};
    process_preload(preload, "held_disk.so");
    daemon_start(&served, config, arguments, INSTRUMENTED ? NULL : variables);
    client_open(&client, &served);
}

static void set_up(void)
{
    scratch_make(directory);
    durability = "journal";
    write_config();
    start(FEW);
    daemon_start(&whole, config, NULL, NULL);
    client_open(&whole_client, &whole);
}

static void tear_down(void)
{
    serve_end();
    client_close(&whole_client);
    daemon_stop(&whole);
    scratch_remove(directory);
}

/* ---- The same answers ------------------------------------------------------------------------ */

/* Removes what two daemons say differently. */
static void strip(json_t *json)
{
    static const char *const own[] = {"epoch", "revision", "request_id", "idle_s"};
    const char *name;
    json_t *member;
    size_t i;
    for (i = 0; i < sizeof own / sizeof own[0]; i++)
        (void)json_object_del(json, own[i]);
    json_object_foreach(json, name, member)
        strip(member);
    json_array_foreach(json, i, member)
        strip(member);
}

/* The tensors of a state, or the text of an answer; for free(). */
static char *content(size_t *length, struct answer *answer)
{
    uint64_t header = 0; /* its length stands before a state's */
    if (answer->json != NULL) {
        strip(answer->json);
        char *text = json_dumps(answer->json, JSON_SORT_KEYS);
        *length = strlen(text);
        return text;
    }
    if (answer->length > sizeof header)
        memcpy(&header, answer->text, sizeof header);
    *length = answer->length - sizeof header - header;
    char *bytes = malloc(*length + 1);
    memcpy(bytes, answer->text + sizeof header + header, *length);
    return bytes;
}

/* Sends a request to both daemons, whose answers must be the same; returns their status. */
static long both(const char *method, const char *path, const char *body)
{
    size_t length, wanted;
    const struct request request = {.method = method, .path = path, .body = body};
    struct answer got = client_send(&client, &request), want = client_send(&whole_client, &request);
    const long status = got.status;
    ck_assert_msg(status == want.status, "%s %s %.80s: %ld, not %ld: %.300s", method, path,
                  body != NULL ? body : "", status, want.status, got.text);
    if (status != 204) {
        char *a = content(&length, &got), *b = content(&wanted, &want);
        ck_assert_msg(length == wanted && memcmp(a, b, length) == 0,
                      "%s %s: %.300s, expected %.300s", method, path, got.text, want.text);
        free(a);
        free(b);
    }
    answer_free(&got);
    answer_free(&want);
    return status;
}

static long both_text(const char *path, struct text *body)
{
    const long status = both("POST", path, body->data);
    text_free(body);
    return status;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void add_made(struct text *body, const char *name, unsigned seed, size_t heads, size_t n)
{
    float numbers[4 * 128 * 4];
    make_numbers(numbers, heads * n * 4, seed);
    text_add(body, ",\"%s\":", name);
    if (name[0] == 'h' || name[0] == 'e')
        text_floats(body, numbers, 9, SHAPE(n, 16));
    else
        text_floats(body, numbers, 9, SHAPE(heads, n, 4));
}

/* Adds the id and n rows, as a call of the kind has them. */
static void add_rows(struct text *body, size_t kind, const char *id, unsigned seed, size_t n)
{
    text_add(body, "\"session_id\":\"%s\"", id);
    if (kind != WEIGHTLESS) {
        add_made(body, "hidden_states", seed, 4, n);
        return;
    }
    add_made(body, "query", seed, 4, n);
    add_made(body, "key", seed + 1, 2, n);
    add_made(body, "value", seed + 2, 2, n);
}

static void open_call(struct text *body, size_t kind, unsigned layer)
{
    text_add(body, "{\"layer\":%u,", kind != WEIGHTLESS ? layer : 0);
    if (kind != WEIGHTLESS)
        text_add(body, "\"model\":\"%s\",", kinds[kind].name);
}

static long decode(size_t kind, const char *id, unsigned layer, unsigned seed, size_t n,
                   const char *more)
{
    struct text body = {0};
    open_call(&body, kind, layer);
    add_rows(&body, kind, id, seed, n);
    text_add(&body, "%s}", more);
    return both_text("/decode", &body);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

enum { MOST = 32 };
static struct live {
    char id[16];
    size_t kind;
} sessions[MOST];
static size_t count;
static unsigned drawn, named, good;

static unsigned below(size_t n)
{
    drawn = drawn * 1664525u + 1013904223u;
    return (drawn >> 8) % (unsigned)n;
}

static struct live *add(size_t kind)
{
    struct live *session = &sessions[count++];
    ck_assert_uint_le(count, MOST);
    session->kind = kind;
    snprintf(session->id, sizeof session->id, "s%u", named++);
    return session;
}

/* A session of ROWS tokens in each layer. */
static void begin(size_t kind, size_t rows)
{
    const struct live *session = add(kind);
    struct text body = {0};
    if (kind == CROSSED) {
        open_call(&body, kind, 0);
        add_rows(&body, kind, session->id, named, 1);
        text_add(&body, ",\"start\":true");
        add_made(&body, "encoder_hidden_states", named, 4, rows);
        text_add(&body, "}");
        ck_assert_int_eq(both_text("/decode", &body), 200);
        return;
    }
    text_add(&body, "{\"session_id\":\"%s\",", session->id);
    text_add(&body,
             kind == WEIGHTLESS ? "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                  "\"head_dim\":4}"
                                : "\"model\":\"%s\"}",
             kinds[kind].name);
    ck_assert_int_eq(both_text("/sessions", &body), 201);
    for (unsigned layer = 0; layer < (kind == WEIGHTLESS ? 1 : 2); layer++)
        ck_assert_int_eq(decode(kind, session->id, layer, named, rows, ""), 200);
}

static void begin_all(size_t number)
{
    drawn = 5;
    named = good = 0;
    for (count = 0; count < number;)
        begin(count % KINDS, count % 3 > 0 ? ROWS : 64);
}

static long of_session(const char *method, const char *form, size_t i, unsigned number)
{
    char path[64], body[64];
    snprintf(path, sizeof path, "/sessions/%s%s", sessions[i].id, form[0] == '/' ? form : "");
    snprintf(body, sizeof body, "{\"length\":%u}", number);
    return both(method, path, strcmp(method, "POST") == 0 ? body : NULL);
}

static void step(size_t i)
{
    good += decode(sessions[i].kind, sessions[i].id, below(2), drawn, 1 + below(4) / 3, "") == 200;
}

static void grow(size_t i)
{
    good += decode(sessions[i].kind, sessions[i].id, below(2), drawn, 40, "") == 200;
}

/* One step of each session of the kind, which may be more than memory holds. */
static void list(size_t i)
{
    struct text body = {0};
    const size_t kind = sessions[i].kind;
    const char *comma = "";
    open_call(&body, kind, below(2));
    text_add(&body, "\"sequences\":[");
    for (size_t k = 0; k < count; k++) {
        if (sessions[k].kind != kind)
            continue;
        text_add(&body, "%s{", comma);
        add_rows(&body, kind, sessions[k].id, drawn + (unsigned)k, 1);
        text_add(&body, "}");
        comma = ",";
    }
    text_add(&body, "]}");
    good += both_text("/decode", &body) == 200;
}

static void truncate_one(size_t i) { good += of_session("POST", "/truncate", i, below(80)) == 200; }

static void export_one(size_t i) { good += of_session("GET", "/state", i, 0) == 200; }

static void delete_one(size_t i)
{
    ck_assert_int_eq(of_session("DELETE", "", i, 0), 204);
    sessions[i] = sessions[--count];
}

/* Of all tokens, whose blocks are shared. */
static void fork_one(size_t i)
{
    char path[64], body[64];
    if (count == MOST)
        return;
    snprintf(path, sizeof path, "/sessions/%s/fork", sessions[i].id);
    snprintf(body, sizeof body, "{\"session_id\":\"%s\"}", add(sessions[i].kind)->id);
    good += both("POST", path, body) == 201;
}

static void draw(void)
{
    static void (*const operations[])(size_t) = {step,     step,         step,       step,
                                                 step,     step,         list,       grow,
                                                 fork_one, truncate_one, export_one, delete_one};
    operations[below(count > MOST / 2 ? 12 : 11)](below(count));
}

/* Every session's tokens, and the bits of its next step. */
static void compare_all(void)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(of_session("GET", "/state", i, 0), 200);
        ck_assert_int_eq(decode(sessions[i].kind, sessions[i].id, 0, 4711, 1, ",\"commit\":false"),
                         200);
    }
}

static void expect_beyond_memory(void)
{
    const double used = call_metric(&client, "attnd_cache_used_bytes");
    ck_assert_double_le(used, call_metric(&client, "attnd_cache_budget_bytes"));
    ck_assert_double_gt(call_metric(&whole_client, "attnd_cache_used_bytes"), 2 * BUDGET);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

START_TEST(test_sessions_beyond_memory_have_the_bits_of_those_in_memory)
{
    static const struct {
        const char *durability;
        bool killed;
    } ends[] = {{"journal", true}, {"snapshot", false}};
    durability = ends[_i].durability;
    if (_i > 0) {
        serve_end();
        start(FEW);
    }
    begin_all(3 * KINDS);
    for (unsigned i = 0; i < OPERATIONS; i++)
        draw();
    ck_assert_uint_gt(good, OPERATIONS * 3 / 4);
    expect_beyond_memory();
    if (ends[_i].killed)
        serve_kill();
    else
        serve_end();
    start(FEWER);
    compare_all();
    for (unsigned i = 0; i < OPERATIONS / 4; i++)
        draw();
    serve_end();
    start(FEW);
    compare_all();
    expect_beyond_memory();
}
END_TEST

/* Of 20 sessions of one model, six fit. */
START_TEST(test_a_list_of_more_sessions_than_memory_holds_is_answered)
{
    begin_all(0);
    while (count < 20)
        begin(0, ROWS);
    for (size_t i = 0; i < 3; i++)
        list(0);
    ck_assert_uint_eq(good, 3);
    expect_beyond_memory();
    compare_all();
}
END_TEST

/* The sessions have a block each, and a step needs another, which is not kept. */
START_TEST(test_a_step_that_is_not_committed_gets_the_memory_that_others_leave)
{
    begin_all(0);
    while (count < MOST)
        begin(WEIGHTLESS, 64);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(decode(WEIGHTLESS, sessions[i].id, 0, 9, 1, ",\"commit\":false"), 200);
}
END_TEST

static void refuse_soon(const char *id)
{
    struct timespec begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    refuse_decode(&client, id, 1, "", 503, "pool_full");
    ck_assert_double_lt(seconds_since(&begun), LATEST_S);
}

/* A session may grow to all of the memory; a start may have less. */
START_TEST(test_a_session_larger_than_memory_is_refused_and_others_go_on)
{
    begin_all(KINDS);
    call_create(&client, "large", "");
    struct answer first = call_decode_rows(&client, "large", 1, 50, "");
    long status = first.status;
    for (size_t rows = 0; status == 200; rows += 64) {
        ck_assert_uint_le(rows, BUDGET / BLOCK * 64);
        struct answer answer = call_decode_rows(&client, "large", 1, 64, "");
        status = answer.status;
        expect_answer(&answer, status == 200 ? 200 : 503, status == 200 ? NULL : "pool_full", "");
        answer_free(&answer);
    }
    answer_free(&first);
    ck_assert_uint_ge(call_length(&client, "large", 0), BUDGET / BLOCK * 64 * 3 / 4);
    compare_all();
    char *bits = call_next_bits(&client, "large");
    serve_kill();
    start(FEWER);
    refuse_soon("large");
    compare_all();
    refuse_soon("large");
    serve_end();
    start(FEW);
    char *again = call_next_bits(&client, "large");
    ck_assert_str_eq(again, bits);
    free(bits);
    free(again);
}
END_TEST

static void shell(const char *line)
{
    char command[128 + SCRATCH_PATH];
    snprintf(command, sizeof command, "cd %s && %s", directory, line);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* Session "s0" has left memory: the others have more steps. */
static void evict_first(void)
{
    begin_all(0);
    while (count < 12) {
        begin(0, ROWS);
        if (count == 1)
            call_snapshot(&client);
        for (unsigned i = 0; i < 4 && count > 1; i++)
            ck_assert_int_eq(decode(0, sessions[count - 1].id, 0, i, 1, ""), 200);
    }
}

START_TEST(test_a_request_that_waits_for_its_session_obeys_its_deadline)
{
    struct timespec begun;
    const char *const headers[] = {"X-Deadline-Ms: 300", NULL};
    struct text body = {0};
    evict_first();
    const double in_use = call_metric(&client, "attnd_cache_used_bytes");
    shell("touch hold");
    text_add(&body, "{\"model\":\"tiny\",");
    text_step(&body, "s0", 1, "}");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    struct answer answer =
        client_send(&client, &(struct request){"POST", "/decode", body.data, 0, headers});
    expect_answer(&answer, 504, "deadline_exceeded", "s0");
    ck_assert_double_lt(seconds_since(&begun), LATEST_S);
    ck_assert_int_eq(decode(0, sessions[count - 1].id, 0, 9, 1, ""), 200);
    shell("rm hold");
    compare_all();
    ck_assert_double_gt(in_use, BUDGET / 2);
    answer_free(&answer);
    text_free(&body);
}
END_TEST

START_TEST(test_sessions_that_have_left_memory_are_deleted_and_expire)
{
    call_create(&client, "brief", ",\"ttl_s\":1");
    expect_decode(&client, "brief", 1, 0);
    call_snapshot(&client);
    evict_first();
    for (size_t i = count; i-- > 1;)
        ck_assert_int_eq(decode(0, sessions[i].id, 0, 9, 1, ""), 200);
    for (unsigned waited = 0; call_status(&client, "brief") == 200; waited += 20) {
        ck_assert_uint_lt(waited, SOON_MS);
        pause_ms(20);
    }
    compare_all();
    while (count > 0)
        delete_one(0);
    serve_kill();
    start(FEW);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 0);
    ck_assert_double_eq(call_metric(&client, "attnd_cache_used_bytes"), 0);
}
END_TEST

/* The first block of the file is that of "s0". */
START_TEST(test_an_evicted_session_with_a_damaged_block_is_lost_alone)
{
    char path[320];
    evict_first();
    ck_assert_uint_eq(state_files_find(path, directory, ".blocks"), 1);
    state_files_flip(path, 200);
    refuse_decode(&client, "s0", 1, "", 410, "session_lost");
    ck_assert_int_eq(call_status(&client, "s0"), 404);
    sessions[0] = sessions[--count];
    compare_all();
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_lost_total"), 1);
    state_files_await(directory, ".manifest.damaged");
    serve_kill();
    start(FEWER);
    ck_assert_int_eq(call_status(&client, "s0"), 404);
    compare_all();
}
END_TEST

static bool is_in_memory(const char *id)
{
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 200, NULL, id);
    const json_t *said = json_object_get(answer.json, "in_memory");
    ck_assert(said == NULL || json_is_false(said));
    answer_free(&answer);
    return said == NULL;
}

START_TEST(test_a_session_says_whether_it_is_in_memory_and_can_be_prefetched)
{
    evict_first();
    ck_assert(!is_in_memory("s0"));
    ck_assert_double_ge(call_metric(&client, "attnd_sessions_unread"), 1);
    ck_assert_double_ge(call_metric(&client, "attnd_sessions_evicted_total"), 1);
    const double read = call_metric(&client, "attnd_sessions_read_total");
    const struct request request = {.method = "POST", .path = "/sessions/s0/prefetch"};
    for (unsigned i = 0; i < 2; i++) {
        struct answer answer = client_send(&client, &request);
        expect_answer(&answer, 200, NULL, "prefetch");
        ck_assert_str_eq(json_string_value(json_object_get(answer.json, "session_id")), "s0");
        ck_assert_ptr_null(json_object_get(answer.json, "in_memory"));
        answer_free(&answer);
    }
    ck_assert(is_in_memory("s0"));
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_read_total"), read + 1);
    const struct request missing = {.method = "POST", .path = "/sessions/none/prefetch"};
    struct answer answer = client_send(&client, &missing);
    expect_answer(&answer, 404, "session_not_found", "prefetch");
    answer_free(&answer);
}
END_TEST

Suite *suite_evicted(void)
{
    Suite *suite = suite_create("evicted");
    TCase *bits = suite_cases(suite, "bits", set_up, tear_down, 0);
    tcase_add_loop_test(bits, test_sessions_beyond_memory_have_the_bits_of_those_in_memory, 0, 2);
    TCase *list = suite_cases(suite, "list", set_up, tear_down, 0);
    tcase_add_test(list, test_a_list_of_more_sessions_than_memory_holds_is_answered);
    tcase_add_test(list, test_a_step_that_is_not_committed_gets_the_memory_that_others_leave);
    TCase *larger = suite_cases(suite, "larger", set_up, tear_down, 0);
    tcase_add_test(larger, test_a_session_larger_than_memory_is_refused_and_others_go_on);
    tcase_add_test(list, test_a_session_says_whether_it_is_in_memory_and_can_be_prefetched);
    TCase *deadline = suite_cases(suite, "deadline", set_up, tear_down, 0);
    tcase_add_test(deadline, test_a_request_that_waits_for_its_session_obeys_its_deadline);
    TCase *ends = suite_cases(suite, "ends", set_up, tear_down, 0);
    tcase_add_test(ends, test_sessions_that_have_left_memory_are_deleted_and_expire);
    TCase *damage = suite_cases(suite, "damage", set_up, tear_down, 0);
    tcase_add_test(damage, test_an_evicted_session_with_a_damaged_block_is_lost_alone);
    return suite;
}
