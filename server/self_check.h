/* self_check.h: no kernel serves whose bits depend on what a step is computed with. */
#ifndef SRV_SELF_CHECK_H
#define SRV_SELF_CHECK_H

#include "app.h"
#include "base/buffer.h"

/* Proves batch invariance (attn_self_check) for every loaded model on the daemon's engine, a line
 * in the log for each.  False, with a line in `message`, where it does not hold. */
bool srv_self_check(struct srv_app *app, char *message, size_t size);

/* The same for --check, on an engine of its own and one layer of each model, which it loads for
 * that; prints a line for each. */
bool srv_self_check_print(struct srv_buffer *out, const struct srv_config *config, char *message,
                          size_t size);

#endif
