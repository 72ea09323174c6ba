/* record.h: the records of a journal, as bytes.
 *
 * A journal is a head of 32 bytes and records.  A record is a head of 72 bytes and a payload; the
 * head has a checksum (base/checksum.h) of itself and one of the payload.  Records are numbered in
 * the journal (`sequence`), and once more among those of their session (`chain`), so that a missing
 * record shows whichever it was.
 *
 * Each record says how much was on the disk when it was written (`synced`).  Damage before that is
 * a gap, after which reading goes on.  Damage elsewhere is in a tail that nobody had flushed, of
 * which a crash leaves any part: there the journal ends, and those after it do too, so that what is
 * restored is what was once.
 *
 * A MARK is a record of no session.  The mark lists every session that has a record since some
 * earlier place, with the number of that session's next record.  So a session that the mark does
 * not list has lost nothing in a gap after that place.
 *
 * After a ROWS record the layer gives up what neither that step nor a later one sees, and the rows
 * of an import may begin after token 0.
 *
 * All numbers are little-endian, and all lengths multiples of 4 bytes. */
#ifndef SRV_RECORD_H
#define SRV_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/bounds.h"
#include "store/file_reader.h"

enum srv_record_type {
    SRV_RECORD_CREATE = 1, /* an empty session; a `pending` one counts only with its COMMIT */
    SRV_RECORD_FORK,       /* a session of the first `length` tokens of `parent` as it is here */
    SRV_RECORD_ROWS,       /* appended to one layer */
    SRV_RECORD_TRUNCATE,
    SRV_RECORD_COMMIT, /* of a pending session, with the last steps of its layers */
    SRV_RECORD_DELETE,
    SRV_RECORD_MARK, /* which sessions have records since an earlier place */

    SRV_RECORD_SESSION, /* of a manifest (manifest.h), not of a journal */
    SRV_RECORD_MOMENT,
};

#define SRV_JOURNAL_VERSION 6 /* the one that is written and read */
#define SRV_JOURNAL_HEAD 32
#define SRV_RECORD_HEAD 72
#define SRV_RECORD_TEXT 72 /* room for a model's name and its NUL, a multiple of 8 */

struct srv_record_head {
    uint32_t magic;
    uint16_t type;
    uint8_t last;      /* 1 in the last record of a write */
    uint8_t before;    /* records of the same write before this one; 255: as many, or more */
    uint64_t length;   /* bytes of payload */
    uint64_t sequence; /* from 1 on */
    uint64_t synced;   /* when this was written, records of this journal below this number and all
                            of the journals before were on the disk; 0: nothing is known */
    uint64_t epoch;    /* of the session; 0: of none */
    uint64_t previous; /* epoch of the record before this one */
    uint64_t chain;    /* number among the session's records, from 0 on */
    uint64_t payload_sum, head_sum;
};

/* Payloads.  Times are nanoseconds of the table's clock (session.h). */
struct srv_record_create { /* what never changes of a session */
    uint64_t used_ns, ttl_s, max_length, key_digest[2];
    uint64_t parent, parent_chain, length; /* of FORK: epoch, chain and tokens of the parent */
    uint64_t pending;
    char id[SRV_RECORD_TEXT], model[SRV_RECORD_TEXT], key[SRV_RECORD_TEXT], fingerprint[24];
    char owner[SRV_RECORD_TEXT], group[SRV_RECORD_TEXT]; /* "": none */
    uint64_t shared;
};

struct srv_record_made { /* of CREATE and FORK */
    struct srv_record_create create;
    uint64_t revision; /* its number (session/session.h) */
};

struct srv_record_rows { /* of ROWS; key [n][G][D] and value [n][G][Dv] follow, float32 */
    uint64_t used_ns, position, rows, layer, digest[2];
};

struct srv_record_truncate {
    uint64_t used_ns, length, revision, before;
};

struct srv_record_last { /* of COMMIT: one for each layer, [info.num_layers] */
    uint64_t position, rows, digest[2];
};

/* A place between records: before the record of that number. */
struct srv_place {
    uint64_t generation, sequence; /* generation 0: none */
};

struct srv_record_mark { /* of MARK; srv_mark_note [count] follows */
    uint64_t time_ns;
    struct srv_place since;    /* sessions of all records from here to the mark are listed;
                                  generation 0: all sessions that there are, and no others */
    struct srv_place previous; /* the end of the last journal before this one that has records */
    uint64_t count;
};

#define SRV_MARK_DELETED UINT64_MAX

/* A session of a mark, once. */
struct srv_mark_note {
    uint64_t epoch;
    uint64_t next_record; /* among its records; SRV_MARK_DELETED */
};

/* A part of a payload. */
struct srv_record_part {
    const void *bytes;
    size_t size;
};

/* Fills in the length and the checksums of a head whose payload is these parts. */
void srv_record_seal(struct srv_record_head *head, const struct srv_record_part parts[],
                     size_t count);

/* Marks a sealed head as that of the last record of its write. */
void srv_record_mark_last(struct srv_record_head *head);

/* The head of a journal of that generation. */
void srv_journal_print_head(unsigned char out[SRV_JOURNAL_HEAD], uint64_t generation);

/* ---- Reading --------------------------------------------------------------------------------- */

enum srv_reading {
    SRV_READ_RECORD,
    SRV_READ_GAP,  /* records that were on the disk are damaged; reading goes on after them */
    SRV_READ_TORN, /* the journal ends here: what follows was never known to be on the disk */
    SRV_READ_END,
    SRV_READ_FAILED, /* the file cannot be read: its reader has the errno */
};

struct srv_journal_reader {
    struct srv_file_reader *file;
    size_t at;         /* of the next record */
    uint64_t sequence; /* of the next record */
    uint64_t missing;  /* records that the last GAP has lost */
    uint64_t synced;   /* the largest one of the records that were looked at */
    size_t dropped;    /* sound records of later writes, after a TORN end */
    bool head_damaged;
    bool in_write; /* the write that is being read has not ended */
    /* Asked at damage that this journal does not show to have been on the disk: the number below
     * which later journals say that its records were.  NULL, as at first: there are none. */
    uint64_t (*synced_later)(void *context);
    void *context;
};

struct srv_record {
    struct srv_record_head head;
    struct srv_file_reader *file;
    size_t payload; /* its place in the file, a multiple of 4 */
};

/* Begins to read.  A damaged head is noted and skipped: the head says nothing that the file's name
 * does not say. */
void srv_journal_read_open(struct srv_journal_reader *reader, struct srv_file_reader *file,
                           uint64_t generation);

/* The version that a sound head of a journal has, of whatever build and generation; 0: the head is
 * damaged, or cannot be read. */
uint32_t srv_journal_version(struct srv_file_reader *file);

/* Reads the next record.  With a GAP, *out is the first sound record after it, which the next call
 * reads again. */
enum srv_reading srv_journal_read(struct srv_record *out, struct srv_journal_reader *reader);

/* Reads the record that stands at `at`; false where no sound one does. */
bool srv_journal_read_at(struct srv_record *out, struct srv_file_reader *file, size_t at);

/* The largest `synced` of a journal's sound records; 0: it has none, or cannot be read.  *first is
 * the first record, of type 0 where that is damaged or missing.  Reads all of the file. */
uint64_t srv_journal_synced(struct srv_record *first, struct srv_file_reader *file,
                            uint64_t generation);

/* Copies bytes [offset, offset + count) of the payload, within its length.  False where they cannot
 * be read. */
bool srv_record_read(void *out, const struct srv_record *record, size_t offset, size_t count);

#endif
