/* dispatch_app.h: a scheduler's dispatch over the parts of store_app.h, and one request that it
 * gets as if an event thread had read it. */
#ifndef TESTS_UNIT_DISPATCH_APP_H
#define TESTS_UNIT_DISPATCH_APP_H

#include "http/exchange.h"
#include "schedule/dispatch.h"
#include "store_app.h"

struct dispatch_app {
    struct srv_app app; /* loaded by store_app_begin or store_app_load */
    struct srv_dispatch dispatch;
    struct srv_exchange exchange;
    struct srv_request *request; /* of the exchange; the caller sets its body */
};

/* Opens the dispatch; `work` is what its one I/O worker does with a request, NULL: the worker gets
 * none.  `close` ends all, the app too. */
void dispatch_app_open(struct dispatch_app *d,
                       bool (*work)(void *context, struct srv_request *request));
void dispatch_app_close(struct dispatch_app *d);

/* `begin` finds the route of a request without a body; `send` parses it and queues its job. */
void dispatch_app_begin(struct dispatch_app *d, enum srv_method method, const char *path);
void dispatch_app_send(struct dispatch_app *d);

#endif
