/* thread.c: pthread_create, whose failures are seldom a want of memory. */
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"

bool srv_thread_start(pthread_t *out, void *(*run)(void *), void *argument)
{
    int failed = pthread_create(out, NULL, run, argument);
    errno = failed != 0 ? failed : errno;
    return failed == 0;
}

void srv_thread_explain(char *message, size_t size)
{
    if (errno == EAGAIN)
        snprintf(
            message, size,
            "the system starts no more threads (EAGAIN): raise `ulimit -u`, or pids.max of the "
            "control group (--pids-limit of a container, TasksMax= of a service)");
    else if (errno == EPERM)
        snprintf(message, size,
                 "the system starts no threads (EPERM): a seccomp filter refuses clone3; update "
                 "the container engine, or its seccomp profile");
}

void srv_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool srv_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
    const uint64_t clock_ns = until_ns - SRV_AT_BOOT_NS;
    const struct timespec until = {.tv_sec = (time_t)(clock_ns / SRV_S_NS),
                                   .tv_nsec = (long)(clock_ns % SRV_S_NS)};
    return pthread_cond_timedwait(condition, lock, &until) == 0;
}
