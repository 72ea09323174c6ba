/* keys.h: API keys: who may call, what for, and how much.
 *
 * Keys come from one file and are kept as SHA-256 digests only.  A key that a caller sends is
 * digested and compared with all of them, in a time that depends on neither.  A key has a name,
 * which the log may show, scopes, and quotas (accounts.h); keys of one group share sessions.  The
 * file may be read again while requests are checked (srv_keyring).  Checking a request against its
 * key is http/auth.c's. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/accounts.h"
#include "config/bounds.h"

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
