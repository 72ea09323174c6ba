/* huge.c: memory for large tensors. */
#include "base/huge.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT 64
#define PAGE ((size_t)4096)

/* Advice that the kernel does not take costs speed only. */
void *srv_huge_alloc(size_t bytes)
{
    const size_t align = bytes < SRV_HUGE_PAGE ? ALIGNMENT : SRV_HUGE_PAGE;
    if (bytes > PTRDIFF_MAX - align)
        return NULL;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory != NULL && bytes >= SRV_HUGE_PAGE)
        (void)madvise(memory, bytes / SRV_HUGE_PAGE * SRV_HUGE_PAGE, MADV_HUGEPAGE);
    return memory;
}

/* Systems that do not know this find pages as they are touched. */
void srv_huge_populate(void *memory, size_t bytes)
{
    if (bytes >= SRV_HUGE_PAGE)
        (void)madvise(memory, bytes / PAGE * PAGE, MADV_POPULATE_WRITE);
}
