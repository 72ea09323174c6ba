/* held.h: copies of requests that the proxy holds, and what a late one may do. */
#ifndef TESTS_RETRY_HELD_H
#define TESTS_RETRY_HELD_H

#include "proxy.h"
#include "raw.h"

/* Keeps a copy of the caller's request of that number; one of many is dropped for it. */
void held_add(unsigned caller, size_t number, const struct raw_answer *request, unsigned random);

/* Takes one of the caller's copies of requests before that number; *in_order: it is the oldest.
 * False where there is none. */
bool held_take(struct raw_answer *out, bool *in_order, unsigned caller, size_t number,
               unsigned random);
void held_drop_all(void);

/* Counts what a late request has done, by its reply. */
void held_judge(struct proxy_figures *figures, const struct raw_answer *request,
                const struct raw_answer *reply);

/* How often a text has a word. */
size_t held_count(const char *text, const char *word);

#endif
