/* accounts.c: accounts by name, and their counters.
 *
 * Requests per second are counted by one time (the generic cell rate algorithm): full_ns is when
 * the bucket would be full again.  A request moves it by 1/limit of a second, and is refused where
 * it lies a second's requests ahead. */
#include "config/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/budget.h"
#include "base/clock.h"

const char *srv_quota_name(enum srv_quota quota)
{
    static const char *const names[SRV_QUOTAS] = {
        [SRV_QUOTA_SESSIONS] = "max_sessions",
        [SRV_QUOTA_CACHE] = "cache_bytes",
        [SRV_QUOTA_IN_FLIGHT] = "max_in_flight_bytes",
        [SRV_QUOTA_REQUESTS] = "requests_per_s",
        [SRV_QUOTA_TTL] = "max_ttl_s",
    };
    return names[quota];
}

/* ---- The table ------------------------------------------------------------------------------- */

void srv_account_set_limits(struct srv_account *account, const size_t limits[SRV_QUOTAS])
{
    for (size_t i = 0; i < SRV_QUOTAS; i++)
        atomic_store(&account->limits[i], limits[i]);
}

void srv_accounts_free(struct srv_accounts *accounts)
{
    for (size_t i = 0; i < accounts->count; i++)
        free(accounts->items[i]);
    accounts->count = 0;
}

struct srv_account *srv_accounts_get(struct srv_accounts *accounts, const char *name)
{
    struct srv_account *found = NULL;
    if (name[0] == '\0')
        return NULL;
    pthread_mutex_lock(&accounts->lock);
    for (size_t i = 0; i < accounts->count && found == NULL; i++)
        found = strcmp(accounts->items[i]->name, name) == 0 ? accounts->items[i] : NULL;
    if (found == NULL && accounts->count < SRV_MAX_ACCOUNTS)
        found = calloc(1, sizeof *found);
    if (found != NULL && found->name[0] == '\0') {
        snprintf(found->name, sizeof found->name, "%s", name);
        srv_account_set_limits(found, accounts->defaults);
        accounts->items[accounts->count++] = found;
    }
    pthread_mutex_unlock(&accounts->lock);
    return found;
}

/* ---- One account ----------------------------------------------------------------------------- */

size_t srv_account_limit(const struct srv_account *account, enum srv_quota quota)
{
    return account != NULL ? atomic_load(&account->limits[quota]) : SRV_NO_QUOTA;
}

bool srv_account_charge(struct srv_account *account, enum srv_quota quota, size_t amount)
{
    return account == NULL ||
           srv_charge(&account->used[quota], amount, srv_account_limit(account, quota));
}

bool srv_account_has(const struct srv_account *account, enum srv_quota quota, size_t amount)
{
    size_t limit = srv_account_limit(account, quota);
    return account == NULL ||
           (amount <= limit && atomic_load(&account->used[quota]) <= limit - amount);
}

void srv_account_charge_anyway(struct srv_account *account, enum srv_quota quota, size_t amount)
{
    if (account != NULL)
        atomic_fetch_add(&account->used[quota], amount);
}

void srv_account_uncharge(struct srv_account *account, enum srv_quota quota, size_t amount)
{
    if (account != NULL)
        atomic_fetch_sub(&account->used[quota], amount);
}

bool srv_account_admit_request(struct srv_account *account, uint64_t now_ns)
{
    if (account == NULL)
        return true;
    size_t limit = srv_account_limit(account, SRV_QUOTA_REQUESTS);
    if (limit < SRV_S_NS) { /* else there is none */
        uint64_t each = (SRV_S_NS + limit - 1) / limit, next;
        uint64_t full = atomic_load(&account->full_ns);
        do {
            uint64_t from = full > now_ns ? full : now_ns;
            if (from - now_ns > (limit - 1) * each)
                return false;
            next = from + each;
        } while (!atomic_compare_exchange_weak(&account->full_ns, &full, next));
    }
    atomic_fetch_add_explicit(&account->requests, 1, memory_order_relaxed);
    return true;
}

enum srv_error_code srv_account_refuse(struct srv_account *account, enum srv_quota quota,
                                       struct srv_error *error)
{
    atomic_fetch_add_explicit(&account->refused[quota], 1, memory_order_relaxed);
    return srv_fail(error, SRV_E_QUOTA, srv_quota_name(quota),
                    "%s is %zu for the API key that this counts for", srv_quota_name(quota),
                    srv_account_limit(account, quota));
}
