/* clock.c: monotonic time. */
#include "base/clock.h"

#include <time.h>

#define AT_BOOT_NS (UINT64_C(1) << 60) /* 36 years */

uint64_t srv_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return AT_BOOT_NS + (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
