/* recorder.c: writes down what a daemon does to its state directory; preloaded (LD_PRELOAD).
 *
 * Calls on the directory and on its files are carried out and recorded under one lock, so that the
 * log has their order.  Only syncs run beside others, as they take long.  Without a log nothing is
 * recorded. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define DESCRIPTORS 4096
#define NOT_OURS UINT32_MAX

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* those of the C library's 64-bit names */

static struct power_log *log_page;
static const char *directory_path;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t file_of[DESCRIPTORS]; /* number of the file, plus 1; 0: none of ours */

__attribute__((constructor)) static void open_log(void)
{
    const char *path = getenv(POWER_LOG_VARIABLE);
    directory_path = getenv(POWER_DIRECTORY_VARIABLE);
    int fd = path != NULL && directory_path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, POWER_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        abort();
    log_page = page;
}

/* ---- Under the lock -------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Adds an entry; returns its index. */
static uint64_t add(enum power_kind kind, uint32_t file, uint64_t at, const void *bytes,
                    size_t size)
{
    struct power_op op = {(uint32_t)kind, file, at, size, now_ns()};
    uint64_t used = atomic_load(&log_page->used), padded = (size + 7) & ~(uint64_t)7;
    if (sizeof *log_page + used + sizeof op + padded > POWER_LOG_BYTES) {
        atomic_store(&log_page->full, true);
        return 0;
    }
    memcpy(log_page->entries + used, &op, sizeof op);
    if (size > 0)
        memcpy(log_page->entries + used + sizeof op, bytes, size);
    atomic_store(&log_page->used, used + sizeof op + padded);
    return atomic_fetch_add(&log_page->count, 1);
}

static uint32_t named(const char *name)
{
    for (uint32_t i = POWER_FIRST_FILE; i < log_page->files; i++)
        if (strcmp(log_page->names[i], name) == 0)
            return i;
    return NOT_OURS;
}

static uint32_t create(const char *name)
{
    uint32_t file = log_page->files;
    if (file >= POWER_FILES || strlen(name) >= POWER_NAME) {
        atomic_store(&log_page->full, true);
        return NOT_OURS;
    }
    log_page->files++;
    strncpy(log_page->names[file], name, POWER_NAME - 1);
    add(POWER_CREATE, file, 0, name, strlen(name) + 1);
    return file;
}

static uint32_t ours(int fd)
{
    return log_page != NULL && fd >= 0 && fd < DESCRIPTORS ? file_of[fd] - 1 : NOT_OURS;
}

static bool is_file(uint32_t file) { return file != NOT_OURS && file >= POWER_FIRST_FILE; }

static void remember(int fd, uint32_t file)
{
    if (fd >= 0 && fd < DESCRIPTORS)
        file_of[fd] = file + 1;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static int real_openat(int at, const char *path, int flags, mode_t mode)
{
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

static int open_in_directory(int at, const char *name, int flags, mode_t mode)
{
    pthread_mutex_lock(&lock);
    int fd = real_openat(at, name, flags, mode);
    if (fd >= 0 && strcmp(name, ".") == 0) {
        remember(fd, POWER_DIRECTORY);
    } else if (fd >= 0) {
        uint32_t file = named(name);
        if (file == NOT_OURS)
            file = create(name);
        else if ((flags & O_TRUNC) != 0)
            add(POWER_SIZE, file, 0, NULL, 0);
        remember(fd, file);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static int open_any(int at, const char *path, int flags, mode_t mode)
{
    if (ours(at) == POWER_DIRECTORY)
        return open_in_directory(at, path, flags, mode);
    int fd = real_openat(at, path, flags, mode);
    if (log_page != NULL && strcmp(path, directory_path) == 0)
        remember(fd, POWER_DIRECTORY);
    return fd;
}

#define MODE(last)                                                                 \
    va_list more;                                                                  \
    va_start(more, last);                                                          \
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0; \
    va_end(more)

int open(const char *path, int flags, ...)
{
    MODE(flags);
    return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    MODE(flags);
    return open_any(at, path, flags, mode);
}

int __open_2(const char *path, int flags) { return open_any(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return open_any(at, path, flags, 0); }

int close(int fd)
{
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < DESCRIPTORS)
        file_of[fd] = 0;
    int result = (int)syscall(SYS_close, fd);
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- Content --------------------------------------------------------------------------------- */

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    uint32_t file = ours(fd);
    if (!is_file(file))
        return syscall(SYS_pwrite64, fd, bytes, size, at);
    pthread_mutex_lock(&lock);
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, size, at);
    if (written > 0)
        add(POWER_WRITE, file, (uint64_t)at, bytes, (size_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    uint32_t file = ours(fd);
    if (!is_file(file))
        return syscall(SYS_write, fd, bytes, size);
    pthread_mutex_lock(&lock);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t written = syscall(SYS_write, fd, bytes, size);
    if (written > 0)
        add(POWER_WRITE, file, (uint64_t)at, bytes, (size_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

int ftruncate(int fd, off_t size)
{
    uint32_t file = ours(fd);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_ftruncate, fd, size);
    if (result == 0 && is_file(file))
        add(POWER_SIZE, file, (uint64_t)size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Room that is given back has zeros. */
static void add_zeros(uint32_t file, uint64_t at, uint64_t size)
{
    static const unsigned char zeros[4096];
    for (uint64_t done = 0; done < size; done += sizeof zeros)
        add(POWER_WRITE, file, at + done, zeros,
            size - done < sizeof zeros ? size - done : sizeof zeros);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    struct stat before;
    uint32_t file = ours(fd);
    pthread_mutex_lock(&lock);
    bool known = is_file(file) && fstat(fd, &before) == 0;
    int result = (int)syscall(SYS_fallocate, fd, mode, at, size);
    if (result == 0 && known && (mode & FALLOC_FL_PUNCH_HOLE) != 0)
        add_zeros(file, (uint64_t)at, (uint64_t)size);
    else if (result == 0 && known && at + size > before.st_size)
        add(POWER_SIZE, file, (uint64_t)(at + size), NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    int before = errno, result = fallocate(fd, 0, at, size) == 0 ? 0 : errno;
    errno = before;
    return result;
}

/* ---- Syncs ----------------------------------------------------------------------------------- */

static int sync_by(long number, int fd, uint32_t file)
{
    if (file == NOT_OURS)
        return (int)syscall(number, fd);
    pthread_mutex_lock(&lock);
    uint64_t begin = add(POWER_SYNC_BEGIN, file, 0, NULL, 0);
    bool journal = is_file(file) && strstr(log_page->names[file], ".journal") != NULL;
    bool spared = journal && atomic_load(&log_page->spares_journals);
    uint32_t failing = spared ? 0 : atomic_load(&log_page->failing);
    if (failing > 0)
        atomic_store(&log_page->failing, failing - 1);
    pthread_mutex_unlock(&lock);
    uint32_t ms = journal ? atomic_load(&log_page->slow_ms) : 0;
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
    int result = failing == 1 ? -1 : (int)syscall(number, fd);
    if (failing == 1)
        errno = EIO;
    pthread_mutex_lock(&lock);
    add(result == 0 ? POWER_SYNC_END : POWER_SYNC_FAILED, file, begin, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return sync_by(SYS_fsync, fd, ours(fd)); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd, ours(fd)); }

int syncfs(int fd) { return sync_by(SYS_syncfs, fd, ours(fd) == NOT_OURS ? NOT_OURS : POWER_ALL); }

/* ---- Names ----------------------------------------------------------------------------------- */

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    if (ours(from_at) != POWER_DIRECTORY || ours(to_at) != POWER_DIRECTORY)
        return (int)syscall(SYS_renameat, from_at, from, to_at, to);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_renameat, from_at, from, to_at, to);
    if (result == 0) {
        char names[2 * POWER_NAME];
        size_t first = strlen(from) + 1, second = strlen(to) + 1;
        uint32_t file = named(from), replaced = named(to);
        if (replaced != NOT_OURS)
            log_page->names[replaced][0] = '\0';
        if (file == NOT_OURS || second > POWER_NAME) {
            atomic_store(&log_page->full, true);
        } else {
            memcpy(log_page->names[file], to, second);
            memcpy(names, from, first);
            memcpy(names + first, to, second);
            add(POWER_RENAME, file, 0, names, first + second);
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int unlinkat(int at, const char *name, int flags)
{
    if (ours(at) != POWER_DIRECTORY)
        return (int)syscall(SYS_unlinkat, at, name, flags);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_unlinkat, at, name, flags);
    uint32_t file = result == 0 ? named(name) : NOT_OURS;
    if (file != NOT_OURS) {
        log_page->names[file][0] = '\0';
        add(POWER_UNLINK, file, 0, name, strlen(name) + 1);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
