/* slow_sync.c: a slow disk: fdatasync and pwrite wait for SLOW_SYNC_MS milliseconds first, as long
 * as the file SLOW_SYNC_FILE exists.  Where a file of that name with .frozen exists, both wait
 * until it does not; with .stuck, fdatasync does.  With NO_DIRECTORY_SYNC no directory can be
 * flushed.
 *
 * Suites load this library into a daemon with LD_PRELOAD. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_while(const char *suffix)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    const char *file = getenv("SLOW_SYNC_FILE");
    char path[512];
    snprintf(path, sizeof path, "%s.%s", file != NULL ? file : "", suffix);
    while (file != NULL && access(path, F_OK) == 0)
        nanosleep(&moment, NULL);
}

static void wait_for_disk(void)
{
    const char *file = getenv("SLOW_SYNC_FILE"), *text = getenv("SLOW_SYNC_MS");
    long ms = text != NULL ? strtol(text, NULL, 10) : 0;
    struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (file != NULL && access(file, F_OK) == 0)
        nanosleep(&wait, NULL);
    wait_while("frozen");
}

int fdatasync(int fd)
{
    wait_for_disk();
    wait_while("stuck");
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    struct stat about;
    if (getenv("NO_DIRECTORY_SYNC") != NULL && fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    wait_for_disk();
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}
