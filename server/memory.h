/* memory.h: what the daemon takes at most, added up before it begins.
 *
 * Each term is a bound that something else keeps: an option, the cache pool's budget, the engine's
 * bound on a call.  Where there is less, options that nobody has set give way.  What does not fit
 * then is told, with all terms, before weights are read. */
#ifndef SRV_MEMORY_H
#define SRV_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct srv_config;
struct srv_models;
struct srv_buffer;

struct srv_memory_term {
    const char *name;
    size_t bytes;
    const char *what;
};

#define SRV_MEMORY_TERMS 12

struct srv_memory {
    struct srv_memory_term terms[SRV_MEMORY_TERMS];
    size_t count;
    size_t total;                   /* of the terms; SIZE_MAX where it does not fit */
    size_t call_bytes, inner_bytes; /* for attn_engine_options */
    size_t reserved;    /* address space beyond what is touched: stacks, arenas, libraries */
    unsigned threads;   /* of all kinds */
    size_t limit;       /* what there is, */
    const char *source; /* and who says so */
    unsigned divisor;   /* of the defaults that are shares of memory */
};

/* Adds up what this configuration takes, whose models have been opened, and halves what nobody has
 * set (srv_config_halve) until there is as much.  False where nothing is left to halve: `message`
 * is then one line with every term, and *out is the last sum. */
#define SRV_MESSAGE_MAX 1024
bool srv_memory_fit(struct srv_memory *out, struct srv_config *config,
                    const struct srv_models *models, char *message, size_t size);

/* The terms as --check prints them, one a line, their sum and the limit. */
void srv_memory_print(struct srv_buffer *out, const struct srv_memory *memory);

#endif
