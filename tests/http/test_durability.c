/* test_durability.c: sessions outlive the process as far as the options say; and a disk that is
 * full, a directory that is in use, and a file that is damaged or of another model do no other
 * harm. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"
#include "tensors.h"

static char directory[SCRATCH_PATH];
static const char *durability, *journal_fsync; /* options of daemons that `start` starts */
static const char *more[3];                    /* another option and its value */

static void start_with(const char *config)
{
    const char *const arguments[] = {"--state-dir", directory,         "--durability",
                                     durability,    "--journal-fsync", journal_fsync,
                                     more[0],       more[1],           NULL};
    daemon_start(&served, config, arguments, NULL);
    client_open(&client, &served);
}

static void start(void) { start_with(CONFIG_SMALL("\"log\":\"info\",")); }

static void stop(void) { serve_end(); }

static void set_up(void)
{
    scratch_make(directory);
    durability = "journal";
    journal_fsync = "os";
    more[0] = more[1] = NULL;
}

static void tear_down(void) { scratch_remove(directory); }

/* ---- Helpers --------------------------------------------------------------------------------- */

static void expect_bits(const char *id, char *want)
{
    char *got = call_next_bits(&client, id);
    ck_assert_str_eq(got, want);
    free(got);
    free(want);
}

static void steps(const char *id, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        expect_decode(&client, id, i, i);
}

static struct answer change(const char *id, const char *what, const char *body)
{
    char path[128];
    snprintf(path, sizeof path, "/sessions/%s/%s", id, what);
    return client_post(&client, path, body);
}

static void expect_change(const char *id, const char *what, const char *body, long status,
                          const char *code)
{
    struct answer answer = change(id, what, body);
    expect_answer(&answer, status, code, what);
    answer_free(&answer);
}

static void await_metric(const char *name, double value)
{
    for (int waited = 0; waited < 2000 && call_metric(&client, name) != value; waited++)
        usleep(10000);
    ck_assert_double_eq(call_metric(&client, name), value);
}

static json_int_t epoch_of(const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 200, NULL, id);
    json_int_t epoch = answer_integer(&answer, "epoch");
    answer_free(&answer);
    return epoch;
}

static void expect_logged(const char *words) { free(daemon_log_with(&served, words)); }

static struct answer create_with_key(const char *key)
{
    char header[64];
    const char *const headers[] = {header, NULL};
    snprintf(header, sizeof header, "Idempotency-Key: %s", key);
    return client_send(&client, &(struct request){.method = "POST",
                                                  .path = "/sessions",
                                                  .body = "{\"model\":\"tiny\"}",
                                                  .headers = headers});
}

static void import_as(const char *id, const struct answer *file)
{
    char path[128];
    const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    struct answer answer = client_send(&client, &(struct request){.method = "PUT",
                                                                  .path = path,
                                                                  .body = file->text,
                                                                  .length = file->length,
                                                                  .headers = headers});
    expect_answer(&answer, 201, NULL, id);
    answer_free(&answer);
}

/* ---- Restarts -------------------------------------------------------------------------------- */

/* Makes sessions in every way, with a snapshot in between or without, ends the daemon with `end`,
 * and expects the sessions as they were. */
static void check_restart(void (*end)(void), bool snapshot)
{
    start();
    json_int_t epoch = call_create(&client, "whole", ",\"max_length\":200,\"ttl_s\":500");
    steps("whole", 0, 70);
    struct answer prefilled = call_prefill(&client, "pre", 50, 30, ",\"start\":true");
    expect_answer(&prefilled, 200, NULL, "prefill");
    call_create(&client, "deleted", "");
    if (snapshot)
        call_snapshot(&client);
    expect_change("whole", "fork", "{\"session_id\":\"fork\",\"length\":66}", 201, NULL);
    expect_change("pre", "truncate", "{\"length\":11}", 200, NULL);
    struct answer file = client_get(&client, "/sessions/whole/state");
    import_as("import", &file);
    call_delete(&client, "deleted");
    struct answer made = create_with_key("-once"); /* no session id may begin so */
    expect_answer(&made, 201, NULL, "create");
    struct answer last = call_decode(&client, "import", 70, ",\"position\":70");
    char *whole = call_next_bits(&client, "whole"), *fork = call_next_bits(&client, "fork"),
         *import = call_next_bits(&client, "import");
    char *pre = call_next_bits(&client, "pre");
    end();
    start();
    ck_assert_int_eq(epoch_of("whole"), epoch);
    ck_assert_int_eq(call_status(&client, "deleted"), 404);
    ck_assert_uint_eq(call_length(&client, "pre", 0), 11);
    ck_assert_uint_eq(call_length(&client, "whole", 1), 0);
    expect_bits("whole", whole);
    expect_bits("fork", fork);
    expect_bits("import", import);
    expect_bits("pre", pre);
    struct answer again = create_with_key("-once");
    expect_answer(&again, 201, NULL, "create again");
    ck_assert(json_is_true(json_object_get(again.json, "replayed")));
    expect_same("key", again.json, made.json, "session_id");
    struct answer retry = call_decode(&client, "import", 70, ",\"position\":70");
    expect_answer(&retry, 200, NULL, "retry");
    ck_assert(json_is_true(json_object_get(retry.json, "replayed")));
    expect_same("retry", retry.json, last.json, "output");
    ck_assert_uint_eq(call_length(&client, "import", 0), 71);
    steps("whole", 70, 72);
    stop();
    struct answer *const answers[] = {&prefilled, &file, &made, &last, &again, &retry};
    for (size_t i = 0; i < COUNT(answers); i++)
        answer_free(answers[i]);
}

CASE(durability, set_up, tear_down, 0)

TEST_EACH(journal_brings_every_session_back_after_sigkill, 3)
{
    static const char *const syncs[] = {"os", "everysec", "always"};
    journal_fsync = syncs[_i];
    check_restart(serve_kill, false);
}

TEST_EACH(snapshot_and_the_journal_after_it_bring_every_session_back, 2)
{
    check_restart(_i == 0 ? serve_kill : stop, true);
}

TEST_EACH(journal_and_snapshot_bring_every_session_back_after_sigterm, 2)
{
    durability = _i == 0 ? "journal" : "snapshot";
    check_restart(stop, false);
}

TEST(journal_that_has_grown_is_replaced_and_says_the_same_after_sigkill)
{
    char path[320];
    more[0] = "--journal-bytes";
    more[1] = "16KiB";
    start();
    call_create(&client, "a", "");
    call_create(&client, "b", "");
    for (unsigned round = 0; round < 4; round++) { /* 256 bytes and a head for each row */
        steps("a", round * 40, round * 40 + 40);
        expect_posted(&client, "/snapshot", NULL, 202, NULL);
    }
    steps("b", 0, 3);
    for (unsigned waited = 0; call_metric(&client, "attnd_snapshots_total") < 1; waited++) {
        ck_assert_uint_lt(waited, 500);
        pause_ms(20);
    }
    char *a = call_next_bits(&client, "a"), *b = call_next_bits(&client, "b");
    serve_kill();
    ck_assert_uint_ge(state_files_find(path, directory, ".manifest"),
                      1); /* two, if killed before it removed one */
    start();
    expect_bits("a", a);
    expect_bits("b", b);
    steps("a", 160, 161);
    stop();
}

TEST(snapshot_on_request_is_what_a_killed_daemon_comes_back_to)
{
    durability = "snapshot";
    start();
    call_create(&client, "kept", "");
    steps("kept", 0, 5);
    char *kept = call_next_bits(&client, "kept");
    call_snapshot(&client);
    steps("kept", 5, 9);
    serve_kill();
    start();
    ck_assert_uint_eq(call_length(&client, "kept", 0), 5);
    expect_bits("kept", kept);
    stop();
}

TEST(snapshot_is_made_after_so_many_tokens)
{
    durability = "snapshot";
    more[0] = "--snapshot-tokens";
    more[1] = "3";
    start();
    double before = call_metric(&client, "attnd_snapshots_total"); /* the start made one */
    call_create(&client, "a", "");
    steps("a", 0, 4);
    for (unsigned waited = 0; call_metric(&client, "attnd_snapshots_total") == before; waited++) {
        ck_assert_uint_lt(waited, 500);
        pause_ms(20);
    }
    serve_kill();
    start();
    ck_assert_uint_eq(call_length(&client, "a", 0), 4);
    stop();
}

TEST(idle_time_is_time_that_a_daemon_was_up)
{
    start();
    call_create(&client, "short", ",\"ttl_s\":3");
    call_create(&client, "long", ",\"ttl_s\":100");
    pause_ms(1200);
    stop();
    pause_ms(3200);
    start();
    ck_assert_int_eq(call_status(&client, "short"), 200);
    pause_ms(2900); /* the 1.2 s before the restart count too */
    ck_assert_int_eq(call_status(&client, "short"), 404);
    ck_assert_int_eq(call_status(&client, "long"), 200);
    stop();
}

TEST(no_durability_keeps_nothing_and_has_no_snapshot)
{
    durability = "none";
    start();
    call_create(&client, "a", "");
    expect_posted(&client, "/snapshot", NULL, 422, "unsupported");
    stop();
    start();
    ck_assert_int_eq(call_status(&client, "a"), 404);
    stop();
}

/* ---- What can go wrong ----------------------------------------------------------------------- */

/* Lets no file of the daemon grow beyond `bytes`. */
static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    ck_assert_int_eq(prlimit(served.process.pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

static void expect_refused(struct answer answer, const char *what)
{
    expect_answer(&answer, 507, "insufficient_storage", what);
    answer_free(&answer);
}

TEST(full_disk_refuses_what_would_be_lost_and_changes_nothing)
{
    char path[320];
    struct stat journal;
    start();
    call_create(&client, "a", "");
    steps("a", 0, 5);
    char *a = call_next_bits(&client, "a");
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    ck_assert_int_eq(stat(path, &journal), 0);
    limit_files((rlim_t)journal.st_size + 50); /* room for a part of a record */
    expect_refused(call_decode(&client, "a", 5, ""), "decode");
    expect_refused(call_decode(&client, "new", 5, ",\"start\":true"), "start");
    expect_refused(call_prefill(&client, "a", 5, 40, ""), "prefill");
    expect_refused(change("a", "fork", "{\"session_id\":\"f\"}"), "fork");
    expect_refused(change("a", "truncate", "{\"length\":2}"), "truncate");
    expect_refused(client_post(&client, "/sessions", "{\"model\":\"tiny\",\"session_id\":\"c\"}"),
                   "create");
    ck_assert_int_eq(call_status(&client, "new"), 404);
    ck_assert_int_eq(call_status(&client, "f"), 404);
    ck_assert_int_eq(call_status(&client, "c"), 404);
    ck_assert_uint_eq(call_length(&client, "a", 0), 5);
    struct answer retry = call_decode(&client, "a", 4, ",\"position\":4"); /* appends nothing */
    expect_answer(&retry, 200, NULL, "retry");
    answer_free(&retry);
    ck_assert_double_ge(call_metric(&client, "attnd_journal_refused_total"), 6);
    limit_files(RLIM_INFINITY);
    char *same = call_next_bits(&client, "a");
    ck_assert_str_eq(same, a);
    free(same);
    steps("a", 5, 8);
    char *later = call_next_bits(&client, "a");
    serve_kill();
    start();
    expect_bits("a", later);
    ck_assert_uint_eq(call_length(&client, "a", 0), 8);
    stop();
    free(a);
}

static void remove_files(const char *which)
{
    char command[96];
    snprintf(command, sizeof command, "rm %s/%s", directory, which);
    ck_assert_int_eq(system(command), 0);
}

/* Also where what cleans old files has removed the lock file. */
TEST_EACH(second_daemon_on_one_directory_refuses_to_start, 2)
{
    char own[64], path[96], *out, *err;
    start();
    call_create(&client, "a", "");
    if (_i == 1)
        remove_files("lock");
    config_write(own, path, CONFIG_SMALL(""));
    const char *const arguments[] = {"--config",     path,      "--state-dir", directory,
                                     "--durability", "journal", NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, "another attnd uses it") != NULL, "%s", err);
    ck_assert_int_eq(call_status(&client, "a"), 200);
    config_remove(own);
    free(out);
    free(err);
    stop();
}

TEST(files_that_are_removed_in_use_are_written_anew)
{
    start();
    call_create(&client, "a", "");
    steps("a", 0, 3);
    remove_files("*");
    expect_change("a", "truncate", "{\"length\":1}", 507, "insufficient_storage");
    await_metric("attnd_snapshots_total", 1);
    expect_logged("was removed while attnd uses the directory: changes are refused until");
    steps("a", 3, 5);
    serve_kill();
    start();
    ck_assert_uint_eq(call_length(&client, "a", 0), 5);
    stop();
}

/* Replaces a file by a link, which the daemon does not follow, so that a sound file cannot be read;
 * and expects that the start is refused. */
static void expect_unreadable(const char *end)
{
    char own[64], path[96], name[320], away[340], *out, *err;
    ck_assert_uint_eq(state_files_find(name, directory, end), 1);
    snprintf(away, sizeof away, "%s.away", name);
    ck_assert(rename(name, away) == 0 && symlink(away, name) == 0);
    config_write(own, path, CONFIG_SMALL("\"log\":\"error\","));
    const char *const arguments[] = {"--config",     path,       "--state-dir", directory,
                                     "--durability", durability, NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, strrchr(name, '/') + 1) != NULL &&
                      strstr(err, "cannot be read") != NULL,
                  "%s", err);
    ck_assert_ptr_eq(strchr(err, '\n'), err + strlen(err) - 1);
    ck_assert(rename(away, name) == 0);
    config_remove(own);
    free(out);
    free(err);
}

TEST(file_that_cannot_be_read_refuses_the_start_and_is_left_alone)
{
    char path[320];
    start();
    call_create(&client, "a", "");
    steps("a", 0, 3);
    call_snapshot(&client);
    steps("a", 3, 5);
    char *bits = call_next_bits(&client, "a");
    serve_kill();
    expect_unreadable(".manifest");
    expect_unreadable(".copy");
    expect_unreadable(".blocks");
    expect_unreadable(".journal");
    ck_assert_uint_eq(state_files_find(path, directory, ".damaged"), 0);
    start();
    expect_bits("a", bits);
    stop();
}

TEST(damage_in_a_journal_costs_the_session_that_it_hits)
{
    char path[320];
    journal_fsync = "always";
    start();
    call_create(&client, "a", "");
    call_create(&client, "b", "");
    steps("a", 0, 1);
    steps("b", 0, 2);
    serve_kill();
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    state_files_flip(path, state_files_record(path, SRV_RECORD_ROWS, 0) + 72 + 48 +
                               20); /* the row of `a` */
    start();
    ck_assert_int_eq(call_status(&client, "a"), 404);
    ck_assert_uint_eq(call_length(&client, "b", 0), 2);
    steps("b", 2, 3);
    ck_assert_uint_eq(state_files_find(path, directory, ".journal.damaged"), 1);
    char *b = call_next_bits(&client, "b");
    serve_kill();
    start();
    expect_bits("b", b);
    ck_assert_double_eq(call_metric(&client, "attnd_damaged_files_total"), 0);
    stop();
}

TEST(torn_tail_of_a_journal_is_removed)
{
    char path[320];
    struct stat journal;
    start();
    call_create(&client, "a", "");
    steps("a", 0, 3);
    serve_kill();
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    ck_assert_int_eq(stat(path, &journal), 0);
    ck_assert_int_eq(truncate(path, journal.st_size - 30), 0);
    start();
    expect_logged("cut off");
    ck_assert_uint_eq(call_length(&client, "a", 0), 2);
    ck_assert_double_eq(call_metric(&client, "attnd_damaged_files_total"), 0);
    steps("a", 2, 4);
    serve_kill();
    start();
    ck_assert_uint_eq(call_length(&client, "a", 0), 4);
    stop();
}

TEST_EACH(sessions_of_another_model_are_set_aside_and_the_daemon_starts, 2)
{
    static const char other[] =
        "{\"port\":0,\"log\":\"info\",\"models\":[{\"name\":\"tiny\",\"random\":"
        "{\"hidden_size\":16,\"num_attention_heads\":4,\"seed\":8}}]}";
    char path[320];
    durability = _i == 0 ? "journal" : "snapshot";
    start();
    call_create(&client, "a", "");
    steps("a", 0, 3);
    stop();
    start_with(other);
    ck_assert_int_eq(call_status(&client, "a"), 404);
    expect_logged("1 are of models that are not here");
    ck_assert_uint_ge(state_files_find(path, directory, ".damaged"), 1);
    call_create(&client, "a", "");
    stop();
    start_with(other);
    ck_assert_int_eq(call_status(&client, "a"), 200);
    stop();
}

TEST(sessions_that_do_not_fit_the_pool_refuse_the_start_with_figures)
{
    char own[64], path[96], *out, *err;
    start();
    call_create(&client, "a", "");
    steps("a", 0, 3);
    stop();
    config_write(own, path, CONFIG_SMALL(""));
    const char *const arguments[] = {"--config",      path,           "--state-dir",
                                     directory,       "--durability", "journal",
                                     "--cache-bytes", "1KiB",         NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, "cannot be held: there is no room") != NULL &&
                      strstr(err, "cache_bytes 1024") != NULL,
                  "%s", err);
    config_remove(own);
    free(out);
    free(err);
    start(); /* nothing was harmed */
    ck_assert_uint_eq(call_length(&client, "a", 0), 3);
    stop();
}

/* The start is refused when all files were read: damaged sessions, a torn tail and unfinished files
 * stay as they are until a start succeeds. */
TEST(start_that_is_refused_touches_nothing)
{
    char own[64], path[96], name[320], unfinished[320], *out, *err;
    struct stat before, after;
    start();
    for (unsigned i = 0; i < 3; i++) {
        const char id[] = {(char)('a' + i), '\0'};
        call_create(&client, id, "");
        steps(id, 0, 3);
    }
    call_snapshot(&client);
    steps("a", 3, 4);
    steps("b", 3, 4);
    steps("c", 3, 4);
    serve_kill();
    ck_assert_uint_eq(state_files_find(name, directory, ".blocks"), 1);
    state_files_flip(name, 400);
    ck_assert_uint_eq(state_files_find(name, directory, ".copy"), 1);
    ck_assert_int_eq(unlink(name), 0);
    snprintf(unfinished, sizeof unfinished, "%s/some.new", directory);
    close(open(unfinished, O_WRONLY | O_CREAT, 0600));
    ck_assert_uint_eq(state_files_find(name, directory, ".journal"), 1);
    ck_assert_int_eq(stat(name, &before), 0);
    ck_assert_int_eq(truncate(name, before.st_size - 30), 0);
    config_write(own, path, CONFIG_SMALL(""));
    const char *const arguments[] = {
        "--config",       path, "--state-dir", directory, "--durability", "journal",
        "--max-sessions", "1",  NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 1);
    ck_assert_msg(strstr(err, "cannot be held") != NULL, "%s", err);
    config_remove(own);
    free(out);
    free(err);
    ck_assert_int_eq(stat(name, &after), 0);
    ck_assert_int_eq(after.st_size, before.st_size - 30);
    ck_assert_int_eq(access(unfinished, F_OK), 0);
    ck_assert_uint_eq(state_files_find(name, directory, ".damaged"), 0);
    start();
    expect_logged("cut off");
    await_metric("attnd_snapshots_total", 1);
    ck_assert_uint_eq(state_files_find(name, directory, ".manifest.damaged"), 1);
    ck_assert_int_ne(access(unfinished, F_OK), 0);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_restored_total"), 2);
    stop();
}

TEST(durability_without_a_directory_is_a_wrong_configuration)
{
    char own[64], path[96], *out, *err;
    config_write(own, path, CONFIG_SMALL(""));
    const char *const arguments[] = {"--config", path, "--durability", "snapshot", NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 2);
    ck_assert_msg(strstr(err, "state_dir") != NULL, "%s", err);
    config_remove(own);
    free(out);
    free(err);
}

SUITE(durability)
