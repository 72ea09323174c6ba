/* exchange.h: one connection: what generate.h made is sent in pieces, and the replies are judged by
 * what message.h reads in it. */
#ifndef TESTS_FRAMING_EXCHANGE_H
#define TESTS_FRAMING_EXCHANGE_H

#include <stdatomic.h>

#include "generate.h"
#include "records.h"

/* A way to attnd, shared by the threads that use it. */
struct way {
    const char *name;
    bool proxied, tls;
    unsigned planned;    /* connections */
    unsigned ports[2];   /* connections take them in turn; the same port twice, or two */
    unsigned attnd_port; /* attnd itself, for the same requests alone */
    uint64_t seed;
    unsigned shown;         /* wrong connections that are printed */
    struct records replies; /* of attnd, as clients got them */
    struct records tails;   /* connections whose last request is wrong and got no reply of attnd */
    atomic_size_t connections, requests, same, refused, by_proxy, wrong;
};

/* Carries out the connection of that number, and adds to the way's figures: `requests` that are
 * sound and to be answered, `same` of which got the reply that they get alone; connections with a
 * `refused` request, and those that a proxy ended with a refusal of its own (`by_proxy`).  The
 * first connections that are `wrong` are printed. */
void exchange_try(struct way *way, unsigned number);

#endif
