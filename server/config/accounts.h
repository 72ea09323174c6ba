/* accounts.h: what each API key may use, and what it uses.
 *
 * An account is an API key's, found by the key's name: it lasts while the daemon runs, also where
 * the file of keys is read again without that name, since sessions of the key may live on.  A
 * charge is one atomic step, so that no number of threads passes a limit.  Without keys there are
 * no accounts: every call takes NULL, which has no limits. */
#ifndef SRV_ACCOUNTS_H
#define SRV_ACCOUNTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/id.h"

#define SRV_MAX_ACCOUNTS 1024 /* names of keys, of the file and of sessions, that one run knows */
#define SRV_NO_QUOTA SIZE_MAX

/* Limits of an API key. */
enum srv_quota {
    SRV_QUOTA_SESSIONS,  /* live sessions that the key made */
    SRV_QUOTA_CACHE,     /* bytes of their blocks, a shared block counted in each session */
    SRV_QUOTA_IN_FLIGHT, /* bytes of bodies, tensors and replies of the key's requests */
    SRV_QUOTA_REQUESTS,  /* requests per second, with a burst of one second's */
    SRV_QUOTA_TTL,       /* seconds: the longest ttl_s */
    SRV_QUOTAS
};

/* "max_sessions": the field of the file of keys, and the error's. */
const char *srv_quota_name(enum srv_quota quota);

struct srv_account {
    char name[SRV_ID_MAX + 1];
    atomic_size_t limits[SRV_QUOTAS]; /* SRV_NO_QUOTA: none */
    atomic_size_t used[SRV_QUOTAS];   /* of sessions, cache and bytes in flight */
    atomic_uint_fast64_t full_ns;     /* monotonic: when the second's requests are all back */
    atomic_uint_fast64_t requests, refused[SRV_QUOTAS]; /* counted since the start */
};

struct srv_accounts {
    pthread_mutex_t lock; /* held while a name is looked up */
    size_t count;
    struct srv_account *items[SRV_MAX_ACCOUNTS]; /* [count] */
    size_t defaults[SRV_QUOTAS];                 /* limits of an account that is made */
};

/* Starts as {.lock = PTHREAD_MUTEX_INITIALIZER}. */
void srv_accounts_free(struct srv_accounts *accounts);

/* The account of that name, made where there is none; NULL for the name "" and where there are
 * SRV_MAX_ACCOUNTS or memory is short.  Any thread. */
struct srv_account *srv_accounts_get(struct srv_accounts *accounts, const char *name);

/* Charges `amount` to a quota, unless that would pass the limit.  Any thread. */
bool srv_account_charge(struct srv_account *account, enum srv_quota quota, size_t amount);
bool srv_account_has(const struct srv_account *account, enum srv_quota quota, size_t amount);

/* Charges it whatever the limit: what was there before the account. */
void srv_account_charge_anyway(struct srv_account *account, enum srv_quota quota, size_t amount);
void srv_account_uncharge(struct srv_account *account, enum srv_quota quota, size_t amount);

/* Counts one request at this moment (monotonic nanoseconds), unless it passes the rate. */
bool srv_account_admit_request(struct srv_account *account, uint64_t now_ns);

void srv_account_set_limits(struct srv_account *account, const size_t limits[SRV_QUOTAS]);
size_t srv_account_limit(const struct srv_account *account, enum srv_quota quota);

/* quota_exceeded, with the quota's name as its field; counts the refusal. */
enum srv_error_code srv_account_refuse(struct srv_account *account, enum srv_quota quota,
                                       struct srv_error *error);

#endif
