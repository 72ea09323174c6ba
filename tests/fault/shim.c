/* shim.c: calls that fail when the harness asks for it, linked into a daemon under test.
 *
 * The linker redirects (--wrap) the calls of attnd and libattn here, with jansson's allocations,
 * which go through libattn; in a copy of libmicrohttpd the calls are renamed fault_http_*.  Calls
 * within the C library, OpenBLAS and zlib are not wrapped.  Without a page nothing fails. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "page.h"

#define MAX_EVENTFDS 64

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* only the linker names most of these */

extern const char __executable_start[];

static struct fault_page *page;
static _Atomic int eventfds[MAX_EVENTFDS]; /* descriptors of eventfds, plus 1; 0: free */

static bool hits(struct armed_fault *fault, enum fault_kind kind, const void *caller)
{
    uint64_t number = atomic_fetch_add(&fault->calls[kind], 1) + 1, at = atomic_load(&fault->at);
    if (atomic_load(&fault->kind) != (int)kind || at == 0 ||
        (atomic_load(&fault->lasting) ? number < at : number != at))
        return false;
    if (atomic_fetch_add(&fault->failed, 1) == 0)
        atomic_store(&fault->caller, (uint64_t)((const char *)caller - __executable_start));
    return true;
}

/* Counts a call; true where it has to fail. */
static bool fails(enum fault_kind kind, const void *caller)
{
    if (page == NULL)
        return false;
    bool begun = atomic_load(&page->faults[0].failed) > 0;
    return hits(&page->faults[0], kind, caller) || (begun && hits(&page->faults[1], kind, caller));
}

static bool refuses(enum fault_kind kind, int error, const void *caller)
{
    bool refused = fails(kind, caller);
    if (refused)
        errno = error;
    return refused;
}

static void *counted(void *block)
{
    if (block != NULL && page != NULL)
        atomic_fetch_add(&page->blocks, 1);
    return block;
}

#define CALLER __builtin_return_address(0)
#define REAL(name) __real_##name
#define WRAP(name) __wrap_##name

/* ---- Memory ---------------------------------------------------------------------------------- */

void *REAL(malloc)(size_t);
void *REAL(calloc)(size_t, size_t);
void *REAL(realloc)(void *, size_t);
void *REAL(aligned_alloc)(size_t, size_t);
int REAL(posix_memalign)(void **, size_t, size_t);
char *REAL(strdup)(const char *);
void REAL(free)(void *);
void *REAL(mmap)(void *, size_t, int, int, int, off_t);

static void *resize(void *block, size_t size)
{
    void *grown = REAL(realloc)(block, size);
    return block == NULL ? counted(grown) : grown;
}

static void release(void *block)
{
    if (block != NULL && page != NULL)
        atomic_fetch_sub(&page->blocks, 1);
    REAL(free)(block);
}

#define NO_MEMORY(kind) refuses(kind, ENOMEM, CALLER)

void *WRAP(malloc)(size_t size)
{
    return NO_MEMORY(FAULT_MEMORY) ? NULL : counted(REAL(malloc)(size));
}

void *WRAP(calloc)(size_t count, size_t size)
{
    return NO_MEMORY(FAULT_MEMORY) ? NULL : counted(REAL(calloc)(count, size));
}

void *WRAP(realloc)(void *block, size_t size)
{
    return NO_MEMORY(FAULT_MEMORY) ? NULL : resize(block, size);
}

void *WRAP(aligned_alloc)(size_t alignment, size_t size)
{
    return NO_MEMORY(FAULT_MEMORY) ? NULL : counted(REAL(aligned_alloc)(alignment, size));
}

int WRAP(posix_memalign)(void **out, size_t alignment, size_t size)
{
    if (NO_MEMORY(FAULT_MEMORY))
        return ENOMEM;
    int error = REAL(posix_memalign)(out, alignment, size);
    return error == 0 && counted(*out) == NULL ? ENOMEM : error;
}

char *WRAP(strdup)(const char *text)
{
    return NO_MEMORY(FAULT_MEMORY) ? NULL : counted(REAL(strdup)(text));
}

void WRAP(free)(void *block) { release(block); }

void *fault_http_malloc(size_t size)
{
    return NO_MEMORY(FAULT_TRANSPORT) ? NULL : counted(REAL(malloc)(size));
}

void *fault_http_calloc(size_t count, size_t size)
{
    return NO_MEMORY(FAULT_TRANSPORT) ? NULL : counted(REAL(calloc)(count, size));
}

void *fault_http_realloc(void *block, size_t size)
{
    return NO_MEMORY(FAULT_TRANSPORT) ? NULL : resize(block, size);
}

char *fault_http_strdup(const char *text)
{
    return NO_MEMORY(FAULT_TRANSPORT) ? NULL : counted(REAL(strdup)(text));
}

void *fault_http_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return NO_MEMORY(FAULT_TRANSPORT) ? MAP_FAILED
                                      : REAL(mmap)(at, size, protection, flags, fd, offset);
}

void fault_http_free(void *block) { release(block); }

int fault_http_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    int error = page != NULL && atomic_load(&page->faults[0].lasting) ? EMFILE : ECONNABORTED;
    return refuses(FAULT_ACCEPT, error, CALLER) ? -1 : accept4(fd, address, size, flags);
}

int fault_http_epoll_create1(int flags)
{
    return refuses(FAULT_OTHER, EMFILE, CALLER) ? -1 : epoll_create1(flags);
}

/* ---- Files ----------------------------------------------------------------------------------- */

int REAL(open)(const char *, int, ...);
int REAL(openat)(int, const char *, int, ...);
DIR *REAL(opendir)(const char *);
DIR *REAL(fdopendir)(int);
FILE *REAL(fopen)(const char *, const char *);
ssize_t REAL(read)(int, void *, size_t);
ssize_t REAL(pread)(int, void *, size_t, off_t);
ssize_t REAL(write)(int, const void *, size_t);
ssize_t REAL(pwrite)(int, const void *, size_t, off_t);
int REAL(fsync)(int);
int REAL(fdatasync)(int);
int REAL(renameat)(int, const char *, int, const char *);

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

int WRAP(open)(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return refuses(FAULT_OPEN, EMFILE, CALLER) ? -1 : REAL(open)(path, flags, mode);
}

int WRAP(openat)(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return refuses(FAULT_OPEN, EMFILE, CALLER) ? -1 : REAL(openat)(directory, path, flags, mode);
}

DIR *WRAP(opendir)(const char *path)
{
    return refuses(FAULT_OPEN, EMFILE, CALLER) ? NULL : REAL(opendir)(path);
}

DIR *WRAP(fdopendir)(int fd)
{
    return refuses(FAULT_OPEN, ENOMEM, CALLER) ? NULL : REAL(fdopendir)(fd);
}

FILE *WRAP(fopen)(const char *path, const char *mode)
{
    return refuses(FAULT_OPEN, EMFILE, CALLER) ? NULL : REAL(fopen)(path, mode);
}

/* Whether the descriptor is an eventfd, on which calls never fail here: the kernel refuses to write
 * to one only where its sleeper has been woken already. */
static bool is_eventfd(int fd)
{
    for (size_t i = 0; i < MAX_EVENTFDS; i++)
        if (atomic_load(&eventfds[i]) == fd + 1)
            return true;
    return false;
}

ssize_t WRAP(read)(int fd, void *out, size_t size)
{
    return !is_eventfd(fd) && refuses(FAULT_OTHER, EIO, CALLER) ? -1 : REAL(read)(fd, out, size);
}

ssize_t WRAP(pread)(int fd, void *out, size_t size, off_t at)
{
    return refuses(FAULT_OTHER, EIO, CALLER) ? -1 : REAL(pread)(fd, out, size, at);
}

ssize_t WRAP(write)(int fd, const void *bytes, size_t size)
{
    if (is_eventfd(fd))
        return REAL(write)(fd, bytes, size);
    if (refuses(FAULT_WRITE, ENOSPC, CALLER))
        return -1;
    if (fails(FAULT_SHORT, CALLER) && size > 1)
        size /= 2;
    return REAL(write)(fd, bytes, size);
}

ssize_t WRAP(pwrite)(int fd, const void *bytes, size_t size, off_t at)
{
    if (refuses(FAULT_WRITE, ENOSPC, CALLER))
        return -1;
    if (fails(FAULT_SHORT, CALLER) && size > 1)
        size /= 2;
    return REAL(pwrite)(fd, bytes, size, at);
}

int WRAP(fsync)(int fd) { return refuses(FAULT_SYNC, EIO, CALLER) ? -1 : REAL(fsync)(fd); }

int WRAP(fdatasync)(int fd) { return refuses(FAULT_SYNC, EIO, CALLER) ? -1 : REAL(fdatasync)(fd); }

int WRAP(renameat)(int from, const char *old, int to, const char *new)
{
    return refuses(FAULT_RENAME, EIO, CALLER) ? -1 : REAL(renameat)(from, old, to, new);
}

/* ---- The rest -------------------------------------------------------------------------------- */

int REAL(pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int REAL(ftruncate)(int, off_t);
int REAL(posix_fallocate)(int, off_t, off_t);
int REAL(fallocate)(int, int, off_t, off_t);
int REAL(eventfd)(unsigned, int);
int REAL(socket)(int, int, int);
int REAL(dup)(int);
int REAL(mkdir)(const char *, mode_t);
int REAL(flock)(int, int);

int WRAP(pthread_create)(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *argument)
{
    return fails(FAULT_THREAD, CALLER) ? EAGAIN
                                       : REAL(pthread_create)(id, attributes, run, argument);
}

void *WRAP(mmap)(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return refuses(FAULT_OTHER, ENOMEM, CALLER)
               ? MAP_FAILED
               : REAL(mmap)(at, size, protection, flags, fd, offset);
}

int WRAP(ftruncate)(int fd, off_t size)
{
    return refuses(FAULT_OTHER, EIO, CALLER) ? -1 : REAL(ftruncate)(fd, size);
}

int WRAP(posix_fallocate)(int fd, off_t from, off_t size)
{
    return fails(FAULT_OTHER, CALLER) ? ENOSPC : REAL(posix_fallocate)(fd, from, size);
}

int WRAP(fallocate)(int fd, int mode, off_t from, off_t size)
{
    return refuses(FAULT_OTHER, ENOSPC, CALLER) ? -1 : REAL(fallocate)(fd, mode, from, size);
}

int WRAP(eventfd)(unsigned value, int flags)
{
    int fd = refuses(FAULT_OTHER, EMFILE, CALLER) ? -1 : REAL(eventfd)(value, flags), none = 0;
    for (size_t i = 0; fd >= 0 && i < MAX_EVENTFDS; i++, none = 0)
        if (atomic_compare_exchange_strong(&eventfds[i], &none, fd + 1))
            break;
    return fd;
}

int WRAP(socket)(int domain, int type, int protocol)
{
    return refuses(FAULT_OTHER, EMFILE, CALLER) ? -1 : REAL(socket)(domain, type, protocol);
}

int WRAP(dup)(int fd) { return refuses(FAULT_OTHER, EMFILE, CALLER) ? -1 : REAL(dup)(fd); }

int WRAP(mkdir)(const char *path, mode_t mode)
{
    return refuses(FAULT_OTHER, ENOSPC, CALLER) ? -1 : REAL(mkdir)(path, mode);
}

int WRAP(flock)(int fd, int how)
{
    return refuses(FAULT_OTHER, ENOLCK, CALLER) ? -1 : REAL(flock)(fd, how);
}

int REAL(close)(int);

int WRAP(close)(int fd)
{
    for (size_t i = 0; i < MAX_EVENTFDS; i++) {
        int entry = fd + 1;
        atomic_compare_exchange_strong(&eventfds[i], &entry, 0);
    }
    return REAL(close)(fd);
}

/* ---- Start ----------------------------------------------------------------------------------- */

__attribute__((constructor)) static void start(void)
{
    const char *number = getenv(FAULT_VARIABLE);
    int fd = number != NULL ? (int)strtol(number, NULL, 10) : -1;
    void *map = fd >= 0 ? REAL(mmap)(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    if (map == MAP_FAILED)
        return;
    close(fd);
    page = map;
}
