/* keys.h: API keys: who may call, what for, and how much.
 *
 * Keys come from one file and are kept as SHA-256 digests only.  A key that a caller sends is
 * digested and compared with all of them, in a time that depends on neither.  A key has a name,
 * which the log may show, scopes, and quotas (srv_quota); keys of one group share sessions.  The
 * file may be read again while requests are checked (srv_keyring).  Checking a request against its
 * key is http/auth.c's. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include "base/errors.h"
#include "config/bounds.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- accounts.c --------------------------------------------------------------------------------
 *
 * What each API key may use, and what it uses.
 *
 * An account is an API key's, found by the key's name: it lasts while the daemon runs, also where
 * the file of keys is read again without that name, since sessions of the key may live on.  A
 * charge is one atomic step, so that no number of threads passes a limit.  Without keys there are
 * no accounts: every call takes NULL, which has no limits. */

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

#define SRV_MAX_KEYS SRV_MAX_CALLERS
#define SRV_MAX_KEYS_BYTES 65536 /* of the file */
#define SRV_KEY_MIN 32           /* characters of a key in clear */
#define SRV_KEY_MAX 256
#define SRV_KEY_DIGEST 32 /* bytes */
#define SRV_KEY_DIGITS (2 * SRV_KEY_DIGEST)

/* No scope implies another. */
enum srv_scope {
    SRV_SCOPE_INFER = 1 << 0,   /* "infer": attention, and sessions that the caller names */
    SRV_SCOPE_ADMIN = 1 << 1,   /* "admin": routes that show or change the sessions of all */
    SRV_SCOPE_METRICS = 1 << 2, /* "metrics": GET /metrics */
};

/* The key of a request; all zero where none are configured, so that its scopes are 0. */
struct srv_key {
    char name[SRV_ID_MAX + 1];
    char group[SRV_ID_MAX + 1];  /* "": none */
    unsigned scopes;             /* enum srv_scope bits */
    size_t limits[SRV_QUOTAS];   /* of its account */
    struct srv_account *account; /* set by srv_keyring_read */
    unsigned char digest[SRV_KEY_DIGEST];
};

struct srv_keys {
    size_t count; /* 0: requests need no key */
    struct srv_key items[SRV_MAX_KEYS];
    size_t defaults[SRV_QUOTAS]; /* limits of keys that say nothing else, and of removed keys */
    bool metrics_keys;           /* /metrics has samples with the label `key` */
};

/* Reads the file at `path`: {"keys": [{"name", "key" or "sha256", "scopes", "group", quotas}, ...],
 * "defaults": {quotas}, "metrics_keys": true or false}, at least one key and no two with the same
 * name or digest.  On failure *out has no keys and `message` is one line that names the place, and
 * never has a key in it. */
bool srv_keys_read(struct srv_keys *out, const char *path, char message[SRV_MESSAGE_MAX]);

/* The SHA-256 by which a key is kept. */
void srv_key_digest(unsigned char out[SRV_KEY_DIGEST], const char *key, size_t length);

/* Writes the SHA-256 of a key, or of an input (api/inputs.c), as hexadecimal digits and a NUL. */
void srv_key_digest_print(char out[SRV_KEY_DIGITS + 1], const char *key, size_t length);

/* The key with this digest; NULL where there is none. */
const struct srv_key *srv_keys_find(const struct srv_keys *keys,
                                    const unsigned char digest[SRV_KEY_DIGEST]);

/* The keys in use.  Starts as SRV_KEYRING_EMPTY, without keys. */
struct srv_keyring {
    pthread_mutex_t lock; /* held while a digest is compared, or the keys are replaced */
    struct srv_keys keys;
    struct srv_accounts accounts;
};
#define SRV_KEYRING_EMPTY                                                             \
    {                                                                                 \
        .lock = PTHREAD_MUTEX_INITIALIZER, .accounts.lock = PTHREAD_MUTEX_INITIALIZER \
    }

/* Frees the accounts; no request and no session may be left. */
void srv_keyring_fini(struct srv_keyring *ring);

/* Replaces the keys and the limits of all accounts by those of the file, and returns how many keys
 * there are.  Where srv_keys_read refuses the file, or there is no room for their accounts, the
 * keys stay: 0, with its `message`. */
size_t srv_keyring_read(struct srv_keyring *ring, const char *path, char message[SRV_MESSAGE_MAX]);

/* Copies the key that these bytes are, and its index in the file; false where they are no key.  Any
 * thread. */
bool srv_keyring_find(struct srv_key *out, unsigned *index, struct srv_keyring *ring,
                      const char *key, size_t length);

/* Whether the file asks for samples by key in /metrics. */
bool srv_keyring_metrics_keys(struct srv_keyring *ring);

/* "infer", "admin metrics" and so on, for --check and errors. */
const char *srv_scopes_text(unsigned scopes);

#endif
