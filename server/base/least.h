/* least.h: the smaller of two sizes. */
#ifndef SRV_LEAST_H
#define SRV_LEAST_H

#include <stddef.h>

static inline size_t srv_least(size_t a, size_t b) { return a < b ? a : b; }

#endif
