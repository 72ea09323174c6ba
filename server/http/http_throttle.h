/* http_throttle.h: how long an address waits for the answer to a wrong API key.
 *
 * An address (of IPv6 the first 64 bits) may send SRV_WRONG_KEYS wrong keys a minute that are
 * answered at once.  What it sends beyond is answered SRV_WRONG_KEYS_PER_S times a second, each
 * answer after a second at least.  Right keys are never looked up here: whoever else is behind the
 * address, as behind a proxy, is served as before. */
#ifndef SRV_HTTP_THROTTLE_H
#define SRV_HTTP_THROTTLE_H

#include <pthread.h>
#include <stdint.h>

#include "config/bounds.h"

#define SRV_THROTTLE_NEVER UINT64_MAX /* the connection is ended without an answer */

struct srv_throttled {
    uint64_t address;
    uint64_t full_ns; /* when SRV_WRONG_KEYS would be answered at once again */
    uint64_t slot_ns; /* the last answer that was promised */
};

struct srv_throttle {
    pthread_mutex_t lock; /* held while one address is looked up; taken for wrong keys only */
    uint64_t seed;        /* of the hash: nobody can choose addresses that collide */
    struct srv_throttled addresses[SRV_THROTTLED_ADDRESSES];
};

/* Counts a wrong key of this address: returns the time (monotonic nanoseconds) at which it is to be
 * answered, 0: at once, or SRV_THROTTLE_NEVER.  Where there is no room, the address that was slow
 * longest ago is forgotten.  Any thread. */
uint64_t srv_throttle_wrong_key(struct srv_throttle *throttle, uint64_t address, uint64_t now_ns);

/* The peer of a socket as a number: 32 bits of IPv4, also where IPv6 carries it, or the first 64
 * of IPv6; 0 where it has none. */
struct sockaddr;
uint64_t srv_throttle_address(const struct sockaddr *peer);

#endif
