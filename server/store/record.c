/* record.c: writing and verifying records.
 *
 * Whatever the bytes are, reading ends and stays within them.  A record is sound when its length,
 * its number and both checksums are right.  From a record that is not sound on, the next sound one
 * is searched for, and one that says that the damaged record was on the disk. */
#include "store/record.h"

#include <string.h>

#include "base/checksum.h"

#define MAGIC "ATTNJRN2"
#define OLDER_MAGIC "ATTNJRNL" /* of versions 1 to 4, with checksums of another kind */
#define RECORD_MAGIC UINT32_C(0x6e744152)

_Static_assert(sizeof(struct srv_record_head) == SRV_RECORD_HEAD, "no padding");
_Static_assert(sizeof(struct srv_record_made) == 472 && sizeof(struct srv_record_truncate) == 32,
               "no padding");

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
    XXH3_state_t sum;
    head->magic = RECORD_MAGIC;
    head->length = 0;
    XXH3_64bits_reset(&sum);
    for (size_t i = 0; i < count; i++) {
        head->length += parts[i].size;
        XXH3_64bits_update(&sum, parts[i].bytes, parts[i].size);
    }
    head->payload_sum = XXH3_64bits_digest(&sum);
    head->head_sum = XXH3_64bits(head, offsetof(struct srv_record_head, head_sum));
}

void srv_record_mark_last(struct srv_record_head *head)
{
    head->last = 1;
    head->head_sum = XXH3_64bits(head, offsetof(struct srv_record_head, head_sum));
}

static struct journal_head journal_head(uint64_t generation)
{
    struct journal_head head = {
        .magic = MAGIC, .generation = generation, .version = SRV_JOURNAL_VERSION};
    head.sum = XXH3_64bits(&head, offsetof(struct journal_head, sum));
    return head;
}

void srv_journal_print_head(unsigned char out[SRV_JOURNAL_HEAD], uint64_t generation)
{
    struct journal_head head = journal_head(generation);
    memcpy(out, &head, sizeof head);
}

/* ---- Reading --------------------------------------------------------------------------------- */

uint32_t srv_journal_version(struct srv_file_reader *file)
{
    struct journal_head found;
    if (file->size < sizeof found || !srv_file_reader_read(&found, file, 0, sizeof found))
        return 0;
    const bool sound = memcmp(found.magic, MAGIC, sizeof found.magic) == 0 &&
                       found.sum == XXH3_64bits(&found, offsetof(struct journal_head, sum));
    return sound || memcmp(found.magic, OLDER_MAGIC, sizeof found.magic) == 0 ? found.version : 0;
}

void srv_journal_read_open(struct srv_journal_reader *reader, struct srv_file_reader *file,
                           uint64_t generation)
{
    const struct journal_head head = journal_head(generation);
    struct journal_head found;
    size_t at = file->size < sizeof found ? file->size : sizeof found;
    *reader = (struct srv_journal_reader){.file = file, .at = at, .sequence = 1};
    reader->head_damaged = at == sizeof found && (!srv_file_reader_read(&found, file, 0, at) ||
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
           head->head_sum == XXH3_64bits(head, offsetof(struct srv_record_head, head_sum)) &&
           head->sequence >= reader->sequence && head->length % 4 == 0;
}

/* Whether a sound record stands at `at`. */
static bool read_at(struct srv_record *out, const struct srv_journal_reader *reader, size_t at)
{
    XXH3_state_t sum;
    const struct srv_record_head *head = &out->head;
    if (!read_head(out, reader, at) || head->length > reader->file->size - out->payload)
        return false;
    XXH3_64bits_reset(&sum);
    return srv_file_reader_sum(&sum, reader->file, out->payload, (size_t)head->length) &&
           head->payload_sum == XXH3_64bits_digest(&sum);
}

bool srv_journal_read_at(struct srv_record *out, struct srv_file_reader *file, size_t at)
{
    const struct srv_journal_reader reader = {.file = file};
    return at < file->size && read_at(out, &reader, at);
}

/* Finds the first sound record from `at` on; returns its place, or the size of the file. */
static size_t search(struct srv_record *out, const struct srv_journal_reader *reader, size_t at)
{
    const struct srv_file_reader *file = reader->file;
    while (at + SRV_RECORD_HEAD <= file->size && file->error == 0 && !read_at(out, reader, at))
        at += 4;
    return at + SRV_RECORD_HEAD <= file->size && file->error == 0 ? at : file->size;
}

/* Whether the records that follow damage at `at` say that the record expected there was on the
 * disk.  Where they do not, all of them were looked at, and those of later writes counted. */
static bool was_synced(struct srv_journal_reader *reader, size_t at)
{
    struct srv_record record;
    const struct srv_record_head *head = &record.head;
    size_t later = 0;
    for (at = search(&record, reader, at);
         at < reader->file->size && reader->synced <= reader->sequence;
         at = search(&record, reader, at + SRV_RECORD_HEAD + (size_t)head->length)) {
        reader->synced = head->synced > reader->synced ? head->synced : reader->synced;
        later += head->before < UINT8_MAX && head->sequence - head->before > reader->sequence;
    }
    if (reader->synced <= reader->sequence && later > 0 && reader->synced_later != NULL)
        reader->synced = reader->synced_later(reader->context);
    reader->dropped = reader->synced <= reader->sequence ? later : 0;
    return reader->synced > reader->sequence;
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
    size_t next =
        was_synced(reader, reader->at) ? search(out, reader, reader->at) : reader->file->size;
    if (next == reader->file->size)
        return SRV_READ_TORN;
    reader->at = next;
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

uint64_t srv_journal_synced(struct srv_record *first, struct srv_file_reader *file,
                            uint64_t generation)
{
    struct srv_journal_reader reader;
    struct srv_record record;
    uint64_t synced = 0;
    srv_journal_read_open(&reader, file, generation);
    if (!read_at(first, &reader, reader.at) || first->head.sequence != 1)
        first->head.type = 0;
    for (size_t at = search(&record, &reader, reader.at); at < file->size;
         at = search(&record, &reader, at + SRV_RECORD_HEAD + (size_t)record.head.length))
        synced = record.head.synced > synced ? record.head.synced : synced;
    return synced;
}

bool srv_record_read(void *out, const struct srv_record *record, size_t offset, size_t count)
{
    return srv_file_reader_read(out, record->file, record->payload + offset, count);
}
