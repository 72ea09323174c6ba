/* source.h: a file of the state directory that is read, of any length and in bounded memory.
 *
 * What is small is read through a window; what does not fit that goes where the caller wants it.
 * A file that cannot be read is not one that is damaged: `error` says so, for good, and everything
 * asked for after that fails. */
#ifndef SRV_SOURCE_H
#define SRV_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/sum.h"

#define SRV_SOURCE_WINDOW ((size_t)512 << 10)

struct srv_source {
    int fd;
    size_t size;
    int error;             /* errno of what could not be read; 0 */
    size_t room;           /* bytes of the window, a multiple of 4; may be set before it is used */
    unsigned char *window; /* [room] bytes [at, at + have) of the file; NULL: not used yet */
    size_t at, have;
    /* Told, whenever something was read, up to where; NULL, as it is at first: nobody is. */
    void (*progress)(void *context, size_t end);
    void *context;
};

/* Takes over a file, closed on failure; or opens one, where no link is followed.  False with
 * errno: EINVAL for what is no regular file, which is not waited for. */
bool srv_source_take(struct srv_source *out, int fd);
bool srv_source_open(struct srv_source *out, int directory, const char *name);
void srv_source_close(struct srv_source *source);

/* Copies bytes [at, at + count), which lie within the size.  False where they cannot be read. */
bool srv_source_read(void *out, struct srv_source *source, size_t at, size_t count);

/* Adds bytes [at, at + count) to a sum, multiples of 4 both.  What fits the window is in it then,
 * and srv_source_read gives just the bytes that were summed up. */
bool srv_source_sum(struct srv_sum *sum, struct srv_source *source, size_t at, size_t count);

/* Says that bytes up to `end` were read, for whoever reads from the descriptor. */
void srv_source_tell(const struct srv_source *source, size_t end);

/* All of a file that fits the window, until something else is read; else NULL. */
const void *srv_source_whole(struct srv_source *source);

#endif
