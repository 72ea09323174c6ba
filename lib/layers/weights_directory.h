/* weights_directory.h: the directory of packed weights: names, one writer at a time, notes.
 *
 * A file of weights is named LABEL.KEY.weights: the label is the model's name, the key the first
 * half of a hash of all that the content follows from.  Beside it stands a note, the lines of which
 * say what was found out about the file.  Functions are for one thread at a time. */
#ifndef ATTN_LIB_LAYERS_WEIGHTS_DIRECTORY_H
#define ATTN_LIB_LAYERS_WEIGHTS_DIRECTORY_H

#include "attn.h"
#include "files/checksum.h"

#define ATTN_WEIGHTS_LABEL_MAX 96
#define ATTN_WEIGHTS_NAME_MAX 160
#define ATTN_WEIGHTS_WAIT_S 300 /* for another process that writes */

/* Opens the directory, which is made (0700) if need be and where `make` says so; *out is the
 * caller's to close.
 * Errors: ATTN_IO; ATTN_UNSUPPORTED where every user may write to it, or a user owns it who is
 * neither this process's nor root. */
enum attn_status attn_weights_directory_open(int *out, const char *path, bool make,
                                             struct attn_error *error);

/* Waits until no other process writes to the directory; the lock ends with the descriptor.
 * Error: ATTN_IO, also after ATTN_WEIGHTS_WAIT_S. */
enum attn_status attn_weights_lock(int directory, struct attn_error *error);

/* Prints the name of the file; `label` has at most ATTN_WEIGHTS_LABEL_MAX characters. */
void attn_weights_print_name(char out[ATTN_WEIGHTS_NAME_MAX], const char *label,
                             const char key[ATTN_CHECKSUM_DIGITS]);

/* Removes the files of that label that no process uses, but not `keep` and its note, and what
 * writers left that were killed.  For the owner of the lock. */
void attn_weights_tidy(int directory, const char *label, const char *keep);

/* Whether the note of the file has the line "FACT DIGEST"; adding one.  A line that cannot be
 * added is lost: what it says is found out again. */
bool attn_weights_noted(int directory, const char *name, const char *fact,
                        const char digest[ATTN_CHECKSUM_DIGITS]);
void attn_weights_note(int directory, const char *name, const char *fact,
                       const char digest[ATTN_CHECKSUM_DIGITS]);

#endif
