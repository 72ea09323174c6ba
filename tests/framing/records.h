/* records.h: who says that a request was there: the client, a proxy's log, attnd's log.
 *
 * What one of them has and another has not is a desynchronisation: somebody has read bytes of one
 * request as another, or given a reply to the wrong one. */
#ifndef TESTS_FRAMING_RECORDS_H
#define TESTS_FRAMING_RECORDS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "message.h"

struct record {
    char id[MESSAGE_ID_MAX + 1];   /* as attnd has it; of a proxy's line "" without attnd's reply */
    char seen[MESSAGE_ID_MAX + 1]; /* of a proxy's line: the id of the request; "" for none */
    unsigned status, connection;
    size_t line; /* where its counterpart stands in attnd's log; 0: none yet */
};

/* A list that threads add to. */
struct records {
    struct record *items;
    size_t count, capacity;
    pthread_mutex_t lock;
};

#define RECORDS_EMPTY                     \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

void records_add(struct records *records, const struct record *record);
void records_free(struct records *records);

/* Reads the lines of attnd's log about requests, but those whose id is all 'r'. */
void records_read_log(struct records *out, const char *log);

/* Reads the lines of a proxy about requests that it passed on: a line is "passed STATUS ID SEEN",
 * where "-" stands for none. */
void records_read_proxy(struct records *out, const char *log);

/* Holds attnd's log against the replies that clients got directly.  Each reply has its line, with
 * its id and status, and those of a connection are in order.  A line without reply belongs to an
 * entry of `tails`, the connections whose last request was wrong; its status is that of an error,
 * or 0 where the client left within the request.  Prints the first desynchronisations, and returns
 * their number. */
size_t records_compare_direct(struct records *log, struct records *replies, struct records *tails);

/* Holds attnd's log against a proxy's, and the replies that clients got against both. */
size_t records_compare_proxy(struct records *log, struct records *passed, struct records *replies);

#endif
