/* import.h: a large import for a daemon to be killed in.
 *
 * The rows of an import go into the journal in pieces and count with the last one.  The daemons of
 * this test replace a journal at 64 KiB, but not while an import is written.  A journal that is
 * larger than IMPORT_SEEN and smaller than the import's rows therefore shows that the daemon was
 * killed within the import. */
#ifndef TESTS_KILL_IMPORT_H
#define TESTS_KILL_IMPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "client.h"

#define IMPORT_SEEN ((size_t)1 << 20)

void import_open(void); /* after mirror_open */
void import_close(void);

/* Starts sending the session's state to the daemon, on a thread of its own, and waits until rows of
 * the import are seen in a journal of the directory, or the daemon has answered. */
void import_begin(const struct daemon *daemon, const char *directory);

/* Call after the daemon's end: whether the daemon was killed within the import. */
bool import_was_interrupted(const char *directory);

/* Of the daemon started after the kill: whether nothing of the import is left in it; and whether a
 * complete import then makes the session there, bit for bit. */
bool import_left_nothing(struct client *client);
bool import_completes(struct client *client);

#endif
