/* thread.c: pthread_create, whose failures are seldom a want of memory. */
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>

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
