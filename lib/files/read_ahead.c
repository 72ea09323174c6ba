/* read_ahead.c: posix_fadvise, a window ahead of the reader. */
#include <fcntl.h>

#include "basics/mem.h"
#include "files/file.h"

#define PART ((size_t)4 << 20) /* bytes that are read ahead at a time */

bool attn_read_ahead_init(struct attn_read_ahead *ahead, size_t capacity)
{
    *ahead = (struct attn_read_ahead){.capacity = capacity};
    ahead->ranges = attn_alloc(capacity, sizeof *ahead->ranges);
    return ahead->ranges != NULL;
}

void attn_read_ahead_fini(struct attn_read_ahead *ahead)
{
    attn_free(ahead->ranges);
    *ahead = (struct attn_read_ahead){0};
}

void attn_read_ahead_add(struct attn_read_ahead *ahead, int file, size_t offset, size_t count)
{
    if (ahead->count < ahead->capacity)
        ahead->ranges[ahead->count++] = (struct attn_file_range){file, offset, count};
}

void attn_read_ahead_advance(struct attn_read_ahead *ahead, size_t bytes)
{
    ahead->used = attn_add(ahead->used, bytes);
    while (ahead->next < ahead->count && ahead->asked < attn_add(ahead->used, ATTN_AHEAD_BYTES)) {
        const struct attn_file_range *range = &ahead->ranges[ahead->next];
        const size_t part = attn_min(range->count - ahead->at, PART);
        (void)posix_fadvise(range->file, (off_t)(range->offset + ahead->at), (off_t)part,
                            POSIX_FADV_WILLNEED);
        ahead->asked += part;
        ahead->at += part;
        if (ahead->at < range->count)
            continue;
        ahead->next++;
        ahead->at = 0;
    }
}
