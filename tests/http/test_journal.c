/* test_journal.c: attnd journal check and salvage, on state directories that are whole, damaged or
 * in use. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"

#define IDLE 20 /* sessions */

static char directory[SCRATCH_PATH], config_directory[64], config_path[96];

static void set_up(void)
{
    scratch_make(directory);
    config_write(config_directory, config_path, CONFIG_SMALL("\"log\":\"off\","));
}

static void tear_down(void)
{
    scratch_remove(directory);
    config_remove(config_directory);
}

static void start(void)
{
    const char *const arguments[] = {
        "--state-dir", directory, "--durability", "journal", "--journal-fsync", "always", NULL};
    daemon_start(&served, CONFIG_SMALL("\"log\":\"info\","), arguments, NULL);
    client_open(&client, &served);
}

static void steps(const char *id, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        expect_decode(&client, id, i, i);
}

static void steps_of_new(const char *id, unsigned count)
{
    call_create(&client, id, "");
    steps(id, 0, count);
}

/* Runs `attnd journal VERB DIR`, which must end with the status and print or complain so. */
static void expect_journal(const char *verb, int status, const char *out, const char *err)
{
    char *got_out, *got_err;
    const char *const arguments[] = {"journal",   verb,
                                     directory,   strcmp(verb, "salvage") == 0 ? "--config" : NULL,
                                     config_path, NULL};
    int got = process_run(&got_out, &got_err, arguments, NULL);
    ck_assert_msg(got == status && strstr(got_out, out) != NULL && strstr(got_err, err) != NULL,
                  "journal %s: status %d, not %d: \"%s\" \"%s\"", verb, got, status, got_out,
                  got_err);
    free(got_out);
    free(got_err);
}

/* Imports the only file of "salvaged" as a session of that id. */
static void import_salvaged(const char *id)
{
    static char bytes[1 << 16];
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    char path[400], target[96], salvaged[96];
    snprintf(salvaged, sizeof salvaged, "%s/salvaged", directory);
    ck_assert_uint_eq(state_files_find(path, salvaged, ".safetensors"), 1);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    snprintf(target, sizeof target, "/sessions/%s/state", id);
    struct answer answer = client_send(
        &client, &(struct request){"PUT", target, bytes, .length = length, .headers = type});
    expect_answer(&answer, 201, NULL, target);
    answer_free(&answer);
}

CASE(journal, set_up, tear_down, 0)

TEST(a_whole_directory_is_said_to_be_whole)
{
    start();
    steps_of_new("a", 3);
    serve_end();
    expect_journal("check", 0, ".journal: sound: ", "");
    expect_journal("check", 0, "1 create, 3 rows", "");
    expect_journal("check", 0, "identity: sound: instance test, generation ", "");
    expect_journal("check", 0, "2 files, 0 damaged; 0 were set aside\n", "");
    start();
    struct answer answer = client_post(&client, "/snapshot", "");
    answer_free(&answer);
    serve_end(); /* writes the snapshot first */
    expect_journal("salvage", 0, "a start serves 1 sessions; 0 others were saved", "");
}

TEST(a_directory_in_use_and_what_is_none_are_refused)
{
    static const char *const unknown[] = {"journal", "mend", "/tmp", NULL};
    char *out, *err;
    start();
    expect_journal("check", 1, "", "a running attnd uses it");
    expect_journal("salvage", 1, "", "another attnd uses it");
    serve_end();
    ck_assert_int_eq(process_run(&out, &err, unknown, NULL), 2);
    ck_assert_ptr_nonnull(strstr(err, "journal: usage: attnd journal check DIR"));
    free(out);
    free(err);
}

/* Runs attnd over the directory with this flag more (NULL: none), which must end with 1. */
static void expect_refused_start(const char *flag, const char *complaint)
{
    char *out, *err;
    const char *const arguments[] = {"--config",     config_path, "--state-dir", directory,
                                     "--durability", "journal",   flag,          NULL};
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 1 && strstr(err, complaint) != NULL && strchr(err, '\n')[1] == '\0',
                  "%d: %s", status, err);
    free(out);
    free(err);
}

/* Adds a member `version` to the identity; or has it as it was, whose text *kept is. */
static void write_identity(char kept[128], bool later)
{
    char path[96], text[160];
    snprintf(path, sizeof path, "%s/identity", directory);
    FILE *file = fopen(path, later ? "r" : "w");
    ck_assert_ptr_nonnull(file);
    if (later) {
        ck_assert_ptr_nonnull(fgets(kept, 128, file));
        file = freopen(path, "w", file);
    }
    snprintf(text, sizeof text, later ? "{\"version\":2,%s" : "%s", kept + later);
    ck_assert(fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Of a later build, whose directory is not this one's to read, let alone to clear.  (Journals
 * and manifests: tests/unit/test_versions.c.) */
TEST(a_file_of_a_later_version_refuses_the_start_and_keeps_every_session)
{
    char path[320], kept[128];
    const char *const suffixes[] = {".damaged", ".manifest", ".blocks", ".new"};
    start();
    steps_of_new("a", 3);
    serve_end();
    write_identity(kept, true);
    expect_refused_start(NULL, "identity is of version 2, and this build of attnd reads ");
    expect_refused_start("--check", "start the build that wrote it;");
    expect_journal("check", 1, "identity: of another version: version 2", "");
    expect_journal("check", 1, "1 are of another version: start the build", "");
    expect_journal("salvage", 1, "", "; no file was changed");
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    for (size_t i = 0; i < COUNT(suffixes); i++)
        ck_assert_uint_eq(state_files_find(path, directory, suffixes[i]), 0);
    write_identity(kept, false);
    start();
    ck_assert_uint_eq(call_length(&client, "a", 0), 3);
    serve_end();
}

TEST(a_lost_session_is_salvaged_as_it_was_before_the_damage)
{
    char path[320];
    start();
    steps_of_new("b", 2);
    steps_of_new("a", 2);
    char *before = call_next_bits(&client, "a");
    steps("a", 2, 5);
    serve_end();
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    state_files_flip(path, state_files_record(path, SRV_RECORD_ROWS, 4) + SRV_RECORD_HEAD + 8);
    expect_journal("check", 1, ".journal: damaged: ", "");
    expect_journal("salvage", 0, "session a of model tiny, 2 tokens\n", "");
    expect_journal("check", 1, ".journal.damaged: damaged: ", "");
    start();
    ck_assert_int_eq(call_status(&client, "a"), 404);
    ck_assert_uint_eq(call_length(&client, "b", 0), 2);
    import_salvaged("again");
    char *after = call_next_bits(&client, "again");
    ck_assert_str_eq(after, before);
    free(before);
    free(after);
    serve_end();
}

TEST(the_file_of_a_lost_session_is_kept_for_salvage)
{
    char path[320];
    start();
    steps_of_new("b", 2);
    steps_of_new("a", 4);
    call_snapshot(&client);
    steps("a", 4, 6);
    steps("b", 2, 3);
    serve_end();
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    state_files_flip(path, state_files_record(path, SRV_RECORD_ROWS, 0) + SRV_RECORD_HEAD + 8);
    expect_journal("salvage", 0, "session a of model tiny, 4 tokens\n", "");
    expect_journal("salvage", 0, "a start serves 1 sessions; 1 others were saved, 0 could", "");
}

static void prefill(const char *id, unsigned seed, size_t n)
{
    struct answer answer = call_prefill(&client, id, seed, n, "");
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
}

/* The second of two blocks: a session is saved up to there. */
TEST(a_damaged_block_is_found_and_its_session_is_saved_before_it)
{
    char path[320];
    start();
    call_create(&client, "a", "");
    prefill("a", 1, 64);
    char *before = call_next_bits(&client, "a");
    prefill("a", 2, 6);
    call_snapshot(&client);
    serve_end();
    ck_assert_uint_eq(state_files_find(path, directory, ".blocks"), 1);
    state_files_flip(path, 4096 + 100);
    expect_journal("check", 1, ": lost: its record or a block of it is damaged or missing\n", "");
    expect_journal("check", 1, "a start serves 0 sessions; 0 have expired, 1 are lost\n", "");
    expect_journal("salvage", 0, "session a of model tiny, 64 tokens\n", "");
    expect_journal("salvage", 0, "a start serves 0 sessions; 1 others were saved, 0 could", "");
    start();
    ck_assert_int_eq(call_status(&client, "a"), 404);
    import_salvaged("again");
    char *after = call_next_bits(&client, "again");
    ck_assert_str_eq(after, before);
    free(before);
    free(after);
    serve_end();
}

TEST(damage_to_a_manifest_is_found)
{
    static const char *const copies[] = {".manifest", ".copy"};
    char path[320], words[32];
    start();
    steps_of_new("a", 4);
    call_snapshot(&client);
    serve_end();
    expect_journal("check", 0, ".manifest: sound: 2 records, 1 session, 1 moment\n", "");
    expect_journal("check", 0, ".blocks: sound: ", "");
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(state_files_find(path, directory, copies[i]), 1);
        state_files_flip(path, state_files_record(path, SRV_RECORD_SESSION, 0) + SRV_RECORD_HEAD);
        snprintf(words, sizeof words, "%s: damaged: ", copies[i]);
        expect_journal("check", 1, words, "");
        expect_journal("check", 1, i == 0 ? "a start serves 1 s" : "a start serves 0 s", "");
    }
}

TEST(files_that_are_missing_are_found)
{
    char path[320];
    start();
    steps_of_new("a", 3);
    call_snapshot(&client);
    steps("a", 3, 4);
    serve_end();
    start();
    steps("a", 4, 5);
    serve_end();
    expect_journal("check", 0, "0 damaged", "");
    ck_assert_uint_eq(state_files_find(path, directory, "2.journal"), 1);
    ck_assert_int_eq(truncate(path, SRV_JOURNAL_HEAD), 0);
    expect_journal("check", 1, "records are missing at the end of the journal before it", "");
    ck_assert_uint_eq(state_files_find(path, directory, ".blocks"), 1);
    ck_assert_int_eq(unlink(path), 0);
    expect_journal("check", 1, ": lost: its record or a block of it is damaged or missing\n", "");
}

/* ---- Copies of a directory in use ------------------------------------------------------------ */

/* Copies the files of the directory that match, one after the other, with a step of "a" before
 * each; the copy becomes the directory.  Returns the length of "a". */
static unsigned copy_files(const char *listed, unsigned length)
{
    char command[256], line[128], copy[SCRATCH_PATH];
    scratch_make(copy);
    snprintf(command, sizeof command, "cd %s && ls %s", directory, listed);
    FILE *names = popen(command, "r");
    ck_assert_ptr_nonnull(names);
    while (fgets(line, sizeof line, names) != NULL) {
        steps("a", length, length + 1);
        length++;
        line[strcspn(line, "\n")] = '\0';
        snprintf(command, sizeof command, "cp %s/%s %s", directory, line, copy);
        ck_assert_int_eq(system(command), 0);
    }
    pclose(names);
    serve_end();
    scratch_remove(directory);
    snprintf(directory, sizeof directory, "%s", copy);
    return length;
}

static void begin_to_copy(void)
{
    start();
    steps_of_new("b", 2);
    steps_of_new("a", 3);
    call_snapshot(&client);
}

/* As OPERATIONS has it for a directory in which no snapshot ends meanwhile. */
TEST_EACH(a_copy_of_a_directory_in_use_is_sound_in_any_order, 2)
{
    static const char *const orders[] = {"", "-r"};
    begin_to_copy();
    unsigned length = copy_files(orders[_i], 3);
    expect_journal("check", 0, "a start serves 2 sessions; 0 have expired, 0 are lost\n", "");
    start();
    ck_assert_uint_eq(call_length(&client, "b", 0), 2);
    size_t copied = call_length(&client, "a", 0);
    ck_assert(copied > 3 && copied <= length);
    serve_end();
}

TEST(a_copy_from_which_a_start_would_lose_sessions_is_not_sound)
{
    begin_to_copy();
    (void)copy_files("identity *.journal", 3);
    expect_journal("check", 1, "a start serves 0 sessions; 0 have expired, 2 are lost\n", "");
    expect_journal("check", 1, ": lost: records are missing that may be its own\n", "");
}

/* Of many sessions, after a journal of which marks still speak: each copy of the manifest has
 * damage, and no record is damaged in both. */
TEST(damage_to_both_copies_costs_no_session_that_one_of_them_has)
{
    char path[320], id[8];
    start();
    for (unsigned i = 0; i < IDLE; i++) {
        snprintf(id, sizeof id, "s%u", i);
        steps_of_new(id, 1);
    }
    steps_of_new("long", 1);
    for (unsigned i = 0; i < 12; i++) /* 1 MiB */
        prefill("long", i, 500);
    call_snapshot(&client);
    steps("s0", 1, 2);
    serve_end();
    ck_assert_uint_eq(state_files_find(path, directory, ".manifest"), 1);
    state_files_flip(path, 20);
    for (size_t i = 0; i < IDLE; i += 2)
        state_files_flip(path, state_files_record(path, SRV_RECORD_SESSION, i) + 100);
    ck_assert_uint_eq(state_files_find(path, directory, ".copy"), 1);
    for (size_t i = 1; i < IDLE; i += 2)
        state_files_flip(path, state_files_record(path, SRV_RECORD_SESSION, i) + 100);
    start();
    for (unsigned i = 0; i < IDLE; i++) {
        snprintf(id, sizeof id, "s%u", i);
        ck_assert_msg(call_status(&client, id) == 200, "%s is lost", id);
    }
    serve_end();
}

SUITE(journal)
