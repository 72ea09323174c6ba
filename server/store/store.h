/* store.h: sessions on disk, as the option `durability` has them.
 *
 *   none      nothing is kept
 *   snapshot  all sessions are written now and then, on request and at the end
 *   journal   what a step or a change adds to a session is in a file before anybody sees it
 *
 * A snapshot is one moment of all sessions, written as files.  With `journal` a snapshot also
 * replaces the journals before it, so that these do not grow for ever.
 *
 * A store that is NULL keeps nothing.  Every call takes it but srv_store_describe and
 * srv_store_request_snapshot.  A call that records fails with insufficient_storage where the
 * journal cannot take the record: then nothing has happened, and the caller undoes what it has
 * prepared.  The forms of the files are described in store_files.h,
 * record.h and sharing.h, reading them in restore.h. */
#ifndef SRV_STORE_H
#define SRV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_state.h"
#include "base/errors.h"
#include "session/session.h"
#include "store/identity.h"

struct srv_models;
struct srv_log;
struct srv_metrics;
struct srv_store;

enum srv_durability { SRV_DURABLE_NONE, SRV_DURABLE_SNAPSHOT, SRV_DURABLE_JOURNAL };
enum srv_journal_fsync { SRV_FSYNC_OS, SRV_FSYNC_EVERYSEC, SRV_FSYNC_ALWAYS };

/* Options of the configuration, and the parts of the daemon that a store uses and that outlive
 * it. */
struct srv_store_context {
    enum srv_durability durability;
    enum srv_journal_fsync fsync;
    unsigned index; /* among the daemon's stores (stores.h): 0 the own one, else adopted */
    const char *state_dir;
    enum srv_naming naming;     /* of the directory, by the identity of the table */
    size_t journal_bytes;       /* of journals, beyond which a snapshot is due */
    size_t snapshot_interval_s; /* with `snapshot`: seconds between snapshots; 0: no limit */
    size_t snapshot_tokens;     /* with `snapshot`: tokens between snapshots; 0: no limit */
    size_t max_sessions;
    bool reads_at_once; /* srv_store_load reads what the pool holds; else srv_store_start follows */
    struct srv_sessions *sessions;
    const struct srv_models *models;
    struct attn_cache_pool *pool;
    struct srv_metrics *metrics;
    struct srv_log *log;
    /* Asks the engine thread to call srv_store_take_snapshot or srv_store_take_restored soon;
     * called from the store's thread, from srv_store_start on. */
    void (*wake_engine_thread)(void *callback_context);
    void *callback_context;
};

/* Opens the directory and locks it; fails where another daemon holds the lock.  The own directory
 * is made where it does not exist.  The table of sessions gets the directory's identity.  *out is
 * NULL where nothing is to be kept.  The context is copied. */
bool srv_store_open(struct srv_store **out, const struct srv_store_context *context, char *message,
                    size_t size);

/* Restores the sessions, once the models are loaded and before requests are served, and begins to
 * keep them.  False with one line where they cannot be held (too many, too large) or the directory
 * cannot be read or written. */
bool srv_store_load(struct srv_store *store, char *message, size_t size);

/* Sessions that a start with `journal` would restore, if every model were configured and there were
 * room. */
struct srv_store_count {
    size_t served, expired, lost;
    /* Called for each lost session: `without_manifest`: for what the manifest has of it, not for
     * records of a journal.  NULL: never. */
    void (*report)(void *context, uint64_t epoch, bool without_manifest);
    void *context;
};

/* Counts for a directory, a descriptor, and changes nothing.  False with one line where a file
 * cannot be read now.  Reads every byte.  Memory: some 700 bytes for each session. */
bool srv_store_count(struct srv_store_count *out, int directory, char *message, size_t size);

/* Starts the threads that write snapshots and flush the journal; the caller has blocked the
 * signals that these threads are not to take.  False with one line where memory is short. */
bool srv_store_start(struct srv_store *store, char *message, size_t size);

/* Locks a directory, a descriptor, until that is closed; false where it is locked already.  Where
 * the file system has no locks of directories (NFS), the file SRV_LOCK_FILE counts alone. */
bool srv_store_lock_directory(int directory);

/* The descriptor of the directory; -1 for NULL. */
int srv_store_directory(const struct srv_store *store);

/* Saves what is to be saved and unlocks the directory; neither the scheduler's nor event threads
 * run any more.  False where sessions could not be saved, which was logged. */
bool srv_store_close(struct srv_store *store);

/* ---- Sessions whose tokens are on the disk alone -----------------------------------------------
 *
 * A start leaves tokens on the disk, and tokens of sessions that nobody uses leave memory where it
 * is short (stores.h); a thread of the store reads them while requests are served.  Until then a
 * session is SRV_UNREAD: it has its id, its owner and its lengths, and may be listed, deleted and
 * expire.  One whose tokens are damaged becomes SRV_LOST and leaves the table. */

/* Has an unread session read before those for which nobody waits; who waits is counted in `parked`
 * or `waiting` before.  False where it is unread no longer, so that no call of wake_engine_thread
 * will follow.  Any thread. */
bool srv_store_want(struct srv_store *store, struct srv_session *session);

/* Whether since the last call a session that was wanted has been read, lost, dropped or refused, or
 * the reading thread asks for room; the store then has called wake_engine_thread.  The engine
 * thread's.  Takes NULL. */
bool srv_store_has_restored(struct srv_store *store);
bool srv_store_take_restored(struct srv_store *store);

/* Sessions that are unread; and of these, sessions that a start has left and that are read though
 * nobody waits for them.  Takes NULL. */
size_t srv_store_unread(const struct srv_store *store);
size_t srv_store_restoring(const struct srv_store *store);

/* For how many seconds the disk has kept the journal waiting: a batch of records, or a flush.  Any
 * thread. */
size_t srv_store_waited_s(struct srv_store *store);

/* ---- Records --------------------------------------------------------------------------------- */

/* Records a session that is in the table, once; from any thread. */
enum srv_error_code srv_store_create(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error);

/* Records that a session is deleted, before it leaves the table; from any thread. */
enum srv_error_code srv_store_delete(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error);

/* Records that a session has expired, which has left the table; from any thread.  Where the journal
 * cannot take the record now, it goes before the next one. */
void srv_store_expire(struct srv_store *store, struct srv_session *session);

/* Records a session that is a fork, which is in the table; from the engine thread. */
enum srv_error_code srv_store_fork(struct srv_store *store, struct srv_session *session,
                                   struct srv_session *parent, size_t length,
                                   struct srv_error *error);

/* Records a truncation that is about to be made; from the engine thread. */
enum srv_error_code srv_store_truncate(struct srv_store *store, struct srv_session *session,
                                       const struct srv_revision *after, struct srv_error *error);

/* How far the record of an imported session has come.  Zeroed at first. */
struct srv_store_import {
    bool begun;
    uint64_t next_record; /* its number among the session's records */
    size_t layer, first;  /* of the next token */
};

/* Records a piece of an imported session that is in no table yet; others record between the pieces.
 * *more says whether another piece follows.  After the last one the session enters the table, and
 * `end` makes the record count; or else, also after an error, `abandon` records that it never will.
 * All from the engine thread. */
enum srv_error_code srv_store_import_piece(bool *more, struct srv_store *store,
                                           struct srv_store_import *import,
                                           const struct srv_session *session,
                                           struct srv_error *error);
enum srv_error_code srv_store_import_end(struct srv_store *store, struct srv_store_import *import,
                                         struct srv_session *session, struct srv_error *error);
void srv_store_import_abandon(struct srv_store *store, struct srv_store_import *import,
                              const struct srv_session *session);

/* A step that is about to be published. */
struct srv_store_step {
    struct srv_session *session;
    size_t layer;
    const struct attn_appended *rows;
    const uint64_t *digest; /* [2] */
};

/* Records the steps of a batch, all or none, and before each step its session where that is not on
 * record yet; all sessions are of one store.  From the engine thread. */
enum srv_error_code srv_store_steps(struct srv_store *store, const struct srv_store_step steps[],
                                    size_t count, struct srv_error *error);

/* ---- Snapshots ------------------------------------------------------------------------------- */

/* `wants`: whether the engine thread is to call `take` between two batches.  `take` freezes all
 * sessions as they are at this moment, and the store's thread writes them afterwards.  A snapshot
 * that is tried again after a failure may keep the generation of the failed one. */
bool srv_store_wants_snapshot(const struct srv_store *store);
void srv_store_take_snapshot(struct srv_store *store);

struct srv_store_status {
    uint64_t generation;    /* the newest */
    uint64_t base;          /* the newest one that is whole on disk; 0: none */
    uint64_t journal_bytes; /* since the base */
    bool running;           /* a snapshot is being written, or is owed */
    uint64_t owed;          /* the generation that a base is to have; 0: none was ever owed */
};
void srv_store_describe(struct srv_store_status *out, struct srv_store *store);

/* Asks for a snapshot soon.  *out is the status before: the snapshot that holds all of this
 * moment has a larger generation than it says. */
void srv_store_request_snapshot(struct srv_store_status *out, struct srv_store *store);

#endif
