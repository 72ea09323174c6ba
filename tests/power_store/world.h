/* world.h: what a writer of slots and manifests has said, moment by moment, in memory that it
 * shares with the judge. */
#ifndef TESTS_POWER_STORE_WORLD_H
#define TESTS_POWER_STORE_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/manifest.h"
#include "store/slots.h"

#define SESSIONS 5
#define LAYERS 3
#define BLOCKS 4 /* of a layer, at most */
#define MOMENTS 24

/* Bytes of a block in each layer, so many that few slots make a file grow; each layer begins
 * some moments after the one before. */
static const size_t block_bytes[LAYERS] = {60000, 130000, 30000};

struct block {
    uint64_t id;   /* its content; 0: none */
    uint64_t rows; /* of it */
    struct srv_block_place place;
    struct srv_slot slot;
};

struct layer {
    size_t length;
    size_t kept; /* blocks that the last section had */
    struct block blocks[BLOCKS];
};

/* Sessions; the epoch of sessions[i] is epochs[i]. */
struct world {
    uint64_t generation, epochs[SESSIONS];
    bool lives[SESSIONS], is_new[SESSIONS], changed[SESSIONS];
    struct layer layers[SESSIONS][LAYERS];
};

/* Mistakes of the writer. */
enum mistake {
    MISTAKE_NONE,
    MISTAKE_NO_FLUSH,   /* a section before the flush of its blocks */
    MISTAKE_FREE_EARLY, /* a dropped slot is free at once */
    MISTAKE_IN_PLACE,   /* a block that has grown is written into its slot */
    MISTAKE_UNLINK,     /* the older manifest is removed before the section */
    MISTAKE_OTHER_SUM,  /* a block has the checksum of the one before */
    MISTAKE_RESYNC,     /* blocks whose flush has failed are flushed again, not written again */
    MISTAKES
};

struct history {
    _Atomic size_t count; /* of moments that were begun */
    bool ended;
    struct {
        uint64_t begun, done; /* entries of the log before and after; done 0: it was not */
        struct world world;
    } moments[MOMENTS];
};

/* The content of a block, [bytes]. */
void block_fill(unsigned char *out, uint64_t id, size_t bytes);

/* writer.c: MOMENTS moments of random sessions in a directory; some fail. */
struct power_log;
void write_history(struct history *history, struct power_log *log, const char *path, uint64_t seed,
                   enum mistake mistake);

/* judge.c: whether a directory has what the history allows when the power failed after `cut`
 * entries: NULL, or what is wrong. */
const char *judge_directory(const struct history *history, uint64_t cut, const char *path);

#endif
