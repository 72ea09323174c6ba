/* store_files.h: the files of a state directory.
 *
 *   lock                          held by the daemon that uses the directory, which holds the
 *                                 directory's own lock too: the file may be removed by others,
 *                                 and the directory's lock is not had on every file system
 *   identity                      whose sessions it holds (identity.h)
 *   <generation>.journal          records (record.h)
 *   <generation>.manifest, .copy  what sessions are, and where their blocks stand (manifest.h)
 *   <generation>-<size>.blocks    blocks of sessions, in slots (slots.h)
 *   *.damaged                     files that were set aside
 *   *.new                         files that were not finished; removed at start
 *
 * Numbers are hexadecimal, a generation has 16 digits: no name comes from a client.  A session is
 * what the newest manifest says, followed by its records in the journals from the generation on
 * that the manifest's last section names. */
#ifndef SRV_STORE_FILES_H
#define SRV_STORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_state.h"
#include "store/file_reader.h"
#include "store/slots.h"

#define SRV_FILE_NAME 56
#define SRV_LOCK_FILE "lock"
#define SRV_SET_ASIDE ".damaged" /* the end of the names of files that were set aside */

enum srv_file_kind {
    SRV_FILE_OTHER,
    SRV_FILE_JOURNAL,
    SRV_FILE_MANIFEST,
    SRV_FILE_COPY, /* of a manifest */
    SRV_FILE_BLOCKS,
    SRV_FILE_FORMER, /* of a build that kept each session in a file of its own */
    SRV_FILE_UNFINISHED,
};

struct srv_file {
    enum srv_file_kind kind;
    uint64_t generation;
    size_t slot_bytes; /* of a file of blocks */
    char name[SRV_FILE_NAME];
};

static inline bool srv_file_is_manifest(const struct srv_file *file)
{
    return file->kind == SRV_FILE_MANIFEST || file->kind == SRV_FILE_COPY;
}

/* The newest manifest of a list, or a copy of one, of a generation before that one; NULL: none. */
const struct srv_file *srv_files_newest_manifest(const struct srv_file files[], size_t count,
                                                 uint64_t before);

/* Names a journal, a manifest or its copy. */
void srv_file_name(struct srv_file *out, enum srv_file_kind kind, uint64_t generation);

/* Lists all files that have such names, in the order of kind and generation; *out is the
 * caller's to free.  False with errno. */
bool srv_files_list(struct srv_file **out, size_t *count, int directory);

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

#endif
