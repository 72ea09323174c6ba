/* self_check.h: the proof that a step's bits do not depend on its batch, without which attnd does
 * not serve. */
#ifndef SRV_SELF_CHECK_H
#define SRV_SELF_CHECK_H

#include "app.h"
#include "base/buffer.h"

/* Proves batch invariance (attn_self_check) for every loaded model on the daemon's engine and logs
 * a line for each.  False, with a line in `message`, where a proof fails. */
bool srv_self_check(struct srv_app *app, char *message, size_t size);

/* Does the same for --check, on an engine of its own and one layer of each model, which it loads;
 * appends a line for each. */
bool srv_self_check_print(struct srv_buffer *out, const struct srv_config *config, char *message,
                          size_t size);

#endif
