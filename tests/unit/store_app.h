/* store_app.h: of the daemon what its store needs: one model, a pool and a state directory. */
#ifndef TESTS_UNIT_STORE_APP_H
#define TESTS_UNIT_STORE_APP_H

#include "app.h"
#include "scratch.h"

/* Makes the state directory and all that sessions and a store are opened with: `config` but for
 * models and state_dir, one model, `name`, of a `random` that stays, and a pool of so many
 * bytes. */
void store_app_open(struct srv_app *app, const struct srv_config *config, const char *name,
                    char *random, size_t cache_bytes);
void store_app_close(struct srv_app *app);

/* Sessions, and the store that knows of them.  It may be closed and opened again. */
void store_app_begin(struct srv_app *app);
void store_app_end(struct srv_app *app);

#endif
