/* live.h: faults in the requests of a daemon that lives on. */
#ifndef TESTS_FAULT_LIVE_H
#define TESTS_FAULT_LIVE_H

/* Fails in turn the calls of every step, each `stride`th of them, and looks behind each.
 * `arguments`: of the daemon, NULL for none; with `directory` its sessions are there again after a
 * restart. */
void live_run(const char *scene, const char *const arguments[], unsigned stride);

#endif
