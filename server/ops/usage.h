/* usage.h: the kernel's figures about this process, for metrics.
 *
 * The files of /proc are opened once and kept open: in a sandbox none can be opened later. */
#ifndef SRV_USAGE_H
#define SRV_USAGE_H

#include <stdbool.h>
#include <stddef.h>

struct srv_usage;

/* NULL where memory is short.  `close` takes NULL. */
struct srv_usage *srv_usage_open(void);
void srv_usage_close(struct srv_usage *usage);

/* Whether the files of /proc could be opened. */
bool srv_usage_is_whole(const struct srv_usage *usage);

struct srv_process {
    size_t resident_bytes, virtual_bytes;
    size_t max_files;     /* descriptors, as allowed when the usage was opened */
    double start_seconds; /* since 1970: when the usage was opened */
    double cpu_seconds;   /* of all threads, user and system */
};

/* Each is 0 where the kernel does not provide it.  The number of open files, where it has to be
 * counted, and the heap's bytes (heap.h) are up to a second old.  Any thread. */
void srv_usage_read(struct srv_process *out, const struct srv_usage *usage);
size_t srv_usage_open_files(struct srv_usage *usage);
size_t srv_usage_heap_bytes(struct srv_usage *usage);

#endif
