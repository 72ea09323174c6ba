/* sandbox.h: what a daemon gives up (option `sandbox`), so that whoever takes it over has little of
 * it. */
#ifndef SRV_SANDBOX_H
#define SRV_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

/* What this kernel can do of it, as words for --check: "seccomp, landlock (version 7)".  False
 * where it cannot filter system calls, which the option needs. */
#define SRV_SANDBOX_TEXT_MAX 64
bool srv_sandbox_describe(char out[SRV_SANDBOX_TEXT_MAX]);

/* Before any thread is started: from here on nothing gains privileges, and, where the kernel has
 * landlock, nothing is written, made, removed or executed but files of `state_dir` (NULL: none),
 * which is made where it is not there.  False with a message where the kernel refuses. */
bool srv_sandbox_restrict_files(const char *state_dir, char *message, size_t size);

/* When all is loaded and open: from here on all threads may only do what serving needs, and open
 * files by way of the descriptor `directory` alone (-1: open none), or, where `reads`, any to read.
 * Anything else fails with EPERM.  False with a message where the kernel refuses. */
bool srv_sandbox_restrict_calls(int directory, bool reads, char *message, size_t size);

#endif
