/* model.h: the store of sessions as a machine of small steps, for exhaustive search.
 *
 *   journal   ROW, TRUNCATE, FORK, CREATE and END in order; each record names the one before it
 *   slots     blocks of ROWS rows, a sector each; written once; their checksum is in the reference
 *   manifest  a log of sections.  A section says what the sessions were at one moment, the boundary
 *             between two journals, all of it in slots
 *
 *   moment    make the next journal, flush the directory | between two steps: switch the journal,
 *             freeze the sessions | write what no slot has into free slots | flush the slots, and
 *             the directory where their file is new
 *             | append the section, or write a new manifest | flush it | rename it, flush the
 *             directory | remove older journals and manifests
 *   slot      taken while a session in memory, a frozen one or a read in flight names it; once
 *             dropped, free when a section of a later moment than the newest one at that time is
 *             durable
 *   eviction  a block leaves memory when a slot has all of its rows and that slot is flushed
 *   start     newest manifest with a whole section; its sessions; the records from its journal on,
 *             until one is missing; flush what was read, cut off what was not, flush the
 *             directory; make a journal of the new fence; serve
 *
 * Growing a slot file and giving back its room change free slots alone: they are writes to these.
 * Of a failed flush of the journal only a section of a moment begun later makes an end; a section
 * whose flush failed is followed by a new manifest.
 *
 * A disk keeps what a flush covers.  Of the rest each record, sector, part of a section, and name
 * may be there or not after a power failure.  A killed daemon leaves everything.
 *
 * What is held against it (recover.c): the sessions that a start finds are those of the history
 * after `n` records, bit for bit, where n is at least what was made durable and at most what was
 * done.  That covers lost rows, sessions that come back, and blocks of others at once.
 *
 * The identity of a row is the number of its record (never used twice), so a checksum is the list
 * of rows itself.  Slots count from 1 in references; 0 is none. */
#ifndef TESTS_STORE_MODEL_H
#define TESTS_STORE_MODEL_H

#include "explore.h"

enum {
    ROWS = 2, /* of a block */
    BLOCKS = 2,
    LENGTH = ROWS * BLOCKS,
    SESSIONS = 3,
    SLOTS = 4,
    RECORDS = 8,
    JOURNALS = 5,
    MANIFESTS = 3,
    SECTIONS = 4,
    COPIES = 2, /* of a manifest */
    GARBAGE = 0xff
};

/* Of a record, a part of a section, or a slot. */
enum where {
    NOWHERE,
    CACHED,   /* the kernel has it, the disk perhaps */
    IN_DOUBT, /* likewise, and no flush will tell */
    ON_DISK,
    DAMAGED /* flushed, and not there */
};

enum record_type { ROW, TRUNCATE, FORK, CREATE, END };

struct record {
    uint8_t type, session;
    uint8_t argument; /* of TRUNCATE: rows that stay; of FORK: the parent */
    uint8_t before;   /* record before this one; 0: none */
    uint8_t own;      /* the one before of the session, of FORK of the parent */
    uint8_t number;   /* its place in the history when it was written */
    uint8_t synced;   /* records that were durable then */
    uint8_t journal, where;
};

struct place {
    uint8_t slot, rows;
    uint8_t sum[ROWS]; /* of all rows that the slot has */
};

struct block {
    struct place stored;
    uint8_t absent; /* not in memory */
};

struct session {
    uint8_t alive, length;
    uint8_t last; /* its newest record */
    uint8_t rows[LENGTH];
    struct block blocks[BLOCKS];
};

struct slot {
    uint8_t disk[ROWS], cache[ROWS];
    uint8_t where; /* CACHED: written since the last flush */
    uint8_t held;  /* moment that had begun when it was dropped */
};

/* A file's name. */
struct name {
    uint8_t made, gone; /* NOWHERE, CACHED or ON_DISK, each */
};

/* A section; parts[][0] has the sessions, parts[][1] ends it. */
struct section {
    uint8_t manifest, moment;
    uint8_t journal;      /* what came after it */
    uint8_t number, last; /* records of the history before it, and the newest one */
    uint8_t before;       /* moment of the section before it; 0: it is a manifest's first */
    uint8_t changed;      /* sessions that it has, a bit each */
    struct session sessions[SESSIONS];
    uint8_t parts[COPIES][2];
};

enum stage { IDLE, FROZEN, STORED, APPENDED, WRITTEN, FLUSHED, RENAMED };

struct state {
    /* What happened. */
    uint8_t history[RECORDS + 1]; /* [1 + done] */
    uint8_t done;                 /* records */
    uint8_t durable;              /* of them, as the daemon believes and answered */
    uint8_t used;                 /* numbers of records */
    uint8_t crashes, faults, moments_made;
    uint8_t damage; /* a write was lost, or what was written has changed */

    /* The disk. */
    struct record records[RECORDS + 1];
    struct slot slots[SLOTS + 1];
    struct name slot_file; /* made with the first block that is written */
    struct name journals[JOURNALS + 1];
    struct name manifests[MANIFESTS + 1][COPIES];
    struct section sections[SECTIONS + 1];
    uint8_t num_sections;

    /* The daemon. */
    uint8_t phase; /* enum phase */
    struct session sessions[SESSIONS];
    uint8_t journal, manifest, section; /* that are written, and the newest durable section */
    uint8_t broken;                     /* enum broken: the journal takes no records */
    uint8_t rewrite;                    /* the next section begins a manifest */
    uint8_t changed;                    /* since the last moment, a bit a session */
    uint8_t moment, durable_moment;     /* begun; of the newest durable section */
    uint8_t stage, frozen_changed, frozen_number, frozen_last, frozen_journal;
    struct session frozen[SESSIONS];
    uint8_t written; /* slots that this moment wrote, a bit each */
    struct place reading;
};

/* What a flush has left in doubt; a section of a moment begun later ends it. */
enum broken { JOURNAL_SOUND, JOURNAL_BROKEN, JOURNAL_LEFT };

enum phase { SERVING, DOWN, READ, STARTED };

/* Mistakes of the daemon. */
enum plant {
    PLANT_NOTHING,
    PLANT_BLOCKS_UNFLUSHED,     /* a section is written before its blocks are flushed */
    PLANT_SLOTS_UNNAMED,        /* its slots are in a file whose name is not durable */
    PLANT_OWN_WRITES_ONLY,      /* a moment flushes its own blocks, not those of evictions */
    PLANT_SLOT_FREE_EARLY,      /* a dropped slot is free at once */
    PLANT_TAIL_IN_PLACE,        /* a block that has grown is written into its slot */
    PLANT_JOURNAL_UNFLUSHED,    /* records count as durable without a flush */
    PLANT_SECTION_UNFLUSHED,    /* a section does */
    PLANT_RENAME_EARLY,         /* a manifest is renamed before it is flushed */
    PLANT_DIRECTORY_UNFLUSHED,  /* names count as durable without a flush */
    PLANT_JOURNAL_LATE,         /* records go to a journal whose name is not durable */
    PLANT_JOURNAL_EARLY,        /* older journals are removed before the section is durable */
    PLANT_MANIFEST_EARLY,       /* the older manifest is removed before the new name is durable */
    PLANT_OTHER_SUM,            /* a reference has the checksum of another block */
    PLANT_UNCHAINED_RECORDS,    /* a start reads on after a missing record */
    PLANT_UNCHAINED_SECTIONS,   /* it takes a section whose first part or predecessor is missing */
    PLANT_DIRTY_EVICTED,        /* a block leaves memory with rows that no slot has */
    PLANT_PLACE_UNCHANGED,      /* a block's new place does not count as a change */
    PLANT_UNFLUSHED_EVICTED,    /* it leaves memory before its slot is flushed */
    PLANT_SLOT_UNDER_READ,      /* a read in flight does not hold its slot */
    PLANT_FREEZE_LATE,          /* a session is frozen later than the journal is switched */
    PLANT_FORK_TRUNCATED,       /* likewise, and a start passes over what it then has already */
    PLANT_TAIL_LEFT_OUT,        /* a section is written with rows that no slot has */
    PLANT_CHANGES_FORGOTTEN,    /* a failed moment's changes are not in the next section */
    PLANT_APPEND_AFTER_FAILURE, /* sections are appended after one whose flush failed */
    PLANT_FAILURE_FORGOTTEN,    /* records go on after a journal whose flush failed */
    PLANT_START_UNFLUSHED,      /* a start serves what it read, and flushes nothing */
    PLANT_START_UNCUT,          /* it leaves what lies after the end that it found */
    PLANT_START_IN_OLD_FENCE,   /* it appends to the manifest of the fence before it */
    PLANT_SUM_UNREAD,           /* a block's checksum is not compared */
    PLANTS
};

/* What is searched. */
struct search {
    const char *name;
    const char *without; /* names of steps, as " a b "; "" */
    uint8_t records, crashes, faults, moments, sessions;
    enum plant plant;
};

/* steps.c: takes a step of the daemon; false where it cannot be taken.  *wrong is set to what it
 * shows to be wrong. */
struct step {
    const char *name;
    uint8_t a, b; /* values of its arguments */
    bool (*take)(struct state *state, const struct search *search, const struct move *move,
                 const char **wrong);
};
extern const struct step model_steps[];
extern const unsigned model_num_steps;

void model_init(struct state *out);

/* Sessions as a record leaves them. */
void model_apply(struct session sessions[SESSIONS], uint8_t number, const struct record *record);

/* After a step that led from `before` to `state`: slots that memory no longer names are held until
 * a section of a later moment frees them. */
void model_hold_dropped(struct state *state, const struct state *before);

/* Slots that sessions name, a bit each. */
uint8_t model_named(const struct session sessions[SESSIONS]);

/* Rows of block `b`. */
uint8_t model_rows_of(const struct session *session, unsigned b);

/* moment.c */
bool model_freeze(struct state *, const struct search *, const struct move *, const char **);
bool model_write_block(struct state *, const struct search *, const struct move *, const char **);
bool model_flush_slots(struct state *, const struct search *, const struct move *, const char **);
bool model_flush_losing_slot(struct state *, const struct search *, const struct move *,
                             const char **);
bool model_slots_fail(struct state *, const struct search *, const struct move *, const char **);
bool model_append(struct state *, const struct search *, const struct move *, const char **);
bool model_flush_manifest(struct state *, const struct search *, const struct move *,
                          const char **);
bool model_flush_losing_copy(struct state *, const struct search *, const struct move *,
                             const char **);
bool model_manifest_fails(struct state *, const struct search *, const struct move *,
                          const char **);
bool model_rename(struct state *, const struct search *, const struct move *, const char **);
bool model_evict_write(struct state *, const struct search *, const struct move *, const char **);
bool model_remove_journal(struct state *, const struct search *, const struct move *,
                          const char **);
bool model_remove_manifest(struct state *, const struct search *, const struct move *,
                           const char **);
void model_end_moment(struct state *state); /* whose section is durable */

/* disk.c */
bool model_kill(struct state *, const struct search *, const struct move *, const char **);
bool model_cut_power(struct state *, const struct search *, const struct move *, const char **);
bool model_rot(struct state *, const struct search *, const struct move *, const char **);
bool model_may_damage(const struct state *, const struct search *); /* once */
void model_damage(struct state *state); /* notes that a write is lost, or bits have changed */
unsigned model_unflushed(const struct state *state); /* that a power failure may leave out */
bool model_has_name(const struct name *name);

/* recover.c: a start reads the disk, and what it finds is held against the history. */
bool model_read(struct state *, const struct search *, const struct move *, const char **);

#endif
