/* disk.c: calls to the disk that stand before those of libc. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "store/store_files.h"

#define EVENTS 4096
#define NAME 80
#define FEW 8 /* bytes of a patch */

struct disk disk;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event {
    enum disk_call call;
    char name[NAME];
} events[EVENTS];
static size_t num_events;

static void note(enum disk_call call, const char *name)
{
    int error = errno;
    pthread_mutex_lock(&lock);
    if (num_events < EVENTS) {
        events[num_events].call = call;
        snprintf(events[num_events++].name, NAME, "%s", name);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
}

static void name_of(char out[256], int fd)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, 255);
    out[length > 0 ? length : 0] = '\0';
}

static void note_file(enum disk_call call, int fd)
{
    char name[256];
    name_of(name, fd);
    const char *base = strrchr(name, '/');
    note(call, base != NULL ? base + 1 : name);
}

void disk_reset(void)
{
    pthread_mutex_lock(&lock);
    num_events = 0;
    pthread_mutex_unlock(&lock);
    atomic_store(&disk.fsync_ms, 0);
    atomic_store(&disk.fdatasync_ms, 0);
    atomic_store(&disk.pread_ms, 0);
    atomic_store(&disk.pread_s, 0);
    atomic_store(&disk.unreadable, 0);
    atomic_store(&disk.unreadable_blocks, 0);
    atomic_store(&disk.read_bytes, 0);
    atomic_store(&disk.no_flush, false);
    atomic_store(&disk.no_cut, false);
    atomic_store(&disk.no_patch, false);
    atomic_store(&disk.full, false);
    atomic_store(&disk.no_manifest, false);
    atomic_store(&disk.image_times, false);
    atomic_store(&disk.unsafe_manifest, 0);
    atomic_store(&disk.wall_s, 0);
    atomic_store(&disk.monotonic_s, 0);
}

static bool ends(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

size_t disk_find(enum disk_call call, const char *end, size_t from)
{
    size_t found = SIZE_MAX;
    pthread_mutex_lock(&lock);
    for (size_t i = from; i < num_events && found == SIZE_MAX; i++)
        if (events[i].call == call && ends(events[i].name, end))
            found = i;
    pthread_mutex_unlock(&lock);
    return found;
}

size_t disk_count(enum disk_call call, const char *end)
{
    size_t count = 0;
    for (size_t i = 0; (i = disk_find(call, end, i)) != SIZE_MAX; i++)
        count++;
    return count;
}

/* ---- The calls ------------------------------------------------------------------------------- */

/* Even a sleep of 0 takes a turn of the scheduler; a checkpoint is read in thousands of calls. */
static void take_longer(const atomic_uint *ms)
{
    const unsigned int pause = atomic_load(ms);
    if (pause > 0)
        usleep(pause * 1000);
}

int fsync(int fd)
{
    struct srv_file manifest;
    take_longer(&disk.fsync_ms);
    srv_file_name(&manifest, SRV_FILE_MANIFEST, atomic_load(&disk.unsafe_manifest));
    if (manifest.generation != 0 && faccessat(fd, manifest.name, F_OK, 0) == 0) {
        errno = EIO;
        return -1;
    }
    int result = (int)syscall(SYS_fsync, fd);
    note_file(DISK_FSYNC, fd);
    return result;
}

int fdatasync(int fd)
{
    char name[256];
    take_longer(&disk.fdatasync_ms);
    name_of(name, fd);
    const bool manifest = atomic_load(&disk.no_manifest) && strstr(name, ".manifest") != NULL;
    if (manifest || atomic_load(&disk.no_flush)) {
        errno = manifest ? ENOSPC : EIO;
        return -1;
    }
    int result = (int)syscall(SYS_fdatasync, fd);
    note_file(DISK_FDATASYNC, fd);
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    const bool full = atomic_load(&disk.full);
    if (full || (count <= FEW && atomic_load(&disk.no_patch))) {
        errno = full ? ENOSPC : EIO;
        return -1;
    }
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, count, at);
    note_file(DISK_PWRITE, fd);
    return written;
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    if (mode != 0 || !atomic_load(&disk.full))
        return (int)syscall(SYS_fallocate, fd, mode, at, size);
    errno = ENOSPC;
    return -1;
}

int ftruncate(int fd, off_t size)
{
    if (!atomic_load(&disk.no_cut))
        return (int)syscall(SYS_ftruncate, fd, size);
    errno = EIO;
    return -1;
}

ssize_t pread(int fd, void *out, size_t count, off_t at)
{
    take_longer(&disk.pread_ms);
    atomic_fetch_add(&disk.monotonic_s, atomic_load(&disk.pread_s));
    int unreadable = atomic_load(&disk.unreadable);
    if (unreadable == 0 && atomic_load(&disk.unreadable_blocks) != 0) {
        char name[256];
        name_of(name, fd);
        unreadable = strstr(name, ".blocks") != NULL ? atomic_load(&disk.unreadable_blocks) : 0;
    }
    if (unreadable != 0) {
        errno = unreadable;
        return -1;
    }
    ssize_t got = syscall(SYS_pread64, fd, out, count, at);
    atomic_fetch_add(&disk.read_bytes, got > 0 ? (size_t)got : 0);
    return got;
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    int result = (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
    note(DISK_RENAME, to);
    return result;
}

int unlinkat(int directory, const char *name, int flags)
{
    int result = (int)syscall(SYS_unlinkat, directory, name, flags);
    note(DISK_UNLINK, name);
    return result;
}

int fstat(int fd, struct stat *out)
{
    int result = (int)syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH);
    if (result == 0 && atomic_load(&disk.image_times)) {
        out->st_ino = 1;
        out->st_mtim = out->st_ctim = (struct timespec){.tv_sec = 1000000000};
    }
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (clock == CLOCK_REALTIME)
        out->tv_sec += (time_t)atomic_load(&disk.wall_s);
    if (clock == CLOCK_MONOTONIC)
        out->tv_sec += (time_t)atomic_load(&disk.monotonic_s);
    return result;
}
