/* daemon.h: a serving attnd on a port that the kernel gave. */
#ifndef TESTS_HTTP_DAEMON_H
#define TESTS_HTTP_DAEMON_H

#include "process.h"

struct daemon {
    struct process process;
    char directory[64]; /* of config.json, until the daemon is ready */
    char host[48];
    unsigned port;
    char url[80];
    const char
        *trusted; /* file of the certificates that clients believe; NULL, as it is at first */
    const char *authorization; /* a field that clients send; NULL, as it is at first: none */
};

/* Writes `config` (JSON text) into a directory of its own, starts the daemon with it and waits for
 * its ready line; the directory is gone again then.  `arguments` and `variables` may be NULL.
 * Fails the test, with what the daemon said, where it does not get ready.
 * Without daemon_stop it ends with the process that started it. */
void daemon_start(struct daemon *daemon, const char *config, const char *const arguments[],
                  const char *const variables[]);

/* SIGTERM; waiting for the end, which must have exit status 0; both. */
void daemon_terminate(const struct daemon *daemon);
void daemon_expect_end(struct daemon *daemon);
void daemon_stop(struct daemon *daemon);

/* All that it wrote to standard error so far; free it.  Its end, to our own standard error. */
char *daemon_log(const struct daemon *daemon);
void daemon_show_log(const struct daemon *daemon);

/* What /proc says of it, or of one of its threads: the `status` file; free it. */
char *daemon_status(const struct daemon *daemon, pid_t thread);

/* The number behind `name` there, such as "VmHWM". */
unsigned long daemon_status_number(const struct daemon *daemon, pid_t thread, const char *name,
                                   int base);

/* Its threads other than the main one, at most DAEMON_MAX_THREADS; their number. */
#define DAEMON_MAX_THREADS 64
size_t daemon_threads(pid_t out[DAEMON_MAX_THREADS], const struct daemon *daemon);

/* Processor time that it has used so far. */
double daemon_cpu_s(const struct daemon *daemon);

/* A directory of its own under /tmp with `config` as config.json in it; `remove` takes both
 * away. */
void config_write(char directory[64], char path[96], const char *config);
void config_remove(const char *directory);

/* The configuration most suites use: `members` (such as "\"max_queue\":5,", may be "") and two
 * small models, `tiny` (grouped heads, RoPE, causal, two layers of width 16) and `plain` (biases,
 * no RoPE, not causal, width 8).  Bounds are the default ones, whose sum this machine need not
 * have: no suite uses it up. */
#define CONFIG_SMALL(members)                                                                      \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"instance\":\"test\",\"memory_limit\":\"64GiB\"," members \
    "\"models\":[{\"name\":\"tiny\",\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,"     \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"rope_theta\":10000,\"is_causal\":true,"   \
    "\"seed\":7}},{\"name\":\"plain\",\"random\":{\"hidden_size\":8,\"num_attention_heads\":2,"    \
    "\"is_causal\":false,\"attention_bias\":true,\"seed\":3}}]}"
#define TINY 16 /* widths */
#define PLAIN 8

#endif
