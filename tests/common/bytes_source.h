/* bytes_source.h: the bytes of a test as a file that srv_file_reader reads like one of the state
 * directory.
 *
 * With a small window, a test's file of kilobytes takes the paths that the daemon takes with
 * gigabytes. */
#ifndef TESTS_BYTES_SOURCE_H
#define TESTS_BYTES_SOURCE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/file_reader.h"

#define SMALL_WINDOW 1024
#define WHOLE_WINDOW ((size_t)16 << 10)

/* Returns a file in memory that holds these bytes; the caller closes it. */
static inline int bytes_file(const void *bytes, size_t size)
{
    int fd = memfd_create("bytes", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && pwrite(fd, bytes, size, 0) != (ssize_t)size)) {
        perror("a file in memory");
        abort();
    }
    return fd;
}

/* Returns a reader of such a file, with this window; srv_file_reader_close ends it. */
static inline struct srv_file_reader bytes_source(const void *bytes, size_t size, size_t window)
{
    struct srv_file_reader source;
    if (!srv_file_reader_take(&source, bytes_file(bytes, size)))
        abort();
    source.room = window;
    return source;
}

#endif
