/* keys.h: API keys: who may ask, and for what.
 *
 * They come from one file and are kept as SHA-256 digests only; what a caller sends is digested and
 * compared with all of them, in a time that depends on neither.  A key has a name, which the log
 * may show, and scopes.  The file may be read again while requests are checked (srv_keyring).
 * Nothing here sees a request: http_auth.h does. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/bounds.h"

#define SRV_MAX_KEYS SRV_MAX_CALLERS
#define SRV_MAX_KEYS_BYTES 65536 /* of the file */
#define SRV_KEY_MIN 32           /* characters of a key that the file shows */
#define SRV_KEY_MAX 256
#define SRV_KEY_DIGEST 32 /* bytes */
#define SRV_KEY_DIGITS (2 * SRV_KEY_DIGEST)

/* Neither implies the other. */
enum srv_scope {
    SRV_SCOPE_INFER = 1 << 0, /* "infer": attention, and sessions that it names */
    SRV_SCOPE_ADMIN = 1 << 1, /* "admin": what shows or touches the sessions of all */
};

struct srv_key {
    char name[SRV_ID_MAX + 1];
    unsigned scopes; /* enum srv_scope bits */
    unsigned char digest[SRV_KEY_DIGEST];
};

struct srv_keys {
    size_t count; /* 0: no key is asked for */
    struct srv_key items[SRV_MAX_KEYS];
};

/* Reads the file at `path`: {"keys": [{"name", "key" or "sha256", "scopes"}, ...]}, at least one
 * and without two of one name or digest.  Where that is not so *out has no keys and `message` is
 * one line that says where, never what a key is. */
bool srv_keys_read(struct srv_keys *out, const char *path, char *message, size_t size);

/* SHA-256 of what a caller sends, as keys are kept. */
void srv_key_digest(unsigned char out[SRV_KEY_DIGEST], const char *key, size_t length);

/* The same in hexadecimal, with a NUL. */
void srv_key_digest_print(char out[SRV_KEY_DIGITS + 1], const char *key, size_t length);

/* The key of this digest, NULL where it is that of none. */
const struct srv_key *srv_keys_find(const struct srv_keys *keys,
                                    const unsigned char digest[SRV_KEY_DIGEST]);

/* The keys in use.  Starts as {.lock = PTHREAD_MUTEX_INITIALIZER}, without any. */
struct srv_keyring {
    pthread_mutex_t lock; /* held while a digest is compared, or the keys are replaced */
    struct srv_keys keys;
};

/* Puts the keys of the file in place of those there are, at once; where it is not as srv_keys_read
 * asks, they stay.  The number of keys then, 0 with `message` where they stay. */
size_t srv_keyring_read(struct srv_keyring *ring, const char *path, char *message, size_t size);

/* Copies the key that these bytes are, and its place in the file; false where they are none. */
bool srv_keyring_find(struct srv_key *out, unsigned *place, struct srv_keyring *ring,
                      const char *key, size_t length);

/* "infer", "admin", "infer admin": for --check. */
const char *srv_scopes_text(unsigned scopes);

#endif
