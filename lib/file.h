/* file.h: reading regular files inside a directory, whole or in part.
 *
 * Messages name the file by `name`, its name inside the directory: never a path. */
#ifndef ATTN_LIB_FILE_H
#define ATTN_LIB_FILE_H

#include "attn.h"

/* Opens `name` in the directory that `directory` is a descriptor of (AT_FDCWD: the working
 * directory) and reports its size in bytes.  Symbolic links are followed, anything that is not a
 * regular file in the end is refused, and a FIFO does not block.
 * Errors: ATTN_NOT_FOUND, ATTN_IO. */
enum attn_status attn_file_open(int *out, size_t *size, int directory, const char *name,
                                struct attn_error *error);

/* Reads exactly `count` bytes from byte `offset` on, however many calls that takes.
 * Errors: ATTN_IO, also where the file has become shorter since it was opened. */
enum attn_status attn_file_read(void *out, int file, const char *name, size_t offset, size_t count,
                                struct attn_error *error);

/* Reads a whole file of at most `limit` bytes; *out is the caller's to attn_free and ends in a
 * NUL that *length does not count.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED (too long), ATTN_NO_MEMORY. */
enum attn_status attn_file_slurp(char **out, size_t *length, int directory, const char *name,
                                 size_t limit, struct attn_error *error);

#endif
