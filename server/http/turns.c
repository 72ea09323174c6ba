/* turns.c: a queue of suspended connections. */
#include <microhttpd.h>

#include "http/loop.h"

static void stop_waiting(struct srv_turns *turns, struct srv_connection *connection)
{
    TAILQ_REMOVE(&turns->waiting, connection, turn.entry);
    connection->turn.waits = false;
}

bool srv_turn_begins(struct srv_connection *connection)
{
    struct srv_loop *loop = connection->loop;
    struct srv_turns *turns = &loop->turns;
    bool granted = connection->turn.granted;
    bool fits = TAILQ_EMPTY(&turns->waiting) && turns->served < SRV_TURN_PIPELINED;
    connection->turn.granted = false;
    turns->served += !granted && fits;
    if (granted || fits || loop->stopping)
        return true;
    TAILQ_INSERT_TAIL(&turns->waiting, connection, turn.entry);
    connection->turn.waits = true;
    connection->may_have_ended = true; /* nobody looks at its socket meanwhile */
    MHD_suspend_connection(connection->mhd);
    return false;
}

void srv_turns_resume(struct srv_loop *loop)
{
    struct srv_turns *turns = &loop->turns;
    turns->served = 0;
    struct srv_connection *connection;
    while ((connection = TAILQ_FIRST(&turns->waiting)) != NULL &&
           (turns->served < SRV_TURN_PIPELINED || loop->stopping)) {
        stop_waiting(turns, connection);
        turns->served++;
        connection->turn.granted = true;
        MHD_resume_connection(connection->mhd);
    }
}

void srv_turn_forget(struct srv_connection *connection)
{
    if (connection->turn.waits)
        stop_waiting(&connection->loop->turns, connection);
}
