/* scenes.h: faults in what a process does once: starting, saving, stopping. */
#ifndef TESTS_FAULT_SCENES_H
#define TESTS_FAULT_SCENES_H

/* Fails in turn each `stride`th call of every scene, each in a daemon of its own.  `directory`: for
 * state directories. */
void scenes_run(const char *directory, unsigned stride);

#endif
