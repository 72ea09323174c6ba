/* store_load.h: the parts of a start that reads a state directory (store_load.c). */
#ifndef SRV_STORE_LOAD_H
#define SRV_STORE_LOAD_H

#include "store/restore.h"
#include "store/store_internal.h"

struct srv_load {
    struct srv_store *store;
    struct srv_restore restore;
    struct srv_file *files; /* [count] */
    size_t count;
    uint64_t generation;  /* of the manifest's last section; 0: there is no manifest */
    bool differs;         /* the manifest's copies do */
    size_t published;     /* sessions */
    size_t bytes;         /* of the files that were read */
    size_t reached;       /* of the file that is being read */
    uint64_t reported_ns; /* when progress was last logged */
    bool incomplete;      /* something of the files is not in the sessions */
    size_t journal;       /* the file that is being read */
    bool ended;           /* journals after it do not count */
    struct srv_repairs repairs;
    char *message;
    size_t size;
};

/* store_load.c.  `count_damaged` but counts; the others return false, for the caller to return. */
void srv_load_count_damaged(const struct srv_load *load);
bool srv_load_refuse(struct srv_load *load);
bool srv_load_refuse_unreadable(struct srv_load *load, const char *name, const char *why);
bool srv_load_refuse_memory(struct srv_load *load);

/* Has a file set aside once the sessions are published; false where memory is short. */
bool srv_load_set_aside(struct srv_load *load, const char *name, const char *why);

/* Opens a file whose reading is reported, with errno; and closes it. */
bool srv_load_begin_file(struct srv_file_reader *out, struct srv_load *load, const char *name);
void srv_load_end_file(struct srv_load *load, struct srv_file_reader *file);

/* load_manifest.c: the newest manifest, and the sessions that it has. */
bool srv_load_manifest(struct srv_load *load);

/* store_reader.c: after publishing: hands the sessions that have absent blocks over to the thread
 * that reads these.  False where memory is short. */
bool srv_load_hand_over(struct srv_load *load);

/* load_journals.c */
bool srv_load_journals(struct srv_load *load);

#endif
