/* test_record.c: the rows that a recorder gets make the same cache again, and steps that it refuses
 * leave no trace; and records as bytes. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn_state.h"
#include "bytes_source.h"
#include "opened.h"
#include "rng.h"
#include "store/journal.h"
#include "store/marks.h"
#include "store/record.h"
#include "suites.h"

#define TOKENS 70
#define WIDTH 16
#define GROUPS 2
#define HEAD 4

/* ---- Recorders ------------------------------------------------------------------------------- */

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_model *model;
static struct attn_error error;

static void open_model(enum attn_dtype kv_dtype)
{
    static const char config[] = "{\"hidden_size\":16,\"num_attention_heads\":4,"
                                 "\"num_key_value_heads\":2,\"rope_theta\":10000,\"seed\":7}";
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    model = opened_random(config, &options);
}

static void close_model(void)
{
    attn_model_close(model);
    free_unused_pool(pool);
    attn_engine_close(engine);
}

static struct attn_cache *new_cache(void)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 256, &error), ATTN_OK);
    return cache;
}

/* Appends the rows of a step to another cache. */
static bool copy_rows(void *context, const struct attn_appended list[], size_t count,
                      struct attn_error *cause)
{
    ck_assert_uint_eq(count, 1);
    for (size_t i = 0; i < list[0].step->rows; i++)
        ck_assert_int_eq(attn_cache_write(context, 0, 1, list[0].key + i * GROUPS * HEAD,
                                          list[0].value + i * GROUPS * HEAD, cause),
                         ATTN_OK);
    return true;
}

static bool refuse_rows(void *context, const struct attn_appended list[], size_t count,
                        struct attn_error *cause)
{
    size_t *shown = context;
    *shown += count;
    for (size_t i = 0; i < count; i++)
        ck_assert_ptr_nonnull(list[i].key);
    snprintf(cause->message, sizeof cause->message, "no room");
    return false;
}

static struct attn_step step_of(struct attn_cache *cache, const float *rows, size_t n, float *out)
{
    return (struct attn_step){.cache = cache,
                              .position = attn_cache_length(cache, 0),
                              .rows = n,
                              .hidden_states = rows,
                              .outputs = {.output = out},
                              .commit = true};
}

TEST_EACH(recorded_rows_make_the_same_cache_again_bit_for_bit, 4)
{
    open_model((enum attn_dtype)_i);
    struct rng r = rng_seeded(3);
    struct attn_cache *first = new_cache(), *second = new_cache();
    const struct attn_recorder recorder = {copy_rows, second};
    float *rows = rng_floats(&r, TOKENS * WIDTH, 2), out[TOKENS * WIDTH];
    float kept[2][2 * TOKENS * GROUPS * HEAD];
    for (size_t at = 0, n; at < TOKENS; at += n) {
        n = at == 0 ? 66 : 1;
        struct attn_step step = step_of(first, rows + at * WIDTH, n, out), *steps[] = {&step};
        ck_assert_int_eq(attn_decode_recorded(engine, model, 0, steps, 1, &recorder), ATTN_OK);
        ck_assert_int_eq(step.error.status, ATTN_OK);
    }
    ck_assert_uint_eq(attn_cache_length(second, 0), TOKENS);
    attn_cache_read(kept[0], kept[0] + TOKENS * GROUPS * HEAD, first, 0, TOKENS);
    attn_cache_read(kept[1], kept[1] + TOKENS * GROUPS * HEAD, second, 0, TOKENS);
    ck_assert_mem_eq(kept[0], kept[1], sizeof kept[0]);
    free(rows);
    attn_cache_free(first);
    attn_cache_free(second);
    close_model();
}

TEST(refused_steps_fail_and_leave_no_trace_while_others_succeed)
{
    open_model(ATTN_F32);
    struct rng r = rng_seeded(3);
    float *rows = rng_floats(&r, 4 * WIDTH, 2), out[3][WIDTH];
    struct attn_cache *caches[] = {new_cache(), new_cache(), new_cache()};
    struct attn_step steps[3], *list[3];
    size_t shown = 0;
    for (size_t i = 0; i < 3; i++) {
        steps[i] = step_of(caches[i], rows, 1, out[i]);
        list[i] = &steps[i];
    }
    ck_assert_int_eq(attn_decode(engine, model, 0, list, 3), ATTN_OK);
    size_t used = attn_cache_pool_used(pool);
    for (size_t i = 0; i < 3; i++)
        steps[i] = step_of(caches[i], rows + WIDTH, 1, out[i]);
    steps[1].commit = false;
    steps[2].position = 0; /* a repeat, which appends nothing */
    steps[2].hidden_states = rows;
    const struct attn_recorder recorder = {refuse_rows, &shown};
    ck_assert_int_eq(attn_decode_recorded(engine, model, 0, list, 3, &recorder), ATTN_OK);
    ck_assert_uint_eq(shown, 1);
    ck_assert_int_eq(steps[0].error.status, ATTN_IO);
    ck_assert_str_eq(steps[0].error.message, "no room");
    ck_assert_int_eq(steps[1].error.status, ATTN_OK);
    ck_assert_int_eq(steps[2].error.status, ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(attn_cache_length(caches[i], 0), 1);
        attn_cache_free(caches[i]);
    }
    free(rows);
    close_model();
}

/* ---- Journals -------------------------------------------------------------------------------- */

#define RECORDS 7
#define LARGE 600001 /* floats of a record that fits no buffer */

static const float numbers[LARGE] = {1, 2, 3};

static struct srv_journal journal;
static struct srv_file_reader file;
static struct srv_journal_reader reader;
static struct srv_record record;

static void open_journal(void)
{
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 9));
    journal.older_synced = true;
}

static void close_journal(void)
{
    srv_file_reader_close(&file);
    srv_journal_close(&journal);
}

static void add(uint64_t i, size_t floats)
{
    struct srv_record_head head = {.type = SRV_RECORD_ROWS, .epoch = i, .chain = i};
    const struct srv_record_part parts[] = {{&i, sizeof i}, {numbers, floats * sizeof *numbers}};
    srv_journal_add(&journal, &head, parts, 2);
}

/* Reads the file from its beginning, through that window. */
static void open_file(size_t window)
{
    ck_assert(srv_file_reader_take(&file, dup(journal.fd)));
    ck_assert_uint_eq(file.size, journal.length);
    file.room = window;
    srv_journal_read_open(&reader, &file, 9);
}

static void expect(enum srv_reading reading)
{
    ck_assert_int_eq(srv_journal_read(&record, &reader), reading);
}

/* Checks the beginning and the end of a payload, which may not fit the window together. */
static void check_payload(uint64_t i)
{
    uint64_t number = 0;
    float first[3], end = -1;
    ck_assert(srv_record_read(&number, &record, 0, sizeof number));
    ck_assert(srv_record_read(first, &record, sizeof number, sizeof first));
    ck_assert(srv_record_read(&end, &record, (size_t)record.head.length - sizeof end, sizeof end));
    ck_assert_uint_eq(number, i);
    ck_assert_int_eq(memcmp(first, numbers, sizeof first), 0);
    ck_assert_float_eq(end, 0);
}

static void flip(size_t at)
{
    unsigned char byte;
    ck_assert_int_eq(pread(journal.fd, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(journal.fd, &byte, 1, (off_t)at), 1);
}

/* Four records in three writes, of which the first `synced` were flushed, with damage in one byte
 * of the record `damaged`. */
static void damage_journal(size_t synced, size_t damaged)
{
    const size_t each = SRV_RECORD_HEAD + 28;
    for (uint64_t i = 1; i <= 4; i++) {
        add(i, 5);
        if (i != 3)
            ck_assert_int_eq(srv_journal_flush(&journal, i <= synced), 0);
    }
    flip(SRV_JOURNAL_HEAD + (damaged - 1) * each + 80);
}

static uint64_t say_synced(void *context) { return *(const uint64_t *)context; }

/* Notes 1 to n as the records of one write each, of so many bytes of journal, with a mark wherever
 * one is due. */
static void note_many(struct srv_marks *marks, uint64_t n, uint64_t bytes)
{
    for (uint64_t i = 1; i <= n; i++) {
        bool due = marks->unmarked >= SRV_MARK_BYTES;
        srv_marks_note(marks, &(struct srv_mark_note){i, 1}, (struct srv_place){1, i + 1});
        srv_marks_commit(marks, bytes, (struct srv_place){due ? 1 : 0, due ? i : 0});
    }
}

TEST(marks_list_what_is_near_and_forget_what_is_far)
{
    const uint64_t each = SRV_MARK_BYTES / 100;
    struct srv_marks marks = {.since = {1, 1}, .next_since = {1, 1}};
    size_t count;
    note_many(&marks, 5000, each);
    ck_assert_uint_le(marks.count, 303);
    ck_assert_uint_ge(marks.count, 100);
    srv_marks_note(&marks, &(struct srv_mark_note){5000, 2}, (struct srv_place){1, 5002});
    srv_marks_commit(&marks, each, (struct srv_place){0});
    srv_marks_note(&marks, &(struct srv_mark_note){9, 9}, (struct srv_place){1, 5003});
    srv_marks_commit(&marks, 0, (struct srv_place){0}); /* was not written */
    struct srv_mark_note *list = srv_marks_list(&count, &marks, (struct srv_place){1, 5002});
    ck_assert_uint_eq(count, marks.count - 1); /* the last session has two notes */
    ck_assert_uint_eq(list[0].epoch,
                      marks.since.sequence); /* notes are of records of that number */
    ck_assert_uint_eq(list[count - 1].epoch, 5000);
    ck_assert_uint_eq(list[count - 1].next_record, 2);
    free(list);
    srv_marks_fini(&marks);
}

CASE(journals, open_journal, close_journal, 0)

TEST_EACH(journal_gives_back_the_records_that_were_added, 2)
{
    for (uint64_t i = 1; i <= RECORDS; i++) {
        add(i, i == 3 ? LARGE : 5);
        if (i % 2 == 0)
            ck_assert_int_eq(srv_journal_flush(&journal, true), 0);
    }
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    open_file(_i == 0 ? SRV_FILE_READER_WINDOW : SMALL_WINDOW); /* a record fits neither */
    ck_assert(!reader.head_damaged);
    for (uint64_t i = 1; i <= RECORDS; i++) {
        expect(SRV_READ_RECORD);
        ck_assert_uint_eq(record.head.epoch, i);
        ck_assert_uint_eq(record.head.sequence, i);
        ck_assert_uint_eq(record.head.synced, i % 2 == 1 ? i : i - 1);
        ck_assert_uint_eq(record.head.last, i % 2 == 0 || i == RECORDS);
        ck_assert_uint_eq(record.head.length, 8 + 4 * (i == 3 ? LARGE : 5));
        check_payload(i);
    }
    expect(SRV_READ_END);
}

TEST(write_that_fails_is_taken_back_and_the_next_one_stands_in_its_place)
{
    add(1, 5);
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    add(2, LARGE);
    add(3, 5);
    journal.error = ENOSPC;
    ck_assert_int_eq(srv_journal_flush(&journal, false), ENOSPC);
    ck_assert(!journal.broken);
    add(4, 5);
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    open_file(SRV_FILE_READER_WINDOW);
    expect(SRV_READ_RECORD);
    expect(SRV_READ_RECORD);
    ck_assert_uint_eq(record.head.epoch, 4);
    ck_assert_uint_eq(record.head.previous, 1);
    expect(SRV_READ_END);
}

TEST(damage_in_what_was_flushed_is_a_gap)
{
    damage_journal(2, 2);
    open_file(SRV_FILE_READER_WINDOW);
    expect(SRV_READ_RECORD);
    expect(SRV_READ_GAP);
    ck_assert_uint_eq(reader.missing, 1);
    ck_assert_uint_eq(record.head.previous, 2); /* the session of the missing record */
    expect(SRV_READ_RECORD);
    ck_assert_uint_eq(record.head.epoch, 3);
}

/* Where the third of four flushed records stood the first one stands, as after a write that went to
 * another place. */
TEST(older_record_in_place_of_another_is_a_gap)
{
    const size_t each = SRV_RECORD_HEAD + 28;
    unsigned char older[SRV_RECORD_HEAD + 28];
    for (uint64_t i = 1; i <= 4; i++) {
        add(i, 5);
        ck_assert_int_eq(srv_journal_flush(&journal, true), 0);
    }
    ck_assert_int_eq(pread(journal.fd, older, each, SRV_JOURNAL_HEAD), (ssize_t)each);
    ck_assert_int_eq(pwrite(journal.fd, older, each, (off_t)(SRV_JOURNAL_HEAD + 2 * each)),
                     (ssize_t)each);
    open_file(SRV_FILE_READER_WINDOW);
    for (size_t i = 1; i <= 2; i++)
        expect(SRV_READ_RECORD);
    expect(SRV_READ_GAP);
    ck_assert_uint_eq(reader.missing, 1);
    expect(SRV_READ_RECORD);
    ck_assert_uint_eq(record.head.epoch, 4);
    expect(SRV_READ_END);
}

/* Damage in what nobody had flushed ends the journal.  Sound records after it are reported unless
 * they are of the same write; and where a later journal says that this one was flushed to its end,
 * the damage is a gap. */
TEST_EACH(damage_in_what_was_not_flushed_ends_the_journal, 6)
{
    static const struct {
        size_t synced, damaged, dropped;
        uint64_t later;
        enum srv_reading reading;
    } cases[] = {{2, 3, 0, 0, SRV_READ_TORN}, {1, 2, 2, 0, SRV_READ_TORN},
                 {0, 2, 2, 0, SRV_READ_TORN}, {4, 4, 0, 0, SRV_READ_TORN},
                 {1, 2, 2, 2, SRV_READ_TORN}, {1, 2, 0, 5, SRV_READ_GAP}};
    uint64_t later = cases[_i].later;
    damage_journal(cases[_i].synced, cases[_i].damaged);
    open_file(SRV_FILE_READER_WINDOW);
    reader.synced_later = later > 0 ? say_synced : NULL;
    reader.context = &later;
    for (size_t i = 1; i < cases[_i].damaged; i++)
        expect(SRV_READ_RECORD);
    expect(cases[_i].reading);
    ck_assert_uint_eq(reader.dropped, cases[_i].dropped);
}

/* A file that cannot be read now may be sound: it has neither a gap nor a torn tail. */
TEST(journal_that_has_become_shorter_cannot_be_read_and_is_not_damaged)
{
    add(1, 5);
    add(2, LARGE);
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    open_file(SRV_FILE_READER_WINDOW);
    ck_assert_int_eq(ftruncate(journal.fd, SRV_FILE_READER_WINDOW + 100), 0);
    expect(SRV_READ_RECORD);
    expect(SRV_READ_FAILED);
    ck_assert_int_eq(file.error, EIO);
}

SUITE(record)
