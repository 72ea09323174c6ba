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
    const char *trusted;       /* file of the certificates that clients trust; NULL at first */
    const char *authorization; /* a header field that clients send; NULL at first: none */
};

#define DAEMON_HOSTS "x,y,a,test" /* in Host of the suites' raw requests */

/* Writes `config` (JSON text) into a directory of its own, starts the daemon with it, waits for its
 * ready line, and removes the directory.  `arguments` and `variables` may be NULL; without others
 * in a flag or variable, DAEMON_HOSTS are allowed_hosts.  Fails the test,
 * showing the daemon's output, where the daemon does not get ready.  A daemon that is not stopped
 * ends with the process that started it. */
void daemon_start(struct daemon *daemon, const char *config, const char *const arguments[],
                  const char *const variables[]);

/* daemon_terminate sends SIGTERM; daemon_expect_end waits for the end, which must have exit status
 * 0; daemon_stop does both. */
void daemon_terminate(const struct daemon *daemon);
void daemon_expect_end(struct daemon *daemon);
void daemon_stop(struct daemon *daemon);

/* daemon_log returns all that the daemon has written to standard error, the caller's to free;
 * daemon_log_with waits until these words are in it, which come some milliseconds after what they
 * tell; daemon_show_log copies the end of that to our own standard error. */
char *daemon_log(const struct daemon *daemon);
char *daemon_log_with(const struct daemon *daemon, const char *words);
void daemon_show_log(const struct daemon *daemon);

/* Returns the text of /proc's file `status` for the daemon or one of its threads; the caller frees
 * it. */
char *daemon_status(const struct daemon *daemon, pid_t thread);

/* Returns the number after `name` in that file, such as "VmHWM". */
unsigned long daemon_status_number(const struct daemon *daemon, pid_t thread, const char *name,
                                   int base);

/* Lists the daemon's threads other than the main one, at most DAEMON_MAX_THREADS; returns their
 * number. */
#define DAEMON_MAX_THREADS 64
size_t daemon_threads(pid_t out[DAEMON_MAX_THREADS], const struct daemon *daemon);

/* Returns the processor time that the daemon has used so far. */
double daemon_cpu_s(const struct daemon *daemon);

/* Makes a directory under /tmp with `config` as its config.json; config_remove deletes both. */
void config_write(char directory[64], char path[96], const char *config);
void config_remove(const char *directory);

/* The configuration of most suites: `members` (such as "\"max_queue\":5,", may be "") and two small
 * models, `tiny` (grouped heads, RoPE, causal, two layers of width 16) and `plain` (biases, no
 * RoPE, not causal, width 8).  Limits are the defaults, whose sum may exceed the memory of this
 * machine: no suite uses it up. */
#define CONFIG_SMALL(members)                                                                      \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"instance\":\"test\",\"memory_limit\":\"64GiB\"," members \
    "\"models\":[{\"name\":\"tiny\",\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,"     \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"rope_theta\":10000,\"is_causal\":true,"   \
    "\"seed\":7}},{\"name\":\"plain\",\"random\":{\"hidden_size\":8,\"num_attention_heads\":2,"    \
    "\"is_causal\":false,\"attention_bias\":true,\"seed\":3}}]}"
#define TINY 16 /* widths */
#define PLAIN 8

#endif
