/* http_throttle.c: a table of addresses, in sets of WAYS that share a hash. */
#include "http/http_throttle.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/hash.h"

#define WAYS 8
#define SECOND_NS UINT64_C(1000000000)
#define REFILL_NS (60 * SECOND_NS / SRV_WRONG_KEYS) /* one wrong key more */

uint64_t srv_throttle_address(const struct sockaddr *peer)
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

/* The entry of the address, or the one of its set that was slow longest ago, emptied. */
static struct srv_throttled *find(struct srv_throttle *throttle, uint64_t address)
{
    uint64_t hash = srv_hash_mix(throttle->seed ^ address * SRV_HASH_GOLDEN);
    struct srv_throttled *set =
        &throttle->addresses[hash % (SRV_THROTTLED_ADDRESSES / WAYS) * WAYS];
    struct srv_throttled *oldest = set;
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].address == address && set[i].full_ns > 0)
            return &set[i];
        if (set[i].full_ns < oldest->full_ns)
            oldest = &set[i];
    }
    *oldest = (struct srv_throttled){.address = address};
    return oldest;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* `full_ns` stays at most a minute ahead, so that an attack is over a minute after its end. */
static uint64_t next_answer(struct srv_throttled *entry, uint64_t now_ns)
{
    uint64_t from = later(entry->full_ns, now_ns);
    if (from - now_ns <= (SRV_WRONG_KEYS - 1) * REFILL_NS) {
        entry->full_ns = from + REFILL_NS;
        return 0;
    }
    uint64_t slot = later(entry->slot_ns + SECOND_NS / SRV_WRONG_KEYS_PER_S,
                          now_ns + SRV_WRONG_KEY_WAIT_S * SECOND_NS);
    if (slot - now_ns > SRV_WRONG_KEY_WAIT_MAX_S * SECOND_NS)
        return SRV_THROTTLE_NEVER;
    entry->slot_ns = slot;
    return slot;
}

uint64_t srv_throttle_wrong_key(struct srv_throttle *throttle, uint64_t address, uint64_t now_ns)
{
    pthread_mutex_lock(&throttle->lock);
    uint64_t answer_ns = next_answer(find(throttle, address), now_ns);
    pthread_mutex_unlock(&throttle->lock);
    return answer_ns;
}
