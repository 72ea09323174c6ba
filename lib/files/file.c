/* file.c: open and pread, with short reads, signals and files that are no regular files. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basics/status.h"
#include "basics/text.h"

static enum attn_status fail_errno(struct attn_error *error, const char *name, int code)
{
    char text[64];
    bool absent = code == ENOENT || code == ENOTDIR;
    return attn_fail(error, absent ? ATTN_NOT_FOUND : ATTN_IO, name, "%s: %s", name,
                     strerror_r(code, text, sizeof text));
}

enum attn_status attn_file_open(int *out, size_t *size, int directory, const char *name,
                                struct attn_error *error)
{
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return fail_errno(error, name, errno);

    struct stat info;
    enum attn_status status = ATTN_OK;
    if (fstat(file, &info) != 0)
        status = fail_errno(error, name, errno);
    else if (!S_ISREG(info.st_mode))
        status = attn_fail(error, ATTN_IO, name, "%s: not a regular file", name);
    if (status != ATTN_OK) {
        close(file);
        return status;
    }
    *out = file;
    *size = (size_t)info.st_size;
    return ATTN_OK;
}

enum attn_status attn_file_read(void *out, int file, const char *name, size_t offset, size_t count,
                                struct attn_error *error)
{
    char *next = out;
    while (count > 0) {
        ssize_t got = pread(file, next, count, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(error, name, errno);
        if (got == 0)
            return attn_fail(error, ATTN_IO, name, "%s: ends %zu bytes too early", name, count);
        next += got;
        offset += (size_t)got;
        count -= (size_t)got;
    }
    return ATTN_OK;
}

enum attn_status attn_file_slurp(char **out, size_t *length, int directory, const char *name,
                                 size_t limit, struct attn_error *error)
{
    int file;
    size_t size;
    enum attn_status status = attn_file_open(&file, &size, directory, name, error);
    if (status != ATTN_OK)
        return status;

    char *text = NULL;
    if (size > limit)
        status = attn_fail(error, ATTN_MALFORMED, name, "%s: %zu bytes, at most %zu are read", name,
                           size, limit);
    else if ((text = attn_alloc(size + 1, 1)) == NULL)
        status = attn_fail_memory(error, size + 1);
    else
        status = attn_file_read(text, file, name, 0, size, error);
    close(file);
    if (status != ATTN_OK) {
        attn_free(text);
        return status;
    }
    size = attn_text_drop_mark(text, size);
    text[size] = '\0';
    *out = text;
    *length = size;
    return ATTN_OK;
}

DIR *attn_list_directory(int directory)
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (list == NULL && copy >= 0)
        close(copy);
    return list;
}
