/* workspace.c: a bump allocator over a list of chunks. */
#include "machine/workspace.h"

#include "basics/mem.h"

#define FIRST_CHUNK ((size_t)256 << 10)

struct attn_chunk {
    struct attn_chunk *next;
    size_t size; /* bytes of data */
    _Alignas(ATTN_ALIGN) unsigned char data[];
};

static bool add_chunk(struct attn_workspace *workspace, size_t size)
{
    struct attn_chunk *chunk = NULL;
    const size_t bytes = attn_add(size, sizeof *chunk);
    if (workspace->limit == 0 || attn_add(workspace->bytes, bytes) <= workspace->limit)
        chunk = attn_alloc_huge(1, bytes);
    if (chunk == NULL)
        return false;
    workspace->bytes += bytes;
    chunk->next = workspace->chunks;
    chunk->size = size;
    workspace->chunks = chunk;
    workspace->used = 0;
    return true;
}

void *attn_workspace_alloc(struct attn_workspace *workspace, size_t count, size_t size)
{
    size_t bytes = attn_add(attn_mul(count, size), ATTN_ALIGN - 1);
    if (bytes == SIZE_MAX)
        return NULL;
    bytes &= ~(size_t)(ATTN_ALIGN - 1);
    struct attn_chunk *chunk = workspace->chunks;
    if (chunk == NULL || chunk->size - workspace->used < bytes) {
        if (!add_chunk(workspace, attn_max(bytes, FIRST_CHUNK)))
            return NULL;
        chunk = workspace->chunks;
    }
    workspace->used += bytes;
    return chunk->data + workspace->used - bytes;
}

struct attn_workspace_mark attn_workspace_get_mark(const struct attn_workspace *workspace)
{
    return (struct attn_workspace_mark){workspace->chunks, workspace->used};
}

/* The oldest chunk added after the mark stays, empty: the next allocations are likely to
 * need it again. */
void attn_workspace_rewind(struct attn_workspace *workspace, struct attn_workspace_mark mark)
{
    struct attn_chunk *chunk = workspace->chunks;
    while (chunk != mark.chunk && chunk->next != mark.chunk) {
        workspace->chunks = chunk->next;
        workspace->bytes -= attn_add(chunk->size, sizeof *chunk);
        attn_free(chunk);
        chunk = workspace->chunks;
    }
    workspace->used = chunk == mark.chunk ? mark.used : 0;
}

/* Bytes that are kept from call to call, at most. */
static size_t keep_limit(const struct attn_workspace *workspace)
{
    size_t limit = workspace->limit;
    return limit == 0 ? ATTN_WORKSPACE_KEEP
                      : attn_min(ATTN_WORKSPACE_KEEP, limit / ATTN_WORKSPACE_SHARE);
}

void attn_workspace_reset(struct attn_workspace *workspace)
{
    struct attn_chunk *only = workspace->chunks;
    workspace->used = 0;
    if (only == NULL || (only->next == NULL && only->size <= keep_limit(workspace)))
        return;
    size_t total = 0;
    for (struct attn_chunk *chunk = only; chunk != NULL; chunk = chunk->next)
        total = attn_add(total, chunk->size);
    attn_workspace_fini(workspace);
    if (total <= keep_limit(workspace))
        (void)add_chunk(workspace, total);
}

void attn_workspace_fini(struct attn_workspace *workspace)
{
    struct attn_chunk *chunk = workspace->chunks;
    while (chunk != NULL) {
        struct attn_chunk *next = chunk->next;
        attn_free(chunk);
        chunk = next;
    }
    *workspace = (struct attn_workspace){.limit = workspace->limit};
}
