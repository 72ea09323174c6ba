/* keys.h: API keys: who may call, and what for.
 *
 * Keys come from one file and are kept as SHA-256 digests only.  A key that a caller sends is
 * digested and compared with all of them, in a time that depends on neither.  A key has a name,
 * which the log may show, and scopes.  The file may be read again while requests are checked
 * (srv_keyring).  Checking a request against its key is http/http_auth.h's. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/bounds.h"

#define SRV_MAX_KEYS SRV_MAX_CALLERS
#define SRV_MAX_KEYS_BYTES 65536 /* of the file */
#define SRV_KEY_MIN 32           /* characters of a key in clear */
#define SRV_KEY_MAX 256
#define SRV_KEY_DIGEST 32 /* bytes */
#define SRV_KEY_DIGITS (2 * SRV_KEY_DIGEST)

/* Neither scope implies the other. */
enum srv_scope {
    SRV_SCOPE_INFER = 1 << 0, /* "infer": attention, and sessions that the caller names */
    SRV_SCOPE_ADMIN = 1 << 1, /* "admin": routes that show or change the sessions of all */
};

struct srv_key {
    char name[SRV_ID_MAX + 1];
    unsigned scopes; /* enum srv_scope bits */
    unsigned char digest[SRV_KEY_DIGEST];
};

struct srv_keys {
    size_t count; /* 0: requests need no key */
    struct srv_key items[SRV_MAX_KEYS];
};

/* Reads the file at `path`: {"keys": [{"name", "key" or "sha256", "scopes"}, ...]}, at least one
 * entry and no two with the same name or digest.  On failure *out has no keys and `message` is one
 * line that names the place, and never has a key in it. */
bool srv_keys_read(struct srv_keys *out, const char *path, char *message, size_t size);

/* The SHA-256 by which a key is kept. */
void srv_key_digest(unsigned char out[SRV_KEY_DIGEST], const char *key, size_t length);

/* Writes a key's SHA-256 as hexadecimal digits and a NUL. */
void srv_key_digest_print(char out[SRV_KEY_DIGITS + 1], const char *key, size_t length);

/* The key with this digest; NULL where there is none. */
const struct srv_key *srv_keys_find(const struct srv_keys *keys,
                                    const unsigned char digest[SRV_KEY_DIGEST]);

/* The keys in use.  Starts as {.lock = PTHREAD_MUTEX_INITIALIZER}, without keys. */
struct srv_keyring {
    pthread_mutex_t lock; /* held while a digest is compared, or the keys are replaced */
    struct srv_keys keys;
};

/* Replaces the keys by those of the file, all at once, and returns how many there are.  Where
 * srv_keys_read refuses the file, the keys stay: 0, with its `message`. */
size_t srv_keyring_read(struct srv_keyring *ring, const char *path, char *message, size_t size);

/* Copies the key that these bytes are, and its place in the file; false where they are no key.  Any
 * thread. */
bool srv_keyring_find(struct srv_key *out, unsigned *place, struct srv_keyring *ring,
                      const char *key, size_t length);

/* "infer", "admin" or "infer admin", for --check. */
const char *srv_scopes_text(unsigned scopes);

#endif
