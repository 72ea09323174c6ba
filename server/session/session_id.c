/* session_id.c: the ids that tables make, and whose an id is that no session has.
 *
 * An id that attnd made is "<instance>.<26 digits>": 130 random bits in base 32 after the name of
 * the daemon that made it.  Clients may choose ids of any other form. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "session/session_table.h"

#define RANDOM_DIGITS 26
#define INSTANCE_MAX 32 /* characters: config/ accepts no longer name */

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

bool srv_session_make_id(char out[SRV_ID_MAX + 1], const char *instance)
{
    unsigned char random[RANDOM_DIGITS];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    char text[sizeof random + 1];
    for (size_t i = 0; i < sizeof random; i++)
        text[i] = digits[random[i] % 32];
    text[sizeof random] = '\0';
    snprintf(out, SRV_ID_MAX + 1, "%.32s.%s", instance, text);
    return true;
}

/* The length of the instance's name in an id that attnd made; 0 for an id of another form. */
static size_t instance_length(const char *id)
{
    size_t length = strcspn(id, "._");
    const char *dot = id + length;
    bool made = srv_id_valid(id) && length <= INSTANCE_MAX && *dot == '.' &&
                strlen(dot + 1) == RANDOM_DIGITS && strspn(dot + 1, digits) == RANDOM_DIGITS;
    return made ? length : 0;
}

enum srv_error_code srv_session_fail_missing(const struct srv_sessions *sessions, const char *id,
                                             struct srv_error *error)
{
    size_t length = instance_length(id);
    if (length > 0 &&
        (strlen(sessions->instance) != length || memcmp(sessions->instance, id, length) != 0))
        return srv_fail(error, SRV_E_WRONG_INSTANCE, "session_id",
                        "the session's id is of the instance %.*s, this is %s", (int)length, id,
                        sessions->instance);
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id",
                    "there is no session of this id; `start` makes one");
}
