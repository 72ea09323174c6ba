/* huge.c: blocks of memory in huge pages. */
#include "base/huge.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT 64

/* A kernel that ignores the advice costs speed only. */
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

/* A kernel without MADV_POPULATE_WRITE (before 5.14) faults pages in as they are touched. */
void srv_huge_populate(void *memory, size_t bytes)
{
    if (bytes >= SRV_HUGE_PAGE)
        (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
}
