/* process.h: attnd as a child process: started, read, and ended by its id.
 *
 * Standard output and error go to files in memory, so that reading them never blocks and no pipe
 * has to be emptied.  A child never outlives its parent: it is killed with the thread that started
 * it. */
#ifndef TESTS_HTTP_PROCESS_H
#define TESTS_HTTP_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether this build is instrumented.  Times and memory are then a sanitizer's, and not judged.
 * The daemon is taken to be of the same build. */
#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif

struct process {
    pid_t pid;    /* 0: not running */
    int out, err; /* -1: none */
};

/* A variable for daemons in a sandbox, which does not let LeakSanitizer trace them at their end. */
#define PROCESS_NO_LEAKS "LSAN_OPTIONS=detect_leaks=0"

#define PROCESS_MAX_WORDS 64 /* arguments, or variables beside the inherited ones */

/* Starts the daemon named by ATTND (default build/attnd).  `arguments` and `variables` ("NAME=x")
 * end in NULL, or are NULL; variables whose names begin with ATTN_ are not inherited.
 * With the variable SANDBOX every daemon has the option `sandbox`; GEMM=openblas gives it that
 * `gemm`.  SIGTERM drains at once: lame_duck_s is 0, unless a flag says otherwise. */
void process_start(struct process *process, const char *const arguments[],
                   const char *const variables[]);

/* process_start for any program, named by its path. */
void process_start_program(struct process *process, const char *program,
                           const char *const arguments[], const char *const variables[]);

/* Returns all that the child has written to `fd` (process->out or ->err); the caller frees it. */
char *process_text(int fd);

/* Waits for the end: true with *status as from wait(2), false where the child still runs after
 * `seconds`. */
bool process_wait(int *status, struct process *process, unsigned seconds);

/* Kills the child, if it runs, and drops its output; a report of a sanitizer in that output fails
 * the test. */
void process_end(struct process *process);

/* Runs the daemon to its end: returns the exit status, -1 for a signal or a passed deadline.  Texts
 * are the caller's to free. */
int process_run(char **out, char **err, const char *const arguments[],
                const char *const variables[]);

/* Sleeps; for polling. */
void pause_ms(unsigned ms);

/* LD_PRELOAD=... for a library of tests/preload, which stands beside this program. */
void process_preload(char out[512], const char *library);

#endif
