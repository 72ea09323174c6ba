/* waiting.c: what suites share that look at what happens within some time, or does not. */
#include "waiting.h"

#include <check.h>
#include <poll.h>

#include "long_call.h"

double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

bool raw_readable(const struct raw *raw, int timeout_ms)
{
    struct pollfd fd = {.fd = raw->fd, .events = POLLIN};
    return poll(&fd, 1, timeout_ms) > 0;
}

void raw_expect_status(struct raw *raw, unsigned status)
{
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_msg(answer.status == status, "%u, not %u: %s", answer.status, status, answer.body);
    raw_answer_free(&answer);
}
