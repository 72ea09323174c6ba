/* file.c: open and pread, with short reads, signals and files that are no regular files; names;
 * posix_fadvise a window ahead of the reader. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "basics/text.h"

#define PART ((size_t)4 << 20) /* bytes that are read ahead at a time */

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

/* ---- Names ---- */

static const char *name_of(const void *item) { return *(const char *const *)item; }

int attn_compare_names(const void *a, const void *b) { return strcmp(name_of(a), name_of(b)); }

const void *attn_sort_names(void *items, size_t count, size_t size)
{
    if (count > 0)
        qsort(items, count, size, attn_compare_names);
    for (const char *item = items; count > 1; item += size, count--)
        if (attn_compare_names(item, item + size) == 0)
            return item + size;
    return NULL;
}

bool attn_visit_names(const void *items, size_t count, size_t size, const char *prefix,
                      attn_visit_name *visit, void *context)
{
    const char *first = items;
    const size_t length = strlen(prefix);
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strncmp(name_of(first + middle * size), prefix, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && strncmp(name_of(first + low * size), prefix, length) == 0; low++)
        if (!visit(context, name_of(first + low * size)))
            return false;
    return true;
}

/* ---- Reading ahead ---- */

bool attn_read_ahead_init(struct attn_read_ahead *ahead, size_t capacity)
{
    *ahead = (struct attn_read_ahead){.capacity = capacity};
    ahead->ranges = attn_alloc(capacity, sizeof *ahead->ranges);
    return ahead->ranges != NULL;
}

void attn_read_ahead_fini(struct attn_read_ahead *ahead)
{
    attn_free(ahead->ranges);
    *ahead = (struct attn_read_ahead){0};
}

void attn_read_ahead_add(struct attn_read_ahead *ahead, int file, size_t offset, size_t count)
{
    if (ahead->count < ahead->capacity)
        ahead->ranges[ahead->count++] = (struct attn_file_range){file, offset, count};
}

void attn_read_ahead_advance(struct attn_read_ahead *ahead, size_t bytes)
{
    ahead->used = attn_add(ahead->used, bytes);
    while (ahead->next < ahead->count && ahead->asked < attn_add(ahead->used, ATTN_AHEAD_BYTES)) {
        const struct attn_file_range *range = &ahead->ranges[ahead->next];
        const size_t part = attn_min(range->count - ahead->at, PART);
        (void)posix_fadvise(range->file, (off_t)(range->offset + ahead->at), (off_t)part,
                            POSIX_FADV_WILLNEED);
        ahead->asked += part;
        ahead->at += part;
        if (ahead->at < range->count)
            continue;
        ahead->next++;
        ahead->at = 0;
    }
}
