/* usage.h: what the kernel says of this process, for metrics.
 *
 * Its files are opened once and kept: in a sandbox none can be opened later. */
#ifndef SRV_USAGE_H
#define SRV_USAGE_H

#include <stddef.h>

struct srv_usage;

/* NULL where memory is short.  `close` takes NULL. */
struct srv_usage *srv_usage_open(void);
void srv_usage_close(struct srv_usage *usage);

/* 0 where the kernel does not say.  Open files, where they have to be counted, and the heap's bytes
 * (heap.h) are up to a second old.  Any thread. */
size_t srv_usage_resident_bytes(struct srv_usage *usage);
size_t srv_usage_open_files(struct srv_usage *usage);
size_t srv_usage_heap_bytes(struct srv_usage *usage);

#endif
