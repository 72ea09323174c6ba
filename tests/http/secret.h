/* secret.h: files that attnd accepts as secrets, since others cannot read them; certificates. */
#ifndef TESTS_HTTP_SECRET_H
#define TESTS_HTTP_SECRET_H

#include <time.h>

#define SECRET_PATH 64

/* Writes `text` into a new file under /tmp, of mode 0600, which the test or the end of its process
 * removes; at most 64 in a process. */
void secret_write(char path[SECRET_PATH], const char *text);

/* Makes a certificate for localhost and 127.0.0.1, and its key, with openssl's command; valid for
 * two days, or for so many. */
void certificate_make(char certificate[SECRET_PATH], char key[SECRET_PATH]);
void certificate_make_valid(char certificate[SECRET_PATH], char key[SECRET_PATH], const char *days);

/* Makes a file of the certificate and of one after it that has not issued it. */
void certificate_make_unsorted(char path[SECRET_PATH], const char *certificate);

/* Three keys for most tests: of the scope infer, admin, and both. */
#define KEY_INFER "infer-0123456789abcdef0123456789abcdef"
#define KEY_ADMIN "admin-0123456789abcdef0123456789abcdef"
#define KEY_BOTH "both-0123456789abcdef0123456789abcdef"
#define KEYS_THREE                                                      \
    "{\"keys\":[{\"name\":\"router\",\"key\":\"" KEY_INFER              \
    "\",\"scopes\":[\"infer\"]},{\"name\":\"ops\",\"key\":\"" KEY_ADMIN \
    "\",\"scopes\":[\"admin\"]},{\"name\":\"lead\",\"key\":\"" KEY_BOTH \
    "\",\"scopes\":[\"infer\",\"admin\"]}]}"

/* Replaces the certificate by one of the same key that ends then. */
void certificate_end(const char *certificate, const char *key, time_t end);

#endif
