/* text_file.c: from a path to a text in memory, within a bound.
 *
 * The mode of a file of secrets must keep others out: a file that everyone may read holds no
 * secret, and one that everyone may write would let anyone in.  The group may read it, as that is
 * how secrets reach a container whose user is not the owner. */
#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/owner.h"
#include "basics/text.h"

#define WAIT_MS 2000 /* for a named pipe that nobody writes to */

/* Prints what errno says of the path, with the remedy where another user owns it. */
static void explain(const char *path, char *message, size_t size)
{
    char remedy[SRV_OWNER_TEXT] = "";
    const int why = errno;
    if (why == EACCES)
        srv_owner_remedy(remedy, path, SRV_OWNER_READ);
    snprintf(message, size, "%s: %s%s", path, strerror(why), remedy);
}

/* fstat, that it is no directory, and for a secret whether its mode keeps others out. */
static bool check_mode(int fd, const char *path, enum srv_text_kind kind, char *message,
                       size_t size)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        explain(path, message, size);
        return false;
    }
    if (S_ISDIR(about.st_mode)) {
        snprintf(message, size,
                 "%s: Is a directory and not a file; container engines make one where the file to "
                 "mount does not exist: remove it, and make the file",
                 path);
        return false;
    }
    if (kind == SRV_TEXT_PUBLIC || ((about.st_mode & S_IRWXO) == 0 && !(about.st_mode & S_IWGRP)))
        return true;
    snprintf(message, size,
             "%s: holds a secret, but has mode %04o: others must not read it, nor its group "
             "write it (chmod 600, or 640)",
             path, (unsigned)(about.st_mode & 07777));
    return false;
}

/* Reads to the end of the file, or `room` bytes; false with errno.  Waits for a pipe's writer, but
 * not for long: SIGTERM is not seen while the main thread waits here. */
static bool read_whole(char *text, size_t *length, size_t limit, int fd)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    ssize_t count = 1;
    *length = 0;
    while (count != 0 && *length < limit) {
        int ready = poll(&readable, 1, WAIT_MS);
        if (ready == 0)
            errno = ETIMEDOUT;
        count = ready > 0 ? read(fd, text + *length, limit - *length) : -1;
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        *length += count > 0 ? (size_t)count : 0;
    }
    return true;
}

bool srv_text_read(char **out, size_t *length, const char *path, size_t limit,
                   enum srv_text_kind kind, char *message, size_t size)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(limit + 2) : NULL;
    *length = 0;
    *out = NULL;
    if (text == NULL) {
        explain(path, message, size);
    } else if (!check_mode(fd, path, kind, message, size)) {
        /* which has said why */
    } else if (!read_whole(text, length, limit + 1, fd)) {
        snprintf(message, size, "%s: %s", path,
                 errno == ETIMEDOUT ? "a pipe that nobody writes to" : strerror(errno));
    } else if (*length > limit) {
        snprintf(message, size, "%s: more than %zu bytes", path, limit);
    } else if (*length >= 2 &&
               (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) {
        /* as PowerShell and some editors write it */
        snprintf(message, size, "%s: is UTF-16; save it as UTF-8", path);
    } else {
        *length = attn_text_drop_mark(text, *length);
        text[*length] = '\0';
        *out = text;
    }
    if (fd >= 0)
        close(fd);
    if (*out == NULL)
        srv_text_wipe(text, *length);
    return *out != NULL;
}

void srv_text_describe(char out[SRV_TEXT_DESCRIBED], const char *path)
{
    struct stat about;
    struct tm utc;
    char time[32];
    if (stat(path, &about) != 0 || gmtime_r(&about.st_mtime, &utc) == NULL ||
        strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        snprintf(out, SRV_TEXT_DESCRIBED, "%s", strerror(errno));
        return;
    }
    snprintf(out, SRV_TEXT_DESCRIBED, "device %u:%u, inode %llu, written %s", major(about.st_dev),
             minor(about.st_dev), (unsigned long long)about.st_ino, time);
}

void srv_text_wipe(char *text, size_t length)
{
    if (text != NULL)
        explicit_bzero(text, length);
    free(text);
}
