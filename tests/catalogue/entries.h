/* entries.h: the files of the catalogue as lists of entries, each a list of keyed lines.
 *
 * README.md has the format.  Nothing here knows what a key means: the code that runs entries does,
 * so a new kind of entry needs no change here. */
#ifndef TESTS_CATALOGUE_ENTRIES_H
#define TESTS_CATALOGUE_ENTRIES_H

#include "text.h"

struct line {
    char *key;
    struct text value; /* expanded; may hold any byte */
    unsigned number;   /* in its file */
};

struct entry {
    char *name; /* the value of its `case` line; "" for the lines before the first */
    unsigned number;
    struct line *lines;
    size_t count;
};

struct catalogue {
    const char *file;
    struct entry head;     /* the lines before the first case */
    struct entry *entries; /* [count] */
    size_t count;
    struct let *lets; /* [num_lets] */
    size_t num_lets;
};

/* Reads a file; an error in it fails the test.  ${dir} expands to `dir`. */
void catalogue_open(struct catalogue *out, const char *file, const char *dir);
void catalogue_close(struct catalogue *catalogue);

/* Returns the next line of that key after line `after` (NULL: the first), or NULL. */
const struct line *entry_line(const struct entry *entry, const char *key, const struct line *after);

/* Returns the value of the first line of that key, "" where there is none. */
const char *entry_text(const struct entry *entry, const char *key);

/* Fails the test where the key of a line is not among `keys`, a list that ends in NULL. */
void entry_check_keys(const struct catalogue *catalogue, const struct entry *entry,
                      const char *const keys[]);

#endif
