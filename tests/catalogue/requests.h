/* requests.h: turns an entry into the bytes to send, and compares the replies with what the entry
 * wants. */
#ifndef TESTS_CATALOGUE_REQUESTS_H
#define TESTS_CATALOGUE_REQUESTS_H

#include <stdbool.h>

#include "entries.h"
#include "replies.h"

/* The keys that entries of requests may have; ends in NULL. */
extern const char *const request_keys[];

/* Appends the bytes of the entry's request.  `state` is an exported session, for entries that edit
 * one. */
void request_build(struct text *out, const struct catalogue *catalogue, const struct entry *entry,
                   const struct text *state);

/* How a request reaches the daemon. */
struct request_way {
    unsigned port;
    bool tls, proxied;
};

/* Sends `bytes` to the port of this machine and reads the replies, which are noted in `seen`.
 * False, with one line in `wrong`, unless the replies are those of the entry's lines `key` ("want",
 * or "proxy"), each error body has all its members, and nothing follows: the connection ends, or
 * answers one more request.  Where no proxy stands between, errors have the one form of replies.h,
 * and those of a proxy are not noted. */
bool request_try(char wrong[600], struct replies_seen *seen, const struct request_way *way,
                 const struct entry *entry, const char *key, const struct text *bytes);

#endif
