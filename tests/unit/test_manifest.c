/* test_manifest.c: a manifest says what was said, or less, and never anything else. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "rng.h"
#include "scratch.h"
#include "store/manifest.h"
#include "store/store_files.h"
#include "suites.h"

#define SESSIONS 6
#define LAYERS 3
#define BLOCKS 8   /* of a layer, at most */
#define SECTIONS 6 /* of a history, at most */

static char path[SCRATCH_PATH];
static int directory;
static struct srv_manifest manifest;
static struct rng rng;
static uint64_t next_slot;

static void set_up(void)
{
    disk_reset();
    scratch_make(path);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    manifest = (struct srv_manifest){0};
    rng = rng_seeded(39);
    next_slot = 0;
}

static void tear_down(void)
{
    disk_reset();
    srv_manifest_fini(&manifest);
    close(directory);
    scratch_remove(path);
}

/* ---- Sessions as they are -------------------------------------------------------------------- */

struct layer {
    struct srv_manifest_layer facts;       /* kept, added: since the last section */
    struct srv_block_place blocks[BLOCKS]; /* by their place in the sequence */
};

struct session {
    bool lives, is_new, changed;
    uint64_t used_ns, next_record, revision;
    struct srv_record_create options;
    struct layer layers[LAYERS];
};

/* All sessions; the epoch of sessions[i] is i + 1. */
struct world {
    uint64_t generation;
    struct session sessions[SESSIONS];
};

static struct srv_block_place any_block(size_t rows)
{
    return (struct srv_block_place){1 + rng_below(&rng, 3), next_slot++, rng_below(&rng, 1 << 30),
                                    rows};
}

static size_t blocks_of(size_t tokens) { return (tokens + 63) / 64; }

/* Makes a layer as long as this, of which the first `same` tokens stay. */
static void set_length(struct layer *layer, size_t length, size_t same)
{
    const size_t kept = same < length ? same / 64 : blocks_of(length);
    for (size_t i = kept; i < blocks_of(length); i++)
        layer->blocks[i] = any_block(length - i * 64 < 64 ? length - i * 64 : 64);
    layer->facts.kept = (uint32_t)(kept < layer->facts.kept ? kept : layer->facts.kept);
    layer->facts.length = (uint32_t)length;
    layer->facts.rows = (uint32_t)(length > 0);
    layer->facts.block_bytes = 4096 * (1 + rng_below(&rng, 9));
    layer->facts.digest[0] = rng_below(&rng, 1 << 30);
    if (layer->facts.first > length)
        layer->facts.first = 0;
    else if (rng_below(&rng, 4) == 0 && length > 128) /* a window forgets */
        layer->facts.first += 64 * (layer->facts.first / 64 + 1 < blocks_of(length));
}

static void change(struct session *session)
{
    if (!session->lives) {
        *session = (struct session){.lives = true, .is_new = true};
        snprintf(session->options.id, sizeof session->options.id, "s%u", rng_below(&rng, 1000));
        session->revision = 1 + rng_below(&rng, 1000);
    } else if (rng_below(&rng, 8) == 0) {
        session->lives = session->is_new = false;
        return;
    }
    session->changed = true;
    session->used_ns = rng_below(&rng, 1 << 30);
    session->next_record++;
    for (size_t i = 0; i < LAYERS; i++) {
        struct layer *layer = &session->layers[i];
        const size_t before = layer->facts.length;
        const size_t same =
            rng_below(&rng, 5) == 0 ? rng_below(&rng, (unsigned)before + 1) : before;
        const size_t least = layer->facts.first > same ? 0 : same;
        size_t length = least + rng_below(&rng, 150);
        length = length < BLOCKS * 64 ? length : BLOCKS * 64;
        if (layer->facts.first > 0 && same <= layer->facts.first) {
            layer->facts.first = 0; /* truncated to nothing */
            set_length(layer, length, 0);
        } else {
            set_length(layer, length, same);
        }
    }
}

/* Adds a session to the section: all of it, or what has changed. */
static void add(const struct session *session, uint64_t epoch, bool whole)
{
    struct srv_manifest_layer layers[LAYERS];
    struct srv_block_place blocks[LAYERS * BLOCKS];
    struct srv_description said = {.epoch = epoch, .layers = layers, .blocks = blocks};
    said.facts = (struct srv_manifest_session){.used_ns = session->used_ns,
                                               .next_record = session->next_record,
                                               .revision.number = session->revision,
                                               .num_layers = LAYERS};
    whole = whole || session->is_new;
    said.options = whole ? &session->options : NULL;
    if (!whole && !session->changed)
        said.facts.num_layers = 0;
    for (size_t i = 0; i < LAYERS && said.facts.num_layers > 0; i++) {
        const struct layer *layer = &session->layers[i];
        layers[i] = layer->facts;
        layers[i].kept = whole ? 0 : layer->facts.kept;
        const size_t first = layer->facts.first / 64;
        const size_t from = layers[i].kept > first ? layers[i].kept : first;
        layers[i].added = (uint32_t)(blocks_of(layer->facts.length) - from);
        for (size_t b = from; b < blocks_of(layer->facts.length); b++)
            blocks[said.facts.num_blocks++] = layer->blocks[b];
    }
    srv_manifest_add(&manifest, &said);
}

/* Writes what has changed between two moments as a section. */
static bool write_section(struct world *now, const struct world *before)
{
    uint64_t ended[SESSIONS];
    size_t num_ended = 0;
    srv_manifest_begin(&manifest, directory, now->generation);
    for (size_t i = 0; i < SESSIONS; i++) {
        struct session *session = &now->sessions[i];
        if (!session->lives && before != NULL && before->sessions[i].lives)
            ended[num_ended++] = i + 1;
        if (session->lives && (manifest.is_first || session->changed || rng_below(&rng, 3) == 0))
            add(session, i + 1, manifest.is_first);
    }
    if (!srv_manifest_end(&manifest, now->generation, ended, num_ended))
        return false;
    for (size_t i = 0; i < SESSIONS; i++) {
        struct session *session = &now->sessions[i];
        session->changed = session->is_new = false;
        for (size_t l = 0; l < LAYERS; l++)
            session->layers[l].facts.kept = (uint32_t)blocks_of(session->layers[l].facts.length);
    }
    return true;
}

/* ---- What is read ---------------------------------------------------------------------------- */

static bool is_same(const struct srv_manifest_entry *entry, const struct session *session)
{
    size_t next = 0;
    if (entry->facts.used_ns != session->used_ns || entry->options == NULL ||
        entry->facts.next_record != session->next_record ||
        entry->facts.revision.number != session->revision || entry->facts.num_layers != LAYERS ||
        memcmp(entry->options, &session->options, sizeof session->options) != 0)
        return false;
    for (size_t i = 0; i < LAYERS; i++) {
        const struct srv_manifest_layer *layer = &entry->layers[i];
        const struct layer *expected = &session->layers[i];
        if (layer->length != expected->facts.length || layer->first != expected->facts.first ||
            layer->rows != expected->facts.rows || layer->digest[0] != expected->facts.digest[0] ||
            layer->block_bytes != expected->facts.block_bytes ||
            (layer->length > 0 && layer->kept != layer->first / 64) ||
            layer->added != blocks_of(layer->length) - layer->first / 64)
            return false;
        for (size_t b = layer->first / 64; b < blocks_of(layer->length); b++)
            if (memcmp(&entry->blocks[next++], &expected->blocks[b], sizeof *expected->blocks) != 0)
                return false;
    }
    return next == entry->facts.num_blocks;
}

/* Reads, and expects each session to be that of `world`, or where `may_lose` to be lost or unknown;
 * returns how many are. */
static size_t expect(const struct world *world, bool may_lose)
{
    struct srv_manifest_state state;
    size_t lost = 0;
    const enum srv_manifest_reading reading =
        srv_manifest_read(&state, directory, world->generation / 1000 * 1000 + 1, false);
    ck_assert_int_eq(reading, SRV_MANIFEST_READ);
    ck_assert_uint_eq(state.time_ns, world->generation);
    for (size_t i = 0; i < SESSIONS; i++) {
        const struct srv_manifest_entry *entry = srv_manifest_find(&state, i + 1);
        const bool is_lost = entry != NULL ? entry->lost : world->sessions[i].lives;
        lost += is_lost;
        ck_assert(!is_lost || may_lose);
        if (world->sessions[i].lives && !is_lost)
            ck_assert(entry != NULL && is_same(entry, &world->sessions[i]));
        else if (!is_lost)
            ck_assert_ptr_null(entry);
    }
    srv_manifest_state_fini(&state);
    return lost;
}

/* A history, and the bytes of its file after each section. */
static struct world worlds[SECTIONS];
static size_t sizes[SECTIONS];

static void make_history(size_t sections)
{
    struct world *world = &worlds[0];
    *world = (struct world){.generation = 1};
    for (size_t i = 0; i < SESSIONS; i++)
        change(&world->sessions[i]);
    for (size_t s = 0; s < sections; s++) {
        if (s > 0) {
            worlds[s] = worlds[s - 1];
            worlds[s].generation++;
            for (size_t i = 0; i < 2; i++)
                change(&worlds[s].sessions[rng_below(&rng, SESSIONS)]);
        }
        ck_assert(write_section(&worlds[s], s > 0 ? &worlds[s - 1] : NULL));
        ck_assert_uint_eq(manifest.is_first, s == 0);
        sizes[s] = manifest.copies[0].length;
    }
}

static void name_copy(char out[512], size_t copy)
{
    char name[SRV_MANIFEST_NAME];
    srv_manifest_name(name, 1, copy);
    snprintf(out, 512, "%s/%s", path, name);
}

static void write_copy(size_t copy, const void *bytes, size_t size)
{
    char name[SRV_MANIFEST_NAME];
    srv_manifest_name(name, 1, copy);
    scratch_write(path, name, bytes, size);
}

static char *read_copy(size_t *size)
{
    char name[SRV_MANIFEST_NAME];
    srv_manifest_name(name, 1, 0);
    return scratch_read(size, path, name);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

START_TEST(test_manifest_says_what_was_said)
{
    struct world world = {.generation = 1}, before;
    for (size_t turn = 0; turn < 60; turn++) {
        before = world;
        for (size_t i = 0; i < 3; i++)
            change(&world.sessions[rng_below(&rng, SESSIONS)]);
        ck_assert(write_section(&world, &before));
        struct srv_manifest_state state;
        ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                         SRV_MANIFEST_READ);
        ck_assert_uint_eq(state.generation, world.generation);
        ck_assert_uint_eq(state.damaged, 0);
        ck_assert(!state.torn);
        for (size_t i = 0; i < SESSIONS; i++) {
            const struct srv_manifest_entry *entry = srv_manifest_find(&state, i + 1);
            if (world.sessions[i].lives)
                ck_assert(entry != NULL && is_same(entry, &world.sessions[i]));
            else
                ck_assert_ptr_null(entry);
        }
        srv_manifest_state_fini(&state);
        world.generation++;
    }
    ck_assert_uint_gt(manifest.named, 1); /* new files were begun */
    ck_assert_uint_gt(world.generation - manifest.named, 2);
}
END_TEST

/* The newest section whose bytes are all within the first `size`. */
static const struct world *newest_within(size_t size, size_t sections)
{
    while (sections > 0 && sizes[sections - 1] > size)
        sections--;
    return sections > 0 ? &worlds[sections - 1] : NULL;
}

START_TEST(test_manifest_a_torn_section_does_not_count)
{
    size_t size;
    make_history(3);
    char *bytes = read_copy(&size);
    for (size_t cut = 0; cut <= size; cut += 1 + cut % 13) {
        const size_t other = rng_below(&rng, 2) == 0 ? cut : rng_below(&rng, (unsigned)size + 1);
        const struct world *world = newest_within(cut > other ? cut : other, 3);
        write_copy(cut % 2, bytes, cut);
        write_copy(1 - cut % 2, bytes, other);
        struct srv_manifest_state state;
        if (world != NULL)
            ck_assert_uint_eq(expect(world, false), 0);
        else
            ck_assert_int_eq(srv_manifest_read(&state, directory, 1, false), SRV_MANIFEST_NONE);
    }
    free(bytes);
}
END_TEST

START_TEST(test_manifest_one_copy_is_enough)
{
    size_t size;
    char file[512];
    make_history(3);
    char *bytes = read_copy(&size);
    for (size_t i = 0; i < size; i += 1 + i % 13) {
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        write_copy(i % 2, bytes, size);
        ck_assert_uint_eq(expect(&worlds[2], false), 0);
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        write_copy(i % 2, bytes, size);
    }
    name_copy(file, 0);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_uint_eq(expect(&worlds[2], false), 0);
    free(bytes);
}
END_TEST

/* In either copy, so that a start has both written anew. */
START_TEST(test_manifest_damage_of_one_copy_is_counted)
{
    size_t size;
    struct srv_manifest_state state;
    make_history(3);
    char *bytes = read_copy(&size);
    for (size_t i = SRV_JOURNAL_HEAD; i < size; i += 1 + i % 13) {
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        write_copy(_i, bytes, size);
        ck_assert_int_eq(srv_manifest_read(&state, directory, 1, false), SRV_MANIFEST_READ);
        ck_assert_uint_eq(state.damaged, 1);
        srv_manifest_state_fini(&state);
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
    }
    write_copy(_i, bytes, 5);
    ck_assert_int_eq(srv_manifest_read(&state, directory, 1, false), SRV_MANIFEST_READ);
    ck_assert_uint_gt(state.damaged, 3);
    srv_manifest_state_fini(&state);
    free(bytes);
}
END_TEST

START_TEST(test_manifest_that_was_set_aside_is_read_too)
{
    char file[512], aside[sizeof file + sizeof SRV_SET_ASIDE];
    struct srv_manifest_state state;
    make_history(2);
    for (size_t i = 0; i < 2; i++) {
        name_copy(file, i);
        snprintf(aside, sizeof aside, "%s" SRV_SET_ASIDE, file);
        ck_assert_int_eq(rename(file, aside), 0);
    }
    ck_assert_int_eq(srv_manifest_read(&state, directory, 1, false), SRV_MANIFEST_NONE);
    ck_assert_int_eq(srv_manifest_read(&state, directory, 1, true), SRV_MANIFEST_READ);
    ck_assert_uint_eq(state.time_ns, 2);
    ck_assert_uint_eq(state.damaged, 0);
    for (size_t i = 0; i < SESSIONS; i++)
        if (worlds[1].sessions[i].lives)
            ck_assert(is_same(srv_manifest_find(&state, i + 1), &worlds[1].sessions[i]));
    srv_manifest_state_fini(&state);
}
END_TEST

/* Reads a file of so many sections with damage in both copies: each session is as it was, or lost;
 * sections from `least` on may not count. */
static size_t expect_damaged(size_t sections, size_t least)
{
    struct srv_manifest_state state;
    const enum srv_manifest_reading reading = srv_manifest_read(&state, directory, 1, false);
    const uint64_t time = state.time_ns;
    if (reading == SRV_MANIFEST_READ)
        srv_manifest_state_fini(&state);
    ck_assert_int_ne(reading, SRV_MANIFEST_UNREADABLE);
    ck_assert(reading == SRV_MANIFEST_READ || least == 0);
    if (reading == SRV_MANIFEST_NONE)
        return SESSIONS;
    ck_assert_uint_ge(time, least);
    ck_assert_uint_le(time, sections);
    return expect(&worlds[time - 1], true);
}

START_TEST(test_manifest_damage_in_both_copies_costs_its_sessions)
{
    size_t size, most = 0;
    make_history(4);
    char *bytes = read_copy(&size);
    for (size_t i = SRV_JOURNAL_HEAD; i < size; i += 1 + i % 13) {
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        write_copy(0, bytes, size);
        write_copy(1, bytes, size);
        const size_t lost = expect_damaged(4, 3);
        most = lost > most ? lost : most;
        bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
    }
    ck_assert_uint_ge(most, 1);
    for (size_t i = 0; i < 300; i++) { /* stretches */
        char *copy = malloc(size);
        memcpy(copy, bytes, size);
        const size_t at = rng_below(&rng, (unsigned)size), count = rng_below(&rng, 1500);
        memset(copy + at, 0, count < size - at ? count : size - at);
        write_copy(0, copy, size);
        write_copy(1, copy, size);
        (void)expect_damaged(4, 0);
        free(copy);
    }
    free(bytes);
}
END_TEST

/* In the only section (0), which was on the disk before the file had its name, and in a later one's
 * past (1). */
START_TEST(test_manifest_damage_of_one_session_costs_that_one)
{
    size_t size;
    make_history((size_t)_i + 1);
    char *bytes = read_copy(&size);
    char *at = memmem(bytes, size, worlds[0].sessions[2].options.id, 4);
    ck_assert_ptr_nonnull(at);
    *at ^= 1;
    write_copy(0, bytes, size);
    write_copy(1, bytes, size);
    ck_assert_uint_eq(expect(&worlds[_i], true), 1);
    free(bytes);
}
END_TEST

/* A section was refused and cut off, and another was written in its place, of which the disk has
 * only a part: records of the two make none together. */
START_TEST(test_manifest_records_of_two_sections_make_none)
{
    size_t size, other_size;
    struct world other;
    make_history(1);
    worlds[1] = worlds[0];
    worlds[1].generation++;
    for (size_t i = 0; i < 3; i++) /* the next tokens of three sessions */
        set_length(&worlds[1].sessions[i].layers[0], worlds[1].sessions[i].layers[0].facts.length,
                   0),
            worlds[1].sessions[i].changed = true;
    other = worlds[1];
    char *before = read_copy(&size);
    const struct rng seed = rng;
    ck_assert(write_section(&worlds[1], &worlds[0]));
    sizes[1] = manifest.copies[0].length;
    char *one = read_copy(&size);
    srv_manifest_fini(&manifest);
    for (size_t i = 0; i < 3; i++)
        other.sessions[i].used_ns++;
    rng = seed;
    write_copy(0, before, sizes[0]);
    /* The same first section again, by the same calls. */
    srv_manifest_begin(&manifest, directory, 1);
    for (size_t i = 0; i < SESSIONS; i++)
        if (worlds[0].sessions[i].lives)
            add(&worlds[0].sessions[i], i + 1, true);
    ck_assert(srv_manifest_end(&manifest, 1, NULL, 0));
    ck_assert_uint_eq(manifest.copies[0].length, sizes[0]);
    ck_assert(write_section(&other, &worlds[0]));
    char *two = read_copy(&other_size);
    ck_assert_uint_eq(size, other_size);
    ck_assert_mem_eq(one, two, sizes[0]);
    ck_assert_mem_ne(one, two, size);
    size_t mixtures = 0;
    for (size_t cut = sizes[0]; cut < size;
         cut += 24) { /* the first part of one, the rest of two */
        char *mixed = malloc(size);
        memcpy(mixed, two, size);
        memcpy(mixed, one, cut);
        write_copy(0, mixed, size);
        write_copy(1, mixed, size);
        struct srv_manifest_state state;
        ck_assert_int_eq(srv_manifest_read(&state, directory, 1, false), SRV_MANIFEST_READ);
        const bool counts = state.time_ns == 2;
        srv_manifest_state_fini(&state);
        if (counts) /* nothing of the mixture differs from one of them */
            ck_assert(memcmp(mixed, one, size) == 0 || memcmp(mixed, two, size) == 0);
        else
            ck_assert_uint_eq(expect(&worlds[0], false), 0);
        mixtures += !counts;
        free(mixed);
    }
    ck_assert_uint_gt(mixtures, 10);
    free(before);
    free(one);
    free(two);
}
END_TEST

START_TEST(test_manifest_a_failure_leaves_what_was_there)
{
    make_history(2);
    struct world next = worlds[1];
    next.generation++;
    change(&next.sessions[0]);
    change(&next.sessions[1]);
    if (_i == 0)
        atomic_store(&disk.full, true);
    else
        atomic_store(&disk.no_flush, true);
    ck_assert(!write_section(&next, &worlds[1]));
    ck_assert_int_eq(errno, _i == 0 ? ENOSPC : EIO);
    ck_assert(srv_manifest_is_due(&manifest));
    ck_assert_uint_eq(expect(&worlds[1], false), 0);
    next.generation++;
    ck_assert(!write_section(&next, &worlds[1])); /* a new file, which fails too */
    ck_assert(srv_manifest_is_due(&manifest));
    ck_assert_uint_eq(disk_count(DISK_RENAME, ".manifest"), 1);
    ck_assert_uint_eq(expect(&worlds[1], false), 0);
    disk_reset();
    ck_assert(write_section(&next, &worlds[1]));
    ck_assert_uint_eq(manifest.named, next.generation);
    struct srv_manifest_state state;
    ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                     SRV_MANIFEST_READ);
    ck_assert_uint_eq(state.time_ns, next.generation);
    srv_manifest_state_fini(&state);
}
END_TEST

/* Every part is on the disk before the next one rests on it. */
START_TEST(test_manifest_a_new_file_is_flushed_before_its_name_and_the_name_after)
{
    make_history(1);
    const char *own = strrchr(path, '/') + 1;
    const size_t first = disk_find(DISK_FDATASYNC, ".manifest.new", 0);
    const size_t second = disk_find(DISK_FDATASYNC, ".copy.new", 0);
    const size_t renamed = disk_find(DISK_RENAME, ".manifest", 0);
    const size_t copied = disk_find(DISK_RENAME, ".copy", 0);
    ck_assert_uint_lt(first, renamed);
    ck_assert_uint_lt(second, renamed);
    ck_assert_uint_lt(renamed, copied);
    ck_assert_uint_ne(disk_find(DISK_FSYNC, own, copied), SIZE_MAX);
}
END_TEST

/* Bytes with right checksums that no attnd has written. */
START_TEST(test_manifest_impossible_sessions_are_lost)
{
    unsigned char payload[1024];
    for (size_t turn = 0; turn < 500; turn++) {
        struct srv_manifest_session facts = {.has_options = rng_below(&rng, 4) > 0,
                                             .num_layers = rng_below(&rng, 4),
                                             .num_files = rng_below(&rng, 3),
                                             .num_blocks = rng_below(&rng, 4)};
        const size_t options = facts.has_options ? sizeof(struct srv_record_create) : 0;
        size_t length = sizeof facts + options + facts.num_files * 8 + facts.num_layers * 40 +
                        facts.num_blocks * 16;
        for (size_t i = 0; i < sizeof payload; i++)
            payload[i] = (unsigned char)(rng_below(&rng, 2) == 0 ? 0 : rng_below(&rng, 70));
        for (size_t i = 0; i < facts.num_layers * 6; i++) { /* numbers that are often possible */
            const uint32_t number = rng_below(&rng, 3) == 0 ? 64 : rng_below(&rng, 3);
            memcpy(payload + sizeof facts + options + facts.num_files * 8 + i / 6 * 40 + i % 6 * 4,
                   &number, sizeof number);
        }
        if (rng_below(&rng, 8) == 0)
            facts.num_layers = UINT32_MAX - rng_below(&rng, 3);
        if (rng_below(&rng, 8) == 0)
            facts.num_blocks = UINT32_MAX - rng_below(&rng, 3);
        if (rng_below(&rng, 8) == 0)
            length = 4 * (size_t)rng_below(&rng, 256);
        memcpy(payload, &facts, sizeof facts);
        srv_manifest_begin(&manifest, directory, 1 + turn);
        for (size_t i = 0; i < 2; i++) {
            struct srv_record_head head = {.type = SRV_RECORD_SESSION, .epoch = turn % 10 > 0};
            srv_journal_add(&manifest.copies[i], &head, &(struct srv_record_part){payload, length},
                            1);
            if (i == 1)
                manifest.chain = srv_manifest_chain(manifest.chain, &head);
        }
        manifest.num_changed = 1;
        if (manifest.capacity == 0) {
            manifest.changed = malloc(sizeof *manifest.changed);
            manifest.capacity = 1;
        }
        manifest.changed[0] = 1;
        ck_assert(srv_manifest_end(&manifest, 1, NULL, 0));
        struct srv_manifest_state state;
        ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                         SRV_MANIFEST_READ);
        const struct srv_manifest_entry *entry = srv_manifest_find(&state, 1);
        ck_assert_uint_le(state.count, 1); /* no session has the epoch 0 */
        if (turn % 10 == 0) {
            srv_manifest_state_fini(&state);
            continue;
        }
        ck_assert_ptr_nonnull(entry);
        ck_assert(entry->lost != (entry->options != NULL));
        size_t blocks = 0;
        for (size_t i = 0; i < entry->facts.num_layers; i++) {
            const struct srv_manifest_layer *layer = &entry->layers[i];
            for (size_t j = 0; j < layer->added; j++) {
                const size_t left = layer->length - (layer->kept + j) * 64;
                ck_assert_uint_ge(entry->blocks[blocks].rows, left < 64 ? left : 64);
                ck_assert_uint_le(entry->blocks[blocks++].rows, 64);
            }
        }
        ck_assert_uint_eq(blocks, entry->facts.num_blocks);
        srv_manifest_state_fini(&state);
    }
}
END_TEST

START_TEST(test_manifest_a_block_has_the_rows_that_are_used)
{
    static const struct {
        size_t rows[2];
        bool possible;
    } cases[] = {{{64, 6}, true},  {{64, 64}, true}, {{64, 5}, false},
                 {{63, 6}, false}, {{65, 6}, false}, {{64, 0}, false}};
    const struct srv_record_create options = {.id = "a"};
    const struct srv_manifest_layer layer = {.length = 70, .added = 2};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct srv_block_place blocks[] = {{1, 0, 0, cases[i].rows[0]},
                                                 {1, 1, 0, cases[i].rows[1]}};
        const struct srv_description said = {.epoch = 1,
                                             .facts = {.num_layers = 1, .num_blocks = 2},
                                             .options = &options,
                                             .layers = &layer,
                                             .blocks = blocks};
        struct srv_manifest_state state;
        srv_manifest_begin(&manifest, directory, i + 1);
        srv_manifest_add(&manifest, &said);
        ck_assert(srv_manifest_end(&manifest, 1, NULL, 0));
        ck_assert_int_eq(srv_manifest_read(&state, directory, manifest.named, false),
                         SRV_MANIFEST_READ);
        ck_assert_int_eq(srv_manifest_find(&state, 1)->lost, !cases[i].possible);
        srv_manifest_state_fini(&state);
    }
}
END_TEST

START_TEST(test_manifest_a_session_names_few_slot_files)
{
    static struct srv_block_place blocks[SRV_MANIFEST_FILES + 1];
    const struct srv_record_create options = {.id = "a"};
    struct srv_manifest_layer layer = {0};
    struct srv_description said = {
        .epoch = 1, .options = &options, .layers = &layer, .blocks = blocks};
    said.facts.num_layers = 1;
    for (size_t i = 0; i <= SRV_MANIFEST_FILES; i++)
        blocks[i] = (struct srv_block_place){i + 1, i, i, 64};
    for (uint32_t count = SRV_MANIFEST_FILES; count <= SRV_MANIFEST_FILES + 1; count++) {
        said.facts.num_blocks = layer.added = count;
        layer.length = count * 64;
        srv_manifest_begin(&manifest, directory, count);
        srv_manifest_add(&manifest, &said);
        ck_assert_int_eq(srv_manifest_end(&manifest, 1, NULL, 0), count == SRV_MANIFEST_FILES);
    }
    ck_assert_int_eq(errno, EOVERFLOW);
}
END_TEST

Suite *suite_manifest(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tests = tcase_create("manifest");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, test_manifest_says_what_was_said);
    tcase_add_test(tests, test_manifest_a_torn_section_does_not_count);
    tcase_add_test(tests, test_manifest_one_copy_is_enough);
    tcase_add_loop_test(tests, test_manifest_damage_of_one_copy_is_counted, 0, 2);
    tcase_add_test(tests, test_manifest_that_was_set_aside_is_read_too);
    tcase_add_test(tests, test_manifest_damage_in_both_copies_costs_its_sessions);
    tcase_add_loop_test(tests, test_manifest_damage_of_one_session_costs_that_one, 0, 2);
    tcase_add_test(tests, test_manifest_records_of_two_sections_make_none);
    tcase_add_loop_test(tests, test_manifest_a_failure_leaves_what_was_there, 0, 2);
    tcase_add_test(tests, test_manifest_a_new_file_is_flushed_before_its_name_and_the_name_after);
    tcase_add_test(tests, test_manifest_impossible_sessions_are_lost);
    tcase_add_test(tests, test_manifest_a_block_has_the_rows_that_are_used);
    tcase_add_test(tests, test_manifest_a_session_names_few_slot_files);
    suite_add_tcase(suite, tests);
    return suite;
}
