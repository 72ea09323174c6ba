/* test_weights.c: daemons that share packed weights (weights_cache): the same bits, one file, one
 * copy in memory; and what happens where the directory does not serve. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "suites.h"

#define DAEMONS 3
#define WRITTEN "packed, written and mapped, "
#define MAPPED ": mapped, "
#define PRIVATE "packed, in memory of this process, "

static char directory[SCRATCH_PATH];

static void set_up(void) { scratch_make(directory); }

static void tear_down(void) { scratch_remove(directory); }

static void start(struct daemon *daemon, const char *sandbox)
{
    const char *const arguments[] = {"--weights-cache", directory, "--sandbox", sandbox, NULL};
    const char *const variables[] = {PROCESS_NO_LEAKS, NULL};
    daemon_start(daemon, CONFIG_SMALL("\"log\":\"info\","), arguments, variables);
}

/* How often a text is in the daemon's log. */
static size_t count_log(const struct process *process, const char *text)
{
    size_t count = 0;
    char *log = process_text(process->err);
    for (const char *at = log; (at = strstr(at, text)) != NULL; at++)
        count++;
    free(log);
    return count;
}

static void expect_log(const struct process *process, const char *text, size_t count)
{
    char *log = process_text(process->err);
    ck_assert_msg(count_log(process, text) == count, "not %zu times \"%s\": %s", count, text, log);
    free(log);
}

/* The reply to steps of a new session, in full precision. */
static char *decode_bits(const struct daemon *daemon)
{
    struct client client;
    client_open(&client, daemon);
    call_create(&client, "s", "");
    for (unsigned i = 0; i < 5; i++)
        expect_decode(&client, "s", i, i);
    char *bits = call_next_bits(&client, "s");
    call_delete(&client, "s");
    client_close(&client);
    return bits;
}

static void expect_mapped(const struct daemon *daemon, bool mapped)
{
    struct client client;
    client_open(&client, daemon);
    struct answer answer = client_get(&client, "/models/tiny");
    expect_answer(&answer, 200, NULL, "model");
    ck_assert(json_boolean_value(json_object_get(answer.json, "weights_mapped")) == mapped);
    answer_free(&answer);
    ck_assert_double_eq(call_metric(&client, "attnd_weight_mapped_bytes"),
                        mapped ? call_metric(&client, "attnd_weight_bytes") : 0);
    client_close(&client);
}

/* The lines of /proc/PID/maps that name a file of weights: its inodes, mapped for reading alone. */
static void list_mappings(char out[512], const struct daemon *daemon)
{
    char path[64], line[512], range[64], rights[8], offset[32], device[16], inode[32];
    snprintf(path, sizeof path, "/proc/%d/maps", daemon->process.pid);
    FILE *maps = fopen(path, "r");
    ck_assert_ptr_nonnull(maps);
    out[0] = '\0';
    while (fgets(line, sizeof line, maps) != NULL) {
        if (strstr(line, directory) == NULL)
            continue;
        ck_assert_int_eq(
            sscanf(line, "%63s %7s %31s %15s %31s", range, rights, offset, device, inode), 5);
        ck_assert_str_eq(rights, "r--s");
        snprintf(out + strlen(out), 512 - strlen(out), "%s ", inode);
    }
    fclose(maps);
}

CASE(weights, set_up, tear_down, 60)

TEST_EACH(a_second_daemon_maps_what_the_first_has_written, 1)
{
    struct daemon plain, first, second;
    char inodes[2][512];
    daemon_start(&plain, CONFIG_SMALL(""), NULL, NULL);
    start(&first, _i == 0 ? "off" : "on");
    start(&second, _i == 0 ? "off" : "on");
    expect_log(&first.process, WRITTEN, 2);
    expect_log(&second.process, MAPPED, 2);
    expect_log(&second.process, "an earlier start noted the same bits", 2);
    expect_mapped(&plain, false);
    expect_mapped(&second, true);
    list_mappings(inodes[0], &first);
    list_mappings(inodes[1], &second);
    ck_assert_str_ne(inodes[0], "");
    char *want = decode_bits(&plain), *a = decode_bits(&first), *b = decode_bits(&second);
    ck_assert_str_eq(want, a);
    ck_assert_str_eq(want, b);
    free(want), free(a), free(b);
    daemon_stop(&plain);
    daemon_stop(&first);
    daemon_stop(&second);
}

static bool is_ready(const struct process *process)
{
    char *out = process_text(process->out);
    const bool ready = strstr(out, "ready on") != NULL;
    free(out);
    return ready;
}

TEST(of_daemons_that_start_together_one_writes)
{
    struct process processes[DAEMONS];
    char config_directory[64], path[96];
    size_t written = 0, mapped = 0;
    config_write(config_directory, path, CONFIG_SMALL("\"log\":\"info\","));
    const char *const arguments[] = {"--config", path, "--weights-cache", directory, NULL};
    for (size_t i = 0; i < DAEMONS; i++)
        process_start(&processes[i], arguments, NULL);
    for (size_t i = 0; i < DAEMONS; i++)
        for (int tries = 0; !is_ready(&processes[i]); tries++) {
            ck_assert_int_lt(tries, 600);
            pause_ms(50);
        }
    for (size_t i = 0; i < DAEMONS; i++) {
        written += count_log(&processes[i], WRITTEN);
        mapped += count_log(&processes[i], MAPPED);
        process_end(&processes[i]);
    }
    ck_assert_uint_eq(written, 2); /* a file for each model */
    ck_assert_uint_eq(mapped, 2 * (DAEMONS - 1));
    config_remove(config_directory);
}

TEST(a_daemon_that_cannot_write_serves_private_weights)
{
    struct daemon plain, limited;
    const struct rlimit small = {.rlim_cur = 16384, .rlim_max = RLIM_INFINITY};
    struct rlimit own; /* of this process, which records what it sends */
    daemon_start(&plain, CONFIG_SMALL(""), NULL, NULL);
    ck_assert_int_eq(prlimit(0, RLIMIT_FSIZE, &small, &own), 0);
    start(&limited, "off");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &own), 0);
    expect_log(&limited.process, PRIVATE, 1); /* the other model's file is small */
    expect_log(&limited.process, "cannot be written: File too large", 1);
    expect_mapped(&plain, false);
    char *want = decode_bits(&plain), *got = decode_bits(&limited);
    ck_assert_str_eq(want, got);
    free(want), free(got);
    daemon_stop(&plain);
    daemon_stop(&limited);
}

/* Cuts every file of weights to that share of its length, less a byte. */
static void cut_files(unsigned numerator, unsigned denominator)
{
    char command[256];
    snprintf(command, sizeof command,
             "for f in %s/*.weights; do chmod u+w $f && truncate -s $(($(stat -c %%s $f) * %u / %u "
             "- 1)) $f || "
             "exit 1; done",
             directory, numerator, denominator);
    ck_assert_int_eq(system(command), 0);
}

/* Cut at once below what a request reads, and by a byte, of which the page's rest would be zeros
 * for ever. */
TEST_EACH(a_daemon_whose_mapped_file_is_cut_short_says_so_and_ends, 2)
{
    const struct request attend = {
        .method = "POST",
        .path = "/attend",
        .body = "{\"model\":\"tiny\",\"hidden_states\":[[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7]]}"};
    struct daemon daemon;
    struct client client;
    struct answer answer;
    int status;
    start(&daemon, "off");
    expect_log(&daemon.process, WRITTEN, 2);
    client_open(&client, &daemon);
    call_create(&client, "s", "");
    expect_decode(&client, "s", 0, 0);
    cut_files(_i == 0 ? 1 : 4, 4);
    if (client_try(&answer, &client, &attend)) /* where a byte lacks it may be computed before */
        answer_free(&answer);
    ck_assert(process_wait(&status, &daemon.process, 20));
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    expect_log(&daemon.process, "its file of weights in /tmp/attn-test-", 1);
    expect_log(&daemon.process, "can no longer be read: it was cut short", 1);
    client_close(&client);
    process_end(&daemon.process);
    start(&daemon, "off"); /* writes them anew */
    expect_log(&daemon.process, WRITTEN, 2);
    daemon_stop(&daemon);
}

static void expect_check(int status, const char *in_out, const char *in_err)
{
    char config_directory[64], path[96], *out, *err;
    config_write(config_directory, path, CONFIG_SMALL(""));
    const char *const arguments[] = {"--config", path,      "--weights-cache",
                                     directory,  "--check", NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), status);
    ck_assert_msg(in_out == NULL || strstr(out, in_out) != NULL, "no %s in %s", in_out, out);
    ck_assert_msg(in_err == NULL || strstr(err, in_err) != NULL, "no %s in %s", in_err, err);
    free(out);
    free(err);
    config_remove(config_directory);
}

TEST(check_says_which_weights_would_be_mapped)
{
    struct daemon daemon;
    expect_check(0, "weights_cache: tiny: 0.0 MiB, in no file", NULL);
    start(&daemon, "off");
    daemon_stop(&daemon);
    expect_check(0, "weights_cache: tiny: 0.0 MiB, in a file: mapped", NULL);
    ck_assert_int_eq(chmod(directory, 0777), 0);
    expect_check(1, NULL, "every user may write to");
}

TEST(a_directory_that_every_user_may_write_to_refuses_the_start)
{
    char config_directory[64], path[96], *out, *err;
    ck_assert_int_eq(chmod(directory, 01777), 0);
    config_write(config_directory, path, CONFIG_SMALL(""));
    const char *const arguments[] = {"--config", path, "--weights-cache", directory, NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_ptr_nonnull(strstr(err, "model tiny: weights_cache: every user may write to"));
    free(out);
    free(err);
    config_remove(config_directory);
}

CASE(sandboxed, set_up, tear_down, 60)
AGAIN(a_second_daemon_maps_what_the_first_has_written, 1, 2)

SUITE(weights)
