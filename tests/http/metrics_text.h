/* metrics_text.h: whether a text is what Prometheus reads (exposition format 0.0.4). */
#ifndef TESTS_HTTP_METRICS_TEXT_H
#define TESTS_HTTP_METRICS_TEXT_H

#include <stddef.h>

/* Fails the test, naming the line, unless every line is a HELP, a TYPE or a sample with a finite
 * value; every sample comes after a TYPE of its family; none comes twice; no bucket holds less than
 * the one before it, and the last, +Inf, holds what _count says.  Returns the number of samples. */
size_t metrics_check(const char *text);

#endif
