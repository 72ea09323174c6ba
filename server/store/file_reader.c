/* file_reader.c: a window over a file, which moves to what is read. */
#include "store/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL 8 /* a read of an eighth of the window or less moves it */

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

void srv_file_reader_close(struct srv_file_reader *reader)
{
    close(reader->fd);
    free(reader->window);
}

static bool fetch(void *out, struct srv_file_reader *reader, size_t at, size_t count)
{
    unsigned char *next = out;
    while (count > 0 && reader->error == 0) {
        ssize_t got = pread(reader->fd, next, count, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) { /* 0: the file has become shorter */
            reader->error = got < 0 ? errno : EIO;
            return false;
        }
        next += got;
        at += (size_t)got;
        count -= (size_t)got;
        if (reader->progress != NULL)
            reader->progress(reader->context, at);
    }
    return reader->error == 0;
}

static bool holds(const struct srv_file_reader *reader, size_t at, size_t count)
{
    return at >= reader->at && count <= reader->have && at - reader->at <= reader->have - count;
}

/* Moves the window to `at`. */
static bool move(struct srv_file_reader *reader, size_t at)
{
    size_t left = reader->size - at;
    if (reader->window == NULL && (reader->window = malloc(reader->room)) == NULL)
        reader->error = errno;
    reader->at = at;
    reader->have = 0;
    if (!fetch(reader->window, reader, at, left < reader->room ? left : reader->room))
        return false;
    reader->have = left < reader->room ? left : reader->room;
    return true;
}

bool srv_file_reader_read(void *out, struct srv_file_reader *reader, size_t at, size_t count)
{
    if (!holds(reader, at, count) && count <= reader->room / SMALL && !move(reader, at))
        return false;
    if (!holds(reader, at, count))
        return fetch(out, reader, at, count);
    memcpy(out, reader->window + (at - reader->at), count);
    return reader->error == 0;
}

bool srv_file_reader_sum(XXH3_state_t *sum, struct srv_file_reader *reader, size_t at, size_t count)
{
    while (count > 0) {
        size_t piece = count < reader->room ? count : reader->room;
        if (!holds(reader, at, piece) && !move(reader, at))
            return false;
        XXH3_64bits_update(sum, reader->window + (at - reader->at), piece);
        at += piece;
        count -= piece;
    }
    return reader->error == 0;
}
