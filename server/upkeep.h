/* upkeep.h: the thread that expires sessions, returns free memory to the system and looks at mapped
 * files of weights. */
#ifndef SRV_UPKEEP_H
#define SRV_UPKEEP_H

#include <stdbool.h>

struct srv_metrics;
struct srv_sessions;
struct srv_store;
struct srv_upkeep;

/* Starts the thread, once sessions are loaded; the parts outlive it, `store` may be NULL.  The
 * caller has blocked the signals that the thread is not to take.  False where memory or threads are
 * short. */
bool srv_upkeep_open(struct srv_upkeep **out, struct srv_sessions *sessions,
                     struct srv_store *store, struct srv_metrics *metrics);

/* Ends the thread, after what it does at the moment.  Takes NULL. */
void srv_upkeep_close(struct srv_upkeep *upkeep);

#endif
