/* slots_io.c: writing and reading slots.
 *
 * Blocks that are written gather in a buffer until it is full, or the next slot is not the one
 * after.  The errno of a write that fails stays until the flush, which reports it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "store/slots_internal.h"
#include "store/store_files.h"

#define BUFFER ((size_t)1 << 20) /* of blocks that go with one write */

/* Reads or writes all of it; false with errno.  A file system that has O_DIRECT, but not for such
 * pieces, is used through its cache. */
static bool move(int fd, unsigned char *bytes, size_t size, uint64_t at, bool writes)
{
    size_t done = 0;
    while (done < size) {
        const off_t place = (off_t)(at + done);
        const ssize_t n = writes ? pwrite(fd, bytes + done, size - done, place)
                                 : pread(fd, bytes + done, size - done, place);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            errno = writes ? ENOSPC : EBADMSG; /* the file ends */
            return false;
        } else if (errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
            if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) != 0)
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

static unsigned char *aligned(size_t bytes)
{
    void *memory = NULL;
    const int error = posix_memalign(&memory, SRV_SLOT_UNIT, bytes);
    errno = error;
    return error == 0 ? memory : NULL;
}

/* Notes the errno of a file. */
static void fail(struct srv_slots *slots, const struct srv_slot_file *file)
{
    slots->error = errno;
    srv_slot_file_name(slots->failed, file->generation, file->bytes);
}

static void empty_buffer(struct srv_slots *slots)
{
    struct srv_slot_file *file = srv_slot_file(slots, slots->at);
    if (slots->used == 0)
        return;
    file->unsynced = true;
    if (slots->error == 0 &&
        !move(file->fd, slots->buffer, slots->used, slots->at.index * file->bytes, true))
        fail(slots, file);
    pthread_mutex_lock(&slots->lock);
    slots->written += slots->used;
    pthread_mutex_unlock(&slots->lock);
    slots->used = 0;
}

/* Whether the slot follows what is in the buffer, which has room for it. */
static bool follows(const struct srv_slots *slots, struct srv_slot slot, size_t size)
{
    return slots->used > 0 && slots->at.file == slot.file &&
           slots->at.index + slots->used / size == slot.index && size <= slots->room - slots->used;
}

uint64_t srv_slots_write(struct srv_slots *slots, struct srv_slot slot, const void *block,
                         size_t bytes)
{
    const size_t size = srv_slot_file(slots, slot)->bytes;
    if (!follows(slots, slot, size)) {
        empty_buffer(slots);
        slots->at = slot;
    }
    if (size > slots->room) {
        free(slots->buffer);
        slots->room = size > BUFFER ? size : BUFFER;
        slots->buffer = aligned(slots->room);
        if (slots->buffer == NULL) {
            slots->error = ENOMEM;
            slots->room = 0;
            return 0;
        }
    }
    memcpy(slots->buffer + slots->used, block, bytes);
    memset(slots->buffer + slots->used + bytes, 0, size - bytes);
    const uint64_t sum = XXH3_64bits(slots->buffer + slots->used, bytes);
    slots->used += size;
    return sum;
}

bool srv_slots_sync(struct srv_slots *slots)
{
    empty_buffer(slots);
    for (uint32_t i = 0; i < slots->num_files; i++) {
        struct srv_slot_file *file = slots->files[i];
        if (file->unsynced && fdatasync(file->fd) != 0 && slots->error == 0)
            fail(slots, file);
        file->unsynced = false;
    }
    if (slots->made_file && !srv_sync_directory(slots->directory) && slots->error == 0)
        slots->error = errno;
    slots->made_file = slots->made_file && slots->error != 0;
    const int error = slots->error;
    slots->error = 0;
    errno = error;
    return error == 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

size_t srv_slots_read(struct srv_slot_reader *reader, struct srv_slots *slots,
                      struct srv_slot first, const uint64_t sums[], size_t count, size_t bytes)
{
    pthread_mutex_lock(&slots->lock);
    const struct srv_slot_file *file = srv_slot_file(slots, first);
    pthread_mutex_unlock(&slots->lock);
    const size_t size = file->bytes;
    size_t sound = 0;
    if (count * size > reader->room) {
        srv_slot_reader_fini(reader);
        reader->buffer = aligned(count * size);
        reader->room = reader->buffer != NULL ? count * size : 0;
    }
    reader->error = 0;
    if (reader->buffer == NULL ||
        !move(file->fd, reader->buffer, count * size, first.index * size, false))
        reader->error = errno;
    while (reader->error == 0 && sound < count &&
           XXH3_64bits(srv_slot_read_block(reader, sound, bytes), bytes) == sums[sound])
        sound++;
    return sound;
}

void srv_slot_reader_fini(struct srv_slot_reader *reader)
{
    free(reader->buffer);
    *reader = (struct srv_slot_reader){0};
}
