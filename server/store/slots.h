/* slots.h: files of slots, in which blocks of caches stand.
 *
 * A file has slots of one size, a multiple of SRV_SLOT_UNIT; slot i stands at i times the size.  A
 * slot holds a block's bytes and zeros after them, nothing else: who names a slot keeps its
 * checksum.  A file is named by the generation under which it was made, and by the size:
 * <generation>-<size>.blocks, in hexadecimal digits.
 *
 * A slot that may be named on the disk is never overwritten.  So a slot that is dropped becomes
 * free only when a moment is durable that was begun after the drop:
 *
 *   srv_slots_begin_moment   who is named from here on: nothing that was dropped before
 *   srv_slots_end_moment     that is durable: what was dropped before the begin is free
 *
 * One thread at a time, the writer, uses a table of slots; srv_slots_drop, srv_slots_begin_moment,
 * srv_slots_read and srv_slots_describe are for any thread.  Files are read and written past the
 * system's cache where the file system has that (O_DIRECT), and never mapped. */
#ifndef SRV_SLOTS_H
#define SRV_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SRV_SLOT_UNIT ((size_t)4096)
#define SRV_SLOT_FILES 1024                  /* of one directory, at most */
#define SRV_MAX_SLOT_BYTES ((size_t)1 << 30) /* of a block, at most */
#define SRV_SLOT_GROWTH ((size_t)64 << 20)   /* bytes that a file grows by, at most */
#define SRV_SLOT_RUN ((size_t)256 << 10)     /* bytes of a run that is read at full speed */
#define SRV_SLOT_FILE_NAME 48

struct srv_slots;

/* A slot: one of a file, by its number in the table of files while the daemon runs. */
struct srv_slot {
    uint32_t file;
    uint64_t index;
};

/* Begins for a directory, a descriptor that stays the caller's; files are made with that
 * generation, and their numbers are those of table `number` of a daemon: SRV_SLOT_FILES * number
 * and up.  NULL where memory is short. */
struct srv_slots *srv_slots_new(int directory, uint64_t generation, unsigned number);
void srv_slots_free(struct srv_slots *slots); /* takes NULL; flushes nothing */

/* Writes the name of a slot file; reads one, false where it is none. */
void srv_slot_file_name(char out[SRV_SLOT_FILE_NAME], uint64_t generation, size_t bytes);
bool srv_slot_file_parse(uint64_t *generation, size_t *bytes, const char *name);

/* Bytes of the slot that a block has. */
size_t srv_slot_bytes(size_t block);

/* The generation in the name of a slot's file. */
uint64_t srv_slot_generation(const struct srv_slots *slots, struct srv_slot slot);

/* ---- A start ---- */

/* Counts the slot of that index in the file of that generation, for blocks of `bytes`, as taken,
 * and opens the file where it is not open yet.  *first is whether no call before took it.  False
 * with errno: ENOENT where there is no such file, or the slot is not in it. */
bool srv_slots_hold(struct srv_slot *out, bool *first, struct srv_slots *slots, uint64_t generation,
                    uint64_t index, size_t bytes);

/* ---- Files ---- */

/* Whether a file is needed: it is open and has slots that are taken, or it is kept. */
bool srv_slots_need(const struct srv_slots *slots, uint64_t generation, size_t bytes);

/* For manifests up to that generation that are set aside: the slots of files that these may name
 * stay as they are, of those that srv_slots_hold opens later too, and new blocks go to new files.
 * Files that are made from then on have generations from (manifest + 1) * 2^32 on, by which a later
 * start tells them apart; with a manifest of 2^32 - 1 or later it keeps all files. */
void srv_slots_keep(struct srv_slots *slots, uint64_t manifest);

/* Finds files that were removed from the directory, whose blocks are gone; the name of one that has
 * slots that are taken, false where there is none.  Nothing more is written there. */
bool srv_slots_find_removed(char out[SRV_SLOT_FILE_NAME], struct srv_slots *slots);
bool srv_slot_is_gone(const struct srv_slots *slots, struct srv_slot slot);

/* ---- Writing ---- */

/* Takes up to `count` free slots for blocks of `bytes`, one after another, with room on the disk;
 * returns how many, and the first.  0 with errno, ENOSPC or what else opening and growing a file
 * fails with. */
size_t srv_slots_take(struct srv_slot *first, struct srv_slots *slots, size_t bytes, size_t count);

/* Writes a block to a slot that was taken, and returns its checksum.  Blocks in slots one after
 * another go with one write.  A failure shows in srv_slots_sync. */
uint64_t srv_slots_write(struct srv_slots *slots, struct srv_slot slot, const void *block,
                         size_t bytes);

/* Brings all that was written to the disk, and the names of files that were made.  False with errno
 * where that failed, or a write since the last call: then nobody knows which of these blocks are
 * there. */
bool srv_slots_sync(struct srv_slots *slots);

/* The name of the file for which srv_slots_take or srv_slots_sync has failed since the newest
 * moment began; "": of none, as where memory was short. */
const char *srv_slots_failed(const struct srv_slots *slots);

/* Makes a slot free that nothing on the disk can name. */
void srv_slots_release(struct srv_slots *slots, struct srv_slot slot);

/* Says that a slot will be named no more from the next moment on. */
void srv_slots_drop(struct srv_slots *slots, struct srv_slot slot);

void srv_slots_begin_moment(struct srv_slots *slots);
/* A moment that failed is not ended: the next begin goes on with what was dropped before it. */
void srv_slots_end_moment(struct srv_slots *slots);

/* Gives free slots' room back to the file system, all but a reserve for new blocks, about `bytes`
 * in one call at most.  True where there is more. */
bool srv_slots_punch(struct srv_slots *slots, size_t bytes);

/* ---- Reading ---- */

/* The memory of one thread that reads.  Zeroed at first; srv_slot_reader_fini frees it. */
struct srv_slot_reader {
    unsigned char *buffer; /* [room], aligned to SRV_SLOT_UNIT */
    size_t room;
    int error; /* errno of the last call's read; 0: it was read */
};

/* Reads `count` slots one after another, of blocks of `bytes`, and verifies them against their
 * checksums.  Returns how many from the first on are sound; block i is srv_slot_read_block(). */
size_t srv_slots_read(struct srv_slot_reader *reader, struct srv_slots *slots,
                      struct srv_slot first, const uint64_t sums[], size_t count, size_t bytes);
static inline const void *srv_slot_read_block(const struct srv_slot_reader *reader, size_t i,
                                              size_t bytes)
{
    return reader->buffer + i * srv_slot_bytes(bytes);
}
void srv_slot_reader_fini(struct srv_slot_reader *reader);

/* ---- Figures, for any thread ---- */

struct srv_slots_figures {
    size_t used, waiting; /* bytes of slots that are taken; of these, dropped but not free yet */
    size_t held;          /* bytes that the files hold on the disk, about */
    uint64_t written;     /* bytes since the start */
};
void srv_slots_describe(struct srv_slots_figures *out, struct srv_slots *slots);

#endif
