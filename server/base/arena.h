/* arena.h: memory that lives as long as one request.
 *
 * Pieces are carved from chunks and freed together.  An arena has a ceiling from the start: a piece
 * that would exceed it is refused with NULL, as is one for which memory is short.  An arena belongs
 * to one thread at a time. */
#ifndef SRV_ARENA_H
#define SRV_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct srv_arena_chunk;

struct srv_arena {
    struct srv_arena_chunk *chunks;
    void *lent;         /* the first chunk's memory, or NULL */
    size_t used, limit; /* bytes handed out, and their ceiling */
    bool (*grant)(void *context, size_t bytes);
    void *context;
};

/* Starts an empty arena of at most `limit` bytes.  `grant`, unless NULL, is called before a chunk
 * is taken from the system and returns false where a shared budget is used up. */
void srv_arena_init(struct srv_arena *arena, size_t limit,
                    bool (*grant)(void *context, size_t bytes), void *context);

/* Makes `memory`, which outlives the arena, its first chunk: SRV_ARENA_FIRST bytes, aligned to 64.
 * `grant` is called for it, as for any chunk, when the first piece is taken. */
#define SRV_ARENA_FIRST 8256
void srv_arena_lend(struct srv_arena *arena, void *memory);
void srv_arena_fini(struct srv_arena *arena);

/* Returns count * size bytes, aligned to 64, with unspecified contents; NULL where the product
 * wraps, the ceiling would be exceeded, or memory is short. */
void *srv_arena_alloc(struct srv_arena *arena, size_t count, size_t size);

/* Faults in the pages of large chunks now; called on a thread that has time for it. */
void srv_arena_populate(const struct srv_arena *arena);

/* Bytes of the largest piece that the ceiling still allows. */
size_t srv_arena_left(const struct srv_arena *arena);

/* Returns a NUL-terminated copy of `length` bytes; NULL as srv_arena_alloc does. */
char *srv_arena_copy(struct srv_arena *arena, const char *text, size_t length);

/* Shrinks the newest piece to `bytes`, for a reader that learns a length only at the end. */
void srv_arena_shrink(struct srv_arena *arena, void *last, size_t bytes);

#endif
