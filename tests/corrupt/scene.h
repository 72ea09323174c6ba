/* scene.h: a daemon without HTTP: models, sessions and a store in a directory of its own, and files
 * that it has written. */
#ifndef TESTS_CORRUPT_SCENE_H
#define TESTS_CORRUPT_SCENE_H

#include "app.h"

#define MAX_SESSIONS 16

struct scene {
    struct srv_app app;
    char directory[64];
    uint64_t epoch; /* of the session whose file scene_make gives */
};
extern struct scene scene;

void scene_open(void); /* ends the program where it cannot */
void scene_close(void);

/* An empty table of sessions, and its end. */
void scene_open_table(void);
void scene_close_table(void);

/* A sum of all that a session is. */
uint64_t scene_state_of(const struct srv_session *session);

/* The bytes of a journal of every kind of record, of a session's file and of a base of generation
 * 7; free them. */
void scene_make(unsigned char **journal, size_t *journal_size, unsigned char **file,
                size_t *file_size, unsigned char **base, size_t *base_size);

#endif
