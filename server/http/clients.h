/* clients.h: what the requests of each address hold in flight.
 *
 * Addresses (of IPv6 the first 64 bits) share SRV_CLIENT_COUNTERS counters by a hash, so the table
 * never grows, and nobody can choose an address that shares a counter with another's. */
#ifndef SRV_HTTP_CLIENTS_H
#define SRV_HTTP_CLIENTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "config/bounds.h"

struct srv_clients {
    uint64_t seed;                              /* of the hash; secret */
    atomic_size_t held[SRV_CLIENT_COUNTERS][2]; /* bytes: of requests, and of probes */
};

/* The peer of a socket as a number: 32 bits of IPv4, also where IPv6 carries it, or the first 64
 * of IPv6; 0 where it has none. */
struct sockaddr;
uint64_t srv_client_address(const struct sockaddr *peer);

/* The two counters of an address (srv_client_address), which last as long as the table.  Any
 * thread. */
atomic_size_t *srv_clients_held(struct srv_clients *clients, uint64_t address);

#endif
