/* store_app.h: the parts of the daemon that its store needs: one model, a pool and a state
 * directory. */
#ifndef TESTS_UNIT_STORE_APP_H
#define TESTS_UNIT_STORE_APP_H

#include <sys/resource.h>

#include "app.h"
#include "scratch.h"
#include "store/store.h"

/* Makes a state directory, one model, `name`, of a `random` that stays, and a pool of so many
 * bytes; other options are those of `config`. */
void store_app_open(struct srv_app *app, const struct srv_config *config, const char *name,
                    char *random, size_t cache_bytes);
void store_app_close(struct srv_app *app);

#define STORE_APP_WIDTH \
    4 /* numbers of a row of the model "tiny", which has one layer and one head */

/* The same with a journal, the model "tiny" and 8 MiB; what else is in app->config may be set
 * before the store is opened. */
void store_app_open_tiny(struct srv_app *app, size_t max_sessions, size_t max_session_length);

/* Opens the table of sessions and the store, and closes them; both may be opened again.  `begin`
 * waits until all tokens have been read; after `load` the store is not started, and reads none. */
void store_app_begin(struct srv_app *app);
void store_app_load(struct srv_app *app);
void store_app_end(struct srv_app *app);

/* Runs a shell command in the state directory. */
void store_app_shell(const struct srv_app *app, const char *command);

/* Ends the daemon as store_app_end does, but for its files, of which those of this moment stay. */
void store_app_crash(struct srv_app *app);

/* Creates a session that is in the table and not on record yet, with a reference for the caller. */
struct srv_session *store_app_session(struct srv_app *app, const char *id);

/* Appends a row to the session's first layer and to the records; all rows have the same numbers. */
enum srv_error_code store_app_append(struct srv_app *app, struct srv_session *session);

/* Forks a session at its end: the fork is in the table and on record, with a reference for the
 * caller. */
struct srv_session *store_app_fork(struct srv_app *app, struct srv_session *parent, const char *id);

/* Records a truncation and makes it; the error's code where it could not be recorded. */
enum srv_error_code store_app_truncate(struct srv_app *app, struct srv_session *session,
                                       size_t length);

/* The session's length, SIZE_MAX where there is none; and the same after closing and opening. */
size_t store_app_length(struct srv_app *app, const char *id);
size_t store_app_find_again(struct srv_app *app, const char *id);

/* `await` waits until the store asks for a snapshot; `take` takes it and waits until it is written
 * or has failed, after which the next one may be wanted at once; `store_app_snapshot` asks for one,
 * takes it, and expects that it is written. */
void store_app_await_snapshot(struct srv_app *app);
struct srv_store_status store_app_take_snapshot(struct srv_app *app);
void store_app_snapshot(struct srv_app *app);

/* Changes a byte of the session's last block on the disk, which a snapshot has written. */
void store_app_damage_block(const struct srv_app *app, const char *id);

/* Lets no file grow beyond `bytes`. */
void store_app_limit_files(rlim_t bytes);

#endif
