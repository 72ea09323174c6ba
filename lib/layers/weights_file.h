/* weights_file.h: packed weights in a file of a directory, which processes map and share.
 *
 * A file of weights is named LABEL.KEY.weights: the label is the model's name, the key the first
 * half of a hash of all that the content follows from.  Beside it stands a note, the lines of which
 * say what was found out about the file.
 *
 * A file is ATTN_WEIGHTS_HEADER bytes that say what it is, then the arrays of all layers one after
 * another, each at a multiple of ATTN_ALIGN, to the last byte.  Where an array stands follows from
 * the specifications of the layers, which writer and reader have; the file is asked for its size
 * alone.  A file appears under its name when it is whole and on the disk, and is never changed: a
 * new one replaces it.  Functions are for one thread at a time. */
#ifndef ATTN_LIB_LAYERS_WEIGHTS_FILE_H
#define ATTN_LIB_LAYERS_WEIGHTS_FILE_H

#include "attn.h"
#include "files/checksum.h"

#define ATTN_WEIGHTS_HEADER 4096
#define ATTN_WEIGHTS_LABEL_MAX 96
#define ATTN_WEIGHTS_NAME_MAX 160
#define ATTN_WEIGHTS_WAIT_S 300 /* for another process that writes */

/* ---- The directory ---- */

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
 * writers left that were killed.  For the holder of the lock. */
void attn_weights_tidy(int directory, const char *label, const char *keep);

/* Whether the note of the file has the line "FACT DIGEST"; adding one.  A line that cannot be
 * added is lost: what it says is found out again. */
bool attn_weights_noted(int directory, const char *name, const char *fact,
                        const char digest[ATTN_CHECKSUM_DIGITS]);
void attn_weights_note(int directory, const char *name, const char *fact,
                       const char digest[ATTN_CHECKSUM_DIGITS]);

/* ---- Reading ---- */

struct attn_weights_file {
    int file;     /* holds a shared lock: the file is in use */
    char *memory; /* [bytes], read-only; NULL: not open */
    size_t bytes;
    char fingerprint[17];
    char checksum[ATTN_CHECKSUM_DIGITS]; /* of the arrays */
};

/* Maps the file of that name and key, whose arrays take `data` bytes, and compares its arrays with
 * their checksum unless the note says that this was done since the machine started.  The file is
 * not trusted.  *out is zeroed after an error.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_NO_MEMORY; ATTN_MALFORMED (damaged, or not that key). */
enum attn_status attn_weights_file_open(struct attn_weights_file *out, int directory,
                                        const char *name, const char key[ATTN_CHECKSUM_DIGITS],
                                        size_t data, struct attn_error *error);

/* Whether there is a file of that name, key and size with a good header; nothing is mapped.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED. */
enum attn_status attn_weights_file_check(int directory, const char *name,
                                         const char key[ATTN_CHECKSUM_DIGITS], size_t data,
                                         struct attn_error *error);
void attn_weights_file_close(struct attn_weights_file *file); /* takes a zeroed one */

/* ---- Writing ---- */

struct attn_weights_writer {
    int directory, file; /* file: -1 where writing is over or failed */
    char name[ATTN_WEIGHTS_NAME_MAX], temporary[ATTN_WEIGHTS_NAME_MAX + 8]; /* of the file */
    char *buffer;
    size_t used, offset;
    int code; /* errno of the first failure; 0: none */
    struct attn_checksum sum;
};

/* Begins a file whose arrays take `data` bytes, and takes that much of the disk at once where the
 * file system can.  For the holder of the lock, who has tidied.  After a failure, which `code`
 * keeps, all further calls do nothing. */
void attn_weights_writer_begin(struct attn_weights_writer *writer, int directory, const char *name,
                               size_t data);
void attn_weights_writer_add(struct attn_weights_writer *writer, const void *array, size_t bytes);

/* Completes the file and gives it its name. */
void attn_weights_writer_end(struct attn_weights_writer *writer,
                             const char key[ATTN_CHECKSUM_DIGITS], const char fingerprint[17]);
void attn_weights_writer_fini(struct attn_weights_writer *writer); /* removes what is not whole */

#endif
