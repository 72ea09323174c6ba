/* store.h: sessions on disk, as the setting `durability` has them.
 *
 *   none      nothing is kept
 *   snapshot  all sessions are written at times, on request and at the end
 *   journal   what a step or a change of a session adds is in a file before anybody sees it; the
 *             journal is replaced by a snapshot when it has grown
 *
 * Calls take a store that is NULL (none).  Those that record fail with insufficient_storage where
 * the file cannot take it: nothing has happened then, and the caller undoes what it has prepared.
 * What is in the files and how it is read again is store_files.h, record.h, restore.h. */
#ifndef SRV_STORE_H
#define SRV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_state.h"
#include "base/errors.h"
#include "session/session.h"

struct srv_app;
struct srv_store;

enum srv_durability { SRV_DURABLE_NONE, SRV_DURABLE_SNAPSHOT, SRV_DURABLE_JOURNAL };
enum srv_journal_fsync { SRV_FSYNC_OS, SRV_FSYNC_EVERYSEC, SRV_FSYNC_ALWAYS };

/* Opens the directory, making it where it is not there, and locks it: fails where another daemon
 * has it.  *out is NULL where nothing is to be kept. */
bool srv_store_open(struct srv_store **out, struct srv_app *app, char *message, size_t size);

/* Makes the sessions again, once the models are loaded and before requests are served, and begins
 * to keep them.  False with one line where they cannot be held: too many, too large. */
bool srv_store_load(struct srv_store *store, char *message, size_t size);

/* Starts the threads that write snapshots and flush, once the caller blocks the signals that they
 * are not to take.  False with one line where they cannot be had. */
bool srv_store_start(struct srv_store *store, char *message, size_t size);

/* The descriptor by which files are opened, -1 for NULL. */
int srv_store_directory(const struct srv_store *store);

/* Saves what is to be saved and lets go of the directory, when neither scheduler nor event threads
 * are left; false where it could not be saved, which was logged. */
bool srv_store_close(struct srv_store *store);

/* ---- Records --------------------------------------------------------------------------------- */

/* From any thread.  A session is recorded once it is in the table; the same again does nothing. */
enum srv_error_code srv_store_create(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error);

/* Before it leaves the table. */
enum srv_error_code srv_store_delete(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error);

/* A session that has left the table since it expired: where that cannot be recorded, it is with
 * what is recorded next. */
void srv_store_expire(struct srv_store *store, struct srv_session *session);

/* From the scheduler's thread: a session that is a fork, and a truncation to come. */
enum srv_error_code srv_store_fork(struct srv_store *store, struct srv_session *session,
                                   const struct srv_session *parent, size_t length,
                                   struct srv_error *error);
enum srv_error_code srv_store_truncate(struct srv_store *store, struct srv_session *session,
                                       size_t length, struct srv_error *error);

/* A session that was imported, and is in no table yet, on its way into the journal.  Zeroed at
 * first. */
struct srv_store_import {
    bool begun;
    uint64_t chain;      /* of the next record */
    size_t layer, first; /* of the next token */
};

/* From the scheduler's thread: writes a piece of what the session is, between which others record;
 * *more says whether there is another.  When there is none the session is listed, and `end` makes
 * what was written count; or else `abandon`, also behind an error, says that it never will. */
enum srv_error_code srv_store_import_piece(bool *more, struct srv_store *store,
                                           struct srv_store_import *import,
                                           const struct srv_session *session,
                                           struct srv_error *error);
enum srv_error_code srv_store_import_end(struct srv_store *store, struct srv_store_import *import,
                                         struct srv_session *session, struct srv_error *error);
void srv_store_import_abandon(struct srv_store *store, struct srv_store_import *import,
                              const struct srv_session *session);

/* A step that is to be published. */
struct srv_store_step {
    struct srv_session *session;
    size_t layer;
    const struct attn_appended *rows;
    const uint64_t *digest; /* [2] */
};

/* Records the steps of a batch, all or none; and before them sessions that start with them. */
enum srv_error_code srv_store_steps(struct srv_store *store, const struct srv_store_step steps[],
                                    size_t count, struct srv_error *error);

/* ---- Snapshots ------------------------------------------------------------------------------- */

/* Whether the scheduler's thread is to call srv_store_take_checkpoint, between two batches: it
 * notes what all sessions are at this moment, which a thread of the store's then writes.  One that
 * follows a failure by itself may have the generation of that. */
bool srv_store_wants_checkpoint(const struct srv_store *store);
void srv_store_take_checkpoint(struct srv_store *store);

struct srv_store_status {
    uint64_t generation, base; /* the newest, and the last one that is whole on disk; 0: none */
    uint64_t journal_bytes;    /* since the base */
    bool running;              /* a snapshot is being written */
};
void srv_store_describe(struct srv_store_status *out, struct srv_store *store);

/* Asks for a snapshot soon.  *out is what was before: the snapshot that holds all of this moment
 * has a larger generation. */
void srv_store_request_checkpoint(struct srv_store_status *out, struct srv_store *store);

#endif
