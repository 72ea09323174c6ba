/* store_parts.h: what the files store*.c share. */
#ifndef SRV_STORE_PARTS_H
#define SRV_STORE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "app.h"
#include "store/journal.h"
#include "store/store.h"
#include "store/store_files.h"

/* A session as a cut found it. */
struct srv_checkpoint_entry {
    struct srv_session *session; /* NULL once its file is written or needs no writing */
    struct srv_base_entry base;
    struct attn_cache *frozen;  /* steps go on meanwhile; NULL: its file is good as it is, */
    bool written;               /* or the cut has written it */
    struct srv_last_step *last; /* [layers of the checkpoint] */
    uint64_t chain;
};

struct srv_checkpoint {
    uint64_t generation;
    struct srv_checkpoint_entry *entries; /* [count] */
    size_t count;
    bool failed;
    struct srv_error error;
};

struct srv_store {
    struct srv_app *app;
    enum srv_durability durability;
    enum srv_journal_fsync fsync;
    int directory, lock_file;
    pthread_mutex_t lock; /* all below, but where it says otherwise */
    pthread_cond_t wake;
    pthread_t threads[2]; /* [started] srv_store_main, srv_store_sync */
    size_t started;
    bool loaded, stop;
    struct srv_journal journal; /* fd -1: none */
    bool unsynced;              /* everysec: written since it was last on disk */
    bool syncing;               /* its descriptor is in use, and stays open */
    uint64_t generation, base;  /* of journal, or of the last cut; of the last whole snapshot */
    uint64_t older_bytes;       /* of journals since the base, but the last one */
    size_t older_journals;
    uint64_t wanted; /* the generation of which a base is owed, or a later one's */
    bool requested, running;
    bool keep_journals; /* something is wrong with those that the next snapshot replaces */
    uint64_t *ends; /* [num_ends] epochs of sessions that are gone and of which no record says */
    size_t num_ends, most_ends;
    bool ends_added; /* before the records that are being added */
    size_t imports;  /* the scheduler's: that are being written, and want the journal they are in */
    /* What the store's thread and the scheduler's hand each other. */
    atomic_bool cut_wanted;
    struct srv_journal next, old; /* the journal to go on in; the one that was left */
    struct srv_checkpoint *cut;
    bool stay;             /* the journal was empty, and the cut is to be made without a new one */
    bool missed;           /* it is not any more, and no cut was made */
    atomic_bool rewrite;   /* files that a failed snapshot was to write are not there */
    atomic_size_t changes; /* tokens, and changes of sessions, since the last cut */
};

static inline bool srv_store_journals(const struct srv_store *store)
{
    return store->durability == SRV_DURABLE_JOURNAL;
}

/* store.c: records, under the lock.  What was added is written, all or none, by the flush. */
void srv_store_add(struct srv_store *store, const struct srv_session *session,
                   enum srv_record_type type, uint64_t chain, const struct srv_record_part parts[],
                   size_t count);
void srv_store_add_create(struct srv_store *store, const struct srv_session *session, bool pending);
void srv_store_add_rows(struct srv_store *store, const struct srv_session *session, uint64_t chain,
                        const struct srv_record_rows *rows, const float *key, const float *value);
enum srv_error_code srv_store_flush(struct srv_store *store, struct srv_error *error);
void srv_store_count_change(struct srv_store *store, size_t by);

/* Of a session that is gone and of which no record says so, or can say so now: that stands before
 * whatever is recorded next.  Else the next start would make it again beside sessions that have
 * taken its room. */
void srv_store_owe_end(struct srv_store *store, uint64_t epoch);

/* store_snapshot.c: a snapshot from beginning to end where nothing else runs, and the threads that
 * make them while requests are served and, with `everysec`, flush the journal meanwhile. */
bool srv_store_snapshot(struct srv_store *store);
void *srv_store_main(void *argument);
void *srv_store_sync(void *argument);

/* Makes the journal of the next generation; the journal's fd is -1 where there is to be none.
 * False with errno. */
bool srv_store_new_journal(struct srv_journal *out, const struct srv_store *store);

/* store_files' part of it: removes what a snapshot that is whole has replaced. */
void srv_store_remove_older(const struct srv_store *store, const struct srv_checkpoint *cut);

#endif
