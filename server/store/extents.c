/* extents.c: extents in chunks, which never move. */
#include "store/extents.h"

#include <stdlib.h>

#define CHUNK 1024

struct srv_extents_chunk {
    struct srv_extents_chunk *next;
    struct srv_extent items[CHUNK];
};

const struct srv_extent *srv_extents_add(struct srv_extents *extents,
                                         const struct srv_extent *extent)
{
    const size_t place = extents->count % CHUNK;
    if (extents->count == SRV_MAX_EXTENTS)
        return NULL;
    if (place == 0) {
        struct srv_extents_chunk *chunk = malloc(sizeof *chunk);
        if (chunk == NULL)
            return NULL;
        chunk->next = extents->chunks;
        extents->chunks = chunk;
    }
    extents->count++;
    extents->chunks->items[place] = *extent;
    return &extents->chunks->items[place];
}

void srv_extents_fini(struct srv_extents *extents)
{
    while (extents->chunks != NULL) {
        struct srv_extents_chunk *next = extents->chunks->next;
        free(extents->chunks);
        extents->chunks = next;
    }
    extents->count = 0;
}
