/* http_hold.c: requests with a wrong API key from an address that sends many: each is held until
 * its answer is due (http_throttle.h), or where none is due soon, is ended after a second: a
 * connection learns no faster that its key is wrong.
 *
 * A held connection is suspended: libmicrohttpd does not look at it, no byte of it is read, and no
 * thread waits.  The sweep over connections ends the hold, as do draining and the end of the
 * loop, since libmicrohttpd cannot stop while a connection is suspended. */
#include <microhttpd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/http_exchange.h"

static uint64_t answer_time(const struct srv_exchange *x)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof peer;
    getpeername(x->connection->fd, (struct sockaddr *)&peer, &size);
    return srv_throttle_wrong_key(&x->loop->http->throttle,
                                  srv_throttle_address((struct sockaddr *)&peer), srv_now_ns());
}

bool srv_exchange_hold(struct srv_exchange *x, const struct srv_error *error)
{
    if (!x->request.wrong_key || x->loop->stopping)
        return false;
    uint64_t due_ns = answer_time(x);
    if (due_ns == 0)
        return false;
    srv_reply_error(&x->request, error);
    x->body_unread = true;
    x->held_until_ns = due_ns;
    if (due_ns == SRV_THROTTLE_NEVER) {
        x->held_until_ns = srv_now_ns() + SRV_WRONG_KEY_WAIT_S * UINT64_C(1000000000);
        x->request.reply.status = 0; /* none is sent */
        x->request.reply.body.length = 0;
    }
    x->state = HELD;
    srv_connection_deadline(x->connection, 0);
    x->connection->may_have_ended = true; /* nobody looks at its socket meanwhile */
    MHD_suspend_connection(x->mhd);
    return true;
}

/* The reply goes past libmicrohttpd, which may be in the middle of a body; the end of the socket
 * ends the connection there. */
void srv_exchange_check_held(struct srv_exchange *x, uint64_t now_ns)
{
    bool draining = atomic_load(x->loop->http->context.phase) == SRV_DRAINING;
    if (x->state != HELD || (now_ns < x->held_until_ns && !draining))
        return;
    if (x->request.reply.status != 0)
        srv_exchange_reply_past_mhd(x);
    x->state = REPLIED;
    srv_connection_finish(x->connection);
    MHD_resume_connection(x->mhd);
}
