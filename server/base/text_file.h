/* text_file.h: small files read whole: the configuration, API keys, certificates. */
#ifndef SRV_TEXT_FILE_H
#define SRV_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum srv_text_kind {
    SRV_TEXT_PUBLIC,
    SRV_TEXT_SECRET, /* refused where others may read or change it */
};

/* Reads a file of at most `limit` bytes into *out, followed by a NUL, without a byte order mark.
 * The caller frees *out, a secret by srv_text_wipe.  Waits two seconds for who writes to a named
 * pipe.  On failure *out is NULL and `message` one line that begins with the path. */
bool srv_text_read(char **out, size_t *length, const char *path, size_t limit,
                   enum srv_text_kind kind, char *message, size_t size);

/* Prints which file the path names now: device, inode and the time of its last write.  A name in a
 * container may go on meaning a file that was replaced outside. */
#define SRV_TEXT_DESCRIBED 128
void srv_text_describe(char out[SRV_TEXT_DESCRIBED], const char *path);

/* Overwrites the text and frees it; takes NULL. */
void srv_text_wipe(char *text, size_t length);

#endif
