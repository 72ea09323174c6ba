/* huge.h: memory for large tensors.
 *
 * A page of 4 KiB costs more to take and to give back than to fill, in a virtual machine several
 * times as much; a huge page holds 512 of them and costs little more than one. */
#ifndef SRV_HUGE_H
#define SRV_HUGE_H

#include <stddef.h>

#define SRV_HUGE_PAGE ((size_t)2 << 20)

/* Memory for free(), aligned to 64, with huge pages as far as whole ones fit in; NULL where memory
 * is short. */
void *srv_huge_alloc(size_t bytes);

/* Has the system find pages for such memory at once, where it is large. */
void srv_huge_populate(void *memory, size_t bytes);

#endif
