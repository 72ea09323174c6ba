/* state_files.h: the files of a state directory, found and damaged. */
#ifndef TESTS_HTTP_STATE_FILES_H
#define TESTS_HTTP_STATE_FILES_H

#include <stddef.h>
#include <sys/types.h>

#include "store/record.h"

/* Counts the files of the directory whose names end so; `path` gets that of one of them. */
size_t state_files_find(char path[320], const char *directory, const char *suffix);

/* Waits until there is one. */
void state_files_await(const char *directory, const char *suffix);

/* Changes a bit of the byte at that place. */
void state_files_flip(const char *path, off_t at);

/* The place of a record of that type in a journal, after `skipped` others of the type; the end of
 * the journal where there are fewer. */
off_t state_files_record(const char *path, enum srv_record_type type, size_t skipped);

#endif
