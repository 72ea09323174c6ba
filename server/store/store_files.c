/* store_files.c: names, files that appear whole, and bases. */
#include "store/store_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"

#define PIECE ((size_t)256 << 10) /* bytes of an export that are written at a time */

/* ---- Names ----------------------------------------------------------------------------------- */

static const char *const suffixes[] = {
    [SRV_FILE_JOURNAL] = ".journal", [SRV_FILE_SESSION] = ".session", [SRV_FILE_BASE] = ".base"};

void srv_file_name(struct srv_file *out, enum srv_file_kind kind, uint64_t generation,
                   uint64_t epoch)
{
    *out = (struct srv_file){.kind = kind, .epoch = epoch, .generation = generation};
    if (kind == SRV_FILE_SESSION)
        snprintf(out->name, sizeof out->name, "%016llx-%016llx.session", (unsigned long long)epoch,
                 (unsigned long long)generation);
    else
        snprintf(out->name, sizeof out->name, "%016llx%s", (unsigned long long)generation,
                 suffixes[kind]);
}

/* Reads 16 digits off *at. */
static bool take_number(uint64_t *out, const char **at)
{
    char digits[17];
    if (strspn(*at, "0123456789abcdef") != 16)
        return false;
    memcpy(digits, *at, 16);
    digits[16] = '\0';
    *out = strtoull(digits, NULL, 16);
    *at += 16;
    return true;
}

#define SET_ASIDE ".damaged"

/* Whether the name is that of a file that was set aside; `out` is then its name before. */
static bool was_set_aside(char out[SRV_FILE_NAME], const char *name)
{
    const char *end = strstr(name, SET_ASIDE);
    size_t length = end != NULL ? (size_t)(end - name) : SRV_FILE_NAME;
    if (length >= SRV_FILE_NAME || strcmp(end, SET_ASIDE) != 0)
        return false;
    memcpy(out, name, length);
    out[length] = '\0';
    return true;
}

static bool parse_name(struct srv_file *out, const char *name)
{
    uint64_t first = 0, second = 0;
    const char *at = name;
    size_t length = strlen(name);
    enum srv_file_kind kind = SRV_FILE_OTHER;
    if (length >= sizeof out->name)
        return false;
    if (length > 4 && strcmp(name + length - 4, ".new") == 0)
        kind = SRV_FILE_UNFINISHED;
    else if (!take_number(&first, &at))
        return false;
    else if (*at == '-' && (at++, take_number(&second, &at)))
        kind = SRV_FILE_SESSION;
    for (size_t i = SRV_FILE_JOURNAL; kind == SRV_FILE_OTHER && i <= SRV_FILE_BASE; i++)
        if (i != SRV_FILE_SESSION && strcmp(at, suffixes[i]) == 0)
            kind = (enum srv_file_kind)i;
    if (kind == SRV_FILE_OTHER ||
        (kind == SRV_FILE_SESSION && strcmp(at, suffixes[SRV_FILE_SESSION]) != 0))
        return false;
    *out = (struct srv_file){.kind = kind};
    out->epoch = kind == SRV_FILE_SESSION ? first : 0;
    out->generation = kind == SRV_FILE_SESSION ? second : first;
    memcpy(out->name, name, length + 1);
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct srv_file *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
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
        one.irregular = entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN;
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

bool srv_files_have_session(const struct srv_file files[], size_t count, uint64_t generation,
                            uint64_t epoch)
{
    const struct srv_file key = {
        .kind = SRV_FILE_SESSION, .generation = generation, .epoch = epoch};
    const struct srv_file *found = bsearch(&key, files, count, sizeof key, by_place);
    return found != NULL && !found->irregular;
}

bool srv_files_list_set_aside(struct srv_file **out, size_t *count, int directory)
{
    return list_files(out, count, directory, true);
}

void srv_file_set_aside(int directory, const char *name)
{
    char aside[SRV_FILE_NAME + sizeof SET_ASIDE];
    snprintf(aside, sizeof aside, "%s" SET_ASIDE, name);
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

/* ---- Bases -----------------------------------------------------------------------------------
 *
 * A head, the entries, the shares, the time as an entry of epoch 0, the sessions in the order of
 * the entries, and a tail. */

#define MAGIC "ATTNBAS2"
#define OLDER_MAGIC "ATTNBASE" /* of versions 1 to 5, with checksums of another kind */

struct base_head {
    char magic[8];
    uint64_t generation, count;
    uint64_t version, sum; /* of the head without it, and of all that follows */
};

struct base_tail {
    uint64_t shares, session_bytes, zero;
};

_Static_assert(sizeof(struct base_head) == 40 && sizeof(struct srv_base_entry) == 24 &&
                   sizeof(struct srv_share) == 24 && sizeof(struct base_tail) == 24 &&
                   sizeof(struct srv_base_session) == 504 && sizeof(struct srv_base_layer) == 32 &&
                   offsetof(struct srv_base_session, revision) == 480,
               "no padding");

/* The head of a base but its sum, which is begun. */
static struct base_head base_head(XXH3_state_t *sum, uint64_t generation, size_t entries)
{
    struct base_head head = {
        .magic = MAGIC, .generation = generation, .count = entries, .version = SRV_BASE_VERSION};
    XXH3_64bits_reset(sum);
    XXH3_64bits_update(sum, &head, offsetof(struct base_head, sum));
    return head;
}

size_t srv_base_session_bytes(size_t num_layers)
{
    return sizeof(struct srv_base_session) + num_layers * sizeof(struct srv_base_layer);
}

/* A part of a base's file; each has a multiple of 8 bytes. */
static struct srv_record_part session_part(const struct srv_base *base, size_t i)
{
    const struct srv_base_session *session = base->sessions[i];
    return (struct srv_record_part){session, srv_base_session_bytes((size_t)session->num_layers)};
}

size_t srv_base_bytes(const struct srv_base *base)
{
    size_t bytes = sizeof(struct base_head) + base->num_shares * sizeof *base->shares +
                   (base->num_entries + 1) * sizeof *base->entries;
    for (size_t i = 0; i < base->num_entries; i++)
        bytes += session_part(base, i).size;
    return bytes + sizeof(struct base_tail);
}

/* Writes a part at *place, which moves to its end. */
static bool write_part(int fd, const void *bytes, size_t size, size_t *place)
{
    *place += size;
    return write_at(fd, bytes, size, *place - size);
}

static bool write_base(int fd, const struct base_head *head, const struct srv_record_part parts[3],
                       const struct srv_base *base, const struct base_tail *tail)
{
    size_t place = 0;
    bool written = write_part(fd, head, sizeof *head, &place);
    for (size_t i = 0; i < 3 && written; i++)
        written = write_part(fd, parts[i].bytes, parts[i].size, &place);
    for (size_t i = 0; i < base->num_entries && written; i++) {
        const struct srv_record_part part = session_part(base, i);
        written = write_part(fd, part.bytes, part.size, &place);
    }
    return written && write_part(fd, tail, sizeof *tail, &place);
}

bool srv_base_write(int directory, const struct srv_base *base)
{
    struct srv_file file;
    XXH3_state_t sum;
    const struct srv_base_entry time = {0, base->generation, base->time_ns};
    const struct srv_record_part parts[3] = {
        {base->entries, base->num_entries * sizeof *base->entries},
        {base->shares, base->num_shares * sizeof *base->shares},
        {&time, sizeof time},
    };
    struct base_head head = base_head(&sum, base->generation, base->num_entries);
    struct base_tail tail = {.shares = base->num_shares};
    for (size_t i = 0; i < 3; i++)
        XXH3_64bits_update(&sum, parts[i].bytes, parts[i].size);
    for (size_t i = 0; i < base->num_entries; i++) {
        const struct srv_record_part part = session_part(base, i);
        XXH3_64bits_update(&sum, part.bytes, part.size);
        tail.session_bytes += part.size;
    }
    XXH3_64bits_update(&sum, &tail, sizeof tail);
    head.sum = XXH3_64bits_digest(&sum);
    srv_file_name(&file, SRV_FILE_BASE, base->generation, 0);
    int fd = srv_file_begin(directory, file.name);
    if (fd < 0)
        return false;
    if (!write_base(fd, &head, parts, base, &tail)) {
        srv_file_abandon(directory, fd, file.name);
        return false;
    }
    return srv_file_finish(directory, fd, file.name, true) && srv_sync_directory(directory);
}

/* Reads the tail of a base and finds where its parts stand; false where they are not the whole
 * file. */
static bool find_sessions(struct srv_base_size *out, struct srv_file_reader *base)
{
    struct base_tail tail;
    const size_t each = sizeof(struct srv_base_entry), ends = sizeof(struct base_head);
    if (base->size < ends + 2 * each ||
        !srv_file_reader_read(&tail, base, base->size - sizeof tail, sizeof tail))
        return false;
    const size_t records = base->size - ends - 2 * each; /* and sessions */
    if (tail.session_bytes > records || out->entries > (records - tail.session_bytes) / each ||
        tail.shares != (records - tail.session_bytes) / each - out->entries ||
        (records - tail.session_bytes) % each != 0)
        return false;
    out->shares = (size_t)tail.shares;
    out->sessions_end = base->size - sizeof tail;
    out->sessions = out->sessions_end - (size_t)tail.session_bytes;
    return true;
}

/* The time of a base, which stands before the sessions. */
static bool read_time(struct srv_base_size *out, struct srv_file_reader *base)
{
    struct srv_base_entry time;
    if (!srv_file_reader_read(&time, base, out->sessions - sizeof time, sizeof time))
        return false;
    out->time_ns = time.used_ns;
    return true;
}

uint64_t srv_base_version(struct srv_file_reader *base)
{
    XXH3_state_t sum;
    struct base_head found;
    if (base->size < sizeof found || base->size % 4 != 0 ||
        !srv_file_reader_read(&found, base, 0, sizeof found))
        return 0;
    const bool older = memcmp(found.magic, OLDER_MAGIC, sizeof found.magic) == 0;
    if (!older && memcmp(found.magic, MAGIC, sizeof found.magic) != 0)
        return 0;
    if (older || found.version == SRV_BASE_VERSION)
        return found.version;
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, &found, offsetof(struct base_head, sum));
    const bool summed = srv_file_reader_sum(&sum, base, sizeof found, base->size - sizeof found);
    return summed && XXH3_64bits_digest(&sum) == found.sum ? found.version : 0;
}

bool srv_base_check(struct srv_base_size *out, struct srv_file_reader *base, uint64_t generation)
{
    XXH3_state_t sum;
    struct base_head head, found;
    if (base->size < sizeof head || !srv_file_reader_read(&found, base, 0, sizeof found))
        return false;
    *out = (struct srv_base_size){.entries = (size_t)found.count};
    if (base->size % 4 != 0 || !find_sessions(out, base) || !read_time(out, base))
        return false;
    head = base_head(&sum, generation, out->entries);
    if (!srv_file_reader_sum(&sum, base, sizeof found, base->size - sizeof found))
        return false;
    head.sum = XXH3_64bits_digest(&sum);
    return memcmp(&head, &found, sizeof head) == 0;
}

bool srv_base_session(struct srv_base_session *out, size_t *at, struct srv_file_reader *base,
                      const struct srv_base_size *size)
{
    const size_t left = size->sessions_end - *at, head = sizeof *out;
    *out = (struct srv_base_session){0};
    if (left < head || !srv_file_reader_read(out, base, *at, head) ||
        out->num_layers > ATTN_MAX_LAYERS)
        return false;
    const size_t layers = (size_t)out->num_layers * sizeof *out->layers;
    if (layers > left - head || !srv_file_reader_read(out->layers, base, *at + head, layers))
        return false;
    *at += head + layers;
    return true;
}

/* A copy of a part of the file, also where it is empty. */
static bool copy_part(void **out, struct srv_file_reader *base, size_t at, size_t bytes)
{
    *out = malloc(bytes + 1);
    if (*out == NULL)
        base->error = ENOMEM;
    return *out != NULL && srv_file_reader_read(*out, base, at, bytes);
}

bool srv_base_lists(struct srv_base_lists *out, struct srv_file_reader *base,
                    const struct srv_base_size *size)
{
    const size_t at = sizeof(struct base_head), bytes = size->entries * sizeof *out->entries;
    void *entries = NULL, *shares = NULL;
    const bool read = copy_part(&entries, base, at, bytes) &&
                      copy_part(&shares, base, at + bytes, size->shares * sizeof *out->shares);
    *out = (struct srv_base_lists){entries, shares};
    if (!read)
        srv_base_lists_fini(out);
    return read;
}

void srv_base_lists_fini(struct srv_base_lists *lists)
{
    free(lists->entries);
    free(lists->shares);
    *lists = (struct srv_base_lists){0};
}
