/* inspect.h: attnd inspect DIR: what a checkpoint directory holds. */
#ifndef SRV_INSPECT_H
#define SRV_INSPECT_H

/* Takes the words behind `inspect`; returns the process's exit status, 1 with a line on standard
 * error where the directory or a word is wrong.  Reads no configuration of attnd, and no weights
 * but for --measure. */
int srv_command_inspect(int argc, char *const argv[]);

#endif
