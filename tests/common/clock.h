/* clock.h: what the clock shows that nobody sets. */
#ifndef TESTS_COMMON_CLOCK_H
#define TESTS_COMMON_CLOCK_H

#include <time.h>

static inline double clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline double clock_ms(void) { return 1e3 * clock_s(); }

#endif
