/* scheduler_context.h: all that the scheduler sees of the daemon.
 *
 * main.c fills one context before srv_scheduler_open.  The context and all that its members point
 * to outlive the scheduler; every thread reads the context, none writes it. */
#ifndef SRV_SCHEDULER_CONTEXT_H
#define SRV_SCHEDULER_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct attn_engine;
struct srv_limits;
struct srv_metrics;
struct srv_models;
struct srv_request;
struct srv_routes;
struct srv_sessions;
struct srv_store;

struct srv_scheduler_context {
    struct attn_engine *engine;
    const struct srv_models *models;
    struct srv_sessions *sessions;
    struct srv_store *store; /* NULL: sessions are not kept on disk */
    struct srv_metrics *metrics;
    const struct srv_limits *limits;
    const struct srv_routes *routes;
    unsigned reply_compression; /* enum srv_reply_compression (wire/coding.h) */
    bool records_on_disk;  /* steps and changes are recorded in a journal, and wait for the disk */
    atomic_bool *stopping; /* set by srv_scheduler_stop: what waits is refused, long work stops */

    /* Hands finished requests back to the http room: once for each request that was submitted, on
     * the thread of the engine owner or of an I/O worker. */
    void (*resume)(void *resume_context, struct srv_request *const requests[], size_t count);
    void *resume_context;
};

#endif
