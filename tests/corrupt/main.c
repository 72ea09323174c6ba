/* main.c: damage to the files of a state directory is found: build/corrupt [--quick].
 *
 * A small journal, the files of small sessions and a base are damaged in every bit and truncated to
 * every length.  A damaged session file or base has to be refused.  With a damaged journal,
 * restoring has to report that something is wrong, and each session that is restored has to be one
 * that existed at some time.  A journal that is truncated between two writes is a whole one that
 * ended there, and its sessions have to be exactly those of that time.
 *
 * Every second time the window through which files are read is smaller than the files.
 *
 * Then journals and session files are changed at random and given the right checksums: whatever
 * they say, nothing may crash (build/asan/corrupt shows it).  The last line has the figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "bytes_source.h"
#include "files/checksum.h"
#include "files/safetensors.h"
#include "http/http.h"
#include "scene.h"
#include "store/record.h"
#include "store/restore.h"
#include "store/store_files.h"
#include "verdict.h"

#define MUTATIONS 200000
#define MUTATIONS_QUICK 10000

static size_t damaged, missed;

static void count(bool found, const char *what, size_t place)
{
    damaged++;
    missed += !found;
    if (!found && missed <= 10)
        printf("check-corrupt: %s %zu was not found\n", what, place);
}

static size_t next_window(void)
{
    static bool small;
    small = !small;
    return small ? SMALL_WINDOW : SRV_FILE_READER_WINDOW;
}

/* ---- Journals -------------------------------------------------------------------------------- */

#define MAX_STATES 512

/* The sessions after each of the journal's writes. */
static struct states {
    size_t ends[64]; /* bytes of the journal after each write */
    uint64_t all[64];
    size_t writes;
    uint64_t ever[MAX_STATES]; /* [count] each session at any time */
    size_t count;
} states;

static bool existed(uint64_t state)
{
    for (size_t i = 0; i < states.count; i++)
        if (states.ever[i] == state)
            return true;
    return false;
}

static void keep(uint64_t state)
{
    if (!existed(state) && states.count < MAX_STATES)
        states.ever[states.count++] = state;
}

/* Restores a journal and returns the sum over all its sessions.  *sound: each of them existed at
 * some time (with `note`, they are noted as such); *reported: something was reported as wrong. */
static uint64_t restore_journal(bool *sound, bool *reported, const unsigned char *bytes,
                                size_t size, bool note)
{
    struct srv_restore restore;
    struct srv_restore_result result;
    struct srv_replay_result replayed;
    uint64_t sum = 0;
    scene_open_table();
    srv_restore_init(&restore, scene.app.sessions, MAX_SESSIONS, &scene.app.models);
    struct srv_file_reader source = bytes_source(bytes, size, next_window());
    enum srv_restore_status end = srv_restore_journal(&replayed, &restore, 1, &source);
    srv_file_reader_close(&source);
    bool listed = end == SRV_RESTORE_OK && srv_restore_publish(&result, &restore);
    *reported = !listed || replayed.gaps > 0 || replayed.torn || result.lost > 0;
    *sound = listed;
    struct srv_session *page[16];
    size_t n = srv_sessions_page(page, 16, scene.app.sessions, "", "");
    for (size_t i = 0; i < n; i++) {
        uint64_t state = scene_state_of(page[i]);
        sum = (sum ^ state) * UINT64_C(0x9e3779b97f4a7c15);
        if (note)
            keep(state);
        *sound = *sound && existed(state);
        srv_session_put(page[i]);
    }
    srv_restore_fini(&restore);
    scene_close_table();
    return sum;
}

/* Notes what the sessions are after each record and each write. */
static void walk(const unsigned char *bytes, size_t size)
{
    struct srv_journal_reader reader;
    struct srv_record record;
    bool sound, reported, begins = true; /* a write */
    struct srv_file_reader source = bytes_source(bytes, size, SMALL_WINDOW);
    srv_journal_read_open(&reader, &source, 1);
    for (size_t at = reader.at; srv_journal_read(&record, &reader) == SRV_READ_RECORD;
         at = reader.at) {
        if (begins) {
            states.ends[states.writes] = at;
            states.all[states.writes++] = restore_journal(&sound, &reported, bytes, at, true);
        }
        begins = record.head.last != 0;
        restore_journal(&sound, &reported, bytes, reader.at, true);
    }
    srv_file_reader_close(&source);
    states.ends[states.writes] = size;
    states.all[states.writes++] = restore_journal(&sound, &reported, bytes, size, true);
}

static bool is_whole_at(uint64_t sum, size_t size)
{
    for (size_t i = 0; i < states.writes; i++)
        if (states.ends[i] == size)
            return states.all[i] == sum;
    return false;
}

static void damage_journal(unsigned char *bytes, size_t size)
{
    bool sound, reported;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        restore_journal(&sound, &reported, bytes, size, false);
        count(sound && reported, "in the journal, bit", bit);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t length = SRV_JOURNAL_HEAD; length < size; length++) {
        unsigned char *copy = memcpy(malloc(length), bytes, length);
        uint64_t sum = restore_journal(&sound, &reported, copy, length, false);
        count(sound && (reported || is_whole_at(sum, length)), "in the journal, length", length);
        free(copy);
    }
}

/* ---- Session files and bases ----------------------------------------------------------------- */

static uint64_t epoch_of_file; /* of the session whose file is damaged */

static enum srv_restore_status restore_file(const unsigned char *bytes, size_t size)
{
    struct srv_restore restore;
    struct srv_restore_result result;
    scene_open_table();
    srv_restore_init(&restore, scene.app.sessions, MAX_SESSIONS, &scene.app.models);
    struct srv_file_reader source = bytes_source(bytes, size, next_window());
    enum srv_restore_status end = srv_restore_file(
        &restore, &(struct srv_session_file){.epoch = epoch_of_file, .generation = 1}, &source);
    srv_file_reader_close(&source);
    if (end == SRV_RESTORE_OK && !srv_restore_publish(&result, &restore))
        end = SRV_RESTORE_FULL;
    srv_restore_fini(&restore);
    scene_close_table();
    return end;
}

static bool refuses_file(const unsigned char *bytes, size_t size)
{
    return restore_file(bytes, size) != SRV_RESTORE_OK;
}

static bool refuses_base(const unsigned char *bytes, size_t size)
{
    struct srv_base_size found;
    struct srv_file_reader source = bytes_source(bytes, size, next_window());
    bool sound = srv_base_check(&found, &source, 7);
    srv_file_reader_close(&source);
    return !sound;
}

static void damage(bool (*refuses)(const unsigned char *, size_t), unsigned char *bytes,
                   size_t size, const char *bit_name, const char *length_name)
{
    count(!refuses(bytes, size), "the sound one of", size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        count(refuses(bytes, size), bit_name, bit);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t length = 0; length < size; length++) {
        unsigned char *copy = memcpy(malloc(length + 1), bytes, length);
        count(refuses(copy, length), length_name, length);
        free(copy);
    }
}

/* ---- Mutations with the right sums ----------------------------------------------------------- */

static uint64_t seed = 1;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(seed >> 33) % n;
}

static const unsigned char *const favourites =
    (const unsigned char *)"\0\1\2\3\4\5\6\7\x10\x40\x7f\x80\xff\xfe\x3f";

static void scribble(unsigned char *bytes, size_t size)
{
    for (size_t i = 1 + below(4); i > 0 && size > 0; i--)
        bytes[below(size)] = below(2) ? favourites[below(15)] : (unsigned char)below(256);
}

/* Changes some records, as far as their lengths lead from one to the next, and seals them. */
static void mutate_journal(unsigned char *bytes, size_t size)
{
    struct srv_record_head head;
    for (size_t at = SRV_JOURNAL_HEAD; size - at >= sizeof head;) {
        memcpy(&head, bytes + at, sizeof head);
        size_t left = size - at - sizeof head, length = (size_t)head.length;
        if (head.length > left)
            return;
        if (below(4) == 0)
            scribble(bytes + at + sizeof head, length);
        if (below(16) == 0)
            scribble((unsigned char *)&head, offsetof(struct srv_record_head, payload_sum));
        const struct srv_record_part part = {
            bytes + at + sizeof head, head.length <= left ? (size_t)head.length & ~(size_t)3 : 0};
        srv_record_seal(&head, &part, 1);
        memcpy(bytes + at, &head, sizeof head);
        at += sizeof head + length;
    }
}

/* Writes the checksum of a session file's contents to its place in the file. */
static void repair_file(unsigned char *bytes, size_t size)
{
    static const char opening[] = "{\"__metadata__\":{\"checksum\":\"";
    struct attn_safetensors *file = NULL;
    struct attn_checksum sum;
    struct attn_error error = {0};
    const struct attn_safetensors_source source = {bytes, -1, size};
    if (attn_safetensors_open_source(&file, &source, "state", ATTN_MAX_STATE_HEADER, &error) !=
        ATTN_OK)
        return;
    attn_checksum_init(&sum);
    for (size_t i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%zu.%s", i / 2, i % 2 == 0 ? "key" : "value");
        const struct attn_tensor_entry *entry = attn_safetensors_find(file, name);
        const void *from;
        size_t count = entry != NULL ? entry->end - entry->begin : 0;
        if (entry != NULL &&
            attn_safetensors_read_bytes(&from, file, entry, 0, count, NULL, &error) == ATTN_OK)
            attn_checksum_add(&sum, from, count);
    }
    size_t n;
    const struct attn_safetensors_note_pair *notes = attn_safetensors_notes(&n, file);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(notes[i].name, "checksum") == 0)
            continue;
        attn_checksum_add(&sum, notes[i].name, strlen(notes[i].name));
        attn_checksum_add(&sum, "=", 1);
        attn_checksum_add(&sum, notes[i].value, strlen(notes[i].value));
        attn_checksum_add(&sum, "\n", 1);
    }
    attn_safetensors_close(file);
    attn_checksum_hex((char *)bytes + 8 + sizeof opening - 1, &sum);
}

/* Replaces mostly digits by digits, so that the header stays readable. */
static void mutate_file(unsigned char *bytes, size_t size, size_t header)
{
    for (size_t i = 1 + below(3); i > 0; i--) {
        size_t at = 8 + below(header);
        if (bytes[at] >= '0' && bytes[at] <= '9')
            bytes[at] = (unsigned char)('0' + below(10));
        else if (below(8) == 0)
            bytes[at] = (unsigned char)(' ' + below(95));
    }
    if (below(2) == 0)
        scribble(bytes + 8 + header, size - 8 - header);
    repair_file(bytes, size);
}

/* Mutates a copy of a session's file; whether it is believed. */
static bool believes_file(const struct scene_file *file)
{
    uint64_t header;
    unsigned char *copy = memcpy(malloc(file->size), file->bytes, file->size);
    memcpy(&header, copy, sizeof header);
    mutate_file(copy, file->size, (size_t)header);
    epoch_of_file = file->epoch;
    bool believed = restore_file(copy, file->size) == SRV_RESTORE_OK;
    free(copy);
    return believed;
}

static size_t mutate(size_t times, const unsigned char *journal, size_t journal_size)
{
    bool sound, reported;
    size_t accepted = 0;
    unsigned char *copy = malloc(journal_size);
    for (size_t i = 0; i < times; i++) {
        if (i % 2 == 0) {
            memcpy(copy, journal, journal_size);
            mutate_journal(copy, journal_size);
            restore_journal(&sound, &reported, copy, journal_size, false);
            accepted += !reported;
        } else {
            accepted += believes_file(&scene.files[i / 2 % SCENE_FILES]);
        }
    }
    free(copy);
    return accepted;
}

int main(int argc, char *argv[])
{
    size_t times = argc > 1 && strcmp(argv[1], "--quick") == 0 ? MUTATIONS_QUICK : MUTATIONS;
    unsigned char *journal, *base;
    size_t journal_size, base_size;
    scene_open();
    scene_make(&journal, &journal_size, &base, &base_size);
    walk(journal, journal_size);
    damage_journal(journal, journal_size);
    for (size_t i = 0; i < SCENE_FILES; i++) {
        epoch_of_file = scene.files[i].epoch;
        damage(refuses_file, scene.files[i].bytes, scene.files[i].size, "in a session's file, bit",
               "in a session's file, length");
    }
    damage(refuses_base, base, base_size, "in a base, bit", "in a base, length");
    size_t accepted = mutate(times, journal, journal_size);
    free(journal);
    free(base);
    scene_close();
    const struct verdict_condition conditions[] = {VERDICT(missed == 0), VERDICT(accepted > 0),
                                                   VERDICT(accepted < times)};
    const bool right = VERDICTS("check-corrupt", conditions);
    printf("check-corrupt: %zu of %zu damaged files found; %zu changed ones with sums repaired "
           "(%zu believed), no crash%s\n",
           damaged - missed, damaged, times, accepted, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
