/* session_id.c: the ids that tables make, and whose an id is that no session has.
 *
 * An id that attnd made is "<instance>.<26 digits>" in base 32: the name of the state directory,
 * its generation (5 digits, 25 bits), and 105 random bits.  Clients may choose ids of any other
 * form. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "session/session_table.h"

#define ID_DIGITS 26 /* with those of the generation */

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

/* Writes random digits and a NUL; false where there are no random numbers. */
static bool make_digits(char out[], size_t count)
{
    unsigned char random[ID_DIGITS];
    if (getrandom(random, count, 0) != (ssize_t)count)
        return false;
    for (size_t i = 0; i < count; i++)
        out[i] = digits[random[i] % 32];
    out[count] = '\0';
    return true;
}

bool srv_identity_make(struct srv_identity *out, const char *instance)
{
    snprintf(out->instance, sizeof out->instance, "%s", instance);
    return make_digits(out->generation, SRV_GENERATION);
}

bool srv_generation_valid(const char *text)
{
    return strlen(text) == SRV_GENERATION && strspn(text, digits) == SRV_GENERATION;
}

bool srv_session_make_id(char out[SRV_ID_MAX + 1], const struct srv_identity *identity)
{
    char text[ID_DIGITS + 1];
    if (!make_digits(text, ID_DIGITS - SRV_GENERATION))
        return false;
    snprintf(out, SRV_ID_MAX + 1, "%s.%s%s", identity->instance, identity->generation, text);
    return true;
}

/* The length of the instance's name in an id that attnd made; 0 for an id of another form. */
static size_t instance_length(const char *id)
{
    size_t length = strcspn(id, "._");
    const char *dot = id + length;
    bool made = srv_id_valid(id) && length <= SRV_INSTANCE_MAX && *dot == '.' &&
                strlen(dot + 1) == ID_DIGITS && strspn(dot + 1, digits) == ID_DIGITS;
    return made ? length : 0;
}

/* Whether the id, whose instance's name has that length, begins with the identity's. */
static bool is_of(const struct srv_identity *identity, const char *id, size_t length)
{
    return strlen(identity->instance) == length && memcmp(identity->instance, id, length) == 0;
}

const struct srv_identity *srv_sessions_identity(const struct srv_sessions *sessions)
{
    return &sessions->identity;
}

void srv_sessions_set_identity(struct srv_sessions *sessions, const struct srv_identity *identity)
{
    sessions->identity = *identity;
}

enum srv_error_code srv_session_check_instance(const struct srv_sessions *sessions, const char *id,
                                               struct srv_error *error)
{
    size_t length = id != NULL ? instance_length(id) : 0;
    if (length == 0 || is_of(&sessions->identity, id, length))
        return SRV_OK;
    srv_fail(error, SRV_E_WRONG_INSTANCE, "session_id",
             "the session's id is of the instance %.*s, this is %s", (int)length, id,
             sessions->identity.instance);
    snprintf(error->owner, sizeof error->owner, "%.*s", (int)length, id);
    return error->code;
}

enum srv_error_code srv_session_fail_missing(const struct srv_sessions *sessions, const char *id,
                                             struct srv_error *error)
{
    size_t length = instance_length(id);
    if (srv_session_check_instance(sessions, id, error) != SRV_OK)
        return error->code;
    if (length > 0 && memcmp(id + length + 1, sessions->identity.generation, SRV_GENERATION) != 0)
        return srv_fail(error, SRV_E_SESSION_LOST, "session_id",
                        "the session was made in a state_dir that %s no longer has",
                        sessions->identity.instance);
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id",
                    "there is no session of this id; `start` makes one");
}
