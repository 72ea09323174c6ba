/* store_files.h: the files of a state directory.
 *
 *   lock                          whose directory it is
 *   <generation>.journal          records (record.h)
 *   <epoch>-<generation>.session  a session as that generation began: a safetensors file
 *                                 as GET /sessions/{id}/state sends it, with notes of its own
 *   <generation>.base             which session files make up that generation
 *   *.damaged                     what was set aside
 *   *.new                         not finished; removed at start
 *
 * All numbers are 16 hexadecimal digits: no name comes from outside.  A session is what its file
 * says, followed by its records in the journals from the base's generation on. */
#ifndef SRV_STORE_FILES_H
#define SRV_STORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_state.h"
#include "store/file_reader.h"

#define SRV_FILE_NAME 56

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
};

void srv_file_name(struct srv_file *out, enum srv_file_kind kind, uint64_t generation,
                   uint64_t epoch);

/* All files that have such names, by kind, generation and epoch; *out is the caller's to free.
 * False with errno. */
bool srv_files_list(struct srv_file **out, size_t *count, int directory);

/* Renames a file to its name and ".damaged". */
void srv_file_set_aside(int directory, const char *name);

/* A new file that is written under another name and becomes `name` when it is whole. */
int srv_file_begin(int directory, const char *name);                      /* fd, or -1 with errno */
bool srv_file_finish(int directory, int fd, const char *name, bool sync); /* closes fd */
void srv_file_abandon(int directory, int fd, const char *name);

/* Writes an export as the file of that name. */
bool srv_file_export(int directory, const char *name, struct attn_export *state, bool sync);

struct srv_base_entry {
    uint64_t epoch, generation, used_ns; /* of its file; last use since 1970 */
};

/* A base as a file.  False with errno. */
bool srv_base_write(int directory, uint64_t generation, const struct srv_base_entry entries[],
                    size_t count);

/* And back: how many entries it has, and one of them.  False where it is damaged, or where `base`
 * says that it cannot be read. */
bool srv_base_check(size_t *count, struct srv_file_reader *base, uint64_t generation);
bool srv_base_entry(struct srv_base_entry *out, struct srv_file_reader *base, size_t i);

#endif
