/* store_internal.h: the store's state, and the calls that the files store*.c make to each other.
 *
 * Three locks, which are taken in this order, before that of the table of sessions:
 *
 *   flushing  keeps descriptors of journals open for the thread that flushes them
 *   records   orders the records, and may be held while a journal is written and flushed
 *   lock      is never held while the disk is waited for
 *
 * The engine thread, the store's threads, and the main thread at start and end take all of them.
 * Event threads, and the main thread while requests are served, take `lock` alone. */
#ifndef SRV_STORE_INTERNAL_H
#define SRV_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "ops/log.h"
#include "ops/metrics.h"
#include "store/blocks.h"
#include "store/journal.h"
#include "store/marks.h"
#include "store/store.h"
#include "store/store_files.h"

/* A session at the moment of a snapshot, and how much the manifest is to say of it. */
struct srv_snapshot_entry {
    uint64_t epoch;
    struct srv_session *session; /* with a reference; NULL where its blocks are known */
    enum { SRV_SAY_NOTHING, SRV_SAY_USE, SRV_SAY_CHANGES, SRV_SAY_ALL } say;
    struct attn_cache *frozen; /* its cache at that moment; NULL: its blocks are known */
    struct srv_manifest_session facts;
    struct srv_manifest_layer *layers; /* with a frozen cache, [num_layers] */
};

struct srv_snapshot {
    uint64_t generation, moment;
    struct srv_snapshot_entry *entries; /* [count] of all sessions */
    size_t count;
    bool failed;
    struct srv_error error;
};

/* The newest file that could not be written. */
struct srv_unwritten {
    char name[SRV_FILE_NAME]; /* "": the directory itself */
    size_t bytes;             /* that it was to have; 0: a few */
    int error;
};

/* Epochs of sessions whose deletion is to be recorded. */
struct srv_epochs {
    uint64_t *items; /* [count] */
    size_t count, capacity;
};

#define SRV_MARK_NS (60 * SRV_S_NS) /* idle time that a crash may forget, about */

struct srv_store {
    struct srv_store_context context; /* its state_dir is `path` */
    char *path;
    int directory, lock_file;
    struct srv_identity identity; /* of the directory */
    pthread_mutex_t flushing, records, lock;
    pthread_mutex_t moving; /* held while blocks are read, or get places for those that are gone */
    pthread_cond_t wake;    /* the store's threads wait for it */
    struct srv_store *adopted[SRV_MAX_ADOPTED]; /* [num_adopted] of the own store */
    size_t num_adopted;
    pthread_t threads[3]; /* [started] */
    size_t started;
    bool keep_journals; /* damage was found: the next snapshot sets aside what it replaces */

    /* Guarded by `records`, and so is next_record of sessions. */
    struct srv_journal journal;  /* fd -1: none */
    struct srv_journal old;      /* the one that was left, until it is on the disk; fd -1: none */
    struct srv_place previous;   /* the end of the last journal that has records */
    bool unsynced;               /* written since it was last on disk */
    struct srv_marks marks;      /* what the next mark lists */
    struct srv_place mark;       /* of the batch that is being made; generation 0: it has none */
    uint64_t mark_ns;            /* when the newest mark was written, monotonic */
    uint64_t last_change;        /* number of the journal's last record that is no mark; 0: none */
    uint64_t stated;             /* `synced` of the journal's newest record */
    bool batch_begun;            /* with the mark and the deletions that are due */
    struct srv_epochs deletions; /* which go before the next record */

    /* Any thread's: when a batch of records was begun, and a flush without `records`; 0: none. */
    atomic_uint_fast64_t batch_ns, flush_ns;

    /* Guarded by `lock`, as are all members below and record_state of sessions, except where a
     * comment says otherwise. */
    bool loaded, stop;
    struct srv_epochs deferred; /* deletions that go before the next batch */
    uint64_t generation;        /* of the journal, or of the last snapshot; under `records` too */
    uint64_t base_generation;   /* of the last snapshot that the manifest has */
    uint64_t current_bytes;     /* of the journal */
    uint64_t older_bytes;       /* of the journals since the base, without the current one */
    size_t older_journals;
    bool broken; /* the journal takes no more records */
    bool held;   /* it takes none until a snapshot is written */
    bool gone;   /* its file, or others that a start needs, were removed */

    /* Sessions that are unread; the reading thread's are `ahead`, `reader` and read_bytes. */
    struct srv_session **ahead; /* [num_ahead] that a start has left, with references */
    size_t num_ahead;
    struct srv_session *wanted, **last_wanted; /* to be read first, with references */
    struct srv_slot_reader reader;
    size_t read_bytes;
    size_t short_of;        /* bytes that the engine thread is to make room for; 0: none */
    bool no_room;           /* it cannot */
    bool gives_up;          /* the reading thread is to give up what it holds of a session */
    bool damage_found;      /* by that thread: the next snapshot begins a new manifest */
    uint64_t not_before_ns; /* since the last snapshot has failed, none is made before */
    bool tails_read; /* no block has tokens in memory and others on the disk: snapshots may begin */
    bool needs_moment; /* a snapshot is due, so that sessions can leave memory */
    uint64_t
        next_moment_ns;   /* the engine thread's: a snapshot is not made ahead before (evict.c) */
    atomic_size_t unread; /* sessions */
    atomic_size_t restoring; /* of these, sessions in `ahead` */
    atomic_bool restored;    /* see srv_store_has_restored */

    struct srv_slots *slots; /* the store's thread is its writer */

    /* The store's thread's, and what its snapshots have told. */
    struct srv_manifest manifest;
    uint64_t manifest_named; /* generation of the one that a start would read; 0: none is whole */
    struct srv_epochs told;  /* sessions that the manifest has, in order */
    uint64_t moments;        /* that were begun; the engine thread's too, as it freezes one */
    atomic_uint_fast64_t told_moment; /* the newest that the manifest has; likewise */

    struct timespec looked_at; /* the directory's change for which store_watch.c looked last */
    bool removed;              /* files were removed, and no snapshot has been written since */

    size_t imports; /* the engine thread's: imports whose records are not complete yet */

    uint64_t owed_generation; /* snapshots are due until the base has at least this generation */
    bool asked_by_client;     /* a client has asked since the last snapshot began */
    bool running;             /* a snapshot is being made */

    /* Handed over between the store's thread and the engine thread. */
    atomic_bool take_pending;       /* the engine thread is to take a snapshot */
    struct srv_journal next;        /* the journal to switch to */
    struct srv_unwritten unwritten; /* by the store's thread, or at start and end */
    struct srv_snapshot *snapshot;
    bool same_journal; /* the snapshot is to reuse the current journal, which is empty */
    bool missed;       /* a record came first: no snapshot was taken */
    atomic_bool last_snapshot_failed;
    atomic_size_t changes; /* tokens and changes of sessions since the last snapshot */
};

/* The store that keeps a session; NULL where nothing is kept. */
static inline struct srv_store *srv_store_of(struct srv_store *own,
                                             const struct srv_session *session)
{
    return own == NULL || session->store == own->context.index ? own
                                                               : own->adopted[session->store - 1];
}

static inline bool srv_store_journals(const struct srv_store *store)
{
    return store->context.durability == SRV_DURABLE_JOURNAL;
}

/* store_record.c: records.  `begin` locks `records` for a batch and `end` unlocks it; deletions
 * that were deferred before `begin` go before the batch, others after it.  The flush writes all
 * records that were added, or none.  `chain` is the record's number among those of its session. */
void srv_store_begin(struct srv_store *store);
void srv_store_end(struct srv_store *store);
void srv_store_add(struct srv_store *store, const struct srv_session *session,
                   enum srv_record_type type, uint64_t chain, const struct srv_record_part parts[],
                   size_t count);
enum srv_error_code srv_store_flush(struct srv_store *store, struct srv_error *error);

/* Has deletions recorded that were deferred, and a mark where one is due or, `at_end`, there are
 * sessions.  Waits for no flush. */
void srv_store_record_rest(struct srv_store *store, bool at_end);

/* Under `records`, after a change to the journal: has everybody know of it. */
void srv_store_note_journal(struct srv_store *store);

/* store.c */
void srv_store_add_rows(struct srv_store *store, const struct srv_session *session, uint64_t chain,
                        const struct srv_record_rows *rows, const float *key, const float *value);
void srv_store_add_create(struct srv_store *store, const struct srv_session *session, bool pending);
struct srv_record_create srv_store_describe_session(const struct srv_store *store,
                                                    const struct srv_session *session);
void srv_store_count_change(struct srv_store *store, size_t by);

/* store_sync.c: flushes the journal that was left, if any, and then the current one; of both it
 * notes how much is on the disk.  False where a flush failed, which is logged.  `sync_old` does the
 * first alone, under `flushing`. */
bool srv_store_sync(struct srv_store *store);
bool srv_store_sync_old(struct srv_store *store);

/* Brings the end of a journal that is `uncut` to the disk.  False with errno. */
bool srv_store_cut_journal(struct srv_store *store);

/* Brings journals and manifests that a start has read to the disk: a daemon that was killed may not
 * have done so, and clients see from now on what they say.  False with `unwritten`. */
bool srv_store_sync_files(struct srv_store *store, const struct srv_file files[], size_t count);

/* Under `lock`: has the deletion of a session recorded before the next record, since it could not
 * be recorded when it happened.  Without that record the next start would restore the session
 * beside others that have taken its room. */
void srv_store_defer_deletion(struct srv_store *store, uint64_t epoch);

/* store_snapshot.c: makes the journal of the next generation; out->fd is -1 where the store keeps
 * no journal.  False with `unwritten`. */
bool srv_store_new_journal(struct srv_journal *out, struct srv_store *store);

/* store_write.c: notes what could not be written, by errno, and returns false. */
bool srv_store_fail_file(struct srv_store *store, const char *name, size_t bytes);

/* Writes a line that says what could not be written. */
#define SRV_UNWRITTEN_TEXT 512
void srv_store_describe_unwritten(char out[SRV_UNWRITTEN_TEXT], const struct srv_store *store);

/* store_snapshot.c: freezes one moment of all sessions, and switches to the journal `next` unless
 * the current one is to be reused.  NULL where memory is short; and where a record has been written
 * to the journal that was to be reused (`missed`).  The switch is made also where memory is short,
 * since the file of the new journal exists. */
struct srv_snapshot *srv_snapshot_freeze(struct srv_store *store);
void srv_snapshot_free(struct srv_snapshot *snapshot); /* takes NULL */

/* Whether the current journal is empty and left by a failed snapshot.  The retry reuses it, so
 * that a full disk collects no empty journals. */
bool srv_snapshot_may_keep_journal(const struct srv_store *store);

/* store_write.c: writes a snapshot and frees it; NULL counts as one that failed.  False where it
 * was not written, which is logged and counted. */
bool srv_snapshot_finish(struct srv_store *store, struct srv_snapshot *snapshot);

/* Begins the journal of a new snapshot; a failure is logged and counted. */
bool srv_snapshot_begin_journal(struct srv_store *store);

/* Makes a snapshot from beginning to end, where no other thread uses the store. */
bool srv_store_make_snapshot(struct srv_store *store);

/* Has the next snapshot begin a new manifest, where a block was found damaged, and set aside what
 * it replaces.  From the store's thread, or where no other runs. */
void srv_store_note_damage(struct srv_store *store);

/* store_reader.c: the reading thread; and reading what a start has left on the disk where no other
 * thread uses the store, as far as the pool has room: false with errno where blocks cannot be
 * read. */
void *srv_store_read_thread(void *store);
void srv_store_tell_engine_thread(struct srv_store *store); /* sets srv_store_has_restored */
bool srv_store_read_now(struct srv_store *store);
void srv_store_forget_unread(struct srv_store *store); /* frees the lists */

/* Has a session that has left memory count as unread.  The engine thread's. */
void srv_store_note_evicted(struct srv_store *store, struct srv_session *session);

/* store_watch.c: looks for files of the directory that others have removed; true where a snapshot
 * is due that writes all sessions anew.  From the store's thread, or where no other runs. */
bool srv_store_find_removed(struct srv_store *store);

/* store_load.c: removes the empty journal of a start that failed, so that the next start finds the
 * directory unchanged.  The journal stays where another file has its generation: the next start
 * would begin the journal after that one, and a later start would miss the one removed. */
void srv_store_drop_journal(const struct srv_store *store);

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

/* Makes them, truncations only where asked to. */
void srv_repairs_apply(const struct srv_repairs *repairs, const struct srv_store *store,
                       bool truncates);
void srv_repairs_fini(struct srv_repairs *repairs);

#endif
