/* budget.c: bytes that are counted against a limit. */
#include "base/budget.h"

#include <stdint.h>

bool srv_budget_charge(struct srv_budget *budget, size_t bytes, size_t beyond)
{
    size_t limit = budget->limit + beyond;
    size_t used = atomic_load(&budget->used);
    do {
        if (bytes > limit || used > limit - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    return true;
}

bool srv_budget_charge_client(atomic_size_t *used, size_t own, size_t bytes, size_t limit)
{
    size_t now = atomic_load(used);
    do {
        size_t most = now == own ? SIZE_MAX : limit;
        if (bytes > most || now > most - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(used, &now, now + bytes));
    return true;
}

void srv_budget_uncharge(struct srv_budget *budget, size_t bytes)
{
    atomic_fetch_sub(&budget->used, bytes);
}
