/* main.c: damage to the files of a state directory is found: build/corrupt [--quick].
 *
 * A small journal, and both copies of a manifest together, are damaged in every bit and truncated
 * to every length.  Restoring has to report that something is wrong, and each session that is
 * restored has to be one that existed at some time.  A file that is truncated between two writes is
 * a whole one that ended there, and its sessions have to be exactly those of that time.  Damage of
 * one copy alone, in every byte, has to be reported, and costs nothing.  Blocks are damaged in
 * every byte, exchanged and cut off: the sessions that name them are lost, and all others stay as
 * they were.
 *
 * Every second time the window through which a journal is read is smaller than the journal.
 *
 * Then journals and manifests are changed at random and given the right checksums: whatever they
 * say, nothing may crash (build/asan/corrupt shows it).  The last line has the figures. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "bytes_source.h"
#include "http/http.h"
#include "scene.h"
#include "store/restore.h"
#include "store/store_files.h"
#include "verdict.h"

#define MUTATIONS 200000
#define MUTATIONS_QUICK 10000
#define MOST_SLOTS 256 /* of a file of blocks */

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

/* ---- Restoring ------------------------------------------------------------------------------- */

#define MAX_STATES 512

/* The sessions after each write of a journal, or each section of a manifest. */
static struct states {
    size_t ends[64]; /* bytes of the file after each */
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

/* What became of the sessions in files that were restored. */
struct outcome {
    uint64_t sum;  /* over all sessions that are there */
    bool sound;    /* each of them existed at some time */
    bool reported; /* something was reported as wrong */
};

/* Publishes what was restored and reads its blocks.  With `note` its sessions count as having
 * existed. */
static void finish(struct outcome *out, struct srv_restore *restore, bool note)
{
    struct srv_restore_result result;
    struct srv_session *page[MAX_SESSIONS];
    const bool listed = srv_restore_publish(&result, restore);
    const size_t count = srv_sessions_page(page, MAX_SESSIONS, scene.app.sessions, "", "");
    out->sum = 0;
    out->sound = listed;
    out->reported = out->reported || !listed || result.lost > 0;
    for (size_t i = 0; i < count; i++) {
        const struct srv_session *session = page[i];
        struct attn_error cause;
        bool filled = true;
        for (size_t layer = 0; layer < 2 && filled && restore->slots != NULL; layer++)
            filled = attn_cache_admit(session->cache, layer, &cause) == ATTN_OK &&
                     srv_blocks_fill(session->cache, session->model->attn, layer, restore->slots,
                                     &restore->reader) == ATTN_OK;
        const uint64_t state = filled ? scene_state_of(session) : 0;
        out->reported = out->reported || !filled;
        if (filled)
            out->sum = (out->sum ^ state) * UINT64_C(0x9e3779b97f4a7c15);
        if (filled && note)
            keep(state);
        out->sound = out->sound && (!filled || existed(state));
        srv_session_put(page[i]);
    }
    struct srv_slots *slots = restore->slots;
    srv_restore_fini(restore);
    scene_close_table();
    srv_slots_free(slots);
}

/* Restores what the files say: of a journal, or of the directory, both of whose manifest's copies
 * then have these bytes. */
typedef struct outcome restoring(const unsigned char *bytes, size_t size, bool note);

static struct outcome restore_journal(const unsigned char *bytes, size_t size, bool note)
{
    struct srv_restore restore;
    struct srv_replay_result replayed;
    scene_open_table();
    srv_restore_init(&restore, scene.app.sessions, MAX_SESSIONS, &scene.app.models);
    struct srv_file_reader source = bytes_source(bytes, size, next_window());
    const enum srv_restore_status end = srv_restore_journal(&replayed, &restore, 1, &source);
    srv_file_reader_close(&source);
    struct outcome out = {.reported = end != SRV_RESTORE_OK || replayed.gaps > 0 || replayed.torn};
    finish(&out, &restore, note);
    out.sound = out.sound && end == SRV_RESTORE_OK;
    return out;
}

static struct outcome restore_directory(bool note)
{
    struct srv_restore restore;
    struct srv_manifest_state state;
    const enum srv_manifest_reading reading =
        srv_manifest_read(&state, scene.directory, scene.generation, false);
    struct outcome out = {.reported =
                              reading != SRV_MANIFEST_READ || state.damaged > 0 || state.torn};
    scene_open_table();
    srv_restore_init(&restore, scene.app.sessions, MAX_SESSIONS, &scene.app.models);
    restore.slots = srv_slots_new(scene.directory, scene.generation + 100, 0);
    srv_restore_note_time(&restore, state.time_ns);
    for (size_t i = 0; i < state.capacity; i++)
        if (state.entries[i].epoch != 0 &&
            srv_restore_described(&restore, &state.entries[i]) != SRV_RESTORE_OK)
            out.reported = true;
    srv_restore_forget_blocks(&restore);
    srv_manifest_state_fini(&state);
    finish(&out, &restore, note);
    return out;
}

static void put(const struct scene_file *file, size_t at, const void *bytes, size_t size)
{
    if (pwrite(file->fd, bytes, size, (off_t)at) != (ssize_t)size)
        abort();
}

static void put_whole(const struct scene_file *file, const void *bytes, size_t size)
{
    put(file, 0, bytes, size);
    if (ftruncate(file->fd, (off_t)size) != 0)
        abort();
}

static struct outcome restore_manifest(const unsigned char *bytes, size_t size, bool note)
{
    put_whole(&scene.copies[0], bytes, size);
    put_whole(&scene.copies[1], bytes, size);
    return restore_directory(note);
}

/* ---- Journals and manifests ------------------------------------------------------------------ */

/* Notes what the sessions are after each record and each write. */
static void walk(restoring *restore, const unsigned char *bytes, size_t size, uint64_t generation)
{
    struct srv_journal_reader reader;
    struct srv_record record;
    bool begins = true; /* a write */
    states = (struct states){0};
    struct srv_file_reader source = bytes_source(bytes, size, SMALL_WINDOW);
    srv_journal_read_open(&reader, &source, generation);
    for (size_t at = reader.at; srv_journal_read(&record, &reader) == SRV_READ_RECORD;
         at = reader.at) {
        if (begins) {
            states.ends[states.writes] = at;
            states.all[states.writes++] = restore(bytes, at, true).sum;
        }
        begins = record.head.last != 0;
        restore(bytes, reader.at, true);
    }
    srv_file_reader_close(&source);
    states.ends[states.writes] = size;
    states.all[states.writes++] = restore(bytes, size, true).sum;
}

static bool is_whole_at(uint64_t sum, size_t size)
{
    for (size_t i = 0; i < states.writes; i++)
        if (states.ends[i] == size)
            return states.all[i] == sum;
    return false;
}

static void damage_log(restoring *restore, unsigned char *bytes, size_t size, const char *bit_name,
                       const char *length_name)
{
    struct outcome found = restore(bytes, size, false);
    count(found.sound && !found.reported && is_whole_at(found.sum, size), "the sound one of", size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        found = restore(bytes, size, false);
        const bool harmless = bit < 8 * SRV_JOURNAL_HEAD && is_whole_at(found.sum, size);
        count(found.sound && (found.reported || harmless), bit_name, bit);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t length = SRV_JOURNAL_HEAD; length < size; length++) {
        unsigned char *copy = memcpy(malloc(length), bytes, length);
        found = restore(copy, length, false);
        count(found.sound && (found.reported || is_whole_at(found.sum, length)), length_name,
              length);
        free(copy);
    }
}

/* ---- One copy, and blocks -------------------------------------------------------------------- */

/* Damages a bit of each byte of [at, at + size). */
static void damage_bytes(const struct scene_file *file, size_t at, size_t size,
                         void (*expect)(const char *what, size_t place), const char *what)
{
    for (size_t i = at; i < at + size; i++) {
        const unsigned char wrong = file->bytes[i] ^ (unsigned char)(1u << i % 8);
        put(file, i, &wrong, 1);
        expect(what, i);
        put(file, i, &file->bytes[i], 1);
    }
}

/* Damage of a record has to be reported, and the sessions are those at the end of `states`. */
static void expect_whole(const char *what, size_t place)
{
    const struct outcome found = restore_directory(false);
    count((found.reported || place < SRV_JOURNAL_HEAD) &&
              found.sum == states.all[states.writes - 1],
          what, place);
}

static void damage_copy(const struct scene_file *file)
{
    damage_bytes(file, 0, file->size, expect_whole, "in a copy, byte");
    for (size_t length = 0; length < file->size; length++) {
        put_whole(file, file->bytes, length);
        expect_whole("in a copy, length", length);
    }
    put_whole(file, file->bytes, file->size);
}

/* Damage of a block has to be reported; a session that is there nevertheless is as it was. */
static void expect_lost(const char *what, size_t place)
{
    const struct outcome found = restore_directory(false);
    count(found.sound && found.reported, what, place);
}

/* Lists the bytes of the block in each slot of a file; returns the number of slots up to the last
 * one. */
static size_t list_slots(size_t bytes[MOST_SLOTS], const struct scene_file *file)
{
    struct srv_manifest_state state;
    size_t slots = 0;
    (void)srv_manifest_read(&state, scene.directory, scene.generation, false);
    for (size_t i = 0; i < state.capacity; i++) {
        const struct srv_manifest_entry *entry = &state.entries[i];
        const struct srv_block_place *place = entry->blocks;
        for (const struct srv_manifest_layer *layer = entry->layers;
             layer < entry->layers + entry->facts.num_layers; layer++)
            for (size_t j = 0; j < layer->added; j++, place++) {
                if (srv_slot_bytes(layer->block_bytes) != file->slot_bytes)
                    continue;
                if (place->slot >= MOST_SLOTS)
                    abort();
                bytes[place->slot] = layer->block_bytes;
                slots = place->slot < slots ? slots : (size_t)place->slot + 1;
            }
    }
    srv_manifest_state_fini(&state);
    return slots;
}

static void damage_blocks(const struct scene_file *file)
{
    size_t used[MOST_SLOTS] = {0}, previous = SIZE_MAX;
    const size_t slots = list_slots(used, file), bytes = file->slot_bytes;
    for (size_t slot = 0; slot < slots; slot++) {
        const size_t at = slot * bytes;
        damage_bytes(file, at, used[slot], expect_lost, "in a block, byte");
        if (used[slot] > 0 && previous != SIZE_MAX) {
            put(file, at, file->bytes + previous, bytes);
            expect_lost("another block in slot", slot);
            put(file, at, file->bytes + at, bytes);
        }
        previous = used[slot] > 0 ? at : previous;
    }
    for (size_t length = 0; length < slots * bytes; length += bytes / 2) {
        put_whole(file, file->bytes, length);
        expect_lost("in a file of blocks, length", length);
    }
    put_whole(file, file->bytes, file->size);
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

/* Seals a record that was changed, whose payload follows it; in a manifest a moment's chain is made
 * right too. */
static void seal(struct srv_record_head *head, unsigned char *payload, size_t length,
                 uint64_t *chain)
{
    const struct srv_record_part part = {payload, length};
    const bool is_moment = head->type == SRV_RECORD_MOMENT;
    if (is_moment && length >= sizeof(struct srv_manifest_moment))
        memcpy(payload + offsetof(struct srv_manifest_moment, chain), chain, sizeof *chain);
    srv_record_seal(head, &part, 1);
    if (is_moment || head->type == SRV_RECORD_SESSION)
        *chain = srv_manifest_chain(*chain, head);
}

/* Changes some records, as far as their lengths lead from one to the next, and seals them. */
static void mutate_log(unsigned char *bytes, size_t size)
{
    struct srv_record_head head;
    uint64_t chain = 0;
    for (size_t at = SRV_JOURNAL_HEAD; size - at >= sizeof head;) {
        memcpy(&head, bytes + at, sizeof head);
        size_t left = size - at - sizeof head, length = (size_t)head.length;
        if (head.length > left)
            return;
        if (below(4) == 0)
            scribble(bytes + at + sizeof head, length);
        if (below(16) == 0)
            scribble((unsigned char *)&head, offsetof(struct srv_record_head, payload_sum));
        seal(&head, bytes + at + sizeof head,
             head.length <= left ? (size_t)head.length & ~(size_t)3 : 0, &chain);
        memcpy(bytes + at, &head, sizeof head);
        at += sizeof head + length;
    }
}

/* Changes copies of both files in turn; returns how often they were believed. */
static size_t mutate(size_t times, const unsigned char *journal, size_t journal_size)
{
    const struct scene_file *manifest = &scene.copies[0];
    size_t accepted = 0;
    unsigned char *copy = malloc(journal_size + manifest->size);
    for (size_t i = 0; i < times; i++) {
        const bool is_journal = i % 2 == 0;
        const size_t size = is_journal ? journal_size : manifest->size;
        memcpy(copy, is_journal ? journal : manifest->bytes, size);
        mutate_log(copy, size);
        accepted += !(is_journal ? restore_journal : restore_manifest)(copy, size, false).reported;
    }
    free(copy);
    return accepted;
}

int main(int argc, char *argv[])
{
    size_t times = argc > 1 && strcmp(argv[1], "--quick") == 0 ? MUTATIONS_QUICK : MUTATIONS;
    unsigned char *journal;
    size_t journal_size;
    mallopt(M_MMAP_THRESHOLD, 64 << 20); /* what is opened each time comes from the heap */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    scene_open();
    scene_make(&journal, &journal_size);
    const struct scene_file *manifest = &scene.copies[0];
    walk(restore_journal, journal, journal_size, 1);
    damage_log(restore_journal, journal, journal_size, "in the journal, bit",
               "in the journal, length");
    walk(restore_manifest, manifest->bytes, manifest->size, scene.generation);
    damage_log(restore_manifest, manifest->bytes, manifest->size, "in the manifest, bit",
               "in the manifest, length");
    restore_manifest(manifest->bytes, manifest->size, false);
    damage_copy(&scene.copies[0]);
    damage_copy(&scene.copies[1]);
    for (size_t i = 0; i < scene.num_blocks; i++)
        damage_blocks(&scene.blocks[i]);
    size_t accepted = mutate(times, journal, journal_size);
    free(journal);
    scene_close();
    const struct verdict_condition conditions[] = {VERDICT(missed == 0), VERDICT(accepted > 0),
                                                   VERDICT(accepted < times)};
    const bool right = VERDICTS("check-corrupt", conditions);
    printf("check-corrupt: %zu of %zu damaged files found; %zu changed ones with sums repaired "
           "(%zu believed), no crash%s\n",
           damaged - missed, damaged, times, accepted, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
