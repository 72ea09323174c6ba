/* replies.h: the one form that attnd's errors have, byte for byte, and their lines in its log. */
#ifndef TESTS_CATALOGUE_REPLIES_H
#define TESTS_CATALOGUE_REPLIES_H

#include <stdbool.h>

#include "daemon.h"
#include "raw.h"

/* Whether the error is exactly status line, fields in their order and body as attnd writes them.
 * Date, request id and what depends on time are masked, i.e. taken from the reply.  `param` ("-":
 * none) and `message` are the error's; where `message` is NULL both are taken from the reply.
 * False with one line in `wrong`. */
bool reply_has_form(char wrong[600], const struct raw_answer *answer, const char *param,
                    const char *message);

/* A reply that came, for the log. */
struct reply_seen {
    char request_id[256], code[40];
    unsigned status;
};

#define REPLIES_MAX 8 /* of one case */

struct replies_seen {
    struct reply_seen items[REPLIES_MAX]; /* [count] */
    size_t count;
};

/* Notes a reply; one without a request id, which is none of attnd's, is not noted. */
void replies_note(struct replies_seen *seen, const struct raw_answer *answer, const char *code);

/* Whether the daemon's log has one line for each of the replies, with its status and code.  Waits
 * for the lines, which are written after the replies.  False with one line in `wrong`. */
bool replies_are_logged(char wrong[600], const struct replies_seen *seen,
                        const struct daemon *daemon);

#endif
