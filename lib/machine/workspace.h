/* workspace.h: an arena for the memory of one computation, kept from call to call.
 *
 * A call allocates from it, and all is given back together at its end.  A call no larger than an
 * earlier one asks the system for nothing: reset joins the chunks that a call needed into one,
 * which is kept up to ATTN_WORKSPACE_KEEP bytes. */
#ifndef ATTN_LIB_MACHINE_WORKSPACE_H
#define ATTN_LIB_MACHINE_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>

#define ATTN_WORKSPACE_KEEP ((size_t)128 << 20)
#define ATTN_WORKSPACE_SHARE 8 /* at most 1/8 of a limit is kept */

struct attn_chunk;

struct attn_workspace {
    struct attn_chunk *chunks; /* newest first */
    size_t used;               /* of the newest chunk */
    size_t bytes;              /* of all chunks */
    size_t limit;              /* of `bytes`; 0: no limit */
};

/* Allocates count * size bytes, aligned to ATTN_ALIGN, contents unspecified; NULL where memory is
 * short or the limit would be passed. */
void *attn_workspace_alloc(struct attn_workspace *workspace, size_t count, size_t size);

/* A point in the sequence of allocations of a call. */
struct attn_workspace_mark {
    struct attn_chunk *chunk;
    size_t used;
};

struct attn_workspace_mark attn_workspace_get_mark(const struct attn_workspace *workspace);

/* Gives back all that was allocated after the mark, before which something must have been
 * allocated. */
void attn_workspace_rewind(struct attn_workspace *workspace, struct attn_workspace_mark mark);

/* Ends the call: gives all back. */
void attn_workspace_reset(struct attn_workspace *workspace);
void attn_workspace_fini(struct attn_workspace *workspace);

#endif
