/* store_parts.h: the store's state and the calls that the files store*.c have for each other. */
#ifndef SRV_STORE_PARTS_H
#define SRV_STORE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "ops/log.h"
#include "ops/metrics.h"
#include "store/journal.h"
#include "store/sharing.h"
#include "store/store.h"
#include "store/store_files.h"

/* A session as a checkpoint found it. */
struct srv_checkpoint_entry {
    struct srv_base_entry base;
    struct srv_session *session; /* NULL once nothing more is wanted of it, */
    struct attn_cache *frozen;   /* and then this too */
    struct srv_last_step *last;  /* [info.num_layers]; NULL where its older file is good */
    uint64_t chain;
    bool shares_blocks; /* as the session said */
    bool written;       /* its file, by this checkpoint */
};

struct srv_checkpoint {
    uint64_t generation;
    struct srv_checkpoint_entry *entries; /* [count] */
    size_t count;
    struct srv_sharing sharing; /* found first of all by the store's thread */
    bool failed;
    struct srv_error error;
};

struct srv_store {
    struct srv_store_context context;
    int directory, lock_file;
    pthread_mutex_t lock; /* guards all below, where nothing else is said */
    pthread_cond_t wake;  /* the store's threads wait for it */
    pthread_t threads[2]; /* [started] */
    size_t started;
    bool loaded, stop;

    struct srv_journal journal; /* fd -1: none */
    bool unsynced;              /* with `everysec`: written since it was last on disk */
    bool syncing;               /* its descriptor is in use and stays open */
    uint64_t generation;        /* of the journal, or of the last checkpoint */
    uint64_t base;              /* generation of the last checkpoint that is whole on disk */
    uint64_t older_bytes;       /* of the journals since the base, without the last one */
    size_t older_journals;
    bool keep_journals; /* some are damaged: the next checkpoint sets them aside */

    /* Epochs of sessions that are deleted and whose records are still to be written. */
    uint64_t *deletions; /* [num_deletions] */
    size_t num_deletions, most_deletions;
    bool deletions_added; /* to the batch of records that is being made */

    size_t imports; /* the engine owner's: that are being written, each into one journal */

    uint64_t wanted; /* a base of this generation or a later one is owed */
    bool requested, running;

    /* Handed over between the store's thread and the engine owner. */
    atomic_bool checkpoint_wanted;
    struct srv_journal next, old; /* the journal to go on in; the one that was left */
    struct srv_checkpoint *checkpoint;
    bool same_journal;     /* the journal was empty: the checkpoint is made without a new one */
    bool missed;           /* the journal was not empty any more: no checkpoint was made */
    atomic_bool rewrite;   /* files that a failed checkpoint was to write do not exist */
    atomic_size_t changes; /* tokens, and changes of sessions, since the last checkpoint */
};

static inline bool srv_store_journals(const struct srv_store *store)
{
    return store->context.durability == SRV_DURABLE_JOURNAL;
}

/* store.c: records, added under the lock.  The flush writes all that were added, or none. */
void srv_store_add(struct srv_store *store, const struct srv_session *session,
                   enum srv_record_type type, uint64_t chain, const struct srv_record_part parts[],
                   size_t count);
void srv_store_add_create(struct srv_store *store, const struct srv_session *session, bool pending);
void srv_store_add_rows(struct srv_store *store, const struct srv_session *session, uint64_t chain,
                        const struct srv_record_rows *rows, const float *key, const float *value);
enum srv_error_code srv_store_flush(struct srv_store *store, struct srv_error *error);
void srv_store_count_change(struct srv_store *store, size_t by);

/* Under the lock: has the deletion of that session recorded before whatever is recorded next, since
 * it could not be recorded when it happened.  Without that record the next start would restore the
 * session beside others that have taken its room. */
void srv_store_defer_deletion(struct srv_store *store, uint64_t epoch);

/* store_checkpoint.c: makes the journal of the next generation; out->fd is -1 where the store keeps
 * none.  False with errno. */
bool srv_store_new_journal(struct srv_journal *out, const struct srv_store *store);

/* Takes a checkpoint: NULL where memory is short, or where the journal was to stay and something
 * was recorded in it.  Without memory, too, records go to the journal that was begun for the
 * checkpoint, since a file has its number now. */
struct srv_checkpoint *srv_checkpoint_take(struct srv_store *store);
void srv_checkpoint_free(struct srv_checkpoint *checkpoint); /* takes NULL */

/* Whether the journal was begun for a checkpoint that failed and holds nothing yet: then another
 * checkpoint can be of the same moment, so that a disk which stays full does not fill with
 * journals. */
bool srv_checkpoint_may_keep_journal(const struct srv_store *store);

/* Frees what was taken of a session, since others may want its blocks. */
void srv_checkpoint_release(struct srv_checkpoint_entry *entry);

/* store_write.c: writes a checkpoint, NULL where there was no memory for it, and frees it. */
bool srv_checkpoint_finish(struct srv_store *store, struct srv_checkpoint *checkpoint);

/* Begins the journal of a new checkpoint; a failure is logged and counted. */
bool srv_checkpoint_begin_journal(struct srv_store *store);

/* Makes a checkpoint from beginning to end, where no other thread uses the store. */
bool srv_store_save(struct srv_store *store);

/* store_repair.c: what is to be done to the files that a start has read, once nothing refuses the
 * start any more.  Zeroed at first. */
struct srv_repairs {
    struct srv_repair *items; /* [count] */
    size_t count, most;
};

/* Lists a file to be set aside; or to be truncated to its first `good` bytes.  False where memory
 * is short. */
bool srv_repairs_set_aside(struct srv_repairs *repairs, const char *name);
bool srv_repairs_truncate(struct srv_repairs *repairs, const char *name, size_t good);
void srv_repairs_apply(const struct srv_repairs *repairs, const struct srv_store *store);
void srv_repairs_fini(struct srv_repairs *repairs);

#endif
