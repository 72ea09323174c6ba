/* manifest.h: what all sessions are at a moment, and where their blocks stand.
 *
 * A manifest is a log in the form of a journal (record.h).  A manifest has sections: the first says
 * what every session is, each further one what has changed since.  A section is SESSION records,
 * one for each session of which there is something to say, and a MOMENT record, without which the
 * section does not count.  The journal that a moment names says what came after.
 *
 * The file is kept twice, <generation>.manifest and <generation>.copy; generation is that of its
 * first section.  A record counts that is sound in either.
 *
 *   SESSION  struct srv_manifest_session; options (struct srv_record_create) if has_options, which
 *            makes the record say all of the session, while else it changes what was said before;
 *            generations of slot files, u64 [num_files]; layers, struct srv_manifest_layer
 *            [num_layers]; references, struct srv_manifest_block [num_blocks], layer by layer
 *   MOMENT   struct srv_manifest_moment; epochs, u64 [num_changed] and [num_ended]
 *
 * A layer's blocks are those that it kept and those that are added.  A SESSION without layers
 * leaves them as they are. */
#ifndef SRV_MANIFEST_H
#define SRV_MANIFEST_H

#include "session/session.h"
#include "store/journal.h"

#define SRV_MANIFEST_FILES 255 /* generations of slot files in one record, at most */

struct srv_manifest_session {
    uint64_t used_ns;     /* of the table's clock (session.h) */
    uint64_t next_record; /* among the session's records */
    struct srv_revision revision;
    uint32_t has_options, num_layers, num_files, num_blocks;
};

struct srv_manifest_layer {
    uint32_t length, first; /* the first token that is kept, a multiple of 64 */
    uint32_t rows, kept;    /* rows of the last step, which ends at the length, 0: none that can be
                               repeated; blocks that stay, counted from token 0 on */
    uint32_t added;         /* blocks from there on, or from `first` where that is later */
    uint32_t block_bytes;   /* of each block */
    uint64_t digest[2];     /* of the last step */
};

/* As in a file: slot, index among the record's generations, rows that the slot has. */
struct srv_manifest_block {
    uint64_t place; /* slot << 16 | index << 8 | rows */
    uint64_t sum;   /* XXH3 of the block's bytes */
};

struct srv_manifest_moment {
    uint64_t generation; /* of the journal that follows */
    uint64_t time_ns;    /* of the table's clock */
    uint64_t num_changed, num_ended;
    uint64_t chain; /* of the section's heads and the moment before, by srv_manifest_chain */
};

/* A block on the disk. */
struct srv_block_place {
    uint64_t generation, slot, sum; /* generation: of the slot file */
    uint64_t rows;                  /* that the slot has, 1 to 64; 0: it is nowhere */
};

/* A session as the manifest describes it. */
struct srv_description {
    uint64_t epoch;
    struct srv_manifest_session facts;
    const struct srv_record_create *options; /* NULL: they are as before */
    const struct srv_manifest_layer *layers; /* [facts.num_layers] */
    const struct srv_block_place *blocks;    /* [facts.num_blocks] that are added */
};

/* ---- Writing --------------------------------------------------------------------------------- */

/* A manifest that is being written.  Zeroed at first; the caller serializes calls. */
struct srv_manifest {
    int directory;
    uint64_t named;               /* generation of the file; 0: there is none */
    uint64_t generation;          /* of the section */
    struct srv_journal copies[2]; /* of the file */
    bool is_first;                /* the section is that of a new file */
    bool broken;                  /* whether a section counts is unknown: a new file is due */
    int error;                    /* errno of the section; 0 */
    uint64_t chain;               /* after the last record */
    uint64_t first_bytes;         /* of the first section */
    uint64_t *changed;            /* [num_changed] epochs of the section */
    size_t num_changed, capacity;
};

/* Whether the next section has to be the first of a new file, which says what every session is:
 * there is none, it is broken, or its later sections have more bytes than its first. */
bool srv_manifest_is_due(const struct srv_manifest *manifest);

/* Begins a section, the first one of a new file where that is due; says what a session is; and ends
 * the section, whose journal is that of the generation.  Failures show at the end, as false with
 * errno: then the section does not count, or with `broken` may count.  After true all of it is on
 * the disk; the caller may remove older manifests. */
void srv_manifest_begin(struct srv_manifest *manifest, int directory, uint64_t generation);
void srv_manifest_add(struct srv_manifest *manifest, const struct srv_description *session);
bool srv_manifest_end(struct srv_manifest *manifest, uint64_t time_ns, const uint64_t ended[],
                      size_t num_ended);
void srv_manifest_fini(struct srv_manifest *manifest);

/* The chain after a record, which has come from the one before. */
uint64_t srv_manifest_chain(uint64_t chain, const struct srv_record_head *head);

/* Writes the name of a copy, 0 or 1. */
#define SRV_MANIFEST_NAME 32
void srv_manifest_name(char out[SRV_MANIFEST_NAME], uint64_t generation, size_t copy);

/* ---- Reading --------------------------------------------------------------------------------- */

/* A session of a manifest that is read: all that its records say together. */
struct srv_manifest_entry {
    uint64_t epoch; /* 0: none stands here */
    bool lost;      /* damaged, or something of it is missing */
    struct srv_manifest_session facts;
    struct srv_record_create *options;
    struct srv_manifest_layer *layers; /* [facts.num_layers]; kept: the place of the first of */
    struct srv_block_place *blocks;    /* [facts.num_blocks], `added` of each layer */
};

struct srv_manifest_state {
    struct srv_manifest_entry *entries; /* [capacity] hashed by epoch */
    size_t capacity, count;             /* count: with lost ones */
    uint64_t generation, time_ns;       /* of the last section that counts; 0: none does */
    size_t sections;
    size_t damaged;    /* records that are sound in one copy alone, or in none */
    bool torn;         /* it ends in a section that does not count */
    size_t unreadable; /* after SRV_MANIFEST_UNREADABLE: the copy, 0 or 1 */
};

enum srv_manifest_reading {
    SRV_MANIFEST_READ,
    SRV_MANIFEST_NONE,       /* no section counts */
    SRV_MANIFEST_UNREADABLE, /* errno */
};

/* Reads the manifest of that generation in a directory, or one that was set aside.  Memory: that of
 * what the files say. */
enum srv_manifest_reading srv_manifest_read(struct srv_manifest_state *out, int directory,
                                            uint64_t generation, bool set_aside);
void srv_manifest_state_fini(struct srv_manifest_state *state);

/* The entry of an epoch; NULL where there is none. */
struct srv_manifest_entry *srv_manifest_find(const struct srv_manifest_state *state,
                                             uint64_t epoch);

#endif
