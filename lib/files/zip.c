/* zip.c: central directory -> table of members, sorted by name; members -> bytes, through zlib.
 *
 * One member is read at a time: `stream` stands at a byte of it, which every read moves on.  All of
 * a member's bytes pass through it in order, so its checksum is known at the end. */
#include "files/zip.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "attn_limits.h"
#include "basics/status.h"
#include "files/file.h"

#define END_SIZE 22       /* bytes of the end record, without its comment */
#define MAX_COMMENT 65535 /* bytes */
#define LOCATOR_SIZE 20   /* of ZIP64, before the end record */
#define END64_SIZE 56     /* of the end record of ZIP64 */
#define ENTRY_SIZE 46     /* of an entry of the central directory, without its texts */
#define LOCAL_SIZE 30     /* of a local header, without its texts */
#define END_MARK 0x06054b50u
#define LOCATOR_MARK 0x07064b50u
#define END64_MARK 0x06064b50u
#define ENTRY_MARK 0x02014b50u
#define LOCAL_MARK 0x04034b50u
#define IN_ZIP64 0xffffffffu /* in place of a number that the extra field of ZIP64 has */
#define ZIP64_FIELD 1
#define ENCRYPTED 1 /* of a member's flags */
#define STORED 0
#define DEFLATED 8
#define MOST_EXPANSION 1032 /* bytes that a byte of deflated data can become */
#define CHUNK 65536         /* bytes read at a time */
#define INFLATE_BYTES 49152 /* of zlib for one member, about */

struct stream {
    const struct attn_zip_member *member; /* NULL: none is being read */
    size_t position;                      /* the byte of the member that comes next */
    size_t data, consumed; /* where its data begin in the file, and bytes of them read so far */
    uint32_t checksum;     /* of the bytes before `position` */
    bool inflates;         /* zlib's state is in use */
    z_stream z;
};

struct attn_zip {
    int file;
    size_t size;                     /* of the file */
    char name[NAME_MAX + 1];         /* of the file inside its directory, for messages */
    char *names;                     /* of the members */
    struct attn_zip_member *members; /* [count], by name */
    size_t count, directory;         /* members, and bytes of the central directory */
    struct stream stream;
    enum attn_status status; /* of the call that is running, and its error */
    struct attn_error *error;
    unsigned char in[CHUNK], skipped[CHUNK];
};

/* All three return false, with the error in zip->status and what zip->error points to. */
static bool fail(struct attn_zip *zip, const char *what)
{
    zip->status = attn_fail(zip->error, ATTN_MALFORMED, zip->name, "%.96s: %s", zip->name, what);
    return false;
}

static bool fail_member(enum attn_status status, struct attn_zip *zip,
                        const struct attn_zip_member *member, const char *what)
{
    zip->status = attn_fail(zip->error, status, member->name, "%.96s: member '%.96s' %s", zip->name,
                            member->name, what);
    return false;
}

static bool fail_memory(struct attn_zip *zip, size_t bytes)
{
    zip->status = attn_fail_memory(zip->error, bytes);
    return false;
}

/* Reads bytes [offset, offset + count) of the file. */
static bool read_at(void *out, struct attn_zip *zip, size_t offset, size_t count)
{
    zip->status = attn_file_read(out, zip->file, zip->name, offset, count, zip->error);
    return zip->status == ATTN_OK;
}

/* ---- Numbers, little-endian at any alignment ------------------------------------------------- */

static uint64_t number(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static uint32_t read_u16(const unsigned char *at) { return (uint32_t)number(at, 2); }
static uint32_t read_u32(const unsigned char *at) { return (uint32_t)number(at, 4); }

/* ---- The end record -------------------------------------------------------------------------- */

struct directory {
    size_t offset, size, count;
};

/* Reads the end record of ZIP64, whose locator stands before the end record at byte `end`. */
static bool read_end64(struct directory *out, struct attn_zip *zip, size_t end)
{
    unsigned char locator[LOCATOR_SIZE], record[END64_SIZE];
    if (end < LOCATOR_SIZE)
        return fail(zip, "no locator of ZIP64");
    if (!read_at(locator, zip, end - LOCATOR_SIZE, LOCATOR_SIZE))
        return false;
    uint64_t at = number(locator + 8, 8);
    if (read_u32(locator) != LOCATOR_MARK || end < LOCATOR_SIZE + END64_SIZE ||
        at > end - LOCATOR_SIZE - END64_SIZE)
        return fail(zip, "no locator of ZIP64");
    if (!read_at(record, zip, at, END64_SIZE))
        return false;
    if (read_u32(record) != END64_MARK || number(record + 24, 8) != number(record + 32, 8))
        return fail(zip, "no end record of ZIP64");
    *out =
        (struct directory){number(record + 48, 8), number(record + 40, 8), number(record + 32, 8)};
    return true;
}

/* Finds the end record, which the file's last bytes are, and in it the central directory. */
static bool find_directory(struct directory *out, struct attn_zip *zip, unsigned char *tail)
{
    const size_t length = attn_min(zip->size, END_SIZE + MAX_COMMENT);
    if (!read_at(tail, zip, zip->size - length, length))
        return false;
    size_t at = length < END_SIZE ? 0 : length - END_SIZE + 1;
    while (at-- > 0) {
        const unsigned char *end = tail + at;
        if (read_u32(end) != END_MARK || read_u16(end + 20) != length - at - END_SIZE)
            continue;
        const size_t offset = zip->size - length + at;
        *out = (struct directory){read_u32(end + 16), read_u32(end + 12), read_u16(end + 10)};
        if (read_u16(end + 4) != 0 || read_u16(end + 6) != 0 ||
            read_u16(end + 8) != read_u16(end + 10))
            return fail(zip, "an archive of several parts");
        if ((out->count == 0xffff || out->size == IN_ZIP64 || out->offset == IN_ZIP64) &&
            !read_end64(out, zip, offset))
            return false;
        return (out->size <= offset && out->offset <= offset - out->size) ||
               fail(zip, "the central directory is not inside the file");
    }
    return fail(zip, "not a ZIP archive: no end record");
}

/* ---- The central directory ------------------------------------------------------------------- */

/* Replaces the numbers of an entry that are IN_ZIP64 by those of its extra field [length].  False
 * where the field lacks one. */
static bool read_extra(struct attn_zip_member *member, const unsigned char *extra, size_t length)
{
    size_t *const numbers[] = {&member->size, &member->packed, &member->header};
    bool wanted = false;
    for (size_t i = 0; i < 3; i++)
        wanted = wanted || *numbers[i] == IN_ZIP64;
    while (wanted && length >= 4) {
        const size_t size = read_u16(extra + 2);
        if (size > length - 4)
            return false;
        if (read_u16(extra) == ZIP64_FIELD) {
            const unsigned char *at = extra + 4, *const end = at + size;
            for (size_t i = 0; i < 3; i++) {
                if (*numbers[i] != IN_ZIP64)
                    continue;
                if (end - at < 8)
                    return false;
                *numbers[i] = number(at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return !wanted;
}

/* Reads the entry at `text`, of which `left` bytes are there, and copies its name to *names, which
 * moves on.  Returns the entry's length, 0 where it is wrong. */
static size_t read_entry(struct attn_zip_member *out, char **names, const unsigned char *text,
                         size_t left, const struct attn_zip *zip)
{
    if (left < ENTRY_SIZE || read_u32(text) != ENTRY_MARK)
        return 0;
    const size_t name = read_u16(text + 28), extra = read_u16(text + 30);
    const size_t length = ENTRY_SIZE + name + extra + read_u16(text + 32);
    if (length > left || memchr(text + ENTRY_SIZE, '\0', name) != NULL)
        return 0;
    *out = (struct attn_zip_member){.name = *names,
                                    .size = read_u32(text + 24),
                                    .packed = read_u32(text + 20),
                                    .header = read_u32(text + 42),
                                    .checksum = read_u32(text + 16),
                                    .method = read_u16(text + 10),
                                    .flags = read_u16(text + 8)};
    if (!read_extra(out, text + ENTRY_SIZE + name, extra))
        return 0;
    if (out->packed > zip->size || out->header > zip->size - out->packed)
        return 0;
    memcpy(*names, text + ENTRY_SIZE, name);
    (*names)[name] = '\0';
    *names += name + 1;
    return length;
}

static bool walk_directory(struct attn_zip *zip, const unsigned char *text)
{
    size_t at = 0;
    char *names = zip->names;
    for (size_t i = 0; i < zip->count; i++) {
        const size_t length =
            read_entry(&zip->members[i], &names, text + at, zip->directory - at, zip);
        if (length == 0)
            return fail(zip, "an entry of the central directory is wrong");
        at += length;
    }
    const struct attn_zip_member *twice =
        attn_sort_names(zip->members, zip->count, sizeof *zip->members);
    return twice == NULL || fail_member(ATTN_MALFORMED, zip, twice, "is there twice");
}

/* An entry is longer than its name and a NUL, so all names have room in the directory's size. */
static bool read_directory(struct attn_zip *zip)
{
    struct directory directory = {0, 0, 0};
    const size_t most = END_SIZE + MAX_COMMENT;
    unsigned char *text = attn_alloc(most, 1);
    if (text == NULL)
        return fail_memory(zip, most);
    const bool found = find_directory(&directory, zip, text);
    attn_free(text);
    if (!found)
        return false;
    if (directory.size > ATTN_NPZ_MAX_DIRECTORY || directory.count > ATTN_NPZ_MAX_MEMBERS ||
        directory.count > directory.size / ENTRY_SIZE)
        return fail(zip, "the central directory has too many entries");
    zip->count = directory.count;
    zip->directory = directory.size;
    zip->names = attn_alloc(attn_max(directory.size, 1), 1);
    zip->members = attn_calloc(attn_max(directory.count, 1), sizeof *zip->members);
    text = attn_alloc(attn_max(directory.size, 1), 1);
    const bool read =
        zip->names == NULL || zip->members == NULL || text == NULL
            ? fail_memory(zip, directory.size + directory.count * sizeof *zip->members)
            : read_at(text, zip, directory.offset, directory.size) && walk_directory(zip, text);
    attn_free(text);
    return read;
}

enum attn_status attn_zip_open(struct attn_zip **out, int directory, const char *name,
                               struct attn_error *error)
{
    struct attn_zip *zip = attn_calloc(1, sizeof *zip);
    if (zip == NULL)
        return attn_fail_memory(error, sizeof *zip);
    snprintf(zip->name, sizeof zip->name, "%s", name);
    zip->error = error;
    zip->file = -1;
    enum attn_status status = attn_file_open(&zip->file, &zip->size, directory, name, error);
    if (status == ATTN_OK && !read_directory(zip))
        status = zip->status;
    if (status == ATTN_OK)
        *out = zip;
    else
        attn_zip_close(zip);
    return status;
}

static void end_stream(struct attn_zip *zip)
{
    if (zip->stream.inflates)
        inflateEnd(&zip->stream.z);
    zip->stream = (struct stream){.member = NULL};
}

int attn_zip_descriptor(const struct attn_zip *zip) { return zip->file; }

void attn_zip_close(struct attn_zip *zip)
{
    if (zip == NULL)
        return;
    end_stream(zip);
    if (zip->file >= 0)
        close(zip->file);
    attn_free(zip->members);
    attn_free(zip->names);
    attn_free(zip);
}

const struct attn_zip_member *attn_zip_members(size_t *count, const struct attn_zip *zip)
{
    *count = zip->count;
    return zip->members;
}

size_t attn_zip_memory(const struct attn_zip *zip)
{
    return zip == NULL
               ? 0
               : sizeof *zip + zip->directory + zip->count * sizeof *zip->members + INFLATE_BYTES;
}

/* ---- Members --------------------------------------------------------------------------------- */

static bool check_member(struct attn_zip *zip, const struct attn_zip_member *member)
{
    if ((member->flags & ENCRYPTED) != 0)
        return fail_member(ATTN_UNSUPPORTED, zip, member, "is encrypted");
    if (member->method != STORED && member->method != DEFLATED)
        return fail_member(ATTN_UNSUPPORTED, zip, member,
                           "is compressed by a method other than deflate");
    if (member->method == STORED ? member->size != member->packed
                                 : member->size / MOST_EXPANSION > member->packed)
        return fail_member(ATTN_MALFORMED, zip, member, "claims a size that its data cannot have");
    return member->header <= zip->size - LOCAL_SIZE ||
           fail_member(ATTN_MALFORMED, zip, member, "has no local header");
}

/* Begins to read the member: finds its data, after its local header. */
static bool begin(struct attn_zip *zip, const struct attn_zip_member *member)
{
    struct stream *s = &zip->stream;
    unsigned char local[LOCAL_SIZE];
    end_stream(zip);
    if (!check_member(zip, member) || !read_at(local, zip, member->header, LOCAL_SIZE))
        return false;
    s->data = member->header + LOCAL_SIZE + read_u16(local + 26) + read_u16(local + 28);
    if (read_u32(local) != LOCAL_MARK || read_u16(local + 8) != member->method ||
        s->data > zip->size - member->packed)
        return fail_member(ATTN_MALFORMED, zip, member, "has no local header");
    if (member->method == DEFLATED && inflateInit2(&s->z, -MAX_WBITS) != Z_OK)
        return fail_memory(zip, INFLATE_BYTES);
    s->inflates = member->method == DEFLATED;
    s->checksum = (uint32_t)crc32(0, NULL, 0);
    s->member = member;
    return true;
}

/* Expands the next `count` bytes, at most CHUNK. */
static bool inflate_next(unsigned char *out, struct attn_zip *zip, size_t count)
{
    struct stream *s = &zip->stream;
    s->z.next_out = out;
    s->z.avail_out = (unsigned)count;
    while (s->z.avail_out > 0) {
        if (s->z.avail_in == 0) {
            const size_t left = attn_min(s->member->packed - s->consumed, CHUNK);
            if (!read_at(zip->in, zip, s->data + s->consumed, left))
                return false;
            s->z.next_in = zip->in;
            s->z.avail_in = (unsigned)left;
            s->consumed += left;
        }
        const int code = inflate(&s->z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR)
            return fail_memory(zip, INFLATE_BYTES);
        if (code != Z_OK && (code != Z_STREAM_END || s->z.avail_out > 0))
            return fail_member(ATTN_MALFORMED, zip, s->member, "does not inflate to its size");
    }
    return true;
}

/* Reads the next `count` bytes, at most CHUNK; compares the checksum at the member's end. */
static bool read_next(unsigned char *out, struct attn_zip *zip, size_t count)
{
    struct stream *s = &zip->stream;
    if (!(s->inflates ? inflate_next(out, zip, count)
                      : read_at(out, zip, s->data + s->position, count)))
        return false;
    s->checksum = (uint32_t)crc32(s->checksum, out, (unsigned)count);
    s->position += count;
    return s->position != s->member->size || s->checksum == s->member->checksum ||
           fail_member(ATTN_MALFORMED, zip, s->member, "does not have its checksum");
}

enum attn_status attn_zip_read(void *out, struct attn_zip *zip,
                               const struct attn_zip_member *member, size_t first, size_t count,
                               struct attn_error *error)
{
    struct stream *s = &zip->stream;
    unsigned char *next = out;
    zip->error = error;
    bool read = (s->member == member && s->position <= first) || begin(zip, member);
    while (read && s->position < first)
        read = read_next(zip->skipped, zip, attn_min(first - s->position, CHUNK));
    for (size_t chunk; read && count > 0; next += chunk, count -= chunk) {
        chunk = attn_min(count, CHUNK);
        read = read_next(next, zip, chunk);
    }
    if (read)
        return ATTN_OK;
    end_stream(zip);
    return zip->status;
}
