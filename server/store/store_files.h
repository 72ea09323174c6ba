/* store_files.h: the files of a state directory.
 *
 *   lock                          held by the daemon that uses the directory, which holds the
 *                                 directory's own lock too: the file may be removed by others,
 *                                 and the directory's lock is not had on every file system
 *   identity                      whose sessions it holds (identity.h)
 *   <generation>.journal          records (record.h)
 *   <epoch>-<generation>.session  a session as that generation began: a safetensors file as
 *                                 GET /sessions/{id}/state sends it, with more notes
 *   <generation>.base             the session files of that generation, and which blocks the
 *                                 sessions share (sharing.h)
 *   *.damaged                     files that were set aside
 *   *.new                         files that were not finished; removed at start
 *
 * All numbers are 16 hexadecimal digits: no name comes from a client.  A session is what its file
 * says, followed by its records in the journals from the base's generation on. */
#ifndef SRV_STORE_FILES_H
#define SRV_STORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_state.h"
#include "session/session.h"
#include "store/file_reader.h"
#include "store/record.h"
#include "store/sharing.h"

#define SRV_FILE_NAME 56
#define SRV_LOCK_FILE "lock"

enum srv_file_kind {
    SRV_FILE_OTHER,
    SRV_FILE_JOURNAL,
    SRV_FILE_SESSION,
    SRV_FILE_BASE,
    SRV_FILE_UNFINISHED,
};

struct srv_file {
    enum srv_file_kind kind;
    uint64_t epoch, generation;
    char name[SRV_FILE_NAME];
    bool irregular; /* as the directory says: a link, or what else is no file */
};

void srv_file_name(struct srv_file *out, enum srv_file_kind kind, uint64_t generation,
                   uint64_t epoch);

/* Lists all files that have such names, in the order of kind, generation and epoch; *out is the
 * caller's to free.  False with errno. */
bool srv_files_list(struct srv_file **out, size_t *count, int directory);

/* Whether such a list has a session's regular file of that generation. */
bool srv_files_have_session(const struct srv_file files[], size_t count, uint64_t generation,
                            uint64_t epoch);

/* The same as srv_files_list for the files that were set aside: their names end in ".damaged". */
bool srv_files_list_set_aside(struct srv_file **out, size_t *count, int directory);

/* Renames a file to its name and ".damaged". */
void srv_file_set_aside(int directory, const char *name);

/* Begins a new file, which is written under another name and becomes `name` when it is whole.
 * Returns its fd, or -1 with errno. */
int srv_file_begin(int directory, const char *name);

/* Ends it as a file of that name, false with errno, or as none; both close the fd. */
bool srv_file_finish(int directory, int fd, const char *name, bool sync);
void srv_file_abandon(int directory, int fd, const char *name);

/* Flushes the names in a directory; false with errno.  True with errno EINVAL where the file system
 * cannot do that, else with 0. */
bool srv_sync_directory(int directory);

/* Writes an export as the file of that name.  False with errno. */
bool srv_file_export(int directory, const char *name, struct attn_export *state, bool sync);

/* A session of a base. */
struct srv_base_entry {
    uint64_t epoch;
    uint64_t generation; /* of its file */
    uint64_t used_ns;    /* last use, of the table's clock (session.h) */
};

/* A layer of a session: what it holds, and its last step, which ends at the length. */
struct srv_base_layer {
    uint32_t length, first; /* the first token that is kept */
    uint32_t rows, zero;    /* rows of the last step; 0: it cannot be repeated */
    uint64_t digest[2];     /* of the last step */
};

/* A session without its tokens, so that a start need not open its file. */
struct srv_base_session {
    struct srv_record_create create; /* used_ns, parent, parent_chain, length, pending: 0 */
    uint64_t next_record;            /* among the session's records */
    uint64_t num_layers;
    struct srv_revision revision;
    struct srv_base_layer layers[]; /* [num_layers] */
};

/* The sessions of a snapshot and what they share (sharing.h), borrowed. */
struct srv_base {
    uint64_t generation, time_ns;
    const struct srv_base_entry *entries; /* [num_entries] */
    const struct srv_share *shares;       /* [num_shares] in the order of the entries */
    size_t num_entries, num_shares;
    struct srv_base_session *const *sessions; /* [num_entries] */
};

/* Bytes of a base as a file. */
size_t srv_base_bytes(const struct srv_base *base);

/* Writes a base as a file.  False with errno. */
bool srv_base_write(int directory, const struct srv_base *base);

#define SRV_BASE_VERSION 6 /* the one that is written and read */

/* The version in the head of a base, of whatever generation; 0: there is none, or it is a later one
 * and the checksum is wrong, or it cannot be read. */
uint64_t srv_base_version(struct srv_file_reader *base);

struct srv_base_size {
    size_t entries, shares;
    uint64_t time_ns;              /* when it was written, of the table's clock */
    size_t sessions, sessions_end; /* where those stand in the file */
};

/* Whether the file is a sound base of that generation, and how much it has.  False where it is
 * damaged, or where `base` says that it cannot be read. */
bool srv_base_check(struct srv_base_size *out, struct srv_file_reader *base, uint64_t generation);

/* Copies of a base's entries and shares. */
struct srv_base_lists {
    struct srv_base_entry *entries; /* [size->entries] */
    struct srv_share *shares;       /* [size->shares] */
};

/* Reads both.  False where they cannot be read, or held in memory (errno of `base`). */
bool srv_base_lists(struct srv_base_lists *out, struct srv_file_reader *base,
                    const struct srv_base_size *size);
void srv_base_lists_fini(struct srv_base_lists *lists);

/* base_missing.c: reports each session file that a sound base of the list names and the list, which
 * is that of srv_files_list, lacks; returns how many. */
typedef void srv_missing_report(void *context, const char *name);
size_t srv_base_missing(int directory, const struct srv_file *base, const struct srv_file files[],
                        size_t count, srv_missing_report *report, void *context);

/* Reads the session at *at, size->sessions at first, which is that of the first entry, and sets *at
 * to the next one.  `out` has room for ATTN_MAX_LAYERS.  False where none stands there that is
 * possible, or it cannot be read (errno of `base`). */
bool srv_base_session(struct srv_base_session *out, size_t *at, struct srv_file_reader *base,
                      const struct srv_base_size *size);

/* The bytes of a session of that many layers. */
size_t srv_base_session_bytes(size_t num_layers);

#endif
