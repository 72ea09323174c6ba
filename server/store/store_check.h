/* store_check.h: what a state directory holds, file by file.
 *
 * Nothing is changed and no model is needed.  What a start would restore is counted by its own
 * rules, with every session taken for one of a configured model. */
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
    /* Of a start, where no file is of a later version: sessions that it would serve and
     * those that would have expired or be lost. */
    size_t served, expired, lost;
};

/* Reads all files of the directory, a descriptor, and appends one line for each to `text`: its
 * name, "sound", "damaged", "torn" or "of another version", and what it holds; and one for each
 * session that a start would lose.  False with one line in `message` where the directory or a
 * file cannot be read.
 * Memory: that of one window (file_reader.h) and of the list.  Cost: reads every byte once or
 * three times. */
bool srv_store_check(struct srv_store_check *out, struct srv_buffer *text, int directory,
                     char message[SRV_STORE_CHECK_MESSAGE]);

#endif
