/* test_blocks.c: sessions whose blocks stand in files of blocks, which a manifest and its copy
 * name: bits over snapshots and starts, what damage to each file costs, and files of older
 * builds. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"

#define SLOT 4096 /* bytes of 64 tokens in a layer of `tiny`, and of their slot */

static char directory[SCRATCH_PATH];
static const char *durability;

static void set_up(void)
{
    scratch_make(directory);
    durability = "journal";
}

static void tear_down(void) { scratch_remove(directory); }

/* ---- Helpers --------------------------------------------------------------------------------- */

static void start_with(const char *config)
{
    const char *const arguments[] = {"--state-dir", directory, "--durability", durability, NULL};
    daemon_start(&served, config, arguments, NULL);
    client_open(&client, &served);
}

static void start(void) { start_with(CONFIG_SMALL("\"log\":\"info\",")); }

static void shell(const char *line)
{
    char command[2 * SCRATCH_PATH];
    snprintf(command, sizeof command, "cd %s && %s", directory, line);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* Appends n rows to layer 0. */
static void append(const char *id, unsigned seed, size_t n)
{
    struct answer answer = call_decode_rows(&client, id, seed, n, "");
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
}

static void make(const char *id, size_t rows)
{
    call_create(&client, id, "");
    append(id, (unsigned)id[0], rows);
}

static void await_snapshots(double count)
{
    for (unsigned waited = 0; call_metric(&client, "attnd_snapshots_total") < count; waited += 10) {
        ck_assert_uint_lt(waited, 60000);
        pause_ms(10);
    }
}

static void await_read(void)
{
    for (unsigned waited = 0; call_metric(&client, "attnd_sessions_restoring") > 0; waited += 10) {
        ck_assert_uint_lt(waited, 60000);
        pause_ms(10);
    }
}

static void expect_count(const char *metric, double count)
{
    double found = call_metric(&client, metric);
    ck_assert_msg(found == count, "%s: %g, not %g", metric, found, count);
}

/* The bits of the next step of each of the sessions "a", "b", ... */
static void note_bits(char *bits[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        bits[i] = call_next_bits(&client, (const char[]){(char)('a' + i), '\0'});
}

static void expect_bits(char *const bits[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *again = call_next_bits(&client, (const char[]){(char)('a' + i), '\0'});
        ck_assert_msg(strcmp(again, bits[i]) == 0, "session %c", (int)('a' + i));
        free(again);
    }
}

static void free_bits(char *bits[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(bits[i]);
}

/* Notes what files of blocks have, and expects that these still have it: a manifest that was set
 * aside names them. */
static void note_blocks(void) { shell("cksum *.blocks > sums"); }

static void expect_blocks(void) { shell("cksum $(cut -d ' ' -f 3 sums) | cmp - sums"); }

/* The path of the only file of the directory whose name ends so. */
static void find(char path[320], const char *suffix)
{
    ck_assert_uint_eq(state_files_find(path, directory, suffix), 1);
}

/* Changes a bit of record i of a copy of the manifest, among those that are sessions. */
static void damage_session(const char *suffix, size_t i)
{
    char path[320];
    find(path, suffix);
    state_files_flip(path, state_files_record(path, SRV_RECORD_SESSION, i) + SRV_RECORD_HEAD + 9);
}

/* ---- Bits ------------------------------------------------------------------------------------ */

#define MODEL(dtype, more)                                                                     \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"log\":\"error\",\"memory_limit\":\"64GiB\",\"models" \
    "\":[{\"name\":\"tiny\"," dtype "\"random\":{\"hidden_size\":16,\"num_attention_heads\":4" \
    ",\"num_hidden_layers\":2,\"rope_theta\":10000,\"is_causal\":true,\"seed\":7" more "}}]}"
#define WINDOW 2 /* index of the model with a window, of which truncation may not go far back */

static const char *const models[] = {
    MODEL("", ""),
    MODEL("\"kv_dtype\":\"int8\",", ",\"num_key_value_heads\":2"),
    MODEL("", ",\"sliding_window\":8"),
    MODEL("\"kv_dtype\":\"bf16\",",
          ",\"kv_lora_rank\":10,\"q_lora_rank\":12,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"
          "\"value_head_dim\":5"),
};

static void append_to_both(const char *id, unsigned seed, size_t n)
{
    append(id, seed, n);
    struct answer answer = call_decode_rows(&client, id, seed + 1, n, ",\"layer\":1");
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
}

static void truncate_to(const char *id, unsigned length)
{
    char path[64], body[32];
    snprintf(path, sizeof path, "/sessions/%s/truncate", id);
    snprintf(body, sizeof body, "{\"length\":%u}", length);
    expect_posted(&client, path, body, 200, NULL);
}

static void import_as(const char *id, const char *from)
{
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s/state", from);
    struct answer state = client_get(&client, path);
    expect_answer(&state, 200, NULL, path);
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    struct answer put =
        client_send(&client, &(struct request){"PUT", path, state.text, .length = state.length,
                                               .headers = type});
    expect_answer(&put, 201, NULL, path);
    answer_free(&put);
    answer_free(&state);
}

/* Sessions that grow, shrink, fork and end between three snapshots and after the last. */
static void make_history(bool window)
{
    call_create(&client, "a", "");
    append_to_both("a", 1, 150);
    call_fork(&client, "a", "b", "");
    call_create(&client, "c", "");
    append_to_both("c", 2, 64);
    call_create(&client, "ended", "");
    append_to_both("ended", 3, 70);
    call_snapshot(&client);
    append_to_both("a", 4, 100);
    truncate_to("b", 145);
    append_to_both("b", 5, 5); /* other rows, and as many as the snapshot has */
    call_delete(&client, "ended");
    call_fork(&client, "a", "d", ",\"length\":250");
    call_snapshot(&client);
    truncate_to("a", window ? 248 : 70);
    append_to_both("a", 6, 2);
    append_to_both("d", 7, 30);
    import_as("f", "d");
    call_snapshot(&client);
    append_to_both("a", 8, 3);
    call_fork(&client, "b", "e", ",\"length\":148");
    truncate_to("d", 279);
    append_to_both("e", 9, 1);
    import_as("g", "a");
}

#define LIVING 7 /* sessions, "a" to "g" */

/* All that the files of the sessions' states say: every layer, bit by bit. */
static void note_states(struct answer states[LIVING])
{
    char path[] = "/sessions/a/state";
    for (size_t i = 0; i < LIVING; i++, path[10]++) {
        states[i] = client_get(&client, path);
        expect_answer(&states[i], 200, NULL, path);
    }
}

static void expect_states(const struct answer want[LIVING])
{
    struct answer got[LIVING];
    note_states(got);
    for (size_t i = 0; i < LIVING; i++) {
        ck_assert_msg(got[i].length == want[i].length &&
                          memcmp(got[i].text, want[i].text, got[i].length) == 0,
                      "session %c differs", (int)('a' + i));
        answer_free(&got[i]);
    }
}

CASE(blocks, set_up, tear_down, 0)

TEST_EACH(snapshots_and_the_journal_after_them_give_every_bit_back, (int)COUNT(models))
{
    struct answer states[LIVING];
    char *bits[LIVING];
    start_with(models[_i]);
    make_history(_i == WINDOW);
    note_states(states);
    note_bits(bits, LIVING);
    serve_kill();
    for (unsigned again = 0; again < 3; again++) {
        start_with(models[_i]);
        expect_states(states);
        expect_bits(bits, LIVING);
        ck_assert_int_eq(call_status(&client, "ended"), 404);
        if (again == 0)
            call_snapshot(&client);
        if (again == 1)
            serve_end();
        else
            serve_kill();
    }
    for (size_t i = 0; i < LIVING; i++)
        answer_free(&states[i]);
    free_bits(bits, LIVING);
}

/* ---- Damaged blocks -------------------------------------------------------------------------- */

#define SHARING 5 /* sessions, "a" to "e" */
#define BLOCKS 6  /* of all of them together */

/* A prompt of three blocks with two forks of all of it, one of its first block, and another; notes
 * their bits before they share the last block, which a step would take apart. */
static void make_family(char *bits[SHARING])
{
    make("a", 130);
    for (size_t i = 0; i < 3; i++)
        bits[i] = call_next_bits(&client, "a");
    call_fork(&client, "a", "b", "");
    call_fork(&client, "a", "c", "");
    call_fork(&client, "a", "d", ",\"length\":64");
    append("d", 4, 3);
    make("e", 70);
    bits[3] = call_next_bits(&client, "d");
    bits[4] = call_next_bits(&client, "e");
}

/* Starts over a damaged block; returns which sessions are lost, as their ids.  Those and no others
 * are reported. */
static const char *start_and_lose(char out[SHARING + 1], char *bits[SHARING])
{
    size_t lost = 0;
    start();
    await_read();
    for (size_t i = 0; i < SHARING; i++) {
        const char id[] = {(char)('a' + i), '\0'};
        char words[64];
        if (call_status(&client, id) == 404) {
            snprintf(words, sizeof words, "session %s, layer 0: a block is damaged", id);
            free(daemon_log_with(&served, words));
            out[lost++] = id[0];
            continue;
        }
        char *again = call_next_bits(&client, id);
        ck_assert_str_eq(again, bits[i]);
        free(again);
    }
    out[lost] = '\0';
    expect_count("attnd_sessions_lost_total", (double)lost);
    expect_count("attnd_damaged_files_total", (double)lost);
    expect_count("attnd_sessions_restored_total", (double)(SHARING - lost));
    return out;
}

TEST_EACH(damaged_block_costs_the_sessions_that_have_it_and_no_others, 2)
{
    char path[320], lost[SHARING + 1], *bits[SHARING];
    unsigned first = 0, later = 0, of_fork = 0, of_other = 0;
    durability = _i == 0 ? "journal" : "snapshot";
    start();
    make_family(bits);
    call_snapshot(&client);
    serve_end();
    shell("mkdir kept && cp -a *.* identity kept");
    for (size_t block = 0; block < BLOCKS; block++) {
        find(path, ".blocks");
        state_files_flip(path, (off_t)(block * SLOT) + 200);
        note_blocks();
        start_and_lose(lost, bits);
        first += strcmp(lost, "abcd") == 0;
        later += strcmp(lost, "abc") == 0;
        of_fork += strcmp(lost, "d") == 0;
        of_other += strcmp(lost, "e") == 0;
        await_snapshots(1); /* a new manifest, which names no damaged block */
        ck_assert_uint_eq(state_files_find(path, directory, ".manifest.damaged"), 1);
        ck_assert_uint_eq(state_files_find(path, directory, ".copy.damaged"), 1);
        serve_kill();
        start();
        await_read();
        expect_count("attnd_sessions_restored_total", (double)(SHARING - strlen(lost)));
        expect_count("attnd_damaged_files_total", 0);
        make("new", 200);
        call_snapshot(&client);
        expect_blocks();
        serve_end();
        shell("rm -f *.* identity && cp -a kept/* .");
    }
    ck_assert_msg(first == 1 && later == 2 && of_fork == 1 && of_other == 2, "%u %u %u %u", first,
                  later, of_fork, of_other);
    free_bits(bits, SHARING);
}

TEST(missing_file_of_blocks_costs_the_sessions_that_have_it)
{
    start();
    make("a", 70);
    call_create(&client, "empty", "");
    call_snapshot(&client);
    make("b", 3);
    char *bits = call_next_bits(&client, "b");
    serve_end();
    shell("rm *.blocks");
    start();
    free(daemon_log_with(&served, "cannot be restored: a slot is not there"));
    for (unsigned again = 0; again < 2; again++) {
        ck_assert_int_eq(call_status(&client, "a"), 404);
        ck_assert_uint_eq(call_length(&client, "empty", 0), 0);
        char *got = call_next_bits(&client, "b");
        ck_assert_str_eq(got, bits);
        free(got);
        expect_count("attnd_sessions_lost_total", again == 0);
        serve_kill();
        start();
    }
    serve_end();
    free(bits);
}

/* ---- Damaged manifests ----------------------------------------------------------------------- */

/* Two sessions with a snapshot, and a row of the first after it. */
static void make_pair(void)
{
    start();
    make("a", 70);
    make("b", 3);
    call_snapshot(&client);
    append("a", 5, 1);
}

static void damage_manifest(void) { damage_session(".manifest", 0); }

static void damage_copy(void) { damage_session(".copy", 1); }

static void damage_each(void)
{
    damage_manifest();
    damage_copy();
}

static void remove_manifest(void) { shell("rm *.manifest"); }

static void remove_copy(void) { shell("rm *.copy"); }

static void empty_manifest(void) { shell("truncate -s 0 *.manifest"); }

static void (*const harms[])(void) = {damage_manifest, damage_copy, damage_each,
                                      remove_manifest, remove_copy, empty_manifest};
#define NUM_HARMS ((int)COUNT(harms))

TEST_EACH(each_record_of_the_manifest_may_be_damaged_in_one_copy, NUM_HARMS)
{
    char path[320], *bits[2];
    make_pair();
    note_bits(bits, 2);
    serve_end();
    harms[_i]();
    start();
    free(daemon_log_with(&served, " and its copy differ in "));
    expect_bits(bits, 2);
    expect_count("attnd_damaged_files_total", 0);
    expect_count("attnd_sessions_lost_total", 0);
    await_snapshots(1);
    shell("cmp *.manifest *.copy");
    ck_assert_uint_eq(state_files_find(path, directory, ".damaged"), 0);
    serve_kill();
    start();
    expect_bits(bits, 2);
    serve_end();
    free_bits(bits, 2);
}

TEST(record_damaged_in_both_copies_costs_its_session)
{
    char path[320], *bits[2];
    make_pair();
    note_bits(bits, 2);
    serve_end();
    damage_session(".manifest", 0);
    damage_session(".copy", 0);
    start();
    ck_assert_int_eq(call_status(&client, "a"), 404);
    char *again = call_next_bits(&client, "b");
    ck_assert_str_eq(again, bits[1]);
    free(again);
    expect_count("attnd_sessions_lost_total", 1);
    expect_count("attnd_damaged_files_total", 1);
    ck_assert_uint_eq(state_files_find(path, directory, ".manifest.damaged"), 1);
    serve_kill();
    start();
    expect_count("attnd_sessions", 1);
    expect_count("attnd_damaged_files_total", 0);
    serve_end();
    free_bits(bits, 2);
}

/* Sessions that the journal has from their beginning are there, and the others are set aside with
 * the manifest: their blocks stay as they are over later starts. */
TEST(manifest_of_which_nothing_is_left_costs_what_it_alone_has)
{
    char path[320], *bits;
    make_pair();
    make("c", 70);
    bits = call_next_bits(&client, "c");
    serve_end();
    note_blocks();
    shell("truncate -s 20 *.manifest *.copy");
    start();
    free(daemon_log_with(&served, ".manifest will be set aside: it says of no moment what is"));
    for (unsigned again = 0; again < 2; again++) {
        ck_assert_int_eq(call_status(&client, "a"), 404);
        ck_assert_int_eq(call_status(&client, "b"), 404);
        char *got = call_next_bits(&client, "c");
        ck_assert_str_eq(got, bits);
        free(got);
        expect_count("attnd_damaged_files_total", again == 0 ? 2 : 0);
        make(again == 0 ? "d" : "e", 100);
        call_snapshot(&client);
        serve_kill();
        expect_blocks();
        start();
    }
    ck_assert_uint_eq(call_length(&client, "d", 0), 100);
    ck_assert_uint_eq(call_length(&client, "e", 0), 100);
    ck_assert_uint_eq(state_files_find(path, directory, ".manifest.damaged"), 1);
    ck_assert_uint_eq(state_files_find(path, directory, ".copy.damaged"), 1);
    serve_end();
    free(bits);
}

/* ---- Files in use ---------------------------------------------------------------------------- */

TEST_EACH(file_that_is_removed_in_use_is_noticed_and_written_anew, 4)
{
    static const char *const suffixes[] = {".blocks", ".manifest", ".copy", ".journal"};
    char path[320], line[320], *bits[2];
    make_pair();
    const double made = call_metric(&client, "attnd_snapshots_total");
    find(path, suffixes[_i]);
    ck_assert_int_eq(unlink(path), 0);
    snprintf(line, sizeof line, "%s was removed while attnd uses the directory: changes are",
             _i < 3 ? strrchr(path, '/') + 1 : suffixes[_i]);
    free(daemon_log_with(&served, line));
    await_snapshots(made + 1);
    for (size_t i = 0; i < COUNT(suffixes); i++)
        ck_assert_uint_ge(state_files_find(path, directory, suffixes[i]), 1);
    append("b", 6, 2);
    note_bits(bits, 2);
    serve_kill();
    start();
    expect_bits(bits, 2);
    expect_count("attnd_damaged_files_total", 0);
    serve_end();
    free_bits(bits, 2);
}

/* A step that appends nothing is in no journal: the manifest has when a session was last used. */
TEST(last_use_by_reading_alone_outlives_a_restart)
{
    start();
    call_create(&client, "idle", ",\"ttl_s\":4");
    call_create(&client, "read", ",\"ttl_s\":4");
    append("idle", 1, 3);
    append("read", 1, 3);
    call_snapshot(&client);
    pause_ms(2500);
    free(call_next_bits(&client, "read"));
    call_snapshot(&client);
    serve_kill();
    start();
    ck_assert_int_eq(call_status(&client, "idle"), 200);
    for (unsigned waited = 0; call_status(&client, "idle") != 404; waited += 20) {
        ck_assert_uint_lt(waited, 20000);
        pause_ms(20);
    }
    pause_ms(1200); /* of the 2.5 s: without them both would have ended together */
    ck_assert_int_eq(call_status(&client, "read"), 200);
    serve_end();
}

/* ---- Files of older builds ------------------------------------------------------------------- */

static void add_base(void) { shell("echo base > 0000000000000001.base"); }

static void add_session_file(void)
{
    shell("echo session > 0123456789abcdef-0000000000000001.session");
}

/* Makes the journal one of the version before, whose head is sound. */
static void age_journal(void)
{
    unsigned char head[SRV_JOURNAL_HEAD];
    char path[320];
    find(path, ".journal");
    FILE *file = fopen(path, "r+");
    ck_assert(file != NULL && fread(head, 1, sizeof head, file) == sizeof head);
    ck_assert_uint_eq(head[16], SRV_JOURNAL_VERSION);
    head[16] = 5;
    const uint64_t sum = XXH3_64bits(head, sizeof head - sizeof sum);
    memcpy(head + sizeof head - sizeof sum, &sum, sizeof sum);
    rewind(file);
    ck_assert_uint_eq(fwrite(head, 1, sizeof head, file), sizeof head);
    ck_assert_int_eq(fclose(file), 0);
}

/* Runs attnd, which must refuse the directory for a file of an older build. */
static void expect_former(const char *const arguments[], const char *words)
{
    char *out, *err;
    const int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 1 && (strstr(err, words) != NULL || strstr(out, words) != NULL),
                  "%d: %s%s", status, out, err);
    free(out);
    free(err);
}

TEST_EACH(directory_of_an_older_build_is_refused_and_not_touched, 3)
{
    static void (*const files[])(void) = {add_base, add_session_file, age_journal};
    static const char list[] = "find . -type f ! -name 'list*' -printf '%%f %%s %%i %%T@ ' "
                               "-exec cksum {} ';' | sort > list%d";
    char own[64], config[96], line[160];
    make_pair();
    serve_kill();
    files[_i]();
    config_write(own, config, CONFIG_SMALL(""));
    snprintf(line, sizeof line, list, 0);
    shell(line);
    const char *const words = "start the build that wrote ";
    expect_former((const char *const[]){"--config", config, "--state-dir", directory,
                                        "--durability", "journal", NULL},
                  words);
    expect_former((const char *const[]){"--config", config, "--state-dir", directory,
                                        "--durability", "journal", "--check", NULL},
                  words);
    expect_former((const char *const[]){"journal", "check", directory, NULL}, words);
    expect_former((const char *const[]){"journal", "salvage", directory, "--config", config, NULL},
                  words);
    snprintf(line, sizeof line, list, 1);
    shell(line);
    shell("cmp list0 list1");
    config_remove(own);
}

SUITE(blocks)
