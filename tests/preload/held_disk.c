/* held_disk.c: a disk of which directories can be held, or be full.
 *
 * Where a file `hold` stands beside a file, threads named attnd-read wait before they read from
 * it; where a file `full` stands there, nothing can be written to it at a place.  Suites load this
 * library into a daemon with LD_PRELOAD. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whether a file of that name stands in the directory of the open file. */
static bool has_beside(int fd, const char *name)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 32);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return false;
    snprintf(slash + 1, 32, "%s", name);
    return access(path, F_OK) == 0;
}

ssize_t pread(int fd, void *out, size_t size, off_t at)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    char thread[16] = "";
    prctl(PR_GET_NAME, thread);
    while (strcmp(thread, "attnd-read") == 0 && has_beside(fd, "hold"))
        nanosleep(&moment, NULL);
    return syscall(SYS_pread64, fd, out, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    if (!has_beside(fd, "full"))
        return syscall(SYS_pwrite64, fd, bytes, size, at);
    errno = ENOSPC;
    return -1;
}
