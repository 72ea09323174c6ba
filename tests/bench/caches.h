/* caches.h: what a session's cache takes, before and after windows forget. */
#ifndef TESTS_BENCH_CACHES_H
#define TESTS_BENCH_CACHES_H

#include <stdbool.h>

/* Prints for the attention layers of some published models, from their sizes alone, the bytes of a
 * session where every layer keeps every token, and where layers keep what their windows see.  False
 * where a model cannot be opened. */
bool bench_caches(void);

#endif
