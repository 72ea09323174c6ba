/* job.c: a request's way to the scheduler and back.
 *
 * While its job runs an exchange is polled, not suspended: libmicrohttpd calls its handler again
 * each turn until there is a reply, and only an exchange that has been polled for long is suspended
 * (mhd_workarounds.c, 12).  From submit to resume the scheduler holds the request; x->held_by says
 * so, and who acts next. */
#include <microhttpd.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/exchange.h"
#include "schedule/scheduler.h"

#define MAX_POLLS 4096                   /* of all polled exchanges, before one is suspended */
#define PROBE_AFTER_NS (100 * SRV_MS_NS) /* of a job: before that its client is not probed */

static struct srv_scheduler *begin_job(struct srv_exchange *x)
{
    x->state = RUNNING_JOB;
    atomic_store(&x->held_by, HELD_BY_SCHEDULER);
    return x->loop->http->context.scheduler;
}

/* Polls for the reply where the scheduler has accepted the request; returns whether it has. */
static bool begin_polling(struct srv_exchange *x, bool accepted)
{
    if (!accepted)
        atomic_store(&x->held_by, HELD_BY_EVENT_THREAD);
    x->polled = accepted;
    x->loop->num_polled += accepted;
    return accepted;
}

bool srv_exchange_submit(struct srv_exchange *x)
{
    struct srv_error error = {0};
    if (!begin_polling(x, srv_scheduler_submit(begin_job(x), &x->request, &error))) {
        srv_reply_error(&x->request, &error);
        return false;
    }
    return x->loop->has_submitted = true;
}

bool srv_exchange_handle_elsewhere(struct srv_exchange *x)
{
    return begin_polling(x, srv_scheduler_handle(begin_job(x), &x->request));
}

void srv_exchange_run_submitted(struct srv_loop *loop)
{
    if (loop->has_submitted)
        srv_scheduler_run_or_wake(loop->http->context.scheduler);
    loop->has_submitted = false;
    srv_exchange_refuse_faulty(loop);
}

/* ---- Waiting for the reply ------------------------------------------------------------------- */

void srv_exchange_stop_polling(struct srv_exchange *x)
{
    if (x->polled)
        x->loop->num_polled--;
    x->polled = false;
}

/* Takes the connection out of libmicrohttpd's hands until the job is done, unless it is by now. */
static void suspend(struct srv_exchange *x)
{
    int holder = HELD_BY_SCHEDULER;
    srv_exchange_stop_polling(x);
    x->connection->may_have_ended = true; /* nobody looks at its socket meanwhile */
    MHD_suspend_connection(x->mhd);
    if (!atomic_compare_exchange_strong(&x->held_by, &holder, HELD_BY_SCHEDULER_TO_RESUME))
        MHD_resume_connection(x->mhd);
}

bool srv_exchange_poll(struct srv_exchange *x)
{
    if (x->state != RUNNING_JOB || atomic_load(&x->held_by) != HELD_BY_SCHEDULER)
        return false;
    if (++x->num_polls * x->loop->num_polled > MAX_POLLS)
        suspend(x);
    return true;
}

/* ---- Clients that leave ---------------------------------------------------------------------- */

/* A client that has closed its side may still read, or be gone; the two cannot be told apart until
 * something is sent.  So the client is sent an interim reply, which means nothing to one that
 * reads; the system of one that is gone resets the connection.  False where no probe can be sent:
 * over TLS, and to clients of HTTP/1.0. */
static bool probe(struct srv_exchange *x)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!x->knows_interim ||
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION) != NULL)
        return false;
    if (!x->probed)
        (void)!send(x->connection->fd, interim, strlen(interim), MSG_DONTWAIT | MSG_NOSIGNAL);
    x->probed = true;
    return true;
}

/* A client that has closed its side and cannot be probed counts as gone. */
void srv_exchange_check_client(struct srv_exchange *x, uint64_t now_ns)
{
    struct pollfd client = {.fd = x->connection->fd, .events = POLLRDHUP};
    if (x->state != RUNNING_JOB || now_ns - x->request.t_body < PROBE_AFTER_NS ||
        atomic_load(&x->request.client_gone) || poll(&client, 1, 0) <= 0)
        return;
    if ((client.revents & (POLLHUP | POLLERR)) != 0 || !probe(x))
        atomic_store(&x->request.client_gone, true);
}

/* The scan has seen each byte that came, also those that libmicrohttpd still holds. */
bool srv_connection_is_cut_off(const struct srv_connection *connection)
{
    const struct srv_exchange *x = connection->exchange;
    bool in_head = connection->scan.requests == connection->served;
    bool in_body =
        connection->scan.requests == connection->served + 1 && srv_scan_in_body(&connection->scan);
    return (x == NULL || x->state <= DISCARDING_BODY) && (in_head || in_body) &&
           srv_mhd_client_closed(connection);
}

bool srv_exchange_abandon(struct srv_exchange *x)
{
    int holder = HELD_BY_SCHEDULER;
    struct srv_connection *connection = x->connection;
    x->connection = NULL;
    atomic_store(&x->request.client_gone, true);
    if (atomic_compare_exchange_strong(&x->held_by, &holder, HELD_BY_SCHEDULER_TO_END)) {
        connection->exchange = NULL;
        return true;
    }
    x->connection = connection;
    return false;
}

/* ---- The way back ---------------------------------------------------------------------------- */

void srv_http_resume(struct srv_http *http, struct srv_request *const requests[], size_t count)
{
    bool touched[SRV_MAX_EVENT_THREADS] = {false};
    for (size_t i = 0; i < count; i++) {
        struct srv_exchange *x = requests[i]->connection;
        struct MHD_Connection *mhd = x->mhd;
        touched[x->loop - http->loops] = true;
        /* From here on x is the scheduler's only where it is to end the exchange. */
        int holder = atomic_exchange(&x->held_by, HELD_BY_EVENT_THREAD);
        if (holder == HELD_BY_SCHEDULER_TO_RESUME)
            MHD_resume_connection(mhd);
        if (holder == HELD_BY_SCHEDULER_TO_END) {
            srv_exchange_log(requests[i]);
            srv_exchange_free(x, false);
        }
    }
    for (size_t i = 0; i < http->loop_count; i++) {
        if (touched[i])
            srv_loop_wake(&http->loops[i]);
    }
}
