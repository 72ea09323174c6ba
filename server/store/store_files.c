/* store_files.c: names, and files that appear whole. */
#include "store/store_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEXADECIMAL "0123456789abcdef"
#define PIECE ((size_t)256 << 10) /* bytes of an export that are written at a time */

/* ---- Names ----------------------------------------------------------------------------------- */

static const char *const suffixes[] = {
    [SRV_FILE_JOURNAL] = ".journal",
    [SRV_FILE_MANIFEST] = ".manifest",
    [SRV_FILE_COPY] = ".copy",
};
#define NUM_SUFFIXES (sizeof suffixes / sizeof suffixes[0])

void srv_file_name(struct srv_file *out, enum srv_file_kind kind, uint64_t generation)
{
    *out = (struct srv_file){.kind = kind, .generation = generation};
    snprintf(out->name, sizeof out->name, "%016llx%s", (unsigned long long)generation,
             suffixes[kind]);
}

static bool ends_in(const char *name, const char *suffix)
{
    const size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

/* Whether the name is that of a file that was set aside; `out` is then its name before. */
static bool was_set_aside(char out[SRV_FILE_NAME], const char *name)
{
    const char *end = strstr(name, SRV_SET_ASIDE);
    size_t length = end != NULL ? (size_t)(end - name) : SRV_FILE_NAME;
    if (length >= SRV_FILE_NAME || strcmp(end, SRV_SET_ASIDE) != 0)
        return false;
    memcpy(out, name, length);
    out[length] = '\0';
    return true;
}

/* Whether the name is 16 hexadecimal digits and a suffix. */
static bool parse_numbered(struct srv_file *out, const char *name)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%s", name);
    if (strspn(digits, HEXADECIMAL) != 16)
        return false;
    for (size_t i = SRV_FILE_JOURNAL; i < NUM_SUFFIXES && out->kind == SRV_FILE_OTHER; i++)
        if (strcmp(name + 16, suffixes[i]) == 0)
            out->kind = (enum srv_file_kind)i;
    out->generation = strtoull(digits, NULL, 16);
    return out->kind != SRV_FILE_OTHER;
}

static bool parse_name(struct srv_file *out, const char *name)
{
    *out = (struct srv_file){.kind = SRV_FILE_OTHER};
    if (strlen(name) >= sizeof out->name)
        return false;
    memcpy(out->name, name, strlen(name) + 1);
    if (ends_in(name, ".new"))
        out->kind = SRV_FILE_UNFINISHED;
    else if (srv_slot_file_parse(&out->generation, &out->slot_bytes, name))
        out->kind = SRV_FILE_BLOCKS;
    else if (strspn(name, HEXADECIMAL) == 16 &&
             (ends_in(name, ".session") || ends_in(name, ".base")))
        out->kind = SRV_FILE_FORMER;
    return out->kind != SRV_FILE_OTHER || parse_numbered(out, name);
}

static int by_place(const void *a, const void *b)
{
    const struct srv_file *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    return (x->slot_bytes > y->slot_bytes) - (x->slot_bytes < y->slot_bytes);
}

/* Parses the name of a file of the directory, or where `aside` of one that was set aside. */
static bool parse_entry(struct srv_file *out, const char *name, bool aside)
{
    char before[SRV_FILE_NAME];
    if (!aside)
        return parse_name(out, name);
    if (!was_set_aside(before, name) || !parse_name(out, before))
        return false;
    return (size_t)snprintf(out->name, sizeof out->name, "%s", name) < sizeof out->name;
}

static bool list_files(struct srv_file **out, size_t *count, int directory, bool aside)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    size_t capacity = 64, found = 0;
    struct srv_file *list = malloc(capacity * sizeof *list), one;
    const struct dirent *entry;
    if (stream != NULL && list != NULL)
        errno = 0; /* which the end of the list leaves as it is */
    while (stream != NULL && list != NULL && (entry = readdir(stream)) != NULL) {
        if (!parse_entry(&one, entry->d_name, aside))
            continue;
        list[found++] = one;
        if (found < capacity)
            continue;
        capacity *= 2;
        struct srv_file *more = realloc(list, capacity * sizeof *list);
        if (more == NULL)
            free(list);
        list = more;
    }
    int error = errno;
    if (stream != NULL)
        closedir(stream);
    else if (fd >= 0)
        close(fd);
    errno = error;
    if (stream == NULL || list == NULL || error != 0) { /* a part of the list would mislead */
        free(list);
        return false;
    }
    qsort(list, found, sizeof *list, by_place);
    *out = list;
    *count = found;
    return true;
}

bool srv_files_list(struct srv_file **out, size_t *count, int directory)
{
    return list_files(out, count, directory, false);
}

bool srv_files_list_set_aside(struct srv_file **out, size_t *count, int directory)
{
    return list_files(out, count, directory, true);
}

const struct srv_file *srv_files_newest_manifest(const struct srv_file files[], size_t count,
                                                 uint64_t before)
{
    const struct srv_file *newest = NULL;
    for (size_t i = 0; i < count; i++)
        if (srv_file_is_manifest(&files[i]) && files[i].generation < before &&
            (newest == NULL || files[i].generation > newest->generation))
            newest = &files[i];
    return newest;
}

void srv_file_set_aside(int directory, const char *name)
{
    char aside[SRV_FILE_NAME + sizeof SRV_SET_ASIDE];
    snprintf(aside, sizeof aside, "%s" SRV_SET_ASIDE, name);
    (void)renameat(directory, name, directory, aside);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void unfinished(char out[SRV_FILE_NAME + 4], const char *name)
{
    snprintf(out, SRV_FILE_NAME + 4, "%s.new", name);
}

int srv_file_begin(int directory, const char *name)
{
    char other[SRV_FILE_NAME + 4];
    unfinished(other, name);
    return openat(directory, other, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void srv_file_abandon(int directory, int fd, const char *name)
{
    char other[SRV_FILE_NAME + 4];
    int error = errno;
    unfinished(other, name);
    if (fd >= 0)
        close(fd);
    unlinkat(directory, other, 0);
    errno = error;
}

bool srv_file_finish(int directory, int fd, const char *name, bool sync)
{
    char other[SRV_FILE_NAME + 4];
    unfinished(other, name);
    if (sync && fsync(fd) != 0) {
        srv_file_abandon(directory, fd, name);
        return false;
    }
    if (close(fd) != 0 || renameat(directory, other, directory, name) != 0) {
        srv_file_abandon(directory, -1, name);
        return false;
    }
    return true;
}

/* Writes all of it at a place of the file. */
static bool write_at(int fd, const void *bytes, size_t size, size_t place)
{
    const char *from = bytes;
    while (size > 0) {
        ssize_t written = pwrite(fd, from, size, (off_t)place);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        from += written;
        place += (size_t)written;
        size -= (size_t)written;
    }
    return true;
}

/* Room on the disk is taken first, so that a file too large for it fails before others are without
 * room.  That is no promise: each write can fail nevertheless.  A file that is mapped instead would
 * end the daemon then, by SIGBUS. */
static bool fill(int fd, struct attn_export *state)
{
    char *piece = malloc(PIECE);
    size_t count = 1, place;
    int error = piece == NULL ? ENOMEM : posix_fallocate(fd, 0, (off_t)attn_export_bytes(state));
    while (error == 0 && count > 0) {
        count = attn_export_piece(&place, piece, state, PIECE);
        error = write_at(fd, piece, count, place) ? 0 : errno;
    }
    free(piece);
    errno = error;
    return error == 0;
}

bool srv_file_export(int directory, const char *name, struct attn_export *state, bool sync)
{
    int fd = srv_file_begin(directory, name);
    if (fd < 0)
        return false;
    if (!fill(fd, state)) {
        srv_file_abandon(directory, fd, name);
        return false;
    }
    return srv_file_finish(directory, fd, name, sync);
}
