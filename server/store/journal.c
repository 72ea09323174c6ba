/* journal.c: appending to a journal.
 *
 * A batch gathers in a buffer and is written with one pwrite, or with several where it is larger
 * than the buffer.  Nothing counts before the flush: after a write that fails, the file is
 * truncated to the batches that are whole.  Where even that fails, the head of the first record
 * beyond is overwritten, so that reading ends there.  The journal then takes no more records, since
 * the bytes that are left could be taken for some. */
#include "store/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 20)

static void write_bytes(struct srv_journal *journal, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    if (journal->broken)
        journal->error = journal->broken;
    while (size > 0 && journal->error == 0) {
        ssize_t written = pwrite(journal->fd, at, size, (off_t)journal->end);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            journal->error = written < 0 ? errno : ENOSPC;
            return;
        }
        at += written;
        size -= (size_t)written;
        journal->end += (uint64_t)written;
    }
}

static void empty_buffer(struct srv_journal *journal)
{
    write_bytes(journal, journal->buffer, journal->used);
    journal->used = 0;
}

static void put(struct srv_journal *journal, const void *bytes, size_t size)
{
    if (size > BUFFER - journal->used)
        empty_buffer(journal);
    if (size > BUFFER) {
        write_bytes(journal, bytes, size);
        return;
    }
    memcpy(journal->buffer + journal->used, bytes, size);
    journal->used += size;
}

bool srv_journal_open_refusing(struct srv_journal *journal, int error)
{
    *journal = (struct srv_journal){.fd = -1, .broken = error, .sequence = 1};
    journal->first = journal->synced = 1;
    journal->buffer = malloc(BUFFER);
    if (journal->buffer == NULL)
        errno = ENOMEM;
    return journal->buffer != NULL;
}

static bool has_name(int fd)
{
    struct stat facts;
    return fstat(fd, &facts) != 0 || facts.st_nlink > 0;
}

bool srv_journal_open(struct srv_journal *journal, int fd, uint64_t generation)
{
    unsigned char head[SRV_JOURNAL_HEAD];
    if (!srv_journal_open_refusing(journal, 0))
        return false;
    journal->fd = fd;
    journal->named = has_name(fd);
    journal->generation = generation;
    srv_journal_print_head(head, generation);
    put(journal, head, sizeof head);
    int error = srv_journal_flush(journal, false);
    if (error == 0)
        return true;
    free(journal->buffer);
    *journal = (struct srv_journal){.fd = -1};
    errno = error;
    return false;
}

void srv_journal_close(struct srv_journal *journal)
{
    if (journal->fd >= 0)
        close(journal->fd);
    free(journal->buffer);
    *journal = (struct srv_journal){.fd = -1};
}

void srv_journal_add(struct srv_journal *journal, struct srv_record_head *head,
                     const struct srv_record_part parts[], size_t count)
{
    uint64_t before = journal->sequence - journal->first;
    head->before = (uint8_t)(before < UINT8_MAX ? before : UINT8_MAX);
    head->sequence = journal->sequence++;
    head->synced = journal->older_synced ? journal->synced : 0;
    head->previous = journal->previous;
    srv_record_seal(head, parts, count);
    journal->previous = head->epoch;
    if (sizeof *head > BUFFER - journal->used)
        empty_buffer(journal);
    journal->head = *head;
    journal->head_at = journal->end + journal->used;
    put(journal, head, sizeof *head);
    for (size_t i = 0; i < count; i++)
        put(journal, parts[i].bytes, parts[i].size);
}

/* Marks the last record as such, in the buffer or in the file. */
static void end_batch(struct srv_journal *journal)
{
    struct srv_record_head *head = &journal->head;
    if (journal->head_at == 0 || journal->error != 0)
        return;
    srv_record_mark_last(head);
    if (journal->head_at >= journal->end)
        memcpy(journal->buffer + (journal->head_at - journal->end), head, sizeof *head);
    else if (pwrite(journal->fd, head, sizeof *head, (off_t)journal->head_at) != sizeof *head)
        journal->error = EIO;
    journal->head_at = 0;
}

/* Without this a start would take what was refused for what was answered. */
static bool end_at(int fd, uint64_t length, bool *cut)
{
    static const char nothing[sizeof((struct srv_record_head *)NULL)->magic];
    *cut = ftruncate(fd, (off_t)length) == 0;
    return *cut || pwrite(fd, nothing, sizeof nothing, (off_t)length) == sizeof nothing;
}

bool srv_journal_cut(int fd, uint64_t length)
{
    bool cut;
    return end_at(fd, length, &cut) && fdatasync(fd) == 0;
}

static void undo_batch(struct srv_journal *journal, int error)
{
    bool cut = true;
    if (journal->end > journal->length) {
        (void)end_at(journal->fd, journal->length, &cut);
        journal->broken = cut ? journal->broken : error;
        journal->uncut = journal->broken != 0;
    }
    journal->end = journal->length;
    journal->head_at = 0;
    journal->sequence = journal->first;
    journal->previous = journal->flushed_previous;
}

/* A start finds nothing of what goes to a file that has no name left. */
static void expect_name(struct srv_journal *journal)
{
    if (!journal->named || has_name(journal->fd))
        return;
    journal->gone = true;
    journal->error = journal->broken = ENOENT;
}

int srv_journal_flush(struct srv_journal *journal, bool sync)
{
    end_batch(journal);
    empty_buffer(journal);
    if (journal->error == 0 && journal->end > journal->length)
        expect_name(journal);
    if (sync && journal->error == 0 && fdatasync(journal->fd) != 0) {
        journal->error = journal->broken = errno; /* nobody knows what the disk holds */
    }
    int error = journal->error;
    journal->error = 0;
    if (error != 0) {
        undo_batch(journal, error);
        return error;
    }
    journal->length = journal->end;
    journal->first = journal->sequence;
    journal->synced = sync ? journal->first : journal->synced;
    journal->flushed_previous = journal->previous;
    return 0;
}
