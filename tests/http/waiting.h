/* waiting.h: what suites share that look at what happens within some time, or does not. */
#ifndef TESTS_HTTP_WAITING_H
#define TESTS_HTTP_WAITING_H

#include <time.h>

#include "raw.h"

#define LIVEZ "GET /livez HTTP/1.1\r\nHost: test\r\n\r\n"
#define QUIET_MS 500 /* in which nothing is to happen */
#define SOON_MS 20000

/* A model of which one thread computes long calls, however long the machine lets it take. */
#define SLOW_CONFIG                                                                          \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\",\"memory_limit\":\"64GiB\","       \
    "\"drain_timeout_s\":3600,"                                                              \
    "\"models\":[{\"name\":\"slow\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":" \
    "16,\"is_causal\":true,\"seed\":1}}]}"

double seconds_since(const struct timespec *start);

/* Whether bytes, or the end, come within the time. */
bool raw_readable(const struct raw *raw, int timeout_ms);

/* Reads the next answer, which must have this status. */
void raw_expect_status(struct raw *raw, unsigned status);

#endif
