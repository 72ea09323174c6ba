/* read_ahead.h: has the system read ranges of files before they are wanted.
 *
 * Ranges are listed in the order in which their bytes will be read.  The page cache is asked for
 * them ATTN_AHEAD_BYTES ahead of the reader, so that the disk has requests under way while what has
 * come is computed with.  Where the system does not care, only speed is lost. */
#ifndef ATTN_LIB_FILES_READ_AHEAD_H
#define ATTN_LIB_FILES_READ_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

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
