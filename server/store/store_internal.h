/* store_internal.h: the store's state, and the calls that the files store*.c make to each other. */
#ifndef SRV_STORE_INTERNAL_H
#define SRV_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "ops/log.h"
#include "ops/metrics.h"
#include "store/journal.h"
#include "store/sharing.h"
#include "store/store.h"
#include "store/store_files.h"

/* A session at the moment of a checkpoint.  Its pointers are NULL once its file is written, or is
 * known to stay. */
struct srv_checkpoint_entry {
    struct srv_base_entry listed;     /* as the base will list it */
    struct srv_session *session;      /* with a reference */
    struct attn_cache *frozen;        /* its cache at that moment */
    struct srv_last_step *last_steps; /* [info.num_layers]; NULL where the file is kept */
    uint64_t next_record;
    bool keeps_file;    /* its older file still says what the session is */
    bool shares_blocks; /* as the session said */
    bool written;       /* its file, by this checkpoint */
};

struct srv_checkpoint {
    uint64_t generation;
    struct srv_checkpoint_entry *entries; /* [count] */
    size_t count;
    struct srv_sharing sharing; /* the store's thread fills it in before it writes files */
    bool failed;
    struct srv_error error;
};

struct srv_store {
    struct srv_store_context context;
    int directory, lock_file;
    pthread_mutex_t lock; /* guards all members below, except where a comment says otherwise */
    pthread_cond_t wake;  /* the store's threads wait for it */
    pthread_t threads[2]; /* [started] */
    size_t started;
    bool loaded, stop;

    struct srv_journal journal; /* fd -1: none */
    bool unsynced;              /* with `everysec`: written since it was last on disk */
    bool syncing;               /* a thread flushes it: its descriptor stays open */
    uint64_t generation;        /* of the journal, or of the last checkpoint */
    uint64_t base_generation;   /* of the last checkpoint that is whole on disk */
    uint64_t older_bytes;       /* of the journals since the base, without the current one */
    size_t older_journals;
    bool keep_journals; /* the start found damage: the next checkpoint sets journals aside */

    /* Epochs of deleted sessions whose deletion is still to be recorded. */
    uint64_t *deletions;                      /* [num_deletions] */
    size_t num_deletions, deletions_capacity; /* used and allocated */
    bool deletions_added;                     /* to the batch of records that is being made */

    size_t imports; /* the engine owner's: imports whose records are not complete yet */

    uint64_t owed_generation; /* checkpoints are due until the base has at least this generation */
    bool asked_by_client;     /* a client has asked since the last checkpoint began */
    bool running;             /* a checkpoint is being made */

    /* Handed over between the store's thread and the engine owner. */
    atomic_bool take_pending;     /* the engine owner is to take a checkpoint */
    struct srv_journal next, old; /* the journal to switch to; the one that was left */
    struct srv_checkpoint *checkpoint;
    bool same_journal; /* the checkpoint is to reuse the current journal, which is empty */
    bool missed;       /* a record came first: no checkpoint was taken */
    atomic_bool last_checkpoint_failed; /* so session files that it was to write are missing */
    atomic_size_t changes; /* tokens and changes of sessions since the last checkpoint */
};

static inline bool srv_store_journals(const struct srv_store *store)
{
    return store->context.durability == SRV_DURABLE_JOURNAL;
}

/* store.c: records, added under the lock.  The flush writes all records that were added, or none.
 * `chain` is the record's number among those of its session. */
void srv_store_add(struct srv_store *store, const struct srv_session *session,
                   enum srv_record_type type, uint64_t chain, const struct srv_record_part parts[],
                   size_t count);
void srv_store_add_create(struct srv_store *store, const struct srv_session *session, bool pending);
void srv_store_add_rows(struct srv_store *store, const struct srv_session *session, uint64_t chain,
                        const struct srv_record_rows *rows, const float *key, const float *value);
enum srv_error_code srv_store_flush(struct srv_store *store, struct srv_error *error);
void srv_store_count_change(struct srv_store *store, size_t by);

/* Under the lock: has the deletion of a session recorded before the next record, since it could not
 * be recorded when it happened.  Without that record the next start would restore the session
 * beside others that have taken its room. */
void srv_store_defer_deletion(struct srv_store *store, uint64_t epoch);

/* store_checkpoint.c: makes the journal of the next generation; out->fd is -1 where the store keeps
 * no journal.  False with errno. */
bool srv_store_new_journal(struct srv_journal *out, const struct srv_store *store);

/* Freezes one moment of all sessions, and switches to the journal `next` unless the current one is
 * to be reused.  NULL where memory is short; and where a record has been written to the journal
 * that was to be reused (`missed`).  The switch is made also where memory is short, since the file
 * of the new journal exists. */
struct srv_checkpoint *srv_checkpoint_freeze(struct srv_store *store);
void srv_checkpoint_free(struct srv_checkpoint *checkpoint); /* takes NULL */

/* Whether the current journal is empty and left by a failed checkpoint.  The retry reuses it, so
 * that a full disk collects no empty journals. */
bool srv_checkpoint_may_keep_journal(const struct srv_store *store);

/* Frees the entry's cache, last steps and reference, so that other sessions can have its blocks. */
void srv_checkpoint_release(struct srv_checkpoint_entry *entry);

/* store_write.c: writes a checkpoint and frees it; NULL counts as one that failed.  False where it
 * was not written, which is logged and counted. */
bool srv_checkpoint_finish(struct srv_store *store, struct srv_checkpoint *checkpoint);

/* Begins the journal of a new checkpoint; a failure is logged and counted. */
bool srv_checkpoint_begin_journal(struct srv_store *store);

/* Makes a checkpoint from beginning to end, where no other thread uses the store. */
bool srv_store_make_checkpoint(struct srv_store *store);

/* store_repair.c: repairs of files, listed while a start reads them and made once the sessions are
 * published.  Zeroed at first. */
struct srv_repairs {
    struct srv_repair *items; /* [count] */
    size_t count, capacity;
};

/* Lists a file to be set aside; or to be truncated to its first `good` bytes.  False where memory
 * is short. */
bool srv_repairs_set_aside(struct srv_repairs *repairs, const char *name);
bool srv_repairs_truncate(struct srv_repairs *repairs, const char *name, size_t good);
void srv_repairs_apply(const struct srv_repairs *repairs, const struct srv_store *store);
void srv_repairs_fini(struct srv_repairs *repairs);

#endif
