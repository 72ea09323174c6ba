/* heap.c: settings of glibc's malloc. */
#include "ops/usage.h"

#include <limits.h>
#include <malloc.h>

#define OWN_BYTES (1 << 20) /* blocks of this size and more have a mapping of their own */

/* By default malloc raises the threshold up to 32 MiB once a block as large was freed: such blocks
 * then lie among others, and a body that grows is copied whole.  And each thread gets an arena of
 * its own, which keeps as much as it ever needed at once. */
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
