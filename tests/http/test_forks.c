/* test_forks.c: sessions that share blocks are saved and restored: what the pool held it holds
 * again. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

static char directory[SCRATCH_PATH];
static const char *durability;

static void start(void)
{
    const char *const arguments[] = {
        "--state-dir", directory, "--durability", durability, "--cache-bytes", "64KiB", NULL};
    daemon_start(&served, CONFIG_SMALL("\"log\":\"error\","), arguments, NULL);
    client_open(&client, &served);
}

static void set_up(void)
{
    scratch_make(directory);
    durability = "snapshot";
}

static void tear_down(void) { scratch_remove(directory); }

/* ---- Helpers --------------------------------------------------------------------------------- */

static void fork_of(const char *parent, const char *id, size_t length)
{
    char extra[48];
    snprintf(extra, sizeof extra, ",\"length\":%zu", length);
    call_fork(&client, parent, id, extra);
}

/* ---- Many ------------------------------------------------------------------------------------ */

#define MANY 1000
#define PROMPT ((size_t)512 << 10) /* bytes of 64 tokens of the model below */
#define SPARE ((size_t)2 << 20)    /* that files of blocks keep for new ones, at most */
#define WIDE                                                                                       \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"memory_limit\":\"64GiB\",\"log\":\"error\",\"models\":"  \
    "[{\"name\":\"wide\",\"random\":{\"hidden_size\":1024,\"num_attention_heads\":8,\"seed\":7}}]" \
    "}"

/* Appends 64 rows. */
static void prefill_wide(const char *id)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",\"hidden_states\":[", id);
    for (size_t i = 0; i < 64 * 1024; i++)
        text_add(&body, "%s0.5%s", i % 1024 == 0 ? "[" : "",
                 i % 1024 < 1023     ? ","
                 : i + 1 < 64 * 1024 ? "],"
                                     : "]");
    text_add(&body, "]}");
    expect_posted(&client, "/decode", body.data, 200, NULL);
    text_free(&body);
}

/* Bytes that the files of blocks take on the disk. */
static size_t disk_bytes(void)
{
    char command[96 + SCRATCH_PATH];
    size_t bytes = 0, blocks;
    snprintf(command, sizeof command, "find %s -name '*.blocks' -printf '%%b\\n'", directory);
    FILE *lines = popen(command, "re");
    ck_assert_ptr_nonnull(lines);
    while (fscanf(lines, "%zu", &blocks) == 1)
        bytes += blocks * 512;
    pclose(lines);
    return bytes;
}

CASE(forks, set_up, tear_down, 0)

/* Each session as a whole would take 500 MiB. */
TEST(snapshot_of_many_forks_takes_the_memory_and_the_disk_of_one)
{
    const char *const arguments[] = {"--state-dir", directory, "--durability", durability, NULL};
    daemon_start(&served, WIDE, arguments, NULL);
    client_open(&client, &served);
    expect_posted(&client, "/sessions", "{\"session_id\":\"0\"}", 201, NULL);
    prefill_wide("0");
    for (unsigned i = 1; i <= MANY; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", i);
        fork_of("0", id, 64);
    }
    unsigned long before = daemon_status_number(&served, served.process.pid, "VmHWM", 10);
    call_snapshot(&client);
    unsigned long after = daemon_status_number(&served, served.process.pid, "VmHWM", 10);
    const double used = call_metric(&client, "attnd_cache_used_bytes");
    const size_t bytes = disk_bytes();
    ck_assert_msg(bytes >= PROMPT && bytes <= PROMPT + SPARE, "%zu bytes of blocks", bytes);
    if (!INSTRUMENTED)
        ck_assert_msg(after - before < 24 * 1024, "VmHWM from %lu to %lu KiB", before, after);
    serve_kill();
    daemon_start(&served, WIDE, arguments, NULL);
    client_open(&client, &served);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), MANY + 1);
    ck_assert_double_le(call_metric(&client, "attnd_cache_used_bytes"), used);
    prefill_wide("7");
    call_snapshot(&client);
    ck_assert_uint_le(disk_bytes(), 2 * PROMPT + SPARE);
    serve_end();
}

/* ---- Forks over a restart -------------------------------------------------------------------- */

#define FORKS 24

static const char *const durabilities[] = {"snapshot", "journal"};

static void name_fork(char out[16], unsigned i) { snprintf(out, 16, "fork-%u", i); }

/* Makes a parent of 100 tokens, in two blocks, and forks of all of it, of one block, and of a part
 * of a block; some of them get another token. */
static void make_family(void)
{
    static const size_t lengths[] = {100, 64, 40, 80};
    char id[16];
    call_create(&client, "parent", "");
    struct answer answer = call_prefill(&client, "parent", 1, 100, "");
    expect_answer(&answer, 200, NULL, "prefill");
    answer_free(&answer);
    for (unsigned i = 0; i < FORKS; i++) {
        name_fork(id, i);
        fork_of("parent", id, lengths[i % 4]);
        if (i % 8 == 2)
            expect_decode(&client, id, i, lengths[i % 4]);
    }
}

/* The state of a session, which leaves its blocks shared; a step with commit:false would not. */
static struct answer state_of(unsigned i)
{
    char id[16], path[64];
    name_fork(id, i);
    snprintf(path, sizeof path, "/sessions/%s/state", i < FORKS ? id : "parent");
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 200, NULL, path);
    return answer;
}

static void expect_states(const struct answer want[FORKS + 1], unsigned but)
{
    for (unsigned i = 0; i <= FORKS; i++) {
        struct answer got = state_of(i);
        ck_assert_msg(i == but || (got.length == want[i].length &&
                                   memcmp(got.text, want[i].text, got.length) == 0),
                      "fork %u differs", i);
        answer_free(&got);
    }
}

/* Without sharing they would take more than twice the pool. */
TEST_EACH(forks_fit_again_after_a_restart_and_go_on_each_for_itself, 2)
{
    struct answer states[FORKS + 1];
    durability = durabilities[_i];
    start();
    make_family();
    call_snapshot(&client);
    expect_decode(&client, "fork-3", 99, 80); /* in the journal, of a session with a file */
    for (unsigned i = 0; i <= FORKS; i++)
        states[i] = state_of(i);
    double used = call_metric(&client, "attnd_cache_used_bytes");
    serve_end();
    for (unsigned i = 0; i < 2; i++) {
        start();
        expect_states(states, UINT_MAX); /* waits until each of them is in memory */
        ck_assert_double_eq(call_metric(&client, "attnd_sessions_restored_total"), FORKS + 1);
        ck_assert_double_le(call_metric(&client, "attnd_cache_used_bytes"), used);
        if (i == 0)
            serve_end();
    }
    expect_decode(&client, "fork-4", 5, 100);
    expect_states(states, 4);
    for (unsigned i = 0; i <= FORKS; i++)
        answer_free(&states[i]);
    serve_end();
}

/* The step, which is not kept, gives the fork a copy of the block that it shared; the parent's goes
 * with the parent, and its slot to another session. */
TEST_EACH(fork_over_which_a_step_was_tried_outlives_its_parent, 2)
{
    durability = durabilities[_i];
    start();
    call_create(&client, "parent", "");
    struct answer answer = call_prefill(&client, "parent", 1, 30, "");
    expect_answer(&answer, 200, NULL, "prefill");
    answer_free(&answer);
    fork_of("parent", "fork", 30);
    call_snapshot(&client);
    char *bits = call_next_bits(&client, "fork");
    call_delete(&client, "parent");
    call_snapshot(&client);
    call_create(&client, "other", "");
    expect_decode(&client, "other", 2, 0);
    call_snapshot(&client);
    serve_kill();
    start();
    char *again = call_next_bits(&client, "fork");
    ck_assert_str_eq(again, bits);
    free(bits);
    free(again);
    serve_end();
}

SUITE(forks)
