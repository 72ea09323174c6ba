/* arena.c: a list of chunks that pieces are carved from, all freed together.
 *
 * Only the newest chunk is carved.  A piece that does not fit opens another chunk, twice as large
 * as the last one up to CHUNK_MAX, or of the piece's own size where that is larger.  A piece that
 * is shrunk leaves its tail to the pieces after it. */
#include "base/arena.h"

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "basics/mem.h"

#define CHUNK_MIN (SRV_ARENA_FIRST - sizeof(struct srv_arena_chunk))
#define CHUNK_MAX 262144

struct srv_arena_chunk {
    alignas(ATTN_ALIGN) struct srv_arena_chunk *next; /* older */
    size_t capacity, fill;                            /* bytes that follow this header */
    size_t last;                                      /* offset of the newest piece */
};

static char *chunk_bytes(struct srv_arena_chunk *chunk) { return (char *)(chunk + 1); }

static size_t round_up(size_t bytes)
{
    return (bytes + ATTN_ALIGN - 1) & ~(size_t)(ATTN_ALIGN - 1);
}

void srv_arena_init(struct srv_arena *arena, size_t limit,
                    bool (*grant)(void *context, size_t bytes), void *context)
{
    *arena = (struct srv_arena){.limit = limit, .grant = grant, .context = context};
}

void srv_arena_lend(struct srv_arena *arena, void *memory) { arena->lent = memory; }

void srv_arena_fini(struct srv_arena *arena)
{
    struct srv_arena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        struct srv_arena_chunk *older = chunk->next;
        if ((void *)chunk != arena->lent)
            free(chunk);
        chunk = older;
    }
    *arena = (struct srv_arena){0};
}

/* A kernel without MADV_POPULATE_WRITE (before 5.14) faults pages in as they are touched. */
void srv_arena_populate(const struct srv_arena *arena)
{
    for (struct srv_arena_chunk *c = arena->chunks; c != NULL; c = c->next)
        if (sizeof *c + c->capacity >= ATTN_HUGE_PAGE)
            (void)madvise(c, sizeof *c + c->capacity, MADV_POPULATE_WRITE);
}

size_t srv_arena_left(const struct srv_arena *arena)
{
    return (arena->limit - arena->used) & ~(size_t)(ATTN_ALIGN - 1);
}

/* Opens a chunk with room for `bytes`, which becomes the one that is carved; NULL where `grant`
 * refuses it or memory is short. */
static struct srv_arena_chunk *open_chunk(struct srv_arena *arena, size_t bytes)
{
    size_t capacity = arena->chunks != NULL ? arena->chunks->capacity * 2 : CHUNK_MIN;
    capacity = attn_max(attn_min(capacity, CHUNK_MAX), bytes);
    struct srv_arena_chunk *chunk = NULL;
    if (capacity <= PTRDIFF_MAX - sizeof *chunk &&
        (arena->grant == NULL || arena->grant(arena->context, sizeof *chunk + capacity)))
        chunk = arena->lent != NULL && arena->chunks == NULL && capacity == CHUNK_MIN
                    ? arena->lent
                    : attn_alloc_huge(1, sizeof *chunk + capacity);
    if (chunk == NULL)
        return NULL;
    *chunk = (struct srv_arena_chunk){.next = arena->chunks, .capacity = capacity};
    arena->chunks = chunk;
    return chunk;
}

void *srv_arena_alloc(struct srv_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > srv_arena_left(arena))
        return NULL;
    bytes = round_up(bytes); /* stays within the room, a multiple of ATTN_ALIGN */
    struct srv_arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->capacity - chunk->fill < bytes)
        chunk = open_chunk(arena, bytes);
    if (chunk == NULL)
        return NULL;
    chunk->last = chunk->fill;
    chunk->fill += bytes;
    arena->used += bytes;
    return chunk_bytes(chunk) + chunk->last;
}

char *srv_arena_copy(struct srv_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? srv_arena_alloc(arena, length + 1, 1) : NULL;
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

void srv_arena_shrink(struct srv_arena *arena, void *last, size_t bytes)
{
    struct srv_arena_chunk *chunk = arena->chunks;
    assert(chunk != NULL && last == chunk_bytes(chunk) + chunk->last);
    size_t old = chunk->fill - chunk->last;
    assert(bytes <= old);
    chunk->fill = chunk->last + round_up(bytes);
    arena->used -= old - round_up(bytes);
}
