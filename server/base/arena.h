/* arena.h: memory that lives as long as one request.
 *
 * Pieces are carved from chunks and freed together.  A ceiling is given at the start; a piece that
 * would pass it is refused with NULL, as is one for which memory is short. */
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

/* `grant`, where it is not NULL, is asked before each chunk is taken from the system, and says no
 * where others have used up what all share. */
void srv_arena_init(struct srv_arena *arena, size_t limit,
                    bool (*grant)(void *context, size_t bytes), void *context);

/* Carves the first pieces from memory that outlives the arena: SRV_ARENA_FIRST bytes, aligned to
 * 64, of which `grant` is asked as of any other when the first piece is taken. */
#define SRV_ARENA_FIRST 8256
void srv_arena_lend(struct srv_arena *arena, void *memory);
void srv_arena_fini(struct srv_arena *arena);

/* count * size bytes, aligned to 64; NULL where the product wraps, the ceiling or memory is
 * passed.  Contents are unspecified. */
void *srv_arena_alloc(struct srv_arena *arena, size_t count, size_t size);

/* Has the system find pages for large chunks at once, on a thread that has time for that. */
void srv_arena_populate(const struct srv_arena *arena);

/* The most that one call of srv_arena_alloc may still be granted, in bytes. */
size_t srv_arena_room(const struct srv_arena *arena);

/* A NUL-terminated copy of `length` bytes. */
char *srv_arena_copy(struct srv_arena *arena, const char *text, size_t length);

/* Gives back the end of the piece handed out last: it shrinks to `bytes`.  For readers that learn
 * a length only at its end. */
void srv_arena_shrink(struct srv_arena *arena, void *last, size_t bytes);

#endif
