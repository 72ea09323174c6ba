/* store_app.h: of the daemon what its store needs: one model, a pool and a state directory. */
#ifndef TESTS_UNIT_STORE_APP_H
#define TESTS_UNIT_STORE_APP_H

#include <sys/resource.h>

#include "app.h"
#include "scratch.h"
#include "store/store.h"

/* Makes the state directory and all that sessions and a store are opened with: `config` but for
 * models and state_dir, one model, `name`, of a `random` that stays, and a pool of so many
 * bytes. */
void store_app_open(struct srv_app *app, const struct srv_config *config, const char *name,
                    char *random, size_t cache_bytes);
void store_app_close(struct srv_app *app);

/* What the store is opened with. */
struct srv_store_context store_app_context(struct srv_app *app);

/* Sessions, and the store that knows of them.  It may be closed and opened again. */
void store_app_begin(struct srv_app *app);
void store_app_end(struct srv_app *app);

#define STORE_APP_WIDTH 4 /* of the layer that steps are for: one head of so many numbers */

/* A session in the table, of which nothing is on record yet; it stays the caller's. */
struct srv_session *store_app_session(struct srv_app *app, const char *id);

/* A row behind those of the session's first layer, in its cache and on record: all of the same
 * numbers. */
enum srv_error_code store_app_append(struct srv_app *app, struct srv_session *session);

/* A fork of all of a session, in the table and on record; it stays the caller's. */
struct srv_session *store_app_fork(struct srv_app *app, struct srv_session *parent, const char *id);

/* The session's length, SIZE_MAX where it is not there; and what a start finds of it. */
size_t store_app_length(struct srv_app *app, const char *id);
size_t store_app_find_again(struct srv_app *app, const char *id);

/* Waits until the store asks for a cut; makes it and waits for what becomes of it, after which the
 * next one may be wanted at once; and a snapshot that must be made, from asking for it on. */
void store_app_await_checkpoint(struct srv_app *app);
struct srv_store_status store_app_checkpoint(struct srv_app *app);
void store_app_snapshot(struct srv_app *app);

/* Lets no file grow beyond `bytes`. */
void store_app_limit_files(rlim_t bytes);

#endif
