/* served.h: the daemon that the tests of a suite call, and a connection to it.  Each test has its
 * own, by a fixture. */
#ifndef TESTS_HTTP_SERVED_H
#define TESTS_HTTP_SERVED_H

#include "client.h"
#include "daemon.h"

extern struct daemon served;
extern struct client client;

/* Starts a daemon with a configuration, or that of CONFIG_SMALL alone, and opens the connection. */
void serve(const char *config);
void serve_small(void);

/* The same with a file of keys, and with the sessions of a directory. */
void serve_keys(const char *config, const char *keys_path);
void serve_state(const char *config, const char *directory, const char *durability);

/* Closes the connection and stops the daemon, or ends it with SIGKILL. */
void serve_end(void);
void serve_kill(void);

#endif
