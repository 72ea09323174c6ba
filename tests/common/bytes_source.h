/* bytes_source.h: bytes of a test as a file that is read like one of the state directory.
 *
 * With a small window what the daemon does with files of gigabytes is done with those of a test. */
#ifndef TESTS_BYTES_SOURCE_H
#define TESTS_BYTES_SOURCE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/file_reader.h"

#define SMALL_WINDOW 1024
#define WHOLE_WINDOW ((size_t)16 << 10)

/* A file of these bytes, in memory; the caller's to close. */
static inline int bytes_file(const void *bytes, size_t size)
{
    int fd = memfd_create("bytes", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && pwrite(fd, bytes, size, 0) != (ssize_t)size)) {
        perror("a file in memory");
        abort();
    }
    return fd;
}

/* The same as a source; srv_file_reader_close it. */
static inline struct srv_file_reader bytes_source(const void *bytes, size_t size, size_t window)
{
    struct srv_file_reader source;
    if (!srv_file_reader_take(&source, bytes_file(bytes, size)))
        abort();
    source.room = window;
    return source;
}

#endif
