/* budget.h: bytes that are counted against a limit, by any number of threads. */
#ifndef SRV_BUDGET_H
#define SRV_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct srv_budget {
    size_t limit; /* bytes; constant once threads share the budget */
    atomic_size_t used;
};

/* Counts `bytes` more against the limit plus `beyond`; false, with nothing counted, where they
 * would exceed it.  Any thread. */
bool srv_budget_charge(struct srv_budget *budget, size_t bytes, size_t beyond);
void srv_budget_uncharge(struct srv_budget *budget, size_t bytes);

/* Counts `bytes` more for one of several that share `*used`, of which `own` are its already; false,
 * with nothing counted, where they would exceed `limit` and others hold some.  Any thread. */
bool srv_budget_charge_client(atomic_size_t *used, size_t own, size_t bytes, size_t limit);

#endif
