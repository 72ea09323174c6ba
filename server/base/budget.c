/* budget.c: what is counted against a limit. */
#include "base/budget.h"

bool srv_charge(atomic_size_t *used, size_t amount, size_t limit)
{
    size_t now = atomic_load(used);
    do {
        if (amount > limit || now > limit - amount)
            return false;
    } while (!atomic_compare_exchange_weak(used, &now, now + amount));
    return true;
}
