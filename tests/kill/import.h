/* import.h: a large import for a daemon to be killed in.
 *
 * Its rows go into the journal in pieces and count with the last one.  Journals of these daemons
 * are replaced at 64 KiB, but not while an import is written: so one that is larger than
 * IMPORT_SEEN and smaller than the import's rows says that the daemon was within it. */
#ifndef TESTS_KILL_IMPORT_H
#define TESTS_KILL_IMPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "client.h"

#define IMPORT_SEEN ((size_t)1 << 20)

void import_open(void); /* after mirror_open */
void import_close(void);

/* Begins to send the session's state to the daemon, on a thread of its own, and waits until its
 * rows are seen in a journal of the directory, or the daemon has answered. */
void import_begin(const struct daemon *daemon, const char *directory);

/* After the daemon's end: whether that was within the import. */
bool import_was_cut(const char *directory);

/* Whether the daemon that came after it knows nothing of it, and whether one that is whole takes
 * the session's place there, bit for bit. */
bool import_left_nothing(struct client *client);
bool import_again(struct client *client);

#endif
