/* heap.c: settings of glibc's malloc. */
#include "ops/heap.h"

#include <limits.h>
#include <malloc.h>

#define OWN_BYTES (1 << 20) /* from here on a block stands alone */

/* Left to itself malloc puts blocks of up to 32 MiB among others once one as large was freed; there
 * a body that grows is copied, all of it.  And each thread gets an arena of its own, of which every
 * one keeps what it ever needed at once. */
void srv_heap_configure(size_t threads)
{
    (void)mallopt(M_MMAP_THRESHOLD, OWN_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 4 * OWN_BYTES);
    (void)mallopt(M_ARENA_MAX, threads < INT_MAX ? (int)threads : INT_MAX);
}

size_t srv_heap_bytes(void)
{
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}

void srv_heap_trim(void) { (void)malloc_trim(0); }
