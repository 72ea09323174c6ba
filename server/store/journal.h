/* journal.h: a journal that is being written: what was added goes to the file in one write for a
 * batch, whole or not at all.  The caller guards it. */
#ifndef SRV_JOURNAL_H
#define SRV_JOURNAL_H

#include "store/record.h"

struct srv_journal {
    int fd; /* -1: none */
    uint64_t generation;
    uint64_t length;             /* bytes of the file that are good */
    uint64_t end;                /* of what has been written of the batch */
    uint64_t sequence, first;    /* of the next record; of the batch's first one */
    uint64_t previous, through;  /* epochs of the last record, and of the last good one */
    struct srv_record_head head; /* of the batch's last record so far, */
    uint64_t head_at;            /* which stands there in the file; 0: there is none */
    int error;                   /* errno of the batch, 0 */
    bool broken;                 /* what failed could not be taken back: no more writes */
    unsigned char *buffer;
    size_t used;
};

/* Takes over `fd`, a new and empty file, and writes its head.  False, with errno, where it could
 * not; the fd stays the caller's then. */
bool srv_journal_open(struct srv_journal *journal, int fd, uint64_t generation);
void srv_journal_close(struct srv_journal *journal); /* takes a zeroed one whose fd is -1 */

/* Adds a record to the batch: type, epoch and chain of `head` are the caller's, the rest is filled
 * in.  What fails is told by srv_journal_flush. */
void srv_journal_add(struct srv_journal *journal, struct srv_record_head *head,
                     const struct srv_record_part parts[], size_t count);

/* Ends the batch: all of it is in the file, and with `sync` on the disk; or none of it is, and the
 * errno is returned. */
int srv_journal_flush(struct srv_journal *journal, bool sync);

#endif
