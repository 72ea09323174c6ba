/* file_reader.c: a window over a file. */
#include "store/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL 8 /* what takes an eighth of the window or less moves it */

bool srv_file_reader_take(struct srv_file_reader *out, int fd)
{
    struct stat facts;
    *out = (struct srv_file_reader){.fd = fd, .room = SRV_FILE_READER_WINDOW};
    int error = fstat(fd, &facts) != 0 ? errno : S_ISREG(facts.st_mode) ? 0 : EINVAL;
    if (error == 0) {
        out->size = (size_t)facts.st_size;
        return true;
    }
    close(fd);
    errno = error;
    return false;
}

bool srv_file_reader_open(struct srv_file_reader *out, int directory, const char *name)
{
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 && srv_file_reader_take(out, fd);
}

void srv_file_reader_close(struct srv_file_reader *source)
{
    close(source->fd);
    free(source->window);
}

void srv_file_reader_report(const struct srv_file_reader *source, size_t end)
{
    if (source->progress != NULL)
        source->progress(source->context, end);
}

static bool fetch(void *out, struct srv_file_reader *source, size_t at, size_t count)
{
    unsigned char *next = out;
    while (count > 0 && source->error == 0) {
        ssize_t got = pread(source->fd, next, count, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) { /* or it has become shorter */
            source->error = got < 0 ? errno : EIO;
            return false;
        }
        next += got;
        at += (size_t)got;
        count -= (size_t)got;
        srv_file_reader_report(source, at);
    }
    return source->error == 0;
}

static bool holds(const struct srv_file_reader *source, size_t at, size_t count)
{
    return at >= source->at && count <= source->have && at - source->at <= source->have - count;
}

/* Moves the window to `at`. */
static bool move(struct srv_file_reader *source, size_t at)
{
    size_t left = source->size - at;
    if (source->window == NULL && (source->window = malloc(source->room)) == NULL)
        source->error = errno;
    source->at = at;
    source->have = 0;
    if (!fetch(source->window, source, at, left < source->room ? left : source->room))
        return false;
    source->have = left < source->room ? left : source->room;
    return true;
}

bool srv_file_reader_read(void *out, struct srv_file_reader *source, size_t at, size_t count)
{
    if (!holds(source, at, count) && count <= source->room / SMALL && !move(source, at))
        return false;
    if (!holds(source, at, count))
        return fetch(out, source, at, count);
    memcpy(out, source->window + (at - source->at), count);
    return source->error == 0;
}

bool srv_file_reader_sum(struct srv_checksum *sum, struct srv_file_reader *source, size_t at,
                         size_t count)
{
    while (count > 0) {
        size_t piece = count < source->room ? count : source->room;
        if (!holds(source, at, piece) && !move(source, at))
            return false;
        srv_checksum_add(sum, source->window + (at - source->at), piece);
        at += piece;
        count -= piece;
    }
    return source->error == 0;
}

const void *srv_file_reader_whole(struct srv_file_reader *source)
{
    bool fits = source->size <= source->room;
    return fits && (holds(source, 0, source->size) || move(source, 0)) ? source->window : NULL;
}
