/* live.h: faults in the requests of a daemon that keeps running. */
#ifndef TESTS_FAULT_LIVE_H
#define TESTS_FAULT_LIVE_H

/* Fails each `stride`th call of every step in turn, and checks the daemon after each.  `arguments`:
 * of the daemon, NULL for none; with a state directory, the sessions must be there after a
 * restart. */
void live_run(const char *scene, const char *const arguments[], unsigned stride);

#endif
