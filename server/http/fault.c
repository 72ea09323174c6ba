/* fault.c: connections whose bytes are no request (scan.fault): whole requests before the
 * fault are answered first, and then the fault, past libmicrohttpd. */
#include "http/exchange.h"

void srv_exchange_refuse(struct srv_connection *connection)
{
    const struct srv_scan_fault *fault = connection->scan.fault;
    struct srv_error error = {0};
    if (connection->refused)
        return;
    connection->refused = true;
    struct srv_exchange *begun = connection->exchange;
    struct srv_exchange *x = begun != NULL ? begun : srv_exchange_open(connection, NULL, "");
    if (x != NULL && begun == NULL)
        x->request.is_v2 = connection->scan.is_v2;
    if (x != NULL && x->state < DISCARDING_BODY) {
        srv_fail(&error, fault->code, fault->param, "%s", fault->message);
        srv_reply_error(&x->request, &error);
    }
    if (x != NULL && x->state < RUNNING_JOB)
        srv_reply_past_mhd(x);
    if (x != NULL && begun == NULL)
        srv_exchange_close(x);
    srv_connection_finish(connection);
}

void srv_exchange_refuse_faulty(struct srv_loop *loop)
{
    while (!LIST_EMPTY(&loop->faulty)) {
        struct srv_connection *connection = LIST_FIRST(&loop->faulty);
        LIST_REMOVE(connection, faulty_link);
        connection->is_faulty = false;
        srv_exchange_refuse(connection);
    }
}

void srv_connection_count_served(struct srv_connection *connection)
{
    struct srv_loop *loop = connection->loop;
    connection->served++;
    connection->pipelines = connection->scan.requests > connection->served;
    if (connection->scan.fault == NULL || connection->refused ||
        connection->served < connection->scan.requests)
        return;
    connection->is_faulty = true;
    LIST_INSERT_HEAD(&loop->faulty, connection, faulty_link);
}
