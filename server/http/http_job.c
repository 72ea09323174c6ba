/* http_job.c: a request's way to the scheduler and back.
 *
 * A job waits without being suspended: libmicrohttpd calls its handler again each turn until there
 * is a reply.  Suspending and resuming cost several system calls, so only what has been called in
 * vain for long is suspended.  Between submit and resume the request belongs to the scheduler, and
 * `hold` says who acts next: both sides change it, each in one atomic step. */
#include <microhttpd.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "app.h"
#include "http/http_exchange.h"

#define CALLS_IN_VAIN 4096              /* of all that wait, together, before one is suspended */
#define PATIENCE_NS UINT64_C(100000000) /* a client of less waiting is not looked for */

bool srv_exchange_submit(struct srv_exchange *x)
{
    struct srv_request *request = &x->request;
    struct srv_error error = {0};
    x->stage = AT_JOB;
    atomic_store(&x->hold, HELD);
    if (!srv_scheduler_submit(request->app->scheduler, request, &error)) {
        atomic_store(&x->hold, FREE);
        srv_reply_error(request, &error);
        return false;
    }
    x->waits = x->loop->submitted = true;
    x->loop->waiting++;
    return true;
}

void srv_exchange_stop_waiting(struct srv_exchange *x)
{
    if (x->waits)
        x->loop->waiting--;
    x->waits = false;
}

/* Takes the connection out of libmicrohttpd's hands until the job is done, unless it is by now. */
static void suspend(struct srv_exchange *x)
{
    int held = HELD;
    srv_exchange_stop_waiting(x);
    MHD_suspend_connection(x->mhd);
    if (!atomic_compare_exchange_strong(&x->hold, &held, SUSPENDED))
        MHD_resume_connection(x->mhd);
}

/* ---- Clients that leave ---------------------------------------------------------------------- */

/* A client that has ended its side may still read, or be gone: both look alike until something is
 * sent.  So it is sent an interim reply, which means nothing to one that reads; the system of one
 * that is gone resets the connection.  True where there is nobody to ask. */
static bool ask(struct srv_exchange *x)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!x->interim || MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION) != NULL)
        return true;
    if (!x->asked)
        (void)!send(x->connection->fd, interim, strlen(interim), MSG_DONTWAIT | MSG_NOSIGNAL);
    x->asked = true;
    return false;
}

void srv_exchange_look(struct srv_exchange *x, uint64_t now)
{
    struct pollfd client = {.fd = x->connection->fd, .events = POLLRDHUP};
    if (x->stage != AT_JOB || now - x->request.t_body < PATIENCE_NS ||
        atomic_load(&x->request.left) || poll(&client, 1, 0) <= 0)
        return;
    if ((client.revents & (POLLHUP | POLLERR)) != 0 || ask(x))
        atomic_store(&x->request.left, true);
}

bool srv_exchange_leave(struct srv_exchange *x)
{
    int held = HELD;
    struct srv_connection *connection = x->connection;
    x->connection = NULL;
    atomic_store(&x->request.left, true);
    if (atomic_compare_exchange_strong(&x->hold, &held, LEFT)) {
        connection->exchange = NULL;
        return true;
    }
    x->connection = connection;
    return false;
}

bool srv_exchange_waits(struct srv_exchange *x)
{
    if (x->stage != AT_JOB || atomic_load(&x->hold) != HELD)
        return false;
    if (++x->vain * x->loop->waiting > CALLS_IN_VAIN)
        suspend(x);
    return true;
}

void srv_exchange_turned(struct srv_loop *loop)
{
    if (loop->submitted)
        srv_scheduler_run_or_wake(loop->http->app->scheduler);
    loop->submitted = false;
}

void srv_http_resume(struct srv_http *http, struct srv_request *const requests[], size_t count)
{
    bool touched[SRV_MAX_EVENT_THREADS] = {false};
    for (size_t i = 0; i < count; i++) {
        struct srv_exchange *x = requests[i]->connection;
        struct MHD_Connection *mhd = x->mhd;
        touched[x->loop - http->loops] = true;
        int hold = atomic_exchange(&x->hold, FREE); /* x may be gone from here on, unless LEFT */
        if (hold == SUSPENDED)
            MHD_resume_connection(mhd);
        if (hold == LEFT) {
            srv_exchange_tell(requests[i]);
            srv_exchange_free(x, false);
        }
    }
    for (size_t i = 0; i < http->loop_count; i++) {
        if (touched[i])
            srv_loop_wake(&http->loops[i]);
    }
}
