/* file_reader.h: a file of the state directory that is read, of any length and in bounded memory.
 *
 * What is small is read through a window; what does not fit that goes where the caller wants it.
 * A file that cannot be read is not one that is damaged: `error` says so, for good, and everything
 * asked for after that fails. */
#ifndef SRV_FILE_READER_H
#define SRV_FILE_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/checksum.h"

#define SRV_FILE_READER_WINDOW ((size_t)512 << 10)

struct srv_file_reader {
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
bool srv_file_reader_take(struct srv_file_reader *out, int fd);
bool srv_file_reader_open(struct srv_file_reader *out, int directory, const char *name);
void srv_file_reader_close(struct srv_file_reader *source);

/* Copies bytes [at, at + count), which lie within the size.  False where they cannot be read. */
bool srv_file_reader_read(void *out, struct srv_file_reader *source, size_t at, size_t count);

/* Adds bytes [at, at + count) to a sum, multiples of 4 both.  What fits the window is in it then,
 * and srv_file_reader_read gives just the bytes that were summed up. */
bool srv_file_reader_sum(struct srv_checksum *sum, struct srv_file_reader *source, size_t at,
                         size_t count);

/* Says that bytes up to `end` were read, for whoever reads from the descriptor. */
void srv_file_reader_report(const struct srv_file_reader *source, size_t end);

/* All of a file that fits the window, until something else is read; else NULL. */
const void *srv_file_reader_whole(struct srv_file_reader *source);

#endif
