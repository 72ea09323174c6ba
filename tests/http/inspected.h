/* inspected.h: what the system says of a process: its listening port, its memory. */
#ifndef TESTS_HTTP_INSPECTED_H
#define TESTS_HTTP_INSPECTED_H

#include <stdbool.h>
#include <sys/types.h>

/* Waits until the process listens on 127.0.0.1 and returns the port: for a daemon that has not
 * printed its ready line yet.  Fails the test where the process does not listen in time. */
unsigned inspected_await_port(pid_t pid, unsigned timeout_ms);

/* Whether a connection to that port of 127.0.0.1 is accepted; the connection is closed again. */
bool inspected_accepts(unsigned port);

/* Listens on a port of 127.0.0.1 that the kernel gives; returns the socket. */
int inspected_listen(unsigned *port);

/* Whether the writable memory of the process holds the text.  The process must be a child. */
bool inspected_memory_holds(pid_t pid, const char *text);

#endif
