/* heap.h: the C library's allocator: how it is set up, what it has given out, and having it give
 * back what nobody uses. */
#ifndef SRV_HEAP_H
#define SRV_HEAP_H

#include <stddef.h>

/* Large blocks come from the system and go back to it whole, and growing they are not copied; the
 * others share as many arenas as there are threads that allocate all the time.  Called once, before
 * there is another thread. */
void srv_heap_configure(size_t threads);

/* What has been given out and not been given back: resident memory less what is kept for later,
 * code, and what is mapped beside it.  Any thread. */
size_t srv_heap_bytes(void);

/* Gives free pages back to the system, also those between blocks that are in use.  Any thread;
 * takes microseconds for each piece that is free. */
void srv_heap_trim(void);

#endif
