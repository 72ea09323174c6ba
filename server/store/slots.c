/* slots.c: which slots are free, and writing and reading them.
 *
 * A file has four bits for each slot: it is taken; it was dropped after the newest moment began, or
 * before; it holds room on the disk.  A dropped slot stays taken until a moment has ended.
 *
 * Room for slots is had by fallocate before they are written, so that a full disk refuses them and
 * no write.  Files grow by their size, by 1 MiB at least and SRV_SLOT_GROWTH at most: under
 * O_DIRECT writes that lengthen a file come one after another. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/slots_internal.h"

#define LEAST_GROWTH ((size_t)1 << 20)
#define WORD SRV_SLOT_WORD
/* ---- Names ----------------------------------------------------------------------------------- */

void srv_slot_file_name(char out[SRV_SLOT_FILE_NAME], uint64_t generation, size_t bytes)
{
    snprintf(out, SRV_SLOT_FILE_NAME, "%016" PRIx64 "-%08x.blocks", generation, (unsigned)bytes);
}

bool srv_slot_file_parse(uint64_t *generation, size_t *bytes, const char *name)
{
    char again[SRV_SLOT_FILE_NAME];
    unsigned size = 0;
    if (sscanf(name, "%16" SCNx64 "-%8x", generation, &size) != 2)
        return false;
    *bytes = size;
    srv_slot_file_name(again, *generation, *bytes);
    return strcmp(again, name) == 0 && *bytes > 0 && *bytes % SRV_SLOT_UNIT == 0 &&
           *bytes <= SRV_MAX_SLOT_BYTES;
}

size_t srv_slot_bytes(size_t block)
{
    return (block + SRV_SLOT_UNIT - 1) / SRV_SLOT_UNIT * SRV_SLOT_UNIT;
}

/* ---- Bits ------------------------------------------------------------------------------------ */

static uint64_t bit(uint64_t index) { return UINT64_C(1) << index % WORD; }

static struct srv_slot_word *word_of(const struct srv_slot_file *file, uint64_t index)
{
    return &file->words[index / WORD];
}

/* The first slot from `at` on that is taken, or that is not; `end` where there is none before. */
static uint64_t find(const struct srv_slot_file *file, uint64_t at, uint64_t end, bool taken)
{
    while (at < end) {
        const uint64_t words = word_of(file, at)->taken;
        const uint64_t rest = (taken ? words : ~words) >> at % WORD;
        if (rest != 0) {
            at += (uint64_t)__builtin_ctzll(rest);
            return at < end ? at : end;
        }
        at = (at / WORD + 1) * WORD;
    }
    return end;
}

/* Looks for a run of `count` free slots among [at, end); `enough` will do.  Returns the length of
 * the first such run, or else of the longest, and where it begins. */
static uint64_t find_run(uint64_t *out, const struct srv_slot_file *file, uint64_t at, uint64_t end,
                         uint64_t enough)
{
    uint64_t longest = 0;
    while (longest < enough && (at = find(file, at, end, false)) < end) {
        const uint64_t stop = find(file, at, end, true);
        if (stop - at > longest) {
            longest = stop - at;
            *out = at;
        }
        at = stop;
    }
    return longest;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static size_t num_words(uint64_t count) { return (size_t)((count + WORD - 1) / WORD); }

static bool grow_words(struct srv_slots *slots, struct srv_slot_file *file, uint64_t count)
{
    const size_t before = num_words(file->count), after = num_words(count);
    pthread_mutex_lock(&slots->lock);
    struct srv_slot_word *words = realloc(file->words, after * sizeof *words);
    if (words != NULL) {
        memset(words + before, 0, (after - before) * sizeof *words);
        file->words = words;
        file->count = count;
    }
    pthread_mutex_unlock(&slots->lock);
    errno = ENOMEM;
    return words != NULL;
}

static void close_file(struct srv_slot_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->words);
    free(file);
}

/* Opens a regular file past the system's cache, where that can be done, and says how many bytes it
 * has, and whether it can be read only.  -1 with errno. */
static int open_file(size_t *bytes, bool *read_only, int directory, const char *name, int flags)
{
    struct stat facts;
    flags |= O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(directory, name, flags | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) /* which may have made the file */
        fd = openat(directory, name, flags & ~O_EXCL, 0600);
    *read_only =
        fd < 0 && (flags & O_CREAT) == 0 && (errno == EROFS || errno == EACCES || errno == EPERM);
    if (*read_only)
        fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    const int error = fstat(fd, &facts) != 0 ? errno : S_ISREG(facts.st_mode) ? 0 : EINVAL;
    *bytes = error == 0 ? (size_t)facts.st_size : 0;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

/* Opens a file, or with O_CREAT makes one, and adds it to the table, its slots free and held.  NULL
 * with errno. */
static struct srv_slot_file *add_file(struct srv_slots *slots, uint64_t generation, size_t bytes,
                                      int flags)
{
    char name[SRV_SLOT_FILE_NAME];
    size_t size;
    bool read_only;
    if (slots->num_files == SRV_SLOT_FILES) {
        errno = ENFILE;
        return NULL;
    }
    struct srv_slot_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    srv_slot_file_name(name, generation, bytes);
    *file = (struct srv_slot_file){.generation = generation, .bytes = bytes};
    file->fd = open_file(&size, &read_only, slots->directory, name, flags);
    file->kept = read_only || generation <= slots->kept;
    if (file->fd < 0 || (size >= bytes && !grow_words(slots, file, size / bytes))) {
        const int error = errno;
        close_file(file);
        errno = error;
        return NULL;
    }
    for (uint64_t i = 0; i < file->count; i++)
        word_of(file, i)->held |= bit(i);
    slots->made_file = slots->made_file || (flags & O_CREAT) != 0;
    pthread_mutex_lock(&slots->lock);
    slots->files[slots->num_files++] = file;
    pthread_mutex_unlock(&slots->lock);
    return file;
}

static uint32_t find_file(const struct srv_slots *slots, uint64_t generation, size_t bytes)
{
    uint32_t i = 0;
    while (i < slots->num_files && (slots->files[i]->generation != generation ||
                                    slots->files[i]->bytes != bytes || slots->files[i]->gone))
        i++;
    return i;
}

/* The file that blocks of a size are written to, also one of an earlier daemon; NULL: none. */
static struct srv_slot_file *find_growing(const struct srv_slots *slots, size_t bytes)
{
    struct srv_slot_file *found = NULL;
    for (uint32_t i = 0; i < slots->num_files && found == NULL; i++)
        if (slots->files[i]->bytes == bytes && !slots->files[i]->kept && !slots->files[i]->gone)
            found = slots->files[i];
    return found;
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct srv_slots *srv_slots_new(int directory, uint64_t generation, unsigned number)
{
    struct srv_slots *slots = calloc(1, sizeof *slots);
    if (slots == NULL)
        return NULL;
    slots->directory = directory;
    slots->generation = generation;
    slots->base = (uint32_t)number * SRV_SLOT_FILES;
    pthread_mutex_init(&slots->lock, NULL);
    return slots;
}

void srv_slots_free(struct srv_slots *slots)
{
    if (slots == NULL)
        return;
    for (uint32_t i = 0; i < slots->num_files; i++)
        close_file(slots->files[i]);
    pthread_mutex_destroy(&slots->lock);
    free(slots->buffer);
    free(slots);
}

uint64_t srv_slot_generation(const struct srv_slots *slots, struct srv_slot slot)
{
    return srv_slot_file(slots, slot)->generation;
}

/* ---- Files that stay, or go ------------------------------------------------------------------ */

static bool has_taken(const struct srv_slot_file *file)
{
    return find(file, 0, file->count, true) < file->count;
}

bool srv_slots_need(const struct srv_slots *slots, uint64_t generation, size_t bytes)
{
    const uint32_t i = find_file(slots, generation, bytes);
    return generation <= slots->kept || (i < slots->num_files && has_taken(slots->files[i]));
}

void srv_slots_keep(struct srv_slots *slots, uint64_t manifest)
{
    const uint64_t last = manifest < UINT32_MAX ? manifest << 32 | UINT32_MAX : slots->generation;
    slots->kept = last > slots->kept ? last : slots->kept;
    slots->generation = slots->generation > last ? slots->generation : last + 1;
    for (uint32_t i = 0; i < slots->num_files; i++)
        if (slots->files[i]->generation <= slots->kept)
            slots->files[i]->kept = true;
}

bool srv_slots_find_removed(char out[SRV_SLOT_FILE_NAME], struct srv_slots *slots)
{
    bool needed = false;
    for (uint32_t i = 0; i < slots->num_files; i++) {
        struct srv_slot_file *file = slots->files[i];
        struct stat open, named;
        char name[SRV_SLOT_FILE_NAME];
        srv_slot_file_name(name, file->generation, file->bytes);
        if (file->gone || fstat(file->fd, &open) != 0 ||
            (fstatat(slots->directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
             open.st_ino == named.st_ino && open.st_dev == named.st_dev))
            continue;
        file->gone = true;
        slots->generation++; /* another file may have its name */
        if (has_taken(file)) {
            memcpy(out, name, sizeof name);
            needed = true;
        }
    }
    return needed;
}

bool srv_slot_is_gone(const struct srv_slots *slots, struct srv_slot slot)
{
    return srv_slot_file(slots, slot)->gone;
}

/* ---- A start --------------------------------------------------------------------------------- */

bool srv_slots_hold(struct srv_slot *out, bool *first, struct srv_slots *slots, uint64_t generation,
                    uint64_t index, size_t bytes)
{
    const size_t size = srv_slot_bytes(bytes);
    uint32_t i = find_file(slots, generation, size);
    if (i == slots->num_files && add_file(slots, generation, size, 0) == NULL)
        return false;
    struct srv_slot_file *file = slots->files[i];
    if (index >= file->count) {
        errno = ENOENT;
        return false;
    }
    *first = (word_of(file, index)->taken & bit(index)) == 0;
    word_of(file, index)->taken |= bit(index);
    *out = (struct srv_slot){slots->base + i, index};
    return true;
}

/* ---- Taking ---------------------------------------------------------------------------------- */

/* Has the file system keep room for slots [first, first + count).  A file system that cannot do
 * that meets a full disk when they are written. */
static bool hold_room(const struct srv_slot_file *file, uint64_t first, uint64_t count)
{
    const off_t at = (off_t)(first * file->bytes), size = (off_t)(count * file->bytes);
    return fallocate(file->fd, 0, at, size) == 0 ||
           (errno == EOPNOTSUPP && (at + size <= (off_t)(file->count * file->bytes) ||
                                    ftruncate(file->fd, at + size) == 0));
}

static bool grow(struct srv_slots *slots, struct srv_slot_file *file, uint64_t count)
{
    const uint64_t before = file->count, size = before * file->bytes;
    uint64_t more = size < LEAST_GROWTH ? LEAST_GROWTH : size;
    more = (more < SRV_SLOT_GROWTH ? more : SRV_SLOT_GROWTH) / file->bytes;
    if (more < count || !hold_room(file, before, more))
        more = count;
    if (!hold_room(file, before, more) || !grow_words(slots, file, before + more))
        return false;
    for (uint64_t i = before; i < file->count; i++)
        word_of(file, i)->held |= bit(i);
    return true;
}

/* Finds a run of free slots of that size, in each file first from where the last was taken on. */
static uint64_t find_free(struct srv_slot *out, const struct srv_slots *slots, size_t bytes,
                          uint64_t enough)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < 2 * slots->num_files && longest < enough; i++) {
        const struct srv_slot_file *file = slots->files[i / 2];
        const uint64_t from = i % 2 == 0 ? file->next : 0;
        uint64_t at = 0, found = 0;
        if (file->bytes == bytes && !file->kept && !file->gone)
            found = find_run(&at, file, from, i % 2 == 0 ? file->count : file->next, enough);
        if (found > longest) {
            longest = found;
            *out = (struct srv_slot){slots->base + i / 2, at};
        }
    }
    return longest;
}

/* Gives slots [at, at + count) room on the disk where they have none, and takes them. */
static bool take_run(struct srv_slots *slots, struct srv_slot_file *file, uint64_t at,
                     uint64_t count)
{
    bool held = true;
    for (uint64_t i = at; i < at + count; i++)
        held = held && (word_of(file, i)->held & bit(i)) != 0;
    if (!held && !hold_room(file, at, count))
        return false;
    pthread_mutex_lock(&slots->lock);
    for (uint64_t i = at; i < at + count; i++) {
        word_of(file, i)->held |= bit(i);
        word_of(file, i)->taken |= bit(i);
    }
    file->next = at + count;
    pthread_mutex_unlock(&slots->lock);
    return true;
}

size_t srv_slots_take(struct srv_slot *first, struct srv_slots *slots, size_t bytes, size_t count)
{
    const size_t size = srv_slot_bytes(bytes);
    if (bytes == 0 || size > SRV_MAX_SLOT_BYTES || count == 0) {
        errno = EINVAL;
        return 0;
    }
    const uint64_t run = (SRV_SLOT_RUN + size - 1) / size, enough = count < run ? count : run;
    uint64_t found = find_free(first, slots, size, enough);
    struct srv_slot_file *file = find_growing(slots, size);
    if (found < enough && file == NULL)
        file = add_file(slots, slots->generation, size, O_CREAT | O_EXCL);
    if (found < enough && file != NULL && grow(slots, file, enough))
        found = find_free(first, slots, size, enough);
    found = found < count ? found : count;
    if (found > 0)
        file = srv_slot_file(slots, *first);
    if (found > 0 && take_run(slots, file, first->index, found))
        return (size_t)found;
    srv_slot_file_name(slots->failed, file != NULL ? file->generation : slots->generation, size);
    return 0;
}

/* ---- Giving back ----------------------------------------------------------------------------- */

void srv_slots_release(struct srv_slots *slots, struct srv_slot slot)
{
    struct srv_slot_word *word = word_of(srv_slot_file(slots, slot), slot.index);
    pthread_mutex_lock(&slots->lock);
    word->taken &= ~bit(slot.index);
    pthread_mutex_unlock(&slots->lock);
}

void srv_slots_drop(struct srv_slots *slots, struct srv_slot slot)
{
    pthread_mutex_lock(&slots->lock);
    word_of(srv_slot_file(slots, slot), slot.index)->dropped |= bit(slot.index);
    pthread_mutex_unlock(&slots->lock);
}

const char *srv_slots_failed(const struct srv_slots *slots) { return slots->failed; }

void srv_slots_begin_moment(struct srv_slots *slots)
{
    pthread_mutex_lock(&slots->lock);
    slots->failed[0] = '\0';
    for (uint32_t i = 0; i < slots->num_files; i++)
        for (size_t w = 0; w < num_words(slots->files[i]->count); w++) {
            struct srv_slot_word *word = &slots->files[i]->words[w];
            word->leaving |= word->dropped;
            word->dropped = 0;
        }
    pthread_mutex_unlock(&slots->lock);
}

void srv_slots_end_moment(struct srv_slots *slots)
{
    pthread_mutex_lock(&slots->lock);
    for (uint32_t i = 0; i < slots->num_files; i++)
        for (size_t w = 0; w < num_words(slots->files[i]->count); w++) {
            struct srv_slot_word *word = &slots->files[i]->words[w];
            word->taken &= ~word->leaving;
            word->leaving = 0;
        }
    pthread_mutex_unlock(&slots->lock);
}

/* The first free slot from *at on that holds room, and how many are one after another, `most` at
 * most; 0: there is none. */
static uint64_t find_held(uint64_t *at, const struct srv_slot_file *file, uint64_t most)
{
    uint64_t count = 0;
    for (; *at < file->count && count == 0; *at += count == 0) {
        *at = find(file, *at, file->count, false);
        for (uint64_t i = *at; i < file->count && count < most; i++, count++)
            if ((word_of(file, i)->held & ~word_of(file, i)->taken & bit(i)) == 0)
                break;
    }
    return count;
}

static bool punch_run(struct srv_slots *slots, struct srv_slot_file *file, uint64_t at,
                      uint64_t count)
{
    slots->keeps_holes = fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   (off_t)(at * file->bytes), (off_t)(count * file->bytes)) != 0;
    pthread_mutex_lock(&slots->lock);
    for (uint64_t i = at; i < at + count && !slots->keeps_holes; i++)
        word_of(file, i)->held &= ~bit(i);
    pthread_mutex_unlock(&slots->lock);
    return !slots->keeps_holes;
}

bool srv_slots_punch(struct srv_slots *slots, size_t bytes)
{
    struct srv_slots_figures figures;
    srv_slots_describe(&figures, slots);
    const size_t reserve = figures.used / 32 + LEAST_GROWTH;
    size_t spare = figures.held - figures.used;
    for (uint32_t i = 0; i < slots->num_files && !slots->keeps_holes; i++) {
        struct srv_slot_file *file = slots->files[i];
        uint64_t at = 0, count = !file->kept && !file->gone;
        while (spare > reserve && count > 0) {
            const size_t most = spare - reserve < bytes ? spare - reserve : bytes;
            if (bytes == 0)
                return true;
            count = find_held(&at, file, (most + file->bytes - 1) / file->bytes);
            if (count > 0 && !punch_run(slots, file, at, count))
                return false;
            const size_t given = (size_t)count * file->bytes;
            spare -= given < spare ? given : spare;
            bytes -= given < bytes ? given : bytes;
        }
    }
    return false;
}

/* ---- Figures --------------------------------------------------------------------------------- */

void srv_slots_describe(struct srv_slots_figures *out, struct srv_slots *slots)
{
    *out = (struct srv_slots_figures){0};
    pthread_mutex_lock(&slots->lock);
    for (uint32_t i = 0; i < slots->num_files; i++) {
        const struct srv_slot_file *file = slots->files[i];
        for (size_t w = 0; w < num_words(file->count); w++) {
            const struct srv_slot_word *word = &file->words[w];
            out->used += (size_t)__builtin_popcountll(word->taken) * file->bytes;
            out->waiting +=
                (size_t)__builtin_popcountll(word->dropped | word->leaving) * file->bytes;
            out->held += (size_t)__builtin_popcountll(word->held | word->taken) * file->bytes;
        }
    }
    out->written = slots->written;
    pthread_mutex_unlock(&slots->lock);
}
