/* sandbox.h: the rights that the daemon gives up (option `sandbox`), so that an intruder who takes
 * it over gains little. */
#ifndef SRV_SANDBOX_H
#define SRV_SANDBOX_H

#include "base/errors.h"

/* Writes what this kernel supports, as words for --check: "seccomp, landlock (version 7)".  False
 * where it cannot filter system calls, which the option needs. */
#define SRV_SANDBOX_TEXT_MAX 64
bool srv_sandbox_describe(char out[SRV_SANDBOX_TEXT_MAX]);

/* Called before any thread is started.  From then on no thread gains privileges and, where the
 * kernel has landlock, none writes, makes, removes or executes files, but for files of
 * `directories` [count], which are made where they do not exist.  False with a message where the
 * kernel refuses. */
bool srv_sandbox_restrict_files(const char *const directories[], size_t count,
                                char message[SRV_MESSAGE_MAX]);

/* Called when everything is loaded and open.  From then on all threads make only the system calls
 * that serving needs, and open files only relative to the descriptors `directories` or, where
 * `reads`, any file for reading.  Other calls fail with EPERM.  False with a message where the
 * kernel refuses. */
bool srv_sandbox_restrict_calls(const int directories[], size_t count, bool reads,
                                char message[SRV_MESSAGE_MAX]);

#endif
