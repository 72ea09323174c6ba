/* usage.h: the kernel's figures about this process, for metrics, and the C library's allocator.
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
    size_t open_files;    /* up to a second old where it has to be counted */
    size_t heap_bytes; /* allocated and not freed, up to a second ago; resident memory has besides
                             these the allocator's free pages, code, and mappings of others */
};

/* Each is 0 where the kernel does not provide it.  Any thread. */
void srv_usage_read(struct srv_process *out, struct srv_usage *usage);

/* Gives blocks of 1 MiB and more mappings of their own: they go back to the system whole, and
 * growing does not copy them.  Smaller blocks share as many arenas as `threads`, the number of
 * threads that allocate all the time.  Called once, before there is another thread. */
void srv_heap_configure(size_t threads);

#endif
