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
    uint64_t generation; /* of the base; 0: none */
    struct srv_file_reader base_file;
    struct srv_base_size base_size;
    struct srv_base_lists base;
    size_t next_share;          /* the first one of the entries that are still to be read */
    size_t published;           /* sessions */
    size_t bytes;               /* of the files that were read */
    size_t reached;             /* of the file that is being read */
    uint64_t reported_ns;       /* when progress was last logged */
    struct srv_extents extents; /* of tokens that are read later */
    bool gave_up;    /* these files are to be read at once; restore.extents is NULL from then on */
    bool incomplete; /* something of the files is not in the sessions */
    size_t journal;  /* the file that is being read */
    bool ended;      /* journals after it do not count */
    struct srv_repairs repairs;
    char *message;
    size_t size;
};

/* store_load.c.  `count_damaged` but counts; the others return false, for the caller to return. */
void srv_load_count_damaged(const struct srv_load *load);
bool srv_load_refuse(struct srv_load *load);
bool srv_load_refuse_unreadable(struct srv_load *load, const char *name, const char *why);
bool srv_load_refuse_memory(struct srv_load *load);
bool srv_load_give_up(struct srv_load *load); /* on reading tokens later */

/* Has a file set aside once the sessions are published; false where memory is short, or where
 * tokens were to be read later. */
bool srv_load_set_aside(struct srv_load *load, const char *name, const char *why);

/* Opens a file whose reading is reported, with errno; and closes it. */
bool srv_load_begin_file(struct srv_file_reader *out, struct srv_load *load, const char *name);
void srv_load_end_file(struct srv_load *load, struct srv_file_reader *file);

/* load_sessions.c: the files of the base's sessions, or those that are there. */
bool srv_load_sessions(struct srv_load *load);

/* store_reader.c: after publishing: hands the sessions without tokens over to the thread that reads
 * them.  False where memory is short. */
bool srv_load_hand_over(struct srv_load *load);

/* load_journals.c */
bool srv_load_journals(struct srv_load *load);

#endif
