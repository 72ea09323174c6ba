/* clients.c: counters of bytes in flight, by a hash of the address. */
#include "http/exchange.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "basics/hash.h"

uint64_t srv_client_address(const struct sockaddr *peer)
{
    uint64_t address = 0;
    if (peer->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)peer)->sin_addr.s_addr);
    if (peer->sa_family != AF_INET6)
        return 0;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    size_t first = IN6_IS_ADDR_V4MAPPED(v6) ? 12 : 0, count = first == 12 ? 4 : 8;
    for (size_t i = 0; i < count; i++)
        address = address << 8 | v6->s6_addr[first + i];
    return address;
}

atomic_size_t *srv_clients_bytes(struct srv_clients *clients, uint64_t address)
{
    uint64_t hash = attn_hash_mix(clients->seed ^ address * ATTN_HASH_GOLDEN);
    return clients->bytes[hash % SRV_CLIENT_COUNTERS];
}
