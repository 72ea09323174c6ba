/* files.h: entries that are no requests: files and arguments that attnd must refuse to work
 * with. */
#ifndef TESTS_CATALOGUE_FILES_H
#define TESTS_CATALOGUE_FILES_H

#include <stdbool.h>

#include "entries.h"

extern const char *const file_keys[];

/* Writes the entry's files into `dir`, which is empty and is so again behind it, and runs attnd.
 * False, with one line in `wrong`, unless it ends as the entry says. */
bool files_try(char wrong[600], const struct entry *entry, const char *dir);

#endif
