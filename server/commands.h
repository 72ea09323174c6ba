/* commands.h: what attnd can do instead of serving.  Each command returns the exit status. */
#ifndef SRV_COMMANDS_H
#define SRV_COMMANDS_H

#include "config/config.h"

int srv_command_help(void);
int srv_command_version(void);

/* Reads the models' headers and prints the options, fitted to the memory limit, the models, and an
 * upper bound on the memory that serving takes. */
int srv_command_check(struct srv_config *config);

/* Sends GET /readyz to the daemon at the configured address: 0 where the answer is 200 within
 * SRV_HEALTH_SECONDS, else 1 with a line on standard error.  The process's SIGALRM is used. */
#define SRV_HEALTH_SECONDS 3
int srv_command_health(const struct srv_config *config);

/* attnd inspect DIR|FILE: prints what a checkpoint directory or a single file holds.  Takes the
 * arguments that follow `inspect`; 1 where there is no checkpoint, 2 where an argument is wrong,
 * each with a line on standard error.  Reads neither weights nor attnd's configuration. */
int srv_command_inspect(int argc, char *const argv[]);

/* attnd inspect --family: prints which keys and tensors of that model_type, or family as replies
 * name it, are read, and how its layers attend; "": every model_type.  1 without memory, 2 where
 * there is no such family, each with a line on standard error. */
int srv_command_family(const char *family);

/* attnd journal check|salvage DIR: prints what a state directory holds, and saves what can be saved
 * of its damaged files.  Takes the arguments that follow `journal`: 0 all is whole, or was saved; 1
 * something is damaged, or could not be read or saved, with a line on standard error; 2 the
 * arguments or the configuration are wrong. */
int srv_command_journal(int argc, char *const argv[]);

/* Writes the http:// or https:// URL of the configured host and a port, an IPv6 host in
 * brackets. */
#define SRV_URL_MAX 80
void srv_print_url(char out[SRV_URL_MAX], const struct srv_config *config, unsigned port);

#endif
