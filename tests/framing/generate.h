/* generate.h: what a client sends over one connection: one to six requests, good ones, odd ones and
 * ones that a careless reader takes for more or fewer than there are. */
#ifndef TESTS_FRAMING_GENERATE_H
#define TESTS_FRAMING_GENERATE_H

#include <stdint.h>

#include "text.h"

/* Every request has an X-Request-Id of its own: the first character is 'c', or 's' for a request
 * that stands within the body of another; then come seven digits, the number of the connection. */
#define GENERATE_ID_LENGTH 16
#define GENERATE_MAX_REQUESTS 6

#define GENERATE_SESSION "framing" /* of the model `tiny`; the daemon has to have it */

struct generated {
    struct text bytes;
    const char *oddity; /* what is wrong on purpose; NULL: nothing */
};

/* The same seed and number give the same bytes.  text_free(&out->bytes) releases them. */
void generate(struct generated *out, uint64_t seed, unsigned connection);

/* A generator of numbers below `n`. */
struct rng {
    uint64_t state;
};
unsigned rng_below(struct rng *rng, unsigned n);

#endif
