/* prometheus.h: Debian's Prometheus as a child, which scrapes a daemon once a second, and promtool.
 */
#ifndef TESTS_METRICS_PROMETHEUS_H
#define TESTS_METRICS_PROMETHEUS_H

#include <jansson.h>

#include "client.h"

#define PROMETHEUS_JOB "attnd"

struct prometheus {
    struct daemon daemon; /* as clients see it: the process and its address */
    struct client client;
    char directory[64];
};

/* Starts prometheus of the directory `programs` on a port of its own, with the rules of config/;
 * it scrapes `attnd`, whose certificate it trusts.  Waits until it is ready. */
void prometheus_start(struct prometheus *prometheus, const char *programs,
                      const struct daemon *attnd);
void prometheus_stop(struct prometheus *prometheus);

/* POSTs `form` ("query=..", with its values escaped) to /api/v1/PATH; returns `data` of the reply,
 * for json_decref.  NULL, with the error in *error for the caller to free, where it is refused. */
json_t *prometheus_ask(char **error, struct prometheus *prometheus, const char *path,
                       const char *form);

/* How many samples of an instant query there are.  Fails the test where the query is refused or a
 * sample is not finite. */
size_t prometheus_count(struct prometheus *prometheus, const char *query);

/* Runs promtool of that directory with these words of a shell, which must succeed. */
void promtool(const char *programs, const char *words);

#endif
