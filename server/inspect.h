/* inspect.h: attnd inspect DIR: what a checkpoint directory or a single file holds. */
#ifndef SRV_INSPECT_H
#define SRV_INSPECT_H

/* Takes the arguments that follow `inspect`; returns the exit status, 1 with a line on standard
 * error where the directory or an argument is wrong.  Reads neither weights nor attnd's
 * configuration. */
int srv_command_inspect(int argc, char *const argv[]);

#endif
