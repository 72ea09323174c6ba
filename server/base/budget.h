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
bool srv_budget_take(struct srv_budget *budget, size_t bytes, size_t beyond);
void srv_budget_return(struct srv_budget *budget, size_t bytes);

#endif
