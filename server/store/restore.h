/* restore.h: sessions restored from files, in memory, before anybody can see them.
 *
 * The caller makes the sessions of a manifest first, then reads journals in their order, and
 * publishes all sessions together at the end.  Files are bytes that nobody vouches for.  A session
 * of which a record is missing, or may be missing, is not restored: a lost session is reported, a
 * wrong one would not be.  After a gap in the records all sessions are unproven, until a record of
 * the session's own or a mark says what was in the gap.
 *
 * Blocks of a manifest are absent at first; rows of journals follow them in memory.  Blocks are
 * shared as before: those of one place are one block, and forks in journals are forked again.  So
 * sessions that fitted the pool fit it again.
 *
 * Memory does not depend on the length of a file.  Of a journal, a window (file_reader.h) and 256
 * KiB of rows are held at a time. */
#ifndef SRV_RESTORE_H
#define SRV_RESTORE_H

#include "session/models.h"
#include "session/session.h"
#include "store/blocks.h"
#include "store/record.h"
#include "store/store_files.h"

struct srv_restored_session {
    uint64_t epoch;
    struct srv_session *session; /* NULL: deleted, or lost and not kept */
    size_t order;                /* of its creation */
    bool lost;                   /* damaged, or something of it is missing */
    bool unknown_model;          /* lost since its model is not configured */
    bool pending;                /* an import that is not committed yet */
    bool unproven;               /* records are missing that may be its own */
    bool without_manifest;       /* lost with what the manifest has, not for records */
    bool published;              /* in the table: it was whole, and had not expired */
    uint64_t generation;         /* of the manifest's section that it is of; 0: of a journal */
};

struct srv_restore {
    struct srv_sessions *sessions; /* where they will be published */
    unsigned store;                /* of them: srv_store_context.index */
    const struct srv_models *models;
    struct srv_restored_session *entries; /* [capacity] hashed by epoch; epoch 0: free */
    size_t capacity, count;               /* count: entries in use */
    size_t recount_at;                    /* the count at which the entries are counted again */
    size_t made;                          /* entries made since the start */
    size_t max_sessions;                  /* of the table */
    bool counts;                          /* sessions are counted: they have neither model nor
                                             tokens, and are not published */
    bool keeps_parts;                     /* lost sessions stay as they were when last whole */
    uint64_t base_generation;             /* of the manifest: journals before it do not count */
    struct srv_slots *slots;              /* of the directory; the caller's */
    struct srv_slot_reader reader;
    struct srv_block_map map;    /* of blocks that have been restored */
    struct attn_cache **damaged; /* [num_damaged] of which the map may have blocks */
    size_t num_damaged;
    struct srv_place gap; /* of the first missing record that no mark has explained;
                                             generation 0: none */
    struct srv_place end; /* of the last journal that had records */
    uint64_t newest_ns;   /* the latest time in the files, of the table's clock */
    /* As in struct srv_journal_reader, of the journals after the one that is being read; NULL, as
     * at first: there are none. */
    uint64_t (*synced_later)(void *context);
    void *context;
    char message[256]; /* the last thing that was wrong */
};

enum srv_restore_status {
    SRV_RESTORE_OK,
    SRV_RESTORE_DAMAGED,    /* what the manifest has; the session is lost */
    SRV_RESTORE_NO_MODEL,   /* likewise: its model, by name and fingerprint, is not configured */
    SRV_RESTORE_FULL,       /* the pool, memory or a limit: nothing more can be restored */
    SRV_RESTORE_UNREADABLE, /* the file cannot be read now, and may be sound */
};

/* Begins restoring for a table of `max_sessions`.  Files may hold more sessions than that, some of
 * which have expired.  Reading ends with SRV_RESTORE_FULL where the files hold more than twice
 * max_sessions, or where more than eight times max_sessions are lost.  Entries are counted whenever
 * their number has grown by a quarter, so that reading may end a quarter later. */
void srv_restore_init(struct srv_restore *restore, struct srv_sessions *sessions,
                      size_t max_sessions, const struct srv_models *models);
void srv_restore_fini(struct srv_restore *restore); /* frees what was not published */

/* The entry of an epoch, made where there is none; NULL where memory is short or there are too many
 * sessions, with `message`.  A call may move all entries, and drops those of deleted sessions. */
struct srv_restored_session *srv_restore_entry(struct srv_restore *restore, uint64_t epoch);

/* The entry of an epoch; NULL where there is none. */
struct srv_restored_session *srv_restore_find(const struct srv_restore *restore, uint64_t epoch);

/* The parent of a fork of that model, where it is as it was when it was forked; else NULL. */
const struct srv_restored_session *srv_restore_parent(const struct srv_restore *restore,
                                                      const struct srv_record_create *create,
                                                      const struct srv_model *model);

/* Marks a session of which something is missing as lost: no later record of it is applied.  Frees
 * the session unless restore->keeps_parts. */
void srv_restore_mark_lost(const struct srv_restore *restore, struct srv_restored_session *entry);

/* Frees the entry's session, which was deleted. */
void srv_restore_forget(struct srv_restored_session *entry);

/* Notes a time of the table's clock that a file has. */
void srv_restore_note_time(struct srv_restore *restore, uint64_t time_ns);

/* Marks all sessions as unproven: records from this place on are missing, which may be of any. */
void srv_restore_open_gap(struct srv_restore *restore, struct srv_place place);

/* The same where `record` is the first sound one after `missing` others, the first of which was at
 * this place.  Of a single one the record says whose it was. */
enum srv_restore_status srv_restore_skip_gap(struct srv_restore *restore, struct srv_place place,
                                             const struct srv_record *record, uint64_t missing);

/* Reads a mark; false where it is none. */
bool srv_restore_read_mark(struct srv_record_mark *out, const struct srv_record *record);

/* Whether records are missing between the journals that were read and the one that has this mark;
 * they begin at restore->end. */
bool srv_restore_misses(const struct srv_restore *restore, const struct srv_record_mark *mark);

/* Applies a mark of a journal of that generation: where the mark says what was in the gap, it
 * proves the sessions that have all their records, and the gap is closed. */
enum srv_restore_status srv_restore_apply_mark(struct srv_restore *restore,
                                               const struct srv_record *record,
                                               const struct srv_record_mark *mark,
                                               uint64_t generation);

/* The model of that name and fingerprint, with a reference (srv_model_put), or NULL; NO_MODEL where
 * there is none, FULL where max_weightless_shapes or memory has no room for it. */
enum srv_restore_status srv_restore_model(const struct srv_model **out, struct srv_restore *restore,
                                          const char *name, const char *fingerprint);

/* Makes a session as the manifest says, all its blocks absent, or where sessions are counted reads
 * its blocks. */
enum srv_restore_status srv_restore_described(struct srv_restore *restore,
                                              const struct srv_manifest_entry *said);

/* Frees what srv_restore_described has noted of blocks, once all sessions are made. */
void srv_restore_forget_blocks(struct srv_restore *restore);

/* The options of a session as a description has them: all but its length, cache, last steps and
 * revision. */
struct srv_session_options srv_restore_options(const struct srv_restore *restore,
                                               const struct srv_restored_session *entry,
                                               const struct srv_record_create *create);

/* Whether a description of a session is possible. */
bool srv_restore_is_possible(const struct srv_record_create *create);

struct srv_replay_result {
    size_t good;    /* bytes up to a torn tail */
    size_t records; /* that were read */
    size_t gaps;    /* places where records are missing or damaged */
    size_t dropped; /* sound records after a torn tail */
    bool torn;      /* it ends in what may never have been on the disk */
    bool last;      /* later journals do not count: records before them were never on the disk */
};

/* Reads a journal.  Journals are read in their order. */
enum srv_restore_status srv_restore_journal(struct srv_replay_result *out,
                                            struct srv_restore *restore, uint64_t generation,
                                            struct srv_file_reader *journal);

/* Appends the rows of a sound record whose head is this one to a session's cache.  ATTN_OK, an
 * error of attn_cache_write, ATTN_IO (the record's reader has the errno). */
enum attn_status srv_restore_rows(const struct srv_session *session,
                                  const struct srv_record *record,
                                  const struct srv_record_rows *head);

struct srv_restore_result {
    size_t published, lost, unknown_model, expired;
};

/* restore_count.c, where sessions are counted: the session of a record and that of a manifest; what
 * a record changes in one, false where it cannot; and what a start would publish, but that of two
 * sessions of one id both count. */
enum srv_restore_status srv_restore_count_made(struct srv_restored_session *entry,
                                               const struct srv_restore *restore,
                                               const struct srv_record_made *made, bool fork);
enum srv_restore_status srv_restore_count_described(struct srv_restored_session *entry,
                                                    struct srv_restore *restore,
                                                    const struct srv_manifest_entry *said);
bool srv_restore_count_change(struct srv_restored_session *entry, const struct srv_record *record);
void srv_restore_count(struct srv_restore_result *out, const struct srv_restore *restore);

/* Inserts all whole sessions into the table; false, with `message`, where the table has no room for
 * them.  An entry that has a session and is not published has expired before this start, or is the
 * older of two sessions of one id. */
bool srv_restore_publish(struct srv_restore_result *out, struct srv_restore *restore);

#endif
