/* scenes.h: faults while a process starts, saves and stops. */
#ifndef TESTS_FAULT_SCENES_H
#define TESTS_FAULT_SCENES_H

/* Fails each `stride`th call of every scene in turn, each in a daemon of its own.  State
 * directories are made within `directory`. */
void scenes_run(const char *directory, unsigned stride);

#endif
