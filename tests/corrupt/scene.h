/* scene.h: a daemon without HTTP: models, sessions and a store in a directory of its own, and the
 * files that the store writes. */
#ifndef TESTS_CORRUPT_SCENE_H
#define TESTS_CORRUPT_SCENE_H

#include "app.h"

#define MAX_SESSIONS 16

/* A session's file as the store writes it: of a model whose window forgets, of latent attention,
 * and of one with a layer that reads another's keys and values. */
#define SCENE_FILES 3
struct scene_file {
    unsigned char *bytes; /* [size] */
    size_t size;
    uint64_t epoch; /* of the session */
};

struct scene {
    struct srv_app app;
    char directory[64];
    struct scene_file files[SCENE_FILES]; /* that scene_make makes */
};
extern struct scene scene;

void scene_open(void); /* exits where it fails */
void scene_close(void);

/* Opens an empty table of sessions, and closes it. */
void scene_open_table(void);
void scene_close_table(void);

/* A checksum of all that a session is. */
uint64_t scene_state_of(const struct srv_session *session);

/* Makes scene.files, and the bytes of a journal with every kind of record and of a base of
 * generation 7 that has shares; the caller frees these two. */
void scene_make(unsigned char **journal, size_t *journal_size, unsigned char **base,
                size_t *base_size);

#endif
