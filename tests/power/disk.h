/* disk.h: what a disk may hold of a state directory after the power fails, from the log of what was
 * done to the directory.
 *
 * POSIX promises what a completed sync covers and nothing else.  Of the rest each page of 4 KiB may
 * be there as it was after any of the writes to it, or not at all; a file's length may be any that
 * it had; each creation, renaming and removal that no sync of the directory covers may be there or
 * not.  A write whose sync has failed may be missing for good: no later sync covers it. */
#ifndef TESTS_POWER_DISK_H
#define TESTS_POWER_DISK_H

#include "log.h"

/* What is on the disk of all that no sync covers. */
enum disk_kind {
    DISK_NONE,     /* nothing */
    DISK_ALL,      /* everything: the daemon ended, the system did not */
    DISK_PAGES,    /* pages, lengths and names at random */
    DISK_ONE_PAGE, /* everything but one page */
    DISK_FILES,    /* each file whole or not, each name or not: the order between files */
    DISK_NAMES,    /* all content; names at random */
    DISK_SIZES,    /* all content; lengths at random */
    DISK_KINDS
};

/* Defects of a daemon, planted by reading its log otherwise. */
enum disk_plant {
    PLANT_NOTHING,
    PLANT_NO_FLUSH,     /* journals are not flushed */
    PLANT_LATE_FLUSH,   /* a flush counts before its data: from the next one on they are there */
    PLANT_NO_FILE_SYNC, /* files are renamed before their content is on the disk */
    PLANT_NO_DIRECTORY_SYNC, /* names are not brought to the disk */
    PLANT_EARLY_UNLINK,      /* files are removed before what replaces them is on the disk */
    PLANT_NO_BLOCK_SYNC,     /* a section is written without a flush of its blocks */
    PLANT_LATE_BLOCKS,       /* likewise: the flush of the next one is that of its blocks too */
    PLANT_NO_SECTION_SYNC,   /* sections after a manifest's first one are not flushed */
    DISK_PLANTS
};

struct disk_state {
    uint64_t cut; /* entries of the log that happened */
    enum disk_kind kind;
    enum disk_plant plant;
    uint64_t seed; /* of what is drawn */
};

/* A log that takes no more entries, indexed.  Borrows the log. */
struct disk {
    const struct power_log *log;
    const struct power_op **ops; /* [count] */
    uint64_t count;
    const char **created; /* [files of the log]: the name that the file was created with, "" */
    uint64_t *named_at;   /* [files of the log]: index of its first renaming; 0 */
    uint64_t *doubted_at; /* [count]: of a write, the index of the sync of it that failed; 0 */
    uint64_t
        *removed_at; /* [count]: of an unlink, the index from which PLANT_EARLY_UNLINK has it */
};

void disk_open(struct disk *out, const struct power_log *log);
void disk_close(struct disk *disk);

/* Makes the directory `path`, with the files of the state. */
void disk_build(const struct disk *disk, const struct disk_state *state, const char *path);

/* Index of the first entry, at most `cut`, that wrote to a journal which still has its name and
 * that no completed sync covers; planted defects are not seen. */
uint64_t disk_first_unsynced(const struct disk *disk, uint64_t cut);

/* Draws a cut of at least `from` entries, more often near syncs and names. */
uint64_t disk_draw_cut(const struct disk *disk, uint64_t from, uint64_t *random);

/* A number below `n`. */
uint64_t disk_draw(uint64_t *random, uint64_t n);

#endif
