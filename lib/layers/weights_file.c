/* weights_file.c: writes, checks and maps files of packed weights.
 *
 * Two things make a mapping as fast as private memory where the system has it: the address and the
 * pieces that are written are multiples of a huge page, so that the page cache can hold the file in
 * such pages.  A file on the disk is compared with its checksum once after the machine started:
 * until it stops, its pages are what was compared, or were read from the same sectors again. */
#include "layers/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "files/file.h"

#define MAGIC "attnd weights 1"
#define PIECE ((size_t)4 << 20) /* bytes written at a time */
#define TEMPORARY ".part"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define VERIFIED "verified" /* the note's fact: compared with its checksum since the boot */

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

/* ---- Reading ---- */

static enum attn_status refuse(const char *why, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, "weights_cache", "the file of weights %s", why);
}

static enum attn_status check_header(const struct header *header,
                                     const char key[ATTN_CHECKSUM_DIGITS], size_t bytes,
                                     struct attn_error *error)
{
    char self[ATTN_CHECKSUM_DIGITS];
    checksum_of(self, header, offsetof(struct header, self));
    if (memcmp(header->magic, MAGIC, sizeof header->magic) != 0 ||
        memcmp(header->self, self, sizeof self) != 0)
        return refuse("has a damaged header", error);
    if (memcmp(header->key, key, sizeof header->key) != 0 || header->bytes != bytes)
        return refuse("is of another model", error);
    return ATTN_OK;
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
    const uint64_t facts[] = {
        info.st_dev,
        info.st_ino,
        (uint64_t)info.st_size,
        (uint64_t)info.st_ctim.tv_sec,
        (uint64_t)info.st_ctim.tv_nsec,
        (uint64_t)info.st_mtim.tv_sec,
        (uint64_t)info.st_mtim.tv_nsec,
    };
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, boot, (size_t)got);
    attn_checksum_add(&sum, facts, sizeof facts);
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
    if (status == ATTN_OK)
        status = check_header(&header, key, bytes, error);
    if (status != ATTN_OK)
        return status;
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

static void print_temporary(char out[ATTN_WEIGHTS_NAME_MAX + sizeof TEMPORARY],
                            const struct attn_weights_writer *writer)
{
    snprintf(out, ATTN_WEIGHTS_NAME_MAX + sizeof TEMPORARY, "%s" TEMPORARY, writer->name);
}

void attn_weights_writer_begin(struct attn_weights_writer *writer, int directory, const char *name,
                               size_t data)
{
    char temporary[ATTN_WEIGHTS_NAME_MAX + sizeof TEMPORARY];
    const size_t bytes = attn_add(data, ATTN_WEIGHTS_HEADER);
    *writer = (struct attn_weights_writer){.directory = directory, .used = ATTN_WEIGHTS_HEADER};
    snprintf(writer->name, sizeof writer->name, "%s", name);
    print_temporary(temporary, writer);
    attn_checksum_init(&writer->sum);
    errno = ENOMEM;
    writer->buffer = attn_alloc_huge(PIECE, 1);
    if (writer->buffer != NULL)
        memset(writer->buffer, 0, ATTN_WEIGHTS_HEADER);
    else
        fail(writer);
    writer->file =
        openat(directory, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
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
        const size_t part = attn_min(count, PIECE - writer->used);
        if (bytes != NULL)
            memcpy(writer->buffer + writer->used, bytes, part);
        else
            memset(writer->buffer + writer->used, 0, part);
        bytes = bytes != NULL ? bytes + part : NULL;
        writer->used += part;
        count -= part;
        if (writer->used == PIECE)
            flush(writer);
    }
}

void attn_weights_writer_add(struct attn_weights_writer *writer, const void *array, size_t bytes)
{
    append(writer, array, bytes);
    append(writer, NULL, (ATTN_ALIGN - bytes % ATTN_ALIGN) % ATTN_ALIGN);
}

/* The file is readable for those who may read the directory, and writable for nobody. */
static void publish(struct attn_weights_writer *writer, const char *temporary)
{
    struct stat info;
    char identity[ATTN_CHECKSUM_DIGITS];
    errno = 0;
    if (fstat(writer->directory, &info) != 0 ||
        fchmod(writer->file, 0400 | (info.st_mode & 0044)) != 0 || fsync(writer->file) != 0 ||
        renameat(writer->directory, temporary, writer->directory, writer->name) != 0) {
        fail(writer);
        return;
    }
    attn_collapse_file(writer->file, writer->offset);
    if (identify(identity, writer->file))
        attn_weights_note(writer->directory, writer->name, VERIFIED, identity);
    close(writer->file);
    writer->file = -1;
}

void attn_weights_writer_end(struct attn_weights_writer *writer,
                             const char key[ATTN_CHECKSUM_DIGITS], const char fingerprint[17])
{
    char temporary[ATTN_WEIGHTS_NAME_MAX + sizeof TEMPORARY];
    struct header header = {.magic = MAGIC};
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
    print_temporary(temporary, writer);
    if (writer->code == 0)
        publish(writer, temporary);
}

void attn_weights_writer_fini(struct attn_weights_writer *writer)
{
    char temporary[ATTN_WEIGHTS_NAME_MAX + sizeof TEMPORARY];
    if (writer->file >= 0) {
        print_temporary(temporary, writer);
        close(writer->file);
        (void)unlinkat(writer->directory, temporary, 0);
    }
    attn_free(writer->buffer);
    *writer = (struct attn_weights_writer){.file = -1};
}
