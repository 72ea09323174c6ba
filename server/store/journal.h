/* journal.h: a journal that is being written.
 *
 * The records of a batch go to the file in one write, all or none.  The caller serializes calls. */
#ifndef SRV_JOURNAL_H
#define SRV_JOURNAL_H

#include "store/record.h"

struct srv_journal {
    int fd; /* -1: none */
    uint64_t generation;
    uint64_t length;             /* bytes of the batches that are whole */
    uint64_t end;                /* bytes of the file, with what was written of this batch */
    uint64_t sequence;           /* of the next record */
    uint64_t first;              /* sequence of the first record of this batch */
    uint64_t synced;             /* records below this number are on the disk */
    bool older_synced;           /* all journals before this one are; the caller's to set */
    uint64_t previous;           /* epoch of the last record that was added */
    uint64_t flushed_previous;   /* epoch of the last record of the batches that are whole */
    struct srv_record_head head; /* of the last record that was added to this batch */
    uint64_t head_at;            /* place of that head in the file; 0: there is none */
    int error;                   /* errno of this batch; 0 */
    int broken;                  /* errno for which it takes no more records; 0 */
    bool named;                  /* it was a file of a directory when it was opened */
    bool gone;                   /* its file, or others that a start needs, were removed */
    bool uncut;                  /* the disk may have bytes of a batch that was refused */
    unsigned char *buffer;
    size_t used; /* bytes of the buffer */
};

/* Writes the head of a journal to `fd`, a new and empty file, and owns that from here on.  False
 * with errno; the fd stays the caller's then. */
bool srv_journal_open(struct srv_journal *journal, int fd, uint64_t generation);
void srv_journal_close(struct srv_journal *journal); /* takes a zeroed one whose fd is -1 */

/* A journal without a file, which refuses all records with that errno.  False with errno. */
bool srv_journal_open_refusing(struct srv_journal *journal, int error);

/* Has a journal end at `length` on the disk, where it is broken and `uncut`: by cutting it off, or
 * else by overwriting the head of the record there, which then is none.  False with errno. */
bool srv_journal_cut(int fd, uint64_t length);

/* Adds a record to the batch.  The caller sets type, epoch and chain of `head`; the rest is filled
 * in.  A failure shows in srv_journal_flush. */
void srv_journal_add(struct srv_journal *journal, struct srv_record_head *head,
                     const struct srv_record_part parts[], size_t count);

/* Ends the batch.  Returns 0: all of it is in the file, and with `sync` on the disk; or an errno:
 * none of it is. */
int srv_journal_flush(struct srv_journal *journal, bool sync);

#endif
