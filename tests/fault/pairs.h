/* pairs.h: two calls that fail in one request. */
#ifndef TESTS_FAULT_PAIRS_H
#define TESTS_FAULT_PAIRS_H

/* Fails pairs of calls to files in each request that writes to a journal, and kills the daemon
 * afterwards, at once or when the request has succeeded.  `stride`: of the second calls, only every
 * so many; 0: the pairs of a flush and the first call of each kind after it, in a few requests. */
void pairs_run(const char *directory, unsigned stride);

#endif
