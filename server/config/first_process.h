/* first_process.h: the flags of a container's daemon, for a health check that is given none. */
#ifndef SRV_FIRST_PROCESS_H
#define SRV_FIRST_PROCESS_H

#include <stdbool.h>

#define SRV_FIRST_WORDS 256
#define SRV_FIRST_BYTES 16384

struct srv_first_process {
    int count;
    char *words[SRV_FIRST_WORDS + 2]; /* as argv: attnd's, and --health-check after them */
    char text[SRV_FIRST_BYTES];
};

/* Reads the command line at `path`, /proc/1/cmdline: what follows the word attnd, which may stand
 * after an init of the container.  False where there is none, or it is too long. */
bool srv_first_process_read(struct srv_first_process *out, const char *path);

#endif
