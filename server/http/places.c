/* places.c: a count of ordinary places, which all loops share, and a list of reserved ones. */
#include "http/exchange.h"

static bool reserve_ordinary(struct srv_http *http)
{
    bool taken = atomic_fetch_add(&http->places, 1) < http->context.limits->max_connections;
    if (!taken)
        atomic_fetch_sub(&http->places, 1);
    return taken;
}

static void leave_list(struct srv_connection *connection)
{
    if (!connection->place.listed)
        return;
    TAILQ_REMOVE(&connection->loop->reserved.list, connection, place.entry);
    connection->loop->reserved.count--;
    connection->place.listed = false;
}

void srv_place_take(struct srv_connection *connection)
{
    struct srv_reserved *reserved = &connection->loop->reserved;
    if (reserve_ordinary(connection->loop->http))
        return;
    TAILQ_INSERT_TAIL(&reserved->list, connection, place.entry);
    reserved->count++;
    connection->place.reserved = connection->place.listed = true;
}

void srv_place_leave(struct srv_connection *connection)
{
    leave_list(connection);
    if (!connection->place.reserved)
        atomic_fetch_sub(&connection->loop->http->places, 1);
}

bool srv_place_is_ordinary(struct srv_connection *connection)
{
    struct srv_http_place *place = &connection->place;
    if (!place->reserved)
        return true;
    if (!place->listed || !reserve_ordinary(connection->loop->http))
        return false;
    leave_list(connection);
    place->reserved = false;
    return true;
}

void srv_places_bound(struct srv_loop *loop)
{
    while (loop->reserved.count > SRV_MAX_RESERVED) {
        struct srv_connection *oldest = TAILQ_FIRST(&loop->reserved.list);
        leave_list(oldest);
        srv_connection_end(oldest);
    }
}
