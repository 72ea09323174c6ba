/* cancel.h: what takes long asks now and then whether it is to go on. */
#ifndef SRV_CANCEL_H
#define SRV_CANCEL_H

#include <stddef.h>

#include "base/errors.h"

#define SRV_CANCEL_BYTES ((size_t)64 << 10) /* of text, from one time to the next, about */

/* All zero where nobody is to be asked.  What is told to stop fails with the error that it gets. */
struct srv_cancel {
    enum srv_error_code (*ask)(void *context, struct srv_error *error);
    void *context;
};

static inline enum srv_error_code srv_cancel_ask(const struct srv_cancel *pause,
                                                 struct srv_error *error)
{
    return pause->ask != NULL ? pause->ask(pause->context, error) : SRV_OK;
}

#endif
