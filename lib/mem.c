/* mem.c: aligned allocation with a checked product. */
#include "mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

static void *alloc_aligned(size_t count, size_t size, size_t align)
{
    size_t bytes = attn_add(attn_mul(count, size), align - 1);
    if (bytes == SIZE_MAX)
        return NULL;
    bytes &= ~(align - 1);
    return aligned_alloc(align, attn_max(bytes, align));
}

void *attn_alloc(size_t count, size_t size) { return alloc_aligned(count, size, ATTN_ALIGN); }

/* Advice that the kernel does not take costs speed only. */
void *attn_alloc_huge(size_t count, size_t size)
{
    if (attn_mul(count, size) < HUGE_PAGE / 8)
        return attn_alloc(count, size);
    void *memory = alloc_aligned(count, size, HUGE_PAGE);
    if (memory != NULL)
        (void)madvise(memory, attn_ceil_div(count * size, HUGE_PAGE) * HUGE_PAGE, MADV_HUGEPAGE);
    return memory;
}

void *attn_calloc(size_t count, size_t size)
{
    void *memory = attn_alloc(count, size);
    if (memory != NULL)
        memset(memory, 0, count * size);
    return memory;
}

void attn_free(void *memory) { free(memory); }
