/* budget.h: what is counted against a limit, by any number of threads. */
#ifndef SRV_BUDGET_H
#define SRV_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct srv_budget {
    size_t limit; /* bytes; constant once threads share the budget */
    atomic_size_t used;
};

/* Counts `amount` more in *used; false, with nothing counted, where that would exceed `limit`.  Any
 * thread. */
bool srv_charge(atomic_size_t *used, size_t amount, size_t limit);

#endif
