/* huge.h: blocks of memory in huge pages, for large tensors.
 *
 * A page of 4 KiB costs more to map and unmap than to fill, in a virtual machine several times as
 * much; a huge page holds 512 of them and costs little more than one. */
#ifndef SRV_HUGE_H
#define SRV_HUGE_H

#include <stddef.h>

#define SRV_HUGE_PAGE ((size_t)2 << 20)

/* Returns memory, aligned to 64, that the caller gives to free(); blocks of 2 MiB and more have as
 * many huge pages as fit.  NULL where memory is short. */
void *srv_huge_alloc(size_t bytes);

/* Faults in the pages of such memory now, where it is 2 MiB or more. */
void srv_huge_populate(void *memory, size_t bytes);

#endif
