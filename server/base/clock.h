/* clock.h: monotonic time, and that of calendars. */
#ifndef SRV_CLOCK_H
#define SRV_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SRV_MS_NS UINT64_C(1000000)
#define SRV_S_NS UINT64_C(1000000000)
#define SRV_AT_BOOT_NS (UINT64_C(1) << 60) /* 36 years */

/* CLOCK_MONOTONIC in nanoseconds, from SRV_AT_BOOT_NS at boot: times that lie before the machine
 * started, as last uses of restored sessions may, stay positive.  Any thread. */
uint64_t srv_now_ns(void);

/* CLOCK_REALTIME in nanoseconds since 1970; the time of any clock.  Any thread. */
uint64_t srv_wall_ns(void);
uint64_t srv_clock_ns(clockid_t clock);

#endif
