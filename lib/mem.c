/* mem.c: aligned allocation with a checked product. */
#include "mem.h"

#include <stdlib.h>
#include <string.h>

void *attn_alloc(size_t count, size_t size)
{
    size_t bytes = attn_add(attn_mul(count, size), ATTN_ALIGN - 1);
    if (bytes == SIZE_MAX)
        return NULL;
    bytes &= ~(size_t)(ATTN_ALIGN - 1);
    return aligned_alloc(ATTN_ALIGN, attn_max(bytes, ATTN_ALIGN));
}

void *attn_calloc(size_t count, size_t size)
{
    void *memory = attn_alloc(count, size);
    if (memory != NULL)
        memset(memory, 0, count * size);
    return memory;
}

void attn_free(void *memory) { free(memory); }
