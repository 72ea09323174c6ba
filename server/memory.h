/* memory.h: what the daemon takes at most, added up before it begins.
 *
 * Each term is an upper bound that something else enforces: an option, the cache pool's budget, the
 * engine's bound on a call.  Where memory is short, options that nobody has set are lowered; what
 * still does not fit is refused, with every term, before weights are read. */
#ifndef SRV_MEMORY_H
#define SRV_MEMORY_H

#include "base/errors.h"

struct srv_config;
struct srv_models;
struct srv_buffer;

enum srv_memory_term {
    SRV_MEMORY_PROGRAM,
    SRV_MEMORY_WEIGHTS,
    SRV_MEMORY_CACHES,
    SRV_MEMORY_SESSIONS,
    SRV_MEMORY_REQUESTS,
    SRV_MEMORY_WORKING,
    SRV_MEMORY_CONNECTIONS,
    SRV_MEMORY_STORE,
    SRV_MEMORY_TERMS
};

struct srv_memory {
    size_t terms[SRV_MEMORY_TERMS];      /* bytes */
    size_t total;                        /* of the terms; SIZE_MAX where it does not fit size_t */
    size_t call_bytes, yield_call_bytes; /* for attn_engine_options */
    size_t reserved;                     /* address space that is not touched */
    unsigned threads;                    /* of all kinds */
    size_t limit;       /* bytes that the daemon may take; SIZE_MAX: no limit known */
    const char *source; /* of the limit, in a few words */
    unsigned divisor;   /* of the defaults that are shares of memory */
};

/* Adds up what this configuration takes, whose models have been opened, and divides the shares of
 * memory that nobody has set (srv_config_divide_defaults) by the least power of two with which the
 * sum fits.  False where none does: `message` is then one line with every term, and *out is the
 * last sum. */
bool srv_memory_fit(struct srv_memory *out, struct srv_config *config,
                    const struct srv_models *models, char message[SRV_MESSAGE_MAX]);

/* Appends the terms as --check prints them, one a line, their sum and the limit. */
void srv_memory_print(struct srv_buffer *out, const struct srv_memory *memory);

#endif
