/* http_clients.c: counters of bytes in flight, by a hash of the address. */
#include "http/http_clients.h"

#include "base/hash.h"

atomic_size_t *srv_clients_held(struct srv_clients *clients, uint64_t address)
{
    uint64_t hash = srv_hash_mix(clients->seed ^ address * SRV_HASH_GOLDEN);
    return clients->held[hash % SRV_CLIENT_COUNTERS];
}
