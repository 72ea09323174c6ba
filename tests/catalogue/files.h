/* files.h: entries that are files and arguments, not requests, and that attnd must refuse. */
#ifndef TESTS_CATALOGUE_FILES_H
#define TESTS_CATALOGUE_FILES_H

#include <stdbool.h>

#include "entries.h"

extern const char *const file_keys[];

/* Writes the entry's files into `dir`, which must be empty and is left empty, and runs attnd.
 * False, with one line in `wrong`, unless attnd ends as the entry says. */
bool files_try(char wrong[600], const struct entry *entry, const char *dir);

#endif
