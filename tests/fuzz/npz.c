/* npz.c: files of NumPy, from memory.  By the first byte the input is a whole archive (even), or
 * the members of an archive that is made around them, with the right sizes and checksums, at which
 * a fuzzer would be stuck.  A member is a NUL for stored or another byte for deflated, two bytes of
 * length, and as many bytes. */
#include "files/npz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "fuzz.h"

#define MEMBERS 4
#define NAME_SIZE 5

struct archive {
    uint8_t bytes[1 << 17];
    size_t length;
};

static void put(struct archive *out, const void *bytes, size_t size)
{
    FUZZ_EXPECT(out->length + size <= sizeof out->bytes);
    memcpy(out->bytes + out->length, bytes, size);
    out->length += size;
}

static void put_number(struct archive *out, uint64_t value, size_t size) { put(out, &value, size); }

struct member {
    char *bytes;
    size_t size, packed, offset;
    uint32_t checksum;
    bool deflated;
};

/* The expanded size and checksum of a member's bytes, as far as they inflate. */
static void measure(struct member *m)
{
    static uint8_t room[1 << 20];
    z_stream z = {.next_in = (uint8_t *)m->bytes, .avail_in = (unsigned)m->packed};
    z.next_out = room;
    z.avail_out = sizeof room;
    FUZZ_EXPECT(inflateInit2(&z, -MAX_WBITS) == Z_OK);
    inflate(&z, Z_SYNC_FLUSH);
    inflateEnd(&z);
    m->size = sizeof room - z.avail_out;
    m->checksum = (uint32_t)crc32(0, room, (unsigned)m->size);
}

static void put_header(struct archive *out, const struct member *m, size_t i, bool central)
{
    const char name[] = {(char)('a' + i), '.', 'n', 'p', 'y'};
    put(out, central ? "PK\1\2\24\0" : "PK\3\4", central ? 6 : 4);
    put_number(out, 20, 2);
    put_number(out, 0, 2);
    put_number(out, m->deflated ? 8 : 0, 2);
    put_number(out, 0, 4);
    put_number(out, m->checksum, 4);
    put_number(out, m->packed, 4);
    put_number(out, m->size, 4);
    put_number(out, NAME_SIZE, 2);
    put_number(out, 0, central ? 8 : 2);
    put_number(out, 0, central ? 4 : 0);
    put_number(out, m->offset, central ? 4 : 0);
    put(out, name, NAME_SIZE);
}

static void make_archive(struct archive *out, struct fuzz_input *in)
{
    struct member members[MEMBERS];
    size_t count = 0;
    for (; count < MEMBERS && in->left > 0; count++) {
        struct member *m = &members[count];
        m->deflated = fuzz_byte(in) != 0;
        m->bytes = fuzz_copy(&m->packed, in, fuzz_number(in));
        m->size = m->packed;
        m->checksum = (uint32_t)crc32(0, (uint8_t *)m->bytes, (unsigned)m->packed);
        if (m->deflated)
            measure(m);
        m->offset = out->length;
        put_header(out, m, count, false);
        put(out, m->bytes, m->packed);
    }
    const size_t directory = out->length;
    for (size_t i = 0; i < count; i++) {
        put_header(out, &members[i], i, true);
        free(members[i].bytes);
    }
    const size_t size = out->length - directory;
    put(out, "PK\5\6\0\0\0\0", 8);
    put_number(out, count, 2);
    put_number(out, count, 2);
    put_number(out, size, 4);
    put_number(out, directory, 4);
    put_number(out, 0, 2);
}

static bool read_array(void *context, const char *name)
{
    struct attn_npz *npz = context;
    struct attn_error error = {0};
    const struct attn_tensor_entry *entry;
    static float out[4096];
    if (attn_npz_find(&entry, npz, name, &error) != ATTN_OK) {
        FUZZ_EXPECT(entry == NULL && error.message[0] != '\0');
        return true;
    }
    FUZZ_EXPECT(entry != NULL && entry->dtype->readable && entry->begin <= entry->end);
    size_t count = 1;
    for (size_t i = 0; i < entry->ndim; i++)
        count *= entry->shape[i];
    FUZZ_EXPECT(count * (entry->dtype->bits / 8) == entry->end - entry->begin);
    const size_t most = count < 4096 ? count : 4096;
    const size_t parts[][2] = {{count - most, most}, {0, most}, {most / 2, most - most / 2}};
    for (size_t i = 0; i < 3; i++) {
        enum attn_status status =
            attn_npz_read_f32(out, npz, entry, parts[i][0], parts[i][1], &error);
        FUZZ_EXPECT(status == ATTN_OK || status == error.status);
        for (size_t j = 0; status == ATTN_OK && j < parts[i][1]; j++)
            FUZZ_EXPECT(out[j] - out[j] == 0);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct archive archive;
    struct fuzz_input in = {data, size};
    struct attn_error error = {0};
    struct attn_npz *npz = NULL;
    char name[24];
    archive.length = 0;
    if (fuzz_byte(&in) & 1)
        make_archive(&archive, &in);
    else
        put(&archive, in.at, in.left < sizeof archive.bytes ? in.left : sizeof archive.bytes);
    int file = memfd_create("npz", MFD_CLOEXEC), directory = open("/proc/self/fd", O_DIRECTORY);
    FUZZ_EXPECT(file >= 0 && directory >= 0);
    FUZZ_EXPECT(write(file, archive.bytes, archive.length) == (ssize_t)archive.length);
    snprintf(name, sizeof name, "%d", file);
    enum attn_status status = attn_npz_open(&npz, directory, name, &error);
    FUZZ_EXPECT((status == ATTN_OK) == (npz != NULL) && status == error.status);
    if (npz != NULL)
        attn_npz_visit(npz, "", read_array, npz);
    attn_npz_close(npz);
    close(directory);
    close(file);
    return 0;
}
