/* identity.h: the file `identity` of a state directory: whose sessions it holds.
 *
 *   {"instance":"a","generation":"k3f9q"}
 *
 * A later version that gives the file another form adds a member "version", a number.
 * The file is written when a daemon first uses the directory, and never again: the name stands in
 * the ids of sessions, and the generation tells the directory from another one of that name.  So a
 * file that is damaged is neither replaced nor guessed. */
#ifndef SRV_STORE_IDENTITY_H
#define SRV_STORE_IDENTITY_H

#include "session/session.h"

#define SRV_IDENTITY_FILE "identity"

enum srv_identity_status {
    SRV_IDENTITY_SOUND,
    SRV_IDENTITY_NONE,    /* there is no such file */
    SRV_IDENTITY_DAMAGED, /* with the message */
    SRV_IDENTITY_LATER,   /* of a version that this build does not read: "version 2, ..." */
    SRV_IDENTITY_UNREADABLE,
};

/* Reads the file of a directory, a descriptor.  `message` is one line where the status is neither
 * of the first two, and *out unchanged unless it is the first. */
enum srv_identity_status srv_identity_read(struct srv_identity *out, int directory, char *message,
                                           size_t size);

/* How a daemon takes the name of its directory. */
enum srv_naming {
    SRV_NAME_DEFAULT, /* the directory's counts; a directory without one gets the daemon's */
    SRV_NAME_GIVEN,   /* the directory's must be the daemon's; one without gets it */
    SRV_NAME_NONE,    /* the directory's counts, and a directory without one gets none */
    SRV_NAME_HELD,    /* the directory's counts; one without is refused */
};

/* Checks the identity of the directory at `path`, a descriptor, which *identity becomes where the
 * directory has one.  False with one line that says what to do: where the file cannot be read, or
 * is not as `naming` says. */
bool srv_identity_check(struct srv_identity *identity, int directory, const char *path,
                        enum srv_naming naming, char *message, size_t size);

/* The same for a directory that is locked; *identity is written where the directory has none and
 * is to get one. */
bool srv_identity_resolve(struct srv_identity *identity, int directory, const char *path,
                          enum srv_naming naming, char *message, size_t size);

#endif
