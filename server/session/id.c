/* id.c: the ids that tables make, and whose an id is that no session has.
 *
 * An id that attnd made is "<instance>.<26 digits>" in base 32: the name of the state directory,
 * its generation (5 digits, 25 bits), and 105 random bits.  Clients may choose ids of any other
 * form. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "session/table.h"

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

/* The same, and where the table is sharded of every id that has a point. */
static size_t name_length(const struct srv_sessions *sessions, const char *id)
{
    size_t length = strcspn(id, ".");
    bool named = sessions->sharded && length > 0 && id[length] == '.';
    return named ? length : instance_length(id);
}

void srv_sessions_set_sharded(struct srv_sessions *sessions, bool sharded)
{
    sessions->sharded = sharded;
}

/* ---- Stores ---------------------------------------------------------------------------------- */

const struct srv_identity *srv_sessions_identity(const struct srv_sessions *sessions)
{
    return &sessions->identities[0];
}

bool srv_sessions_set_identity(struct srv_sessions *sessions, unsigned store,
                               const struct srv_identity *identity)
{
    for (unsigned i = 0; i < store; i++)
        if (strcmp(sessions->identities[i].instance, identity->instance) == 0 &&
            strcmp(sessions->identities[i].generation, identity->generation) == 0)
            return false;
    sessions->identities[store] = *identity;
    sessions->num_stores = store + 1;
    return true;
}

/* How far an id is a store's. */
enum id_match { FOREIGN, OF_INSTANCE, OF_GENERATION };

/* Finds the store that an id is of, the first of several, by whose instance and a point the id
 * begins, and whose generation follows; FOREIGN where there is none. */
static enum id_match find_store(unsigned *store, const struct srv_sessions *sessions,
                                const char *id)
{
    enum id_match nearest = FOREIGN;
    for (unsigned i = 0; i < sessions->num_stores; i++) {
        const struct srv_identity *identity = &sessions->identities[i];
        size_t length = strlen(identity->instance);
        enum id_match near = FOREIGN;
        if (strncmp(identity->instance, id, length) == 0 && id[length] == '.')
            near = strncmp(identity->generation, id + length + 1, SRV_GENERATION) == 0
                       ? OF_GENERATION
                       : OF_INSTANCE;
        if (near > nearest) {
            *store = i;
            nearest = near;
        }
    }
    return nearest;
}

unsigned srv_session_choose_store(const struct srv_sessions *sessions,
                                  const struct srv_session_options *options)
{
    unsigned store = 0;
    if (options->store > 0)
        return options->store - 1;
    if (options->id != NULL)
        find_store(&store, sessions, options->id);
    return store;
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static enum srv_error_code fail_instance(const struct srv_sessions *sessions, const char *id,
                                         size_t length, struct srv_error *error)
{
    srv_fail(error, SRV_E_WRONG_INSTANCE, "session_id",
             "the session's id is of the instance %.*s, this is %s", (int)length, id,
             sessions->identities[0].instance);
    snprintf(error->instance, sizeof error->instance, "%.*s", (int)length, id);
    return error->code;
}

enum srv_error_code srv_session_check_instance(const struct srv_sessions *sessions,
                                               const struct srv_session_options *options,
                                               struct srv_error *error)
{
    unsigned store = 0;
    if (options->id == NULL)
        return SRV_OK;
    size_t length = name_length(sessions, options->id);
    enum id_match nearest = find_store(&store, sessions, options->id);
    if (nearest == FOREIGN && length > 0)
        return fail_instance(sessions, options->id, length, error);
    if (nearest == FOREIGN && sessions->sharded)
        return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                        "session_id must begin with \"%s.\", since this daemon is sharded; or "
                        "leave it out, and attnd makes one",
                        sessions->identities[0].instance);
    if (nearest == FOREIGN || options->store == 0)
        return SRV_OK;
    const char *named = sessions->identities[store].instance,
               *kept = sessions->identities[options->store - 1].instance;
    if (strcmp(named, kept) == 0)
        return SRV_OK;
    return srv_fail(error, SRV_E_INVALID_VALUE, "session_id",
                    "session_id begins with the instance %s, and the session would be of %s, as "
                    "the one it is forked from",
                    named, kept);
}

enum srv_error_code srv_session_check_lost(const struct srv_sessions *sessions, const char *id,
                                           struct srv_error *error)
{
    unsigned store = 0;
    if (id == NULL || instance_length(id) == 0 || find_store(&store, sessions, id) != OF_INSTANCE)
        return SRV_OK;
    return srv_fail(error, SRV_E_SESSION_LOST, "session_id",
                    "the session was made in a state_dir that %s no longer has",
                    sessions->identities[store].instance);
}

enum srv_error_code srv_session_fail_missing(const struct srv_sessions *sessions, const char *id,
                                             struct srv_error *error)
{
    unsigned store = 0;
    size_t length = name_length(sessions, id);
    if (length > 0 && find_store(&store, sessions, id) == FOREIGN)
        return fail_instance(sessions, id, length, error);
    if (srv_session_check_lost(sessions, id, error) != SRV_OK)
        return error->code;
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id", "there is no session of this id");
}
