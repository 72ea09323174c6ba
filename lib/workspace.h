/* workspace.h: memory of one computation, kept from call to call.
 *
 * Pieces are taken during a call and given back together at its end.  After the first call of a
 * size nothing is allocated any more: reset joins the chunks that a call needed into one, up to
 * ATTN_WORKSPACE_KEEP bytes. */
#ifndef ATTN_LIB_WORKSPACE_H
#define ATTN_LIB_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>

#define ATTN_WORKSPACE_KEEP ((size_t)128 << 20)
#define ATTN_WORKSPACE_SHARE 8 /* and no more than one part in so many of the limit */

struct attn_chunk;

struct attn_workspace {
    struct attn_chunk *chunks; /* newest first */
    size_t used;               /* of the newest chunk */
    size_t held;               /* bytes of all chunks */
    size_t limit;              /* of `held`; 0: none */
};

/* count * size bytes, aligned to ATTN_ALIGN, unspecified contents; NULL where memory is short or
 * the limit would be passed. */
void *attn_workspace_take(struct attn_workspace *workspace, size_t count, size_t size);

/* A moment of a call. */
struct attn_workspace_mark {
    struct attn_chunk *chunk;
    size_t used;
};

struct attn_workspace_mark attn_workspace_get_mark(const struct attn_workspace *workspace);

/* What was taken since then is gone; something has been taken before it. */
void attn_workspace_rewind(struct attn_workspace *workspace, struct attn_workspace_mark moment);

/* Ends the call: all pieces are gone. */
void attn_workspace_reset(struct attn_workspace *workspace);
void attn_workspace_fini(struct attn_workspace *workspace);

#endif
