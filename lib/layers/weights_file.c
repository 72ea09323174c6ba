/* weights_file.c: files of packed weights: their directory with its lock and notes; checking,
 * mapping and writing them.
 *
 * The directory itself is locked (flock), so there is no file of a lock to leave behind.  A file of
 * weights is in use while a process holds a shared lock on it.
 *
 * Two things make a mapping as fast as private memory where the system has it: the address and the
 * pieces that are written are multiples of a huge page, so that the page cache can hold the file in
 * such pages.  A file on the disk is compared with its checksum once after the machine started:
 * until it stops, its pages are what was compared, or were read from the same sectors again. */
#include "layers/weights_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "basics/status.h"
#include "files/file.h"

#define KEY_DIGITS 32 /* of the key, in a name */
#define SUFFIX ".weights"
#define NOTE_SUFFIX ".note"
#define POLL_NS 20000000
#define POLLS_A_SECOND (1000000000 / POLL_NS)
#define NOTE_MAX 2048
#define LINE_MAX_BYTES 96
#define MAGIC "attnd weights 1"
#define BUFFER_BYTES ((size_t)4 << 20) /* bytes written at a time */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define VERIFIED "verified" /* the note's fact: compared with its checksum since the boot */

/* ---- The directory ---- */

enum attn_status attn_weights_directory_open(int *out, const char *path, bool make,
                                             struct attn_error *error)
{
    struct stat info;
    char text[64];
    if (make)
        (void)mkdir(path, 0700);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fstat(directory, &info) != 0) {
        int code = errno;
        if (directory >= 0)
            close(directory);
        return attn_fail(error, ATTN_IO, "weights_cache", "weights_cache: %.160s: %s", path,
                         strerror_r(code, text, sizeof text));
    }
    if ((info.st_mode & S_IWOTH) == 0 && (info.st_uid == 0 || info.st_uid == geteuid())) {
        *out = directory;
        return ATTN_OK;
    }
    close(directory);
    if ((info.st_mode & S_IWOTH) != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "weights_cache",
                         "weights_cache: every user may write to %.160s, and so choose results: "
                         "take that right away (chmod o-w)",
                         path);
    return attn_fail(error, ATTN_UNSUPPORTED, "weights_cache",
                     "weights_cache: %.160s belongs to user %ju, who could choose results: "
                     "chown it to user %ju, as which attnd runs, or to root",
                     path, (uintmax_t)info.st_uid, (uintmax_t)geteuid());
}

enum attn_status attn_weights_lock(int directory, struct attn_error *error)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    char text[64];
    for (int i = 0; i < ATTN_WEIGHTS_WAIT_S * POLLS_A_SECOND; i++) {
        if (flock(directory, LOCK_EX | LOCK_NB) == 0)
            return ATTN_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return attn_fail(error, ATTN_IO, "weights_cache", "the directory cannot be locked: %s",
                             strerror_r(errno, text, sizeof text));
        (void)nanosleep(&pause, NULL);
    }
    return attn_fail(error, ATTN_IO, "weights_cache",
                     "another process has been writing to the directory for %d s",
                     ATTN_WEIGHTS_WAIT_S);
}

void attn_weights_print_name(char out[ATTN_WEIGHTS_NAME_MAX], const char *label,
                             const char key[ATTN_CHECKSUM_DIGITS])
{
    snprintf(out, ATTN_WEIGHTS_NAME_MAX, "%.*s.%.*s" SUFFIX, ATTN_WEIGHTS_LABEL_MAX, label,
             KEY_DIGITS, key);
}

/* ---- Files that nobody uses ---- */

/* The rest of a name after LABEL.KEY.weights; NULL where the name does not begin so. */
static const char *rest_of(const char *name, const char *label)
{
    const size_t length = strlen(label), whole = length + 1 + KEY_DIGITS + strlen(SUFFIX);
    if (strlen(name) < whole || strncmp(name, label, length) != 0 || name[length] != '.' ||
        strspn(name + length + 1, "0123456789abcdef") != KEY_DIGITS ||
        strncmp(name + length + 1 + KEY_DIGITS, SUFFIX, strlen(SUFFIX)) != 0)
        return NULL;
    return name + whole;
}

static void remove_unused(int directory, const char *name)
{
    char note[ATTN_WEIGHTS_NAME_MAX + sizeof NOTE_SUFFIX];
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
        snprintf(note, sizeof note, "%s" NOTE_SUFFIX, name);
        (void)unlinkat(directory, name, 0);
        (void)unlinkat(directory, note, 0);
    }
    close(file);
}

void attn_weights_tidy(int directory, const char *label, const char *keep)
{
    DIR *list = attn_list_directory(directory);
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        const char *rest = rest_of(entry->d_name, label);
        if (rest == NULL || strcmp(rest, NOTE_SUFFIX) == 0)
            continue;
        if (rest[0] != '\0')
            (void)unlinkat(directory, entry->d_name, 0);
        else if (strcmp(entry->d_name, keep) != 0)
            remove_unused(directory, entry->d_name);
    }
    if (list != NULL)
        closedir(list);
}

/* ---- Notes ---- */

/* Reads the note; "" where there is none, or one that no process of ours has written. */
static void read_note(char out[NOTE_MAX], int directory, const char *name)
{
    char note[ATTN_WEIGHTS_NAME_MAX + sizeof NOTE_SUFFIX];
    struct stat info;
    ssize_t got = 0;
    snprintf(note, sizeof note, "%s" NOTE_SUFFIX, name);
    int file = openat(directory, note, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_mode & S_IWOTH) == 0)
        got = read(file, out, NOTE_MAX - 1);
    out[got > 0 ? got : 0] = '\0';
    if (file >= 0)
        close(file);
}

static void print_line(char out[LINE_MAX_BYTES], const char *fact,
                       const char digest[ATTN_CHECKSUM_DIGITS])
{
    snprintf(out, LINE_MAX_BYTES, "%.16s %.*s\n", fact, ATTN_CHECKSUM_DIGITS, digest);
}

bool attn_weights_noted(int directory, const char *name, const char *fact,
                        const char digest[ATTN_CHECKSUM_DIGITS])
{
    char text[NOTE_MAX], line[LINE_MAX_BYTES];
    read_note(text, directory, name);
    print_line(line, fact, digest);
    const char *found = strstr(text, line);
    return found != NULL && (found == text || found[-1] == '\n');
}

/* The last lines of a note are kept, as many as leave room for one more. */
void attn_weights_note(int directory, const char *name, const char *fact,
                       const char digest[ATTN_CHECKSUM_DIGITS])
{
    char text[NOTE_MAX + LINE_MAX_BYTES], note[ATTN_WEIGHTS_NAME_MAX + sizeof NOTE_SUFFIX];
    char fresh[sizeof note + 16];
    if (attn_weights_noted(directory, name, fact, digest))
        return;
    read_note(text, directory, name);
    size_t used = strlen(text);
    print_line(text + used, fact, digest);
    const char *first = text, *next;
    for (used = strlen(text); used > NOTE_MAX - 1; used -= (size_t)(next - first), first = next)
        if ((next = strchr(first, '\n')) == NULL || *++next == '\0')
            return;
    snprintf(note, sizeof note, "%s" NOTE_SUFFIX, name);
    snprintf(fresh, sizeof fresh, "%s.%ld", note, (long)getpid());
    int file = openat(directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    struct stat info;
    bool written = write(file, first, used) == (ssize_t)used && fstat(directory, &info) == 0 &&
                   fchmod(file, 0600 | (info.st_mode & 0044)) == 0;
    close(file);
    if (!written || renameat(directory, fresh, directory, note) != 0)
        (void)unlinkat(directory, fresh, 0);
}

/* ---- Reading ---- */

struct header {
    char magic[16];
    char key[ATTN_CHECKSUM_DIGITS];
    char fingerprint[16];
    char checksum[ATTN_CHECKSUM_DIGITS];
    uint64_t bytes; /* of the file */
    char zeros[ATTN_WEIGHTS_HEADER - 3 * ATTN_CHECKSUM_DIGITS - 32 - sizeof(uint64_t)];
    char self[ATTN_CHECKSUM_DIGITS]; /* checksum of all before it */
};
_Static_assert(sizeof(struct header) == ATTN_WEIGHTS_HEADER, "the header has no gaps");

static void checksum_of(char out[ATTN_CHECKSUM_DIGITS], const void *bytes, size_t count)
{
    struct attn_checksum sum;
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, bytes, count);
    attn_checksum_hex(out, &sum);
}

static enum attn_status refuse(const char *why, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, "weights_cache", "the file of weights %s", why);
}

/* Digest of the file's identity and of the machine's start: same digest, same bytes. */
static bool identify(char out[ATTN_CHECKSUM_DIGITS], int file)
{
    struct stat info;
    struct attn_checksum sum;
    char boot[64] = "";
    int source = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t got = source >= 0 ? read(source, boot, sizeof boot) : 0;
    if (source >= 0)
        close(source);
    if (got <= 0 || fstat(file, &info) != 0)
        return false;
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, boot, (size_t)got);
    attn_checksum_add(&sum, &info.st_dev, sizeof info.st_dev);
    attn_checksum_add_stat(&sum, &info);
    attn_checksum_hex(out, &sum);
    return true;
}

static enum attn_status verify(const struct attn_weights_file *file, int directory,
                               const char *name, struct attn_error *error)
{
    char identity[ATTN_CHECKSUM_DIGITS], found[ATTN_CHECKSUM_DIGITS];
    const bool known = identify(identity, file->file);
    if (known && attn_weights_noted(directory, name, VERIFIED, identity))
        return ATTN_OK;
    checksum_of(found, file->memory + ATTN_WEIGHTS_HEADER, file->bytes - ATTN_WEIGHTS_HEADER);
    if (memcmp(found, file->checksum, sizeof found) != 0)
        return refuse("differs from its checksum", error);
    if (known)
        attn_weights_note(directory, name, VERIFIED, identity);
    return ATTN_OK;
}

/* Opens the file and reads its header. */
static enum attn_status open_checked(struct attn_weights_file *out, int directory, const char *name,
                                     const char key[ATTN_CHECKSUM_DIGITS], size_t data,
                                     struct attn_error *error)
{
    struct header header;
    struct stat info;
    char self[ATTN_CHECKSUM_DIGITS];
    const size_t bytes = attn_add(data, ATTN_WEIGHTS_HEADER);
    out->file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (out->file < 0 && errno == ENOENT)
        return attn_fail(error, ATTN_NOT_FOUND, "weights_cache", "there is no file of weights");
    if (out->file < 0 || fstat(out->file, &info) != 0)
        return attn_fail(error, ATTN_IO, "weights_cache", "the file of weights cannot be opened");
    (void)flock(out->file, LOCK_SH | LOCK_NB);
    if (!S_ISREG(info.st_mode) || (info.st_mode & S_IWOTH) != 0)
        return refuse("is no file, or every user may write to it", error);
    if ((size_t)info.st_size != bytes)
        return refuse("has another size", error);
    enum attn_status status =
        attn_file_read(&header, out->file, "weights_cache", 0, sizeof header, error);
    if (status != ATTN_OK)
        return status;
    checksum_of(self, &header, offsetof(struct header, self));
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0 ||
        memcmp(header.self, self, sizeof self) != 0)
        return refuse("has a damaged header", error);
    if (memcmp(header.key, key, sizeof header.key) != 0 || header.bytes != bytes)
        return refuse("is of another model", error);
    out->bytes = bytes;
    memcpy(out->fingerprint, header.fingerprint, sizeof header.fingerprint);
    memcpy(out->checksum, header.checksum, sizeof out->checksum);
    return ATTN_OK;
}

enum attn_status attn_weights_file_open(struct attn_weights_file *out, int directory,
                                        const char *name, const char key[ATTN_CHECKSUM_DIGITS],
                                        size_t data, struct attn_error *error)
{
    *out = (struct attn_weights_file){.file = -1};
    enum attn_status status = open_checked(out, directory, name, key, data, error);
    if (status == ATTN_OK && (out->memory = attn_map_file(out->file, out->bytes)) == NULL)
        status = attn_fail(error, ATTN_NO_MEMORY, "weights_cache",
                           "the file of weights cannot be mapped");
    if (status == ATTN_OK)
        status = verify(out, directory, name, error);
    if (status != ATTN_OK && out->memory == NULL && out->file >= 0)
        close(out->file);
    if (status != ATTN_OK)
        attn_weights_file_close(out);
    return status;
}

enum attn_status attn_weights_file_check(int directory, const char *name,
                                         const char key[ATTN_CHECKSUM_DIGITS], size_t data,
                                         struct attn_error *error)
{
    struct attn_weights_file file;
    enum attn_status status = open_checked(&file, directory, name, key, data, error);
    if (file.file >= 0)
        close(file.file);
    return status;
}

void attn_weights_file_close(struct attn_weights_file *file)
{
    if (file->memory != NULL) {
        attn_unmap(file->memory, file->bytes);
        close(file->file);
    }
    *file = (struct attn_weights_file){0};
}

/* ---- Writing ---- */

static void fail(struct attn_weights_writer *writer)
{
    if (writer->code == 0)
        writer->code = errno != 0 ? errno : EIO;
}

void attn_weights_writer_begin(struct attn_weights_writer *writer, int directory, const char *name,
                               size_t data)
{
    const size_t bytes = attn_add(data, ATTN_WEIGHTS_HEADER);
    *writer = (struct attn_weights_writer){.directory = directory, .used = ATTN_WEIGHTS_HEADER};
    snprintf(writer->name, sizeof writer->name, "%s", name);
    snprintf(writer->temporary, sizeof writer->temporary, "%s.part", name);
    attn_checksum_init(&writer->sum);
    errno = ENOMEM;
    writer->buffer = attn_alloc_huge(BUFFER_BYTES, 1);
    if (writer->buffer != NULL)
        memset(writer->buffer, 0, ATTN_WEIGHTS_HEADER);
    else
        fail(writer);
    writer->file = openat(directory, writer->temporary,
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (writer->file < 0 || bytes > INT64_MAX)
        fail(writer);
    else if (fallocate(writer->file, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) != 0 &&
             errno != EOPNOTSUPP && errno != ENOSYS)
        fail(writer);
}

static void write_at(struct attn_weights_writer *writer, const char *bytes, size_t count,
                     size_t offset)
{
    while (count > 0 && writer->code == 0) {
        errno = 0;
        ssize_t put = pwrite(writer->file, bytes, count, (off_t)offset);
        if (put <= 0 && errno != EINTR)
            fail(writer);
        if (put <= 0)
            continue;
        bytes += put;
        offset += (size_t)put;
        count -= (size_t)put;
    }
}

static void flush(struct attn_weights_writer *writer)
{
    const size_t first = writer->offset == 0 ? ATTN_WEIGHTS_HEADER : 0;
    attn_checksum_add(&writer->sum, writer->buffer + first, writer->used - first);
    write_at(writer, writer->buffer, writer->used, writer->offset);
    writer->offset += writer->used;
    writer->used = 0;
}

/* Appends `count` bytes, zeros where `bytes` is NULL. */
static void append(struct attn_weights_writer *writer, const char *bytes, size_t count)
{
    while (count > 0 && writer->code == 0) {
        const size_t part = attn_min(count, BUFFER_BYTES - writer->used);
        if (bytes != NULL)
            memcpy(writer->buffer + writer->used, bytes, part);
        else
            memset(writer->buffer + writer->used, 0, part);
        bytes = bytes != NULL ? bytes + part : NULL;
        writer->used += part;
        count -= part;
        if (writer->used == BUFFER_BYTES)
            flush(writer);
    }
}

void attn_weights_writer_add(struct attn_weights_writer *writer, const void *array, size_t bytes)
{
    append(writer, array, bytes);
    append(writer, NULL, (ATTN_ALIGN - bytes % ATTN_ALIGN) % ATTN_ALIGN);
}

void attn_weights_writer_end(struct attn_weights_writer *writer,
                             const char key[ATTN_CHECKSUM_DIGITS], const char fingerprint[17])
{
    struct header header = {.magic = MAGIC};
    struct stat info;
    char identity[ATTN_CHECKSUM_DIGITS];
    if (writer->code == 0)
        flush(writer);
    if (writer->code != 0)
        return;
    memcpy(header.key, key, sizeof header.key);
    memcpy(header.fingerprint, fingerprint, sizeof header.fingerprint);
    attn_checksum_hex(header.checksum, &writer->sum);
    header.bytes = writer->offset;
    checksum_of(header.self, &header, offsetof(struct header, self));
    write_at(writer, (const char *)&header, sizeof header, 0);
    if (writer->code != 0)
        return;
    errno = 0; /* the file is readable for those who may read the directory, writable for nobody */
    if (fstat(writer->directory, &info) != 0 ||
        fchmod(writer->file, 0400 | (info.st_mode & 0044)) != 0 || fsync(writer->file) != 0 ||
        renameat(writer->directory, writer->temporary, writer->directory, writer->name) != 0) {
        fail(writer);
        return;
    }
    attn_collapse_file(writer->file, writer->offset);
    if (identify(identity, writer->file))
        attn_weights_note(writer->directory, writer->name, VERIFIED, identity);
    close(writer->file);
    writer->file = -1;
}

void attn_weights_writer_fini(struct attn_weights_writer *writer)
{
    if (writer->file >= 0) {
        close(writer->file);
        (void)unlinkat(writer->directory, writer->temporary, 0);
    }
    attn_free(writer->buffer);
    *writer = (struct attn_weights_writer){.file = -1};
}
