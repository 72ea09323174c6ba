/* model.h: several daemons, one partition on a mount that all have, and etcd: a machine of small
 * steps, for exhaustive search.  Nothing of it is built yet: the model comes before the code.
 *
 *   record     of a daemon, in etcd: a value that is new at each renewal
 *   partition  in etcd: its owner, and the last number that was given
 *   right      to answer: by the daemon's own clock, until L after the last renewal was *sent*,
 *              less a margin for clocks that lag.  With `look: mount` in place of it: no mark above
 *              mine is in the directory
 *   fence      a number that is given with the partition: above the last one in etcd, and at least
 *              the milliseconds since 1970, so that etcd's restoring repeats none.  All names of
 *              files begin with it
 *   files      FENCE.mark | manifests (FENCE, n), never replaced, the highest counts | the journal
 *              of each | slots, which manifests of later fences may name too
 *
 *   take       with a right only, in one transaction: my record is as I wrote it; the partition has
 *              no owner, or me, or one without a record, or one whose record I have seen unchanged
 *              at two reads L apart without a lapse of mine between.  The partition is mine, a
 *              fence is given, the former owner's record is gone
 *   acquire    make the mark, which nobody else has made | list marks: one above mine: give up; one
 *              that etcd does not know, between the fence before and mine: etcd was restored, wait
 *              L | read the newest manifest and its journal | write slots, flush them | write a
 *              manifest of mine, flush it | serve
 *   serve      a change: put it in the journal, flush that, look, answer.  A read or an error:
 *              look, answer.  A moment: write slots, flush, write the next manifest, flush; look;
 *              only then write into slots and unlink files that it does not name
 *   failure    of a journal's flush: nothing is written or flushed there again; the change is taken
 *              back, and refused once a manifest without it is durable and was looked after
 *   lapse      no right, but the record is still mine: take anew.  Memory is kept where no other
 *              mark has come since, and sealed under the new fence
 *   release    no change is under way, all is flushed: the partition has no owner, and is not
 *              served any more
 *   no record  of mine in etcd: give up everything, make a new record
 *
 * What is written lands when it is flushed, or at any time later, or never; of a stopped daemon
 * too.  A daemon may stop between any two steps, for ever or for any time.  Its answer may be late:
 * what it says is settled when it looks, so that looking and answering are one step here, but
 * looking and unlinking, or writing into a slot, are two.  A renewal reaches etcd at once, its
 * reply late or never.
 *
 * Not in it: the order within one fence, which is tests/store_model's (here a daemon begins no
 * change while it writes a manifest); which partition an id is in (rule of the hash, a function);
 * mounts that show what is old, which a daemon refuses.  A batch over several partitions is a
 * change in each.  What has to hold of the world: wall clocks rise over a restore of etcd by more
 * than they differ; no backup is restored that is younger than L.
 *
 * What is held against it, in each state: what a reader of the directory would find continues all
 * that was answered, row by row, and has nothing that was refused; slots that it names are whole;
 * each answer continues those before it; no fence answers after a higher one has. */
#ifndef TESTS_CLUSTER_MODEL_H
#define TESTS_CLUSTER_MODEL_H

#include "explore.h"

enum {
    DAEMONS = 3,
    FENCES = 4,
    MANIFESTS = 3, /* of a fence */
    SLOTS = 2,     /* of a fence */
    ROWS = 2,
    CHANGES = 4,
    FIRST_FENCE = 2, /* daemon 0 serves under it at first */
    LEASE = 3,       /* L, in ticks */
    MARGIN = 1       /* a clock may lag so many ticks in L */
};

/* Changes of the session, by their numbers: none is used twice. */
struct log {
    uint8_t count, changes[CHANGES];
};

struct place {
    uint8_t fence, slot; /* fence 0: in no slot */
};

enum where { NOWHERE, LATE, LANDED };

struct manifest {
    uint8_t where;
    struct log log;
    struct place places[ROWS];
};

struct journal {
    uint8_t written, landed; /* changes */
    uint8_t changes[CHANGES];
};

/* Of a fence. */
struct files {
    uint8_t mark;
    struct manifest manifests[MANIFESTS + 1]; /* from 1 */
    struct journal journals[MANIFESTS + 1];   /* that follow them */
    uint8_t slots[SLOTS], late[SLOTS];        /* rows: as they are, and what may land */
};

struct etcd {
    uint8_t records[DAEMONS]; /* 0: none */
    uint8_t owner;            /* daemon + 1; 0: none */
    uint8_t fence;            /* the last that was given */
};

enum phase { OUT, TAKEN, MARKED, LISTED, FOUND, SEALING, SERVING };
enum stage { IDLE, WRITTEN, LOOKED_EARLY, DURABLE, LOOKED };

/* Of the partition, in a daemon's memory. */
struct held {
    uint8_t phase;
    uint8_t given, before;     /* fence, and the one that etcd had before */
    uint8_t kept;              /* fence whose memory may be kept; 0: none */
    uint8_t waits;             /* ticks */
    uint8_t fence, last, used; /* of its files: the newest durable manifest; numbers used */
    uint8_t found[2];          /* a manifest: fence, number */
    struct log log;
    struct place places[ROWS], undo; /* undo: of the row that the change under way cuts */
    uint8_t change;                  /* enum stage, of the change under way */
    uint8_t moment;                  /* enum stage */
    uint8_t refuse;                  /* a change; 0: none */
    uint8_t broken;                  /* the journal */
    uint8_t lapsed, released, unsound;
    uint16_t named, perhaps; /* places in the newest durable manifest, and in those in doubt */
};

struct daemon {
    uint8_t record; /* as it wrote it last; 0: none */
    uint8_t left;   /* ticks of its right */
    uint8_t lagged;
    uint8_t asked; /* a renewal, whose reply is not there yet */
    uint8_t age, asked_lagged;
    uint8_t seen, seen_of, seen_age; /* a record, and whose: daemon + 1 */
    struct held held;
};

struct state {
    struct etcd etcd, backup;
    struct files files[FENCES + 1]; /* from 1 */
    struct daemon daemons[DAEMONS];
    uint8_t clock;      /* the highest fence that was given, as the wall clock has it */
    uint8_t backup_age; /* ticks; 0 with has_backup 0 */
    uint8_t has_backup, restored;
    uint8_t restarts, faults;
    uint8_t changes, cuts,
        refused; /* numbers used; a bit each: those that cut a row; were refused */
    struct log answered;
    uint8_t answered_fence;
    uint8_t landed[2]; /* planted: the manifest that has landed last */
};

/* Mistakes, by the rules of the design that they leave out. */
enum plant {
    PLANT_NOTHING,
    PLANT_ANSWER_UNLOOKED,   /* 1: a change is answered without a look */
    PLANT_ERROR_UNLOOKED,    /* 1: an error is */
    PLANT_READ_UNLOOKED,     /* 1: a read is */
    PLANT_UNLINK_UNLOOKED,   /* 1: files are unlinked without a look */
    PLANT_SLOT_UNLOOKED,     /* 1: slots are reused without a look */
    PLANT_LOOK_FIRST,        /* 1: a look, then the flush, then the answer */
    PLANT_ANSWER_UNFLUSHED,  /* 1, 7: another partition's flush counts for this one */
    PLANT_ERROR_EARLY,       /* 1: an error is answered before a manifest without the change is */
    PLANT_WALL_CLOCK,        /* 2: the right is by a clock that may be set back */
    PLANT_FROM_REPLY,        /* 2: the right is reckoned from the reply */
    PLANT_NO_MARGIN,         /* 2: clocks that lag are not thought of */
    PLANT_RECORD_STAYS,      /* 2: the taker leaves the former owner's record */
    PLANT_TAKES_EARLY,       /* 2: a record is seen for less than L */
    PLANT_SEEN_KEPT,         /* 2: who lapsed goes on from what it had seen before */
    PLANT_LAPSE_FORGOTTEN,   /* 2: who lapsed goes on when its record is there */
    PLANT_TAKE_LAPSED,       /* 2: who has no right takes */
    PLANT_FENCE_REPEATED,    /* 3: the number is etcd's next, and its mark may be there */
    PLANT_FENCE_LATE,        /* 3: the number is chosen in the directory, after the transaction */
    PLANT_RESTORE_UNNOTICED, /* 3: marks that etcd does not know are passed over */
    PLANT_HIGHER_UNNOTICED,  /* 3: so are marks above one's own */
    PLANT_MEMORY_KEPT,       /* 3: who lapsed keeps its memory, whoever has made a mark since */
    PLANT_OLD_JOURNAL,       /* 4: journals of older fences are read again */
    PLANT_MANIFEST_REPLACED, /* 4: manifests have one name */
    PLANT_UNSEALED,          /* 4: changes are answered before the own manifest is durable */
    PLANT_SECOND_FLUSH,      /* 5: a flush after one that failed is believed */
    PLANT_OLD_JOURNAL_KEPT,  /* 5: changes go on in the journal after a manifest's flush failed */
    PLANT_RELEASE_EARLY,     /* 8: released before the flush of what is then answered */
    PLANT_YOUNG_BACKUP,      /* of the world: a backup is restored within L */
};

enum { OLD_BACKUP = 2 };

/* What is searched. */
struct search {
    const char *name;
    const char *without; /* names of steps, as " a b "; "" */
    uint8_t daemons, fences, manifests, changes;
    uint8_t restarts, faults;
    uint8_t backups; /* of etcd: 0, 1, or OLD_BACKUP, which is there at first */
    bool mount;      /* `look: mount` in place of the clock, which then is any */
    bool replies;    /* replies to renewals may be late; else they come at once */
    enum plant plant;
};

/* A step of daemon `a`, or of the world; b: its argument.  False where it cannot be taken, and then
 * nothing has changed. */
struct step {
    const char *name, *text; /* text: what a story says; @ the daemon, # the fence, $ is b */
    uint8_t a, b;            /* values of its arguments; a 0: those of daemons */
    bool (*take)(struct state *state, const struct search *search, struct move move,
                 const char **wrong);
};
extern const struct step model_steps[];
extern const unsigned model_num_steps;

void model_init(struct state *out, const struct search *search);

/* ---- model_world.c: clocks, etcd, the mount, and what is held against a state ---------------- */

bool model_tick(struct state *, const struct search *, struct move, const char **);
bool model_lag(struct state *, const struct search *, struct move, const char **);
bool model_set_back(struct state *, const struct search *, struct move, const char **);
bool model_land_record(struct state *, const struct search *, struct move, const char **);
bool model_land_manifest(struct state *, const struct search *, struct move, const char **);
bool model_land_slot(struct state *, const struct search *, struct move, const char **);
bool model_back_up(struct state *, const struct search *, struct move, const char **);
bool model_restore(struct state *, const struct search *, struct move, const char **);

void model_manifest_landed(struct state *state, const struct search *search, unsigned fence,
                           unsigned number);

/* The manifest that counts; false: none. */
bool model_newest(uint8_t out[2], const struct state *state, const struct search *search);

/* Rows of the session after a log, by the changes that added them; returns how many. */
unsigned model_rows(uint8_t rows[ROWS], const struct state *state, const struct log *log);

/* Adds a change; a row that it cuts leaves its place. */
void model_apply(struct log *log, struct place places[ROWS], const struct state *state,
                 uint8_t change);

/* Adds what the journal of a manifest has. */
void model_replay(struct log *log, struct place places[ROWS], const struct state *state,
                  const struct search *search, const uint8_t manifest[2]);

/* Whether the slots have the rows of a log. */
bool model_slots_hold(const struct state *state, const struct log *log,
                      const struct place places[ROWS]);

bool model_has_mark(const struct state *state, unsigned above, unsigned below);

/* Whether the daemon has the right to answer, unlink and overwrite. */
bool model_look(const struct state *state, const struct search *search, unsigned daemon);

/* An answer that shows this log. */
void model_answer(struct state *state, const struct log *log, unsigned fence, const char **wrong);

/* Of a state after a step: forgets what nobody can tell apart, and says what is wrong with it. */
void model_settle(struct state *state, const struct search *search, const char **wrong);

void model_drop(struct daemon *daemon); /* gives the partition up */

#endif
