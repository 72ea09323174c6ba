/* restore.h: sessions made again from files, in memory and out of sight.
 *
 * Session files are read first, then journals in their order; what was made is listed in the table
 * of sessions at the end, together.  Files are bytes that nobody vouches for.  A session of which
 * a record is missing, or may be, is not made: a lost session is told of, a wrong one is not.
 *
 * Sessions of files that hold the same tokens share blocks, as forks did when they were written:
 * what the pool has held it holds again.  Journals fork for themselves.
 *
 * However long a file is, what is held of it at a time is a window (source.h) and 256 KiB of rows,
 * or the header of a session and 64 tokens of a layer. */
#ifndef SRV_RESTORE_H
#define SRV_RESTORE_H

#include "session/models.h"
#include "session/session.h"
#include "store/record.h"

struct srv_restored_session {
    uint64_t epoch;
    struct srv_session *session; /* NULL: deleted, or lost */
    size_t order;                /* of its making */
    bool lost;                   /* damaged, or of which something is missing */
    bool foreign;                /* of a model that is not here */
    bool pending;                /* not committed yet */
    bool unproven;               /* records are missing that may be its own */
    bool listed;                 /* in the table: it was whole, and had not expired */
};

struct srv_restore {
    struct srv_sessions *sessions; /* where they will be listed */
    const struct srv_models *models;
    struct srv_restored_session *entries; /* [capacity] hashed by epoch; epoch 0: free */
    size_t capacity, count, room; /* count: that are used; room: that may be, as things are */
    size_t made;                  /* all that ever were */
    size_t max_sessions;          /* of the table */
    struct attn_alike *alike; /* blocks of session files; NULL before the first and after them */
    char message[256];        /* the last thing that was wrong */
};

enum srv_restore_status {
    SRV_RESTORE_OK,
    SRV_RESTORE_DAMAGED,    /* a session's file: the entry is there and lost */
    SRV_RESTORE_NO_MODEL,   /* likewise: its model or fingerprint is not here */
    SRV_RESTORE_FULL,       /* the pool, or memory: nothing more can be restored */
    SRV_RESTORE_UNREADABLE, /* nor here: the file cannot be read, and may be sound */
};

/* For a table of `max_sessions`.  More may stand in files, of which some have expired; where they
 * are more than twice as many, or more than eight times as many are lost, that is found on the way,
 * within a quarter more, before they take all memory. */
void srv_restore_init(struct srv_restore *restore, struct srv_sessions *sessions,
                      size_t max_sessions, const struct srv_models *models);
void srv_restore_fini(struct srv_restore *restore); /* frees what was not listed */

/* The entry of an epoch, made where there is none; NULL where memory is short, or there are too
 * many, with `message`.  Entries move, and those of sessions that were deleted go. */
struct srv_restored_session *srv_restore_entry(struct srv_restore *restore, uint64_t epoch);
struct srv_restored_session *srv_restore_find(const struct srv_restore *restore, uint64_t epoch);

/* Lets go of the entry's session. */
void srv_restore_lose(struct srv_restored_session *entry);

/* The model of that name and fingerprint; NULL where there is none. */
const struct srv_model *srv_restore_model(const struct srv_restore *restore, const char *name,
                                          const char *fingerprint);

/* Reads the file of a session's that was begun with `generation`. */
enum srv_restore_status srv_restore_file(struct srv_restore *restore, uint64_t epoch,
                                         uint64_t generation, struct srv_file_reader *file);

struct srv_replay_result {
    size_t good;    /* bytes up to a torn tail */
    size_t records; /* that were there */
    size_t gaps;    /* places where records are missing or damaged */
    size_t foreign; /* records that make sessions of models that are not here */
    bool torn;      /* the last write was cut off */
};

/* Reads a journal. */
enum srv_restore_status srv_restore_journal(struct srv_replay_result *out,
                                            struct srv_restore *restore, uint64_t generation,
                                            struct srv_file_reader *journal);

/* Sessions may have records in a journal that is missing. */
void srv_restore_doubt(struct srv_restore *restore);

struct srv_restore_result {
    size_t listed, lost, foreign, expired;
};

/* Lists what is whole; false, with `message`, where the table has no room for all.  Entries of the
 * others that have a session are of those that were gone before this start. */
bool srv_restore_publish(struct srv_restore_result *out, struct srv_restore *restore);

#endif
