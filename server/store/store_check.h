/* store_check.h: what a state directory holds, file by file.
 *
 * Nothing is changed and no model is needed, so whether a session as a whole is restored is not
 * said: that takes the rows of its model (salvage.h). */
#ifndef SRV_STORE_CHECK_H
#define SRV_STORE_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

#define SRV_STORE_CHECK_MESSAGE 512

struct srv_store_check {
    size_t files;     /* that a start would read */
    size_t damaged;   /* of them, and files that are missing */
    size_t later;     /* of them, of a version that this build does not read */
    size_t set_aside; /* *.damaged */
};

/* Reads all files of the directory, a descriptor, and appends one line for each to `text`: its
 * name, "sound", "damaged", "torn" or "of another version", and what it holds.  False with one line
 * in `message` where the directory or a file cannot be read.
 * Memory: that of one window (file_reader.h) and of the list.  Cost: reads every byte once or
 * twice. */
bool srv_store_check(struct srv_store_check *out, struct srv_buffer *text, int directory,
                     char message[SRV_STORE_CHECK_MESSAGE]);

#endif
