/* heap.h: the C library's allocator: its settings, the bytes in use, and returning free pages to
 * the system. */
#ifndef SRV_HEAP_H
#define SRV_HEAP_H

#include <stddef.h>

/* Gives blocks of 1 MiB and more mappings of their own: they go back to the system whole, and
 * growing does not copy them.  Smaller blocks share as many arenas as `threads`, the number of
 * threads that allocate all the time.  Called once, before there is another thread. */
void srv_heap_configure(size_t threads);

/* Bytes that are allocated and not freed.  Resident memory has besides these the allocator's free
 * pages, code, and mappings of others.  Any thread. */
size_t srv_heap_bytes(void);

/* Returns free pages to the system, also those between blocks in use; takes microseconds for each
 * free piece.  Any thread. */
void srv_heap_trim(void);

#endif
