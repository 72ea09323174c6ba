/* file_reader.h: reading a file of the state directory, of any length, in bounded memory.
 *
 * Small pieces are read through a window over the file; larger ones go straight to where the caller
 * wants them.  A file that cannot be read is not a damaged one: `error` holds the reason for good,
 * and every later call fails. */
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
    /* Called after every read with the place in the file that it has reached; NULL, as at first:
     * nobody is. */
    void (*progress)(void *context, size_t end);
    void *context;
};

/* `take` owns the descriptor from here on, and closes it on failure; `open` follows no link.  False
 * with errno: EINVAL for what is no regular file, such as a FIFO, which is not waited for. */
bool srv_file_reader_take(struct srv_file_reader *out, int fd);
bool srv_file_reader_open(struct srv_file_reader *out, int directory, const char *name);
void srv_file_reader_close(struct srv_file_reader *reader);

/* Copies bytes [at, at + count), which lie within the size.  False where they cannot be read. */
bool srv_file_reader_read(void *out, struct srv_file_reader *reader, size_t at, size_t count);

/* Adds bytes [at, at + count) to a checksum; both are multiples of 4.  Bytes that fit the window
 * are in it afterwards, so that srv_file_reader_read gives just the bytes that were summed up. */
bool srv_file_reader_sum(XXH3_state_t *sum, struct srv_file_reader *reader, size_t at,
                         size_t count);

#endif
