/* record.c: writing and verifying records.
 *
 * Whatever the bytes are, reading ends and stays within them.  A record is sound when its length,
 * its number and both checksums are right.  From a record that is not sound on, the next sound one
 * is searched for; where no record of a later write follows, the write is torn. */
#include "store/record.h"

#include <string.h>

#include "base/checksum.h"

#define RECORD_MAGIC UINT32_C(0x6e744152)
#define VERSION 1

_Static_assert(sizeof(struct srv_record_head) == SRV_RECORD_HEAD, "no padding");
_Static_assert(sizeof(struct srv_record_create) == 312, "no padding");

struct journal_head {
    char magic[8];
    uint64_t generation;
    uint32_t version, zero;
    uint64_t sum;
};
_Static_assert(sizeof(struct journal_head) == SRV_JOURNAL_HEAD, "no padding");

/* ---- Writing --------------------------------------------------------------------------------- */

void srv_record_seal(struct srv_record_head *head, const struct srv_record_part parts[],
                     size_t count)
{
    struct srv_checksum sum;
    head->magic = RECORD_MAGIC;
    head->length = 0;
    srv_checksum_init(&sum);
    for (size_t i = 0; i < count; i++) {
        head->length += parts[i].size;
        srv_checksum_add(&sum, parts[i].bytes, parts[i].size);
    }
    head->payload_sum = srv_checksum_end(&sum);
    head->head_sum = srv_checksum_of(head, offsetof(struct srv_record_head, head_sum));
}

void srv_record_mark_last(struct srv_record_head *head)
{
    head->last = 1;
    head->head_sum = srv_checksum_of(head, offsetof(struct srv_record_head, head_sum));
}

static struct journal_head journal_head(uint64_t generation)
{
    struct journal_head head = {.magic = "ATTNJRNL", .generation = generation, .version = VERSION};
    head.sum = srv_checksum_of(&head, offsetof(struct journal_head, sum));
    return head;
}

void srv_journal_print_head(unsigned char out[SRV_JOURNAL_HEAD], uint64_t generation)
{
    struct journal_head head = journal_head(generation);
    memcpy(out, &head, sizeof head);
}

/* ---- Reading --------------------------------------------------------------------------------- */

void srv_journal_read_open(struct srv_journal_reader *reader, struct srv_file_reader *file,
                           uint64_t generation)
{
    struct journal_head head = journal_head(generation), found;
    size_t at = file->size < sizeof head ? file->size : sizeof head;
    *reader = (struct srv_journal_reader){.file = file, .at = at, .sequence = 1};
    reader->head_damaged = at == sizeof head && (!srv_file_reader_read(&found, file, 0, at) ||
                                                 memcmp(&found, &head, sizeof head) != 0);
}

/* Whether a sound head stands at `at`, with the number that is expected or a later one. */
static bool read_head(struct srv_record *out, const struct srv_journal_reader *reader, size_t at)
{
    struct srv_file_reader *file = reader->file;
    struct srv_record_head *head = &out->head;
    if (at > file->size || file->size - at < sizeof *head ||
        !srv_file_reader_read(head, file, at, sizeof *head))
        return false;
    out->file = file;
    out->payload = at + sizeof *head;
    return head->magic == RECORD_MAGIC &&
           head->head_sum == srv_checksum_of(head, offsetof(struct srv_record_head, head_sum)) &&
           head->sequence >= reader->sequence && head->length % 4 == 0;
}

/* Whether a sound record stands at `at`. */
static bool read_at(struct srv_record *out, const struct srv_journal_reader *reader, size_t at)
{
    struct srv_checksum sum;
    const struct srv_record_head *head = &out->head;
    if (!read_head(out, reader, at) || head->length > reader->file->size - out->payload)
        return false;
    srv_checksum_init(&sum);
    return srv_file_reader_sum(&sum, reader->file, out->payload, (size_t)head->length) &&
           head->payload_sum == srv_checksum_end(&sum);
}

/* Finds the first sound record from `at` on; returns its place, or the size of the file. */
static size_t search(struct srv_record *out, const struct srv_journal_reader *reader, size_t at)
{
    const struct srv_file_reader *file = reader->file;
    while (at + SRV_RECORD_HEAD <= file->size && file->error == 0 && !read_at(out, reader, at))
        at += 4;
    return at + SRV_RECORD_HEAD <= file->size && file->error == 0 ? at : file->size;
}

/* Whether one of the records from `at` on is of a later write than the record that is expected. */
static bool has_later_write(const struct srv_journal_reader *reader, size_t at)
{
    struct srv_record record;
    bool later = false;
    for (at = search(&record, reader, at); at < reader->file->size && !later;
         at = search(&record, reader, at + SRV_RECORD_HEAD + (size_t)record.head.length))
        later = record.head.first > reader->sequence;
    return later;
}

/* The answer, as far as the file could be read. */
static enum srv_reading read_next(struct srv_record *out, struct srv_journal_reader *reader)
{
    if (reader->at == reader->file->size)
        return reader->in_write ? SRV_READ_TORN : SRV_READ_END;
    if (read_at(out, reader, reader->at) && out->head.sequence == reader->sequence) {
        reader->at += SRV_RECORD_HEAD + (size_t)out->head.length;
        reader->sequence++;
        reader->in_write = out->head.last == 0;
        return SRV_READ_RECORD;
    }
    if (!has_later_write(reader, reader->at))
        return SRV_READ_TORN;
    reader->at = search(out, reader, reader->at);
    reader->missing = out->head.sequence - reader->sequence;
    reader->sequence = out->head.sequence;
    reader->in_write = false;
    return SRV_READ_GAP;
}

enum srv_reading srv_journal_read(struct srv_record *out, struct srv_journal_reader *reader)
{
    enum srv_reading reading = read_next(out, reader);
    return reader->file->error == 0 ? reading : SRV_READ_FAILED;
}

bool srv_record_read(void *out, const struct srv_record *record, size_t offset, size_t count)
{
    return srv_file_reader_read(out, record->file, record->payload + offset, count);
}
