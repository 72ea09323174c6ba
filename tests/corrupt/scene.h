/* scene.h: a daemon without HTTP: models, sessions and a store in a directory of its own, and the
 * files that the store writes. */
#ifndef TESTS_CORRUPT_SCENE_H
#define TESTS_CORRUPT_SCENE_H

#include "app.h"

#define MAX_SESSIONS 16
#define SCENE_BLOCKS 4 /* files of blocks, at most */

/* A file of the directory. */
struct scene_file {
    unsigned char *bytes; /* [size], as the store wrote them */
    size_t size;
    size_t slot_bytes; /* of a file of blocks */
    int fd;
};

struct scene {
    struct srv_app app;
    char path[64];
    int directory;                          /* of the store; -1 before scene_make */
    uint64_t generation;                    /* of the manifest */
    struct scene_file copies[2];            /* of the manifest */
    struct scene_file blocks[SCENE_BLOCKS]; /* [num_blocks] */
    size_t num_blocks;
};
extern struct scene scene;

void scene_open(void); /* exits where it fails */
void scene_close(void);

/* Opens an empty table of sessions, and closes it. */
void scene_open_table(void);
void scene_close_table(void);

/* A checksum of all that a session is. */
uint64_t scene_state_of(const struct srv_session *session);

/* Makes a directory with a manifest of two sections and its blocks, and the bytes of a journal with
 * every kind of record, which the caller frees. */
void scene_make(unsigned char **journal, size_t *journal_size);

#endif
