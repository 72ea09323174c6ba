/* record.h: the records of a journal, as bytes.
 *
 * A journal is a head of 32 bytes and records.  A record is a head of 72 bytes, with a sum (sum.h)
 * of its own and one of what follows it, and a payload.  Records are numbered in the journal, and
 * in `chain` again for each session, so that one that is missing shows whichever it was.  Those of
 * one write know the number of the first of them: damage in the last write of a journal cannot be
 * told from a write that was cut off, whose records nobody was told of.
 *
 * Everything is little-endian and in multiples of 4 bytes. */
#ifndef SRV_RECORD_H
#define SRV_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/bounds.h"
#include "store/file_reader.h"

enum srv_record_type {
    SRV_RECORD_CREATE = 1, /* an empty session; `pending`: nobody may see it before its COMMIT */
    SRV_RECORD_FORK,       /* the first `length` tokens of `parent` as it is here */
    SRV_RECORD_ROWS,       /* appended to one layer */
    SRV_RECORD_TRUNCATE,
    SRV_RECORD_COMMIT, /* of a pending session: the last steps of its layers */
    SRV_RECORD_DELETE,
};

#define SRV_JOURNAL_HEAD 32
#define SRV_RECORD_HEAD 72
#define SRV_RECORD_TEXT 72 /* room for an id and its NUL, in multiples of 8 */

struct srv_record_head {
    uint32_t magic;
    uint16_t type, last; /* last: 1 in the record that ends a write */
    uint64_t length;     /* bytes of payload */
    uint64_t sequence;   /* 1 for the first of a journal */
    uint64_t first;      /* sequence of the first record of the same write */
    uint64_t epoch;      /* of the session */
    uint64_t previous;   /* epoch of the record before */
    uint64_t chain;      /* number among the session's records, from 0 on */
    uint64_t payload_sum, head_sum;
};

/* Payloads.  Times are nanoseconds since 1970. */
struct srv_record_create { /* and fork */
    uint64_t used_ns, ttl_s, max_length, key_digest[2];
    uint64_t parent, parent_chain, length; /* fork */
    uint64_t pending;
    char id[SRV_RECORD_TEXT], model[SRV_RECORD_TEXT], key[SRV_RECORD_TEXT], fingerprint[24];
};

struct srv_record_rows { /* before key [n][G][D] and value [n][G][Dv], float32 */
    uint64_t used_ns, position, rows, layer, digest[2];
};

struct srv_record_truncate {
    uint64_t used_ns, length;
};

struct srv_record_last { /* a commit has one for each layer of the checkpoint */
    uint64_t position, rows, digest[2];
};

/* Fills the sums of a head whose payload is these parts. */
struct srv_record_part {
    const void *bytes;
    size_t size;
};
void srv_record_seal(struct srv_record_head *head, const struct srv_record_part parts[],
                     size_t count);

/* Marks a sealed head as that of the last record of a write. */
void srv_record_mark_last(struct srv_record_head *head);

/* The head of a journal file, of a generation. */
void srv_journal_print_head(unsigned char out[SRV_JOURNAL_HEAD], uint64_t generation);

/* ---- Reading --------------------------------------------------------------------------------- */

enum srv_reading {
    SRV_READ_RECORD,
    SRV_READ_GAP,  /* records are missing or damaged here; reading can go on behind them */
    SRV_READ_TORN, /* the last write was cut off, or cannot be told from one that was */
    SRV_READ_END,
    SRV_READ_FAILED, /* the file cannot be read: errno is in its source */
};

struct srv_journal_reader {
    struct srv_file_reader *source;
    size_t at;                  /* of the next record */
    uint64_t sequence, missing; /* of the next record; how many the last GAP has lost */
    bool head_damaged;
    bool open; /* the write that is being read has not ended */
};

struct srv_record {
    struct srv_record_head head;
    struct srv_file_reader *source;
    size_t payload; /* where it begins in the file, a multiple of 4 */
};

/* Begins to read.  A damaged head is noted and passed over: it says nothing that the file's name
 * does not. */
void srv_journal_read_open(struct srv_journal_reader *reader, struct srv_file_reader *source,
                           uint64_t generation);

/* The next record.  With a GAP, *out is the first sound record behind it, which comes again with
 * the next call. */
enum srv_reading srv_journal_read(struct srv_record *out, struct srv_journal_reader *reader);

/* Copies bytes [offset, offset + count) of the payload, of which they are a part.  False where they
 * cannot be read. */
bool srv_record_read(void *out, const struct srv_record *record, size_t offset, size_t count);

#endif
