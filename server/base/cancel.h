/* cancel.h: how long work below schedule/ asks whether it is to stop: a function of the caller's,
 * called every few milliseconds. */
#ifndef SRV_CANCEL_H
#define SRV_CANCEL_H

#include "base/errors.h"

#define SRV_CANCEL_BYTES ((size_t)64 << 10) /* of text between two calls, about */

/* All zero: never cancelled.  Work that is to stop fails with the error that `ask` returns. */
struct srv_cancel {
    enum srv_error_code (*ask)(void *context, struct srv_error *error);
    void *context;
};

static inline enum srv_error_code srv_cancel_ask(const struct srv_cancel *cancel,
                                                 struct srv_error *error)
{
    return cancel->ask != NULL ? cancel->ask(cancel->context, error) : SRV_OK;
}

#endif
