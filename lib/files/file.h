/* file.h: reads regular files inside a directory, whole or in part.
 *
 * Messages name a file by `name`, its name inside the directory: never by a path. */
#ifndef ATTN_LIB_FILES_FILE_H
#define ATTN_LIB_FILES_FILE_H

#include "attn.h"

/* Opens `name` in the directory that the descriptor `directory` refers to (AT_FDCWD: the working
 * directory).  *out is the caller's to close; *size is the size in bytes.  Symbolic links are
 * followed; a target that is not a regular file is refused, without blocking on a FIFO.
 * Errors: ATTN_NOT_FOUND, ATTN_IO. */
enum attn_status attn_file_open(int *out, size_t *size, int directory, const char *name,
                                struct attn_error *error);

/* Reads exactly `count` bytes from byte `offset` on.
 * Error: ATTN_IO, also where the file has become shorter since it was opened. */
enum attn_status attn_file_read(void *out, int file, const char *name, size_t offset, size_t count,
                                struct attn_error *error);

/* Reads a text file of at most `limit` bytes, without a byte order mark.  *out is the caller's to
 * attn_free and ends in a NUL that *length does not count.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED (too long), ATTN_NO_MEMORY. */
enum attn_status attn_file_slurp(char **out, size_t *length, int directory, const char *name,
                                 size_t limit, struct attn_error *error);

#endif
