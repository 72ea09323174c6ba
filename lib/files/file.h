/* file.h: regular files inside a directory: whole, in part, ahead; what they are; sorted names.
 *
 * Messages name a file by `name`, its name inside the directory: never by a path. */
#ifndef ATTN_LIB_FILES_FILE_H
#define ATTN_LIB_FILES_FILE_H

#include <dirent.h>

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

/* The entries of a directory descriptor, for closedir; NULL where they cannot be read. */
DIR *attn_list_directory(int directory);

/* ---- kinds.c: what a file is that was taken for weights, by its first bytes ---- */

/* ATTN_OK where these first bytes of a file are of no kind in the table; else ATTN_MALFORMED with
 * what the file is, that it is not `wanted`, and what to do.  For a file that cannot be read as
 * `wanted`: such a file could begin like any of these kinds. */
enum attn_status attn_check_kind(const char *start, size_t count, const char *name,
                                 const char *wanted, struct attn_error *error);

/* The same of an open file of `size` bytes, which was taken for a safetensors file. */
enum attn_status attn_file_kind(int file, const char *name, size_t size, struct attn_error *error);

/* The refusal of what torch.save wrote. */
enum attn_status attn_fail_torch(const char *name, struct attn_error *error);

/* ---- names.c: of items [count] of `size` bytes, each of which begins with a const char * ---- */

/* Sorts the items.  Returns the first whose name the item before it has, NULL where all differ. */
const void *attn_sort_names(void *items, size_t count, size_t size);

/* The one of sorted items that has this name; NULL: none has. */
const void *attn_find_name(const char *name, const void *items, size_t count, size_t size);

/* Calls visit() with each name of sorted items that begins with `prefix`, until it returns false,
 * as this does then. */
typedef bool attn_visit_name(void *context, const char *name);
bool attn_visit_names(const void *items, size_t count, size_t size, const char *prefix,
                      attn_visit_name *visit, void *context);

/* ---- read_ahead.c: the system reads ranges of files before they are wanted.
 *
 * Ranges are listed in the order in which their bytes will be read.  The page cache is asked for
 * them ATTN_AHEAD_BYTES ahead of the reader, so that the disk has requests under way while what has
 * come is computed with.  Where the system does not care, only speed is lost. ---- */

#define ATTN_AHEAD_BYTES ((size_t)64 << 20)

struct attn_read_ahead {
    struct attn_file_range {
        int file; /* a descriptor, borrowed */
        size_t offset, count;
    } * ranges; /* [count] */
    size_t count, capacity;
    size_t next, at;    /* the range that is asked for next, from its byte `at` on */
    size_t asked, used; /* bytes */
};

/* Room for `capacity` ranges; false where memory is short.  Ranges beyond it are not read ahead. */
bool attn_read_ahead_init(struct attn_read_ahead *ahead, size_t capacity);
void attn_read_ahead_fini(struct attn_read_ahead *ahead); /* takes a zeroed one */
void attn_read_ahead_add(struct attn_read_ahead *ahead, int file, size_t offset, size_t count);

/* Says that `bytes` more are about to be read, and asks for what comes after them.  One thread. */
void attn_read_ahead_advance(struct attn_read_ahead *ahead, size_t bytes);

#endif
