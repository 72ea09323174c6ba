/* volumes.h: real file systems that fail. */
#ifndef TESTS_FAULT_VOLUMES_H
#define TESTS_FAULT_VOLUMES_H

/* Runs a daemon whose state directory is on btrfs, XFS and ext4 in image files, which become full,
 * are shut down or turn read-only while a snapshot is written.  Prints what could not be run: it
 * takes root, and mounts of loop devices. */
void volumes_run(const char *directory);
void volumes_end(void); /* after a failure too */

#endif
