/* test_slots.c: slots that may be named on the disk keep their bytes, and what is read is what was
 * written or is refused. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "rng.h"
#include "scratch.h"
#include "store/slots.h"
#include "suites.h"

#define GENERATION 7

static char path[SCRATCH_PATH];
static int directory;
static struct srv_slots *slots;
static struct srv_slot_reader reader;

static void set_up(void)
{
    disk_reset();
    scratch_make(path);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    slots = srv_slots_new(directory, GENERATION, 0);
    ck_assert_ptr_nonnull(slots);
    reader = (struct srv_slot_reader){0};
}

static void tear_down(void)
{
    disk_reset();
    srv_slot_reader_fini(&reader);
    srv_slots_free(slots);
    close(directory);
    scratch_remove(path);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* A block of these bytes whose content follows from `seed`. */
static unsigned char *block_of(uint64_t seed, size_t bytes)
{
    static unsigned char block[1 << 21];
    struct rng rng;
    ck_assert(bytes <= sizeof block);
    rng = rng_seeded(seed);
    for (size_t i = 0; i < bytes; i++)
        block[i] = (unsigned char)rng_below(&rng, 256);
    return block;
}

struct kept {
    struct srv_slot slot;
    uint64_t seed, sum;
    size_t bytes;
};

/* Takes a slot and writes a block to it. */
static struct kept keep(uint64_t seed, size_t bytes)
{
    struct kept kept = {.seed = seed, .bytes = bytes};
    ck_assert_uint_eq(srv_slots_take(&kept.slot, slots, bytes, 1), 1);
    kept.sum = srv_slots_write(slots, kept.slot, block_of(seed, bytes), bytes);
    return kept;
}

static bool is_there(const struct kept *kept)
{
    return srv_slots_read(&reader, slots, kept->slot, &kept->sum, 1, kept->bytes) == 1 &&
           memcmp(srv_slot_read_block(&reader, 0, kept->bytes), block_of(kept->seed, kept->bytes),
                  kept->bytes) == 0;
}

static bool is_same(struct srv_slot a, struct srv_slot b)
{
    return a.file == b.file && a.index == b.index;
}

static void pass_moment(void)
{
    srv_slots_begin_moment(slots);
    ck_assert(srv_slots_sync(slots));
    srv_slots_end_moment(slots);
}

static void name_file(char out[512], size_t bytes)
{
    char name[SRV_SLOT_FILE_NAME];
    srv_slot_file_name(name, GENERATION, srv_slot_bytes(bytes));
    snprintf(out, 512, "%s/%s", path, name);
}

/* ---- Reading what was written ---------------------------------------------------------------- */

START_TEST(test_slots_read_gives_what_was_written_also_after_a_start)
{
    static const size_t sizes[] = {1, 100, 4096, 4097, 32768, 270000, 1300000};
    struct kept kept[21];
    for (size_t i = 0; i < 21; i++)
        kept[i] = keep(i, sizes[i % 7]);
    ck_assert(srv_slots_sync(slots));
    srv_slots_free(slots);
    slots = srv_slots_new(directory, GENERATION + 1, 0);
    for (size_t i = 0; i < 21; i++) {
        bool first;
        ck_assert(srv_slots_hold(&kept[i].slot, &first, slots, GENERATION, kept[i].slot.index,
                                 kept[i].bytes));
        ck_assert(first);
        ck_assert_uint_eq(srv_slot_generation(slots, kept[i].slot), GENERATION);
        ck_assert(is_there(&kept[i]));
        ck_assert(srv_slots_hold(&kept[i].slot, &first, slots, GENERATION, kept[i].slot.index,
                                 kept[i].bytes));
        ck_assert(!first);
    }
    for (size_t i = 0; i < 200; i++) { /* what was held is not taken again */
        const struct kept more = keep(1000 + i, sizes[i % 7]);
        for (size_t j = 0; j < 21; j++)
            ck_assert(!is_same(more.slot, kept[j].slot));
    }
    ck_assert(srv_slots_sync(slots));
    for (size_t i = 0; i < 21; i++)
        ck_assert(is_there(&kept[i]));
}
END_TEST

START_TEST(test_slots_a_layer_gets_runs)
{
    struct srv_slot first;
    size_t left = 512, runs = 0;
    for (; left > 0; runs++) {
        const size_t count = srv_slots_take(&first, slots, 32768, left);
        ck_assert(count == left || count * 32768 >= SRV_SLOT_RUN);
        left -= count;
    }
    ck_assert_uint_le(runs, 16);
    ck_assert_uint_eq(srv_slots_take(&first, slots, 0, 1), 0);
    ck_assert_uint_eq(srv_slots_take(&first, slots, SRV_MAX_SLOT_BYTES + 1, 1), 0);
    ck_assert_int_eq(errno, EINVAL);
}
END_TEST

START_TEST(test_slots_blocks_in_a_run_go_with_one_write)
{
    struct srv_slot first;
    uint64_t sums[16];
    ck_assert_uint_eq(srv_slots_take(&first, slots, 32768, 16), 16);
    for (size_t i = 0; i < 16; i++)
        sums[i] = srv_slots_write(slots, (struct srv_slot){first.file, first.index + i},
                                  block_of(i, 32768), 32768);
    ck_assert(srv_slots_sync(slots));
    ck_assert_uint_eq(disk_count(DISK_PWRITE, ".blocks"), 1);
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, ".blocks"), 1);
    ck_assert_uint_eq(srv_slots_read(&reader, slots, first, sums, 16, 32768), 16);
    for (size_t i = 0; i < 16; i++)
        ck_assert_mem_eq(srv_slot_read_block(&reader, i, 32768), block_of(i, 32768), 32768);
    ck_assert(srv_slots_sync(slots)); /* nothing was written since */
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, ".blocks"), 1);
}
END_TEST

/* A manifest's record names few files (manifest.h), however often a daemon has started. */
START_TEST(test_slots_of_a_later_start_are_added_to_the_file_that_is_there)
{
    static struct kept kept[5][64]; /* more than a file grows by at first */
    for (size_t start = 0; start < 5; start++) {
        bool first;
        srv_slots_free(slots);
        slots = srv_slots_new(directory, GENERATION + start, 0);
        for (size_t i = 0; i < start * 64; i++)
            ck_assert(srv_slots_hold(&kept[i / 64][i % 64].slot, &first, slots, GENERATION,
                                     kept[i / 64][i % 64].slot.index, 32768));
        for (size_t i = 0; i < 64; i++) {
            kept[start][i] = keep(start * 64 + i, 32768);
            ck_assert_uint_eq(srv_slot_generation(slots, kept[start][i].slot), GENERATION);
        }
        ck_assert(srv_slots_sync(slots));
    }
    for (size_t i = 0; i < 5 * 64; i++)
        ck_assert(is_there(&kept[i / 64][i % 64]));
}
END_TEST

/* ---- When a slot is free --------------------------------------------------------------------- */

START_TEST(test_slots_a_dropped_slot_is_free_when_a_later_moment_is_durable)
{
    const struct kept kept = keep(1, 32768);
    struct srv_slots_figures figures;
    pass_moment(); /* which names it */
    srv_slots_begin_moment(slots);
    srv_slots_drop(slots, kept.slot); /* after the begin: that moment may name it */
    srv_slots_end_moment(slots);
    for (size_t i = 0; i < 100; i++)
        ck_assert(!is_same(keep(2 + i, 32768).slot, kept.slot));
    ck_assert(srv_slots_sync(slots));
    ck_assert(is_there(&kept));
    srv_slots_begin_moment(slots); /* and fails */
    srv_slots_describe(&figures, slots);
    ck_assert_uint_eq(figures.waiting, 32768);
    ck_assert_uint_eq(figures.used, 101 * 32768);
    for (size_t i = 0; i < 100; i++)
        ck_assert(!is_same(keep(200 + i, 32768).slot, kept.slot));
    ck_assert(srv_slots_sync(slots));
    ck_assert(is_there(&kept));
    pass_moment();
    srv_slots_describe(&figures, slots);
    ck_assert_uint_eq(figures.waiting, 0);
    ck_assert_uint_eq(figures.used, 200 * 32768);
    bool found = false;
    for (size_t i = 0; i < 200 && !found; i++)
        found = is_same(keep(400 + i, 32768).slot, kept.slot);
    ck_assert(found);
}
END_TEST

START_TEST(test_slots_a_released_slot_is_free_at_once)
{
    const struct kept kept = keep(1, 4096);
    struct srv_slots_figures figures;
    srv_slots_release(slots, kept.slot);
    srv_slots_describe(&figures, slots);
    ck_assert_uint_eq(figures.used, 0);
}
END_TEST

#define NAMED 400

/* What the newest durable moment names is there at every moment, whatever is written, dropped, and
 * fails meanwhile; and what is live too. */
START_TEST(test_slots_what_is_named_stays_through_random_work)
{
    static const size_t sizes[] = {4096, 12000, 32768};
    struct kept live[NAMED], named[NAMED];
    size_t count = 0, num_named = 0;
    struct rng rng;
    rng = rng_seeded(39);
    for (uint64_t turn = 0; turn < 60; turn++) {
        for (size_t i = 0; i < 40; i++) {
            const bool drops = count == NAMED || (count > 0 && rng_below(&rng, 5) < 2);
            if (drops) {
                const size_t which = rng_below(&rng, (unsigned)count);
                srv_slots_drop(slots, live[which].slot);
                live[which] = live[--count];
            } else {
                live[count] = keep(turn * 100 + i, sizes[rng_below(&rng, 3)]);
                count++;
            }
        }
        for (size_t i = 0; i < num_named; i++)
            ck_assert(is_there(&named[i]));
        srv_slots_begin_moment(slots);
        ck_assert(srv_slots_sync(slots));
        struct kept begun[NAMED];
        const size_t num_begun = count;
        memcpy(begun, live, count * sizeof *live);
        for (size_t i = 0; i < 3 && count > 0; i++) /* while the moment is written */
            srv_slots_drop(slots, live[--count].slot);
        if (rng_below(&rng, 3) > 0) {
            srv_slots_end_moment(slots);
            memcpy(named, begun, num_begun * sizeof *begun);
            num_named = num_begun;
        }
        (void)srv_slots_punch(slots, SIZE_MAX);
        for (size_t i = 0; i < num_named; i++)
            ck_assert(is_there(&named[i]));
    }
    struct srv_slots_figures figures;
    srv_slots_describe(&figures, slots);
    ck_assert_uint_lt(figures.held, 3 * NAMED * (size_t)32768);
}
END_TEST

/* ---- The disk -------------------------------------------------------------------------------- */

START_TEST(test_slots_damage_is_found_and_ends_the_run)
{
    struct srv_slot first;
    uint64_t sums[4], turned[4];
    char file[512], byte;
    ck_assert_uint_eq(srv_slots_take(&first, slots, 5000, 4), 4);
    for (size_t i = 0; i < 4; i++)
        sums[i] = srv_slots_write(slots, (struct srv_slot){first.file, first.index + i},
                                  block_of(i, 5000), 5000);
    ck_assert(srv_slots_sync(slots));
    memcpy(turned, sums, sizeof sums);
    turned[0] = sums[1]; /* the checksum of another block */
    ck_assert_uint_eq(srv_slots_read(&reader, slots, first, turned, 4, 5000), 0);
    ck_assert_int_eq(reader.error, 0);
    name_file(file, 5000);
    int fd = open(file, O_RDWR);
    const off_t at = (off_t)((first.index + 2) * 8192 + 4999);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    ck_assert_uint_eq(srv_slots_read(&reader, slots, first, sums, 4, 5000), 2);
    ck_assert_int_eq(reader.error, 0);
    ck_assert_int_eq(ftruncate(fd, at), 0); /* a file that ends too early is damage, no fault */
    ck_assert_uint_eq(srv_slots_read(&reader, slots, first, sums, 4, 5000), 0);
    ck_assert_int_eq(reader.error, EBADMSG);
    close(fd);
    atomic_store(&disk.unreadable, EIO);
    ck_assert_uint_eq(srv_slots_read(&reader, slots, first, sums, 1, 5000), 0);
    ck_assert_int_eq(reader.error, EIO);
}
END_TEST

START_TEST(test_slots_a_full_disk_refuses_to_take_and_leaves_what_is_there)
{
    struct srv_slot first;
    struct srv_slots_figures figures;
    const struct kept kept = keep(1, 32768);
    ck_assert(srv_slots_sync(slots));
    atomic_store(&disk.full, true);
    size_t taken = 0, count;
    while ((count = srv_slots_take(&first, slots, 32768, 8)) > 0) /* what had room before */
        taken += count;
    ck_assert_int_eq(errno, ENOSPC);
    srv_slots_describe(&figures, slots);
    ck_assert_uint_le(taken * 32768, (size_t)1 << 20);
    ck_assert_uint_eq(figures.used, (taken + 1) * 32768);
    ck_assert_uint_eq(srv_slots_take(&first, slots, 4096, 1), 0); /* a size of which is no file */
    atomic_store(&disk.full, false);
    ck_assert(is_there(&kept));
    ck_assert_uint_eq(srv_slots_take(&first, slots, 32768, 8), 8);
    ck_assert_uint_eq(srv_slots_take(&first, slots, 4096, 1), 1);
}
END_TEST

START_TEST(test_slots_a_failed_write_or_flush_is_reported_once)
{
    struct kept kept = keep(1, 4096);
    atomic_store(&disk.full, true);
    ck_assert(!srv_slots_sync(slots));
    ck_assert_int_eq(errno, ENOSPC);
    atomic_store(&disk.full, false);
    ck_assert(srv_slots_sync(slots));
    kept.sum = srv_slots_write(slots, kept.slot, block_of(1, 4096), 4096);
    atomic_store(&disk.no_flush, true);
    ck_assert(!srv_slots_sync(slots));
    ck_assert_int_eq(errno, EIO);
    atomic_store(&disk.no_flush, false);
    kept.sum = srv_slots_write(slots, kept.slot, block_of(1, 4096), 4096);
    ck_assert(srv_slots_sync(slots));
    ck_assert(is_there(&kept));
}
END_TEST

START_TEST(test_slots_free_room_goes_back_to_the_file_system)
{
    static struct kept kept[512];
    struct srv_slots_figures before, after;
    struct stat full, punched;
    char file[512];
    for (size_t i = 0; i < 512; i++)
        kept[i] = keep(i, 32768);
    pass_moment();
    name_file(file, 32768);
    ck_assert_int_eq(stat(file, &full), 0);
    for (size_t i = 0; i < 512; i += i % 8 == 6 ? 2 : 1) /* one of eight stays */
        srv_slots_drop(slots, kept[i].slot);
    pass_moment();
    srv_slots_describe(&before, slots);
    size_t turns = 0;
    while (srv_slots_punch(slots, (size_t)1 << 20))
        turns++;
    srv_slots_describe(&after, slots);
    ck_assert_uint_ge(turns, 8);
    ck_assert_uint_le(after.held, after.used + after.used / 32 + ((size_t)1 << 20));
    ck_assert_int_eq(stat(file, &punched), 0);
    const blkcnt_t extents = 65536; /* that list the holes */
    ck_assert_int_le(punched.st_blocks * 512,
                     full.st_blocks * 512 - (blkcnt_t)(before.held - after.held) + extents);
    atomic_store(&disk.full, true); /* what was given back may be gone */
    struct srv_slot slot;
    size_t taken = 0;
    for (; srv_slots_take(&slot, slots, 32768, 1) == 1; taken++)
        ck_assert_uint_lt(taken, 512);
    ck_assert_uint_le(after.used + taken * 32768, after.held);
    atomic_store(&disk.full, false);
    for (size_t i = 7; i < 512; i += 8)
        ck_assert(is_there(&kept[i]));
    for (size_t i = 0; i < 512; i++)
        if (i % 8 != 7)
            kept[i] = keep(1000 + i, 32768); /* room that was given back is had again */
    pass_moment();
    for (size_t i = 0; i < 512; i++)
        ck_assert(is_there(&kept[i]));
}
END_TEST

START_TEST(test_slots_a_name_leads_nowhere_else)
{
    char file[512];
    bool first;
    struct srv_slot slot;
    name_file(file, 4096);
    ck_assert(!srv_slots_hold(&slot, &first, slots, GENERATION, 0, 4096));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(symlink("/etc/passwd", file), 0);
    ck_assert(!srv_slots_hold(&slot, &first, slots, GENERATION, 0, 4096));
    ck_assert_uint_eq(srv_slots_take(&slot, slots, 4096, 1), 0);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    ck_assert(!srv_slots_hold(&slot, &first, slots, GENERATION, 0, 4096));
    ck_assert_int_eq(unlink(file), 0);
    const struct kept kept = keep(1, 4096);
    ck_assert(srv_slots_hold(&slot, &first, slots, GENERATION, kept.slot.index, 4096));
    ck_assert(!srv_slots_hold(&slot, &first, slots, GENERATION, UINT64_MAX, 4096));
    ck_assert(!srv_slots_hold(&slot, &first, slots, GENERATION, (uint64_t)1 << 48, 4096));
}
END_TEST

/* ---- Files that stay, or go ------------------------------------------------------------------ */

START_TEST(test_slots_of_a_table_have_its_numbers)
{
    srv_slots_free(slots);
    slots = srv_slots_new(directory, GENERATION, 3);
    const struct kept kept[] = {keep(1, 4096), keep(2, 32768)};
    ck_assert(srv_slots_sync(slots));
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(kept[i].slot.file, 3 * SRV_SLOT_FILES + i);
        ck_assert_uint_eq(srv_slot_generation(slots, kept[i].slot), GENERATION);
        ck_assert(is_there(&kept[i]));
        srv_slots_drop(slots, kept[i].slot);
    }
    pass_moment();
    struct srv_slots_figures figures;
    srv_slots_describe(&figures, slots);
    ck_assert_uint_eq(figures.used, 0);
}
END_TEST

START_TEST(test_slots_a_file_is_needed_while_one_of_its_slots_is_taken)
{
    const struct kept kept = keep(1, 4096);
    ck_assert(srv_slots_need(slots, GENERATION, 4096));
    ck_assert(!srv_slots_need(slots, GENERATION, 8192));
    ck_assert(!srv_slots_need(slots, GENERATION + 1, 4096));
    srv_slots_begin_moment(slots);
    srv_slots_drop(slots, kept.slot);
    srv_slots_end_moment(slots);
    ck_assert(srv_slots_need(slots, GENERATION, 4096)); /* that moment may name it */
    pass_moment();
    ck_assert(!srv_slots_need(slots, GENERATION, 4096));
}
END_TEST

/* A file that was written before (0), or by an earlier daemon (1). */
START_TEST(test_slots_of_files_that_are_kept_stay_as_they_are)
{
    static struct kept kept[256];
    struct stat before, after;
    char file[512];
    bool first;
    for (size_t i = 0; i < 256; i++)
        kept[i] = keep(i, 32768);
    pass_moment();
    name_file(file, 32768);
    if (_i == 1) {
        srv_slots_free(slots);
        slots = srv_slots_new(directory, GENERATION + 1, 0);
        srv_slots_keep(slots, GENERATION);
        ck_assert(
            srv_slots_hold(&kept[0].slot, &first, slots, GENERATION, kept[0].slot.index, 32768));
    } else {
        srv_slots_keep(slots, GENERATION);
    }
    for (size_t i = 0; i < (_i == 0 ? 256 : 1); i++)
        srv_slots_drop(slots, kept[i].slot);
    pass_moment();
    ck_assert(srv_slots_need(slots, GENERATION, 32768));
    ck_assert_int_eq(stat(file, &before), 0);
    for (size_t i = 0; i < 256; i++)
        ck_assert_uint_gt(srv_slot_generation(slots, keep(1000 + i, 32768).slot), GENERATION);
    pass_moment();
    while (srv_slots_punch(slots, SIZE_MAX))
        continue;
    ck_assert_int_eq(stat(file, &after), 0);
    ck_assert_int_eq(after.st_blocks, before.st_blocks);
    for (size_t i = 0; i < 256; i++) {
        kept[i].slot.file = kept[0].slot.file;
        ck_assert(is_there(&kept[i]));
    }
}
END_TEST

/* One of another owner is read, and new blocks go elsewhere. */
START_TEST(test_slots_of_a_file_that_can_be_read_only_are_not_taken)
{
    struct kept kept = keep(1, 4096);
    const uid_t own = geteuid();
    char file[512];
    bool first;
    pass_moment();
    srv_slots_free(slots);
    slots = srv_slots_new(directory, GENERATION + 1, 0);
    name_file(file, 4096);
    ck_assert_int_eq(chmod(path, 0777) | chmod(file, 0444), 0);
    ck_assert_int_eq(own == 0 ? seteuid(65534) : 0, 0);
    ck_assert(srv_slots_hold(&kept.slot, &first, slots, GENERATION, kept.slot.index, 4096));
    const struct kept other = keep(2, 4096);
    ck_assert_uint_eq(srv_slot_generation(slots, other.slot), GENERATION + 1);
    srv_slots_drop(slots, kept.slot);
    pass_moment();
    ck_assert_uint_eq(srv_slot_generation(slots, keep(3, 4096).slot), GENERATION + 1);
    pass_moment();
    ck_assert(!srv_slots_punch(slots, SIZE_MAX));
    ck_assert(is_there(&kept) && is_there(&other));
    ck_assert_int_eq(seteuid(own), 0);
}
END_TEST

/* Removed (0), or another file stands there (1). */
START_TEST(test_slots_of_files_that_others_remove_are_gone)
{
    const struct kept kept = keep(1, 4096), other = keep(2, 8192);
    char file[512], name[SRV_SLOT_FILE_NAME] = "", expected[SRV_SLOT_FILE_NAME];
    pass_moment();
    ck_assert(!srv_slots_find_removed(name, slots));
    ck_assert_str_eq(name, "");
    name_file(file, 4096);
    ck_assert_int_eq(unlink(file), 0);
    if (_i == 1)
        close(open(file, O_RDWR | O_CREAT, 0600));
    srv_slot_file_name(expected, GENERATION, 4096);
    ck_assert(srv_slots_find_removed(name, slots));
    ck_assert_str_eq(name, expected);
    ck_assert(srv_slot_is_gone(slots, kept.slot) && !srv_slot_is_gone(slots, other.slot));
    ck_assert(!srv_slots_find_removed(name, slots)); /* once */
    const struct kept again = keep(1, 4096);
    ck_assert(!is_same(again.slot, kept.slot) && !srv_slot_is_gone(slots, again.slot));
    srv_slots_drop(slots, kept.slot);
    pass_moment();
    srv_slots_free(slots); /* a later start finds it */
    slots = srv_slots_new(directory, GENERATION + 9, 0);
    struct kept found = again;
    bool first, held = false;
    for (uint64_t i = 0; i < 3 && !held; i++)
        held = srv_slots_hold(&found.slot, &first, slots, GENERATION + i, again.slot.index, 4096) &&
               is_there(&found);
    ck_assert(held);
}
END_TEST

START_TEST(test_slots_of_a_removed_file_that_nobody_needs_are_not_missed)
{
    const struct kept kept = keep(1, 4096);
    char file[512], name[SRV_SLOT_FILE_NAME];
    srv_slots_release(slots, kept.slot);
    name_file(file, 4096);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert(!srv_slots_find_removed(name, slots));
    ck_assert(!srv_slot_is_gone(slots, keep(2, 4096).slot));
}
END_TEST

START_TEST(test_slots_names_of_files)
{
    static const char *const others[] = {
        "0000000000000007-00001000.block",  "0000000000000007-00001001.blocks",
        "0000000000000007-00000000.blocks", "0000000000000007-7fffffff.blocks",
        "0000000000000007-80000000.blocks", "000000000000007-00001000.blocks",
        "0000000000000007-1000.blocks",     "0000000000000007-00001000.blocks ",
        "000000000000000A-00001000.blocks", "-000000000000007-00001000.blocks",
        "0x00000000000007-00001000.blocks", ""};
    uint64_t generation;
    size_t bytes;
    char name[SRV_SLOT_FILE_NAME];
    srv_slot_file_name(name, UINT64_MAX, 1 << 20);
    ck_assert(srv_slot_file_parse(&generation, &bytes, name));
    ck_assert_uint_eq(generation, UINT64_MAX);
    ck_assert_uint_eq(bytes, 1 << 20);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!srv_slot_file_parse(&generation, &bytes, others[i]), "%s", others[i]);
}
END_TEST

Suite *suite_slots(void)
{
    Suite *suite = suite_create("slots");
    TCase *tests = suite_cases(suite, "slots", set_up, tear_down, 0);
    tcase_add_test(tests, test_slots_read_gives_what_was_written_also_after_a_start);
    tcase_add_test(tests, test_slots_of_a_later_start_are_added_to_the_file_that_is_there);
    tcase_add_test(tests, test_slots_a_layer_gets_runs);
    tcase_add_test(tests, test_slots_blocks_in_a_run_go_with_one_write);
    tcase_add_test(tests, test_slots_a_dropped_slot_is_free_when_a_later_moment_is_durable);
    tcase_add_test(tests, test_slots_a_released_slot_is_free_at_once);
    tcase_add_test(tests, test_slots_what_is_named_stays_through_random_work);
    tcase_add_test(tests, test_slots_damage_is_found_and_ends_the_run);
    tcase_add_test(tests, test_slots_a_full_disk_refuses_to_take_and_leaves_what_is_there);
    tcase_add_test(tests, test_slots_a_failed_write_or_flush_is_reported_once);
    tcase_add_test(tests, test_slots_free_room_goes_back_to_the_file_system);
    tcase_add_test(tests, test_slots_a_name_leads_nowhere_else);
    tcase_add_test(tests, test_slots_of_a_table_have_its_numbers);
    tcase_add_test(tests, test_slots_a_file_is_needed_while_one_of_its_slots_is_taken);
    tcase_add_loop_test(tests, test_slots_of_files_that_are_kept_stay_as_they_are, 0, 2);
    tcase_add_test(tests, test_slots_of_a_file_that_can_be_read_only_are_not_taken);
    tcase_add_loop_test(tests, test_slots_of_files_that_others_remove_are_gone, 0, 2);
    tcase_add_test(tests, test_slots_of_a_removed_file_that_nobody_needs_are_not_missed);
    tcase_add_test(tests, test_slots_names_of_files);
    return suite;
}
