/* clock.c: monotonic time, and that of calendars. */
#include "base/clock.h"

uint64_t srv_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SRV_S_NS + (uint64_t)now.tv_nsec;
}

uint64_t srv_now_ns(void) { return SRV_AT_BOOT_NS + srv_clock_ns(CLOCK_MONOTONIC); }

uint64_t srv_wall_ns(void) { return srv_clock_ns(CLOCK_REALTIME); }
